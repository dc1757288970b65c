"""Tables over event time, beside Structured Streaming by hand: windows, sessions, an interval join.

Events of 10,000 keys arrive in batches of a day each, and one of a hundred is late, by up to a month. Both ways get the
same batches, one after another. The stream runs all the time with RocksDB as its state store, as it would, and its
watermark is longer than the latest row, so that it drops none and the rows can be compared. freshline needs no such
choice, but tables with EMIT FINAL get the same one.

The two ways take turns by whole runs, A B B A, each in a process and a folder of its own: so the peak of memory is that
of one way, neither finds a warm JVM, and a stream that waits for new rows is not counted into the other's work.
Batches are written before the measured time for freshline, and in it for the stream, less what writing the same batch
takes alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from measure import Comparison, Cost, PeakMemory, cost_of, middle
from project import Project, refresh
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from freshline.declare.names import TableName
from freshline.declare.project import read_settings
from freshline.engine.spark import build_session, stop_session
from freshline.run import Runtime

KEYS = 10_000
# Batches of which the costs do not count: the JVM compiles, and the first refresh of a table computes all of it.
WARM_UP = 3
COLUMNS = "id BIGINT, k STRING, ts TIMESTAMP, v BIGINT"
FIRST_DAY = "TIMESTAMP'2026-01-01 00:00:00'"
# Longer than the latest row is late.
DELAY = "31 days"
STREAM_CONFS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
Sources = Mapping[str, DataFrame]


@dataclass(frozen=True)
class State:
    """Bytes that a stream kept for its state when a comparison ended. freshline kept none, caches aside."""

    name: str
    theirs_bytes: int

    @property
    def ratio(self) -> float:
        return 0.0

    def line(self) -> str:
        return f"{self.name:<26} state: ours 0 bytes, the stream {self.theirs_bytes / 1e6:.1f} MB"


@dataclass(frozen=True)
class Memory:
    """The peak of the memory of a process and all below it, in the greater of each way's runs."""

    name: str
    ours_bytes: int
    theirs_bytes: int

    @property
    def ratio(self) -> float:
        return self.ours_bytes / self.theirs_bytes

    def line(self) -> str:
        verdict = "met" if self.ratio <= 1.0 else "MISSED"
        return (
            f"{self.name:<26} peak memory: ours {self.ours_bytes / 1e6:6.0f} MB   the stream "
            f"{self.theirs_bytes / 1e6:6.0f} MB   ratio {self.ratio:4.2f}   goal 1.00 {verdict}"
        )


@dataclass(frozen=True)
class Run:
    """What one way's run found: a batch's cost on average, the peak of memory, and the folder of the table."""

    cpu: float
    wall: float
    peak_bytes: int
    table: str
    state_bytes: int = 0


@dataclass(frozen=True)
class Shape:
    """A table in both ways of writing it.

    `query` is the table's, behind `emit`. `stream` gives the same rows over streams of the sources. With `keys`, a
    batch of it is merged into its table by these columns (update mode), else it is appended. `columns` are compared,
    of rows that meet `compared`.
    """

    name: str
    goal: float
    query: str
    columns: tuple[str, ...]
    stream: Callable[[Sources], DataFrame]
    keys: tuple[str, ...] = ()
    emit: str = ""
    sources: tuple[str, ...] = ("event",)
    compared: str = "true"


def _grouped(window: F.Column) -> Callable[[Sources], DataFrame]:
    def rows(sources: Sources) -> DataFrame:
        grouped = sources["event"].withWatermark("ts", DELAY).groupBy(window.alias("w"), "k")
        found = grouped.agg(F.count("*").alias("n"), F.sum("v").alias("s"))
        return found.selectExpr("w.start AS window_start", "w.end AS window_end", "k", "n", "s")

    return rows


def _joined(sources: Sources) -> DataFrame:
    left = sources["event"].withWatermark("ts", DELAY).alias("e")
    right = sources["other"].withWatermark("ts", DELAY).alias("o")
    near = "e.k = o.k AND o.ts >= e.ts AND o.ts <= e.ts + INTERVAL 10 MINUTES"
    return left.join(right, F.expr(near)).selectExpr("e.id", "o.id AS other", "e.k", "o.ts")


def shapes() -> tuple[Shape, ...]:
    """All comparisons; a function, because a column of Spark needs a session."""
    windowed = ("window_start", "window_end", "k", "n", "s")
    select = f"SELECT {', '.join(windowed[:3])}, count(*) AS n, sum(v) AS s FROM "
    group = " GROUP BY window_start, window_end, k"
    tumble = f"{select}TUMBLE(TABLE event, DESCRIPTOR(ts), INTERVAL '1' HOUR){group}"
    session = f"{select}SESSION(TABLE event PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' MINUTES){group}"
    # In append mode a stream shows only sessions that its watermark has closed.
    closed = "window_end <= (SELECT max(ts) - INTERVAL 32 DAYS FROM event_rows)"
    return (
        Shape(
            "tumbling", 1.2, tumble, windowed, _grouped(F.window("ts", "1 hour")), ("window_start", "k"),
        ),
        Shape(
            "sliding", 1.2,
            f"{select}HOP(TABLE event, DESCRIPTOR(ts), INTERVAL '20' MINUTES, INTERVAL '1' HOUR){group}",
            windowed, _grouped(F.window("ts", "1 hour", "20 minutes")), ("window_start", "k"),
        ),
        Shape(
            "session", 1.0, session, windowed, _grouped(F.session_window("ts", "30 minutes")), compared=closed,
        ),
        Shape(
            "interval join", 1.0,
            "SELECT e.id, o.id AS other, e.k, o.ts FROM event AS e JOIN other AS o ON e.k = o.k AND o.ts >= e.ts "
            "AND o.ts <= e.ts + INTERVAL 10 MINUTES",
            ("id", "other", "k", "ts"), _joined, sources=("event", "other"),
        ),
        Shape(
            "tumbling, final", 1.2, tumble, windowed, _grouped(F.window("ts", "1 hour")), emit="EMIT FINAL",
            compared=closed,
        ),
        Shape(
            "session, final", 1.0, session, windowed, _grouped(F.session_window("ts", "30 minutes")),
            emit="EMIT FINAL", compared=closed,
        ),
    )  # fmt: skip


def events(spark: SparkSession, batch: int, size: int, salt: int) -> DataFrame:
    """The rows of one batch, the same at each call: a day of events, one of a hundred late by up to thirty days."""
    # Whole milliseconds, which is as much as Spark writes into JSON.
    draw = f"pmod(xxhash64(id, {salt}), 86400000) * 1000"
    late = f"IF(pmod(xxhash64(id, {salt + 1}), 100) = 0, pmod(xxhash64(id, {salt + 2}), 2592000000) * 1000, 0)"
    return spark.range(batch * size, (batch + 1) * size, numPartitions=1).selectExpr(
        "id",
        f"concat('key-', pmod(xxhash64(id, {salt + 3}), {KEYS})) AS k",
        f"timestamp_micros(unix_micros({FIRST_DAY}) + {batch} * 86400000000 + {draw} - {late}) AS ts",
        "id % 1000 AS v",
    )


def event_time(
    spark: SparkSession,
    folder: Path,
    names: tuple[str, ...],
    batches: int,
    size: int,
    order: str,
) -> Iterator[Comparison | State | Memory]:
    """Each shape in both ways, in this order of whole runs: A is freshline."""
    known = {shape.name: shape for shape in shapes()}
    for name in names or tuple(known):
        shape, base = known[name], folder / name.replace(" ", "_").replace(",", "")
        runs: dict[str, list[Run]] = {}
        for number, letter in enumerate(order):
            runs.setdefault(letter, []).append(_run(base / str(number), letter, shape, batches, size))
        yield from _compare(spark, shape, runs, batches, size)


def _run(folder: Path, letter: str, shape: Shape, batches: int, size: int) -> Run:
    folder.mkdir(parents=True)
    way = [f"--way={letter}", f"--shape={shape.name}", f"--batches={batches}", f"--size={size}"]
    subprocess.run([sys.executable, __file__, *way, f"--folder={folder}"], check=True)
    return Run(**json.loads((folder / "found.json").read_text()))


def _compare(
    spark: SparkSession, shape: Shape, runs: Mapping[str, list[Run]], batches: int, size: int
) -> Iterator[Comparison | State | Memory]:
    for source, salt in zip(shape.sources, count(step=10)):
        every = [events(spark, batch, size, salt) for batch in range(batches)]
        rows = every[0]
        for more in every[1:]:
            rows = rows.unionAll(more)
        rows.createOrReplaceTempView(f"{source}_rows")
    ours, theirs = runs["A"], runs["B"]
    left, right = (
        spark.read.format("delta").load(found[-1].table).where(shape.compared).select(*shape.columns)
        for found in (ours, theirs)
    )
    if not left.limit(1).count():
        raise SystemExit(f"{shape.name}: no row to compare; more batches are needed")
    if left.exceptAll(right).limit(1).count() or right.exceptAll(left).limit(1).count():
        raise SystemExit(f"{shape.name}: the two ways gave different rows")
    costs = [middle([Cost(run.cpu, run.wall) for run in found]) for found in (ours, theirs)]
    yield Comparison(shape.name, costs[0], costs[1], shape.goal)
    yield Memory(shape.name, *(max(run.peak_bytes for run in found) for found in (ours, theirs)))
    yield State(shape.name, theirs[-1].state_bytes)


def _write_json(rows: DataFrame, folder: Path, file: Path) -> None:
    """The rows as one file of that name, by way of a folder."""
    rows.write.mode("overwrite").json(str(folder))
    (part,) = folder.glob("part-*.json")
    part.rename(file)


def main() -> None:
    """One run of one way, in a process of its own."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--way", choices=("A", "B"), required=True)
    parser.add_argument("--shape", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    arguments = parser.parse_args()
    run: Path = arguments.folder
    (run / "session").mkdir()
    (run / "session" / "pyproject.toml").write_text('[tool.freshline]\ndriver-memory = "2g"\n')
    spark = build_session(read_settings(run / "session", {}), app_name="benchmarks")
    for key, value in STREAM_CONFS.items():
        spark.conf.set(key, value)
    (shape,) = (one for one in shapes() if one.name == arguments.shape)
    with PeakMemory() as peak:
        way = _ours if arguments.way == "A" else _theirs
        table, state, cost = way(spark, run, shape, arguments.batches, arguments.size)
    stop_session(spark)
    kept = 0 if state is None else sum(file.stat().st_size for file in state.rglob("*") if file.is_file())
    found = Run(cost.cpu, cost.wall, peak.bytes, str(table), kept)
    (run / "found.json").write_text(json.dumps(asdict(found)))


def _ours(spark: SparkSession, run: Path, shape: Shape, batches: int, size: int) -> tuple[Path, None, Cost]:
    """freshline's table after all batches, no state, and what a refresh cost on average."""
    declared = {
        source: f"CREATE SOURCE {source} ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL '{DELAY}') "
        f"WITH ('connector' = 'files', 'format' = 'json', 'path' = '{source}', 'settle' = '0 seconds');"
        for source in shape.sources
    }
    declared["result"] = (
        f"CREATE MATERIALIZED TABLE result FRESHNESS = INTERVAL '10' SECOND {shape.emit} AS {shape.query};"
    )
    project = Project(run, declared)
    for source in shape.sources:
        (run / source).mkdir()
    runtime = project.open(spark)
    total = Cost(0.0, 0.0)
    for batch in range(batches):
        for source, salt in zip(shape.sources, count(step=10)):
            _land(runtime, run, source, events(spark, batch, size, salt), batch)
        cost = cost_of(lambda: refresh(runtime, "result"))
        if batch >= WARM_UP:
            total = Cost(total.cpu + cost.cpu, total.wall + cost.wall)
    return runtime.warehouse.path(TableName.parse("result")), None, _each(total, batches)


def _land(runtime: Runtime, run: Path, source: str, rows: DataFrame, batch: int) -> None:
    _write_json(rows, run / "portion", run / source / f"{batch}.json")
    refresh(runtime, source)


def _theirs(spark: SparkSession, run: Path, shape: Shape, batches: int, size: int) -> tuple[Path, Path, Cost]:
    """The stream's table after all batches, its checkpoint, and what a batch cost on average."""
    target, checkpoint, scratch = run / "result", run / "checkpoint", run / "scratch"
    for source in shape.sources:
        spark.createDataFrame([], COLUMNS).write.format("delta").save(str(run / source))
    streams = {source: spark.readStream.format("delta").load(str(run / source)) for source in shape.sources}
    query = _start(shape, shape.stream(streams), target, checkpoint)
    query.processAllAvailable()
    total = Cost(0.0, 0.0)
    written: list[Cost] = []

    def arrive(batch: int) -> None:
        for source, salt in zip(shape.sources, count(step=10)):
            rows = events(spark, batch, size, salt)
            rows.write.format("delta").mode("append").save(str(run / source))
        query.processAllAvailable()

    for batch in range(batches):
        cost = cost_of(lambda batch=batch: arrive(batch))  # type: ignore[misc]
        if batch >= WARM_UP:
            total = Cost(total.cpu + cost.cpu, total.wall + cost.wall)
    query.stop()
    for batch in range(2 * WARM_UP):
        save = events(spark, batch, size, 0).write.format("delta").mode("append")
        cost = cost_of(lambda save=save: save.save(str(scratch)))  # type: ignore[misc]
        if batch >= WARM_UP:
            written.append(cost)
    alone, found = middle(written), _each(total, batches)
    less = len(shape.sources)
    return target, checkpoint, Cost(found.cpu - less * alone.cpu, found.wall - less * alone.wall)


def _start(shape: Shape, rows: DataFrame, target: Path, checkpoint: Path) -> StreamingQuery:
    if not shape.keys:
        appended = rows.writeStream.format("delta").outputMode("append")
        return appended.option("checkpointLocation", str(checkpoint)).start(str(target))
    by = " AND ".join(f"t.{key} <=> s.{key}" for key in shape.keys)

    def merge(batch: DataFrame, number: int) -> None:
        if number == 0:
            batch.write.format("delta").mode("ignore").save(str(target))
            return
        batch.createOrReplaceTempView("arrived")
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{target}` t USING arrived s ON {by} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    updated = rows.writeStream.outputMode("update").foreachBatch(merge)
    return updated.option("checkpointLocation", str(checkpoint)).start()


def _each(total: Cost, batches: int) -> Cost:
    measured = batches - WARM_UP
    return Cost(total.cpu / measured, total.wall / measured)


if __name__ == "__main__":
    main()
