"""Tables of one query with EMIT FINAL over one log, killed or not: equal rows, equal late rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import psutil
import pytest

from freshline.declare.project_settings import read_settings
from freshline.engine.reading import read_rows
from tests.scenarios.test_final import EVENTS, QUERY, Bag, drawn_batches, expected
from tests.scenarios.test_kill import Shop
from tests.scenarios.test_savepoint_kill import ask

# A row may be late for one window and not for another, and a window has rows of several batches.
CALL = "HOP((SELECT * FROM ev WHERE v > 0), DESCRIPTOR(ts), INTERVAL '2' MINUTES, INTERVAL '6' MINUTES)"
TABLES = ("each_time", "at_the_end", "anew")
DECLARATIONS = {
    "ev": f"CREATE SOURCE ev ({EVENTS}) "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in', 'settle' = '0 seconds')",
    # So much freshness that no loop refreshes them.
    **{
        name: f"CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '10' DAY "
        f"EMIT FINAL ALLOWED LATENESS INTERVAL '1' MINUTE AS {QUERY.format(call=CALL)}"
        for name in TABLES
    },
}
# The table of late rows is written before the other, so the second passing is of the table itself.
KILLS = (
    "table-before-commit",
    "table-writing",
    "table-after-commit",
    "table-before-commit:2",
    "table-writing:2",
    "table-after-commit:2",
)


def bag(rows: Iterable[Mapping[str, Any]]) -> Bag:
    return Counter(
        tuple(each.astimezone(UTC) if isinstance(each, datetime) else each for each in row.values()) for row in rows
    )


def stored(shop: Shop, name: str) -> tuple[Bag, Bag]:
    """The rows of a table, and its late rows, read without the engine."""
    settings = read_settings(shop.root, {})
    late = ["id", "window_start", "window_end", "late_by"]
    return (
        bag(read_rows(name, project=settings).to_pylist()),
        bag(read_rows(f"{name}__late", columns=late, project=settings).to_pylist()),
    )


@pytest.mark.spark
@pytest.mark.long
def test_six_kills_leave_the_same_rows_and_late_rows(tmp_path):
    shop = Shop(tmp_path / "shop", DECLARATIONS)
    batches = drawn_batches(6, count=len(KILLS))
    before: tuple[Bag, Bag] = (Counter(), Counter())
    for number, (batch, kill_at) in enumerate(zip(batches, KILLS, strict=True), 1):
        hidden = shop.root / "in" / f"_{number}"
        hidden.write_text("".join(json.dumps(event) + "\n" for event in batch))
        hidden.rename(shop.root / "in" / f"{number}.json")
        if number == 1:
            # The full refresh needs a table that it can replace.
            shop.run("refresh", "anew")
            shop.run("engine", "stop")

        assert ask(shop, "refresh", "anew", "--full", kill_at=kill_at) != 0, kill_at

        rows = expected(CALL, batches[:number], 1)
        for part, (found, earlier, now) in enumerate(zip(stored(shop, "anew"), before, rows, strict=True)):
            assert found in (earlier, now), (kill_at, part)
        before = stored(shop, "anew")
        shop.run("refresh", "each_time")
        assert stored(shop, "each_time") == rows, kill_at
        shop.run("engine", "stop")
    assert all(rows)

    shop.run("refresh", "at_the_end")
    shop.run("refresh", "anew")
    assert [stored(shop, name) for name in TABLES] == [rows] * 3
    shop.run("refresh", "anew", "--full")
    assert stored(shop, "anew") == rows
    verified = json.loads(shop.run("verify", "--json"))
    assert len(verified) >= 2 * len(TABLES)
    assert all(item["equal"] for item in verified)
    shop.run("engine", "stop")
    psutil.wait_procs(shop.processes(), timeout=30)
    assert shop.processes() == []
