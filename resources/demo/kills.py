"""Used by the demos that kill parts of what runs: the engine, its environment, and a Postgres."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import psutil

from freshline.cli.ask import ask
from freshline.cli.progress import Progress
from freshline.cli.refresh import FINE, outcome_lines
from freshline.cli.supervisor import undisturbed
from freshline.engine.client import EngineClient
from freshline.engine.process import ProcessId
from freshline.engine.state_file import read_state
from freshline.errors import EngineError, SettingsError
from freshline.values.settings import Settings

DECLARATIONS, ADDRESS = "FRESHLINE_DECLARATIONS", "FRESHLINE_DEMO_DATABASE"
KILLS = 10
ENGINE, JVM = "engine", "JVM"
_GONE_SECONDS = 10.0


def new_postgres() -> Any:
    """A Postgres that was not started yet (resources/database.py).

    Raises SettingsError where it or its driver is not installed.
    """
    try:
        database = importlib.import_module("resources.database")
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise SettingsError("psycopg is not installed. Run: pip install 'freshline[postgres]'.") from error
    programs = database.find_programs()
    if programs is None:
        raise SettingsError("Postgres is not installed, which the demo starts (on Debian: apt-get install postgresql).")
    return database.new_database(programs)


@contextmanager
def environment(given: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that are started; put back for who calls this in a process of its own."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def require_going_on(changing: Future[Any], seconds: float) -> None:
    """Wait; raises what ended the writer meanwhile."""
    with contextlib.suppress(TimeoutError):
        changing.result(timeout=seconds)


class DemoEngine:
    """The engine of the demo, which keeps tables by their modes."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings = settings
        self._progress = progress
        self._client = self._connect()

    def start_again(self) -> None:
        """Start it, and wait for it, where it does not run."""
        self._client = self._connect()

    def kill(self, part: Callable[[Any], ProcessId]) -> None:
        """End one of its processes by kill -9, and wait until it is gone."""
        state = read_state(self._settings.state)
        if state is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(part(state).pid)
                process.kill()
                process.wait(_GONE_SECONDS)

    def kill_all(self, victims: Collection[str]) -> None:
        """End those of its processes that are among them."""
        if ENGINE in victims:
            self.kill(lambda state: state.process)
        if JVM in victims:
            self.kill(lambda state: state.jvm)

    def ask(self, command: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The events of an answer. Raises CommandError and EngineError."""
        return ask(self._client, command, self._progress, **arguments)

    def refresh(self, say: Callable[[str], None]) -> None:
        """Bring all tables up to date, and say what went wrong."""
        for event in self.ask("refresh"):
            if event["type"] == "outcome" and event["outcome"]["state"] not in FINE:
                say("\n".join(outcome_lines(event["outcome"])))

    def stop(self) -> None:
        with undisturbed():
            try:
                self._client.stop()
            except EngineError as error:
                self._progress.print(str(error))

    def _connect(self) -> EngineClient:
        return EngineClient.connect(self._settings, start=True, loops=True, progress=self._progress)
