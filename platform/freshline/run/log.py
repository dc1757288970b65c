"""One refresh of the log table of a source of files: complete landing files, in batches, each batch one fenced commit.

Order within a batch, so that a stop at any point loses and repeats nothing: rejected rows go to the quarantine
table first, with the batch's number; then the log's commit, whose receipt names the files. A batch that
finds quarantined rows above the log's newest number takes them away before it begins.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import deltalake
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.commit.delta_log import (
    count_all,
    exists,
    newest_version,
    open_table,
    read_newest,
)
from freshline.commit.event_time import passed_by, watermark_after
from freshline.commit.write import (
    Committed,
    append_rows,
    create_table,
    fenced_session,
    write_and_read_back,
)
from freshline.declare.names import TableName
from freshline.declare.spec import SourceSpec, Spec
from freshline.errors import DefinitionChangedError, FencedError, ForeignWriteError, FreshlineError, SourceError
from freshline.plan.disk import HISTORY_SECONDS, history_seconds
from freshline.plan.position import FileMark, FilesPosition, TopicPosition
from freshline.plan.reason import Reason
from freshline.plan.receipt import Receipt, Violation, added_up
from freshline.plan.request import RefreshRequest
from freshline.plan.result import Kind, RefreshResult, State
from freshline.refresh.cancellation import Cancellation
from freshline.refresh.constraints import count_violations
from freshline.refresh.execution import suited_to
from freshline.refresh.ingest import (
    DROPPED,
    ERROR,
    FILES_SCHEMA,
    QUARANTINE_SCHEMA,
    QUEUE_QUARANTINE_SCHEMA,
    REDELIVERED,
    SMALL_BYTES,
    accepted,
    check_read,
    log_schema,
    mark_duplicates,
    mark_known,
    quarantined,
    read_records,
    reading_of,
    record_hash,
    statistics_columns,
)
from freshline.refresh.inputs import FILE, HASH, INGESTED_AT, SEQ
from freshline.refresh.landing import Listing, find_unread, list_landing
from freshline.refresh.lines import Inspected, inspect_files
from freshline.refresh.literal import quoted
from freshline.refresh.plain_json import STOPPED, count_plain, end_reading, may_be_plain, read_plain
from freshline.refresh.settle import few_rows
from freshline.refresh.small_tables import read_small
from freshline.run.runtime import KnownFiles, Progress, Runtime

BATCH_BYTES = 256 << 20
BATCH_FILES = 10_000
# A batch of up to this many rows is looked at in the driver's own memory.
SMALL_BATCH_ROWS = 20_000
# Receipts carry the files read since the last flush; this many make a commit file of some tens of kilobytes.
RECENT_FILES = 200


@dataclass(frozen=True)
class Batch:
    """One committed batch: its receipt, its version, how many records went where, and what they violate."""

    committed: Committed
    rejected: int
    redelivered: int
    dropped: int = 0
    violations: Mapping[str, Violation] = field(default_factory=dict)


def refresh_log(
    runtime: Runtime,
    spec: SourceSpec,
    request: RefreshRequest,
    *,
    cancellation: Cancellation,
    progress: Progress,
) -> RefreshResult:
    """Bring in every complete file that was not read yet."""
    started = time.monotonic()
    root = Path(spec.path)
    path = runtime.warehouse.path(spec.name)
    listing = _list(runtime, spec, root, request, cancellation, progress)
    known, receipt = known_files(runtime, spec, path)
    unread = find_unread(root, listing.complete, known.marks)
    waiting = find_unread(root, listing.unsettled, known.marks).new
    oldest = min((mark.modified_ns for mark in waiting), default=None)
    stamp = listing.started
    if oldest is not None:
        stamp = min(stamp, datetime.fromtimestamp(oldest / 1e9, UTC))
    mode = str(runtime.graph.mode(spec.name))
    rows_out = rejected = redelivered = dropped = late = ahead = 0
    violations: dict[str, Violation] = {}
    version = newest_version(path)
    committed = False
    if unread.new or version is None or lacks_columns(path, spec):
        with runtime.working(cancellation, pool=request.cause, what=f"ingest {spec.name}") as spark:
            provide_log(runtime, spark, spec, path)
            version = newest_version(path)
            watermark = watermark_after(spec, path, read_newest(path))
            batches = _batches(unread.new)
            for number, marks in enumerate(batches, 1):
                left = [mark for later in batches[number:] for mark in later]
                batch_stamp = min(
                    [stamp, *(datetime.fromtimestamp(mark.modified_ns / 1e9, UTC) for mark in left)], default=stamp
                )
                progress(f"reading {len(marks)} files ({number} of {len(batches)})")
                batch = _ingest(runtime, spark, spec, path, marks, batch_stamp, watermark, mode, cancellation)
                if spec.watermark is not None:
                    passed = passed_by(spec, path, batch.committed.version, batch.committed.receipt.seq, watermark)
                    watermark, late, ahead = passed.watermark, late + passed.late, ahead + passed.ahead
                rows_out += batch.committed.rows_out
                rejected += batch.rejected
                redelivered += batch.redelivered
                dropped += batch.dropped
                violations = added_up(violations, batch.violations)
                version, committed = batch.committed.version, True
    newest = read_newest(path)
    receipt = newest.receipt if newest is not None else receipt
    position = "" if receipt is None else f'{{"seq": {receipt.seq}}}'
    runtime.control.record_check(spec.name, stamp, position)
    reason = Reason("NEW_FILES", str(len(unread.new))) if unread.new else Reason("NOTHING_NEW")
    return RefreshResult(
        table=spec.name,
        at=runtime.clock(),
        kind=Kind.LOG,
        state=State.SUCCEEDED,
        strategy="append" if committed else "noop",
        reason=str(reason),
        version=version,
        rows_in=rows_out + rejected + redelivered + dropped,
        rows_out=rows_out,
        rejected=rejected,
        late_rows=None if spec.watermark is None else late,
        ahead_rows=None if spec.watermark is None else ahead,
        seconds=time.monotonic() - started,
        mode=mode,
        data_timestamp=stamp,
        committed=committed,
        problems=(*unread.changed, *_passed_over(spec, listing)),
        violations=violations,
    )


def _list(
    runtime: Runtime,
    spec: SourceSpec,
    root: Path,
    request: RefreshRequest,
    cancellation: Cancellation,
    progress: Progress,
) -> Listing:
    """List the directory; a request by a person waits for the files that were there when it was asked."""
    listing = list_landing(root, spec.settle_seconds, runtime.clock(), follow_links=spec.follow_links)
    if not request.wait_for_settle or not listing.unsettled:
        return listing
    asked = {mark.path for mark in listing.unsettled}
    limit = time.monotonic() + 10 * spec.settle_seconds + 1
    while any(mark.path in asked for mark in listing.unsettled) and time.monotonic() < limit:
        progress(f"waiting for {len(listing.unsettled)} files to settle")
        cancellation.wait(min(0.2, spec.settle_seconds))
        cancellation.check()
        listing = list_landing(root, spec.settle_seconds, runtime.clock(), follow_links=spec.follow_links)
    return listing


def newest_batch(spec: SourceSpec, path: Path) -> Receipt | None:
    """The receipt of the newest batch, None before the first. Raises an error for a log that holds other rows."""
    newest = read_newest(path)
    receipt = None if newest is None else newest.receipt
    if newest is not None and newest.foreign:
        raise ForeignWriteError(
            f"version {newest.version} was not written by freshline. A log table holds only what its source sent: "
            f"restore it with RESTORE TABLE delta.`{path}` TO VERSION AS OF {newest.receipt_version}, "
            "then restart the engine.",
            where=str(spec.name),
        )
    if receipt is not None and isinstance(receipt.positions.get(spec.name), TopicPosition) != (spec.kafka is not None):
        raise DefinitionChangedError(
            "the connector was changed, and the log has rows of the other one. Declare a source under a new name.",
            where=str(spec.written_at),
        )
    return receipt


def known_files(runtime: Runtime, spec: SourceSpec, path: Path) -> tuple[KnownFiles, Receipt | None]:
    """The files that a log table has read, and the receipt of its newest batch."""
    receipt = newest_batch(spec, path)
    attempt = None if receipt is None else receipt.attempt
    cached = runtime.known_files.get(spec.name)
    if cached is not None and cached.attempt == attempt:
        return cached, receipt
    marks: dict[str, FileMark] = {}
    files = runtime.warehouse.files(spec.name)
    if exists(files):
        table = deltalake.DeltaTable(str(files)).to_pyarrow_table(columns=[SEQ, "path", "size", "modified_ns"])
        # Of a log that was put back, or is made anew, later names are those of files that it no longer has.
        flushed = 0 if receipt is None else _position(receipt, spec.name).flushed_seq
        for row in table.to_pylist():
            if row[SEQ] <= flushed:
                marks[row["path"]] = FileMark(row["path"], row["size"], row["modified_ns"])
    if receipt is not None:
        marks.update((mark.path, mark) for mark in _position(receipt, spec.name).recent)
    known = KnownFiles(attempt, marks)
    runtime.known_files[spec.name] = known
    return known, receipt


def watermark_in_receipt(spec: SourceSpec, watermark: datetime | None) -> dict[str, datetime]:
    """The watermark before a batch as its receipt has it."""
    if spec.watermark is None or watermark is None:
        return {}
    return {spec.stored_column(spec.watermark.column): watermark}


def _position(receipt: Receipt, name: TableName) -> FilesPosition:
    position = receipt.positions.get(name)
    return position if isinstance(position, FilesPosition) else FilesPosition(0, ())


def _batches(marks: Sequence[FileMark]) -> list[list[FileMark]]:
    """Split files, in order, into batches of bounded size; a larger file is a batch of its own."""
    batches: list[list[FileMark]] = []
    size = 0
    for mark in marks:
        if not batches or size + mark.size > BATCH_BYTES or len(batches[-1]) >= BATCH_FILES:
            batches.append([])
            size = 0
        batches[-1].append(mark)
        size += mark.size
    return batches


def lacks_columns(path: Path, spec: SourceSpec) -> bool:
    stored = {field.name.lower() for field in open_table(path).schema().fields}
    return any(column.name.lower() not in stored for column in spec.record_columns)


def provide_log(runtime: Runtime, spark: SparkSession, spec: SourceSpec, path: Path) -> None:
    """Create the log table, or add columns that the declaration gained; refuse every other difference."""
    history = history_seconds(spec, runtime.graph.mode(spec.name))
    schema = log_schema(spec)
    if not exists(path):
        create_table(spark, path, schema, history_seconds=history, statistics_on=statistics_columns(spec))
        return
    stored = {f.name.lower(): f for f in spark.read.format("delta").load(str(path)).schema.fields}
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
    path: Path,
    marks: Sequence[FileMark],
    stamp: datetime,
    watermark: datetime | None,
    mode: str,
    cancellation: Cancellation,
) -> Batch:
    started = time.monotonic()
    # First: what is committed from here on was not seen.
    planned = newest_version(path)
    known, previous = known_files(runtime, spec, path)
    position = FilesPosition(0, ()) if previous is None else _position(previous, spec.name)
    position = _flush(runtime, spark, spec, position, previous)
    seq = next_seq(runtime, spark, spec, previous, mode)
    now = runtime.clock()
    attempt = uuid4().hex

    def receipt(good: int, rejected: int, left_out: int) -> Receipt:
        return Receipt(
            table=spec.name,
            fingerprint=spec.fingerprint,
            epoch=runtime.epoch,
            seq=seq,
            mode=mode,
            strategy="append",
            reason=str(Reason("NEW_FILES", str(len(marks)))),
            data_timestamp=stamp,
            positions={spec.name: FilesPosition(position.flushed_seq, (*position.recent, *marks))},
            rows_in=good + rejected + left_out,
            rows_out=good,
            rejected=rejected,
            attempt=attempt,
            cut={str(spec.name): {"seq": seq}},
            seconds=time.monotonic() - started,
            planned=planned,
            watermark=watermark_in_receipt(spec, watermark),
        )

    root = Path(spec.path)
    files = inspect_files(root, marks, reading_of(spec), cancellation.check)
    small = sum(file.size for file in files) <= SMALL_BYTES
    portion = Portion(spec, path, seq, now, small, receipt)
    stored = count_all([path]) if spec.primary_key else []
    with suited_to(spark, [*stored, SMALL_BATCH_ROWS if small else None]):
        try:
            batch = _commit_plain(runtime, spark, portion, files, cancellation)
            if batch is None:
                records = read_records(spark, spec, root, files)
                batch = commit_checked(
                    runtime,
                    spark,
                    portion,
                    records.rows,
                    cancellation,
                    check=lambda found: check_read(records.counts, found, root, files),
                )
        finally:
            end_reading(spark)
    runtime.known_files[spec.name] = KnownFiles(attempt, {**known.marks, **{mark.path: mark for mark in marks}})
    return batch


@dataclass(frozen=True)
class Portion:
    """What becomes one batch. `receipt` makes its receipt from the rows that are good, rejected, left out.

    `small` says that it may be looked at in the driver's own memory.
    """

    spec: SourceSpec
    path: Path
    seq: int
    now: datetime
    small: bool
    receipt: Callable[[int, int, int], Receipt]


def _commit_plain(
    runtime: Runtime,
    spark: SparkSession,
    portion: Portion,
    files: Sequence[Inspected],
    cancellation: Cancellation,
) -> Batch | None:
    """Commit records that leave no doubt, read the short way; None where the long way must be taken."""
    spec, root = portion.spec, Path(portion.spec.path)
    if not may_be_plain(spec, root, files):
        return None
    counts = {file.mark.path: file.lines for file in files}
    check_read(counts, count_plain(spark, root, files), root, files)
    rows = accepted(read_plain(spark, spec, root, files), spec, portion.seq, portion.now)
    try:
        receipt = portion.receipt(sum(counts.values()), 0, 0)
        return Batch(commit_log(runtime, portion, rows, receipt, cancellation, count=None), 0, 0)
    except (PySparkException, Py4JJavaError) as error:
        # What a task raises comes back as either, by how deep Spark has wrapped it.
        if STOPPED not in str(error):
            raise
        return None


def _count(few: tuple[DataFrame, int] | None) -> int | None:
    return None if few is None else few[1]


def commit_checked(
    runtime: Runtime,
    spark: SparkSession,
    portion: Portion,
    rows: DataFrame,
    cancellation: Cancellation,
    *,
    check: Callable[[Mapping[str, int]], None] | None = None,
) -> Batch:
    """Commit parsed records that are looked at one by one: rejected ones to the quarantine table, then good ones.

    `check` is given how many rows there are of each file, and raises where that is wrong.
    """
    spec = portion.spec
    if spec.primary_key:
        rows = rows.withColumn(HASH, record_hash(spec))
    few = None
    if portion.small:
        # In one task nothing needs to be shuffled, and the log gets one file.
        rows = rows.coalesce(1)
        few = few_rows(rows, SMALL_BATCH_ROWS)
    # Parsed once, used for the counts, the quarantine and the log.
    rows = few[0] if few is not None else rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        marked = _mark_redelivered(spark, spec, portion.path, rows, portion.now) if spec.primary_key else rows
        again = few_rows(marked, SMALL_BATCH_ROWS) if few is not None and marked is not rows else None
        marked = marked if again is None else again[0]
        place = F.lit("") if check is None else F.col(FILE)
        counted: Counter[tuple[str, str | None]] = (
            Counter((row[0], row[1]) for row in marked.select(place, ERROR).collect())
            if few is not None
            else Counter({(row[0], row[1]): row[2] for row in marked.groupBy(place, ERROR).count().collect()})
        )
        counts: Counter[str | None] = Counter()
        found: Counter[str] = Counter()
        for (file, error), count in counted.items():
            counts[error] += count
            found[file] += count
        if check is not None:
            check(found)
        violations = _violations(marked, spec)
        redelivered = counts.pop(REDELIVERED, 0)
        dropped = counts.pop(DROPPED, 0)
        good = counts.pop(None, 0)
        rejected = sum(counts.values())
        receipt = replace(portion.receipt(good, rejected, redelivered + dropped), violations=violations)
        cancellation.check()
        if rejected:
            runtime.failpoint("log-before-quarantine")
            rows_out = quarantined(marked, spec, portion.seq, portion.now)
            commit_quarantine(runtime, spark, spec, rows_out, receipt, count=_count(few))
            runtime.failpoint("log-after-quarantine")
        committed = commit_log(
            runtime,
            portion,
            accepted(marked, spec, portion.seq, portion.now),
            receipt,
            cancellation,
            count=_count(few),
        )
    finally:
        if few is None:
            rows.unpersist()
    return Batch(committed, rejected, redelivered, dropped, violations)


def _violations(marked: DataFrame, spec: SourceSpec) -> dict[str, Violation]:
    """What the records violate; one that is there already, or in quarantine for another reason, violates nothing."""
    if not spec.constraints:
        return {}
    judged = marked.where(F.coalesce(~F.col(ERROR).isin(REDELIVERED, "KEY_CONFLICT"), F.lit(True)))
    return count_violations(judged, spec.constraints, str(spec.name))


def commit_log(
    runtime: Runtime,
    portion: Portion,
    rows: DataFrame,
    receipt: Receipt,
    cancellation: Cancellation,
    *,
    count: int | None,
) -> Committed:
    """Commit the rows of a batch; raises FencedError where another batch was committed in its place."""
    cancellation.check()
    runtime.failpoint("log-before-commit")
    committed = write_and_read_back(
        lambda: append_rows(rows, portion.path, receipt, count=count), portion.path, receipt
    )
    runtime.failpoint("log-after-commit")
    if committed is None:
        raise FencedError(
            "another batch was committed to this log meanwhile; nothing was written. Ask again.",
            where=str(portion.spec.name),
        )
    return committed if receipt.rows_out is None else replace(committed, rows_out=receipt.rows_out)


def _mark_redelivered(spark: SparkSession, spec: SourceSpec, path: Path, rows: DataFrame, now: datetime) -> DataFrame:
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    good = rows.where(F.col(ERROR).isNull())
    twice = good.groupBy(*keys).count().where("count > 1").limit(1).count() > 0
    marked = mark_duplicates(rows, spec) if twice else rows
    stored = read_small(spark, path, None)
    if stored is None:
        stored = spark.read.format("delta").load(str(path))
    if spec.deduplicate_seconds is not None:
        stored = stored.where(F.col(INGESTED_AT) > F.lit(now - timedelta(seconds=spec.deduplicate_seconds)))
    # The batch is the small side: its keys go to the log's scan.
    hits = stored.join(F.broadcast(good.select(*keys).distinct()), list(spec.primary_key), "left_semi")
    known = hits.groupBy(*keys).agg(F.min_by(HASH, SEQ).alias("_freshline_known"))
    return mark_known(marked, known, spec) if known.limit(1).count() else marked


def next_seq(runtime: Runtime, spark: SparkSession, spec: Spec, previous: Receipt | None, mode: str) -> int:
    """One above every number used so far; takes away what a batch that never finished left in the quarantine table."""
    log_seq = 0 if previous is None else previous.seq
    path = runtime.warehouse.quarantine(spec.name)
    newest = read_newest(path)
    if newest is None or newest.receipt is None or newest.receipt.seq <= log_seq:
        return log_seq + 1
    left = newest.receipt.seq
    stamp = runtime.clock()
    receipt = side_receipt(runtime, spec, left + 1, mode, "rows of an unfinished batch are taken away", stamp)
    with fenced_session(spark, path, receipt):
        spark.sql(f"DELETE FROM delta.{quoted(str(path))} WHERE {SEQ} > {log_seq}")
    return left + 2


def commit_quarantine(
    runtime: Runtime,
    spark: SparkSession,
    spec: Spec,
    rows: DataFrame,
    receipt: Receipt,
    *,
    count: int | None,
    schema: StructType = QUARANTINE_SCHEMA,
) -> None:
    """Keep what could not be a row, under the number of the batch or refresh that goes on without it."""
    path = runtime.warehouse.quarantine(spec.name)
    if not exists(path):
        create_table(spark, path, _quarantine_schema(spec, schema), history_seconds=HISTORY_SECONDS)
    side = replace(receipt, positions={}, rows_out=receipt.rejected, rejected=0, violations={}, planned=None)
    if write_and_read_back(lambda: append_rows(rows, path, side, count=count), path, side) is None:
        raise FencedError(
            "another writer's rows came to the quarantine table meanwhile. Ask again.", where=str(spec.name)
        )


def _quarantine_schema(spec: Spec, schema: StructType) -> StructType:
    return QUEUE_QUARANTINE_SCHEMA if isinstance(spec, SourceSpec) and spec.kafka is not None else schema


def _flush(
    runtime: Runtime, spark: SparkSession, spec: SourceSpec, position: FilesPosition, previous: Receipt | None
) -> FilesPosition:
    """Move the file names of a long receipt into the table beside the log, once for each number."""
    if previous is None or len(position.recent) < RECENT_FILES:
        return position
    path = runtime.warehouse.files(spec.name)
    if not exists(path):
        create_table(spark, path, FILES_SCHEMA, history_seconds=HISTORY_SECONDS)
    newest = read_newest(path)
    top = 0 if newest is None or newest.receipt is None else newest.receipt.seq
    number = previous.seq
    if top >= previous.seq:
        # Noted before a batch that then was not committed; or the log was put back, and what follows is of others.
        stored = spark.read.format("delta").load(str(path)).where(F.col(SEQ) > position.flushed_seq)
        noted = {(row[SEQ], row["path"]) for row in stored.select(SEQ, "path").collect()}
        if noted == {(previous.seq, mark.path) for mark in position.recent}:
            return FilesPosition(previous.seq, ())
        number = top + 2
        with fenced_session(
            spark, path, side_receipt(runtime, spec, top + 1, previous.mode, "the log was put back", runtime.clock())
        ):
            spark.sql(f"DELETE FROM delta.{quoted(str(path))} WHERE {SEQ} > {position.flushed_seq}")
    rows = spark.createDataFrame(
        [(previous.seq, mark.path, mark.size, mark.modified_ns) for mark in position.recent], FILES_SCHEMA
    )
    receipt = side_receipt(runtime, spec, number, previous.mode, "files read", runtime.clock())
    if write_and_read_back(lambda: append_rows(rows, path, receipt, count=len(position.recent)), path, receipt) is None:
        raise FencedError("another batch noted its files meanwhile. Ask again.", where=str(spec.name))
    runtime.failpoint("log-after-flush")
    return FilesPosition(previous.seq, ())


def _passed_over(spec: SourceSpec, listing: Listing) -> list[FreshlineError]:
    """A problem for each entry of the landing folder that is not read."""
    return [SourceError(reason, where=f"{spec.path}/{name}") for name, reason in listing.passed_over]


def side_receipt(runtime: Runtime, spec: Spec, seq: int, mode: str, reason: str, stamp: datetime) -> Receipt:
    return Receipt(
        table=spec.name,
        fingerprint=spec.fingerprint,
        epoch=runtime.epoch,
        seq=seq,
        mode=mode,
        strategy="append",
        reason=reason,
        data_timestamp=stamp,
        positions={},
        rows_in=0,
        rows_out=None,
        attempt=uuid4().hex,
    )


def commit_null_keys(
    runtime: Runtime, spark: SparkSession, spec: SourceSpec, rows: DataFrame, table: TableName, up_to: int, mode: str
) -> int:
    """Put rows of a log that have a NULL in the key of a merge-type table into the log's quarantine table.

    `rows` has the quarantine's columns. Each row goes there once for a table: what an earlier refresh of this table put
    there is known by the error's text and the greatest batch number. Returns how many were added.
    """
    path = runtime.warehouse.quarantine(spec.name)
    error = f"NULL_KEY({table})"
    fresh = rows
    if exists(path):
        stored = spark.read.format("delta").load(str(path)).where(F.col("error") == error)
        last = stored.agg(F.max(SEQ)).collect()[0][0]
        if last is not None:
            fresh = rows.where(F.col(SEQ) > last)
    else:
        create_table(spark, path, _quarantine_schema(spec, QUARANTINE_SCHEMA), history_seconds=HISTORY_SECONDS)
    count = fresh.count()
    if count:
        # No fence: one engine writes, and a repeat finds its rows by their number. The receipt on top stays the log's.
        newest = read_newest(path)
        base = None if newest is None else newest.receipt
        receipt = side_receipt(runtime, spec, up_to if base is None else base.seq, mode, error, runtime.clock())
        fresh.write.format("delta").mode("append").option("userMetadata", receipt.to_json()).save(str(path))
    return count
