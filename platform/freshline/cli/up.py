"""`freshline up`: the engine with its loops, and the Dagster UI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import click

from freshline.cli.declared import open_declared
from freshline.cli.failures import name_beside
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.processes import UpRecord
from freshline.cli.progress import Progress
from freshline.cli.supervisor import Supervisor, check_port, interruptible, last_line, record_file
from freshline.errors import EngineError
from freshline.report.alerts.channels.configured import channel_problems
from freshline.values.settings import Settings, as_private

_START_SECONDS = 600.0  # the first start may fetch jars


@click.command(epilog="\b\nExample:\n  freshline up --detach")
@click.option("--detach", is_flag=True, help="Return when all processes answer. `freshline down` ends them.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the Dagster UI, 0 for any free one.  [default: the setting dagster-port]",
)
@project_option
@json_option
def command(detach: bool, port: int | None, project: Path | None, as_json: bool) -> int:
    """Start the engine with its loops, the Dagster webserver and daemon, and a watch, all on loopback.

    The engine then refreshes the tables by their modes until Ctrl-C, which ends all processes. Logs are in the state
    folder. An alert channel that cannot be used is named, and the others go on.
    """
    settings = open_settings(project)
    # All mistakes are reported at once, before anything starts. They must not keep the other tables from being
    # refreshed: a machine that restarts says `up` too.
    open_declared(settings)
    # A channel that cannot be used leaves the others, and the tables, as they are.
    name_beside(channel_problems(settings))
    if detach:
        return _detach(settings, port, as_json)
    with interruptible():
        supervisor = Supervisor(settings, lambda sentence: click.echo(sentence, err=True), port=port)
        with Progress() as progress:
            supervisor.start(progress)
        try:
            _report_ready(settings, supervisor.url, as_json)
            if not as_json:
                click.echo("Ctrl-C ends the engine and Dagster.", err=True)
            return supervisor.watch(threading.Event())
        except KeyboardInterrupt:
            click.echo("ending", err=True)
            return 0
        finally:
            supervisor.stop()


def _report_ready(settings: Settings, url: str | None, as_json: bool) -> None:
    click.echo(json.dumps({"url": url}) if as_json else f"Dagster UI: {url}\nfreshness board: {url}/freshline/")
    if settings.dagster_token is not None and not as_json:
        click.echo(f"A browser opens {url}/?token=.. once, with the token of {settings.dagster_token}.", err=True)


def _detach(settings: Settings, port: int | None, as_json: bool) -> int:
    record = UpRecord.read(record_file(settings))
    if record is not None and record.supervisor.alive and record.url:
        _report_ready(settings, record.url, as_json)
        return 0
    chosen = settings.dagster_port if port is None else port
    if chosen:
        check_port(chosen)
    log = settings.state / "logs" / "up.log"
    with as_private(settings.umask):
        log.parent.mkdir(parents=True, exist_ok=True)
        opened = log.open("ab")
    with opened as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "freshline.cli.main", "up", "--project", str(settings.root), "--port", str(chosen)],
            cwd=settings.root,
            env={**os.environ, "FRESHLINE_ENV": settings.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with Progress() as progress:
        progress("starting the engine and Dagster")
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                process.wait(timeout=0.2)
                raise EngineError(f"it did not start: {last_line(log)}")
            except subprocess.TimeoutExpired:
                record = UpRecord.read(record_file(settings))
            if record is not None and record.supervisor.pid == process.pid and record.url:
                break
        else:
            raise EngineError(f"it is still starting: {last_line(log)}. `freshline down` ends it.")
    _report_ready(settings, record.url, as_json)
    return 0
