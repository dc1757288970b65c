"""Events of a change feed among those that came before: which come again, and what was not sent with them.

Events that arrive again are recognized by the row's key, the position in the database and the kind. An event without a
position cannot be recognized, and is kept: events that are delivered again come in their order, so that the last state
of a row is the same.

A value that was not sent is that of the newest event before which has it, since the row was inserted. All rows of the
log are whole, so the newest one of a key has what is known. An event for which something is unknown goes to quarantine.
The events of one key that came before the first whole one go there too, in however many batches they came.

Where events are in the order of their positions, one that arrives later may be earlier than the newest of its key, and
a value that was filled in from another event would be wrong. So none is filled in then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from freshline.declare.change import DELETE, OP, POSITION, UNSENT
from freshline.declare.spec import SourceSpec
from freshline.refresh.inputs import FILE, RECORD, SEQ
from freshline.refresh.literal import quoted
from freshline.sources.records import ERROR, REDELIVERED

VALUE_UNKNOWN, CHANGE_ORDER = "VALUE_UNKNOWN", "CHANGE_ORDER"
# What stands in a position before the part that is in order: the database, and of MySQL the name of its log.
_LINE = r"(?s)^(postgresql|sqlserver|(?:mysql|mariadb):.*(?=\.[0-9]{12,}/[0-9]{20}/[0-9]{10}$))"


def judge_events(rows: DataFrame, recent: DataFrame | None, stored: DataFrame, spec: SourceSpec) -> DataFrame:
    """Judged records as events among those of the log table, `stored`.

    Those that came before get the ERROR `REDELIVERED`: they are looked for in `recent`, a part of `stored`, None where
    no event comes again. Values that were not sent are filled in, and where one is unknown the ERROR is
    `VALUE_UNKNOWN`. Where events are in the order of their positions, one whose position is in no order with the others
    gets the ERROR `CHANGE_ORDER`.
    """
    in_source_order = spec.format is not None and spec.format.is_in_source_order
    if in_source_order:
        rows = _mark_unordered(rows, stored)
    fresh = rows if recent is None else _mark_redelivered(rows, recent, spec)
    return _mark_unsent(fresh) if in_source_order else _fill_unsent(fresh, stored, spec)


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


def _fill_unsent(rows: DataFrame, stored: DataFrame, spec: SourceSpec) -> DataFrame:
    good = F.col(ERROR).isNull()
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    wanted = rows.where(good & (F.size(UNSENT) > 0)).select(*keys).distinct()
    if wanted.limit(1).count() == 0:
        return rows
    values = [column.name for column in spec.record_columns if column.name not in spec.primary_key]
    whole = F.struct(*[F.col(quoted(name)) for name in values]).alias("_freshline_before")
    # One row of each key, which every event of it in the batch follows.
    newest = (
        stored.join(F.broadcast(wanted), list(spec.primary_key), "left_semi")
        .groupBy(*keys)
        .agg(F.max_by(F.struct(OP, whole), F.struct(SEQ, FILE, RECORD)).alias("_freshline_newest"))
        .where(F.col(f"_freshline_newest.{OP}") != DELETE)
        .select(*keys, F.col("_freshline_newest._freshline_before").alias("_freshline_before"))
    )
    joined = rows.join(F.broadcast(newest), list(spec.primary_key), "left")
    before = Window.partitionBy(*keys, good).orderBy(FILE, RECORD)
    deletes = joined.withColumn("_freshline_deletes", F.count_if(F.col(OP) == DELETE).over(before))
    # Since the row was inserted; that of the log counts as long as no event of the batch deletes it.
    since = Window.partitionBy(*keys, good, "_freshline_deletes").orderBy(FILE, RECORD)
    in_log = (F.col("_freshline_deletes") == 0) & F.col("_freshline_before").isNotNull()
    is_whole = (F.col(OP) != DELETE) & (F.size(UNSENT) == 0)
    filled = deletes.withColumn("_freshline_is_known", F.max(is_whole).over(since) | in_log)
    for name in values:
        column, lacks = F.col(quoted(name)), F.array_contains(UNSENT, name)
        # In a struct, because NULL is a value that was sent.
        sent = F.last(F.when(~lacks & (F.col(OP) != DELETE), F.struct(column.alias("v"))), ignorenulls=True)
        stands = F.when(in_log, F.struct(F.col(f"_freshline_before.{quoted(name)}").alias("v")))
        known = F.coalesce(sent.over(since), stands).getField("v")
        filled = filled.withColumn(f"_freshline_filled_{name}", F.when(good & lacks, known).otherwise(column))
    unknown = good & (F.size(UNSENT) > 0) & ~F.col("_freshline_is_known")
    error = F.when(unknown, F.lit(VALUE_UNKNOWN)).otherwise(F.col(ERROR)).alias(ERROR)
    made = {name: F.col(quoted(f"_freshline_filled_{name}")).alias(name) for name in values} | {ERROR: error}
    return filled.select(*[made.get(name, F.col(quoted(name))) for name in rows.columns])
