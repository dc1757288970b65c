"""Tables of one query with EMIT FINAL over one log, killed or not: equal rows, equal late rows."""

from __future__ import annotations

from collections import Counter

import pytest

from freshline.declare.project_settings import read_settings
from freshline.engine.reading import read_rows
from tests.scenarios.shop import FILES, Bag, Shop, bag, land_file
from tests.scenarios.test_final import EVENTS, QUERY, drawn_batches, expected

# A row may be late for one window and not for another, and a window has rows of several batches.
CALL = "HOP((SELECT * FROM ev WHERE v > 0), DESCRIPTOR(ts), INTERVAL '2' MINUTES, INTERVAL '6' MINUTES)"
TABLES = ("each_time", "at_the_end", "anew")
DECLARATIONS = {
    "ev": f"CREATE SOURCE ev ({EVENTS}) {FILES}",
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
        land_file(shop.root / "in", str(number), batch)
        if number == 1:
            # The full refresh needs a table that it can replace.
            shop.run("refresh", "anew")
            shop.run("engine", "stop")

        assert shop.exit_code("refresh", "anew", "--full", kill_at=kill_at) != 0, kill_at

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
    assert len(shop.verify()) >= 2 * len(TABLES)
    shop.stop_engine()
