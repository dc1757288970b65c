"""The rows of `partial_update`: of each group the last row, and which keys are there."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.declare.merge import DELETE
from freshline.declare.spec import TableSpec
from freshline.merges.aggregates import Aggregate
from freshline.merges.comparable import comparable
from freshline.merges.partial_update import ORDER, RULE, Item, PartialUpdate, order_of
from freshline.merges.values import Fold, fold_columns
from freshline.refresh.literal import quoted

_GONE = "_freshline_gone"


def fold_groups(rows: DataFrame, spec: TableSpec, merge: PartialUpdate) -> DataFrame:
    """The row of each key, none for a key whose last row of the group of deletes is a delete.

    Raises DeclarationError (MERGE_GROUP) where a function does not take the type of its column.
    """
    folds, grouped = list[Fold](), set[str]()
    for number, items in enumerate(merge.columns_of(spec)):
        order = order_of(number)
        is_of_deletes = merge.groups[number].name == merge.delete_group
        # The order says which rows count. What decides then are the values of the group, and of equal ones the delete.
        rows = rows.withColumn(order, F.expr(_whole_order(rows, order, items, with_delete=is_of_deletes)))
        for item in items:
            function, counts = item.function or Aggregate.LAST_VALUE, f"{order} IS NOT NULL"
            folds.append(Fold(item.column, function, item.separator, order, counts))
            grouped.add(item.column.lower())
    keys = {key.lower() for key in spec.primary_key}
    for column in spec.columns or ():
        if column.lower() not in grouped | keys:
            order = f"_freshline_order_of_{len(folds)}"
            place = comparable(quoted(column), rows.schema[column].dataType)
            rows = rows.withColumn(order, F.expr(f"struct({ORDER} AS k, {place} AS r)"))
            folds.append(Fold(column, Aggregate.LAST_NON_NULL, order=order))
    deletes = next((n for n, group in enumerate(merge.groups) if group.name == merge.delete_group), None)
    if deletes is None:
        return fold_columns(rows, spec, folds, RULE)
    gone = F.max_by(F.col(DELETE), F.col(order_of(deletes))).alias(_GONE)
    return fold_columns(rows, spec, folds, RULE, [gone]).where(F.expr(f"NOT coalesce({_GONE}, false)"))


def _whole_order(rows: DataFrame, order: str, items: tuple[Item, ...], *, with_delete: bool) -> str:
    """SQL of the order of a group, with all that is stored of a row as its last parts; NULL stays NULL."""
    kinds = [rows.schema[item.column].dataType for item in items]
    values = [comparable(quoted(item.column), kind) for item, kind in zip(items, kinds, strict=True)]
    parts = [f"{value} AS c{number}" for number, value in enumerate(values)]
    delete = f", {DELETE} AS d" if with_delete else ""
    whole = f"struct(struct(true AS n, {order} AS o) AS k, struct({', '.join(parts)}) AS r{delete})"
    return f"CASE WHEN {order} IS NOT NULL THEN {whole} END"
