"""`freshline watch`: notice broken promises, and report them."""

from __future__ import annotations

import json
import logging
import platform
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freshline.cli.failures import FAILED
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.processes import UpRecord
from freshline.cli.supervisor import record_file
from freshline.engine.declarations import Declarations
from freshline.engine.process import ProcessId
from freshline.engine.state_file import read_state
from freshline.engine.watch_health import is_gone
from freshline.errors import FreshlineError, RequestError
from freshline.report.log_lines import line_formatter
from freshline.values.settings import Settings

if TYPE_CHECKING:
    from freshline.freshness.record import Heartbeat
    from freshline.report.alerts.process import Identity
    from freshline.report.alerts.silence import SchedulerCheck
    from freshline.report.alerts.watch import WatchSurroundings

LOG = logging.getLogger(__name__)

_DAEMON = "dagster-daemon"


@click.command(epilog="\b\nExample:\n  freshline watch --once")
@click.option("--once", is_flag=True, help="Check once, send the messages, and return: for cron.")
@project_option
@json_option
def command(once: bool, project: Path | None, as_json: bool) -> int:
    """Check every table, the engine and the scheduler, and report problems through the alert channels.

    The watch runs until Ctrl-C or SIGTERM, outside the engine and Dagster, so that it notices the end of either.
    `freshline up` starts one. An environment has one watch at a time. Exit code 1 where a channel cannot be had.
    """
    if as_json and not once:
        raise RequestError("--json goes with --once.")
    settings = open_settings(project)
    surroundings, own = surroundings_of(settings), identity()
    # SQLAlchemy and delta-rs are imported when they are used, like all that is heavy.
    from freshline.report.alerts.process import check_once, run

    _log_to_stderr(settings.log_format)
    if once:
        found = check_once(settings, surroundings, own)
        if as_json:
            click.echo(json.dumps([message.as_json() for message in found.messages], indent=2))
        # Each is in the log above.
        return FAILED if found.missing else 0
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: over.set())
    run(settings, surroundings, own, over)
    return 0


def surroundings_of(settings: Settings) -> WatchSurroundings:
    """The surroundings of a project's watch: its declarations, its processes, its UI. Raises DeclarationErrors."""
    from freshline.report.alerts.watch import WatchSurroundings

    declarations, up = Declarations(settings), Up(settings)
    return WatchSurroundings(
        graph=declarations.check,
        scheduler=_scheduler_reader(settings),
        ended=lambda heartbeats: [*_ended_engine(settings, heartbeats), *up.ended()],
        dagster_url=lambda: settings.dagster_url or up.url,
        left_out=lambda: declarations.left_out,
    )


def identity() -> Identity:
    """This process, as others find it."""
    from freshline.report.alerts.process import Identity

    own = ProcessId.own()
    return Identity({"pid": own.pid, "started": own.started, "mark": own.mark, "host": platform.node()}, is_gone)


class Up:
    """The record of the running `freshline up`."""

    def __init__(self, settings: Settings) -> None:
        self._file = record_file(settings)

    @property
    def url(self) -> str | None:
        """The address of the Dagster UI."""
        record = self._record()
        return None if record is None else record.url

    def ended(self) -> list[str]:
        """`scheduler`, if the daemon that `up` started is no more."""
        record = self._record()
        daemon = None if record is None else dict(record.children).get(_DAEMON)
        return [] if daemon is None or daemon.alive else ["scheduler"]

    def _record(self) -> UpRecord | None:
        with suppress(FreshlineError):
            record = UpRecord.read(self._file)
            return record if record is not None and record.supervisor.alive else None
        return None


def _ended_engine(settings: Settings, heartbeats: Mapping[str, Heartbeat]) -> list[str]:
    """`engine`, if its heartbeat is of a process of this machine that is no more."""
    heartbeat = heartbeats.get("engine")
    if heartbeat is None:
        return []
    with suppress(FreshlineError):
        state = read_state(settings.state)
        if state is not None and state.process.pid == heartbeat.detail.get("pid") and not state.alive:
            return ["engine"]
    return []


def _scheduler_reader(settings: Settings) -> Callable[[], SchedulerCheck | None]:
    """A reader of Dagster's storage, where this project has one; a trouble with it is logged once."""
    trouble: list[str] = []

    def read() -> SchedulerCheck | None:
        if not (settings.state / "dagster").is_dir():
            return None
        try:
            # Imported here: Dagster is large, and a project without it is watched as well.
            from freshline.dagster.scheduler import read_scheduler

            found = read_scheduler(settings)
        except Exception as error:  # noqa: BLE001 - Dagster's storage raises what its database does
            if not trouble:
                LOG.warning("Dagster's storage cannot be read; its sensors' own heartbeats are watched: %s", error)
                trouble.append(str(error))
            return None
        trouble.clear()
        return found

    return read


def _log_to_stderr(log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(line_formatter(log_format, "%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # How a database is brought to its newest format is said when it fails.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.captureWarnings(True)
