"""Events of a change feed among those that came before: which come again, and which values were not sent with them.

Events that arrive again are recognized by the row's key, the position in the database and the kind. An event without a
position cannot be recognized, and is kept: events that are delivered again come in their order, so that the last state
of a row is the same.

A value that was not sent is that of the newest event before which has it, since the row was inserted. All rows of the
log are whole, so the newest one of a key has all that is known. An event with an unknown value goes to quarantine.
The events of one key that came before the first whole one go there too, in however many batches they came. A delete, an
insert and a TRUNCATE end the known values of a key, and so does an event of it that went to quarantine: its values are
newer, and nobody has them. The quarantine table names such keys in UNKNOWN_KEY, for later batches.

Two rows may have one key within a transaction (see `rows_of_key`). The delete of one of them is an event of the row
that is left then, `KEPT`, so that the last event of a key says which row has it. Only the events of keys of which a
transaction has an insert before a delete, in this batch or in those before it, are followed one by one.

Where events are in the order of their positions, one that arrives later may be earlier than the newest of its key, and
a value that was filled in from another event would be wrong. So none is filled in then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from freshline.compute.inputs import FILE, RECORD, SEQ
from freshline.compute.log_keys import bits_of
from freshline.compute.materialize import collect_if_small, materialize_once
from freshline.sources import rows_of_key
from freshline.sources.formats.framed_rows import use_own_python
from freshline.sources.records import ERROR, LEFT_OUT, REDELIVERED, UNKNOWN_KEY, record_hash
from freshline.values.change import (
    DELETE,
    IN_ORDER,
    INSERT,
    KEPT,
    OP,
    POSITION,
    READ,
    REMOVED,
    TRANSACTION,
    TRUNCATE,
    UNSENT,
    UPDATE,
)
from freshline.values.names import quoted
from freshline.values.spec import SourceSpec

VALUE_UNKNOWN, CHANGE_ORDER = "VALUE_UNKNOWN", "CHANGE_ORDER"
# The part of a position before the one that is in order: the database, and of MySQL the name of its log.
_LINE = r"(?s)^(postgresql|sqlserver|(?:mysql|mariadb):.*(?=\.[0-9]{12,}/[0-9]{20}/[0-9]{10}$))"


# A place beyond those of the log: the records of a batch come behind it.
_IN_BATCH = 2**62


# So many rows of one side of a join are sent to each task.
_MOST_SENT = 200_000
# A transaction in a partition of the source.
InPartition = tuple[str, str]


def judge_events(
    rows: DataFrame,
    recent: DataFrame | None,
    stored: DataFrame,
    unknown: DataFrame | None,
    spec: SourceSpec,
    *,
    few: bool,
) -> DataFrame:
    """Judged records as events among those of the log table, `stored`.

    Those that came before get the ERROR `REDELIVERED`: they are found in `recent`, a part of `stored`, None where
    no event comes again. Values that were not sent are filled in, and where one is unknown the ERROR is
    `VALUE_UNKNOWN`. `unknown` is what `unknown_keys` gives. Where events are in the order of their positions, one whose
    position is in no order with the others gets the ERROR `CHANGE_ORDER`. Of `few` records each step is computed in the
    driver.
    """
    in_source_order = spec.format is not None and spec.format.is_in_source_order
    if in_source_order:
        rows = _mark_unordered(rows, stored)
    fresh = rows if recent is None else _mark_redelivered(rows, as_sent(recent), spec)
    if in_source_order:
        return _mark_unsent(fresh)
    return _fill_unsent(fresh, stored, unknown, spec, few=few)


def _in_driver(rows: DataFrame, *, few: bool) -> DataFrame:
    """The rows as a relation of the driver where they are `few`: a query that reads them twice computes them once."""
    found = collect_if_small(rows) if few else None
    return rows if found is None else found[0]


@dataclass(frozen=True)
class BatchFacts:
    """Numbers of events of a batch: `unsent` lack values, `rejected` are in quarantine and of one key.

    `deletes` and `inserts` are those whose transactions are known. `first` and `last` are the transactions with which
    the partitions begin and end.
    """

    unsent: int
    rejected: int
    deletes: int
    inserts: int
    first: tuple[InPartition, ...]
    last: Mapping[str, str]

    @property
    def may_share_keys(self) -> bool:
        """Whether a transaction may have an insert of a key before a delete of another row with it."""
        return self.deletes > 0 and self.inserts + self.rejected > 0


def find_facts(rows: DataFrame, spec: SourceSpec) -> BatchFacts:
    """The facts of judged records, in one pass."""
    good, told = F.col(ERROR).isNull(), F.col(TRANSACTION).isNotNull()
    place = F.when(good & told, F.col(RECORD))
    found = (
        rows.groupBy(FILE)
        .agg(
            F.count_if(good & (F.size(UNSENT) > 0)),
            F.count_if(is_rejected_of_key(spec)),
            F.count_if(good & told & (F.col(OP) == DELETE)),
            F.count_if(good & told & (F.col(OP) == INSERT)),
            F.min_by(TRANSACTION, place),
            F.max_by(TRANSACTION, place),
        )
        .collect()
    )
    unsent, rejected, deletes, inserts = (sum(row[each] for row in found) for each in range(1, 5))
    first = tuple((row[0], row[5]) for row in found if row[5] is not None)
    last = {row[0]: row[6] for row in found if row[6] is not None}
    return BatchFacts(unsent, rejected, deletes, inserts, first, last)


def as_sent(stored: DataFrame) -> DataFrame:
    """Events of the log with the OP that they were sent with, by which they are known again."""
    return stored.withColumn(OP, F.when(F.col(OP) == KEPT, DELETE).otherwise(F.col(OP)))


def is_rejected_of_key(spec: SourceSpec) -> Column:
    """Whether a record went to quarantine, and is known to be of one key."""
    return F.col(ERROR).isNotNull() & ~F.col(ERROR).isin(*LEFT_OUT) & _has_key(spec)


def _has_key(spec: SourceSpec) -> Column:
    return reduce(and_, [F.col(quoted(key)).isNotNull() for key in spec.primary_key])


def with_unknown_keys(rows: DataFrame, spec: SourceSpec) -> DataFrame:
    """The rows with UNKNOWN_KEY: the bits of the key of a rejected event that no good one of its key follows."""
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    later = Window.partitionBy(*keys).orderBy(FILE, RECORD).rowsBetween(1, Window.unboundedFollowing)
    is_followed = F.coalesce(F.max(F.col(ERROR).isNull()).over(later), F.lit(False))
    bits = F.when(is_rejected_of_key(spec) & ~is_followed, bits_of(spec.primary_key))
    return rows.withColumn(UNKNOWN_KEY, bits)


def unknown_keys(quarantine: DataFrame, seq: int) -> DataFrame | None:
    """The bits of keys whose newest values may be in quarantine, each with the SEQ of the newest batch of them.

    `seq` is the log's newest batch: what is above it was not committed. None for a table of an earlier version.
    """
    if UNKNOWN_KEY not in quarantine.columns:
        return None
    found = quarantine.where(F.col(UNKNOWN_KEY).isNotNull() & (F.col(SEQ) <= seq))
    return found.groupBy(F.col(UNKNOWN_KEY).alias("_freshline_bits")).agg(F.max(SEQ).alias("_freshline_unknown_in"))


def of_keys_and_truncates(stored: DataFrame, keys: DataFrame, spec: SourceSpec) -> DataFrame:
    """The events of some keys, and every TRUNCATE."""
    of_keys = stored.join(keys, list(spec.primary_key), "left_semi").select(*stored.columns)
    return of_keys.unionByName(stored.where(F.col(OP) == TRUNCATE))


def _mark_unordered(rows: DataFrame, stored: DataFrame) -> DataFrame:
    """Mark events that are in no order with those of the log, or with the first ones of the batch."""
    line = F.nullif(F.regexp_extract(POSITION, _LINE, 1), F.lit(""))
    known = stored.where(line.isNotNull()).select(line).limit(1).collect()
    good = F.col(ERROR).isNull()
    expected = known[0][0] if known else rows.where(good).agg(F.min(line)).collect()[0][0]
    has = F.coalesce(line, F.concat(F.lit("no order is known of "), POSITION), F.lit("one has no position"))
    about = F.concat(F.lit(f"{CHANGE_ORDER}("), has, F.lit(f", beside {expected or 'none'})"))
    # Where no event of the batch has an order, each lacks one.
    error = F.when(good & ~line.eqNullSafe(F.lit(expected or "")), about).otherwise(F.col(ERROR))
    return rows.withColumn(ERROR, error)


def _mark_unsent(rows: DataFrame) -> DataFrame:
    unknown = F.col(ERROR).isNull() & (F.size(UNSENT) > 0)
    return rows.withColumn(ERROR, F.when(unknown, F.lit(VALUE_UNKNOWN)).otherwise(F.col(ERROR)))


def _mark_redelivered(rows: DataFrame, stored: DataFrame, spec: SourceSpec) -> DataFrame:
    identity = [*[F.col(quoted(key)) for key in spec.primary_key], F.col(POSITION), F.col(OP)]
    known_by = F.col(ERROR).isNull() & F.col(POSITION).isNotNull()
    events = Window.partitionBy(*identity, known_by).orderBy(FILE, RECORD)
    marked = rows.withColumn("_freshline_place", F.row_number().over(events))
    names = [*spec.primary_key, POSITION, OP]
    wanted = F.broadcast(rows.where(known_by).select(*identity).distinct()).alias("w")
    hits = stored.alias("l").join(wanted, same_values("l", "w", names), "left_semi").select(*identity).distinct()
    known = F.broadcast(hits.withColumn("_freshline_known", F.lit(True))).alias("k")
    joined = marked.alias("m").join(known, same_values("m", "k", names), "left").select("m.*", "k._freshline_known")
    again: Column = known_by & ((F.col("_freshline_place") > 1) | F.col("_freshline_known").isNotNull())
    error = F.when(again, F.lit(REDELIVERED)).otherwise(F.col(ERROR))
    return joined.withColumn(ERROR, error).select(*[F.col(quoted(name)) for name in rows.columns])


def same_values(left: str, right: str, names: Sequence[str]) -> Column:
    """Whether two rows have the same values; a TRUNCATE has NULL in its key."""
    return reduce(
        and_, [F.col(f"{left}.{quoted(name)}").eqNullSafe(F.col(f"{right}.{quoted(name)}")) for name in names]
    )


def _fill_unsent(
    rows: DataFrame, stored: DataFrame, unknown: DataFrame | None, spec: SourceSpec, *, few: bool
) -> DataFrame:
    good = F.col(ERROR).isNull()
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    wanted = rows.where(good & (F.size(UNSENT) > 0)).select(*keys).distinct()
    if wanted.limit(1).count() == 0:
        return rows
    # Values are filled from the rows in several places, each of which would contain the step before: for twenty records
    # Spark planned for ten seconds.
    rows = _in_driver(rows, few=few)
    wanted = rows.where(good & (F.size(UNSENT) > 0)).select(*keys).distinct()
    values = [column.name for column in spec.record_columns if column.name not in spec.primary_key]
    joined = rows.join(
        F.broadcast(_newest_whole(stored, unknown, wanted, values, spec)), list(spec.primary_key), "left"
    )
    truncates = _listed(rows.where(good & (F.col(OP) == TRUNCATE)), _BATCH_TRUNCATES, F.lit(_IN_BATCH))
    joined = joined.crossJoin(F.broadcast(truncates))
    rejected = is_rejected_of_key(spec)
    counts = good | rejected
    before = Window.partitionBy(*keys, counts).orderBy(FILE, RECORD)
    # The number of ends of the key's known values: this event begins anew, or is not known itself.
    ends = F.count_if(rejected | F.col(OP).isin(DELETE, INSERT)).over(before)
    event = _place(F.lit(_IN_BATCH))
    passed = F.filter(_BATCH_TRUNCATES, lambda each: ~_is_later(each, event))
    lives = joined.withColumn("_freshline_ends", ends).withColumn("_freshline_passed", F.size(passed))
    since = Window.partitionBy(*keys, counts, "_freshline_ends", "_freshline_passed").orderBy(FILE, RECORD)
    # The newest row of the log counts until its end, whichever partition a TRUNCATE is in.
    removed = F.exists(passed, lambda each: _is_later(each, F.col("_freshline_newest_place")))
    in_log = (F.col("_freshline_ends") == 0) & F.col("_freshline_before").isNotNull() & ~removed
    is_whole = good & (F.col(OP) != DELETE) & (F.size(UNSENT) == 0)
    filled = lives.withColumn("_freshline_in_log", in_log)
    filled = filled.withColumn("_freshline_is_known", F.max(is_whole).over(since) | F.col("_freshline_in_log"))
    for name in values:
        column, lacks = F.col(quoted(name)), F.array_contains(UNSENT, name)
        # In a struct, because NULL is a value that was sent.
        sent = F.last(F.when(good & ~lacks & (F.col(OP) != DELETE), F.struct(column.alias("v"))), ignorenulls=True)
        stands = F.when(F.col("_freshline_in_log"), F.struct(F.col(f"_freshline_before.{quoted(name)}").alias("v")))
        known = F.coalesce(sent.over(since), stands).getField("v")
        filled = filled.withColumn(f"_freshline_filled_{name}", F.when(good & lacks, known).otherwise(column))
    is_unknown = good & (F.size(UNSENT) > 0) & ~F.coalesce(F.col("_freshline_is_known"), F.lit(False))
    error = F.when(is_unknown, F.lit(VALUE_UNKNOWN)).otherwise(F.col(ERROR)).alias(ERROR)
    made = {name: F.col(quoted(f"_freshline_filled_{name}")).alias(name) for name in values} | {ERROR: error}
    return _in_driver(filled.select(*[made.get(name, F.col(quoted(name))) for name in rows.columns]), few=few)


_BATCH_TRUNCATES, _LOG_TRUNCATES = "_freshline_batch_truncates", "_freshline_log_truncates"


def _newest_whole(
    stored: DataFrame, unknown: DataFrame | None, wanted: DataFrame, values: Sequence[str], spec: SourceSpec
) -> DataFrame:
    """The newest row of the log of each wanted key that has one now, and whose values are known; with its place."""
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    events = of_keys_and_truncates(stored, F.broadcast(wanted), spec)
    whole = F.struct(*[F.col(quoted(name)) for name in values]).alias("_freshline_before")
    order = F.struct(SEQ, FILE, RECORD)
    newest = (
        events.where(F.col(OP) != TRUNCATE)
        .groupBy(*keys)
        .agg(F.max_by(F.struct(OP, whole, _place(F.col(SEQ)).alias("place")), order).alias("_freshline_newest"))
        .where(F.col(f"_freshline_newest.{OP}") != DELETE)
        .select(
            *keys,
            F.col("_freshline_newest._freshline_before").alias("_freshline_before"),
            F.col("_freshline_newest.place").alias("_freshline_newest_place"),
        )
    )
    # The last one of each partition is enough.
    last = (
        events.where(F.col(OP) == TRUNCATE)
        .groupBy(FILE)
        .agg(F.max_by(F.struct(SEQ, RECORD, POSITION), order).alias("l"))
    )
    truncates = _listed(last.select(FILE, "l.*"), _LOG_TRUNCATES, F.col(SEQ))
    place = F.col("_freshline_newest_place")
    newest = newest.crossJoin(F.broadcast(truncates))
    newest = newest.where(~F.exists(_LOG_TRUNCATES, lambda each: _is_later(each, place))).drop(_LOG_TRUNCATES)
    if unknown is None:
        return newest
    of_key = newest.withColumn("_freshline_bits", bits_of(spec.primary_key))
    found = of_key.join(F.broadcast(unknown), "_freshline_bits", "left")
    rejected_in = F.coalesce(F.col("_freshline_unknown_in"), F.lit(-1))
    return found.where(rejected_in < place.getField("seq")).select(*newest.columns)


def _place(seq: Column) -> Column:
    """The place of an event in the order of arrival, and in the database."""
    at = [seq.cast("bigint").alias("seq"), F.col(FILE).alias("part"), F.col(RECORD).alias("record")]
    return F.struct(*at, F.col(POSITION).alias("at"))


def _listed(truncates: DataFrame, name: str, seq: Column) -> DataFrame:
    """One row with the places of truncates as a list."""
    return truncates.agg(F.collect_list(_place(seq)).alias(name))


def _is_later(truncate: Column, event: Column) -> Column:
    """Whether a TRUNCATE is later than an event: in another partition by the positions, which are in order there."""
    at, own = truncate.getField("at"), event.getField("at")
    database = F.substring_index(own, ":", 1)
    in_order = database.isin(*IN_ORDER) & (F.substring_index(at, ":", 1) == database)
    by_position = (truncate.getField("part") != event.getField("part")) & F.coalesce(in_order, F.lit(False))

    def arrived(of: Column) -> Column:
        return F.struct(of.getField("seq"), of.getField("part"), of.getField("record"))

    return F.when(by_position, own < at).otherwise(arrived(event) < arrived(truncate))


# -- rows that have one key for a moment


def mark_kept(rows: DataFrame, stored: DataFrame, spec: SourceSpec, begun: Sequence[InPartition]) -> DataFrame:
    """Events with deletes behind which another row has the key as that row's, with the OP `KEPT`.

    Where the row is unknown the ERROR is `VALUE_UNKNOWN`. `stored` is the log, and `begun` are transactions that it may
    have a part of.
    """
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    stored = _complete(stored, spec)
    wanted, count = materialize_once(_doubtful_keys(rows, stored, spec, begun))
    if not count:
        return rows
    in_begun = _is_among(begun)
    history = of_keys_and_truncates(stored, _small(wanted, count), spec)
    events = history.where(F.col(OP) != TRUNCATE)
    before = events.where(~in_begun)
    order = F.struct(SEQ, FILE, RECORD)
    names = list(before.columns)
    newest = before.groupBy(*keys).agg(F.max_by(F.struct(*map(_column, names)), order).alias("_freshline_newest"))
    newest = newest.select(*[F.col(f"_freshline_newest.{quoted(name)}").alias(name) for name in names])
    # The row that the log has, whatever brought it.
    newest = newest.withColumn(OP, F.when(F.col(OP) != DELETE, READ).otherwise(F.col(OP)))
    placed = F.col(ERROR).isNull() | is_rejected_of_key(spec)
    arrived = rows.where(placed).join(_small(wanted, count), list(spec.primary_key), "left_semi")
    of_log = [_seen(each, F.col(SEQ), F.lit(None), spec) for each in (newest, events.where(in_begun))]
    seen = reduce(DataFrame.unionByName, [*of_log, _seen(arrived, F.lit(_IN_BATCH), F.col(ERROR), spec)])
    # The last TRUNCATE of each partition of the log is enough.
    last = (
        history.where(F.col(OP) == TRUNCATE)
        .groupBy(FILE)
        .agg(F.max_by(F.struct(SEQ, RECORD, POSITION), order).alias("l"))
    )
    truncates = _listed(last.select(FILE, "l.*"), _LOG_TRUNCATES, F.col(SEQ)).crossJoin(
        _listed(rows.where(F.col(ERROR).isNull() & (F.col(OP) == TRUNCATE)), _BATCH_TRUNCATES, F.lit(_IN_BATCH))
    )
    listed = F.concat(_LOG_TRUNCATES, _BATCH_TRUNCATES)
    passed = F.size(F.filter(listed, lambda each: ~_is_later(each, F.col("place"))))
    seen = seen.crossJoin(F.broadcast(truncates)).withColumn("truncates", passed)
    facts = F.struct("place.seq", "place.part", "place.record", *_SEEN, "truncates")
    of_keys = seen.groupBy(*keys).agg(F.sort_array(F.collect_list(facts)).alias("events"))
    found = of_keys.select(F.explode(_survivors(rows)("events")).alias("s")).select("s.*")
    images = seen.select(
        F.col("place.seq").alias("row_seq"), F.col("place.part").alias("row_part"),
        F.col("place.record").alias("row_record"), "row",
    )  # fmt: skip
    found = found.join(images, ["row_seq", "row_part", "row_record"], "left")
    is_unknown = F.col("row").isNull()
    if spec.format is not None and spec.format.is_in_source_order:
        # A newer state of the row may arrive yet.
        is_unknown = is_unknown | ~F.col("is_own")
    found = found.select(
        F.col("part").alias("_freshline_part"), F.col("record").alias("_freshline_at"),
        F.col("row").alias("_freshline_row"), is_unknown.alias("_freshline_is_unknown"),
    )  # fmt: skip
    same = (F.col(FILE) == F.col("_freshline_part")) & (F.col(RECORD) == F.col("_freshline_at"))
    found, count = materialize_once(found)
    joined = rows.join(_small(found, count), same, "left")
    is_unknown, is_kept = F.col("_freshline_is_unknown"), ~F.col("_freshline_is_unknown")
    made = {
        ERROR: F.when(is_unknown, F.lit(VALUE_UNKNOWN)).otherwise(F.col(ERROR)),
        OP: F.when(is_kept, F.lit(KEPT)).otherwise(F.col(OP)),
    }
    for column in spec.record_columns:
        value = F.col(f"_freshline_row.{quoted(column.name)}")
        made[column.name] = F.when(is_kept, value).otherwise(F.col(quoted(column.name)))
    return joined.select(*[made.get(name, _column(name)).alias(name) for name in rows.columns])


def _small(rows: DataFrame, count: int) -> DataFrame:
    """The rows for a join: few are sent to each task."""
    return F.broadcast(rows) if count <= _MOST_SENT else rows


def _complete(stored: DataFrame, spec: SourceSpec) -> DataFrame:
    """The log with what it lacks as one of an earlier version or declaration."""
    wanted = [(REMOVED, "bigint"), *((column.name, column.type) for column in spec.record_columns)]
    there = {name.lower() for name in stored.columns}
    missing = {name: F.lit(None).cast(kind) for name, kind in wanted if name.lower() not in there}
    return stored.withColumns(missing) if missing else stored


def begun_again(rows: DataFrame) -> list[InPartition]:
    """The last transactions of which events of a batch came again, so that the log may have a part of them."""
    again = rows.where((F.col(ERROR) == REDELIVERED) & F.col(TRANSACTION).isNotNull())
    found = again.groupBy(FILE).agg(F.max_by(TRANSACTION, RECORD).alias("t")).collect()
    return [(row[FILE], row["t"]) for row in found]


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _is_among(begun: Sequence[InPartition]) -> Column:
    """Whether an event is of one of some transactions."""
    among = [(F.col(FILE) == part) & (F.col(TRANSACTION) == transaction) for part, transaction in begun]
    return F.coalesce(reduce(or_, among, F.lit(False)), F.lit(False))


def _doubtful_keys(rows: DataFrame, stored: DataFrame, spec: SourceSpec, begun: Sequence[InPartition]) -> DataFrame:
    """The keys of which one transaction has an insert, or an event in quarantine, before a delete."""
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    good, rejected = F.col(ERROR).isNull(), is_rejected_of_key(spec)
    place = F.struct(FILE, RECORD)
    first = F.min(F.when((good & (F.col(OP) == INSERT)) | rejected, place))
    last = F.max(F.when(good & (F.col(OP) == DELETE), place))
    told = F.col(TRANSACTION).isNotNull()
    within = rows.where((good | rejected) & told).groupBy(*keys, TRANSACTION).agg(first.alias("f"), last.alias("l"))
    # Nobody knows the transaction of a record that cannot be read.
    unread = F.min(F.when(rejected & ~told, place))
    beside = rows.where(good | rejected).groupBy(*keys).agg(unread.alias("f"), last.alias("l"))
    found = within.where("f < l").select(*keys).unionByName(beside.where("f < l").select(*keys))
    if begun:
        deleted = rows.where(good & (F.col(OP) == DELETE) & _is_among(begun)).select(*keys).distinct()
        inserted = stored.where(_is_among(begun) & (F.col(OP) == INSERT))
        inserted = inserted.join(F.broadcast(deleted), list(spec.primary_key), "left_semi").select(*keys)
        found = found.unionByName(inserted)
    return found.distinct()


# The facts of an event beside its place, in the order of `rows_of_key.SeenEvent`.
_SEEN = ("op", "transaction", "image", "removed", "is_bare", "is_asked")


def _seen(rows: DataFrame, seq: Column, error: Column, spec: SourceSpec) -> DataFrame:
    """Events as `find_survivors` takes them, with their places and rows."""
    whole, good = record_hash(spec), error.isNull()
    has_row = good & F.col(OP).isin(INSERT, UPDATE, READ, KEPT)
    removed = F.col(REMOVED)
    return rows.select(
        *[_column(key) for key in spec.primary_key],
        _place(seq).alias("place"),
        F.col(OP).alias("op"),
        F.col(TRANSACTION).alias("transaction"),
        F.when(has_row, whole).alias("image"),
        removed.alias("removed"),
        # The row of a delete is its key alone.
        F.coalesce((F.col(OP) == DELETE) & (removed == whole), F.lit(False)).alias("is_bare"),
        (good & (seq == _IN_BATCH)).alias("is_asked"),
        F.when(has_row, F.struct(*[_column(column.name) for column in spec.record_columns])).alias("row"),
    )


def _survivors(rows: DataFrame) -> Callable[..., Column]:
    """`find_survivors` for Spark, whose machines may not have freshline."""
    use_own_python(rows)
    cloudpickle.register_pickle_by_value(rows_of_key)  # type: ignore[no-untyped-call]
    find, seen = rows_of_key.find_survivors, rows_of_key.SeenEvent

    def survivors(events: list[Any]) -> list[tuple[Any, ...]]:
        given = [
            seen((seq, part, record), op, transaction, image, removed, is_bare, truncates, is_asked)
            for seq, part, record, op, transaction, image, removed, is_bare, is_asked, truncates in events
        ]
        return [(*each.place[1:], *(each.row or (None, None, None)), each.is_own) for each in find(given)]

    of = "part: STRING, record: BIGINT, row_seq: BIGINT, row_part: STRING, row_record: BIGINT, is_own: BOOLEAN"
    return F.udf(survivors, f"ARRAY<STRUCT<{of}>>", useArrow=False)
