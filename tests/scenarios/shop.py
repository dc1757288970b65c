"""Projects on disk for stories of several processes: their commands, files that arrive, and kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

Bag = Counter[tuple[Any, ...]]
FILES = "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in', 'settle' = '0 seconds')"


def bag(rows: Iterable[Mapping[str, Any]]) -> Bag:
    """The values of rows, and how often each is there, with times in UTC."""
    return Counter(
        tuple(each.astimezone(UTC) if isinstance(each, datetime) else each for each in row.values()) for row in rows
    )


def land_file(folder: Path, name: str, lines: Iterable[Mapping[str, Any] | str]) -> None:
    """A file that is complete when it is seen; a line is a record or a text."""
    hidden = folder / f"_{name}"
    hidden.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    hidden.rename(folder / f"{name}.json")


@contextmanager
def repeated(action: Callable[[], None], pause: float) -> Iterator[None]:
    """Another thread does it again and again, with so many seconds between."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(pause):
            action()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def wait_until(condition: Callable[[], bool], what: str = "it came about", seconds: float = 300.0) -> float:
    """Wait until it is so; returns the seconds that it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, f"after {seconds:.0f} s not yet: {what}"
        time.sleep(0.3)
    return time.monotonic() - begin


def command_of(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "freshline.cli.main", *arguments]


def answer_of(*arguments: str) -> str:
    """The output of a command that succeeds."""
    told = subprocess.run(command_of(*arguments), capture_output=True, text=True, timeout=1_200)
    assert told.returncode == 0, f"{arguments}: {told.stdout[-2000:]} {told.stderr[-2000:]}"
    return told.stdout


class Project:
    """The folder of a project, its commands and its processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def declare(self, settings: str, declarations: Mapping[str, str]) -> None:
        (self.root / "assets").mkdir(parents=True, exist_ok=True)
        (self.root / "in").mkdir()
        (self.root / "pyproject.toml").write_text(f"[tool.freshline]\n{settings}")
        for name, text in declarations.items():
            (self.root / "assets" / f"{name}.sql").write_text(text)

    def begin(self, settings: str, declarations: Mapping[str, str]) -> None:
        """Begin as a person does, with `freshline init`, and declare these instead of its examples."""
        answer_of("init", str(self.root))
        for file in (self.root / "assets").glob("*.sql"):
            file.unlink()
        self.declare(settings, declarations)

    def command(self, *arguments: str) -> list[str]:
        return command_of(*arguments, "--project", str(self.root))

    def run(self, *arguments: str) -> str:
        return answer_of(*arguments, "--project", str(self.root))

    def exit_code(self, *arguments: str, kill_at: str = "") -> int:
        """Run a command; with `kill_at`, the engine that it starts is killed there."""
        environ = {**os.environ, "FRESHLINE_TEST": "1", "FRESHLINE_FAILPOINT": kill_at}
        return subprocess.run(self.command(*arguments), check=False, env=environ, capture_output=True).returncode

    def rows(self, statement: str) -> list[dict[str, object]]:
        found = json.loads(self.run("sql", "--json", statement))
        assert isinstance(found, list)
        return found

    def verify(self) -> list[dict[str, Any]]:
        """Every table is equal to its definition; returns what the command says of each."""
        verified: list[dict[str, Any]] = json.loads(self.run("verify", "--json"))
        assert [item for item in verified if not item["equal"]] == []
        return verified

    def processes(self) -> list[psutil.Process]:
        """Everything that runs for this project, whoever its parent is."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if str(self.root) in " ".join(process.info["cmdline"] or ()) and process.pid != os.getpid()
        ]

    def kill_engines(self) -> int:
        """Kill the engine's own process, wherever it is; its JVM is left to whoever comes next."""
        engines = [process for process in self.processes() if "freshline.engine.main" in " ".join(process.cmdline())]
        for process in engines:
            process.send_signal(signal.SIGKILL)
        psutil.wait_procs(engines, timeout=30)
        return len(engines)

    def stop_engine(self) -> None:
        """Stop the engine, which leaves no process."""
        self.run("engine", "stop")
        self.require_no_process()

    def require_no_process(self) -> None:
        psutil.wait_procs(self.processes(), timeout=30)
        assert self.processes() == []


COLUMNS = "event_id STRING, k STRING, op STRING, ts TIMESTAMP"
KEY = "PRIMARY KEY (k)"
DECLARATIONS = {
    "event": f"CREATE SOURCE event ({COLUMNS}, PRIMARY KEY (event_id)) {FILES}",
    "plain": f"CREATE SOURCE plain ({COLUMNS}) {FILES}",
    "earliest": f"CREATE MATERIALIZED TABLE earliest ({KEY}) WITH ('merge' = 'first_row', 'merge.order' = 'ts', "
    "'merge.tie-breaker' = 'event_id') FRESHNESS = INTERVAL '2' SECOND AS SELECT k, event_id, ts FROM event",
    "latest": f"CREATE MATERIALIZED TABLE latest ({KEY}) WITH ('merge' = 'last_row', 'merge.sequence' = 'ts', "
    "'merge.tie-breaker' = 'event_id', 'merge.delete-when' = 'op = ''d''') FRESHNESS = INTERVAL '2' SECOND "
    "AS SELECT k, op, ts FROM event",
    "daily": "CREATE MATERIALIZED TABLE daily PARTITIONED BY (day) FRESHNESS = INTERVAL '2' SECOND AS "
    "SELECT CAST(ts AS DATE) AS day, k, count(*) AS n FROM plain GROUP BY CAST(ts AS DATE), k",
    "found": "CREATE MATERIALIZED TABLE found FRESHNESS = INTERVAL '2' SECOND AS SELECT p.event_id, p.k, "
    "e.event_id AS first_id, version_of(e) AS seen FROM plain p LEFT JOIN earliest FOR SYSTEM_TIME AS OF PROCTIME() "
    "AS e ON p.k = e.k",
}


class Shop(Project):
    """A project with random events, and their first and last ones by definition."""

    def __init__(self, root: Path, declarations: Mapping[str, str] = DECLARATIONS) -> None:
        super().__init__(root)
        self.declare("", declarations)
        self.events: list[dict[str, str]] = []
        self.random = random.Random(11)

    def land(self, count: int = 40) -> None:
        """One complete file of events, now and then with a broken record."""
        start = len(self.events)
        lines: list[Mapping[str, Any] | str] = []
        for number in range(start, start + count):
            moment = f"2026-01-{self.random.randrange(1, 6):02d}T{self.random.randrange(24):02d}:00:00Z"
            event = {"event_id": f"e{number}", "k": f"k{self.random.randrange(50)}", "ts": moment}
            self.events.append({**event, "op": self.random.choice("uuud")})
            lines.append(self.events[-1])
        if self.random.random() < 0.5:
            lines.append("{broken")
        land_file(self.root / "in", f"part-{start:07d}", lines)

    def earliest(self) -> dict[str, str]:
        first: dict[str, tuple[str, str]] = {}
        for event in self.events:
            place = (event["ts"], event["event_id"])
            first[event["k"]] = min(place, first.get(event["k"], place))
        return {key: place[1] for key, place in first.items()}

    def latest(self) -> dict[str, str]:
        last: dict[str, tuple[str, str, str]] = {}
        for event in self.events:
            place = (event["ts"], event["event_id"], event["op"])
            last[event["k"]] = max(place, last.get(event["k"], place))
        return {key: place[2] for key, place in last.items() if place[2] != "d"}

    def check(self, *logs: str) -> None:
        """Each event is once in these tables, and of each key the first and the last event."""
        for log in logs:
            counted = self.rows(f"SELECT count(*) AS n, count(DISTINCT event_id) AS u FROM {log}")
            assert counted == [{"n": len(self.events), "u": len(self.events)}], log
        assert {row["k"]: row["event_id"] for row in self.rows("SELECT * FROM earliest")} == self.earliest()
        assert {row["k"]: row["op"] for row in self.rows("SELECT * FROM latest")} == self.latest()
