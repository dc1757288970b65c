"""Everything that a run of chaos has at hand: the project, its parts, what was sent, and the faults that stand."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freshline.declare.project_settings import read_settings
from resources.broker import Broker, new_broker
from tests.chaos.clock import Clock
from tests.chaos.commands import Answer, Commands
from tests.chaos.disk import Disk
from tests.chaos.kafka import Producer
from tests.chaos.observer import Observer, check_all, wait_until
from tests.chaos.parts import Parts
from tests.chaos.project import KAFKA_TABLES, TABLES, write_project
from tests.chaos.sent import Generator, Portion, Sent
from tests.postgres import PostgresServer

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
_POINT_SECONDS = 20.0
_HEAL_SECONDS = 240.0
_QUIET_SECONDS = 60.0
_STARTS = 3
_LOCATIONS = "{ workspaceOrError { ... on Workspace { locationEntries { name } } } }"
_LAUNCH = """mutation { launchPipelineExecution(executionParams: { mode: "default", selector: {
  repositoryLocationName: "LOCATION", repositoryName: "__repository__", jobName: "__ASSET_JOB",
  assetSelection: [KEYS], assetCheckSelection: [] } }) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""


@dataclass(frozen=True)
class Options:
    """The options of a run: with a broker, with Postgres as control store; how fast files arrive."""

    seed: int
    folder: Path
    kafka: bool = True
    postgres: PostgresServer | None = None
    rows: int = 12
    every_seconds: float = 1.5
    code: Path | None = None


class World:
    """One attacked project. `problems` are sentences on what was wrong; none means that every promise was kept."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self.options = options
        self.say = say
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        folder = options.folder
        folder.mkdir(parents=True, exist_ok=True)
        self.parts = Parts(f"chaos-{folder.name}-{random.SystemRandom().randrange(10**9)}")
        self.disk = Disk.open(folder / "disk.img", folder / "disk")
        self.clock = Clock.open(folder)
        self.landing = folder / "landing"
        self.points = folder / "points"
        self.points.mkdir(exist_ok=True)
        self.root = self.disk.folder / "shop"
        self.broker = self._open_broker() if options.kafka else None
        self.producer: Producer | None = None
        self.standing = ExitStack()
        self.sent = Sent.read(folder / "sent.jsonl")
        self.generator = Generator(options.seed, self.sent)
        # The lander and a fault may send at one time. A portion is counted and kept before the next one is made.
        self._delivering = threading.Lock()
        self.tables = tuple(name for name in TABLES if options.kafka or name not in KAFKA_TABLES)
        self.commands = Commands(lambda: self.root, self.parts, folder / "commands.jsonl", self.environ, self.complain)
        self.observer = Observer(lambda: self.state / "warehouse", self.sent, self.tables, self.complain)
        self.lander = Lander(self)
        self._redeclared = True
        self._moved = False
        self._rows_of_plain = sum(len(portion.rows) for portion in self.sent.portions if portion.source == "plain")
        self._known = folder / "observer.json"
        if self._known.exists():
            self.observer.go_on(json.loads(self._known.read_text(encoding="utf-8")))

    @property
    def state(self) -> Path:
        """The project's folder of state."""
        return self.root / ".freshline" / "local"

    def environ(self) -> dict[str, str]:
        """The environment of every process of the project."""
        more = {"SPARK_SUBMIT_OPTS": QUICK_JVM, "FRESHLINE_TEST": "1", "FRESHLINE_FAILPOINT_FOLDER": str(self.points)}
        environ = self.parts.environ(**more, **self.clock.environ)
        for name in ("FRESHLINE_ENV", "FRESHLINE_WAREHOUSE", "FRESHLINE_DECLARATIONS"):
            environ.pop(name, None)
        if self.options.code is not None:
            environ["PYTHONPATH"] = str(self.options.code)
        return environ

    def complain(self, problem: str) -> None:
        """Keep what is wrong, and say it at once."""
        self.problems.append(problem)
        self.say(f"WRONG: {problem}")

    # -- the beginning and the end

    def open(self) -> None:
        """Make the project, or take the one that is there, and start its parts."""
        store = None
        if self.options.postgres is not None:
            store = self.options.postgres.new_database()
        if self.broker is not None:
            self.broker.start()
            self.producer = Producer(self.broker)
            self.producer.create_topic("paid")
        if not self.root.exists():
            servers = None if self.broker is None else self.broker.servers
            write_project(self.root, landing=self.landing, servers=servers, store=store)
        for portion in self.sent.portions:
            # A harness that was killed may have kept a portion and not delivered it. A topic cannot be asked so easily.
            if portion.source != "paid" and not (self.landing / portion.source / portion.name).exists():
                self._land(portion)
        # The first of each, so that no table is without rows.
        for source in ("event", "plain", "paid"):
            self.deliver(source)
        self.start_up()
        self.heal()

    def close(self) -> None:
        """End every part. The files of the disk stay in the folder of the run."""
        self.lander.close()
        self.standing.close()
        self.parts.end()
        self.observer.close()
        if self.producer is not None:
            self.producer.close()
        if self.broker is not None:
            self.broker.kill()

    def keep(self) -> Path:
        """Copy the project out of its disk, for whoever searches for the reason of a failure."""
        kept = self.options.folder / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.root, kept, ignore_dangling_symlinks=True)
        return kept

    def start_up(self) -> None:
        """Start the engine, Dagster and the watch; again, where they were killed."""
        said = ""
        for _ in range(_STARTS):
            self.commands.run("down")
            answer = self.commands.run("up", "--detach")
            if answer.code == 0:
                return
            said = answer.err + answer.out
        self.complain(f"freshline up does not start: {said}")

    # -- sending

    def deliver(self, source: str, **how: bool) -> None:
        """Send the next portion of a source: kept first, then landed or sent."""
        if source == "paid" and self.producer is None:
            return
        with self._delivering:
            portion = self.generator.portion(source, self.options.rows, **how)
            self.sent.add(portion)
            if source == "paid":
                assert self.producer is not None
                self.producer.send("paid", portion.records())
                return
            self._land(portion)
            if source == "plain":
                self._rows_of_plain += len(portion.rows)
                self.observer.promise.sent(time.time(), self._rows_of_plain)

    def _land(self, portion: Portion) -> None:
        folder = self.landing / portion.source
        hidden = folder / f"_{portion.number}"
        hidden.write_bytes(portion.content())
        hidden.rename(folder / portion.name)

    # -- work

    def redeclare(self, factor: int | None = None) -> bool:
        """Declare the table `scaled` with another factor, or with the last one again; whether that succeeded.

        A statement that is stopped half way may have written the file and not the table; given again it does the rest.
        """
        if factor is not None:
            self.observer.factors.append(factor)
            self.keep_known()
        query = f"SELECT event_id, n * {self.observer.factors[-1]} AS scaled FROM event"
        statement = f"ALTER MATERIALIZED TABLE scaled AS {query} FROM BEGINNING"
        self._redeclared = self.commands.run("sql", "--json", statement).code == 0
        return self._redeclared

    def restore(self, name: str) -> None:
        """Restore a savepoint. It may be of a time before the last declaration, which then has to be given again."""
        self.commands.run("savepoint", "restore", name, "--json")
        self._redeclared = False

    def keep_known(self) -> None:
        """Keep what the observer knows, for a run that goes on after this one, however this one ends."""
        hidden = self._known.with_suffix(".part")
        hidden.write_text(json.dumps(self.observer.as_json()), encoding="utf-8")
        hidden.replace(self._known)

    def materialize(self, tables: Sequence[str]) -> bool:
        """Ask Dagster for a run over some tables; whether it was launched."""
        try:
            url = json.loads((self.state / "up.json").read_text(encoding="utf-8"))["url"]
            located = self._ask_dagster(url, _LOCATIONS)["workspaceOrError"]["locationEntries"]
            keys = ", ".join(f'{{path: ["{name}"]}}' for name in tables)
            launch = _LAUNCH.replace("LOCATION", located[0]["name"]).replace("KEYS", keys)
            answer = self._ask_dagster(url, launch)["launchPipelineExecution"]
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            # The webserver may be dead, or on its way back.
            self.counts[f"Dagster did not launch: {type(error).__name__}"] += 1
            return False
        return "run" in answer

    def _ask_dagster(self, url: str, query: str) -> Any:
        request = urllib.request.Request(
            f"{url}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=15.0) as answer:
            return json.load(answer)["data"]

    # -- faults

    def passed(self) -> Counter[str]:
        """How often each named point of a refresh was passed so far."""
        file = self.points / "passed"
        return Counter(file.read_text(encoding="utf-8").split()) if file.exists() else Counter()

    def hold_at(self, point: str, passing: int) -> bool:
        """Let the engine wait at a named point; whether it came there in time. `let_go` ends the wait."""
        (self.points / "reached").unlink(missing_ok=True)
        token = f"{time.monotonic_ns()}"
        hidden = self.points / ".armed"
        hidden.write_text(json.dumps({"id": token, "point": point, "passing": passing}), encoding="utf-8")
        hidden.replace(self.points / "armed")
        reached = wait_until((self.points / "reached").exists, _POINT_SECONDS, 0.02)
        if not reached:
            # Else an engine that starts later would wait there, and whoever waits for that engine with it.
            self.let_go()
        self.counts["points asked for"] += 1
        self.counts["points reached"] += reached
        return reached

    def let_go(self) -> None:
        """Let whoever waits at a point go on."""
        (self.points / "armed").unlink(missing_ok=True)

    def heal(self) -> float:
        """Take all faults back, and wait until every table has everything; returns the CPU-seconds that it took."""
        self.let_go()
        self.standing.close()
        self.standing = ExitStack()
        self.parts.go_on()
        if self.broker is not None and not self.broker.running:
            self.broker.start()
        self.lander.pause()
        before = self.parts.cpu_seconds()
        if not self.parts.by_role().get("up"):
            self.start_up()
        deadline = time.monotonic() + _HEAL_SECONDS
        problems = ["no refresh has succeeded"]
        tries = 0
        while problems and time.monotonic() < deadline:
            answer = self.commands.run("refresh", "--json", seconds=_HEAL_SECONDS)
            tries += 1
            if not self._redeclared:
                self.redeclare()
            if self.problems:
                # A table that is wrong may never be refreshed again; what else is there is in the folder of the run.
                return self.parts.cpu_seconds() - before
            if answer.code != 0:
                problems = [f"refresh fails after everything was healed: {_failures(answer)}"]
                time.sleep(1.0)
                continue
            problems = self._check()
            if tries >= 3 and problems:
                # A refresh that succeeded has everything; the next two are for what a loop was doing meanwhile.
                break
        for problem in problems:
            self.complain(problem)
        if self._moved or not self.parts.by_role().get("up"):
            # It ends where the project is gone, and lets running work go on until then.
            self.start_up()
            self._moved = False
        spent = self.parts.cpu_seconds() - before
        self.lander.go_on()
        return spent

    def _check(self) -> list[str]:
        try:
            return check_all(self.observer)
        except Exception as error:  # noqa: BLE001 - delta-rs raises many kinds, and each is reported
            return [f"the tables cannot be read: {type(error).__name__}: {error}"]

    def standing_still(self, seconds: float) -> None:
        """Let files arrive and refreshes go on for a while without a fault; ends early when something is wrong."""
        deadline = time.monotonic() + seconds
        wait_until(lambda: bool(self.problems) or time.monotonic() >= deadline, seconds + 1.0, 0.5)
        if seconds and not self.parts.by_role().get("up"):
            self.complain("freshline up has ended although nothing attacked it")

    def control_store(self) -> Path:
        """The file of the control store."""
        return self.state / "control.db"

    def lock_store(self) -> Callable[[], None]:
        """Lock the control store against everybody; returns how to let it go."""
        if self.options.postgres is not None:
            raise RuntimeError("not a file")
        connection = sqlite3.connect(self.control_store(), isolation_level=None, check_same_thread=False, timeout=30.0)
        connection.execute("BEGIN EXCLUSIVE")

        def let_go() -> None:
            connection.execute("ROLLBACK")
            connection.close()

        return let_go

    def move(self, away: bool) -> None:
        """Give the project's folder another name, or its own again."""
        with self.observer.lock:
            own, other = self.disk.folder / "shop", self.disk.folder / "renamed shop"
            if away:
                self._moved = True
                own.rename(other)
                return
            # Whoever had a file open there may have made the folder again. A first commit would be a second history.
            # A commit that was on its way may be there without its table. If it were believed, rows would be missing.
            made = Counter(file.parent for file in own.rglob("_delta_log/*.json"))
            anew = [str(log) for log, commits in made.items() if commits > 1 or (log / f"{0:020}.json").exists()]
            if anew:
                self.complain(f"tables were written where the project had been: {anew[:3]}")
            shutil.rmtree(own, ignore_errors=True)
            other.rename(own)

    def _open_broker(self) -> Broker:
        folder = self.options.folder / "broker"
        broker = new_broker(read_settings_of(self.options.folder), folder)
        properties = folder / "server.properties"
        if properties.exists():
            # The broker of the run that goes on: clients know it by its port.
            text = properties.read_text(encoding="utf-8")
            listeners = next(line for line in text.splitlines() if line.startswith("listeners="))
            broker.port, broker.controller_port = (int(each.rsplit(":", 1)[1]) for each in listeners.split(","))
        return broker


def read_settings_of(folder: Path) -> Any:
    """Settings of an empty project, for where jars and Java are."""
    import os

    file = folder / "pyproject.toml"
    if not file.exists():
        file.write_text("[tool.freshline]\n", encoding="utf-8")
    return read_settings(folder, os.environ)


def _failures(answer: Answer) -> str:
    try:
        value = answer.json
    except ValueError:
        return (answer.err or answer.out)[-600:]
    if isinstance(value, dict):
        return str(value.get("error"))
    return "; ".join(
        f"{item['table']}: {item['state']} {item['error']}" for item in value if item["state"] != "SUCCEEDED"
    )


@dataclass
class Lander:
    """Sends portions all the time, plain ones and odd ones, until it is paused."""

    world: World
    _going: threading.Event = field(default_factory=threading.Event)
    _closed: threading.Event = field(default_factory=threading.Event)
    _busy: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    number: int = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="lander", daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        self._going.set()

    def pause(self) -> None:
        """Return when nothing is on its way any more. Raises RuntimeError where a portion cannot be sent."""
        self._going.clear()
        if not self._busy.acquire(timeout=_QUIET_SECONDS):
            raise RuntimeError("a portion is on its way for a minute")
        self._busy.release()

    def close(self) -> None:
        self._closed.set()
        self._going.set()
        if self._thread is not None:
            self._thread.join(_QUIET_SECONDS)

    def _run(self) -> None:
        chance = random.Random(f"{self.world.options.seed}/lander")
        while not self._closed.is_set():
            self._going.wait()
            with self._busy:
                if self._going.is_set() and not self._closed.is_set():
                    source = ("event", "plain", "event", "paid")[self.number % 4]
                    again = source in ("event", "paid") and chance.random() < 0.2
                    try:
                        self.world.deliver(source, again=again)
                    except Exception as error:
                        print(f"the harness cannot send: {error}", file=sys.stderr)
                        raise
                    self.number += 1
            self._closed.wait(self.world.options.every_seconds)
