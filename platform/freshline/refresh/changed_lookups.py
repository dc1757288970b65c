"""Changed rows below lookup joins: rows of the table go with those that went, and those that came are looked up.

All other rows stay as they are, with the dimension rows that they were joined with. Rows of the table are found by
their own columns, see `freshline.query.rules.lookups`. A refresh follows changes of inputs by it, and `verify` does so
again.

Several rows of the table may have the same own columns. Where some of their rows of the input went and others stay, and
all of them are equal, that many are left. Where they are not, nobody knows which of them went: then the rows that stay
are looked up again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from freshline.compute.fold import as_stored
from freshline.compute.inputs import Pinned, shadow_inputs
from freshline.compute.keys import Keys, keys_of, typed
from freshline.compute.materialize import materialize_once
from freshline.compute.netting import comparable, is_compared, is_loosely_equal, net_by, without
from freshline.compute.read_only import read_only
from freshline.query.rules.algebra import SIGN
from freshline.query.rules.lookups import Lookups
from freshline.refresh.computed_rows import run_before_constraints
from freshline.values.names import TableName, quoted
from freshline.values.reason import Reason
from freshline.values.spec import TableSpec

# Whether a row was looked up by this refresh.
FRESH = "_freshline_fresh"
_WENT, _BEFORE, _STORED, _KINDS = (f"_freshline_{name}" for name in ("rows_went", "before", "stored", "kinds"))
_KEPT, _NUMBER = "_freshline_kept", "_freshline_number"


class NotToldApartError(Exception):
    """Of rows with retries of lookups that are alike, it is not known which went; the reason says so."""

    def __init__(self) -> None:
        self.reason = Reason("UNSUPPORTED", "rows with retries of lookups that cannot be told apart")
        super().__init__(str(self.reason))


@dataclass(frozen=True)
class ChangedInput:
    """An input as it was, as it is, and the rows that came (SIGN 1) and went (-1) between, as often as they did.

    `only_came` is how many rows came where none went, None where some may have gone.
    """

    name: TableName
    before: DataFrame
    after: DataFrame
    signed: DataFrame
    only_came: int | None = None


@dataclass(frozen=True)
class AddedRows:
    """New rows of the table, and how many."""

    rows: tuple[DataFrame, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class FollowedLookups:
    """The table after changes: all of its rows with FRESH, and the own columns of the rows that differ, if any do.

    `waiting` are the rows of the input that wait for a dimension and have not gone, None for a table without such.
    `changed`: rows of inputs have changed, whether or not those of the table differ. `added` are the new rows where
    all that were there stay, else None.
    """

    rows: DataFrame
    touched: tuple[DataFrame, ...] = ()
    added: AddedRows | None = AddedRows()
    waiting: DataFrame | None = None
    changed: bool = False

    def keys(self) -> Keys | None:
        """The own columns of the rows that differ; None where none does."""
        return keys_of(reduce(DataFrame.unionAll, self.touched).distinct()) if self.touched else None


# The rows of the table for new rows of the input, and for those that wait on.
LookUp = Callable[[DataFrame, DataFrame | None], DataFrame]


@dataclass(frozen=True)
class _Phase:
    spark: SparkSession
    spec: TableSpec
    pins: Mapping[TableName, Pinned]
    lookups: Lookups
    frames: Mapping[TableName, DataFrame]
    fields: tuple[StructField, ...]

    @property
    def names(self) -> list[str]:
        return [quoted(field.name) for field in self.fields]

    def own_rows(self, frames: Mapping[TableName, DataFrame]) -> DataFrame:
        """The own columns of what inputs give, without those that cannot be compared."""
        shadow_inputs({**self.frames, **frames})
        rows = read_only(self.spark, self.lookups.own.text).toDF(*self.lookups.own.columns)
        rows = as_stored(rows, self.spec).select(*self.names)
        return typed(rows, StructType(list(self.fields)))

    def look_up(self, frames: Mapping[TableName, DataFrame]) -> DataFrame:
        """The rows of the declared query over what inputs give."""
        shadow_inputs({**self.frames, **frames})
        return run_before_constraints(self.spark, self.spec, self.pins)


def follow_changes(
    spark: SparkSession,
    spec: TableSpec,
    pins: Mapping[TableName, Pinned],
    lookups: Lookups,
    inputs: Mapping[TableName, DataFrame],
    changed: Sequence[ChangedInput],
    stored: DataFrame,
    *,
    waiting: DataFrame | None = None,
    look_up: LookUp | None = None,
) -> FollowedLookups:
    """The rows of the table after one input after the other has changed; constraints are not checked.

    `inputs` are all inputs as they are now, `stored` the rows of the table, `waiting` the rows of its input that wait
    for a dimension beside it, and `look_up` looks new rows up where some may wait. Raises NotToldApartError.
    """
    known = {field.name.lower(): field for field in stored.schema.fields}
    fields = tuple(known[name] for name in lookups.columns if is_compared(known[name].dataType))
    frames = {**inputs, **{each.name: each.before for each in changed}}
    found = FollowedLookups(stored.withColumn(FRESH, F.lit(False)), waiting=waiting)
    for each in changed:
        phase = _Phase(spark, spec, pins, lookups, frames, fields)
        found = _follow(phase, each, found, look_up)
        frames = {**frames, each.name: each.after}
    shadow_inputs(frames)
    return found


def _follow(phase: _Phase, change: ChangedInput, found: FollowedLookups, look_up: LookUp | None) -> FollowedLookups:
    name, columns = change.name, found.rows.drop(FRESH).columns
    read = phase.lookups.own.columns_read(name.view.lower())
    read_columns = [column for column in change.after.columns if column.lower() in read]
    if change.only_came is None:
        # An update of columns that the query does not read is no change.
        net, count = materialize_once(net_by(change.signed, read_columns))
    else:
        net, count = materialize_once(change.signed, expected=change.only_came)
    if count == 0 and found.waiting is None:
        return found
    came, went = (net.where(F.col(SIGN) == sign).drop(SIGN) for sign in (1, -1))
    waiting = found.waiting
    if waiting is not None:
        # Of rows that are equal, those that wait go first.
        went, waiting = without(went, waiting, read_columns), without(waiting, went, read_columns)
    empty = phase.lookups.branches.delta_inputs(frozenset({name}))
    assert not isinstance(empty, Reason)
    beside = {each: phase.frames[each].limit(0) for each in empty if each != name}
    rows, again, touched, added = found.rows, None, [], found.added
    gone: DataFrame | None = None
    if change.only_came is None:
        counted = phase.own_rows({**beside, name: went}).groupBy(*phase.names).agg(F.count(F.lit(1)).alias(_WENT))
        found_gone, many = materialize_once(counted)
        gone = found_gone if many else None
    if gone is not None:
        added = None
        keys = keys_of(gone.select(*phase.names))
        touched.append(keys.rows)
        old = keys.restrict(rows)
        decided = _decide(phase, change, keys, gone, old, found.waiting)
        kept = _kept(phase, old, decided)
        again = keys_of(decided.where(F.col(_KEPT).isNull()).select(*phase.names))
        rows = keys.leave(rows).unionByName(kept)
    new = look_up(came, waiting) if look_up is not None else phase.look_up({**beside, name: came})
    new = new.select(*[F.col(quoted(column)) for column in columns])
    if again is not None and again.count:
        if look_up is not None:
            raise NotToldApartError
        every = phase.look_up({name: change.after}).select(*[F.col(quoted(column)) for column in columns])
        new = again.leave(new).unionByName(again.restrict(every))
    new, many = materialize_once(new, expected=count)
    if many:
        touched.append(new.select(*phase.names).distinct())
        rows = rows.unionByName(new.withColumn(FRESH, F.lit(True)))
        added = None if added is None else AddedRows((*added.rows, new), added.count + many)
    changed = found.changed or count > 0
    return replace(found, rows=rows, touched=(*found.touched, *touched), waiting=waiting, changed=changed, added=added)


def _decide(
    phase: _Phase, change: ChangedInput, keys: Keys, gone: DataFrame, old: DataFrame, waiting: DataFrame | None
) -> DataFrame:
    """By own columns how many of the stored rows stay, as _KEPT: NULL where it is not known which of them do.

    `gone` counts the rows that went, and `old` are the stored rows.
    """

    def counted(rows: DataFrame, **counts: Column) -> DataFrame:
        every = [counts.get(name.removeprefix("_freshline_"), F.lit(0)) for name in (_WENT, _BEFORE, _STORED, _KINDS)]
        named = zip(every, (_WENT, _BEFORE, _STORED, _KINDS), strict=True)
        return rows.select(*phase.names, *[column.cast("bigint").alias(name) for column, name in named])

    parts = [
        counted(gone, rows_went=F.col(_WENT)),
        counted(keys.restrict(phase.own_rows({change.name: change.before})), before=F.lit(1)),
        counted(_by_value(phase, old), stored=F.col(_STORED), kinds=F.lit(1)),
    ]
    if waiting is not None:
        # A waiting row has no row in the table. It may lack a column that the input gained, which is not read.
        absent = change.before.limit(0).unionByName(waiting, allowMissingColumns=True)
        parts.append(counted(keys.restrict(phase.own_rows({change.name: absent})), before=F.lit(-1)))
    sums = [F.sum(name).alias(name) for name in (_WENT, _BEFORE, _STORED, _KINDS)]
    summed = reduce(DataFrame.unionAll, parts).groupBy(*phase.names).agg(*sums)
    left = F.col(_BEFORE) - F.col(_WENT)
    kept = F.when((left <= 0) | (F.col(_STORED) == 0), F.lit(0))
    kept = kept.when((F.col(_KINDS) == 1) & (F.col(_STORED) == F.col(_BEFORE)), left)
    decided, _ = materialize_once(summed.select(*phase.names, kept.cast("bigint").alias(_KEPT)))
    return decided


def _by_value(phase: _Phase, rows: DataFrame) -> DataFrame:
    """The own columns of each of the different rows, with how often it is there as _STORED."""
    by = []
    left_out = {FRESH, *(field.name for field in phase.fields)}
    for number, field in enumerate(each for each in rows.schema.fields if each.name not in left_out):
        column = F.col(quoted(field.name))
        by.append(comparable(field.dataType, column).alias(f"_freshline_by{number}"))
        if is_loosely_equal(field.dataType):
            by.append(column.cast("string").alias(f"_freshline_text{number}"))
    return rows.groupBy(*phase.names, *by).agg(F.count(F.lit(1)).alias(_STORED))


def _kept(phase: _Phase, old: DataFrame, decided: DataFrame) -> DataFrame:
    """The stored rows that stay, of rows that are equal where only some do."""
    few = decided.where(F.col(_KEPT) > 0).select(
        *[F.col(name).alias(f"_freshline_own{number}") for number, name in enumerate(phase.names)], _KEPT
    )
    on = [F.col(name).eqNullSafe(F.col(f"_freshline_own{number}")) for number, name in enumerate(phase.names)]
    number = F.row_number().over(Window.partitionBy(*phase.names).orderBy(F.lit(0)))
    numbered = old.withColumn(_NUMBER, number).join(F.broadcast(few), on)
    return numbered.where(F.col(_NUMBER) <= F.col(_KEPT)).select(*[quoted(name) for name in old.columns])
