"""Tables with a merge: the rows that are folded, and how what was folded changes what is stored.

How rows of one key become one row is the merge's own (`freshline.values.merge`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from freshline.compute.constraints import leave_out
from freshline.compute.inputs import ARRIVAL, Pinned
from freshline.compute.keys import DELETE as REMOVE
from freshline.compute.keys import INSERT, OP, UPDATE
from freshline.compute.read_only import read_declared
from freshline.query.select_list import CONDITION, select_with_condition
from freshline.values.change import OP as CHANGE_OP
from freshline.values.change import TRUNCATE
from freshline.values.extension import broken, is_own, package_of, where_of
from freshline.values.merge import DELETE, REJECTED
from freshline.values.names import quoted
from freshline.values.spec import TableSpec

# The beginning of Spark's error about a key of which a merge of another package gives two rows, or one with a NULL in
# the key. An object of JSON that says which merge follows, and one with the key.
REPEATED = "FRESHLINE_MERGE_KEY"
_ROW, _ROWS = "_freshline_row", "_freshline_rows"


@dataclass(frozen=True)
class Winners:
    """New rows that may take the place of stored ones, one a key, with the helpers of the merge.

    `replaces_when` is SQL over the new row `s` and the stored row `t` of its key, None where a stored row always stays.
    `deletes` is the column that says that the row takes its key away, None where none does.
    """

    rows: DataFrame
    replaces_when: str | None
    deletes: str | None


def read_rows(spark: SparkSession, spec: TableSpec, *, arrival: bool = False) -> DataFrame:
    """The rows that are folded, with order struct and delete mark, over the rows in the session's views.

    A row that a constraint leaves out is not folded, as if it had not come; a delete always is. With `arrival` the
    log's arrival columns come along, for a view that has them.
    """
    return leave_out(read_before_constraints(spark, spec, arrival=arrival), spec.constraints, but=F.col(DELETE))


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


def read_before_constraints(spark: SparkSession, spec: TableSpec, *, arrival: bool = False) -> DataFrame:
    """As `read_rows`, with the rows that constraints leave out."""
    merge = spec.merge
    assert merge is not None
    assert spec.columns is not None
    helpers = {DELETE: "false", **merge.helpers}
    if merge.follows_changes:
        helpers[DELETE] = f"({helpers[DELETE]} OR NOT coalesce({CONDITION}, false))"
    items = [f"{expression} AS {name}" for name, expression in helpers.items()]
    also = ARRIVAL if arrival else ()
    text = spec.sql.render(select_also=(*items, *also))
    if merge.follows_changes:
        text = select_with_condition(text)
    views = [name.view for name in spec.sql.reads]
    columns = [F.col(quoted(name)) for name in spec.columns]
    rows = read_declared(spark, text, views).select(*columns, *helpers, *also)
    # Before keys are read: an empty text in a key that is a partition too is a NULL in it.
    return merge.complete(as_stored(rows, spec), spec)


def has_truncate(rows: DataFrame) -> bool:
    """Whether there is a TRUNCATE among events of a change feed, which may take any key of a table away."""
    return rows.where(F.col(CHANGE_OP) == TRUNCATE).limit(1).count() > 0


def has_key(spec: TableSpec) -> Column:
    """Whether no part of the key is NULL."""
    condition = F.lit(True)
    for key in spec.primary_key:
        condition = condition & F.col(quoted(key)).isNotNull()
    return condition


def is_folded(spec: TableSpec) -> Column:
    """Whether a row of `read_rows` is folded: no part of its key is NULL, and its merge does not reject it."""
    assert spec.merge is not None
    return has_key(spec) & F.col(REJECTED).isNull() if REJECTED in spec.merge.helpers else has_key(spec)


def without_constraints(spec: TableSpec) -> Column:
    """Whether constraints pass over a row of the fold: a delete, or one that is not folded."""
    return F.col(DELETE) | ~is_folded(spec)


def fold_keys(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """The table's rows of all keys that `rows` has, by its merge. Rows that are not folded are left out."""
    assert spec.merge is not None
    assert spec.columns is not None
    folded = _one_row_a_key(spec.merge.fold(rows.where(is_folded(spec)), spec), spec, "fold")
    return folded.select(*[F.col(quoted(name)) for name in spec.columns])


def fold_keys_onto(rows: DataFrame, stored: DataFrame, spec: TableSpec) -> DataFrame:
    """As `fold_keys`, of new rows alone and the stored rows of their keys."""
    assert spec.merge is not None
    return _one_row_a_key(spec.merge.fold_onto(rows.where(is_folded(spec)), stored, spec), spec, "fold_onto")


def find_winners(spark: SparkSession, spec: TableSpec, rows: DataFrame, before: Pinned) -> Winners:
    """The rows among new ones that may take the place of stored rows, by the merge of the table."""
    assert spec.merge is not None
    winners: Winners = spec.merge.find_winners(spark, spec, rows, before)
    return replace(winners, rows=_one_row_a_key(winners.rows, spec, "find_winners"))


def _one_row_a_key(rows: DataFrame, spec: TableSpec, method: str) -> DataFrame:
    """The rows that a merge of another package gives, which end with REPEATED where two are of one key.

    A second row of a key would be stored, and make the next change of the key impossible.
    """
    kind = type(spec.merge)
    assert spec.columns is not None
    if is_own(kind):
        return rows
    if not isinstance(rows, DataFrame):
        raise broken(kind, method, f"gives {type(rows).__name__}, which is no DataFrame", spec)
    given = {name.lower() for name in rows.columns}
    if missing := [name for name in spec.columns if name.lower() not in given]:
        raise broken(kind, method, f"gives rows without the column {', '.join(missing)}", spec)
    said = json.dumps({"package": package_of(kind), "method": f"{kind.__qualname__}.{method}", "where": where_of(spec)})
    key = F.struct(*[F.col(quoted(name)) for name in spec.primary_key])
    message = F.concat(F.lit(f"{REPEATED} {said} "), F.to_json(key, {"ignoreNullFields": "false"}))
    keyed = rows.groupBy(*[F.col(quoted(name)) for name in spec.primary_key]).agg(
        F.first(F.struct(*[F.col(quoted(name)) for name in rows.columns])).alias(_ROW),
        F.count(F.lit(1)).alias(_ROWS),
    )
    is_right = (F.col(_ROWS) == 1) & has_key(spec)
    return keyed.where(F.assert_true(is_right, message).isNull()).select(f"{_ROW}.*")


def fold_all(spark: SparkSession, spec: TableSpec) -> DataFrame:
    """The whole table: the fold of the query over everything, without the keys that are deleted."""
    return fold_keys(read_rows(spark, spec), spec)


def winning_rows(winners: DataFrame, spec: TableSpec) -> DataFrame:
    """The rows that the winners of a change set leave behind: those whose winner is no delete."""
    assert spec.columns is not None
    return winners.where(~F.col(DELETE)).select(*[F.col(quoted(name)) for name in spec.columns])


def changes_by_winners(winners: DataFrame, stored: DataFrame, spec: TableSpec, update_when: str) -> DataFrame:
    """The changes that winners, one a key, make to what is stored: OP and the table's columns.

    The same as `merge_rows` writes, before it is written.
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
