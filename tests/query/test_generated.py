"""Rows that have none of the affected keys are the same before and after: DuckDB says so, of random queries.

No Spark is needed for it, so thousands of queries can be checked. `FRESHLINE_GENERATED_QUERIES` is how many the long
lane checks, each after three rounds of changes.
"""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.scenarios.generator.case import draw
from tests.scenarios.generator.judge import Counts, judge_analysis
from tests.scenarios.generator.second_engine import SecondEngine
from tests.scenarios.generator.shrink import told

TABLES = 4
SMALLER = 300


def look_at(seeds, *, doubles=False, **shape):
    counts = Counts()
    for seed in seeds:
        case = draw(seed, tables=TABLES, doubles=doubles, thresholds=doubles, **shape)
        failure = judge_analysis(case, counts, orders=doubles)
        if failure is not None:
            again = partial(judge_analysis, counts=Counts(), orders=doubles)
            pytest.fail(told(case, failure, again, most=SMALLER))
    return counts


@pytest.mark.slow
def test_no_affected_key_is_missed():
    counts = look_at(range(5))

    # A run that refuses or skips everything would find nothing.
    assert counts.refreshes > 30, counts


@pytest.mark.slow
def test_no_affected_key_is_missed_where_rows_are_there_by_what_all_see():
    counts = look_at(range(60_000, 60_005), subqueries=True)

    assert counts.refreshes > 25, counts


@pytest.mark.slow
def test_no_affected_key_is_missed_where_rows_are_joined_with_constants():
    counts = look_at(range(61_000, 61_008), other_forms=True)

    assert counts.refreshes > 25, counts


@pytest.mark.slow
def test_no_affected_key_is_missed_where_rows_are_in_windows():
    counts = look_at(range(90_000, 90_005), windows=True)

    assert counts.refreshes > 25, counts
    # The queries that windows become are read by DuckDB too, and so are their definitions.
    assert counts.left_out["not read by DuckDB"] < counts.refreshes / 10, counts
    assert counts.by_definition > 20, counts


@pytest.mark.slow
def test_no_affected_key_is_missed_where_rows_are_joined_in_an_interval_of_time():
    counts = look_at(range(120_000, 120_002), intervals=True)

    assert counts.refreshes > 10, counts
    assert counts.left_out["not read by DuckDB"] < counts.refreshes / 10, counts


@pytest.mark.long
@pytest.mark.slow
def test_matches_by_definition_are_those_that_python_finds():
    """Where each row is of one variable only, `re` finds them too."""
    matched, lettered = 0, 0
    for seed in range(130_000, 130_020):
        case = draw(seed, tables=TABLES, deep=2, patterns=True)
        engine = SecondEngine(case.relations)
        engine.apply(case.first)
        meanings = {each.written: each.matching for table in case.tables for each in table.meanings if each.matching}
        matched += engine.match(meanings.values())
        lettered += sum(each.lettered for each in meanings.values())
        engine.close()

    assert matched > 50
    assert lettered > 5


@pytest.mark.slow
def test_no_affected_key_is_missed_where_rows_enter_and_leave_as_time_passes():
    counts = look_at(range(110_000, 110_003), timed=1.0)

    assert counts.refreshes > 15, counts
    assert counts.left_out["not read by DuckDB"] < counts.refreshes / 10, counts


@pytest.mark.slow
def test_no_affected_key_follows_the_order_in_which_doubles_are_added_up():
    counts = look_at(range(40_000, 40_002), doubles=True)

    assert counts.refreshes > 12, counts
    # Most queries with sums of DOUBLE have other columns that identify their rows.
    assert counts.reasons["INEXACT_KEY"] < counts.refreshes / 5, counts


@pytest.mark.long
def test_no_affected_key_of_many_queries_follows_the_order_in_which_doubles_are_added_up():
    wanted = int(os.environ.get("FRESHLINE_GENERATED_QUERIES", "10000"))

    counts = look_at(range(4_000_000, 4_000_000 + wanted // TABLES), doubles=True)

    print(counts)
    assert counts.refreshes > wanted
    assert counts.reasons["INEXACT_KEY"] < counts.refreshes / 5, counts


@pytest.mark.long
def test_no_affected_key_is_missed_by_many_queries():
    wanted = int(os.environ.get("FRESHLINE_GENERATED_QUERIES", "10000"))

    counts = look_at(range(1_000_000, 1_000_000 + wanted // TABLES))

    print(counts)
    assert counts.refreshes > wanted


@pytest.mark.long
def test_no_affected_key_of_many_queries_is_missed_where_rows_are_there_by_what_all_see():
    wanted = int(os.environ.get("FRESHLINE_GENERATED_QUERIES", "10000"))

    counts = look_at(range(7_000_000, 7_000_000 + wanted // TABLES), subqueries=True)

    print(counts)
    assert counts.refreshes > wanted


@pytest.mark.long
def test_no_affected_key_of_many_queries_is_missed_where_rows_are_joined_with_constants():
    wanted = int(os.environ.get("FRESHLINE_GENERATED_QUERIES", "10000"))

    counts = look_at(range(11_000_000, 11_000_000 + wanted // TABLES), other_forms=True)

    print(counts)
    assert counts.refreshes > wanted


@pytest.mark.long
def test_no_affected_key_of_many_queries_is_missed_where_rows_are_joined_in_an_interval_of_time():
    wanted = int(os.environ.get("FRESHLINE_GENERATED_QUERIES", "10000"))

    counts = look_at(range(12_000_000, 12_000_000 + wanted // TABLES), intervals=True)

    print(counts)
    assert counts.refreshes > wanted
    assert counts.left_out["not read by DuckDB"] < counts.refreshes / 10, counts


@pytest.mark.long
def test_no_affected_key_of_many_queries_is_missed_where_rows_are_in_windows():
    wanted = int(os.environ.get("FRESHLINE_GENERATED_QUERIES", "10000"))

    counts = look_at(range(9_000_000, 9_000_000 + wanted // TABLES), windows=True)

    print(counts)
    assert counts.refreshes > wanted
    assert counts.left_out["not read by DuckDB"] < counts.refreshes / 10, counts
