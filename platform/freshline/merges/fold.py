"""The row of a key that is first or last: which of new rows win, and when a stored row gives way.

New rows are reduced to one row a key by the order before anything is written, because two rows for one key in the
source of a MERGE would both be inserted.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.compute.fold import Winners, is_folded, read_rows
from freshline.compute.inputs import Pinned, read_whole, shadow_inputs
from freshline.merges.comparable import comparable
from freshline.merges.one_row import ORDER, OneRow
from freshline.query.select_list import StoredOrder, stored_order
from freshline.values.merge import DELETE
from freshline.values.names import quoted
from freshline.values.spec import TableSpec


def with_row_in_order(rows: DataFrame, spec: TableSpec, merge: OneRow) -> DataFrame:
    """The rows with themselves, and their delete mark, as the last parts of their order."""
    parts = [F.col(ORDER).alias("k"), F.expr(_row(rows.schema, spec, "")).alias("r")]
    # Where two rows differ in nothing that is compared or stored, the delete is the later one.
    deletes = [F.col(DELETE).alias("d")] if merge.delete_condition is not None else []
    return rows.withColumn(ORDER, F.struct(*parts, *deletes))


def _row(schema: StructType, spec: TableSpec, of: str) -> str:
    """SQL with the stored columns of a row in an order; `of` is what stands before their names, as `t.`."""
    assert spec.columns is not None
    columns = [comparable(f"{of}{quoted(name)}", schema[name].dataType) for name in spec.columns]
    return f"struct({', '.join(f'{column} AS c{number}' for number, column in enumerate(columns))})"


def best_rows(rows: DataFrame, spec: TableSpec, merge: OneRow) -> DataFrame:
    """One row a key: the winner, with its order and delete mark."""
    assert spec.columns is not None
    choose = F.min_by if merge.takes_least else F.max_by
    row = F.struct(*[F.col(quoted(name)) for name in spec.columns], *sorted({ORDER, DELETE, *merge.helpers}))
    keys = [F.col(quoted(key)).alias(f"_freshline_key{n}") for n, key in enumerate(spec.primary_key)]
    folded = rows.groupBy(*keys).agg(choose(row, F.col(ORDER)).alias("_freshline_row"))
    return folded.select("_freshline_row.*")


def find_winners(spark: SparkSession, spec: TableSpec, merge: OneRow, rows: DataFrame, before: Pinned) -> Winners:
    """The winners among new rows that no older row beats, and when the stored row of their key gives way.

    Rows that were read `before` are read again only where the stored row cannot stand for them: deletes, ties, an order
    that is not stored.
    """
    winners = best_rows(rows, spec, merge)
    deletes = DELETE if merge.delete_condition is not None else None
    if merge.never_gives_way:
        return Winners(winners, None, deletes)
    if not merge.needs_older_rows and merge.is_by_arrival and not merge.takes_least:
        return Winners(winners, "true", deletes)
    stored = stored_order(spec, merge.order, merge.tie_breaker)
    if deletes is None and stored.order is not None and stored.ties is not None:
        return Winners(winners, replaces_when(spec, merge, winners.schema, stored), deletes)
    winners = _not_beaten(winners, _older_rows(spark, spec, merge, stored, before, winners), spec, merge)
    return Winners(winners, replaces_when(spec, merge, winners.schema, stored, older_rows_seen=True), deletes)


def replaces_when(
    spec: TableSpec, merge: OneRow, schema: StructType, stored: StoredOrder, *, older_rows_seen: bool = False
) -> str:
    """The condition, in SQL, by which a new winner `s` replaces the stored row `t` of its key.

    With `older_rows_seen` no older row can beat `s` any more, so where ties are not stored only the order is compared.
    """
    assert spec.columns is not None
    if stored.order is None:
        return "true"
    null = "IS NULL" if merge.takes_least else "IS NOT NULL"
    order = f"t.{quoted(stored.order)}"
    if stored.ties is None:
        assert older_rows_seen, "a tie that the table cannot break is broken by older rows"
        sign = "<=" if merge.takes_least else ">="
        return (
            f"named_struct('n', s.{ORDER}.k.n, 'o', s.{ORDER}.k.o) {sign} "
            f"named_struct('n', {order} {null}, 'o', {order})"
        )
    ties = "".join(f", 't{number}', t.{quoted(tie)}" for number, tie in enumerate(stored.ties))
    delete = ", 'd', false" if merge.delete_condition is not None else ""
    sign = "<" if merge.takes_least else ">"
    return (
        f"s.{ORDER} {sign} named_struct('k', named_struct('n', {order} {null}, 'o', {order}{ties}), "
        f"'r', {_row(schema, spec, 't.')}{delete})"
    )


def _older_rows(
    spark: SparkSession, spec: TableSpec, merge: OneRow, stored: StoredOrder, before: Pinned, winners: DataFrame
) -> DataFrame:
    """Rows of the winners' keys that were read `before`, as far as the stored row cannot stand for them.

    A key that is absent may have been deleted by a later event, so deletes are read; a tie that the table cannot
    break is broken by the rows of equal order; where the order is not stored at all, every older row counts.
    """
    shadow_inputs({before.name: read_whole(spark, before, arrival=before.is_log)})
    older = read_rows(spark, spec).where(is_folded(spec))
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    if stored.order is None or merge.order is None:
        return older.join(F.broadcast(winners.select(*keys)), list(spec.primary_key), "left_semi")
    if stored.ties is not None:
        found = older.join(F.broadcast(winners.select(*keys)), list(spec.primary_key), "left_semi")
        return found.where(F.col(DELETE))
    wanted = F.broadcast(winners.select(*keys, F.col(f"{ORDER}.k.o").alias("_freshline_o")))
    equal = F.col(f"{ORDER}.k.o").eqNullSafe(F.col("_freshline_o"))
    return older.join(wanted, list(spec.primary_key)).where(F.col(DELETE) | equal)


def _not_beaten(winners: DataFrame, older: DataFrame, spec: TableSpec, merge: OneRow) -> DataFrame:
    """The winners that no older row of their key beats."""
    choose = F.min if merge.takes_least else F.max
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    best = older.groupBy(*keys).agg(choose(ORDER).alias("_freshline_best"))
    joined = winners.join(best, list(spec.primary_key), "left")
    order, best_order = F.col(ORDER), F.col("_freshline_best")
    beats: Column = order < best_order if merge.takes_least else order > best_order
    columns = [F.col(quoted(name)) for name in winners.columns]
    return joined.where(best_order.isNull() | beats).select(*columns)
