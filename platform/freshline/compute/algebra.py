"""Aggregates computed from their stored values and the signed changed rows (see `query.rules.algebra`).

Each group of changed rows is joined with its stored row. Where the two surely give the new values, these are taken; a
group of which they do not is named, to be computed again from the inputs. Only exact types are served: integers and
decimals in sums; of fractions, whose sums depend on the order, nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from freshline.compute.arrow_rows import ArrowRows, settle
from freshline.compute.keys import DELETE, INSERT, OP, UPDATE, Keys, Readings, keys_of, keys_of_few, typed
from freshline.compute.materialize import FEW_ROWS, materialize_once
from freshline.compute.read_only import read_only
from freshline.query.rules.algebra import SIGN, AggregateKind, Algebra, ResultAggregate
from freshline.query.tree import RelationState, view_of
from freshline.values.names import quoted

UNSURE = "?"
# Columns of groups, beside keys under the names that a user gave them: rows that came less those that went, rows that
# went, what a sum changes by, the best that came or went, and the stored row.
_ROWS, _GONE, _CHANGE, _CAME, _WENT, _OLD = (
    f"_freshline_{name}" for name in ("rows", "gone", "change", "came", "went", "old")
)
EXTREMES = (AggregateKind.LEAST, AggregateKind.GREATEST)
ORDERED = (IntegralType, DecimalType, StringType, DateType, TimestampType, TimestampNTZType, BooleanType)
# A decimal average has four digits more than what it averages, so the sum follows from it and the count exactly while
# the rounding of each of so many rows stays below half of the last digit of the sum.
MOST_AVERAGED = 10_000
# Spark divides to the last digit and rounds once. The quotient here is rounded twice, eleven digits behind those of the
# sum first, which is the same for fewer rows than this.
MOST_DIVIDED = 10_000_000
# The precision up to which these eleven digits are there.
MOST_PRECISE = 17
# Whole numbers that a DOUBLE and its rounded product still distinguish.
MOST_WHOLE = 2.0**50


@dataclass(frozen=True)
class AlgebraResult:
    """The result of the changed rows: changes (OP and the table's columns), how many, and the groups left open.

    `keys` are those of the groups that changed, None where all rows are one group.
    """

    keys: Keys | None
    changes: DataFrame | ArrowRows
    count: int
    unsure: Keys | None


NeverNull = Callable[[str, str], bool]


def follow(
    spark: SparkSession,
    algebra: Algebra,
    inputs: Readings,
    target: DataFrame,
    never_null: NeverNull,
    *,
    expected: int = 0,
    stored: int | None = None,
) -> AlgebraResult | None:
    """The changes of the stored rows that follow from the signed changed rows of the inputs.

    `inputs` has rows by reading and by name in lower case, SIGNED ones with SIGN. `never_null` says of an input's
    column that no row has NULL in it, before or after the changes. `expected` is how many rows changed, and `stored`
    how many the table has, None where that is not known. None where the types are not served, and where all rows are
    one group that is left open.
    """
    for (reading, relation), rows in inputs.items():
        rows.createOrReplaceTempView(view_of(reading, relation))
    for stage in algebra.stages:
        new = read_only(spark, stage.new)
        new.createOrReplaceTempView(view_of(RelationState.NEW, stage.relation))
        if stage.old is not None:
            read_only(spark, stage.old).createOrReplaceTempView(view_of(RelationState.OLD, stage.relation))
            sign = StructType([*new.schema.fields]).add(SIGN, IntegerType())
            signed = reduce(DataFrame.unionAll, [typed(read_only(spark, query), sign) for query in stage.signed])
            signed.createOrReplaceTempView(view_of(RelationState.SIGNED, stage.relation))
    changed = reduce(DataFrame.unionAll, [read_only(spark, query) for query in algebra.terms])
    names = {name.lower(): name for name in target.columns}
    computed = {one.column for one in algebra.computed}
    if names.keys() != {*algebra.keys, *(one.column for one in algebra.aggregates), *computed}:
        return None
    kinds = {name: target.schema[names[name]].dataType for name in names}
    if not _is_served(algebra, changed.schema, kinds) or _may_forget(spark, algebra, kinds):
        return None
    counted = [_Counted.of(one, algebra, never_null) for one in algebra.aggregates]
    if any(one.aggregate.kind is AggregateKind.AVERAGE and one.rows is None for one in counted):
        return None
    if any(one.kind in EXTREMES for one in algebra.aggregates):
        # They are read twice: for sums, and net.
        changed, _ = materialize_once(changed, expected=expected)
    most = _most_groups(inputs, expected, stored)
    found_groups, count = settle(_groups(changed, algebra, target, names), at_most=most, expected=expected)
    own = [names[key] for key in algebra.keys]
    columns = [F.col(quoted(name)) for name in own]
    if isinstance(found_groups, ArrowRows):
        keys = keys_of_few(found_groups.select(own)) if own else None
        groups = found_groups.frame()
    else:
        keys, groups = keys_of(found_groups.select(*columns)) if columns else None, found_groups
    if count == 0:
        return AlgebraResult(keys, groups, 0, None)
    joined = _with_stored(groups, keys, target, own)
    decided = _decide(joined, algebra, counted, target, names, changed.schema)
    found, many = settle(decided, at_most=count) if columns else materialize_once(decided)
    if isinstance(found, ArrowRows):
        left = found.where(OP, UNSURE)
        unsure = keys_of_few(left.select(own)) if left.count else None
        return AlgebraResult(keys, found.where(OP, UNSURE, is_so=False), many - left.count, unsure)
    open_groups = found.where(F.col(OP) == UNSURE)
    changes = found.where(F.col(OP) != UNSURE)
    if not columns:
        return None if open_groups.count() else AlgebraResult(None, changes, changes.count(), None)
    unsure = keys_of(open_groups.select(*columns))
    return AlgebraResult(keys, changes, changes.count(), unsure if unsure.count else None)


def _most_groups(inputs: Readings, expected: int, stored: int | None) -> int | None:
    """How many groups changed at most, or are likely to have; None where nothing is known."""
    if stored is not None and 2 * stored <= FEW_ROWS:
        # Of a table of few rows. Should many more come, the groups are computed a second time.
        return FEW_ROWS
    # A changed row of one input is of one group, or of two. One of a join may be of any number.
    return 2 * expected if expected and len({relation for _, relation in inputs}) == 1 else None


def drop_views(spark: SparkSession, algebra: Algebra, relations: list[str]) -> None:
    """Take the views of `follow` away again."""
    for relation in (*relations, *(stage.relation for stage in algebra.stages)):
        for reading in (RelationState.NEW, RelationState.OLD, RelationState.SIGNED):
            spark.catalog.dropTempView(view_of(reading, relation))


def _is_served(algebra: Algebra, rows: StructType, stored: Mapping[str, DataType]) -> bool:
    keys = [rows[f"k{number}"].dataType for number in range(len(algebra.keys))]
    if not all(isinstance(kind, ORDERED) for kind in keys):
        return False
    return all(_is_exact(one, rows, stored[one.column]) for one in algebra.aggregates)


def _may_forget(spark: SparkSession, algebra: Algebra, stored: Mapping[str, DataType]) -> bool:
    """Whether a sum may be NULL for being too large, where Spark does not raise: its value is lost then."""
    sums = [stored[one.column] for one in algebra.aggregates if one.kind is AggregateKind.SUM]
    large = any(isinstance(kind, DecimalType) and kind.precision == 38 for kind in sums)
    return large and (spark.conf.get("spark.sql.ansi.enabled") or "").strip().lower() == "false"


def _is_exact(aggregate: ResultAggregate, rows: StructType, stored: DataType) -> bool:
    """Whether an aggregate over these types does not depend on the order of its rows."""
    if aggregate.argument is None:
        return isinstance(stored, LongType)
    argument = rows[f"a{aggregate.argument}"].dataType
    match aggregate.kind:
        case AggregateKind.COUNT | AggregateKind.COUNT_ROWS:
            return isinstance(stored, LongType)
        case AggregateKind.SUM:
            whole = isinstance(argument, IntegralType) and isinstance(stored, LongType)
            return whole or (
                isinstance(argument, DecimalType)
                and isinstance(stored, DecimalType)
                and (stored.precision, stored.scale) == (min(38, argument.precision + 10), argument.scale)
                # Two decimals of 38 digits are added with one digit less behind the point, six are always kept.
                and (stored.precision < 38 or stored.scale <= 6)
            )
        case AggregateKind.AVERAGE:
            whole = isinstance(argument, IntegralType) and isinstance(stored, DoubleType)
            return whole or (
                isinstance(argument, DecimalType)
                and isinstance(stored, DecimalType)
                and argument.precision <= MOST_PRECISE
                and (stored.precision, stored.scale) == (argument.precision + 4, argument.scale + 4)
            )
        case AggregateKind.LEAST | AggregateKind.GREATEST:
            return isinstance(argument, ORDERED) and argument == stored


@dataclass(frozen=True)
class _Counted:
    """An aggregate, and the columns that say of how many rows it is.

    `rows` counts those that its argument is not NULL in (or, of an average, that are surely so), `sum` sums them.
    """

    aggregate: ResultAggregate
    rows: ResultAggregate | None
    sum: ResultAggregate | None

    @classmethod
    def of(cls, aggregate: ResultAggregate, algebra: Algebra, never_null: NeverNull) -> _Counted:
        argument = aggregate.argument
        if argument is None:
            return cls(aggregate, None, None)
        rows = algebra.of_kind(AggregateKind.COUNT, argument)
        every = algebra.of_kind(AggregateKind.COUNT_ROWS)
        origin = algebra.origins[argument]
        if rows is None and every is not None and origin is not None and never_null(*origin):
            rows = every
        return cls(aggregate, rows, algebra.of_kind(AggregateKind.SUM, argument))


def _groups(changed: DataFrame, algebra: Algebra, target: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """One row a group of changed rows: its key under the table's names, and the signed sums of its rows."""
    keys = [f"k{number}" for number in range(len(algebra.keys))]
    sign = F.col(SIGN)
    kinds = changed.schema
    parts = [F.sum(sign).alias(_ROWS), F.count_if(sign < 0).alias(_GONE)]
    for number in sorted({one.argument for one in algebra.aggregates if one.argument is not None}):
        argument = F.col(f"a{number}")
        parts.append(F.coalesce(F.sum(F.when(argument.isNotNull(), sign)), F.lit(0)).alias(f"{_ROWS}{number}"))
        parts.append(F.count_if((sign < 0) & argument.isNotNull()).alias(f"{_GONE}{number}"))
        if isinstance(kinds[f"a{number}"].dataType, IntegralType | DecimalType):
            value = argument.cast("long") if isinstance(kinds[f"a{number}"].dataType, IntegralType) else argument
            parts.append(F.sum(F.when(sign > 0, value).otherwise(-value)).alias(f"{_CHANGE}{number}"))
    rows = changed
    extremes = [one for one in algebra.aggregates if one.kind in EXTREMES]
    groups = rows.groupBy(*keys).agg(*parts)
    if not keys:
        # Of no rows there is a group too.
        groups = groups.where(F.col(_ROWS).isNotNull())
    if extremes:
        # A value that came and went within the range never was in the new rows: only net changes count here.
        arguments = [f"a{number}" for number in sorted({one.argument for one in extremes if one.argument is not None})]
        net = rows.groupBy(*keys, *arguments).agg(F.sum(sign).alias("net")).where(F.col("net") != 0)
        ends = []
        # A query may have the same one twice, under two names.
        for mark, one in {f"{one.kind.value}{one.argument}": one for one in extremes}.items():
            choose = F.min if one.kind is AggregateKind.LEAST else F.max
            value = F.col(f"a{one.argument}")
            ends.append(choose(F.when(F.col("net") > 0, value)).alias(f"{_CAME}{mark}"))
            ends.append(choose(F.when(F.col("net") < 0, value)).alias(f"{_WENT}{mark}"))
        named = net.groupBy(*[F.col(key).alias(f"e_{key}") for key in keys]).agg(*ends)
        condition = _all([F.col(key).eqNullSafe(F.col(f"e_{key}")) for key in keys])
        groups = groups.join(named, condition, "left").drop(*[f"e_{key}" for key in keys])
    stored = [names[key] for key in algebra.keys]
    renamed = [
        F.col(key).cast(target.schema[name].dataType).alias(name) for key, name in zip(keys, stored, strict=True)
    ]
    return groups.select(*renamed, *[F.col(name) for name in groups.columns if name not in keys])


def _with_stored(groups: DataFrame, keys: Keys | None, target: DataFrame, names: list[str]) -> DataFrame:
    """Each group beside the stored row, as the struct _OLD, NULL where there is none."""
    stored = target if keys is None else keys.restrict(target)
    old = stored.select(F.struct(*[F.col(quoted(name)) for name in target.columns]).alias(_OLD))
    condition = _all([F.col(f"g.{quoted(name)}").eqNullSafe(F.col(f"{_OLD}.{quoted(name)}")) for name in names])
    return groups.alias("g").join(F.broadcast(old), condition, "left")


def _all(conditions: list[Column]) -> Column:
    return reduce(lambda a, b: a & b, conditions, F.lit(True))


@dataclass(frozen=True)
class _Value:
    """The new value of an aggregate, whether it is surely that, and whether it surely shows that rows are left."""

    value: Column
    sure: Column
    shows_rows: Column


def _decide(
    joined: DataFrame,
    algebra: Algebra,
    counted: list[_Counted],
    target: DataFrame,
    names: Mapping[str, str],
    rows: StructType,
) -> DataFrame:
    """OP (UNSURE where the group is to be computed again) and the table's columns, of rows that change."""
    there = F.col(_OLD).isNotNull()
    values = {one.aggregate.column: _value(one, names, target.schema, rows) for one in counted}
    every = algebra.of_kind(AggregateKind.COUNT_ROWS)
    if not algebra.keys:
        # The group of all rows is there without any.
        known, stays = there, F.lit(True)
        if every is not None:
            none_left = values[every.column].value == 0
            values = {one.aggregate.column: _of_none(one, values, none_left) for one in counted}
    elif every is not None:
        left = values[every.column].value
        known, stays = left >= 0, left > 0
    else:
        shown = reduce(lambda a, b: a | b, [value.shows_rows for value in values.values()])
        none_before = F.when(there, F.lit(None)).otherwise(F.col(_ROWS) > 0)
        # Nothing went away, or something is surely left; a group that was not there has the rows that came.
        stays = F.coalesce(none_before, (F.col(_GONE) == 0) | shown)
        known = F.when(there, stays).otherwise(F.col(_ROWS) >= 0)
    sure = reduce(lambda a, b: a & b, [value.sure for value in values.values()])
    differs = reduce(
        lambda a, b: a | b,
        [~value.value.eqNullSafe(F.col(f"{_OLD}.{quoted(names[column])}")) for column, value in values.items()],
    )
    op = (
        F.when(~known | (stays & ~sure), F.lit(UNSURE))
        .when(~stays & there, F.lit(DELETE))
        .when(stays & ~there, F.lit(INSERT))
        .when(stays & differs, F.lit(UPDATE))
    )
    computed = {one.column: one for one in algebra.computed}
    columns = [
        (values[name.lower()].value if name.lower() in values else F.col(f"g.{quoted(name)}"))
        .cast(target.schema[name].dataType)
        .alias(name)
        for name in target.columns
        if name.lower() not in computed
    ]
    found = joined.select(op.alias(OP), *columns).where(F.col(OP).isNotNull())
    # A row that goes away, or is open yet, has values that the query never sees.
    stored = F.col(OP).isin(INSERT, UPDATE)
    with_computed = [
        F.when(stored, F.expr(computed[name.lower()].text)).cast(target.schema[name].dataType).alias(name)
        if name.lower() in computed
        else F.col(quoted(name))
        for name in target.columns
    ]
    return found.select(OP, *with_computed)


def _of_none(one: _Counted, values: Mapping[str, _Value], none_left: Column) -> _Value:
    """The value of an aggregate over all rows, which is known where none is left."""
    found, counts = values[one.aggregate.column], (AggregateKind.COUNT, AggregateKind.COUNT_ROWS)
    nothing = F.lit(0 if one.aggregate.kind in counts else None)
    return _Value(F.when(none_left, nothing).otherwise(found.value), none_left | found.sure, found.shows_rows)


def _value(one: _Counted, names: Mapping[str, str], stored: StructType, rows: StructType) -> _Value:
    aggregate = one.aggregate
    old = F.col(f"{_OLD}.{quoted(names[aggregate.column])}")
    if aggregate.kind is AggregateKind.COUNT_ROWS:
        value = F.coalesce(old, F.lit(0)) + F.col(_ROWS)
        return _Value(value, value >= 0, value > 0)
    number = aggregate.argument
    came, gone = F.col(f"{_ROWS}{number}"), F.col(f"{_GONE}{number}")
    if aggregate.kind is AggregateKind.COUNT:
        value = F.coalesce(old, F.lit(0)) + came
        return _Value(value, value >= 0, value > 0)
    if aggregate.kind in EXTREMES:
        return _extreme(aggregate, old)
    kind = stored[names[aggregate.column]].dataType
    change = F.coalesce(F.col(f"{_CHANGE}{number}"), F.lit(0).cast(_sum_type(rows[f"a{number}"].dataType)))
    if aggregate.kind is AggregateKind.SUM:
        whole = (F.coalesce(old, F.lit(0).cast(kind)) + change).cast(kind)
        left = None if one.rows is None else _count(one.rows, names, came)
        if left is not None:
            return _Value(F.when(left > 0, whole), left >= 0, left > 0)
        # A sum that is not zero shows that rows are left; of no rows it is NULL before, and the rows that came decide.
        value = F.when(old.isNull() & (came == 0), F.lit(None).cast(kind)).otherwise(whole)
        sure = F.when(old.isNull(), came >= 0).otherwise((gone == 0) | (whole != 0))
        return _Value(value, sure, F.coalesce(sure & (value != 0), F.lit(False)))
    assert one.rows is not None
    before = F.coalesce(F.col(f"{_OLD}.{quoted(names[one.rows.column])}"), F.lit(0))
    left = _count(one.rows, names, came)
    argument = rows[f"a{number}"].dataType
    if one.sum is not None:
        total, exact = F.col(f"{_OLD}.{quoted(names[one.sum.column])}"), F.lit(True)
    elif isinstance(argument, DecimalType):
        total = F.round(old * before.cast("decimal(5,0)"), argument.scale).cast(change_type(argument))
        total, exact = F.when(before < MOST_AVERAGED, total), (before < MOST_AVERAGED)
    else:
        product = old * before.cast("double")
        exact = old.isNull() | (F.abs(product) < MOST_WHOLE)
        total = F.when(exact, F.round(product).cast("long"))
    total = F.coalesce(total, F.lit(0).cast(_sum_type(argument))) + change
    if isinstance(argument, DecimalType):
        small = left < MOST_DIVIDED
        value = F.when((left > 0) & small, (total.cast(change_type(argument)) / left.cast("decimal(10,0)")).cast(kind))
    else:
        small = F.abs(total.cast("double")) < MOST_WHOLE
        value = F.when(left > 0, total.cast("double") / left.cast("double"))
    return _Value(value, (left >= 0) & exact & small, left > 0)


def _extreme(aggregate: ResultAggregate, old: Column) -> _Value:
    """A least (greatest) value: the old one, unless it may have gone and nothing as good came."""
    least = aggregate.kind is AggregateKind.LEAST
    mark = f"{aggregate.kind.value}{aggregate.argument}"
    came, went = F.col(f"{_CAME}{mark}"), F.col(f"{_WENT}{mark}")
    reached = F.coalesce(went <= old if least else went >= old, went.isNotNull())
    better = F.coalesce(came <= old if least else came >= old, F.lit(False))
    value = F.least(old, came) if least else F.greatest(old, came)
    value = F.when(better, came).otherwise(value)
    sure = ~reached | better
    return _Value(value, sure, sure & value.isNotNull())


def _count(rows: ResultAggregate, names: Mapping[str, str], came: Column) -> Column:
    """How many rows are left, by the stored count and those that came."""
    more = F.col(_ROWS) if rows.kind is AggregateKind.COUNT_ROWS else came
    return F.coalesce(F.col(f"{_OLD}.{quoted(names[rows.column])}"), F.lit(0)) + more


def change_type(argument: DecimalType) -> DecimalType:
    """The type of a sum of decimals, as Spark has it."""
    return DecimalType(min(38, argument.precision + 10), argument.scale)


def _sum_type(argument: DataType) -> DataType:
    return change_type(argument) if isinstance(argument, DecimalType) else LongType()
