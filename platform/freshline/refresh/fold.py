"""Merge types: many rows of one key become one.

The change set is reduced to one row a key by a total order before anything is written, because two rows for one
key in the source of a MERGE would both be inserted. The order is a struct, compared from left to right:

- first_row takes the least `(order IS NULL, order, tie-breaker.., row)`, so that a NULL never beats a value;
- last_row takes the greatest `(order IS NOT NULL, order, tie-breaker.., row)`;
- by arrival it is `(batch, file, record)` of the log.

The row itself comes last, so that two different events with equal order and tie-breaker have one winner whatever
order they arrive in.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from freshline.declare.query import SqlQuery
from freshline.declare.spec import Merge, MergeKind, TableSpec
from freshline.query.select_list import stored_order, ties_of
from freshline.refresh.constraints import leave_out
from freshline.refresh.inputs import ARRIVAL, Pinned, read_whole, shadow_inputs
from freshline.refresh.keys import DELETE as REMOVE
from freshline.refresh.keys import INSERT, OP, UPDATE
from freshline.refresh.literal import quoted, sql_literal
from freshline.refresh.read_only import read_declared

ORDER = "_freshline_order"
DELETE = "_freshline_delete"


def order_items(merge: Merge) -> tuple[str, ...]:
    """The select items that a query needs so that its rows can be ordered: the struct and the delete mark."""
    if merge.order is None:
        order = f"struct({', '.join(ARRIVAL)}) AS {ORDER}"
    else:
        null = "IS NULL" if merge.kind is MergeKind.FIRST_ROW else "IS NOT NULL"
        parts = [f"(({merge.order}) {null}) AS n", f"({merge.order}) AS o"]
        parts += [f"({tie}) AS t{number}" for number, tie in enumerate(ties_of(merge))]
        order = f"struct({', '.join(parts)}) AS {ORDER}"
    delete = f"coalesce(({merge.delete_when}), false)" if merge.delete_when else "false"
    return (order, f"{delete} AS {DELETE}")


def read_rows(spark: SparkSession, spec: TableSpec, *, arrival: bool = False) -> DataFrame:
    """The rows that are folded, with order struct and delete mark, over whatever the session's views hold.

    A row that a constraint leaves out is not folded, as if it had not come; a delete always is. With `arrival` the
    log's arrival columns come along, for a view that has them.
    """
    return leave_out(read_unjudged(spark, spec, arrival=arrival), spec.constraints, but=F.col(DELETE))


def as_stored(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """The rows as Delta keeps them: an empty text in a partition column is NULL there."""
    partitions = {column.lower() for column in spec.partitioned_by}
    return rows.withColumns(
        {
            field.name: F.nullif(F.col(quoted(field.name)), F.lit(""))
            for field in rows.schema.fields
            if field.name.lower() in partitions and isinstance(field.dataType, StringType)
        }
    )


def read_unjudged(spark: SparkSession, spec: TableSpec, *, arrival: bool = False) -> DataFrame:
    """As `read_rows`, with the rows that constraints leave out."""
    assert spec.merge is not None
    assert isinstance(spec.query, SqlQuery)
    assert spec.columns is not None
    also = ARRIVAL if arrival else ()
    text = spec.query.render(select_also=(*order_items(spec.merge), *also))
    views = [name.view for name in spec.query.reads]
    columns = [F.col(quoted(name)) for name in spec.columns]
    rows = read_declared(spark, text, views).select(*columns, ORDER, DELETE, *also)
    # Before keys are looked at: an empty text in a key that is a partition too is a NULL in it.
    rows = as_stored(rows, spec)
    if spec.merge.order is None:
        return rows
    row = _comparable_row(rows.schema, spec.columns)
    return rows.withColumn(ORDER, F.struct(F.col(ORDER).alias("k"), row.alias("r")))


def _comparable_row(schema: StructType, columns: tuple[str, ...]) -> Column:
    return F.struct(*[F.col(quoted(name)) for name in _comparable_columns(schema, columns)])


def _comparable_columns(schema: StructType, columns: tuple[str, ...]) -> list[str]:
    # Maps have no order. A table whose only difference is inside a map keeps whichever arrived first.
    return [name for name in columns if "map<" not in schema[name].dataType.simpleString()]


def has_key(spec: TableSpec) -> Column:
    """Whether no part of the key is NULL."""
    condition = F.lit(True)
    for key in spec.primary_key:
        condition = condition & F.col(quoted(key)).isNotNull()
    return condition


def not_judged(spec: TableSpec) -> Column:
    """Whether constraints pass over a row of the fold: a delete, or one without a key."""
    return F.col(DELETE) | ~has_key(spec)


def fold_rows(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """One row a key: the winner, with its order and delete mark. Rows with a NULL in the key are left out."""
    assert spec.merge is not None
    assert spec.columns is not None
    choose = F.min_by if spec.merge.kind is MergeKind.FIRST_ROW else F.max_by
    row = F.struct(*[F.col(quoted(name)) for name in spec.columns], F.col(ORDER), F.col(DELETE))
    keys = [F.col(quoted(key)).alias(f"_freshline_key{n}") for n, key in enumerate(spec.primary_key)]
    folded = rows.where(has_key(spec)).groupBy(*keys).agg(choose(row, F.col(ORDER)).alias("_freshline_row"))
    return folded.select("_freshline_row.*")


def fold_all(spark: SparkSession, spec: TableSpec) -> DataFrame:
    """The whole table: the fold of the query over everything, without the keys whose winner is a delete."""
    assert spec.columns is not None
    folded = fold_rows(read_rows(spark, spec), spec).where(~F.col(DELETE))
    return folded.select(*[F.col(quoted(name)) for name in spec.columns])


def update_condition(spec: TableSpec, schema: StructType, *, ties_resolved: bool) -> str | None:
    """When a stored row `t` gives way to the new winner `s` of its key; None for never.

    With `ties_resolved` no older row with the same order can beat `s` any more, so only the order is compared.
    """
    merge = spec.merge
    assert merge is not None
    assert spec.columns is not None
    if merge.kind is MergeKind.FIRST_ROW and (merge.order is None or merge.late == "ignore"):
        return None
    first = merge.kind is MergeKind.FIRST_ROW
    if merge.order is None:
        return "true"
    stored = stored_order(spec)
    if stored.order is None:
        return "true"
    null = "IS NULL" if first else "IS NOT NULL"
    order = f"t.{quoted(stored.order)}"
    if ties_resolved or stored.ties is None:
        sign = "<=" if first else ">="
        return (
            f"named_struct('n', s.{ORDER}.k.n, 'o', s.{ORDER}.k.o) {sign} "
            f"named_struct('n', {order} {null}, 'o', {order})"
        )
    ties = "".join(f", 't{number}', t.{quoted(tie)}" for number, tie in enumerate(stored.ties))
    plain = _comparable_columns(schema, spec.columns)
    row = ", ".join(f"{sql_literal(name)}, t.{quoted(name)}" for name in plain)
    sign = "<" if first else ">"
    return (
        f"s.{ORDER} {sign} named_struct('k', named_struct('n', {order} {null}, 'o', {order}{ties}), "
        f"'r', named_struct({row}))"
    )


def winning_rows(winners: DataFrame, spec: TableSpec) -> DataFrame:
    """The rows that the winners of a change set leave behind: those whose winner is no delete."""
    assert spec.columns is not None
    return winners.where(~F.col(DELETE)).select(*[F.col(quoted(name)) for name in spec.columns])


def decide(winners: DataFrame, stored: DataFrame, spec: TableSpec, update_when: str) -> DataFrame:
    """The changes that winners, one a key, make to what is stored, by `update_condition`: OP and the table's columns.

    The same as `merge_rows` writes, told before it is written.
    """
    assert spec.columns is not None
    there = "_freshline_there"
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    met = stored.join(F.broadcast(winners.select(*keys)), list(spec.primary_key), "left_semi")
    s, t = winners.alias("s"), met.withColumn(there, F.lit(True)).alias("t")
    same = [F.col(f"s.{quoted(key)}") == F.col(f"t.{quoted(key)}") for key in spec.primary_key]
    gone = F.col(f"s.{DELETE}")
    op = (
        F.when(F.col(f"t.{there}").isNull(), F.when(~gone, F.lit(INSERT)))
        .when(F.expr(f"NOT coalesce({update_when}, false)"), F.lit(None))
        .otherwise(F.when(gone, F.lit(REMOVE)).otherwise(F.lit(UPDATE)))
    )
    joined = s.join(F.broadcast(t), same, "left")
    columns = [F.col(f"s.{quoted(name)}").alias(name) for name in spec.columns]
    return joined.select(op.alias(OP), *columns).where(F.col(OP).isNotNull())


def older_rows(spark: SparkSession, spec: TableSpec, before: Pinned, folded: DataFrame) -> DataFrame:
    """Rows of the change set's keys in what was read `before`, as far as the stored row cannot speak for them.

    A key that is absent may have been deleted by a later event, so deletes are looked up; a tie that the table cannot
    break is broken by the rows of equal order; where the order is not stored at all, every older row counts.
    """
    assert spec.merge is not None
    shadow_inputs({before.name: read_whole(spark, before, arrival=before.is_log)})
    older = read_rows(spark, spec).where(has_key(spec))
    stored = stored_order(spec)
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    if stored.order is not None and spec.merge.order is not None:
        wanted = F.broadcast(folded.select(*keys, F.col(f"{ORDER}.k.o").alias("_freshline_o")))
        met = F.col(DELETE)
        if stored.ties is None:
            met = met | F.col(f"{ORDER}.k.o").eqNullSafe(F.col("_freshline_o"))
        joined = (
            older.join(wanted, list(spec.primary_key))
            if stored.ties is None
            else older.join(F.broadcast(folded.select(*keys)), list(spec.primary_key), "left_semi")
        )
        return joined.where(met)
    return older.join(F.broadcast(folded.select(*keys)), list(spec.primary_key), "left_semi")


def drop_beaten(changes: DataFrame, older: DataFrame, spec: TableSpec) -> DataFrame:
    """The winners of the change set that no older row of their key beats."""
    assert spec.merge is not None
    choose = F.min if spec.merge.kind is MergeKind.FIRST_ROW else F.max
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    best = older.groupBy(*keys).agg(choose(ORDER).alias("_freshline_best"))
    joined = changes.join(best, list(spec.primary_key), "left")
    beats = F.col(ORDER) < F.col("_freshline_best")
    if spec.merge.kind is MergeKind.LAST_ROW:
        beats = F.col(ORDER) > F.col("_freshline_best")
    columns = [F.col(quoted(name)) for name in changes.columns]
    return joined.where(F.col("_freshline_best").isNull() | beats).select(*columns)
