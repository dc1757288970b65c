"""Rows that have none of the affected keys are the same before and after: DuckDB says so, of random queries.

No Spark is needed for it, so thousands of queries can be checked. `FRESHLINE_GENERATED_QUERIES` is how many the long
lane checks, each after three rounds of changes.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest

from tests.scenarios.generator.case import draw
from tests.scenarios.generator.judge import Counts, judge_analysis
from tests.scenarios.generator.second_engine import SecondEngine
from tests.scenarios.generator.shrink import told

TABLES = 4
SMALLER = 300
WANTED = int(os.environ.get("FRESHLINE_GENERATED_QUERIES", "10000"))


def look_at(seeds, *, doubles=False, **shape):
    counts = Counts()
    for seed in seeds:
        case = draw(seed, tables=TABLES, doubles=doubles, thresholds=doubles, **shape)
        failure = judge_analysis(case, counts, orders=doubles)
        if failure is not None:
            again = partial(judge_analysis, counts=Counts(), orders=doubles)
            pytest.fail(told(case, failure, again, most=SMALLER))
    return counts


# Beside all queries, those of one shape: of rows that are there by what all see, joined with constants, in windows,
# joined in an interval of time, and that enter and leave as time passes.
SHAPES: dict[str, dict[str, Any]] = {
    "subqueries": {"subqueries": True},
    "constants": {"other_forms": True},
    "windows": {"windows": True},
    "intervals": {"intervals": True},
    "passing time": {"timed": 1.0},
}
# DuckDB reads the queries that these become too, and their definitions.
READ_BY_DUCKDB = ("windows", "intervals", "passing time")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "seeds", "least"),
    [
        # A run that refuses or skips everything would find nothing.
        ("all", range(5), 30),
        ("subqueries", range(60_000, 60_005), 25),
        ("constants", range(61_000, 61_008), 25),
        ("windows", range(90_000, 90_005), 25),
        ("intervals", range(120_000, 120_002), 10),
        ("passing time", range(110_000, 110_003), 15),
    ],
)
def test_no_affected_key_is_missed(shape, seeds, least):
    counts = look_at(seeds, **SHAPES.get(shape, {}))

    assert counts.refreshes > least, counts
    if shape in READ_BY_DUCKDB:
        assert counts.left_out["not read by DuckDB"] < counts.refreshes / 10, counts
    if shape == "windows":
        assert counts.by_definition > 20, counts


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ("all", 1_000_000),
        ("subqueries", 7_000_000),
        ("constants", 11_000_000),
        ("intervals", 12_000_000),
        ("windows", 9_000_000),
    ],
)
def test_no_affected_key_is_missed_by_many_queries(shape, first):
    counts = look_at(range(first, first + WANTED // TABLES), **SHAPES.get(shape, {}))

    print(counts)
    assert counts.refreshes > WANTED
    if shape in READ_BY_DUCKDB:
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


@pytest.mark.parametrize(
    ("seeds", "least"),
    [
        pytest.param(range(40_000, 40_002), 12, marks=pytest.mark.slow),
        pytest.param(range(4_000_000, 4_000_000 + WANTED // TABLES), WANTED, marks=pytest.mark.long, id="many"),
    ],
)
def test_no_affected_key_follows_the_order_in_which_doubles_are_added_up(seeds, least):
    counts = look_at(seeds, doubles=True)

    print(counts)
    assert counts.refreshes > least, counts
    # Most queries with sums of DOUBLE have other columns that identify their rows.
    assert counts.reasons["INEXACT_KEY"] < counts.refreshes / 5, counts
