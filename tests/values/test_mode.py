"""Rule 3: a pure function gives the mode, and its reason is a sentence."""

from __future__ import annotations

import pytest

from freshline.values.freshness import Freshness
from freshline.values.mode import by_freshness
from freshline.values.names import TableName
from freshline.values.spec import Mode

T = TableName(None, "t")


@pytest.mark.parametrize(
    ("seconds", "mode", "reason"),
    [
        (10, Mode.CONTINUOUS, "freshness 10 seconds is below 1 minute"),
        (59, Mode.CONTINUOUS, "freshness 59 seconds is below 1 minute"),
        (60, Mode.INCREMENTAL, "freshness 1 minute is below 30 minutes"),
        (1799, Mode.INCREMENTAL, "freshness 1799 seconds is below 30 minutes"),
        (1800, Mode.BATCH, "freshness 30 minutes is not below 30 minutes"),
        (21600, Mode.BATCH, "freshness 6 hours is not below 30 minutes"),
    ],
)
def test_freshness_picks_the_mode(seconds, mode, reason):
    assert by_freshness(Freshness(seconds), Freshness(60), Freshness(1800)) == (mode, reason)


def test_the_thresholds_are_settings(shop):
    shop.settings('continuous-below = "5 minutes"\nincremental-below = "2 hours"')
    shop.table("t", "SELECT id FROM orders", header="FRESHNESS = INTERVAL '2' MINUTE")
    graph = shop.read()

    assert graph.mode(T) is Mode.CONTINUOUS
    assert graph.mode_reason(T) == "freshness 2 minutes is below 5 minutes"


@pytest.mark.parametrize("word", ["CONTINUOUS", "INCREMENTAL", "BATCH"])
def test_an_explicit_mode_wins(shop, word):
    shop.table("t", "SELECT id FROM orders", header=f"FRESHNESS = INTERVAL '10' SECOND REFRESH_MODE = {word}")
    graph = shop.read()

    assert graph.mode(T) is Mode[word]
    assert graph.mode_reason(T) == f"REFRESH_MODE = {word} is declared"


def test_auto_is_no_mode_of_its_own(shop):
    shop.table("t", "SELECT id FROM orders", header="FRESHNESS = INTERVAL '10' SECOND REFRESH_MODE = AUTO")
    assert shop.read().mode(T) is Mode.CONTINUOUS


@pytest.mark.parametrize("word", ["CONTINUOUS", "INCREMENTAL"])
def test_a_query_that_nothing_drives_cannot_be_kept_by_changes(shop, word):
    shop.table("t", "SELECT 1 AS one", header=f"REFRESH_MODE = {word}")
    shop.check_error(
        "REFRESH_MODE",
        f"REFRESH_MODE = {word} cannot be had: no input drives its query",
        "Take BATCH, or AUTO.",
        at="assets/t.sql:2",
    )


def test_auto_does_without_what_it_cannot_have_and_says_so(shop):
    shop.table("t", "SELECT 1 AS one", header="FRESHNESS = INTERVAL '10' SECOND")
    graph = shop.read()

    assert graph.mode(T) is Mode.BATCH
    assert graph.mode_reason(T) == (
        "freshness 10 seconds is below 1 minute, but no input drives its query, so no commit could start a refresh"
    )


PYTHON = """import freshline

@freshline.table(freshness="10 seconds"{mode})
def t(orders):
    return orders
"""
PROCESS = """import freshline

@freshline.process(reads="orders", keys="id", order="id", columns="id BIGINT", freshness="10 seconds")
class T:
    def row(self, row, out):
        out.emit(row.id)
"""


@pytest.mark.seconds
def test_a_python_table_that_follows_changes_is_kept_continuously(shop):
    for text in (PROCESS, PYTHON.format(mode=', keys={"orders": "id"}'), PYTHON.format(mode=', append="orders"')):
        shop.declare("t.py", text)
        assert shop.read().mode(T) is Mode.CONTINUOUS


@pytest.mark.seconds
def test_a_python_table_without_a_promise_is_not_kept_continuously(shop):
    shop.declare("t.py", PYTHON.format(mode=""))
    graph = shop.read()

    assert graph.mode(T) is Mode.INCREMENTAL
    assert "promises neither keys nor append" in graph.mode_reason(T)

    shop.declare("t.py", PYTHON.format(mode=', mode="continuous"'))
    shop.check_error("REFRESH_MODE", "Take INCREMENTAL or BATCH, or AUTO.", at="assets/t.py:3")


def test_a_source_has_the_mode_of_its_freshness(shop):
    shop.table("t", "SELECT id FROM orders", header="FRESHNESS = INTERVAL '10' SECOND")
    graph = shop.read()

    assert graph.mode(TableName(None, "orders")) is Mode.CONTINUOUS
    assert graph.mode(TableName(None, "customers")) is Mode.BATCH
