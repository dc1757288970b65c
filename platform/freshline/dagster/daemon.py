"""Run Dagster's daemon for a project.

It does what `dagster-daemon run -w workspace.yaml` does, except that code servers are replaced when declarations have
changed and not each minute. DAGSTER_HOME names Dagster's own folder, as there.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from dagster import DagsterInstance

from freshline.dagster.changes import ProjectChanges
from freshline.dagster.internals import (
    DagsterDaemonController,
    WorkspaceFileTarget,
    WorkspaceProcessContext,
    configure_loggers,
    create_daemon_grpc_server_registry,
    create_daemons_from_instance,
    get_instance_for_cli,
)
from freshline.dagster.locations import kept_locations
from freshline.declare.project import read_settings
from freshline.errors import FreshlineError
from freshline.values.settings import Settings

_CHECK_SECONDS = 1.0
_HEARTBEAT_CHECK_SECONDS = 60.0
# For changes that are not checked though a location was loaded from them, such as a package that was upgraded.
_RENEWED_AFTER_SECONDS = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; 1 when the settings are wrong. Raises when a thread of the daemon has ended."""
    parser = argparse.ArgumentParser(prog="python -m freshline.dagster.daemon", description=__doc__)
    parser.add_argument("--project", type=Path, required=True, help="folder of the project")
    given = parser.parse_args(arguments)
    try:
        settings = read_settings(given.project, os.environ)
    except FreshlineError as error:
        print(error, file=sys.stderr)
        return 1
    configure_loggers(formatter="json" if settings.log_format == "json" else "colored", log_level="INFO")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with get_instance_for_cli() as instance:
            _run(settings, instance)
    except KeyboardInterrupt:
        return 0
    return 0


def _run(settings: Settings, instance: DagsterInstance) -> None:
    with ExitStack() as stack:
        changes = ProjectChanges(settings)
        registry = stack.enter_context(create_daemon_grpc_server_registry(instance, "WARNING"))
        daemons = [stack.enter_context(each) for each in create_daemons_from_instance(instance)]
        workspace = WorkspaceFileTarget([str(settings.root / "workspace.yaml")])
        process = stack.enter_context(WorkspaceProcessContext(instance, workspace, grpc_server_registry=registry))
        controller = stack.enter_context(DagsterDaemonController(process, daemons, grpc_server_registry=registry))
        stack.enter_context(kept_locations(process, changes, _RENEWED_AFTER_SECONDS))
        checked_at = time.monotonic()
        while True:
            time.sleep(_CHECK_SECONDS)
            controller.check_daemon_threads()
            if time.monotonic() - checked_at >= _HEARTBEAT_CHECK_SECONDS:
                controller.check_daemon_heartbeats()
                checked_at = time.monotonic()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # The code servers are ended on the way out.
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
