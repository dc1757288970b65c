"""Verify of a sink: the rows that its system has, against those of the table at the version that the system names."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from freshline.commit.delta_log import exists, table_id
from freshline.commit.write import stored_schema
from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import Pinned, is_shown, read_whole
from freshline.compute.outgoing import as_written, from_texts, outgoing_schema
from freshline.plan.request import MANUAL
from freshline.refresh.failure import translate
from freshline.refresh.runtime import Progress, Runtime
from freshline.run.comparison import TOLERANT_ROWS, Verification, compare
from freshline.sinks.writer import SinkWriter
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.spec import TableSpec


def verify_sink(runtime: Runtime, spec: TableSpec, cancellation: Cancellation, progress: Progress) -> Verification:
    """Compare a sink with its table; a failure to do so is part of the answer.

    Rows that the system does not take are counted as unverified, as long as they differ.
    """
    started, name = time.monotonic(), spec.name
    version: int | None = None
    assert spec.sink is not None
    if not spec.sink.can_be_read:
        detail = f"{spec.sink.title} cannot be asked for the rows that it has; compare them there"
        return Verification(name, False, 0, 0, 0, version, 0.0, detail=detail)
    # While it is verified the sink stands still: position and rows belong together.
    with runtime.lock(name):
        try:
            writer = runtime.sink_writer(spec)
            held = writer.position()
            if held is None:
                return _failed(name, None, started, "NO_VERSION: the sink has no version yet")
            version = held.table.version
            if not exists(runtime.warehouse.path(name)) or held.owner != f"{name} {table_id(_path(runtime, name))}":
                return _failed(name, version, started, f"SINK_FENCED: the sink belongs to {held.owner}")
            with runtime.working(cancellation, pool=MANUAL, what=f"verify {name}") as spark:
                progress("comparing the rows of the sink with its table")
                found = _compared(runtime, spark, spec, writer, held.table, cancellation)
        except Exception as error:  # noqa: BLE001 - the edge: what went wrong is the answer
            return _failed(name, version, started, str(translate(error, spec, cancellation)))
    missing, extra, differences = found
    unverified, detail = 0, ""
    rejected = _rejected_keys(runtime, spec) if differences and len(differences) <= TOLERANT_ROWS else set()
    if rejected:
        left = tuple(each for each in differences if _key(each[1], spec) not in rejected)
        unverified = len({_key(row, spec) for _, row in differences} & rejected)
        missing, extra = (sum(sign == each for sign, _ in left) for each in "-+")
        differences, detail = left, "rows that the system does not take" if unverified else ""
    equal = missing == 0 and extra == 0 and unverified == 0
    seconds = time.monotonic() - started
    return Verification(
        name, equal, missing, extra, unverified, version, seconds, differences=differences, detail=detail
    )


def _path(runtime: Runtime, name: TableName) -> Path:
    return runtime.warehouse.path(name)


def _failed(name: TableName, version: int | None, started: float, error: str) -> Verification:
    return Verification(name, False, 0, 0, 0, version, time.monotonic() - started, error=error)


def _compared(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    writer: SinkWriter,
    at: TablePosition,
    cancellation: Cancellation,
) -> tuple[int, int, tuple[tuple[str, dict[str, Any]], ...]]:
    (table,) = spec.reads
    pinned = Pinned(runtime.graph.spec(table), runtime.warehouse.path(table), at)
    expected = read_whole(spark, pinned)
    kinds = {field.name: field.dataType for field in stored_schema(_path(runtime, spec.name)) if is_shown(field.name)}
    folder = runtime.warehouse.notes / "verifying" / str(spec.name)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        schema = outgoing_schema(as_written(expected, spec), kinds, spec)
        _keep(writer.read(schema), schema, folder, cancellation)
        stored = _read(spark, folder, kinds)
        return compare(stored, expected)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep(batches: Iterator[pa.RecordBatch], schema: pa.Schema, folder: Path, cancellation: Cancellation) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    with pq.ParquetWriter(folder / "rows.parquet", schema, compression="zstd", compression_level=1) as file:
        for batch in batches:
            cancellation.check()
            file.write_batch(batch)


def _read(spark: SparkSession, folder: Path, kinds: dict[str, DataType]) -> DataFrame:
    return from_texts(spark.read.option("__globPaths__", "false").parquet(str(folder)), kinds)


def _rejected_keys(runtime: Runtime, spec: TableSpec) -> set[tuple[str, ...]]:
    """The keys of the rows that the system did not take, as texts."""
    path = runtime.warehouse.rejections(spec)
    if not exists(path):
        return set()
    rows = runtime.spark.read.format("delta").load(str(path)).select(F.col("raw")).distinct().collect()
    return {_key(json.loads(each[0]), spec) for each in rows}


def _key(row: dict[str, Any], spec: TableSpec) -> tuple[str, ...]:
    return tuple(str(row.get(key)) for key in spec.primary_key)
