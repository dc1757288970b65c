"""Quarantined records of a log table are decoded again, under the declaration of now.

Those that are rows now go to the log in one commit, whose receipt has the position that it had: nothing of the source
is read. The rest stays in quarantine.

Order, so that a stop at any point loses and repeats nothing: first the quarantine table, where each record that leaves
it gets the number of the batch, then the log's commit. The next batch gives records back whose number is above the
log's newest one (`freshline.refresh.quarantine.next_seq`): the commit did not happen, or the log has lost it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import count_all, exists, newest_version
from freshline.compute.cancellation import Cancellation
from freshline.compute.execution import suited_to
from freshline.compute.inputs import FILE, RECORD, SEQ
from freshline.errors import RequestError
from freshline.ingest.batch import Batch, begin_batch, newest_batch, stand
from freshline.ingest.classify import ClassifiedRecords, look_at, note_keys
from freshline.ingest.log import commit_log, provide_log
from freshline.plan.request import RefreshRequest
from freshline.refresh.quarantine import mark_retried, provide_quarantine
from freshline.refresh.runtime import Progress, Runtime
from freshline.sources.prepare import prepare_formats
from freshline.sources.reader import LINE, SMALL_ROWS, Group, Portion, ReadRequest
from freshline.sources.records import ERROR, FIELDS, LEFT_OUT, again_columns, judge_records
from freshline.values.connector import RETRIED_IN, Position
from freshline.values.format import VALUE
from freshline.values.reason import Reason
from freshline.values.result import RefreshResult, State, Strategy, TableKind
from freshline.values.spec import SourceSpec, Spec

RETRIED = "RETRIED"
# The number of the batch that put a record into quarantine, beside what it is decoded to.
_QUARANTINED_IN = "_freshline_quarantined_in"
# Bytes of records that may be judged in the driver's own memory.
_SMALL_BYTES = 16 * 1024 * 1024


def retry_quarantine(
    runtime: Runtime,
    spec: Spec,
    request: RefreshRequest,
    *,
    cancellation: Cancellation,
    progress: Progress,
) -> RefreshResult:
    """Decode what is in quarantine again, and commit what are rows now.

    `rows_out` are the rows that came to the log; with `rows_in` those count as well that are there already, or that a
    constraint drops. Raises RequestError where records cannot be decoded again.
    """
    started = time.monotonic()
    source = _require_log(spec)
    path = runtime.warehouse.path(source.name)
    quarantine = runtime.warehouse.quarantine(source.name)
    mode = str(runtime.graph.mode(source.name))
    tried, looked, version = 0, None, newest_version(path)
    receipt = newest_batch(source, path) if exists(path) else None
    if receipt is not None and exists(quarantine):
        position = receipt.positions.get(source.name)
        assert position is not None
        unread = _unread(runtime, source, position, ReadRequest(cancellation, progress))
        with runtime.working(cancellation, pool=request.cause, what=f"retry the quarantine of {source.name}") as spark:
            provide_log(runtime, spark, source, path)
            provide_quarantine(runtime, spark, source)
            # It has no record of the source, and leaves the log as up to date as it was.
            portion = Portion(position, position, receipt.data_timestamp, 0, "")
            standing = stand(runtime, source, position)
            # First: it gives records of an unfinished retry back.
            batch = begin_batch(runtime, spark, source, portion, standing, mode, RETRIED, lambda: unread)
            # Of one version, so that what is read again after the records were marked is the same.
            records = _records(spark, source, quarantine, newest_version(quarantine))
            batch = replace(batch, spec=prepare_formats(source, lambda: [records], runtime))
            tried, size = records.agg(F.count("*"), F.coalesce(F.sum(F.length(VALUE)), F.lit(0))).collect()[0]
            if tried:
                progress(f"decoding {tried} records again")
                batch = replace(batch, small=tried <= SMALL_ROWS and size <= _SMALL_BYTES)
                stored = count_all([path]) if source.is_change_feed else []
                with suited_to(spark, [*stored, tried]):
                    looked = _commit(runtime, spark, batch, records, int(tried), cancellation)
                version = newest_version(path)
    taken = 0 if looked is None else looked.good + looked.left_out
    return RefreshResult(
        table=source.name,
        at=runtime.clock(),
        kind=TableKind.LOG,
        state=State.SUCCEEDED,
        strategy=str(Strategy.APPEND if taken else Strategy.NOOP),
        reason=str(Reason(RETRIED, f"{taken} of {tried}")),
        version=version,
        rows_in=taken,
        rows_out=0 if looked is None or not taken else looked.good,
        seconds=time.monotonic() - started,
        mode=mode,
        data_timestamp=None if receipt is None else receipt.data_timestamp,
        committed=bool(taken),
        violations=looked.violations if looked is not None and taken else {},
    )


def _require_log(spec: Spec) -> SourceSpec:
    name = str(spec.name)
    if not isinstance(spec, SourceSpec) or not spec.is_log:
        raise RequestError(
            f"{name} has no records that can be decoded again. Rows that a table rejects come back with its next "
            f"refresh after the declaration or an input has changed, or with freshline refresh {name} --full.",
            where=name,
        )
    assert spec.format is not None
    if spec.is_change_feed and not spec.format.is_in_source_order:
        raise RequestError(
            f"{name} is a change feed, whose events count in the order in which they arrive. One of earlier would "
            "count as the newest of its key. Let the database send the row again.",
            where=name,
        )
    if not (spec.format.has_text or spec.format.has_bytes):
        raise RequestError(
            f"the records of {name} ({spec.format.name}) have no bytes of their own that could be decoded again. Put "
            "the file into the folder again, under another name.",
            where=name,
        )
    return spec


def _unread(runtime: Runtime, spec: SourceSpec, position: Position, asked: ReadRequest) -> Mapping[str, bool]:
    """The partitions of the source, each with whether it has records that were not read; none without a watermark."""
    if spec.watermark is None:
        return {}
    reader = runtime.reader(spec)
    inspection = reader.inspect(position, asked)
    return reader.partitions(inspection, position, inspection.left)


def _records(spark: SparkSession, spec: SourceSpec, quarantine: Path, version: int | None) -> DataFrame:
    """The records in quarantine that can be decoded again: their bytes, origin, and the number of their batch."""
    stored = spark.read.format("delta").option("versionAsOf", version).load(str(quarantine))
    waiting = stored.where(F.col(RETRIED_IN).isNull() & F.col(FILE).isNotNull() & F.col("raw").isNotNull())
    return waiting.select(
        F.col("raw").alias(VALUE),
        F.col("line").cast("bigint").alias(LINE),
        F.col(SEQ).alias(_QUARANTINED_IN),
        *again_columns(spec),
    )


def _groups(records: DataFrame, spec: SourceSpec) -> tuple[Group, ...]:
    """Records that are decoded alike. Those of a file whose fields lack a declared column stay where they are."""
    assert spec.format is not None
    kept = (_QUARANTINED_IN,)
    if not spec.format.has_header:
        return (Group(records, kept=kept),)
    declared = {column.name.lower() for column in spec.record_columns}
    found = []
    for (fields,) in records.select(FIELDS).distinct().collect():
        if fields is not None and declared <= {name.lower() for name in fields}:
            same = F.col(FIELDS) == F.array(*[F.lit(name) for name in fields])
            found.append(Group(records.where(same), tuple(fields), kept=kept))
    return tuple(found)


def _commit(
    runtime: Runtime,
    spark: SparkSession,
    batch: Batch,
    records: DataFrame,
    tried: int,
    cancellation: Cancellation,
) -> ClassifiedRecords | None:
    """Commit the records that are rows now, and what became of all; None where there were none to decode."""
    groups = _groups(records, batch.spec)
    if not groups:
        return None
    with look_at(spark, batch, judge_records(groups, batch.spec), counted=False) as looked:
        taken = looked.good + looked.left_out
        if not taken:
            return looked
        receipt = batch.receipt(looked.good, 0, looked.left_out)
        receipt = replace(
            receipt,
            reason=str(Reason(RETRIED, f"{taken} of {tried}")),
            violations=looked.violations,
            event_time=batch.passed(looked.seen),
        )
        cancellation.check()
        runtime.failpoint("log-before-quarantine")
        left = looked.rows.where(F.col(ERROR).isNull() | F.col(ERROR).isin(*LEFT_OUT))
        left = left.select(F.col(_QUARANTINED_IN).alias(SEQ), FILE, RECORD)
        mark_retried(runtime, spark, batch.spec, left, receipt, count=taken)
        runtime.failpoint("log-after-quarantine")
        committed = commit_log(runtime, batch, looked.accepted, receipt, cancellation, count=looked.few)
        note_keys(batch, looked, committed)
        return looked
