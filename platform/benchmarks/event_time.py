"""Tables over event time, beside Structured Streaming by hand: windows, sessions, an interval join, a pattern, a class.

Events of 10,000 keys arrive in batches of a day each, and one of a hundred is late, by up to a month. Both ways get the
same batches, one after another. The stream runs all the time with RocksDB as its state store, as it would, and its
watermark is longer than the latest row, so that it drops none and the rows can be compared. freshline needs no such
choice, but tables with EMIT FINAL get the same one.

The two ways take turns by whole runs, A B B A, each in a process and a folder of its own: so the peak of memory is that
of one way, neither finds a warm JVM, and a stream that waits for new rows is not counted into the other's work.
Batches are written before the measured time for freshline, and in it for the stream, less what writing the same batch
takes alone.

With F in the order, a job of PyFlink makes the table too, of all batches in one run (`flink`). Its cost includes the
start and is given per batch.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import stateful
from flink import NotRunError, provide_flink, run_flink
from measure import Comparison, Cost, PeakMemory, Profile, cost_of, middle
from project import Project, refresh, same
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StreamingQuery

from freshline.declare.project import read_settings
from freshline.engine.python_tables import PythonTables
from freshline.engine.spark import build_session, connect_port, stop_session
from freshline.run import Runtime
from freshline.values.names import TableName

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
    beside: str = "the stream"

    @property
    def ratio(self) -> float:
        return self.ours_bytes / self.theirs_bytes

    def line(self) -> str:
        verdict = "met" if self.ratio <= 1.0 else "MISSED"
        return (
            f"{self.name:<26} peak memory: ours {self.ours_bytes / 1e6:6.0f} MB   {self.beside} "
            f"{self.theirs_bytes / 1e6:6.0f} MB   ratio {self.ratio:4.2f}   goal 1.00 {verdict}"
        )


@dataclass(frozen=True)
class Why:
    """Where a way's run spent the CPU-seconds of a batch, and its JVM's memory: printed where a goal was missed."""

    name: str
    seconds: Mapping[str, float]
    memory_bytes: Mapping[str, int]

    @property
    def ratio(self) -> float:
        return 0.0

    def line(self) -> str:
        parts = sorted(self.seconds.items(), key=lambda part: -part[1])
        spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts if seconds >= 0.005)
        memory = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in self.memory_bytes.items())
        return f"{self.name:<26} CPU-s a batch: {spent}; memory of the JVM: {memory}"


@dataclass(frozen=True)
class Run:
    """The figures of one way's run: a batch's cost on average, the peak of memory, and the folder of the table.

    `seconds` and `memory_bytes` are those of `Profile`, of a batch on average and at the end.
    """

    cpu: float
    wall: float
    peak_bytes: int
    table: str
    seconds: Mapping[str, float]
    memory_bytes: Mapping[str, int]
    state_bytes: int = 0


@dataclass(frozen=True)
class Shape:
    """A table in both ways of writing it.

    `query` is the table's, behind `emit`, or the file of a class in Python. `stream` gives the same rows over streams
    of the sources. With `keys`, a batch of it is merged into its table by these columns (update mode), else it is
    appended. `columns` are compared, of rows that satisfy `compared`.
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
    late_rows: bool = True
    # Of the rows that the job of Flink writes, where there is one.
    columns_in_json: str = ""

    @property
    def python(self) -> bool:
        return "class " in self.query


def _grouped(window: Callable[[], Column]) -> Callable[[Sources], DataFrame]:
    def rows(sources: Sources) -> DataFrame:
        grouped = sources["event"].withWatermark("ts", DELAY).groupBy(window().alias("w"), "k")
        found = grouped.agg(F.count("*").alias("n"), F.sum("v").alias("s"))
        return found.selectExpr("w.start AS window_start", "w.end AS window_end", "k", "n", "s")

    return rows


def _joined(sources: Sources) -> DataFrame:
    left = sources["event"].withWatermark("ts", DELAY).alias("e")
    right = sources["other"].withWatermark("ts", DELAY).alias("o")
    near = "e.k = o.k AND o.ts >= e.ts AND o.ts <= e.ts + INTERVAL 10 MINUTES"
    return left.join(right, F.expr(near)).selectExpr("e.id", "o.id AS other", "e.k", "o.ts")


def _kept(processor: type[StatefulProcessor], columns: str) -> Callable[[Sources], DataFrame]:
    def rows(sources: Sources) -> DataFrame:
        grouped = sources["event"].withWatermark("ts", DELAY).groupBy("k")
        return grouped.transformWithState(processor(), columns, "Append", "EventTime")

    return rows


def shapes() -> tuple[Shape, ...]:
    """All comparisons."""
    windowed = ("window_start", "window_end", "k", "n", "s")
    windows_in_json = "window_start TIMESTAMP, window_end TIMESTAMP, k STRING, n BIGINT, s BIGINT"
    select = f"SELECT {', '.join(windowed[:3])}, count(*) AS n, sum(v) AS s FROM "
    group = " GROUP BY window_start, window_end, k"
    tumble = f"{select}TUMBLE(TABLE event, DESCRIPTOR(ts), INTERVAL '1' HOUR){group}"
    session = f"{select}SESSION(TABLE event PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' MINUTES){group}"
    # In append mode a stream shows only sessions that its watermark has closed.
    closed = "window_end <= (SELECT max(ts) - INTERVAL 32 DAYS FROM event_rows)"
    return (
        Shape(
            "tumbling", 1.2, tumble, windowed, _grouped(lambda: F.window("ts", "1 hour")), ("window_start", "k"),
            columns_in_json=windows_in_json,
        ),
        Shape(
            "sliding", 1.2,
            f"{select}HOP(TABLE event, DESCRIPTOR(ts), INTERVAL '20' MINUTES, INTERVAL '1' HOUR){group}",
            windowed, _grouped(lambda: F.window("ts", "1 hour", "20 minutes")), ("window_start", "k"),
            columns_in_json=windows_in_json,
        ),
        Shape(
            "session", 1.0, session, windowed, _grouped(lambda: F.session_window("ts", "30 minutes")), compared=closed,
            columns_in_json=windows_in_json,
        ),
        Shape(
            "interval join", 1.0,
            "SELECT e.id, o.id AS other, e.k, o.ts FROM event AS e JOIN other AS o ON e.k = o.k AND o.ts >= e.ts "
            "AND o.ts <= e.ts + INTERVAL 10 MINUTES",
            ("id", "other", "k", "ts"), _joined, sources=("event", "other"),
            columns_in_json="id BIGINT, other BIGINT, k STRING, ts TIMESTAMP",
        ),
        Shape(
            "tumbling, final", 1.2, tumble, windowed, _grouped(lambda: F.window("ts", "1 hour")), emit="EMIT FINAL",
            compared=closed,
        ),
        Shape(
            "session, final", 1.0, session, windowed, _grouped(lambda: F.session_window("ts", "30 minutes")),
            emit="EMIT FINAL", compared=closed,
        ),
        Shape(
            "pattern", 1.5,
            "SELECT k, began, ended, n FROM event MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, id "
            "MEASURES FIRST(ts) AS began, LAST(ts) AS ended, count(*) AS n "
            f"PATTERN (A B+ C+) WITHIN INTERVAL '{stateful.WITHIN_DAYS}' DAYS "
            "DEFINE B AS v < PREV(v), C AS v > PREV(v))",
            ("k", "began", "ended", "n"), _kept(stateful.Pattern, stateful.FOUND),
            compared=f"began <= (SELECT max(ts) - INTERVAL {32 + stateful.WITHIN_DAYS} DAYS FROM event_rows)",
        ),
        Shape(
            "process", 1.5, stateful.RECORDS_CLASS, ("k", "id", "ts", "v"), _kept(stateful.Records, stateful.RECORDS),
            compared="ts <= (SELECT max(ts) - INTERVAL 32 DAYS FROM event_rows)",
        ),
        Shape(
            "process, no late row", 1.5, stateful.RECORDS_CLASS, ("k", "id", "ts", "v"),
            _kept(stateful.RecordsAsTheyCome, stateful.RECORDS), late_rows=False,
        ),
    )  # fmt: skip


def events(spark: SparkSession, batch: int, size: int, salt: int, *, late_rows: bool = True) -> DataFrame:
    """The rows of one batch, the same at each call: a day of events, one of a hundred late by up to thirty days."""
    # Whole milliseconds, which is as much as Spark writes into JSON.
    draw = f"pmod(xxhash64(id, {salt}), 86400000) * 1000"
    late = f"IF(pmod(xxhash64(id, {salt + 1}), 100) = 0, pmod(xxhash64(id, {salt + 2}), 2592000000) * 1000, 0)"
    if not late_rows:
        late = "0"
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
) -> Iterator[Comparison | State | Memory | Why | str]:
    """Each shape in both ways, in this order of whole runs: A is freshline, B the stream by hand, F a job of Flink."""
    known = {shape.name: shape for shape in shapes()}
    if unknown := set(names) - set(known):
        raise SystemExit(f"no shape {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in names or tuple(known):
        shape, base = known[name], folder / name.replace(" ", "_").replace(",", "")
        runs: dict[str, list[Run]] = {}
        for number, letter in enumerate(order.replace("F", "")):
            runs.setdefault(letter, []).append(_run(base / str(number), letter, shape, batches, size))
        yield from _compare(spark, shape, runs, batches, size)
        if "F" in order and shape.columns_in_json:
            yield from _beside_flink(spark, base / "flink", shape, runs["A"], batches, size)


def _run(folder: Path, letter: str, shape: Shape, batches: int, size: int) -> Run:
    folder.mkdir(parents=True)
    way = [f"--way={letter}", f"--shape={shape.name}", f"--batches={batches}", f"--size={size}"]
    subprocess.run([sys.executable, __file__, *way, f"--folder={folder}"], check=True)
    return Run(**json.loads((folder / "found.json").read_text()))


def _compare(
    spark: SparkSession, shape: Shape, runs: Mapping[str, list[Run]], batches: int, size: int
) -> Iterator[Comparison | State | Memory | Why]:
    for source, salt in zip(shape.sources, count(step=10)):
        every = [events(spark, batch, size, salt, late_rows=shape.late_rows) for batch in range(batches)]
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
    cost = Comparison(shape.name, costs[0], costs[1], shape.goal)
    yield cost
    memory = Memory(f"{shape.name}, memory", *(max(run.peak_bytes for run in found) for found in (ours, theirs)))
    yield memory
    yield State(f"{shape.name}, state", theirs[-1].state_bytes)
    if cost.ratio > cost.goal or memory.ratio > 1.0:
        for way, found in (("ours", ours), ("the stream", theirs)):
            yield Why(f"{shape.name}, {way}", found[-1].seconds, found[-1].memory_bytes)


def _beside_flink(
    spark: SparkSession, folder: Path, shape: Shape, ours: Sequence[Run], batches: int, size: int
) -> Iterator[Comparison | Memory | str]:
    name = f"{shape.name}, Flink"
    for source, salt in zip(("event", "other"), count(step=10)):
        (folder / source).mkdir(parents=True)
        with (folder / source / "rows.json").open("wb") as all_rows:
            for batch in range(batches):
                part = folder / "part.json"
                _write_json(events(spark, batch, size, salt), folder / "portion", part)
                all_rows.write(part.read_bytes())
    try:
        found = run_flink(provide_flink(print), shape.name, folder, DELAY.split()[0])
    except NotRunError as error:
        yield f"{name}: not run: {error}"
        return
    # At the end of its input Flink closes all windows, so all rows are there.
    theirs = spark.read.schema(shape.columns_in_json).json(str(found.rows)).select(*shape.columns)
    same(spark.read.format("delta").load(ours[-1].table).select(*shape.columns), theirs)
    cost = Cost(found.cost.cpu / batches, found.cost.wall / batches)
    yield Comparison(name, middle([Cost(run.cpu, run.wall) for run in ours]), cost, shape.goal, beside="Flink")
    yield Memory(f"{name}, memory", max(run.peak_bytes for run in ours), found.peak_bytes, beside="Flink")


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
    memory_of_heap = '[tool.freshline]\ndriver-memory = "2g"\n'
    # RocksDB uploads its files by Hadoop's own local file system, and fails with the one that engines have.
    files = '[tool.freshline.spark-confs]\n"spark.hadoop.fs.file.impl" = "org.apache.hadoop.fs.LocalFileSystem"\n'
    (run / "session" / "pyproject.toml").write_text(memory_of_heap + (files if arguments.way == "B" else ""))
    (shape,) = (one for one in shapes() if one.name == arguments.shape)
    # A class of ours runs in a process of its own, which the session serves.
    token = secrets.token_urlsafe() if shape.python and arguments.way == "A" else None
    settings = read_settings(run / "session", {})
    spark = build_session(settings, app_name="benchmarks", connect_token=token)
    for key, value in STREAM_CONFS.items():
        spark.conf.set(key, value)
    profile = Profile(spark._jvm)
    with PeakMemory() as peak:
        if arguments.way == "A":
            table, state, cost = _ours(spark, run, shape, arguments.batches, arguments.size, token, profile)
        else:
            table, state, cost = _theirs(spark, run, shape, arguments.batches, arguments.size, profile)
    seconds = {part: spent / (arguments.batches - WARM_UP) for part, spent in profile.seconds.items()}
    memory = profile.memory()
    stop_session(spark)
    kept = 0 if state is None else sum(file.stat().st_size for file in state.rglob("*") if file.is_file())
    found = Run(cost.cpu, cost.wall, peak.bytes, str(table), seconds, memory, kept)
    (run / "found.json").write_text(json.dumps(asdict(found)))


def _ours(
    spark: SparkSession, run: Path, shape: Shape, batches: int, size: int, token: str | None, profile: Profile
) -> tuple[Path, Path | None, Cost]:
    """freshline's table after all batches, no state, and what a refresh cost on average."""
    declared = {
        source: f"CREATE SOURCE {source} ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL '{DELAY}') "
        f"WITH ('connector' = 'files', 'format' = 'json', 'path' = '{source}', 'settle' = '0 seconds');"
        for source in shape.sources
    }
    if shape.python:
        declared["result.py"] = shape.query
    else:
        declared["result"] = (
            f"CREATE MATERIALIZED TABLE result FRESHNESS = INTERVAL '10' SECOND {shape.emit} AS {shape.query};"
        )
    project = Project(run, declared)
    for source in shape.sources:
        (run / source).mkdir()
    total = Cost(0.0, 0.0)
    with ExitStack() as stack:
        runtime = project.open(spark)
        if token is not None:
            drop = spark.catalog.dropGlobalTempView
            tables = PythonTables(project.settings, connect_port=connect_port(spark), token=token, drop_view=drop)
            stack.callback(tables.close)
            runtime.python_tables = tables
        for batch in range(batches):
            for source, salt in zip(shape.sources, count(step=10)):
                _land(runtime, run, source, events(spark, batch, size, salt, late_rows=shape.late_rows), batch)
            if batch < WARM_UP:
                refresh(runtime, "result")
            else:
                cost = profile.cost_of(lambda: refresh(runtime, "result"))
                total = Cost(total.cpu + cost.cpu, total.wall + cost.wall)
    return runtime.warehouse.path(TableName.parse("result")), None, _each(total, batches)


def _land(runtime: Runtime, run: Path, source: str, rows: DataFrame, batch: int) -> None:
    _write_json(rows, run / "portion", run / source / f"{batch}.json")
    refresh(runtime, source)


def _theirs(
    spark: SparkSession, run: Path, shape: Shape, batches: int, size: int, profile: Profile
) -> tuple[Path, Path, Cost]:
    """The stream's table after all batches, its checkpoint, and what a batch cost on average."""
    target, checkpoint, scratch = run / "result", run / "checkpoint", run / "scratch"
    register_pickle_by_value(stateful)
    for source in shape.sources:
        spark.createDataFrame([], COLUMNS).write.format("delta").save(str(run / source))
    streams = {source: spark.readStream.format("delta").load(str(run / source)) for source in shape.sources}
    query = _start(shape, shape.stream(streams), target, checkpoint)
    query.processAllAvailable()
    total = Cost(0.0, 0.0)
    written: list[Cost] = []

    def arrive(batch: int) -> None:
        for source, salt in zip(shape.sources, count(step=10)):
            rows = events(spark, batch, size, salt, late_rows=shape.late_rows)
            rows.write.format("delta").mode("append").save(str(run / source))
        try:
            query.processAllAvailable()
        except StreamingQueryException:
            # PySpark names the first of several causes only, such as that a task failed.
            cause = query._jsq.exception().get()  # type: ignore[attr-defined]
            while cause is not None:
                print(cause.toString())
                cause = cause.getCause()
            raise

    for batch in range(batches):
        if batch < WARM_UP:
            arrive(batch)
        else:
            cost = profile.cost_of(lambda batch=batch: arrive(batch))  # type: ignore[misc]
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
