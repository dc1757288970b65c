"""Union read: the stored rows of a table and the tail of its source, as one relation.

The end of the tail is fixed before anything is read. Records of the tail that arrived in the log meanwhile are taken
from there, the others from the source, by the same rules as an ingest: what would be rejected or is a redelivery is no
row. A table with a merge is folded with them by its merge. This only reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import classify, exists, newest_version, position_of, receipt_at, table_id
from freshline.commit.event_time import event_time_after
from freshline.compute.cancellation import Cancellation
from freshline.compute.fold import (
    as_stored,
    changes_by_winners,
    find_winners,
    fold_keys,
    has_truncate,
    is_folded,
    read_rows,
    winning_rows,
)
from freshline.compute.inputs import (
    FILE,
    HASH,
    INGESTED_AT,
    SEQ,
    WATERMARK,
    Pinned,
    declared_columns,
    drop_views,
    read_log,
    read_version,
    shadow_inputs,
)
from freshline.compute.keys import DELETE as REMOVE
from freshline.compute.keys import OP
from freshline.compute.materialize import collect_if_small, materialize_once
from freshline.errors import RequestError
from freshline.ingest.batch import newest_batch
from freshline.plan.changes import ChangeKind
from freshline.plan.union import UnionToken, log_behind
from freshline.refresh.runtime import Runtime
from freshline.sources.changes import begun_again, find_facts, judge_events, mark_kept, unknown_keys
from freshline.sources.prepare import prepare_formats
from freshline.sources.reader import ReadRequest
from freshline.sources.records import (
    ERROR,
    accepted,
    judge_records,
    log_schema,
    mark_duplicates,
    mark_known,
    record_hash,
    require_readable,
    unreadable_of,
)
from freshline.values.names import TableName, quoted
from freshline.values.position import TablePosition, require_known
from freshline.values.spec import SourceSpec, TableSpec


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
    if not runtime.reader(log).has_tail:
        raise RequestError(
            f"union_read of {spec.name}: a source of {log.connection.title} cannot be read beyond what its log has. "
            "Read it by its name."
        )
    if token is None:
        token = _plan(runtime, spec.name, log, cancellation)
    elif token.table != spec.name:
        raise RequestError(f"the token is of a union read of {token.table}, not of {spec.name}.")
    of = log.connection.position
    if of is None or {token.start.kind, token.end.kind} != {of.kind}:
        raise RequestError(f"the token is of another source than {log.name} is now. Read anew.")
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
    runtime.keep_models(spec)
    return UnionRead(_folded(runtime, spark, spec, pinned, tail, token), token)


# -- what is read


def _plan(runtime: Runtime, name: TableName, log: SourceSpec, cancellation: Cancellation) -> UnionToken:
    """Fix the versions, then the end. Nothing in the versions is behind the end."""
    version = _newest(runtime, name)
    folded = _folded_up_to(runtime, name, version, log)
    # The table first: a log that is newer than what the table has read is right, an older one would not be.
    log_version = version if name == log.name else _newest(runtime, log.name)
    receipt = receipt_at(runtime.warehouse.path(log.name), log_version.version)
    position = None if receipt is None else receipt.positions.get(log.name)
    if receipt is None or position is None:
        raise RequestError(f"{log.name} has no batch yet. Refresh it first.")
    require_known(position, log)
    at = runtime.clock()
    start, end = runtime.reader(log).find_tail(position, receipt.seq, ReadRequest(cancellation))
    return UnionToken(name, version, log_version, start, end, log_version.seq or 0 if folded is None else folded, at)


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
    # How far the log is before its rows: an event between the two must not be searched in rows that lack it.
    receipt = newest_batch(log, path)
    position = None if receipt is None else receipt.positions.get(log.name)
    whole = read_log(spark, Pinned(log, path, token.log))
    reader = runtime.reader(log)
    tail = reader.tail(spark, token.start, token.end, position, ReadRequest(cancellation))
    parts = []
    if tail.logged is not None:
        parts.append(whole.where((F.col(SEQ) > seq) & tail.logged))
    if tail.unread is not None:
        records = reader.read(spark, tail.unread)
        rows = judge_records(
            records.groups, prepare_formats(log, lambda: [each.rows for each in records.groups], runtime)
        )
        if records.counts is not None:
            found = {row[FILE]: row["count"] for row in rows.groupBy(FILE).count().collect()}
            reader.confirm(tail.unread, found)
        also = whole if tail.logged is not None else None
        newest = seq if also is None or receipt is None else receipt.seq
        unknown = _unknown_keys(runtime, spark, log, newest)
        parts.append(_accepted(rows, log, token, also, whole, unknown))
    known = receipt_at(path, token.log.version)
    before = event_time_after(log, path, token.log.version, known, token.at)
    watermark = None if before is None else before.watermark
    batches = [_in_batch(part, log, seq + 1, watermark) for part in parts]
    return reduce(DataFrame.unionByName, batches) if batches else None


def _unknown_keys(runtime: Runtime, spark: SparkSession, log: SourceSpec, seq: int) -> DataFrame | None:
    """The keys of a change feed whose newest values may be in quarantine, as `unknown_keys` has them."""
    quarantine = runtime.warehouse.quarantine(log.name)
    if not log.is_change_feed or not exists(quarantine):
        return None
    return unknown_keys(spark.read.format("delta").load(str(quarantine)), seq)


def _accepted(
    rows: DataFrame,
    log: SourceSpec,
    token: UnionToken,
    also: DataFrame | None,
    whole: DataFrame,
    unknown: DataFrame | None,
) -> DataFrame:
    """The records that an ingest would keep. `also` is the log beyond the version, where part of the tail is in it.

    `unknown` are the keys of a change feed whose newest values may be in quarantine.
    """
    if log.primary_key:
        stored = also if also is not None else whole.where(F.col(SEQ) <= (token.log.seq or 0))
        every = stored
        if log.deduplicate_seconds is not None:
            since = token.at - timedelta(seconds=log.deduplicate_seconds)
            stored = stored.where(F.col(INGESTED_AT) > F.lit(since))
        if log.is_change_feed:
            recent = stored if log.recognizes_events else None
            few = collect_if_small(rows)
            rows = rows if few is None else few[0]
            judged = judge_events(rows, recent, every, unknown, log, few=few is not None)
            facts = find_facts(rows, log)
            if facts.deletes:
                begun = {*facts.first, *begun_again(judged)} if log.recognizes_events else ()
                judged = mark_kept(judged, every, log, list(begun))
            # An ingest of these records fails, and they are not to be missing here without a word.
            require_readable(log, unreadable_of(judged, log))
            return accepted(judged, log, 0, token.at)
        keys = [F.col(quoted(key)) for key in log.primary_key]
        rows = mark_duplicates(rows.withColumn(HASH, record_hash(log)), log)
        good = rows.where(F.col(ERROR).isNull()).select(*keys).distinct()
        hits = stored.join(F.broadcast(good), list(log.primary_key), "left_semi")
        rows = mark_known(rows, hits.groupBy(*keys).agg(F.min_by(HASH, SEQ).alias("_freshline_known")), log)
    return accepted(rows, log, 0, token.at)


def _in_batch(rows: DataFrame, log: SourceSpec, seq: int, watermark: datetime | None) -> DataFrame:
    """Rows as one batch of the log, whichever they came in."""
    there = {name.lower() for name in rows.columns}
    columns = [
        (F.col(quoted(field.name)) if field.name.lower() in there else F.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in log_schema(log).fields
        if field.name not in (SEQ, INGESTED_AT, WATERMARK)
    ]
    if log.watermark is not None:
        columns.append(F.lit(watermark).cast("timestamp").alias(WATERMARK))
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
    came_in = declared_columns(_together(arrived, tail), log, arrival=True)
    shadow_inputs({log.name: came_in})
    keys = list(spec.primary_key)
    try:
        if spec.merge.follows_changes and has_truncate(came_in):
            every = read_log(spark, log).where(F.col(SEQ) <= (token.log.seq or 0))
            shadow_inputs({log.name: declared_columns(_together(every, tail), log, arrival=True)})
            whole, _ = materialize_once(as_stored(fold_keys(read_rows(spark, spec), spec), spec))
            return whole
        rows = read_rows(spark, spec).where(is_folded(spec))
        if not spec.merge.compares_with_stored:
            touched, _ = materialize_once(rows.select(*[F.col(quoted(key)) for key in keys]).distinct())
            every = read_log(spark, log).where(F.col(SEQ) <= (token.log.seq or 0))
            shadow_inputs({log.name: declared_columns(_together(every, tail), log, arrival=True)})
            folded = fold_keys(read_rows(spark, spec).join(F.broadcast(touched), keys, "left_semi"), spec)
            came, _ = materialize_once(as_stored(folded, spec))
            return stored.join(F.broadcast(touched), keys, "left_anti").select(*stored.columns).unionByName(came)
        before = Pinned(log.spec, log.path, replace(log.position, seq=token.folded))
        winners = find_winners(spark, spec, rows, before)
        if winners.replaces_when is None:
            new, _ = materialize_once(winning_rows(winners.rows, spec).join(stored.select(*keys), keys, "left_anti"))
            return stored.unionByName(as_stored(new, spec))
        changed, _ = materialize_once(changes_by_winners(winners.rows, stored, spec, winners.replaces_when))
    finally:
        drop_views(spark, [log.name])
    came = as_stored(changed.where(F.col(OP) != REMOVE).drop(OP), spec)
    return stored.join(F.broadcast(changed.select(*keys)), keys, "left_anti").select(*stored.columns).unionByName(came)
