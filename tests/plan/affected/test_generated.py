"""Rows that have none of the affected keys are the same before and after: DuckDB says so, of random queries.

No Spark is needed for it, so thousands of queries can be looked at. `FRESHLINE_GENERATED_QUERIES` is how many the long
lane looks at, each after three rounds of changes.
"""

from __future__ import annotations

import os

import pytest

from tests.scenarios.generator.case import draw
from tests.scenarios.generator.judge import Counts, judge_analysis
from tests.scenarios.generator.shrink import told

TABLES = 4
SMALLER = 300


def look_at(seeds):
    counts = Counts()
    for seed in seeds:
        case = draw(seed, tables=TABLES)
        failure = judge_analysis(case, counts)
        if failure is not None:
            pytest.fail(told(case, failure, lambda smaller: judge_analysis(smaller, Counts()), most=SMALLER))
    return counts


@pytest.mark.slow
def test_no_affected_key_is_missed():
    counts = look_at(range(20))

    # A run that refuses or skips everything would find nothing.
    assert counts.refreshes > 120, counts


@pytest.mark.long
def test_no_affected_key_is_missed_by_many_queries():
    wanted = int(os.environ.get("FRESHLINE_GENERATED_QUERIES", "10000"))

    counts = look_at(range(1_000_000, 1_000_000 + wanted // TABLES))

    print(counts)
    assert counts.refreshes > wanted
