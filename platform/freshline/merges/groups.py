"""The rows of `partial_update`: of each group the last row, and which keys are there."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.merges.aggregates import Aggregate
from freshline.merges.comparable import comparable
from freshline.merges.partial_update import ORDER, RULE, Item, PartialUpdate, order_of
from freshline.merges.values import Fold, as_rows, as_stored_results, fold_columns
from freshline.values.merge import DELETE
from freshline.values.names import quoted
from freshline.values.spec import TableSpec

_GONE = "_freshline_gone"


def fold_groups(rows: DataFrame, spec: TableSpec, merge: PartialUpdate) -> DataFrame:
    """The row of each key, none for a key whose last row of the group of deletes is a delete.

    Raises DeclarationError (MERGE_GROUP) where a function does not take the type of its column.
    """
    rows, folds = _with_orders(rows, spec, merge), group_folds(spec, merge)
    grouped = {fold.column.lower() for fold in folds}
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


def group_folds(spec: TableSpec, merge: PartialUpdate) -> list[Fold]:
    """The functions of the columns that are in groups."""
    folds = []
    for number, items in enumerate(merge.columns_of(spec)):
        order = order_of(number)
        for item in items:
            function = item.function or Aggregate.LAST_VALUE
            folds.append(Fold(item.column, function, item.separator, order, f"{order} IS NOT NULL"))
    return folds


def fold_groups_onto(rows: DataFrame, stored: DataFrame, spec: TableSpec, merge: PartialUpdate) -> DataFrame:
    """As `fold_groups`, of new rows and the stored rows of their keys: each stored row counts as one row of each group.

    All columns are in groups, and all sequences are stored.
    """
    folds = group_folds(spec, merge)
    both, again = as_rows(rows, stored, folds, spec)
    for number, names in enumerate(merge.stored_sequences(spec)):
        by = [quoted(name) for name in names if name is not None]
        counts = " AND ".join(f"{name} IS NOT NULL" for name in by)
        parts = ", ".join(f"{name} AS s{place}" for place, name in enumerate(by))
        both = both.withColumn(order_of(number), F.expr(f"CASE WHEN {counts} THEN struct({parts}) END"))
    folded = fold_columns(_with_orders(both, spec, merge), spec, again, RULE)
    return as_stored_results(folded, stored, folds, spec)


def _with_orders(rows: DataFrame, spec: TableSpec, merge: PartialUpdate) -> DataFrame:
    """The rows with whole orders of groups: what decides after the sequences are the values of the group."""
    for number, items in enumerate(merge.columns_of(spec)):
        order, of_deletes = order_of(number), merge.groups[number].name == merge.delete_group
        rows = rows.withColumn(order, F.expr(_whole_order(rows, order, items, with_delete=of_deletes)))
    return rows


def _whole_order(rows: DataFrame, order: str, items: tuple[Item, ...], *, with_delete: bool) -> str:
    """SQL of the order of a group, with all that is stored of a row as its last parts; NULL stays NULL."""
    # Values that are only counted in functions decide nothing that is stored: they are the last.
    items = tuple(sorted(items, key=lambda item: item.function is not None))
    kinds = [rows.schema[item.column].dataType for item in items]
    values = [comparable(quoted(item.column), kind) for item, kind in zip(items, kinds, strict=True)]
    parts = [f"{value} AS c{number}" for number, value in enumerate(values)]
    delete = f", {DELETE} AS d" if with_delete else ""
    whole = f"struct(struct(true AS n, {order} AS o) AS k, struct({', '.join(parts)}) AS r{delete})"
    return f"CASE WHEN {order} IS NOT NULL THEN {whole} END"
