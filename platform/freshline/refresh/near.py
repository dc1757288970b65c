"""The rows of a key near its changed rows: within which times, read from an input, and stored in the table.

For sessions these are the changed times, and the old sessions that one of them is at most a gap away from. An old
session that is none of them keeps its rows, and no changed row is near enough to join it. So the rows within these
times make the sessions that they make among all rows of their keys.

For matches WITHIN an interval w these are the times from c - w on, where c is the first changed time: a match that
began at or before c - w had no row at c or behind it, and stays, as does a beginning that led to none. A match that
began there may have rows behind c - w, and the next one begins where it skips to. Then the times from its first row on
are read, where no other row has the time of that one: so the search begins with the same row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    StringType,
    StructType,
    TimestampType,
)

from freshline.query.rules.stretch import Bound, Matches, Sessions, Stretch
from freshline.refresh.keys import BROADCAST_KEYS, Keys, keys_of
from freshline.refresh.literal import EPOCH, quoted, sql_literal
from freshline.refresh.materialize import FEW_ROWS, materialize_once
from freshline.refresh.stretches import stretches

# Types of which equal values are one value.
_IDENTICAL = (BinaryType, BooleanType, DateType, DecimalType, IntegralType, StringType, TimestampType)
# Of more stretches of time each key has one, from its first to its last.
MOST = 10_000
# Of so many old matches of a key, the last ones, one has to begin at a time of its own.
MOST_MATCHES = 8
# The end of a stretch that has none.
OPEN = 2**63 - 1
_AT, _LOW, _HIGH = "freshline_at", "freshline_low", "freshline_high"


@dataclass(frozen=True)
class Inputs:
    """All rows of the input that changed, before and after the changes."""

    before: DataFrame
    after: DataFrame


@dataclass(frozen=True)
class Near:
    """Stretches of time by key: `rows` have the key's columns by number, and both ends in microseconds, included.

    `ends` are stretches that together hold all of them, few enough for a condition.
    """

    stretch: Stretch
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

    def _in(self, rows: DataFrame, columns: Sequence[str], place: Bound) -> DataFrame:
        for column, name in zip(columns, self.keys.columns, strict=True):
            span = self.keys.spans[name]
            if span is not None:
                rows = rows.where(span.text(quoted(column)))
        at = F.unix_micros(F.col(quoted(place.column))) - place.moved
        on = [*_same(columns), at >= F.col(_LOW), at <= F.col(_HIGH)]
        return rows.join(_sent(self.rows, self.count), on, "left_semi")


def is_served(stretch: Stretch, input_: StructType, table: StructType, partitioned_by: Sequence[str]) -> bool:
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

    bounds = [stretch.place]
    if isinstance(stretch, Sessions) and stretch.last is not None:
        bounds.append(stretch.last)
    times: list[DataType | None] = [read.get(stretch.time.lower())]
    times += [kept.get(bound.column.lower()) for bound in bounds]
    return all(isinstance(kind, TimestampType) for kind in times) and all(
        served(column, shown) for column, shown in zip(stretch.keys, stretch.key_columns, strict=True)
    )


def near_changes(stretch: Stretch, changed: DataFrame, inputs: Inputs, table: DataFrame | None) -> Near | None:
    """The stretches near changed rows of an input: rows as they were before or after the changes.

    Which sessions there were is asked of the table, or of the input before the changes where it is None. None where all
    rows of the keys are to be read.
    """
    match stretch:
        case Sessions():
            return _near_sessions(stretch, changed, inputs.before, table)
        case Matches() if table is not None:
            return _near_matches(stretch, changed, inputs.after, table)
        case _:
            return None


def _near_sessions(sessions: Sessions, changed: DataFrame, before: DataFrame, table: DataFrame | None) -> Near:
    names, numbered = _names(sessions), _numbered(sessions)
    times, many = materialize_once(_times(sessions, changed).where(F.col(_AT).isNotNull()).distinct())
    keys = keys_of(times.select(*names).distinct())
    if table is not None and sessions.first is not None and sessions.last is not None:
        old = _stored_sessions(sessions, table, _ends(times, many, _AT, _AT))
    else:
        old = _sessions_of(sessions, before, keys)
    touched = F.col(_AT).between(F.col(_LOW) - sessions.gap, F.col(_HIGH) + sessions.gap)
    named = _sent(times.toDF(*numbered, _AT), many)
    rows = old.join(named, [*_same(names), touched], "left_semi")
    rows = rows.unionAll(times.select(*names, F.col(_AT).alias(_LOW), F.col(_AT).alias(_HIGH))).distinct()
    found, count = materialize_once(rows)
    if count > MOST:
        found, count = materialize_once(found.groupBy(*names).agg(F.min(_LOW).alias(_LOW), F.max(_HIGH).alias(_HIGH)))
    return Near(sessions, keys, found.toDF(*numbered, _LOW, _HIGH), count, _ends(found, count, _LOW, _HIGH))


def _near_matches(matches: Matches, changed: DataFrame, after: DataFrame, table: DataFrame) -> Near | None:
    names, numbered, within = _names(matches), _numbered(matches), matches.within
    times = _times(matches, changed)
    lone = F.bool_or(F.col(_AT).isNull()).alias("lone")
    first, many = materialize_once(times.groupBy(*names).agg(F.min(_AT).alias(_AT), lone))
    if first.where("lone").take(1):
        # A row without a time stands before all others.
        return None
    first = first.drop("lone")
    keys = keys_of(first.select(*names))
    began = [(low - 2 * within + 1, high - within) for low, high in _ends(first, many, _AT, _AT)]
    text = _within(began, quoted(matches.began.column))
    shown = [F.col(quoted(c)).alias(name) for c, name in zip(matches.key_columns, names, strict=True)]
    stored = table if text is None else table.where(text)
    stored = stored.select(*shown, F.unix_micros(F.col(quoted(matches.began.column))).alias(_LOW))
    named = _sent(first.toDF(*numbered, _AT), many)
    before = F.col(_LOW).between(F.col(_AT) - (2 * within - 1), F.col(_AT) - within)
    old = stored.join(named, [*_same(names), before], "left_semi").distinct()
    place = F.row_number().over(Window.partitionBy(*names).orderBy(F.desc(_LOW)))
    last, count = materialize_once(old.withColumn("place", place).where(F.col("place") <= MOST_MATCHES).drop("place"))
    # The rows at the times with which these matches begin: one each, or it is not known which of them began.
    text = _within(_ends(last, count, _LOW, _LOW), quoted(matches.time)) if count else None
    at_begin = _times(matches, after if text is None else after.where(text))
    at_begin = at_begin.join(
        _sent(last.toDF(*numbered, _LOW), count), [*_same(names), F.col(_AT) == F.col(_LOW)], "left_semi"
    )
    alone = at_begin.groupBy(*names, _AT).count().where("count = 1").groupBy(*names).agg(F.max(_AT).alias(_LOW))
    some = last.groupBy(*names).agg(F.count("*").alias("matches"))
    begun = some.join(_sent(alone.toDF(*numbered, _LOW), count), _same(names), "left").select(*names, "matches", _LOW)
    begun = begun.toDF(*numbered, "matches", _LOW)
    rows = first.join(_sent(begun, count), _same(names), "left")
    low = F.coalesce(_LOW, F.col(_AT) - within + 1).alias(_LOW)
    unknown = (F.col("matches").isNotNull() & F.col(_LOW).isNull()).alias("unknown")
    found, count = materialize_once(rows.select(*names, low, F.lit(OPEN).alias(_HIGH), unknown))
    if found.where("unknown").take(1):
        return None
    found = found.drop("unknown")
    return Near(matches, keys, found.toDF(*numbered, _LOW, _HIGH), count, _ends(found, count, _LOW, _HIGH))


def _times(stretch: Stretch, rows: DataFrame) -> DataFrame:
    """The keys and times of rows of the input."""
    shown = [F.col(quoted(column)).alias(name) for column, name in zip(stretch.keys, _names(stretch), strict=True)]
    return rows.select(*shown, F.unix_micros(F.col(quoted(stretch.time))).alias(_AT))


def _numbered(stretch: Stretch) -> list[str]:
    return [f"freshline_k{number}" for number in range(len(stretch.keys))]


def _names(stretch: Stretch) -> list[str]:
    return [f"freshline_s{number}" for number in range(len(stretch.keys))]


def _same(columns: Sequence[str]) -> list[Column]:
    return [F.col(quoted(column)).eqNullSafe(F.col(f"freshline_k{number}")) for number, column in enumerate(columns)]


def _sent(rows: DataFrame, count: int) -> DataFrame:
    return F.broadcast(rows) if count <= BROADCAST_KEYS else rows


def _stored_sessions(sessions: Sessions, table: DataFrame, ends: Sequence[tuple[int, int]]) -> DataFrame:
    """The sessions of the table that may be near some times, by their keys and bounds."""
    assert sessions.first is not None
    assert sessions.last is not None
    low, high = (F.unix_micros(F.col(quoted(each.column))) - each.moved for each in (sessions.first, sessions.last))
    gap, moved = sessions.gap, sessions.last.moved
    first, last = quoted(sessions.first.column), quoted(sessions.last.column)
    texts = [_text(last, ">=", least - gap + moved, first, "<=", greatest + gap) for least, greatest in ends]
    if texts and all(texts):
        table = table.where(" OR ".join(f"({text})" for text in texts))
    shown = [
        F.col(quoted(column)).alias(name) for column, name in zip(sessions.key_columns, _names(sessions), strict=True)
    ]
    return table.select(*shown, low.alias(_LOW), high.alias(_HIGH))


def _sessions_of(sessions: Sessions, rows: DataFrame, keys: Keys) -> DataFrame:
    """The sessions of all rows of some keys, by their keys and bounds.

    Where the query leaves rows out before it makes sessions, those here are wider: they hold whole ones of the query.
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
    """A few stretches that hold all of the given ones."""
    if count == 0:
        return []
    if count <= FEW_ROWS:
        return stretches((row[0], row[1]) for row in rows.select(low, high).collect())
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
