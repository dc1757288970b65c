"""Joins that follow changes, beside Spark's streaming joins: a delta join, and a lookup join.

Both sides of the delta join start with the same rows, and each round adds some to both: Spark's stream-stream join
knows nothing but additions. Its query runs all the time, as it would; what it keeps, and what it takes to start it
again, is measured separately. The lookup join joins each new row with a dimension, as a stream with a static table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from measure import Comparison, Cost, cost_of, middle
from project import Project, refresh, same
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from freshline.values.names import TableName

START = 1_000_000
ADDED = 1_000
ROUNDS = 8
WARM_UP = 3
# As few tasks as there are cores: both ways would only pay for more.
STREAM_CONFS = {"spark.sql.shuffle.partitions": "2"}


@dataclass(frozen=True)
class Kept:
    """The state that a way keeps between refreshes, and the cost to go on after a restart."""

    name: str
    ours_bytes: int
    theirs_bytes: int
    ours_restart: Cost
    theirs_restart: Cost

    @property
    def ratio(self) -> float:
        return self.ours_restart.cpu / self.theirs_restart.cpu

    def line(self) -> str:
        return (
            f"{self.name:<12} state: ours {self.ours_bytes} bytes, stream-stream {self.theirs_bytes / 1e6:.1f} MB   "
            f"first refresh after a restart: ours {self.ours_restart.cpu:.2f} CPU-s {self.ours_restart.wall:.2f} s, "
            f"stream-stream {self.theirs_restart.cpu:.2f} CPU-s {self.theirs_restart.wall:.2f} s"
        )


def _rows(spark: SparkSession, start: int, count: int, column: str) -> DataFrame:
    return spark.range(start, start + count).selectExpr(
        "id AS k", f"concat('{column}-', id % 1000) AS {column}", f"CAST(id % 977 AS DECIMAL(10,2)) AS {column}_amount"
    )


def _append(rows: DataFrame, path: Path) -> None:
    rows.coalesce(1).write.format("delta").mode("append").option("delta.enableChangeDataFeed", "true").save(str(path))


def delta_join(spark: SparkSession, folder: Path) -> Iterator[Comparison | Kept]:
    """A join of two tables of a million rows, to both of which a thousand rows are added each round."""
    left, right = folder / "left", folder / "right"
    folder.mkdir(parents=True)
    _append(_rows(spark, 0, START, "a"), left)
    _append(_rows(spark, 0, START, "b"), right)
    columns = "k BIGINT, {0} STRING, {0}_amount DECIMAL(10,2)"
    project = Project(
        folder / "project",
        {
            "l": f"CREATE SOURCE l ({columns.format('a')}) WITH ('connector' = 'delta', 'path' = '{left}');",
            "r": f"CREATE SOURCE r ({columns.format('b')}) WITH ('connector' = 'delta', 'path' = '{right}');",
            "joined": "CREATE MATERIALIZED TABLE joined (PRIMARY KEY (k)) WITH ('delta-join.strategy' = 'FORCE') "
            "FRESHNESS = INTERVAL '1' MINUTE AS SELECT l.k, l.a, r.b, l.a_amount + r.b_amount AS amount "
            "FROM l JOIN r ON l.k = r.k;",
        },
    )
    runtime = project.open(spark)
    refresh(runtime, "joined")
    ours = runtime.warehouse.path(TableName.parse("joined"))
    theirs, checkpoint = folder / "theirs", folder / "checkpoint"
    for key, value in STREAM_CONFS.items():
        spark.conf.set(key, value)

    def start() -> StreamingQuery:
        a = spark.readStream.format("delta").load(str(left)).alias("l")
        b = spark.readStream.format("delta").load(str(right)).alias("r")
        joined = a.join(b, "k").selectExpr("k", "a", "b", "a_amount + b_amount AS amount")
        return (
            joined.writeStream.format("delta")
            .outputMode("append")
            .option("checkpointLocation", str(checkpoint))
            .start(str(theirs))
        )

    query = start()
    query.processAllAvailable()
    costs: dict[str, list[Cost]] = {"A": [], "B": []}
    for number in range(ROUNDS + WARM_UP):
        first = START + number * ADDED
        _append(_rows(spark, first, ADDED, "a"), left)
        _append(_rows(spark, first, ADDED, "b"), right)
        for letter in "AB" if number % 2 else "BA":
            cost = cost_of((lambda: refresh(runtime, "joined")) if letter == "A" else query.processAllAvailable)
            if number >= WARM_UP:
                costs[letter].append(cost)
    names = ["k", "a", "b", "amount"]
    stored = [spark.read.format("delta").load(str(path)).select(*names) for path in (ours, theirs)]
    same(stored[0], stored[1])
    yield Comparison("delta join", middle(costs["A"]), middle(costs["B"]), 1.0)

    query.stop()
    _append(_rows(spark, 2 * START, ADDED, "a"), left)
    _append(_rows(spark, 2 * START, ADDED, "b"), right)
    again = project.open(spark)
    ours_restart = cost_of(lambda: refresh(again, "joined"))

    def restart() -> None:
        nonlocal query
        query = start()
        query.processAllAvailable()

    theirs_restart = cost_of(restart)
    query.stop()
    state = sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file())
    yield Kept("delta join", 0, state, ours_restart, theirs_restart)


def lookup_join(spark: SparkSession, folder: Path) -> Comparison:
    """A thousand new rows each round, joined with a dimension of 100,000."""
    probe, dimension = folder / "probe", folder / "dimension"
    folder.mkdir(parents=True)
    _append(_rows(spark, 0, START, "a"), probe)
    _append(_rows(spark, 0, 100_000, "b").withColumnRenamed("k", "d"), dimension)
    project = Project(
        folder / "project",
        {
            "p": f"CREATE SOURCE p (k BIGINT, a STRING, a_amount DECIMAL(10,2)) "
            f"WITH ('connector' = 'delta', 'path' = '{probe}');",
            "d": f"CREATE SOURCE d (d BIGINT, b STRING, b_amount DECIMAL(10,2), PRIMARY KEY (d)) "
            f"WITH ('connector' = 'delta', 'path' = '{dimension}');",
            "looked": "CREATE MATERIALIZED TABLE looked FRESHNESS = INTERVAL '1' MINUTE AS "
            "SELECT p.k, p.a, d.b, d.b_amount FROM p LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS d ON p.k = d.d;",
        },
    )
    runtime = project.open(spark)
    refresh(runtime, "looked")
    ours = runtime.warehouse.path(TableName.parse("looked"))
    theirs = folder / "theirs"
    static = spark.read.format("delta").load(str(dimension))
    rows = spark.readStream.format("delta").load(str(probe)).alias("p")
    query = rows.join(static.alias("d"), F.col("p.k") == F.col("d.d"), "left")
    running = (
        query.selectExpr("p.k", "p.a", "d.b", "d.b_amount")
        .writeStream.format("delta")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(theirs))
    )
    running.processAllAvailable()
    costs: dict[str, list[Cost]] = {"A": [], "B": []}
    for number in range(ROUNDS + WARM_UP):
        _append(_rows(spark, 50_000 + number * ADDED, ADDED, "a"), probe)
        for letter in "AB" if number % 2 else "BA":
            cost = cost_of((lambda: refresh(runtime, "looked")) if letter == "A" else running.processAllAvailable)
            if number >= WARM_UP:
                costs[letter].append(cost)
    running.stop()
    same(spark.read.format("delta").load(str(ours)), spark.read.format("delta").load(str(theirs)))
    return Comparison("lookup join", middle(costs["A"]), middle(costs["B"]), 1.0)
