"""The engine or a command is killed while files arrive: nothing is lost or repeated, no process is left over."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

FILES = "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in', 'settle' = '0 seconds')"
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


class Shop:
    """A project on disk, its files and its commands."""

    def __init__(self, root: Path, declarations: Mapping[str, str] = DECLARATIONS) -> None:
        self.root = root
        (root / "assets").mkdir(parents=True)
        (root / "in").mkdir()
        (root / "pyproject.toml").write_text("[tool.freshline]\n")
        for name, text in declarations.items():
            (root / "assets" / f"{name}.sql").write_text(text)
        self.events: list[dict[str, str]] = []
        self.broken = 0
        self.random = random.Random(11)

    def land(self, count: int = 40) -> None:
        """One complete file of events, now and then with a broken record."""
        start = len(self.events)
        lines = []
        for number in range(start, start + count):
            moment = f"2026-01-{self.random.randrange(1, 6):02d}T{self.random.randrange(24):02d}:00:00Z"
            event = {"event_id": f"e{number}", "k": f"k{self.random.randrange(50)}", "ts": moment}
            self.events.append({**event, "op": self.random.choice("uuud")})
            lines.append(json.dumps(self.events[-1]))
        if self.random.random() < 0.5:
            lines.append("{broken")
            self.broken += 1
        hidden = self.root / "in" / f"_{start}"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(self.root / "in" / f"part-{start:07d}.json")

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "freshline.cli.main", *arguments, "--project", str(self.root)]

    def run(self, *arguments: str) -> str:
        return subprocess.run(self.command(*arguments), check=True, capture_output=True, text=True).stdout

    def rows(self, statement: str) -> list[dict[str, object]]:
        found = json.loads(self.run("sql", "--json", statement))
        assert isinstance(found, list)
        return found

    def processes(self) -> list[psutil.Process]:
        """Everything that runs for this project, whoever its parent is."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if str(self.root) in " ".join(process.info["cmdline"] or ()) and process.pid != os.getpid()
        ]


@pytest.mark.spark
@pytest.mark.long
def test_ten_kills_lose_and_repeat_nothing(tmp_path):
    shop = Shop(tmp_path / "shop")
    done = threading.Event()

    def arrive() -> None:
        while not done.wait(0.4):
            shop.land()

    arriving = threading.Thread(target=arrive)
    arriving.start()
    try:
        for number in range(10):
            if number % 2 == 0:
                shop.run("engine", "start")
            asked = subprocess.Popen(shop.command("refresh"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(shop.random.uniform(4, 14))  # the moment of the kill is what varies
            if number % 3 == 2:
                asked.kill()
            else:
                for process in shop.processes():
                    if "freshline.engine.main" in " ".join(process.cmdline()):
                        process.send_signal(signal.SIGKILL)
            asked.wait(timeout=120)
    finally:
        done.set()
        arriving.join()
    shop.run("refresh")

    for log in ("event", "plain"):
        counted = shop.rows(f"SELECT count(*) AS n, count(DISTINCT event_id) AS u FROM {log}")
        assert counted == [{"n": len(shop.events), "u": len(shop.events)}]
    first: dict[str, tuple[str, str]] = {}
    last: dict[str, tuple[str, str, str]] = {}
    for event in shop.events:
        place = (event["ts"], event["event_id"])
        first[event["k"]] = min(place, first.get(event["k"], place))
        last[event["k"]] = max((*place, event["op"]), last.get(event["k"], (*place, event["op"])))
    assert {row["k"]: row["event_id"] for row in shop.rows("SELECT * FROM earliest")} == {
        key: place[1] for key, place in first.items()
    }
    assert {row["k"]: row["op"] for row in shop.rows("SELECT * FROM latest")} == {
        key: place[2] for key, place in last.items() if place[2] != "d"
    }
    assert all(item["equal"] for item in json.loads(shop.run("verify", "--json")))
    shop.run("engine", "stop")
    psutil.wait_procs(shop.processes(), timeout=30)
    assert shop.processes() == []
