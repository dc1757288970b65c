"""The processes of `freshline up`: the engine with its loops, Dagster's webserver and daemon, and the watch.

Each runs in a process of its own and writes to a log file in the state folder. The supervisor starts them in order,
notices when one of them ends, says so, starts it again, and ends all of them. The engine is started again by Dagster's
sensor, which goes on when the supervisor itself is killed. Everything that is started is on record (`UpRecord`), so
that `freshline down` can end it then.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from freshline.cli.ask import running_engine
from freshline.cli.processes import MARK, UpRecord, end_marked, new_mark, rotate, start
from freshline.engine.client import EngineClient
from freshline.engine.down_mark import write_down_mark
from freshline.engine.lock import find_holder
from freshline.engine.process import ProcessId
from freshline.engine.state_file import read_state, remove_state
from freshline.engine.up_record import LONG_RUNNING, EndedChild
from freshline.engine.up_record import record_file as record_file
from freshline.engine.watch_health import is_gone
from freshline.errors import EngineError, FreshlineError, SettingsError
from freshline.values.secret import read_dagster_token
from freshline.values.settings import Settings, as_private

_READY_SECONDS = 180.0  # a webserver on a cold disk, with every table's metadata to read
_WATCH_SECONDS = 1.0
_ENGINE_WATCH_SECONDS = 5.0
_STOP_SECONDS = 120.0  # what `up` may need to end all that it started
_LOG_BYTES = 10_000_000
_WATCH, _WEBSERVER, _DAEMON = "watch", "dagster-webserver", "dagster-daemon"
_LONGEST_PAUSE_SECONDS = 60.0
# A process that ran this long was well; its next end is no failure to start.
_WELL_SECONDS = 60.0

# The heartbeat of Dagster's sensors, and the starts of an engine that they count.
SCHEDULER_HEARTBEATS = ("scheduler", "engine-start")
ENGINE_HEARTBEAT = "engine"

# So many more runs than the engine refreshes at once are processes, which mostly wait. Dagster queues the others.
_WAITING_RUNS = 8
_DAGSTER_YAML = """\
# Written by `freshline up` at each start.
telemetry:
  enabled: false
# No dialog of Dagster's over the first page.
nux:
  enabled: false
run_coordinator:
  module: dagster.core.run_coordinator
  class: QueuedRunCoordinator
  config:
    max_concurrent_runs: {most_runs}
    # Backfills take hours, and leave places to the others.
    tag_concurrency_limits:
      - {{key: dagster/backfill, limit: {most_backfills}}}
    dequeue_interval_seconds: 1
# Each tick of a sensor leaves a row: a day of those that only looked, a week of the others.
retention:
  sensor:
    purge_after_days:
      skipped: 1
      success: 7
      failure: 7
      started: 7
"""


def dagster_yaml(settings: Settings) -> str:
    """The text of the instance's dagster.yaml, whose queue of runs fits what the engine does at once."""
    at_once = settings.parallel_refreshes
    return _DAGSTER_YAML.format(most_runs=at_once + _WAITING_RUNS, most_backfills=at_once)


def check_port(port: int) -> None:
    """Raise SettingsError when another process listens on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise SettingsError(
                f"port {port} of the Dagster UI is in use. End the process that has it, or take another port: "
                "--port, or dagster-port under [tool.freshline] in pyproject.toml."
            ) from error


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP (a closed terminal) end the command as Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within it Ctrl-C and the like are ignored: what must be ended is ended, within its own time limits."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class _Kept:
    """A process that is started again: how, when it was (monotonic seconds), and how often it did not stay."""

    start: Callable[[], None]
    began_at: float
    ends: int = 0
    again_at: float | None = None


class Supervisor:
    """One run of `up`; `say` gets a sentence for everything a person should know."""

    def __init__(self, settings: Settings, say: Callable[[str], None], *, port: int | None = None) -> None:
        self.settings = settings
        self.url: str | None = None
        self._port = settings.dagster_port if port is None else port
        self._say = say
        self._mark = new_mark()
        self._record = UpRecord(self._mark, ProcessId.own())
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._engine: EngineClient | None = None
        self._kept: dict[str, _Kept] = {}

    @property
    def engine(self) -> EngineClient:
        """The engine, once `start` has returned."""
        if self._engine is None:
            raise EngineError("the engine was not started")
        return self._engine

    def start(self, progress: Callable[[str], None]) -> None:
        """Start all of it; returns when the UI answers. Whatever fails, nothing that was started stays."""
        end_left(self.settings)
        port = self._port or free_port()
        check_port(port)
        workspace = self.settings.root / "workspace.yaml"
        if not workspace.is_file():
            raise SettingsError(
                "there is no workspace.yaml for Dagster; `freshline init` shows one.", where=str(workspace)
            )
        # A token that cannot be read is reported before anything runs.
        read_dagster_token(self.settings, os.environ)
        try:
            self._start_engine(progress)
            progress("starting the Dagster webserver")
            self._write_dagster_yaml()
            root = str(self.settings.root)
            module = "freshline.dagster.webserver"
            self._keep(_WEBSERVER, self._start_child, "dagster", module, "--project", root, "--port", str(port))
            self._wait_for_webserver(port)
            progress("starting the Dagster daemon")
            self._keep(_DAEMON, self._start_child, "dagster", "freshline.dagster.daemon", "--project", root)
            self.url = f"http://127.0.0.1:{port}"
            self._write(url=self.url)
            self._keep(_WATCH, self._start_child, "watch", "freshline.cli.main", "watch", "--project", root)
        except BaseException:
            self.stop()
            raise

    def watch(self, stop: threading.Event) -> int:
        """Keep all of it until `stop` is set; returns the exit code.

        A process that ends meanwhile is reported, with the place of its log, and started again after a pause that grows
        while it does not stay. Exit code 1 when there is no project any more that could be kept.
        """
        engine_ended = False
        engine_looked_at = time.monotonic()
        workspace = self.settings.root / "workspace.yaml"
        while not stop.wait(_WATCH_SECONDS):
            if not workspace.is_file():
                self._say(f"{workspace} is gone: there is nothing left to keep")
                return 1
            for name, kept in self._kept.items():
                self._look_after(name, kept)
            if time.monotonic() - engine_looked_at >= _ENGINE_WATCH_SECONDS:
                engine_looked_at = time.monotonic()
                engine_ended = self._watch_engine(engine_ended)
                for name in self._kept:
                    rotate(self._log(name), _LOG_BYTES)
        return 0

    def stop(self) -> None:
        """End all that was started, in order: the watch, Dagster, whose runs ask the engine, then the engine."""
        with undisturbed():
            # First of all: a process that is ended in order is no alert.
            end_marked(f"{self._mark}/watch")
            for process in self._children.values():
                if process.poll() is None:
                    process.terminate()
            end_marked(f"{self._mark}/dagster")
            for process in self._children.values():
                process.wait()
            forget_heartbeats(self.settings, SCHEDULER_HEARTBEATS, self._say)
            if self._record.started_engine:
                # Not the one of the start: that may have died, and a run or a sensor have started another.
                engine = running_engine(self.settings) or self._engine
                if engine is not None:
                    _stop_engine(engine, self._say)
                end_marked(f"{self._mark}/engine")
            elif self._engine is not None:
                self._say("the engine was running before and stays; `freshline engine stop` ends it")
            record_file(self.settings).unlink(missing_ok=True)

    def _start_engine(self, progress: Callable[[str], None]) -> None:
        running = running_engine(self.settings)
        # An engine without loops was begun by a single command and would end by itself: it is taken over.
        self._write(started_engine=running is None or not running.health().get("loops"))
        os.environ[MARK] = f"{self._mark}/engine"
        try:
            self._engine = EngineClient.connect(self.settings, start=True, loops=True, progress=progress)
        finally:
            del os.environ[MARK]

    def _write_dagster_yaml(self) -> None:
        with as_private(self.settings.umask):
            self._dagster_home.mkdir(parents=True, exist_ok=True)
            (self._dagster_home / "dagster.yaml").write_text(dagster_yaml(self.settings), encoding="utf-8")

    def _keep(self, name: str, start: Callable[..., None], *arguments: str) -> None:
        """Start a process, now and whenever it has ended by itself."""
        kept = self._kept[name] = _Kept(partial(start, name, *arguments), time.monotonic())
        kept.start()

    def _look_after(self, name: str, kept: _Kept) -> None:
        process = self._children[name]
        now = time.monotonic()
        if process.poll() is None:
            if kept.ends and now - kept.began_at > _WELL_SECONDS:
                kept.ends = 0
                self._write_ended(name)
            return
        if kept.again_at is None:
            if now - kept.began_at > _WELL_SECONDS:
                kept.ends = 0
            kept.ends += 1
            kept.again_at = now + min(2.0 ** min(kept.ends, 10), _LONGEST_PAUSE_SECONDS)
            self._write_ended(name, EndedChild(name, kept.ends, process.returncode, last_line(self._log(name))))
            if kept.ends == 1:
                self._say(
                    f"{name} has ended (code {process.returncode}) and is started again; its log: {self._log(name)}"
                )
        elif now >= kept.again_at:
            kept.again_at, kept.began_at = None, now
            kept.start()

    def _write_ended(self, name: str, ended: EndedChild | None = None) -> None:
        """Keep on record that a child does not stay, or that it is well again: `status` and the board show it."""
        others = tuple(each for each in self._record.ended if each.name != name)
        self._write(ended=others if ended is None else (*others, ended))

    def _start_child(self, name: str, part: str, module: str, *arguments: str) -> None:
        """Start a process of the part `part` of the mark, with its output in a log of its own."""
        log = self._log(name)
        rotate(log, _LOG_BYTES)
        environ = {
            **LONG_RUNNING,
            # A backfill waits for a location that fails to load at the moment, rather than fail with it.
            "DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR": "1",
            **os.environ,
            "DAGSTER_HOME": str(self._dagster_home),
            "FRESHLINE_ENV": self.settings.environment,
            "PYTHONUNBUFFERED": "1",
        }
        process, child = start(
            [sys.executable, "-m", module, *arguments],
            log=log,
            environ=environ,
            mark=f"{self._mark}/{part}",
            folder=self.settings.root,
            umask=self.settings.umask,
        )
        self._children[name] = process
        others = tuple(known for known in self._record.children if known[0] != name)
        self._write(children=(*others, (name, child)))

    @property
    def _dagster_home(self) -> Path:
        return self.settings.state / "dagster"

    def _wait_for_webserver(self, port: int) -> None:
        process = self._children["dagster-webserver"]
        deadline = time.monotonic() + _READY_SECONDS
        log = self._log("dagster-webserver")
        while not _answers(port):
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=0.3)
                raise EngineError(f"the Dagster webserver ended with code {code}: {last_line(log)}")
            if time.monotonic() > deadline:
                raise EngineError(f"the Dagster webserver does not answer: {last_line(log)}")

    def _watch_engine(self, ended: bool) -> bool:
        """Report when the engine ends and when it is there again; returns whether it has ended."""
        try:
            if ended:
                # A command that needed one may have started another meanwhile, and that one has no loops.
                self._engine = EngineClient.connect(self.settings, start=False, loops=True)
                self._say("the engine is running again")
            else:
                self.engine.health()
        except EngineError as error:
            if not ended:
                self._say(f"{error} `freshline engine start` starts the engine again.")
            return True
        return False

    def _log(self, name: str) -> Path:
        return self.settings.state / "logs" / f"{name}.log"

    def _write(self, **changes: object) -> None:
        self._record = replace(self._record, **changes)  # type: ignore[arg-type]
        self._record.write(record_file(self.settings))


def end_left(settings: Settings) -> int:
    """End what a killed `up` left; returns how many processes. Raises EngineError when an `up` is alive."""
    record = UpRecord.read(record_file(settings))
    if record is None:
        return 0
    if record.supervisor.alive:
        at = f" at {record.url}" if record.url else ""
        raise EngineError(f"freshline is up already{at} (process {record.supervisor.pid}). `freshline down` ends it.")
    return _end_recorded(settings, record, lambda _: None)


def end_all(settings: Settings, say: Callable[[str], None]) -> int:
    """End all that `up` and `engine start` began in this environment; returns how many processes were ended."""
    ended = 0
    # Before any process is searched: a command that waits to start an engine gives up (see `down_mark`).
    write_down_mark(settings.state)
    record = UpRecord.read(record_file(settings))
    if record is not None:
        if record.supervisor.alive:
            # It ends what it started, in order; this waits as long as that may take.
            record.supervisor.end(grace_seconds=_STOP_SECONDS)
            ended += 1 + sum(not child.alive for _, child in record.children)
        ended += _end_recorded(settings, record, say)
    engine = running_engine(settings)
    if engine is not None:
        _stop_engine(engine, say)
        ended += 1
    ended += _end_silent_engine(settings)
    forget_heartbeats(settings, (ENGINE_HEARTBEAT,), say)
    return ended


def forget_heartbeats(settings: Settings, names: Sequence[str], say: Callable[[str], None]) -> None:
    """They were ended on purpose: nobody is to wait for their next heartbeat.

    A watch gives its own back when it ends in order. That of one that is gone is forgotten too, and no other.
    """
    # Imported here: most commands need no database.
    from freshline.commit.control_store import ControlStore

    try:
        with closing(ControlStore.open(settings.control_store, settings.umask)) as store:
            for name in names:
                store.heartbeats.forget(name)
            watch = store.heartbeats.read().get(_WATCH)
            if watch is not None and is_gone(watch.detail):
                store.heartbeats.forget(_WATCH)
    except FreshlineError as error:
        # The processes are ended all the same; a watch that runs elsewhere will say that it is silent.
        say(str(error))


def _end_silent_engine(settings: Settings) -> int:
    """End an engine that does not answer (or is only starting), and the JVM that a killed one left."""
    left: list[ProcessId | None] = []
    state = read_state(settings.state)
    if state is not None:
        left += [state.process, state.jvm]
    holder = find_holder(settings.warehouse)
    if holder is not None and holder.state == str(settings.state):
        left += [holder.process, holder.jvm]
    ended = sum(process.end(grace_seconds=_STOP_SECONDS) for process in left if process is not None)
    if state is not None:
        remove_state(settings.state, state)
    return ended


def last_line(log: Path) -> str:
    """The last line of a log that says something, and where the rest is."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 8192))
            lines = [line.strip() for line in stream.read().decode(errors="replace").split("\n") if line.strip()]
    except OSError:
        lines = []
    return f"{lines[-1]} (log: {log})" if lines else f"see {log}"


def _end_recorded(settings: Settings, record: UpRecord, say: Callable[[str], None]) -> int:
    ended = end_marked(f"{record.mark}/watch") + end_marked(f"{record.mark}/dagster")
    forget_heartbeats(settings, SCHEDULER_HEARTBEATS, say)
    if record.started_engine:
        engine = running_engine(settings)
        if engine is not None:
            engine.stop()
            ended += 1
        ended += end_marked(f"{record.mark}/engine")
    record_file(settings).unlink(missing_ok=True)
    return ended


def _stop_engine(engine: EngineClient, say: Callable[[str], None]) -> None:
    try:
        engine.stop()
    except EngineError as error:
        say(str(error))


def _answers(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        try:
            connection.request("GET", "/server_info")
            # The guard asks for a token, and so it answers.
            return connection.getresponse().status in (200, 401)
        except (OSError, http.client.HTTPException):
            return False
