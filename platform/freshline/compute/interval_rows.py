"""The rows of a key near its changed rows: within which times, read from an input, and stored in the table.

For sessions these are the changed times, and the old sessions that one of them is at most a gap away from. An old
session that is none of them keeps its rows, and no changed row is near enough to join it. So the rows within these
times make the sessions that they make among all rows of their keys.

For matches WITHIN an interval w these are the times from c - w on, where c is the first changed time: a match that
began at or before c - w had no row at c or behind it, and stays, as does a beginning that led to none. A match that
began there may have rows behind c - w, and the next one begins where it skips to. Then the times from its first row on
are read, where no other row has the time of that one: so the search begins with the same row.

Where matches begin far behind the last changed row, the times up to a little behind it are read first. Among these a
match may begin with an unchanged row with which an old match begins. From that row on the search goes on as it did, so
the old matches behind it stay. Only the other keys are read to their end.

For windows of so many rows these are the times behind the last row of a window that ends before the first changed time.
A window that begins with the next row then has its old number, and the query, which counts from 0, gets the amount by
which its numbers are to grow. The table says which window that is, and how many rows are before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from freshline.compute.covering_ranges import cover_ranges
from freshline.compute.keys import BROADCAST_KEYS, Keys, keys_of
from freshline.compute.literal import EPOCH, sql_literal
from freshline.compute.materialize import FEW_ROWS, has_rows, materialize_once
from freshline.query.rules.affected_interval import AffectedInterval, AffectedSessions, Bound, Counted, Matches
from freshline.values.names import quoted

# Types of which equal values are one value.
_IDENTICAL = (BinaryType, BooleanType, DateType, DecimalType, IntegralType, StringType, TimestampType)
# Of more stretches of time each key has one, from its first to its last.
MOST = 10_000
# Of so many old matches of a key, the last ones, one has to begin at a time of its own.
MOST_MATCHES = 8
# The search for an old match that begins as before covers so many intervals behind the last changed row, of so many
# keys.
AHEAD = 8
MOST_AHEAD = 1_000
# The end of a stretch that has none.
OPEN = 2**63 - 1
_AT, _LOW, _HIGH, _NUMBER = "freshline_at", "freshline_low", "freshline_high", "freshline_number"
_LAST, _MET = "freshline_last", "freshline_met"


@dataclass(frozen=True)
class Inputs:
    """All rows of the input that changed, before and after the changes."""

    before: DataFrame
    after: DataFrame


@dataclass(frozen=True)
class IntervalRows:
    """Stretches of time by key: `rows` have the key's columns by number, and both ends in microseconds, included.

    `ends` are stretches that together cover all of them, few enough for a condition.
    """

    stretch: AffectedInterval
    keys: Keys
    rows: DataFrame
    count: int
    ends: Sequence[tuple[int, int]]

    def read(self, rows: DataFrame) -> DataFrame:
        """The rows of the input that lie in them."""
        stretch, column = self.stretch, quoted(self.stretch.time)
        text = _within(self.ends, column)
        return self._in(rows if text is None else rows.where(text), stretch.keys, Bound(stretch.time))

    def stored(self, rows: DataFrame) -> DataFrame:
        """The rows of the table that are of sessions or matches in them."""
        place = self.stretch.place
        text = _within([(low + place.moved, high + place.moved) for low, high in self.ends], quoted(place.column))
        return self._in(rows if text is None else rows.where(text), self.stretch.key_columns, place)

    def placed(self, rows: DataFrame) -> DataFrame:
        """The rows that the query gives of what was read, as it gives them of all rows."""
        return rows

    def _of_keys(self, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
        for column, name in zip(columns, self.keys.columns if columns else (), strict=True):
            span = self.keys.spans[name]
            if span is not None:
                rows = rows.where(span.text(quoted(column)))
        return rows

    def _in(self, rows: DataFrame, columns: Sequence[str], place: Bound) -> DataFrame:
        rows = self._of_keys(rows, columns)
        at = F.unix_micros(F.col(quoted(place.column))) - place.moved
        on = [*_same(_key(columns)), at >= F.col(_LOW), at <= F.col(_HIGH)]
        return rows.join(_sent(self.rows, self.count), on, "left_semi")


@dataclass(frozen=True)
class CountedIntervalRows(IntervalRows):
    """Stretches of which `rows` also have the number of the first window."""

    def stored(self, rows: DataFrame) -> DataFrame:
        columns, number = self.stretch.key_columns, quoted(self.stretch.place.column)
        on = [*_same(_key(columns)), F.col(number) >= F.col(_NUMBER)]
        return self._of_keys(rows, columns).join(_sent(self.rows, self.count), on, "left_semi")

    def placed(self, rows: DataFrame) -> DataFrame:
        number = self.stretch.place.column
        named = _sent(self.rows.drop(_LOW, _HIGH), self.count)
        joined = rows.join(named, _same(_key(self.stretch.key_columns)))
        moved = (F.col(quoted(number)) + F.col(_NUMBER)).alias(number)
        return joined.select(*[moved if name == number else F.col(quoted(name)) for name in rows.columns])


@dataclass(frozen=True)
class MatchIntervalRows(IntervalRows):
    """Stretches of which `rows` also have the last changed time."""

    def ahead(self, table: DataFrame) -> MatchIntervalRows | None:
        """The same stretches with an end; None where no match of the table begins behind it."""
        stretch = self.stretch
        assert isinstance(stretch, Matches)
        if self.count > MOST_AHEAD:
            return None
        high = (F.col(_LAST) + AHEAD * stretch.within).alias(_HIGH)
        ended, count = materialize_once(self.rows.select(*_numbered(stretch), _LOW, high, _LAST))
        began, (least, _) = quoted(stretch.began.column), min(_ends(ended, count, _HIGH, _HIGH))
        text = _text(began, ">", least, began, "<=", OPEN)
        on = [*_same(_key(stretch.key_columns)), F.unix_micros(F.col(began)) > F.col(_HIGH)]
        behind = table if text is None else table.where(text)
        if not has_rows(behind.join(_sent(ended, count), on, "left_semi")):
            return None
        return replace(self, rows=ended, count=count, ends=_ends(ended, count, _LOW, _HIGH))

    def met(self, new: DataFrame, table: DataFrame, rows: DataFrame) -> tuple[DataFrame, int]:
        """Keys, with the first time behind the changes at which a match of `new` begins as an old one does."""
        stretch = self.stretch
        assert isinstance(stretch, Matches)
        names, numbered = _names(stretch), _numbered(stretch)
        shown = [column.alias(name) for column, name in zip(_key(stretch.key_columns), names, strict=True)]
        at = F.unix_micros(F.col(quoted(stretch.began.column))).alias(_AT)
        # A match is decided by the rows of one interval from its first one on.
        decided = (F.col(_AT) > F.col(_LAST)) & (F.col(_AT) <= F.col(_HIGH) - stretch.within)
        of_key = [*_same(_named(names)), decided]
        again = new.select(*shown, at).join(_sent(self.rows, self.count), of_key, "left_semi").distinct()
        old = self.stored(table).select(*shown, at).distinct().toDF(*numbered, _LOW)
        again = again.join(old, [*_same(_named(names)), F.col(_AT) == F.col(_LOW)], "left_semi")
        place = F.row_number().over(Window.partitionBy(*names).orderBy(_AT))
        first, count = materialize_once(
            again.withColumn("place", place).where(F.col("place") <= MOST_MATCHES).drop("place")
        )
        alone = _alone(stretch, rows, first, count)
        return materialize_once(alone.groupBy(*names).agg(F.min(_AT).alias(_MET)))


def compute_interval_rows(
    near: IntervalRows, rows: DataFrame, table: DataFrame, compute: Callable[[IntervalRows], tuple[DataFrame, int]]
) -> tuple[IntervalRows, DataFrame, int]:
    """The rows of the result in the stretches, computed again, and how many; with the stretches that these are of.

    `rows` are the input's, `table` the stored ones. `compute` gives the rows of the result in some stretches.
    """
    ahead = near.ahead(table) if isinstance(near, MatchIntervalRows) else None
    if ahead is None:
        return near, *compute(near)
    stretch = near.stretch
    found, _ = compute(ahead)
    met, count = ahead.met(found, table, rows)
    if count == 0:
        return near, *compute(near)
    names, numbered = _names(stretch), _numbered(stretch)
    sent = _sent(met.toDF(*names, _MET), count)
    of_key = [F.col(name).eqNullSafe(F.col(number)) for name, number in zip(names, numbered, strict=True)]
    at = F.unix_micros(F.col(quoted(stretch.place.column)))
    before = [column.eqNullSafe(F.col(name)) for column, name in zip(_key(stretch.key_columns), names, strict=True)]
    kept = found.join(sent, [*before, at < F.col(_MET)], "left_semi")
    if count < near.count:
        others, some = materialize_once(near.rows.join(sent, of_key, "left_anti"))
        more, _ = compute(replace(near, rows=others, count=some, ends=_ends(others, some, _LOW, _HIGH)))
        kept = kept.unionAll(more)
    high = F.coalesce(F.col(_MET) - 1, F.lit(OPEN)).alias(_HIGH)
    ended, every = materialize_once(near.rows.join(sent, of_key, "left").select(*numbered, _LOW, high))
    new, many = materialize_once(kept)
    return IntervalRows(stretch, near.keys, ended, every, _ends(ended, every, _LOW, _HIGH)), new, many


def is_served(stretch: AffectedInterval, input_: StructType, table: StructType, partitioned_by: Sequence[str]) -> bool:
    """Whether the keys of an input and of the table are the same values, and the times are times.

    A text that is a partition of the table is not: an empty one is stored as NULL.
    """
    read, kept = ({field.name.lower(): field.dataType for field in schema.fields} for schema in (input_, table))
    partitions = {column.lower() for column in partitioned_by}

    def served(column: str, shown: str) -> bool:
        kind = read.get(column.lower())
        same = kind is not None and isinstance(kind, _IDENTICAL) and "collate" not in kind.simpleString()
        as_text = isinstance(kind, StringType) and shown.lower() in partitions
        return same and kept.get(shown.lower()) == kind and not as_text

    match stretch:
        case Counted():
            if kept.get(stretch.number.lower()) != LongType():
                return False
            bounds = [stretch.first, stretch.last]
        case AffectedSessions() if stretch.last is not None:
            bounds = [stretch.place, stretch.last]
        case _:
            bounds = [stretch.place]
    times: list[DataType | None] = [read.get(stretch.time.lower())]
    times += [kept.get(bound.column.lower()) for bound in bounds]
    return all(isinstance(kind, TimestampType) for kind in times) and all(
        served(column, shown) for column, shown in zip(stretch.keys, stretch.key_columns, strict=True)
    )


def interval_changes(
    stretch: AffectedInterval, changed: DataFrame, inputs: Inputs, table: DataFrame | None
) -> IntervalRows | None:
    """The stretches near changed rows of an input: rows as they were before or after the changes.

    Which sessions there were is asked of the table, or of the input before the changes where it is None. None where all
    rows of the keys are to be read.
    """
    match stretch:
        case AffectedSessions() if table is None and not stretch.keys:
            # The times of all rows would be read in one partition.
            return None
        case AffectedSessions():
            return _session_interval_rows(stretch, changed, inputs.before, table)
        case Matches() if table is not None:
            return _match_interval_rows(stretch, changed, inputs.after, table)
        case Counted() if table is not None:
            return _counted_interval_rows(stretch, changed, inputs.after, table)
        case _:
            return None


def _session_interval_rows(
    sessions: AffectedSessions, changed: DataFrame, before: DataFrame, table: DataFrame | None
) -> IntervalRows:
    names, numbered = _names(sessions), _numbered(sessions)
    times, many = materialize_once(_times(sessions, changed).where(F.col(_AT).isNotNull()).distinct())
    keys = keys_of(times.select(*names).distinct())
    if table is not None and sessions.first is not None and sessions.last is not None:
        old = _stored_sessions(sessions, table, _ends(times, many, _AT, _AT))
    else:
        old = _sessions_of(sessions, before, keys)
    touched = F.col(_AT).between(F.col(_LOW) - sessions.gap, F.col(_HIGH) + sessions.gap)
    named = _sent(times.toDF(*numbered, _AT), many)
    rows = old.join(named, [*_same(_named(names)), touched], "left_semi")
    rows = rows.unionAll(times.select(*names, F.col(_AT).alias(_LOW), F.col(_AT).alias(_HIGH))).distinct()
    found, count = materialize_once(rows)
    if count > MOST:
        found, count = materialize_once(found.groupBy(*names).agg(F.min(_LOW).alias(_LOW), F.max(_HIGH).alias(_HIGH)))
    return IntervalRows(sessions, keys, found.toDF(*numbered, _LOW, _HIGH), count, _ends(found, count, _LOW, _HIGH))


def _match_interval_rows(
    matches: Matches, changed: DataFrame, after: DataFrame, table: DataFrame
) -> IntervalRows | None:
    names, numbered, within = _names(matches), _numbered(matches), matches.within
    times = _times(matches, changed)
    lone = F.bool_or(F.col(_AT).isNull()).alias("lone")
    bounds, many = materialize_once(times.groupBy(*names).agg(F.min(_AT).alias(_AT), lone, F.max(_AT).alias(_LAST)))
    if has_rows(bounds.where("lone")):
        # A row without a time stands before all others.
        return None
    first = bounds.select(*names, _AT)
    keys = keys_of(first.select(*names))
    began = [(low - 2 * within + 1, high - within) for low, high in _ends(first, many, _AT, _AT)]
    text = _within(began, quoted(matches.began.column))
    shown = [column.alias(name) for column, name in zip(_key(matches.key_columns), names, strict=True)]
    stored = table if text is None else table.where(text)
    stored = stored.select(*shown, F.unix_micros(F.col(quoted(matches.began.column))).alias(_LOW))
    named = _sent(first.toDF(*numbered, _AT), many)
    before = F.col(_LOW).between(F.col(_AT) - (2 * within - 1), F.col(_AT) - within)
    old = stored.join(named, [*_same(_named(names)), before], "left_semi").distinct()
    place = F.row_number().over(Window.partitionBy(*names).orderBy(F.desc(_LOW)))
    last, count = materialize_once(old.withColumn("place", place).where(F.col("place") <= MOST_MATCHES).drop("place"))
    # One row has the time with which one of these matches begins, or it is not known which of them began.
    alone = _alone(matches, after, last, count).groupBy(*names).agg(F.max(_AT).alias(_LOW))
    some = last.groupBy(*names).agg(F.count("*").alias("matches"))
    begun = some.join(_sent(alone.toDF(*numbered, _LOW), count), _same(_named(names)), "left").select(
        *names, "matches", _LOW
    )
    begun = begun.toDF(*numbered, "matches", _LOW)
    rows = bounds.drop("lone").join(_sent(begun, count), _same(_named(names)), "left")
    low = F.coalesce(_LOW, F.col(_AT) - within + 1).alias(_LOW)
    unknown = (F.col("matches").isNotNull() & F.col(_LOW).isNull()).alias("unknown")
    found, count = materialize_once(rows.select(*names, low, F.lit(OPEN).alias(_HIGH), _LAST, unknown))
    if has_rows(found.where("unknown")):
        return None
    found = found.drop("unknown")
    named = found.toDF(*numbered, _LOW, _HIGH, _LAST)
    return MatchIntervalRows(matches, keys, named, count, _ends(found, count, _LOW, _HIGH))


def _alone(stretch: AffectedInterval, rows: DataFrame, times: DataFrame, count: int) -> DataFrame:
    """Those of some keys and times that one row has, and no other."""
    names, numbered = _names(stretch), _numbered(stretch)
    named = times.toDF(*numbered, _LOW)
    text = _within(_ends(named, count, _LOW, _LOW), quoted(stretch.time)) if count else "false"
    there = _times(stretch, rows if text is None else rows.where(text))
    on = [*_same(_named(names)), F.col(_AT) == F.col(_LOW)]
    there = there.join(_sent(named, count), on, "left_semi")
    return there.groupBy(*names, _AT).count().where("count = 1").drop("count")


def _counted_interval_rows(counted: Counted, changed: DataFrame, after: DataFrame, table: DataFrame) -> IntervalRows:
    names, numbered, by = _names(counted), _numbered(counted), counted.overlap
    times = _times(counted, changed).where(F.col(_AT).isNotNull())
    first, many = materialize_once(times.groupBy(*names).agg(F.min(_AT).alias(_AT)))
    keys = keys_of(first.select(*names))
    bounds = [F.unix_micros(F.col(quoted(each.column))) - each.moved for each in (counted.first, counted.last)]
    shown = [column.alias(name) for column, name in zip(_key(counted.key_columns), names, strict=True)]
    number = F.col(quoted(counted.number)).alias(_NUMBER)
    windows = keys.restrict(table.select(*shown, number, bounds[0].alias(_LOW), bounds[1].alias(_HIGH)).distinct())
    windows = windows.join(_sent(first.toDF(*numbered, _AT), many), _same(_named(names)))
    of_key = Window.partitionBy(*names)
    in_order = of_key.orderBy(_NUMBER)
    # Windows before the first one with a row at or behind the change are full; without such, the last one with which
    # the others share no row is.
    hit = F.min(F.when(F.col(_HIGH) >= F.col(_AT), F.col(_NUMBER))).over(of_key)
    last = F.coalesce(hit, F.max(_NUMBER).over(of_key) - (by - 1))
    end = F.lag(_HIGH, by).over(in_order)
    follows = (F.lag(_NUMBER, by).over(in_order) == F.col(_NUMBER) - by) & (end < F.col(_LOW))
    choice = F.when(follows & (F.col(_NUMBER) <= last), F.struct(F.col(_NUMBER), end.alias(_HIGH))).alias("choice")
    chosen = (
        windows.select(*names, _LOW, choice).groupBy(*names).agg(F.min(_LOW).alias(_LOW), F.max("choice").alias("c"))
    )
    begun, count = materialize_once(chosen.select(*names, _LOW, F.col(f"c.{_NUMBER}"), F.col(f"c.{_HIGH}")))
    # Equal rows have one place, and the next row another one than the number of rows says: then the key is read whole.
    ended, some = materialize_once(begun.where(F.col(_HIGH).isNotNull()).select(*names, _HIGH))
    text = _within(_ends(ended, some, _HIGH, _HIGH), quoted(counted.time)) if some else "false"
    order = [F.col(quoted(column)).alias(f"freshline_o{place}") for place, column in enumerate(counted.order)]
    at_end = after if text is None else after.where(text)
    shown = [column.alias(name) for column, name in zip(_key(counted.keys), names, strict=True)]
    at_end = at_end.select(*shown, F.unix_micros(F.col(quoted(counted.time))).alias(_AT), *order)
    ends = _sent(ended.toDF(*numbered, _HIGH), some)
    at_end = at_end.join(ends, [*_same(_named(names)), F.col(_AT) == F.col(_HIGH)], "left_semi")
    places = [f"freshline_o{place}" for place in range(len(order))]
    twice = at_end.groupBy(*names, *places).count().where("count > 1").select(*names).distinct()
    doubtful = twice.withColumn("twice", F.lit(True)).toDF(*numbered, "twice")
    begun = begun.join(_sent(doubtful, count), _same(_named(names)), "left").select(*begun.columns, "twice")
    sure = F.col("twice").isNull() & F.col(_NUMBER).isNotNull()
    low = F.when(sure, F.col(_HIGH) + 1).otherwise(F.col(_LOW)).alias(_LOW)
    begun = begun.select(*names, low, F.when(sure, F.col(_NUMBER)).alias(_NUMBER)).toDF(*numbered, _LOW, _NUMBER)
    rows = first.join(_sent(begun, count), _same(_named(names)), "left")
    # Of a key that begins, or is read whole, rows may come before those that it had.
    low = F.least(F.coalesce(_LOW, _AT), F.when(F.col(_NUMBER).isNull(), F.col(_AT))).alias(_LOW)
    rows = rows.select(*names, low, F.lit(OPEN).alias(_HIGH), F.coalesce(_NUMBER, F.lit(0)).alias(_NUMBER))
    found, count = materialize_once(rows)
    named = found.toDF(*numbered, _LOW, _HIGH, _NUMBER)
    return CountedIntervalRows(counted, keys, named, count, _ends(found, count, _LOW, _HIGH))


def _times(stretch: AffectedInterval, rows: DataFrame) -> DataFrame:
    """The keys and times of rows of the input."""
    shown = [column.alias(name) for column, name in zip(_key(stretch.keys), _names(stretch), strict=True)]
    return rows.select(*shown, F.unix_micros(F.col(quoted(stretch.time))).alias(_AT))


def _key(columns: Sequence[str]) -> list[Column]:
    """The columns of the key; where all rows are of one key, it has one value."""
    return _named(columns) or [F.lit(True)]


def _named(columns: Sequence[str]) -> list[Column]:
    return [F.col(quoted(column)) for column in columns]


def _numbered(stretch: AffectedInterval) -> list[str]:
    return [f"freshline_k{number}" for number, _ in enumerate(_key(stretch.keys))]


def _names(stretch: AffectedInterval) -> list[str]:
    return [f"freshline_s{number}" for number, _ in enumerate(_key(stretch.keys))]


def _same(columns: Sequence[Column]) -> list[Column]:
    return [column.eqNullSafe(F.col(f"freshline_k{number}")) for number, column in enumerate(columns)]


def _sent(rows: DataFrame, count: int) -> DataFrame:
    return F.broadcast(rows) if count <= BROADCAST_KEYS else rows


def _stored_sessions(sessions: AffectedSessions, table: DataFrame, ends: Sequence[tuple[int, int]]) -> DataFrame:
    """The sessions of the table that may be near some times, by their keys and bounds."""
    assert sessions.first is not None
    assert sessions.last is not None
    low, high = (F.unix_micros(F.col(quoted(each.column))) - each.moved for each in (sessions.first, sessions.last))
    gap, moved = sessions.gap, sessions.last.moved
    first, last = quoted(sessions.first.column), quoted(sessions.last.column)
    texts = [_text(last, ">=", least - gap + moved, first, "<=", greatest + gap) for least, greatest in ends]
    if texts and all(texts):
        table = table.where(" OR ".join(f"({text})" for text in texts))
    shown = [column.alias(name) for column, name in zip(_key(sessions.key_columns), _names(sessions), strict=True)]
    return table.select(*shown, low.alias(_LOW), high.alias(_HIGH))


def _sessions_of(sessions: AffectedSessions, rows: DataFrame, keys: Keys) -> DataFrame:
    """The sessions of all rows of some keys, by their keys and bounds.

    Where the query leaves rows out before it makes sessions, those here are wider: they contain whole ones of the
    query.
    """
    names = _names(sessions)
    times = keys.restrict(_times(sessions, rows))
    of_key = Window.partitionBy(*names).orderBy(_AT)
    before = F.lag(_AT).over(of_key)
    begins = F.when(before.isNull() | (F.col(_AT) - before > sessions.gap), 1).otherwise(0)
    begun = times.where(F.col(_AT).isNotNull()).withColumn("freshline_begins", begins)
    numbered = begun.withColumn("freshline_number", F.sum("freshline_begins").over(of_key))
    return (
        numbered.groupBy(*names, "freshline_number")
        .agg(F.min(_AT).alias(_LOW), F.max(_AT).alias(_HIGH))
        .drop("freshline_number")
    )


def _ends(rows: DataFrame, count: int, low: str, high: str) -> list[tuple[int, int]]:
    """A few stretches that cover all of the given ones."""
    if count == 0:
        return []
    if count <= FEW_ROWS:
        return cover_ranges((row[0], row[1]) for row in rows.select(low, high).collect())
    least, greatest = rows.agg(F.min(low), F.max(high)).collect()[0]
    return [(least, greatest)]


def _within(ends: Sequence[tuple[int, int]], column: str) -> str | None:
    texts = [_text(column, ">=", least, column, "<=", greatest) for least, greatest in ends]
    return " OR ".join(f"({text})" for text in texts) if texts and all(texts) else None


def _text(low: str, after: str, least: int, high: str, before: str, greatest: int) -> str | None:
    """A condition on two columns of times; None where an end lies outside of the years that have a literal."""
    try:
        literals = [sql_literal(EPOCH + timedelta(microseconds=end)) for end in (least, greatest) if end != OPEN]
    except OverflowError:
        return None
    upper = f" AND {high} {before} {literals[1]}" if greatest != OPEN else ""
    return f"{low} {after} {literals[0]}{upper}"
