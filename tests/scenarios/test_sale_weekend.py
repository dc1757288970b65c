"""Freshness goes through all modes twenty times while events arrive and engines are killed: not a row is lost."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

import freshline
from tests.scenarios.shop import Shop, repeated

CHANGES, KILLS = 20, 5
FILES_A_SECOND = 5  # of forty events each
TABLES = ("earliest", "latest", "daily", "found")
PROMISES = {
    "continuous": ("1 second", "2 seconds", "5 seconds"),
    "incremental": ("1 minute", "5 minutes", "20 minutes"),
    "batch": ("1 hour", "6 hours", "1 day"),
}


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
                killed += self.shop.kill_engines()
            self.change()
            if number in kills and not first:
                time.sleep(self.random.uniform(0, 2))  # that of a kill too
                killed += self.shop.kill_engines()
            if number in kills:
                self.shop.run("engine", "start")
        return killed


@pytest.mark.spark
@pytest.mark.long
def test_twenty_changes_and_five_kills_lose_and_repeat_nothing(tmp_path):
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed {seed}")
    shop = Shop(tmp_path / "shop")
    sale, files = Sale(shop, seed), 0
    shop.land()
    shop.run("engine", "start")
    begin = time.monotonic()

    def arrive() -> None:
        nonlocal files
        while files < (time.monotonic() - begin) * FILES_A_SECOND:
            shop.land()
            files += 1

    with repeated(arrive, 0.05):
        killed = sale.run()
    rate = len(shop.events) / (time.monotonic() - begin)
    shop.run("refresh")

    assert killed == KILLS
    assert rate > 180
    assert {mode for _, mode, _ in sale.changes} == set(PROMISES)
    shop.check("event", "plain", "found")
    days = Counter((event["ts"][:10], event["k"]) for event in shop.events)
    assert {(str(row["day"]), row["k"]): row["n"] for row in shop.rows("SELECT * FROM daily")} == days
    for table in TABLES:
        shown = shop.rows(f"SHOW REFRESHES FOR {table}")
        told = [(row["mode"], row["reason"]) for row in reversed(shown) if row["state"] == "ALTERED"]
        assert told == [(mode, reason) for name, mode, reason in sale.changes if name == table]
    shop.verify()
    shop.stop_engine()
