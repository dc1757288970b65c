"""Classifies each record of a batch: which came before, which are rejected, late, in violation of what.

Few of them are classified in the engine's process, others by Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.write import Committed
from freshline.compute.arrow_rows import ArrowRows, are_carried, in_spark, take
from freshline.compute.constraints import count_violations
from freshline.compute.inputs import FILE, HASH
from freshline.compute.log_keys import bits_of
from freshline.compute.materialize import collect_if_small
from freshline.ingest.batch import Batch
from freshline.ingest.duplicates import KeysAfter, mark_repeated
from freshline.ingest.duplicates_in_memory import BITS, is_marked_in_memory, mark_duplicates_in_memory
from freshline.sources.reader import SMALL_ROWS
from freshline.sources.records import (
    DROPPED,
    ERROR,
    REDELIVERED,
    event_columns,
    record_hash,
    require_readable,
    seen_times,
)
from freshline.values.receipt import Violation
from freshline.values.spec import SourceSpec
from freshline.values.watermark import SeenTimes, count_times, rules_of

# The columns that few records get in the engine's process beside their own: of a log with a watermark these.
_PARTITION, _TIME = "_freshline_event_partition", "_freshline_event_time"
_ALSO = {BITS, _PARTITION, _TIME}


@dataclass(frozen=True)
class ClassifiedRecords:
    """The classified records of a batch.

    `records` are as `judge_records` gives them, with those that were there before, and `accepted` the good ones as rows
    of the log; `few` is how many records they are where they are in memory. `rejected` go to quarantine, those left out
    nowhere. `keys` are those of the log with those of these records, None where nobody keeps them.
    """

    records: DataFrame | ArrowRows
    accepted: DataFrame | ArrowRows
    good: int
    rejected: int
    redelivered: int
    dropped: int
    violations: Mapping[str, Violation]
    seen: SeenTimes
    few: int | None
    keys: KeysAfter | None = None

    @property
    def left_out(self) -> int:
        return self.redelivered + self.dropped

    @property
    def rows(self) -> DataFrame:
        """The records for Spark."""
        return in_spark(self.records)


@contextmanager
def look_at(spark: SparkSession, batch: Batch, rows: DataFrame, *, counted: bool) -> Iterator[ClassifiedRecords]:
    """Classify each of the judged records. With `counted` the reader gets how many there are of each place.

    They are parsed once, and kept until the end for the counts, the quarantine and the log.
    """
    spec = batch.spec
    if spec.unique_key:
        rows = rows.withColumn(HASH, record_hash(spec))
    few = None
    if batch.small:
        # In one task nothing needs to be shuffled, and the log gets one file.
        rows = rows.coalesce(1)
        if not are_carried(rows.schema) or not is_marked_in_memory(spec, rows.schema):
            few = collect_if_small(rows, SMALL_ROWS)
        elif (held := _take(batch, rows)) is not None:
            yield _classify_in_memory(spark, batch, held, counted=counted)
            return
    rows = few[0] if few is not None else rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield _classify(spark, batch, rows, None if few is None else few[1], counted=counted)
    finally:
        if few is None:
            rows.unpersist()


def _take(batch: Batch, rows: DataFrame) -> ArrowRows | None:
    """Records in the engine's process, with their columns of _ALSO; None where they are not few."""
    spec = batch.spec
    also = {BITS: bits_of(tuple(spec.primary_key))} if spec.primary_key else {}
    if spec.watermark is not None:
        part, time = event_columns(spec, batch.now)
        also |= {_PARTITION: part, _TIME: time}
    return take(rows.withColumns(also) if also else rows, SMALL_ROWS)


def _classify_in_memory(spark: SparkSession, batch: Batch, held: ArrowRows, *, counted: bool) -> ClassifiedRecords:
    """Records in the engine's process, classified without Spark."""
    spec = batch.spec
    marked, keys = held, None
    if spec.primary_key:
        found = mark_duplicates_in_memory(spark, batch.log, held)
        if found is None:
            return _classify(
                spark, batch, held.drop(*_ALSO & {*held.schema.names}).frame(), held.count, counted=counted
            )
        marked, keys = found
    seen = SeenTimes()
    if spec.watermark is not None:
        good = marked.table.filter(pc.is_null(marked.table[ERROR]))
        times = list(zip(_texts(good[_PARTITION]), good[_TIME].to_pylist(), strict=True))
        seen = count_times(times, before=batch.watermark, now=batch.now, rules=rules_of(spec))
    marked = marked.drop(*_ALSO & {*marked.schema.names})
    places = _texts(marked.table[FILE]) if counted else [""] * marked.count
    groups = Counter(zip(places, _texts(marked.table[ERROR]), strict=True))
    return _counted(batch, marked, batch.accept_here(marked), groups, seen, marked.count, keys, counted=counted)


def _texts(column: pa.ChunkedArray) -> list[Any]:
    return [None if value is None else value.decode("utf-8", "replace") for value in column.to_pylist()]


def _classify(
    spark: SparkSession, batch: Batch, rows: DataFrame, few: int | None, *, counted: bool
) -> ClassifiedRecords:
    """Records that Spark keeps, classified; `few` is how many where the driver has them."""
    spec = batch.spec
    marked, keys = mark_repeated(spark, batch.log, rows, few=few is not None)
    again = collect_if_small(marked, SMALL_ROWS) if few is not None and marked is not rows else None
    marked = marked if again is None else again[0]
    place = F.col(FILE) if counted else F.lit("")
    timed = spec.watermark is not None
    seen = SeenTimes()
    groups: Counter[tuple[str, str | None]]
    if few is not None:
        found_rows = marked.select(place, ERROR, *(event_columns(spec, batch.now) if timed else ())).collect()
        groups = Counter((row[0], row[1]) for row in found_rows)
        if timed:
            good_times = [(row[2], row[3]) for row in found_rows if row[1] is None]
            seen = count_times(good_times, before=batch.watermark, now=batch.now, rules=rules_of(spec))
    else:
        groups = Counter({(row[0], row[1]): row[2] for row in marked.groupBy(place, ERROR).count().collect()})
        if timed:
            seen = seen_times(batch.accept(marked), spec, batch.now, batch.watermark)
    return _counted(batch, marked, batch.accept(marked), groups, seen, few, keys, counted=counted)


def _counted(
    batch: Batch,
    marked: DataFrame | ArrowRows,
    rows: DataFrame | ArrowRows,
    groups: Mapping[tuple[str, str | None], int],
    seen: SeenTimes,
    few: int | None,
    keys: KeysAfter | None,
    *,
    counted: bool,
) -> ClassifiedRecords:
    """The outcome of marked records, by how many there are of each place and error; `rows` are those of the log."""
    spec = batch.spec
    counts: Counter[str | None] = Counter()
    found: Counter[str] = Counter()
    for (file, error), count in groups.items():
        counts[error] += count
        found[file] += count
    batch.confirm(found if counted else None)
    require_readable(spec, counts)
    violations = _violations(marked, spec)
    redelivered = counts.pop(REDELIVERED, 0)
    dropped = counts.pop(DROPPED, 0)
    good = counts.pop(None, 0)
    rejected = sum(counts.values())
    return ClassifiedRecords(marked, rows, good, rejected, redelivered, dropped, violations, seen, few, keys)


def _violations(marked: DataFrame | ArrowRows, spec: SourceSpec) -> dict[str, Violation]:
    """The violations of the records; one that is there already, or in quarantine for another reason, has none."""
    if not spec.constraints:
        return {}
    checked = in_spark(marked).where(F.coalesce(~F.col(ERROR).isin(REDELIVERED, "KEY_CONFLICT"), F.lit(True)))
    return count_violations(checked, spec.constraints, str(spec.name))


def note_keys(batch: Batch, looked: ClassifiedRecords, committed: Committed) -> None:
    """Keep the keys of the log with those of a batch that was committed."""
    if looked.keys is not None:
        batch.known.keep(batch.path, looked.keys(committed.receipt.identity))
