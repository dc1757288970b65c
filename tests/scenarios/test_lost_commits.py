"""A table loses its newest commits, as after a power cut or with an older copy: who had read them reads again.

The engine that goes on gives the same version and the same number to other rows.
"""

from __future__ import annotations

import itertools

import pytest

from freshline.errors import ReadError, SavepointGoneError
from freshline.reads.sql import query
from tests.lanes import long_but
from tests.scenarios.tables import declare

COUNT = "CREATE MATERIALIZED TABLE {name} {more} FRESHNESS = INTERVAL '1' HOUR AS SELECT {columns} FROM {source}"


@pytest.fixture
def shop(lab):
    lab.files("event", "id STRING, k STRING, n BIGINT", primary_key=["id"])
    lab.declare(COUNT.format(name="per_key", more="", columns="k, count(*) AS n", source="event GROUP BY k"))
    lab.declare(COUNT.format(name="each", more="", columns="id, n * 2 AS twice", source="event"))
    lab.declare(COUNT.format(name="above", more="", columns="n, count(*) AS keys", source="per_key GROUP BY n"))
    declare(lab, "SELECT e.id, p.n FROM event e JOIN per_key p ON p.k = e.k", name="found")
    return lab


def land(shop, number, count=3):
    shop.land("event", f"{number}.json", [{"id": f"{number}-{n}", "k": f"k{n}", "n": n} for n in range(count)])


def lose_newest(shop, name):
    log = shop.runtime.warehouse.root / name / "_delta_log"
    max(log.glob("*.json")).unlink()


@pytest.mark.long
@pytest.mark.parametrize(
    ("lost", "more"),
    long_but(
        [(["event"], 2)],
        itertools.product((["event"], ["per_key"], ["event", "per_key"]), (0, 2)),
    ),
)
def test_tables_that_read_lost_commits_have_what_is_there_afterwards(shop, lost, more):
    land(shop, 1)
    shop.refresh_all()
    land(shop, 2)
    shop.refresh_all()

    for name in lost:
        lose_newest(shop, name)
    shop.restart()
    # The batch that is read in place of the lost one is another one.
    land(shop, 3, count=2)
    shop.refresh("event")
    for number in range(more):
        land(shop, 4 + number)
        shop.refresh("event")
    outcomes = {str(outcome.table): outcome for outcome in shop.refresh_all()}

    assert all(str(outcome.state) == "SUCCEEDED" for outcome in outcomes.values()), outcomes
    for name in ("per_key", "each", "above", "found"):
        assert shop.diff(name) == [], name
    if lost == ["event"]:
        assert outcomes["each"].reason.startswith("SOURCE_REPLACED")
    assert shop.refresh("each").strategy == "noop"


@pytest.mark.parametrize(
    "lost", long_but([["each"]], [["each"], ["per_key"], ["above"], ["found"], ["event", "each", "above"]])
)
def test_a_check_that_found_nothing_new_before_the_loss_says_nothing_of_what_came_after(shop, lost):
    land(shop, 1)
    shop.refresh_all()
    land(shop, 2)
    shop.refresh_all()
    # Each table notes that it has read everything, by the number of its newest commit.
    assert {str(outcome.strategy) for outcome in shop.refresh_all()} == {"noop"}

    for name in lost:
        lose_newest(shop, name)
    shop.restart()
    # The number is given again, to a commit that reads further.
    land(shop, 3, count=2)
    shop.refresh_all()
    land(shop, 4)
    shop.refresh_all()

    for name in ("per_key", "each", "above", "found"):
        assert shop.diff(name) == [], name


@pytest.mark.long
def test_a_savepoint_of_a_commit_that_was_lost_brings_back_no_other_one(shop):
    land(shop, 1)
    shop.refresh_all()
    land(shop, 2)
    shop.refresh_all()
    shop.create_savepoint("before")
    lose_newest(shop, "each")
    shop.restart()
    land(shop, 3, count=2)
    shop.refresh_all()
    rows = shop.rows("each")

    with pytest.raises(SavepointGoneError, match="another one has its number now"):
        shop.restore_savepoint("before")

    assert shop.rows("each") == rows
    assert shop.diff("each") == []
    with pytest.raises(ReadError, match="another one has its number now"):
        query(shop.runtime, "SELECT * FROM read_as_of('each', 'before')")
