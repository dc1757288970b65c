"""Union read: the stored rows of a table and the tail of its source, as one relation.

The end of the tail is fixed before anything is read. Records of the tail that arrived in the log meanwhile are taken
from there, the others from the source, by the same rules as an ingest: what would be rejected or is a redelivery is no
row. A table with a merge is folded with them by its merge. This only reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce
from operator import or_
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import classify, newest_version, position_of, receipt_at, table_id
from freshline.declare.names import TableName
from freshline.declare.spec import MergeKind, SourceSpec, TableSpec
from freshline.errors import FileChangedError, RequestError, SourceError
from freshline.plan.changes import ChangeKind
from freshline.plan.position import FileMark, FilesPosition, TablePosition, TopicPosition
from freshline.plan.stored_order import stored_order
from freshline.plan.union import UnionToken, log_behind, require_unread, split_files, split_topic
from freshline.refresh.cancellation import Cancellation
from freshline.refresh.fold import (
    as_stored,
    decide,
    drop_beaten,
    fold_rows,
    has_key,
    older_rows,
    read_rows,
    update_condition,
    winning_rows,
)
from freshline.refresh.ingest import (
    ERROR,
    accepted,
    check_read,
    log_schema,
    mark_duplicates,
    mark_known,
    parse_records,
    read_records,
    reading_of,
    record_hash,
)
from freshline.refresh.inputs import (
    FILE,
    HASH,
    INGESTED_AT,
    PARTITION,
    RECORD,
    SEQ,
    Pinned,
    declared_columns,
    drop_views,
    read_log,
    read_version,
    shadow_inputs,
)
from freshline.refresh.keys import DELETE as REMOVE
from freshline.refresh.keys import OP
from freshline.refresh.landing import find_unread, list_landing
from freshline.refresh.lines import inspect_files
from freshline.refresh.literal import quoted
from freshline.refresh.settle import settle
from freshline.refresh.topic import Brokers, read_range
from freshline.run.log import known_files, newest_batch
from freshline.run.runtime import Runtime
from freshline.run.topic import brokers_of, covers, look_behind, topic_position


@dataclass(frozen=True)
class UnionRead:
    """The rows of a union read, not computed yet, and the token to read the same again."""

    rows: DataFrame
    token: UnionToken


def read_union(
    runtime: Runtime,
    spark: SparkSession,
    name: TableName,
    token: UnionToken | None = None,
    *,
    cancellation: Cancellation,
) -> UnionRead:
    """A log table, or a table with a merge over one, with what its source has beside it.

    `token` is that of an earlier read; without it everything that the source has now. Raises RequestError for a table
    that has no tail or no version, and the errors of sources.
    """
    spec = runtime.graph.spec(name)
    log = log_behind(spec, runtime.graph.specs)
    if token is None:
        token = _plan(runtime, spec.name, log, cancellation)
    elif token.table != spec.name:
        raise RequestError(f"the token is of a union read of {token.table}, not of {spec.name}.")
    path = runtime.warehouse.path(log.name)
    if table_id(path) != token.log.table_id:
        raise RequestError(f"{log.name} is another table than the one that the token was made for. Read anew.")
    newest = newest_version(path)
    if newest is not None:
        since = classify(log.name, path, token.log, position_of(path, newest), log=True)
        if since.kind is ChangeKind.SOURCE_REPLACED:
            raise RequestError(f"{log.name} was put back to before the token was made. Read anew.")
    tail = _tail(runtime, spark, log, path, token, cancellation)
    pinned = Pinned(log, path, token.log)
    if isinstance(spec, SourceSpec):
        stored = read_log(spark, pinned).where(F.col(SEQ) <= (token.log.seq or 0))
        return UnionRead(declared_columns(_together(stored, tail), pinned, arrival=False), token)
    return UnionRead(_folded(runtime, spark, spec, pinned, tail, token), token)


# -- what is read


def _plan(runtime: Runtime, name: TableName, log: SourceSpec, cancellation: Cancellation) -> UnionToken:
    """Fix the versions, then the end. Nothing that the versions hold is behind the end."""
    version = _newest(runtime, name)
    folded = _folded_up_to(runtime, name, version, log)
    path = runtime.warehouse.path(log.name)
    while True:
        # The table first: a log that is newer than what the table has read is right, an older one would not be.
        log_version = version if name == log.name else _newest(runtime, log.name)
        receipt = receipt_at(path, log_version.version)
        if receipt is None:
            raise RequestError(f"{log.name} has no batch yet. Refresh it first.")
        at = runtime.clock()
        if log.kafka is not None:
            start = topic_position(receipt, log.name)
            assert start is not None
            end = _topic_end(runtime, log, start, cancellation)
            return UnionToken(
                name, version, log_version, start, end, log_version.seq or 0 if folded is None else folded, at
            )
        known, newest = known_files(runtime, log, path)
        listing = list_landing(Path(log.path), log.settle_seconds, at, follow_links=log.follow_links)
        new = find_unread(Path(log.path), listing.complete, known.marks).new
        if newest is not None and newest.seq == receipt.seq:
            files = FilesPosition(receipt.seq, ()), FilesPosition(receipt.seq, new)
            return UnionToken(
                name, version, log_version, *files, log_version.seq or 0 if folded is None else folded, at
            )
        # A batch came between: what is new is new beside a later version.
        cancellation.check()
        if name == log.name:
            version = _newest(runtime, name)


def _folded_up_to(runtime: Runtime, name: TableName, version: TablePosition, log: SourceSpec) -> int | None:
    """The newest batch of the log that a version of a table has; None for the log itself."""
    if name == log.name:
        return None
    receipt = receipt_at(runtime.warehouse.path(name), version.version)
    read = None if receipt is None else receipt.table_position(log.name)
    if read is None:
        raise RequestError(f"the receipt of version {version.version} of {name} is no longer in its log. Refresh it.")
    return read.seq


def _newest(runtime: Runtime, name: TableName) -> TablePosition:
    path = runtime.warehouse.path(name)
    version = newest_version(path)
    if version is None:
        raise RequestError(f"{name} has no version yet. Refresh it first.")
    return position_of(path, version)


def _topic_end(runtime: Runtime, log: SourceSpec, start: TopicPosition, cancellation: Cancellation) -> TopicPosition:
    brokers = brokers_of(runtime, log)
    look = look_behind(runtime, brokers, lambda look: covers(look, start), cancellation)
    if look.topic_id != start.topic_id:
        raise SourceError(
            f"topic {look.topic} is not the one that was read. `freshline refresh {log.name}` says more.",
            where=str(log.name),
        )
    ends = {partition: max(end, start.offsets.get(partition, 0)) for partition, end in look.ends.items()}
    return replace(start, offsets={**start.offsets, **ends})


# -- the tail


def _tail(
    runtime: Runtime,
    spark: SparkSession,
    log: SourceSpec,
    path: Path,
    token: UnionToken,
    cancellation: Cancellation,
) -> DataFrame | None:
    """The rows between the token's positions as the log would have them in its next batch; None where there are none.

    They have no time of ingest: they are not in the version that was read.
    """
    seq = token.log.seq or 0
    # How far the log is before its rows: what arrives between the two must not be looked for in rows that lack it.
    known, receipt = (None, newest_batch(log, path)) if log.kafka is not None else known_files(runtime, log, path)
    whole = read_log(spark, Pinned(log, path, token.log))
    if known is None:
        position = topic_position(receipt, log.name)
        found = _topic_tail(runtime, spark, log, token, position, whole, cancellation)
    else:
        found = _files_tail(spark, log, token, known.marks, whole, cancellation)
    parts = [_in_batch(part, log, seq + 1) for part in found]
    return reduce(lambda left, right: left.unionByName(right), parts) if parts else None


def _topic_tail(
    runtime: Runtime,
    spark: SparkSession,
    log: SourceSpec,
    token: UnionToken,
    position: TopicPosition | None,
    whole: DataFrame,
    cancellation: Cancellation,
) -> list[DataFrame]:
    start, end = token.start, token.end
    assert isinstance(start, TopicPosition)
    assert isinstance(end, TopicPosition)
    if all(start.offsets.get(partition, 0) == offset for partition, offset in end.offsets.items()):
        return []
    where = str(log.name)
    brokers = brokers_of(runtime, log)
    tail = split_topic(start, end, position, earliest=_earliest(runtime, log, brokers, end.topic_id), where=where)
    found = []
    in_log = [
        (F.col(PARTITION) == partition) & (F.col(RECORD) < offset)
        for partition, offset in tail.logged.items()
        if offset > start.offsets.get(partition, 0)
    ]
    if in_log:
        found.append(whole.where((F.col(SEQ) > (token.log.seq or 0)) & reduce(or_, in_log)))
    if tail.unread.offsets:
        look = look_behind(runtime, brokers, lambda look: covers(look, end), cancellation)
        require_unread(tail, look, end.topic_id, where=where)
        rows = parse_records(read_range(spark, brokers, tail.unread), log).rows
        found.append(_accepted(rows, log, token, whole if in_log else None, whole))
    return found


def _earliest(runtime: Runtime, log: SourceSpec, brokers: Brokers, topic_id: str) -> Mapping[int, int] | None:
    """What a topic still has, where the tail is to be read from it rather than from the log.

    Which of two records with one key stays depends on which came first. So the tail of a source with a key is judged
    as one batch each time, and not as the batches in which it arrived, for as long as the topic has it.
    """
    if not log.primary_key:
        return None
    try:
        look = runtime.topics.look(brokers)
    except SourceError:
        return None
    return look.earliest if look.topic_id == topic_id else None


def _files_tail(
    spark: SparkSession,
    log: SourceSpec,
    token: UnionToken,
    read: Mapping[str, FileMark],
    whole: DataFrame,
    cancellation: Cancellation,
) -> list[DataFrame]:
    assert isinstance(token.end, FilesPosition)
    marks = token.end.recent
    if not marks:
        return []
    root = Path(log.path)
    intact = frozenset(mark.path for mark in marks if _is_intact(root, mark))
    logged, opened = split_files(marks, read, intact, prefer_files=bool(log.primary_key))
    gone = [mark.path for mark in opened if mark.path not in intact]
    if gone:
        raise FileChangedError(
            "the file is not what it was when the union read was planned, and its rows are not in the log. Read anew.",
            where=str(root / gone[0]),
        )
    later = F.col(SEQ) > (token.log.seq or 0)
    found = [whole.where(later & F.col(FILE).isin(list(logged)))] if logged else []
    if opened:
        files = inspect_files(root, opened, reading_of(log), cancellation.check)
        records = read_records(spark, log, root, files)
        rows = records.rows
        read_of = {row[FILE]: row["count"] for row in rows.groupBy(FILE).count().collect()}
        check_read(records.counts, read_of, root, files)
        found.append(_accepted(rows, log, token, whole if logged else None, whole))
    return found


def _is_intact(root: Path, mark: FileMark) -> bool:
    try:
        status = (root / mark.path).stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (mark.size, mark.modified_ns)


def _accepted(
    rows: DataFrame, log: SourceSpec, token: UnionToken, also: DataFrame | None, whole: DataFrame
) -> DataFrame:
    """The records that an ingest would keep. `also` is the log beyond the version, where part of the tail is in it."""
    if log.primary_key:
        stored = also if also is not None else whole.where(F.col(SEQ) <= (token.log.seq or 0))
        if log.deduplicate_seconds is not None:
            since = token.at - timedelta(seconds=log.deduplicate_seconds)
            stored = stored.where(F.col(INGESTED_AT) > F.lit(since))
        keys = [F.col(quoted(key)) for key in log.primary_key]
        rows = mark_duplicates(rows.withColumn(HASH, record_hash(log)), log)
        good = rows.where(F.col(ERROR).isNull()).select(*keys).distinct()
        hits = stored.join(F.broadcast(good), list(log.primary_key), "left_semi")
        rows = mark_known(rows, hits.groupBy(*keys).agg(F.min_by(HASH, SEQ).alias("_freshline_known")), log)
    return accepted(rows, log, 0, token.at)


def _in_batch(rows: DataFrame, log: SourceSpec, seq: int) -> DataFrame:
    """Rows as one batch of the log, whichever they came in."""
    there = {name.lower() for name in rows.columns}
    columns = [
        (F.col(quoted(field.name)) if field.name.lower() in there else F.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in log_schema(log).fields
        if field.name not in (SEQ, INGESTED_AT)
    ]
    return rows.select(F.lit(seq).cast("bigint").alias(SEQ), F.lit(None).cast("timestamp").alias(INGESTED_AT), *columns)


def _together(stored: DataFrame, tail: DataFrame | None) -> DataFrame:
    if tail is None:
        return stored
    # Columns that the declaration gained are added to the log by its next batch.
    return tail.unionByName(stored.select(*_known(stored, tail)), allowMissingColumns=True)


def _known(stored: DataFrame, tail: DataFrame) -> list[Column]:
    names = {name.lower() for name in tail.columns}
    return [F.col(quoted(name)) for name in stored.columns if name.lower() in names]


# -- tables with a merge


def _folded(
    runtime: Runtime, spark: SparkSession, spec: TableSpec, log: Pinned, tail: DataFrame | None, token: UnionToken
) -> DataFrame:
    """The stored rows of a table with a merge, folded with all that the log and its source have beyond them."""
    assert spec.merge is not None
    assert spec.columns is not None
    path = runtime.warehouse.path(spec.name)
    if table_id(path) != token.version.table_id:
        raise RequestError(f"{spec.name} is another table than the one that the token was made for. Read anew.")
    stored = read_version(spark, path, token.version.version).select(*[F.col(quoted(name)) for name in spec.columns])
    arrived = read_log(spark, log).where((F.col(SEQ) > token.folded) & (F.col(SEQ) <= (token.log.seq or 0)))
    shadow_inputs({log.name: declared_columns(_together(arrived, tail), log, arrival=True)})
    try:
        folded = fold_rows(read_rows(spark, spec).where(has_key(spec)), spec)
        order = stored_order(spec)
        untold = spec.merge.delete_when is not None or order.order is None or order.ties is None
        by_arrival = spec.merge.kind is MergeKind.FIRST_ROW and (
            spec.merge.order is None or spec.merge.late == "ignore"
        )
        resolved = False
        if not by_arrival and untold:
            before = Pinned(log.spec, log.path, replace(log.position, seq=token.folded))
            folded = drop_beaten(folded, older_rows(spark, spec, before, folded), spec)
            resolved = order.ties is None or order.order is None
        keys = list(spec.primary_key)
        condition = update_condition(spec, folded.schema, ties_resolved=resolved)
        if condition is None:
            new, _ = settle(winning_rows(folded, spec).join(stored.select(*keys), keys, "left_anti"))
            return stored.unionByName(as_stored(new, spec))
        changed, _ = settle(decide(folded, stored, spec, condition))
    finally:
        drop_views(spark, [log.name])
    came = as_stored(changed.where(F.col(OP) != REMOVE).drop(OP), spec)
    return stored.join(F.broadcast(changed.select(*keys)), keys, "left_anti").select(*stored.columns).unionByName(came)
