"""Columns that are functions of all values of a key, by one GROUP BY: the same in whatever order rows come.

A function that takes values one after the other is given them sorted, so that digits and ties follow from the set of
rows. Zeros are positive, because Spark takes both for equal and keeps either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

from freshline.merges.aggregates import Aggregate
from freshline.merges.comparable import comparable, without_negative_zero
from freshline.values.names import quoted
from freshline.values.rules import declaration_error
from freshline.values.spec import TableSpec

# Texts that stand for a value, its order and what is compared of it, inside of arrays.
VALUE, PLACE = "v", "c"


@dataclass(frozen=True)
class Fold:
    """A column and its function. `order` is the column with the order of the rows, `only` one that says which count."""

    column: str
    function: Aggregate
    separator: str = ","
    order: str | None = None
    only: str | None = None


@dataclass(frozen=True)
class _Values:
    """The values of a column: SQL of one, its type, which rows count, and the order of rows."""

    sql: str
    kind: DataType
    order: str | None
    only: str | None

    @property
    def known(self) -> str:
        """The condition that a value is there and counts."""
        return f"{self.sql} IS NOT NULL" if self.only is None else f"({self.only} AND {self.sql} IS NOT NULL)"

    @property
    def counted(self) -> str:
        """The value where it counts, else NULL."""
        return self.sql if self.only is None else f"CASE WHEN {self.only} THEN {self.sql} END"

    @property
    def is_plain(self) -> bool:
        """Whether Spark's own order makes two different values two."""
        return comparable(self.sql, self.kind) == self.sql

    @property
    def place(self) -> str:
        """The expression by which a value is sorted."""
        return comparable(self.sql, self.kind)


def with_row_in_order(rows: DataFrame, order: str, columns: Sequence[str]) -> DataFrame:
    """The rows with their own values as the last part of the order in the column `order`, so that no two tie."""
    kinds = rows.schema
    parts = [f"{comparable(quoted(name), kinds[name].dataType)} AS c{n}" for n, name in enumerate(columns)]
    return rows.withColumn(order, F.expr(f"struct({order} AS k, struct({', '.join(parts)}) AS r)"))


def fold_columns(
    rows: DataFrame, spec: TableSpec, folds: Sequence[Fold], rule: str, beside: Sequence[Column] = ()
) -> DataFrame:
    """One row a key: its key, the column of each fold, and what `beside` aggregates.

    Raises DeclarationError, of the rule that is named, where a function does not take the type of its column.
    """
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    by_name = {column.lower(): column for column in spec.columns or ()}
    gathered, made = [], []
    for number, fold in enumerate(folds):
        name = by_name[fold.column.lower()]
        kind = rows.schema[name].dataType
        _require_type(fold, kind, spec, rule)
        values = _Values(without_negative_zero(quoted(name), kind), kind, fold.order, fold.only)
        first, then = _aggregate(fold, values, f"_freshline_v{number}")
        gathered.append(F.expr(first).alias(f"_freshline_v{number}"))
        made.append(F.expr(then).alias(name))
    # In two steps, because what is made of a sorted array names it twice.
    folded = rows.groupBy(*keys).agg(*gathered, *beside)
    others = [F.col(quoted(name)) for name in folded.columns if not name.startswith("_freshline_v")]
    return folded.select(*others, *made)


def stands_for_rows(rows: StructType, stored: StructType, folds: Sequence[Fold], spec: TableSpec) -> bool:
    """Whether the functions of all rows are those of the new rows and of the stored results."""
    by_name = {column.lower(): column for column in spec.columns or ()}
    kinds = [(fold.function, by_name[fold.column.lower()]) for fold in folds]
    return all(
        function in (Aggregate.COUNT, Aggregate.MIN, Aggregate.MAX, Aggregate.BOOL_AND, Aggregate.BOOL_OR)
        or (function is Aggregate.SUM and isinstance(rows[name].dataType, IntegralType | DecimalType))
        or (function is Aggregate.LAST_VALUE and fold.only is not None)
        for fold, (function, name) in zip(folds, kinds, strict=True)
    ) and all(name in stored.names for _, name in kinds)


def as_rows(rows: DataFrame, stored: DataFrame, folds: Sequence[Fold], spec: TableSpec) -> tuple[DataFrame, list[Fold]]:
    """New rows and stored ones, whose counts are numbers to add, and the functions that fold both.

    The columns are those of the table, in its types.
    """
    by_name = {column.lower(): column for column in spec.columns or ()}
    columns, again = {name: F.col(quoted(name)) for name in by_name.values()}, list[Fold]()
    for fold in folds:
        name = by_name[fold.column.lower()]
        if fold.function is Aggregate.COUNT:
            columns[name] = F.when(F.col(quoted(name)).isNotNull(), F.lit(1)).otherwise(F.lit(0))
        columns[name] = columns[name].cast(stored.schema[name].dataType)
        again.append(replace(fold, function=Aggregate.SUM) if fold.function is Aggregate.COUNT else fold)
    new = rows.select(*[column.alias(name) for name, column in columns.items()])
    return new.unionByName(stored.select(*new.columns)), again


def as_stored_results(folded: DataFrame, stored: DataFrame, folds: Sequence[Fold], spec: TableSpec) -> DataFrame:
    """The folded rows of `as_rows`, in the types of the table; a count of nothing is 0."""
    counts = {fold.column.lower() for fold in folds if fold.function is Aggregate.COUNT}
    columns = []
    for name in spec.columns or ():
        column = F.col(quoted(name)).cast(stored.schema[name].dataType)
        columns.append((F.coalesce(column, F.lit(0)) if name.lower() in counts else column).alias(name))
    return folded.select(*columns)


def _require_type(fold: Fold, kind: DataType, spec: TableSpec, rule: str) -> None:
    accepted = _accepted(fold.function)
    if accepted and not isinstance(kind, accepted[0]):
        raise declaration_error(
            rule,
            f"{fold.function} of column {fold.column} of {spec.name} takes {accepted[1]}, and the query yields "
            f"{kind.simpleString().upper()}. Cast it in the query, or use another function.",
            spec.written_at,
        )


def _accepted(function: Aggregate) -> tuple[tuple[type[DataType], ...], str] | None:
    """The types that a function takes, with their name; None for all."""
    match function:
        case Aggregate.SUM:
            return (IntegralType, DecimalType, FloatType, DoubleType), "numbers"
        case Aggregate.PRODUCT:
            return (IntegralType,), "whole numbers, of which the product is exact"
        case Aggregate.BOOL_AND | Aggregate.BOOL_OR:
            return (BooleanType,), "BOOLEAN"
        case Aggregate.LISTAGG:
            return (StringType,), "texts"
        case Aggregate.MERGE_MAP:
            return (MapType,), "a MAP"
        case _:
            return None


def _aggregate(fold: Fold, values: _Values, name: str) -> tuple[str, str]:
    """SQL of an aggregate of the rows of a key, and SQL that makes the value of it under `name`."""
    counted, known = values.counted, values.known
    match fold.function:
        case Aggregate.SUM:
            return _sum(values, name)
        case Aggregate.PRODUCT:
            one, factor = "CAST(1 AS DECIMAL(38,0))", f"CAST({values.sql} AS DECIMAL(19,0))"
            product = f"CAST(aggregate({name}, {one}, (a, x) -> CAST(a * x AS DECIMAL(38,0))) AS BIGINT)"
            is_zero = f"array_contains({name}, CAST(0 AS DECIMAL(19,0)))"
            # With a zero nothing else counts. Else each factor makes the product longer, and none overflows before it.
            by_case = f"CASE WHEN size({name}) = 0 THEN NULL WHEN {is_zero} THEN 0L ELSE {product} END"
            return f"sort_array(collect_list({factor}) FILTER (WHERE {known}))", by_case
        case Aggregate.COUNT:
            return f"count({counted})", name
        case Aggregate.MIN | Aggregate.MAX:
            if values.is_plain:
                return f"{fold.function}({counted})", name
            return f"{fold.function}_by({values.sql}, CASE WHEN {known} THEN {values.place} END)", name
        case Aggregate.BOOL_AND | Aggregate.BOOL_OR:
            return f"{fold.function}({counted})", name
        case Aggregate.FIRST_VALUE | Aggregate.FIRST_NON_NULL | Aggregate.LAST_VALUE | Aggregate.LAST_NON_NULL:
            return _by_order(fold.function, values), name
        case Aggregate.LISTAGG:
            texts = f"transform({name}, e -> e.{VALUE})"
            separator = "'" + fold.separator.replace("\\", "\\\\").replace("'", "\\'") + "'"
            return _in_order(values), f"CASE WHEN size({name}) > 0 THEN array_join({texts}, {separator}) END"
        case Aggregate.COLLECT:
            return _sorted(values), name if values.is_plain else f"transform({name}, e -> e.{VALUE})"
        case Aggregate.COLLECT_DISTINCT:
            item = "e" if values.is_plain else f"e.{PLACE}"
            before = f"{name}[i - 1]" if values.is_plain else f"{name}[i - 1].{PLACE}"
            once = f"filter({name}, (e, i) -> i = 0 OR NOT ({before} <=> {item}))"
            return _sorted(values), once if values.is_plain else f"transform({once}, e -> e.{VALUE})"
        case Aggregate.MERGE_MAP:
            later = "map_zip_with(a, e, (k, x, y) -> CASE WHEN map_contains_key(e, k) THEN y ELSE x END)"
            maps, empty = f"transform({name}, e -> e.{VALUE})", f"CAST(map() AS {values.kind.simpleString()})"
            merged = f"aggregate({maps}, {empty}, (a, e) -> {later})"
            return _in_order(values), f"CASE WHEN size({name}) > 0 THEN {merged} END"
    raise AssertionError(fold.function)


def _sum(values: _Values, name: str) -> tuple[str, str]:
    if isinstance(values.kind, IntegralType):
        # An addition that overflows on the way to a sum that fits depends on the order of the rows.
        return f"sum(CAST({values.counted} AS DECIMAL(19,0)))", f"CAST({name} AS BIGINT)"
    if isinstance(values.kind, DecimalType):
        return f"sum({values.counted})", name
    doubles = f"sort_array(collect_list(CAST({values.sql} AS DOUBLE)) FILTER (WHERE {values.known}))"
    return doubles, f"CASE WHEN size({name}) > 0 THEN aggregate({name}, 0D, (a, x) -> a + x) END"


def _by_order(function: Aggregate, values: _Values) -> str:
    is_first = function in (Aggregate.FIRST_VALUE, Aggregate.FIRST_NON_NULL)
    # The first of the rows that have a sequence, where there are any.
    order = f"struct(NOT {values.order}.k.n AS n, {values.order} AS o)" if is_first else values.order
    counts = values.only if function in (Aggregate.FIRST_VALUE, Aggregate.LAST_VALUE) else values.known
    place = order if counts is None else f"CASE WHEN {counts} THEN {order} END"
    return f"{'min_by' if is_first else 'max_by'}({values.sql}, {place})"


def _sorted(values: _Values) -> str:
    """The values that are there, sorted; structs of value and place where Spark's order is not enough."""
    if values.is_plain:
        return f"sort_array(collect_list({values.sql}) FILTER (WHERE {values.known}))"
    return _array(values.sql, values.place, values.known)


def _in_order(values: _Values) -> str:
    """The values that are there in the order of their rows: structs of value and place."""
    assert values.order is not None
    return _array(values.sql, values.order, values.known)


def _array(value: str, place: str, known: str) -> str:
    """An array of structs, sorted by place alone: the value may have no order."""
    items = f"collect_list(struct({place} AS {PLACE}, {value} AS {VALUE})) FILTER (WHERE {known})"
    compared = f"CASE WHEN l.{PLACE} < r.{PLACE} THEN -1 WHEN l.{PLACE} > r.{PLACE} THEN 1 ELSE 0 END"
    return f"array_sort({items}, (l, r) -> {compared})"
