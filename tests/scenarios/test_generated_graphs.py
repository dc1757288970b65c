"""After all tables of a graph were refreshed, every table equals its query over the newest rows of its sources.

The graphs are random, and so is what happens to them: see `graphs/judge.py` for the law, and for what must be so in
between. A failure names its seed and is made smaller, and its lines are those of a test in a Lab. Rows are computed by
DuckDB in most of them, which takes a tenth of the time (`graphs/stand_in.py`), and by Spark in the others.

FRESHLINE_GENERATED_GRAPHS is how many graphs the long lane makes: 15 % of them with engines that are killed, 10 % with
logs, lookups, models and FINAL windows, 2 % computed by Spark alone. It begins with other seeds every day;
FRESHLINE_SEED is where it begins instead.
"""

from __future__ import annotations

import os

import pytest
from pyspark.sql import SparkSession

from tests.plain_lab import PlainLab
from tests.scenarios.graphs.case import Case
from tests.scenarios.graphs.drawing import draw
from tests.scenarios.graphs.judge import Computing, Counts, Failure, by_spark, judge
from tests.scenarios.graphs.shrink import told
from tests.scenarios.graphs.stand_in import computing_by_duckdb
from tests.scenarios.test_generated import first_seed
from tests.stand_in import no_spark

WANTED = int(os.environ.get("FRESHLINE_GENERATED_GRAPHS", "2000"))
KILLED, WITH_LOGS, BY_SPARK = (max(1, WANTED * percent // 100) for percent in (15, 10, 2))
# The most runs that the search for a smaller case may take.
MOST = 200


def graphs_converge(
    spark: SparkSession | None,
    count: int,
    first: int,
    *,
    kills: float = 0.0,
    computing: Computing = computing_by_duckdb,
) -> Counts:
    """Require the law of so many graphs; without Spark only of those that need none."""
    counts, session = Counts(), no_spark() if spark is None else spark

    def judged(case: Case, counts: Counts) -> Failure | None:
        return judge(case, lambda start: PlainLab(session, start=start), counts, computing)

    for seed in range(first, first + count):
        case = draw(seed, kills=kills, few=computing is by_spark, plain=spark is None)
        failure = judged(case, counts)
        if failure is not None:
            # With the seed, one case repeats it.
            smaller = told(case, failure, lambda other: judged(other, Counts()), most=MOST)
            pytest.fail(f"FRESHLINE_SEED={seed}: {smaller}")
    print(counts)
    # A run in which nothing is joined, or nothing changes, would find nothing.
    assert counts.laws > 5 * count, counts
    assert counts.claims > 10 * count, counts
    # Two graphs may have one such refresh between them.
    assert counts.reasons["NO_NET_CHANGE"] > (count // 2 if count > 2 else 0), counts
    return counts


@pytest.mark.slow
def test_random_graphs_converge():
    graphs_converge(None, 40, 0)


@pytest.mark.slow
def test_random_graphs_converge_although_engines_are_killed():
    counts = graphs_converge(None, 10, 500, kills=0.4)

    assert counts.crashes >= 3, counts


@pytest.mark.slow
def test_random_graphs_over_logs_converge(spark):
    graphs_converge(spark, 8, 600)


@pytest.mark.slow
def test_random_graphs_that_spark_computes_converge(spark):
    graphs_converge(spark, 2, 700, computing=by_spark)


@pytest.mark.long
def test_many_random_graphs_converge():
    graphs_converge(None, max(1, WANTED - KILLED - WITH_LOGS - BY_SPARK), first_seed(7))


@pytest.mark.long
def test_many_random_graphs_converge_although_engines_are_killed():
    counts = graphs_converge(None, KILLED, first_seed(8), kills=0.4)

    assert counts.crashes >= KILLED // 4, counts


@pytest.mark.long
def test_many_random_graphs_over_logs_converge(spark):
    # Some of them are killed too.
    half = max(1, WITH_LOGS // 2)
    graphs_converge(spark, half, first_seed(9))
    graphs_converge(spark, half, first_seed(9) + half, kills=0.3)


@pytest.mark.long
def test_many_random_graphs_that_spark_computes_converge(spark):
    graphs_converge(spark, BY_SPARK, first_seed(9) + 50_000, computing=by_spark)
