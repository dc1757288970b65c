"""Freshness goes through all modes twenty times while events arrive and engines are killed: not a row is lost."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter

import psutil
import pytest

import freshline
from tests.scenarios.test_kill import Shop

CHANGES, KILLS = 20, 5
FILES_A_SECOND = 5  # of forty events each
TABLES = ("earliest", "latest", "daily", "found")
PROMISES = {
    "continuous": ("1 second", "2 seconds", "5 seconds"),
    "incremental": ("1 minute", "5 minutes", "20 minutes"),
    "batch": ("1 hour", "6 hours", "1 day"),
}


def kill_engine(shop: Shop) -> int:
    """Kill the engine's own process, wherever it is; its JVM is left to whoever comes next."""
    engines = [process for process in shop.processes() if "freshline.engine.main" in " ".join(process.cmdline())]
    for process in engines:
        process.send_signal(signal.SIGKILL)
    psutil.wait_procs(engines, timeout=30)
    return len(engines)


class Sale:
    """Twenty changes at random moments; each goes into another mode than the table is in."""

    def __init__(self, shop: Shop, seed: int) -> None:
        self.shop = shop
        self.random = random.Random(seed)
        self.modes = dict.fromkeys(TABLES, "continuous")
        self.changes: list[tuple[str, str, str]] = []

    def change(self) -> None:
        table = self.random.choice(TABLES)
        mode = self.random.choice([mode for mode in PROMISES if mode != self.modes[table]])
        freshness = self.random.choice(PROMISES[mode])
        decision = freshline.set_freshness(table, freshness, by="operator", project=self.shop.root)
        (told,) = decision.changes
        assert (str(told.mode_before), str(told.mode_after)) == (self.modes[table], mode)
        self.modes[table] = mode
        self.changes.append((table, mode, str(told)))

    def run(self) -> int:
        """Make the changes; returns how many engines were killed."""
        killed = 0
        kills = set(self.random.sample(range(CHANGES), KILLS))
        for number in range(CHANGES):
            time.sleep(self.random.uniform(0.5, 6))  # the moment of a change is what varies
            # The engine dies some moments before a change or after it.
            first = number in kills and self.random.random() < 0.5
            if first:
                killed += kill_engine(self.shop)
            self.change()
            if number in kills and not first:
                time.sleep(self.random.uniform(0, 2))  # that of a kill too
                killed += kill_engine(self.shop)
            if number in kills:
                self.shop.run("engine", "start")
        return killed


@pytest.mark.spark
@pytest.mark.long
def test_twenty_changes_and_five_kills_lose_and_repeat_nothing(tmp_path):
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed {seed}")
    shop = Shop(tmp_path / "shop")
    sale, done = Sale(shop, seed), threading.Event()

    def arrive() -> None:
        begin, files = time.monotonic(), 0
        while not done.wait(0.05):
            while files < (time.monotonic() - begin) * FILES_A_SECOND:
                shop.land()
                files += 1

    shop.land()
    shop.run("engine", "start")
    arriving = threading.Thread(target=arrive)
    arriving.start()
    begin = time.monotonic()
    try:
        killed = sale.run()
    finally:
        done.set()
        arriving.join()
    rate = len(shop.events) / (time.monotonic() - begin)
    shop.run("refresh")

    assert killed == KILLS
    assert rate > 180
    assert {mode for _, mode, _ in sale.changes} == set(PROMISES)
    for log in ("event", "plain", "found"):
        counted = shop.rows(f"SELECT count(*) AS n, count(DISTINCT event_id) AS u FROM {log}")
        assert counted == [{"n": len(shop.events), "u": len(shop.events)}], log
    first: dict[str, tuple[str, str]] = {}
    last: dict[str, tuple[str, str, str]] = {}
    days: Counter[tuple[str, str]] = Counter()
    for event in shop.events:
        place = (event["ts"], event["event_id"])
        first[event["k"]] = min(place, first.get(event["k"], place))
        last[event["k"]] = max((*place, event["op"]), last.get(event["k"], (*place, event["op"])))
        days[event["ts"][:10], event["k"]] += 1
    assert {row["k"]: row["event_id"] for row in shop.rows("SELECT * FROM earliest")} == {
        key: place[1] for key, place in first.items()
    }
    assert {row["k"]: row["op"] for row in shop.rows("SELECT * FROM latest")} == {
        key: place[2] for key, place in last.items() if place[2] != "d"
    }
    assert {(str(row["day"]), row["k"]): row["n"] for row in shop.rows("SELECT * FROM daily")} == days
    for table in TABLES:
        shown = shop.rows(f"SHOW REFRESHES FOR {table}")
        told = [(row["mode"], row["reason"]) for row in reversed(shown) if row["state"] == "ALTERED"]
        assert told == [(mode, reason) for name, mode, reason in sale.changes if name == table]
    verified = json.loads(shop.run("verify", "--json"))
    assert [item["table"] for item in verified if not item["equal"]] == []
    shop.run("engine", "stop")
    psutil.wait_procs(shop.processes(), timeout=30)
    assert shop.processes() == []
