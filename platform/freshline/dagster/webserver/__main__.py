"""Serve the UI of a project on loopback, with the guard in the same process.

It does what `dagster-webserver -w workspace.yaml` does. DAGSTER_HOME names Dagster's own folder, as there.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import uvicorn
from dagster import __version__ as dagster_version
from dagster_webserver.app import create_app_from_workspace_process_context

from freshline.dagster.changes import ProjectChanges
from freshline.dagster.internals import (
    WorkspaceFileTarget,
    WorkspaceProcessContext,
    configure_loggers,
    get_instance_for_cli,
)
from freshline.dagster.locations import kept_locations
from freshline.dagster.webserver.access import Access
from freshline.dagster.webserver.board import BoardPages
from freshline.dagster.webserver.guard import Guard
from freshline.dagster.webserver.login import Login
from freshline.declare.project import read_settings
from freshline.engine.connections import bounded
from freshline.errors import FreshlineError
from freshline.values.secret import read_dagster_token
from freshline.values.settings import Settings

# As dagster-webserver's own options have them.
_STATEMENT_MILLISECONDS = 15_000
_POOL_RECYCLE_SECONDS = 3_600
_POOL_MAX_OVERFLOW = 20
_LIVE_DATA_MILLISECONDS = 2_000

_LARGEST_SOCKET_MESSAGE = 1 << 20
_STOP_SECONDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; 1 when the settings or the token are wrong."""
    parser = argparse.ArgumentParser(prog="python -m freshline.dagster.webserver", description=__doc__)
    parser.add_argument("--project", type=Path, required=True, help="folder of the project")
    parser.add_argument("--port", type=int, required=True, help="port of the UI on 127.0.0.1")
    given = parser.parse_args(arguments)
    try:
        settings = read_settings(given.project, os.environ)
        access = access_of(settings, given.port, read_dagster_token(settings, os.environ))
    except FreshlineError as error:
        print(error, file=sys.stderr)
        return 1
    configure_loggers(formatter="json" if settings.log_format == "json" else "colored", log_level="INFO")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _serve(settings, access)
    except KeyboardInterrupt:
        return 0
    return 0


def access_of(settings: Settings, port: int, token: str | None) -> Access:
    """The requests that the guard of a project accepts."""
    login = None if token is None else Login(token, port)
    return Access(port, settings.dagster_hosts, login, settings.dagster_read_only)


def _serve(settings: Settings, access: Access) -> None:
    def clock() -> datetime:
        return datetime.now(UTC)

    with get_instance_for_cli() as instance:
        changes = ProjectChanges(settings)
        instance.optimize_for_webserver(_STATEMENT_MILLISECONDS, _POOL_RECYCLE_SECONDS, _POOL_MAX_OVERFLOW)
        with (
            WorkspaceProcessContext(
                instance,
                WorkspaceFileTarget([str(settings.root / "workspace.yaml")]),
                version=dagster_version,
                read_only=access.read_only,
            ) as process,
            kept_locations(process, changes),
        ):
            app = create_app_from_workspace_process_context(process, live_data_poll_rate=_LIVE_DATA_MILLISECONDS)
            board = BoardPages(settings, clock, read_only=access.read_only)
            uvicorn.run(
                Guard(app, board, access, clock),
                host="127.0.0.1",
                port=access.port,
                # On h11, which bounds the size of headers.
                http=bounded(),
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                # X-Forwarded-For and its like could be anybody's.
                proxy_headers=False,
                ws_max_size=_LARGEST_SOCKET_MESSAGE,
                timeout_graceful_shutdown=_STOP_SECONDS,
            )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # The code servers are ended on the way out.
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
