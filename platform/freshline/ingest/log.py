"""One refresh of a log table: what its source has and the log has not, in batches, each batch one fenced commit.

The loop is the same for every connector; its reader (`freshline.sources.reader`) says what is there and reads it.

Order within a batch, so that a stop at any point loses and repeats nothing: rejected rows go to the quarantine
table first, with the batch's number; then the log's commit, whose receipt names the position. A batch that
finds quarantined rows above the log's newest number takes them away before it begins.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import exists, newest_version, open_table
from freshline.commit.event_time import recorded_event_time
from freshline.commit.write import (
    Committed,
    append_rows,
    carry_receipt,
    create_table,
    stored_schema,
    write_and_read_back,
)
from freshline.compute.arrow_rows import ArrowRows
from freshline.compute.cancellation import Cancellation
from freshline.compute.execution import suited_to
from freshline.compute.inputs import HASH, WATERMARK
from freshline.errors import CancelledError, DefinitionChangedError, ExtensionFailedError, FreshlineError
from freshline.freshness.record import complete_until
from freshline.ingest.batch import Batch, begin_batch, fenced, newest_batch, stand
from freshline.ingest.classify import look_at, note_keys
from freshline.plan.disk import history_seconds
from freshline.plan.request import LIVE, RefreshRequest
from freshline.refresh.failure import translate
from freshline.refresh.quarantine import commit_quarantine, next_seq
from freshline.refresh.runtime import Progress, Runtime
from freshline.sources.prepare import prepare_formats, undeclared_of
from freshline.sources.reader import SMALL_ROWS, STOPPED, Certain, Inspection, Portion, Reader, ReadRequest, Records
from freshline.sources.records import (
    ERROR,
    judge_records,
    log_schema,
    quarantine_schema,
    quarantined,
    seen_times,
    statistics_columns,
)
from freshline.values.extension import given
from freshline.values.names import quoted
from freshline.values.position import require_lasting
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt, Violation, added_up
from freshline.values.result import RefreshResult, State, TableKind
from freshline.values.spec import SourceSpec
from freshline.values.watermark import SeenTimes, after_pause, rules_of

# A loop's request ends after this long, so that rows that were read are handed on; the rest comes with the next check.
LIVE_SECONDS = 20.0


@dataclass(frozen=True)
class Ingested:
    """One committed batch: its receipt, its version, how many records went where, and what they violate."""

    committed: Committed
    rejected: int = 0
    redelivered: int = 0
    dropped: int = 0
    violations: Mapping[str, Violation] = field(default_factory=dict)
    problems: tuple[FreshlineError, ...] = ()


@dataclass
class _Totals:
    """The sums over the batches of one refresh."""

    rows_out: int = 0
    rejected: int = 0
    left_out: int = 0
    late: int = 0
    ahead: int = 0
    late_by_seconds: float = 0.0
    pieces: int = 0
    violations: dict[str, Violation] = field(default_factory=dict)

    @property
    def rows_in(self) -> int:
        return self.rows_out + self.rejected + self.left_out

    def add(self, batch: Ingested, portion: Portion) -> None:
        self.rows_out += batch.committed.rows_out
        self.rejected += batch.rejected
        self.left_out += batch.redelivered + batch.dropped
        self.pieces += portion.pieces or 0
        event_time = batch.committed.receipt.event_time
        if event_time is not None:
            self.late += event_time.late
            self.ahead += event_time.ahead
            self.late_by_seconds = max(self.late_by_seconds, event_time.late_by_seconds)
        self.violations = added_up(self.violations, batch.violations)


@dataclass
class _Read:
    """How far a refresh has read its source: what was committed, and what is left of the inspection."""

    inspection: Inspection
    receipt: Receipt | None
    position: Any
    version: int | None
    left: int
    nothing_new: bool
    committed: bool = False
    totals: _Totals = field(default_factory=_Totals)
    problems: list[FreshlineError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.problems += self.inspection.problems

    def add(self, batch: Ingested, portion: Portion) -> None:
        self.receipt, self.position, self.version = batch.committed.receipt, portion.after, batch.committed.version
        self.committed, self.left = True, portion.left
        self.problems += batch.problems
        self.totals.add(batch, portion)


def refresh_log(
    runtime: Runtime,
    spec: SourceSpec,
    request: RefreshRequest,
    *,
    cancellation: Cancellation,
    progress: Progress,
) -> RefreshResult:
    """Bring in everything that the source has now; a part of it where the source or the time of a loop ends it."""
    started = time.monotonic()
    path = runtime.warehouse.path(spec.name)
    mode = str(runtime.graph.mode(spec.name))
    receipt = newest_batch(spec, path)
    position = None if receipt is None else receipt.positions.get(spec.name)
    reader = runtime.reader(spec)
    with runtime.stage("pin"):
        inspection = reader.inspect(position, ReadRequest(cancellation, progress, wait=request.wait_for_settle))
    given(inspection, Inspection, type(reader), "inspect", spec)
    read = _Read(inspection, receipt, position, newest_version(path), inspection.left, not inspection.is_new)
    failure: FreshlineError | None = None
    if inspection.is_new or read.version is None or lacks_columns(path, spec):
        with runtime.working(cancellation, pool=request.cause, what=f"ingest {spec.name}") as spark:
            provide_log(runtime, spark, spec, path)
            read.version = newest_version(path)
            try:
                _read_on(runtime, spark, spec, reader, read, request, mode, started, cancellation, progress)
            except Exception as error:
                if not read.committed:
                    raise
                # Batches before it are committed, and tables that read the log have to know of them.
                failure = translate(error, spec, cancellation)
                if failure is not error:
                    failure.__cause__ = error
    totals, left, receipt = read.totals, read.left, read.receipt
    passed = None
    if receipt is not None and read.nothing_new and not read.committed:
        passed = _pass_time(runtime, spec, reader, read.inspection, receipt, mode, request.cause, cancellation)
    if passed is not None:
        receipt, read.version, read.committed = passed.receipt, passed.version, True
    if not left and failure is None:
        checked = "" if receipt is None else json.dumps({"receipt": receipt.identity})
        runtime.control.record_check(spec.name, inspection.at, checked)
    reason = str(_reason(reader, totals, left, committed=read.committed)) if passed is None else passed.receipt.reason
    found = RefreshResult(
        table=spec.name,
        at=runtime.clock(),
        kind=TableKind.LOG,
        state=State.SUCCEEDED,
        strategy="append" if read.committed else "noop",
        reason=reason,
        version=read.version,
        rows_in=totals.rows_in,
        rows_out=totals.rows_out,
        rejected=totals.rejected,
        late_rows=None if spec.watermark is None else totals.late,
        ahead_rows=None if spec.watermark is None else totals.ahead,
        late_by_seconds=None if spec.watermark is None else totals.late_by_seconds,
        retained_bytes=inspection.retained_bytes,
        seconds=time.monotonic() - started,
        mode=mode,
        data_timestamp=None if receipt is None else receipt.data_timestamp,
        committed=read.committed,
        problems=tuple(read.problems),
        violations=totals.violations,
    )
    if failure is None:
        return found if left else replace(found, data_timestamp=inspection.at)
    state = State.CANCELLED if isinstance(failure, CancelledError) else State.FAILED
    return replace(found, state=state, reason=f"{failure.code}: {failure.message}", error=failure)


def _read_on(
    runtime: Runtime,
    spark: SparkSession,
    spec: SourceSpec,
    reader: Reader[Any, Any],
    read: _Read,
    request: RefreshRequest,
    mode: str,
    started: float,
    cancellation: Cancellation,
    progress: Progress,
) -> None:
    """Commit one portion after the other, as far as the inspection goes; `read` has what was committed."""
    while (portion := reader.cut(read.inspection, read.position)) is not None:
        progress(given(portion, Portion, type(reader), "cut", spec).progress)
        begun = time.monotonic()
        if portion.at is None and read.receipt is not None:
            portion = replace(portion, at=read.receipt.data_timestamp)
        with runtime.stage("compute"):
            batch, portion = _ingest(runtime, spark, spec, reader, read.inspection, portion, mode, cancellation)
        if batch is None:
            read.left, read.nothing_new = portion.left, True
            read.inspection = replace(read.inspection, left=portion.left)
            return
        read.add(batch, portion)
        try:
            reader.release(portion, seconds=time.monotonic() - begun, rejected=batch.rejected + batch.dropped)
        except FreshlineError as error:
            # The rows are committed. The next check releases again, from the position that it is given.
            read.problems.append(error)
        if reader.pauses and request.cause == LIVE and time.monotonic() - started > LIVE_SECONDS:
            return


def _reason(reader: Reader[Any, Any], totals: _Totals, left: int, *, committed: bool) -> Reason:
    if committed:
        return Reason(reader.reason, str(totals.pieces or totals.rows_in))
    return Reason("NOTHING_NEW", reader.waiting(left)) if left else Reason("NOTHING_NEW")


def _pass_time(
    runtime: Runtime,
    spec: SourceSpec,
    reader: Reader[Any, Any],
    inspection: Inspection,
    receipt: Receipt,
    mode: str,
    cause: str,
    cancellation: Cancellation,
) -> Committed | None:
    """Commit an empty batch where time that passed moves the watermark; None where it does not.

    Raises FencedError where another batch was committed after `receipt`.
    """
    before = recorded_event_time(spec, receipt)
    if before is None:
        # The log is of an earlier commit. Its next batch reads the rows that say where the watermark is.
        return None
    unread = reader.partitions(inspection, receipt.positions.get(spec.name), inspection.left)
    moved = after_pause(before, unread, now=runtime.clock(), rules=rules_of(spec))
    if moved is None:
        return None
    path = runtime.warehouse.path(spec.name)
    with runtime.working(cancellation, pool=cause, what=f"move the watermark of {spec.name}") as spark:
        planned = newest_version(path)
        newest = newest_batch(spec, path)
        if newest is None or (newest.epoch, newest.seq) != (receipt.epoch, receipt.seq):
            raise fenced(spec)
        seq = next_seq(runtime, spark, spec, newest, mode)
        empty = replace(
            newest,
            fingerprint=spec.fingerprint,
            epoch=runtime.epoch,
            seq=seq,
            mode=mode,
            reason=str(Reason("WATERMARK_MOVED", moved.moved_by)),
            data_timestamp=newest.data_timestamp if inspection.left else inspection.at,
            rows_in=0,
            rows_out=0,
            rejected=0,
            violations={},
            attempt=uuid4().hex,
            cut={str(spec.name): {"seq": seq}},
            data_timestamp_before=complete_until(newest, runtime.control.checks().get(spec.name), runtime.clock()),
            seconds=0.0,
            maintenance=False,
            restored=None,
            planned=planned,
            event_time=moved,
        )
        cancellation.check()
        runtime.failpoint("log-before-commit")
        committed = write_and_read_back(
            lambda: carry_receipt(lambda: spark, path, empty), path, empty, runtime.require_warehouse
        )
        runtime.failpoint("log-after-commit")
    if committed is None:
        raise fenced(spec)
    return committed


def lacks_columns(path: Path, spec: SourceSpec) -> bool:
    stored = {field.name.lower() for field in open_table(path).schema().fields}
    own = [] if spec.watermark is None else [WATERMARK]
    return any(name.lower() not in stored for name in (*own, *(column.name for column in spec.record_columns)))


def provide_log(runtime: Runtime, spark: SparkSession, spec: SourceSpec, path: Path) -> None:
    """Create the log table, or add columns that the declaration gained; refuse every other difference."""
    history = history_seconds(spec, runtime.graph.mode(spec.name))
    schema = log_schema(spec)
    if not exists(path):
        runtime.require_warehouse()
        create_table(spark, path, schema, history_seconds=history, statistics_on=statistics_columns(spec))
        return
    stored = {field.name.lower(): field for field in stored_schema(path).fields}
    added = []
    for wanted in schema.fields:
        old = stored.pop(wanted.name.lower(), None)
        if old is None:
            added.append(wanted)
        elif old.dataType != wanted.dataType:
            raise DefinitionChangedError(
                f"column {wanted.name} is stored as {old.dataType.simpleString()} and now declared "
                f"{wanted.dataType.simpleString()}. Declare the column under a new name, or a source under a new name.",
                where=str(spec.written_at),
            )
    if any(wanted.name == HASH for wanted in added) or HASH in stored:
        raise DefinitionChangedError(
            "PRIMARY KEY was added to or taken from a source whose log has rows. Declare a source under a new name.",
            where=str(spec.written_at),
        )
    if added:
        names = ", ".join(f"{quoted(wanted.name)} {wanted.dataType.simpleString()}" for wanted in added)
        spark.sql(f"ALTER TABLE delta.{quoted(str(path))} ADD COLUMNS ({names})")


def _ingest(
    runtime: Runtime,
    spark: SparkSession,
    spec: SourceSpec,
    reader: Reader[Any, Any],
    inspection: Inspection,
    portion: Portion,
    mode: str,
    cancellation: Cancellation,
) -> tuple[Ingested | None, Portion]:
    """Commit one portion; None where it turned out that nothing of it is new.

    Raises FencedError where the log is not where the portion begins.
    """
    if portion.before is not None:
        require_lasting(None, portion.before, type(spec.connection), spec)
    standing = stand(runtime, spec, portion.before)
    portion = reader.prepare(spark, portion, standing.newest, cancellation)
    require_lasting(portion.before, portion.after, type(spec.connection), spec)
    if portion.after == portion.before:
        return None, portion
    troubles: list[FreshlineError] = []
    # Keys are searched in a way of their own.
    with suited_to(spark, [SMALL_ROWS if portion.small else None]):
        try:
            ready = prepare_formats(spec, lambda: _undecoded(reader, spark, portion), runtime)
            portion, problems = reader.note_fields(portion, undeclared_of(ready))
            require_lasting(portion.before, portion.after, type(spec.connection), spec)
            unread = partial(reader.partitions, inspection, portion.after, portion.left)
            confirm = partial(reader.confirm, portion)
            batch = begin_batch(runtime, spark, ready, portion, standing, mode, reader.reason, unread, confirm)
            ingested = _commit_portion(runtime, spark, reader, batch, portion, cancellation)
        except (PySparkException, Py4JJavaError, ExtensionFailedError) as error:
            cancellation.check()
            explained = _explained(reader, error, portion)
            if explained is None:
                raise
            raise explained from error
        finally:
            try:
                reader.finish(spark)
            except FreshlineError as error:
                # Committed rows stay so, and the error that came before says why.
                troubles.append(error)
    return replace(ingested, problems=(*problems, *troubles)), portion


def _explained(reader: Reader[Any, Any], error: Exception, portion: Portion) -> FreshlineError | None:
    """The error of the source that one of Spark's stands for, also of one that the reader itself had."""
    of_spark = error.__cause__ if isinstance(error, ExtensionFailedError) else error
    return reader.explain(of_spark, portion) if isinstance(of_spark, PySparkException | Py4JJavaError) else None


def _undecoded(reader: Reader[Any, Any], spark: SparkSession, portion: Portion) -> list[DataFrame]:
    records = given(reader.read(spark, portion), Records, type(reader), "read", reader)
    return [group.rows for group in records.groups if group.error is None]


def _commit_portion(
    runtime: Runtime,
    spark: SparkSession,
    reader: Reader[Any, Any],
    batch: Batch,
    portion: Portion,
    cancellation: Cancellation,
) -> Ingested:
    spec = batch.spec
    certain = reader.read_certain(spark, portion)
    if certain is not None:
        ingested = _commit_certain(runtime, batch, certain, cancellation)
        if ingested is not None:
            return ingested
    records = given(reader.read(spark, portion), Records, type(reader), "read", reader)
    rows = judge_records(records.groups, spec)
    # Without a key no record needs to be compared with others, so that nothing has to be counted or kept beforehand.
    counted = records.counts is not None
    if portion.clean and not portion.small and not counted and not spec.primary_key and not spec.constraints:
        good = rows.where(F.assert_true(F.col(ERROR).isNull(), F.lit(STOPPED)).isNull())
        ingested = _commit_certain(runtime, batch, Certain(good, None), cancellation)
        if ingested is not None:
            return ingested
    return _commit_checked(runtime, spark, batch, rows, cancellation, counted=counted)


def _commit_certain(runtime: Runtime, batch: Batch, certain: Certain, cancellation: Cancellation) -> Ingested | None:
    """Commit records in one pass that ends at the first one in doubt; None where it ended, and nothing is there."""
    rows, seen = batch.accept(certain.rows), SeenTimes()
    if batch.spec.watermark is not None:
        # The receipt has the watermark after the batch, and is written with the rows: so they are computed before.
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        if batch.spec.watermark is not None:
            seen = seen_times(rows, batch.spec, batch.now, batch.watermark)
        # Where the rows are computed while they are written, this is as late as it can be.
        batch.confirm(None)
        receipt = replace(batch.receipt(certain.count, 0, 0), event_time=batch.passed(seen))
        return Ingested(commit_log(runtime, batch, rows, receipt, cancellation, count=None))
    except (PySparkException, Py4JJavaError) as error:
        # An error of a task comes back as either, by how deep Spark has wrapped it.
        if STOPPED not in str(error):
            raise
        return None
    finally:
        if batch.spec.watermark is not None:
            rows.unpersist()


def _commit_checked(
    runtime: Runtime,
    spark: SparkSession,
    batch: Batch,
    rows: DataFrame,
    cancellation: Cancellation,
    *,
    counted: bool,
) -> Ingested:
    """Commit judged records after each is classified: rejected ones to the quarantine table, then good ones."""
    spec = batch.spec
    with look_at(spark, batch, rows, counted=counted) as looked:
        receipt = batch.receipt(looked.good, looked.rejected, looked.left_out)
        receipt = replace(receipt, violations=looked.violations, event_time=batch.passed(looked.seen))
        cancellation.check()
        if looked.rejected:
            runtime.failpoint("log-before-quarantine")
            rows_out = quarantined(looked.rows, spec, batch.seq, batch.now)
            commit_quarantine(runtime, spark, spec, rows_out, receipt, count=looked.few, schema=quarantine_schema(spec))
            runtime.failpoint("log-after-quarantine")
        committed = commit_log(runtime, batch, looked.accepted, receipt, cancellation, count=looked.few)
        note_keys(batch, looked, committed)
    return Ingested(committed, looked.rejected, looked.redelivered, looked.dropped, looked.violations)


def commit_log(
    runtime: Runtime,
    batch: Batch,
    rows: DataFrame | ArrowRows,
    receipt: Receipt,
    cancellation: Cancellation,
    *,
    count: int | None,
) -> Committed:
    """Commit the rows of a batch; raises FencedError where another batch was committed in its place."""
    cancellation.check()
    runtime.failpoint("log-before-commit")

    def write() -> None:
        runtime.require_warehouse()
        runtime.failpoint("log-writing")
        append_rows(rows, batch.path, receipt, count=count)

    with runtime.stage("commit"):
        committed = write_and_read_back(write, batch.path, receipt, runtime.require_warehouse)
    runtime.failpoint("log-after-commit")
    if committed is None:
        raise fenced(batch.spec)
    return committed if receipt.rows_out is None else replace(committed, rows_out=receipt.rows_out)
