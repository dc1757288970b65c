"""The cost of a table in a cycle of many: 1, 10 and 100 keyed tables of one log, refreshed one after the other.

    .venv/bin/python platform/benchmarks/run.py many_tables

The cost of one table must not grow with their number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from measure import Comparison, Cost, comparison, cost_of
from project import Project, refresh
from pyspark.sql import SparkSession

from freshline.run import Runtime

SOURCE = (
    "CREATE SOURCE event (id STRING, k STRING, n BIGINT, PRIMARY KEY (id)) "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in', 'settle' = '0 seconds');"
)
TABLE = (
    "CREATE MATERIALIZED TABLE t{number} (PRIMARY KEY (k)) "
    "WITH ('merge' = 'last_row', 'merge.sequence' = 'n', 'merge.tie-breaker' = 'id') "
    "FRESHNESS = INTERVAL '1' HOUR AS SELECT k, id, n FROM event;"
)
ROWS = 1_000
MOST = 100


def many_tables(spark: SparkSession, folder: Path) -> Iterator[Comparison]:
    """The tables of a cycle of 10 and of 100 beside as many cycles of one table, without the ingests."""
    for count in (10, MOST):
        alone = _Cycles(spark, folder / f"{count}-alone", 1)
        many = _Cycles(spark, folder / str(count), count)
        # As many refreshes of tables on both sides, so that what the JVM learns is the same.
        alone.cost(count)
        costs: dict[str, list[Cost]] = {"A": [], "B": []}
        for letter in "ABBA":
            costs[letter].append(many.cost(1) if letter == "A" else alone.cost(count))
        yield comparison(f"many_tables {count}", costs, 1.0, f"{count} cycles of one")


class _Cycles:
    """Cycles of a project: records land and are ingested, then each table is refreshed."""

    def __init__(self, spark: SparkSession, folder: Path, tables: int) -> None:
        declared = {f"t{number}": TABLE.format(number=number) for number in range(tables)}
        project = Project(folder, {"event": SOURCE, **declared})
        self._runtime: Runtime = project.open(spark)
        self._landing = folder / "in"
        self._landing.mkdir()
        self._tables = list(declared)
        self._made = 0
        self.cost(2)

    def cost(self, cycles: int) -> Cost:
        """The cost of the refreshes of the tables in some cycles."""
        found = []
        for _ in range(cycles):
            first = self._made * ROWS
            rows = [{"id": f"e{n}", "k": f"k{n % (5 * ROWS)}", "n": n} for n in range(first, first + ROWS)]
            hidden = self._landing / f".{self._made}.json"
            hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
            hidden.rename(self._landing / f"{self._made}.json")
            self._made += 1
            refresh(self._runtime, "event")
            found.append(cost_of(lambda: [refresh(self._runtime, name) for name in self._tables]))
        return Cost(sum(cost.cpu for cost in found), sum(cost.wall for cost in found))
