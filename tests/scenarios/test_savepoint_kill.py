"""The engine is killed while tables are saved and brought back: the end is that of a run that never failed."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from freshline.declare.project_settings import read_settings
from freshline.engine.reading import open_reader, read_rows
from tests.scenarios.shop import Shop

COLUMNS = {
    "event": "event_id",
    "plain": "event_id",
    "earliest": "k, event_id, ts",
    "latest": "k, op, ts",
    "daily": "day, k, n",
}
ALL = " UNION ALL ".join(
    f"SELECT '{name}' AS name, to_json(struct({columns})) AS line FROM {name}" for name, columns in COLUMNS.items()
)


class Follower:
    """A consumer of `latest` that keeps a copy of it, and may stop and come back at any time."""

    def __init__(self, shop: Shop) -> None:
        self.settings = read_settings(shop.root, {})
        self.copy: Counter[str] = Counter()

    def follow(self) -> None:
        reader = open_reader("latest", consumer_id="copy", project=self.settings)
        for portion in reader:
            for row in portion.data.to_pylist():
                change = row.pop("_change_type", "insert")
                text = json.dumps({name: str(row[name]) for name in ("k", "op", "ts")})
                self.copy[text] += -1 if change in ("delete", "update_preimage") else 1
        reader.commit()
        self.copy = +self.copy

    def rows(self) -> list[str]:
        return sorted(self.copy.elements())


def stored(shop: Shop) -> list[str]:
    rows = read_rows("latest", columns=["k", "op", "ts"], project=read_settings(shop.root, {})).to_pylist()
    return sorted(json.dumps({name: str(row[name]) for name in ("k", "op", "ts")}) for row in rows)


def contents(shop: Shop) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in COLUMNS}
    for row in shop.rows(ALL):
        found[str(row["name"])].append(str(row["line"]))
    return {name: sorted(lines) for name, lines in found.items()}


@pytest.mark.spark
@pytest.mark.long
def test_kills_while_a_savepoint_is_made_and_restored(tmp_path):
    shop = Shop(tmp_path / "shop")
    for _ in range(5):
        shop.land()
    shop.run("refresh")
    before = contents(shop)
    shop.run("engine", "stop")
    # Killed before it is there: it is not, and the name is free.
    assert shop.exit_code("savepoint", "create", "calm", kill_at="savepoint-read") != 0
    assert json.loads(shop.run("savepoint", "list", "--json")) == []
    shop.run("savepoint", "create", "calm")
    follower = Follower(shop)
    follower.follow()

    for kill_at in ("restore-begun", "restore-table:3", "restore-done"):
        for _ in range(3):
            shop.land(1_200)
        # The tables are kept by loops while their freshness is another one.
        shop.run("alter", "daily", "--freshness", "3 seconds", "--for", "1h")
        shop.run("engine", "start")
        shop.run("refresh")
        assert contents(shop) != before
        follower.follow()
        assert follower.rows() == stored(shop)
        shop.run("engine", "stop")
        assert shop.exit_code("savepoint", "restore", "calm", kill_at=kill_at) != 0

        # The first query starts an engine, which finishes the restore before it answers.
        assert contents(shop) == before

    assert len(shop.events) > 10_000
    follower.follow()
    assert follower.rows() == stored(shop)
    shop.verify()
    shop.run("refresh")
    events = sorted(json.dumps({"event_id": event["event_id"]}, separators=(",", ":")) for event in shop.events)
    found = contents(shop)
    assert found["event"] == events
    assert found["plain"] == events
    assert sum(json.loads(row)["n"] for row in found["daily"]) == len(events)
    earliest = [json.loads(text) for text in found["earliest"]]
    assert {row["k"]: row["event_id"] for row in earliest} == shop.earliest()
    shop.verify()
    follower.follow()
    assert follower.rows() == stored(shop)
    shop.stop_engine()
