"""The past of each table's freshness, in the control store: for pages and charts, and for no decision.

Refreshes are added in the transaction that records them, and spans of lag by every process that reads the lag. A minute
and an hour have one row each, whoever writes them. Spans and marks go after 7 days and hours after 30. A table's own go
when it begins an hour, and those of tables that are gone when any table begins one. Rows that seem to come from the
future were written before the clock was set back: they are left out until it has passed them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Table, case, delete, func, insert, select, update

from freshline.commit.control_rows import key_of, text_of, time_of
from freshline.commit.control_store.database import Database
from freshline.commit.control_store.schema import HOURS, MARKS, SPANS
from freshline.freshness.history import (
    KEPT_HOURS,
    KEPT_SPANS,
    LONGEST_GAP,
    Hour,
    LagSample,
    LagSpan,
    Mark,
    RefreshSums,
    Summary,
    hour_of,
    mark_of,
    minute_of,
    sample_of,
    sums_of,
)
from freshline.values.names import TableName
from freshline.values.result import DECISIONS, RefreshResult

_LAG = tuple(LagSpan.__dataclass_fields__)
_SUMS = tuple(RefreshSums.__dataclass_fields__)
_TIMES = ("first_at", "last_at")
DAY, WEEK = timedelta(days=1), timedelta(days=7)


class HistoryStore:
    """The past of the tables of one environment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_spans(self, spans: Mapping[TableName, LagSpan]) -> None:
        """Add what was seen of the lag of some tables, at most one span of each."""
        if not spans:
            return
        with self._database.write() as connection:
            for name, span in spans.items():
                _add(connection, key_of(name), span.first_at, span, RefreshSums())

    def newest_samples(self, now: datetime) -> dict[TableName, LagSample]:
        """The newest known lag of each table, of this hour or the one before: where another process goes on."""
        wanted = (HOURS.c.begin >= text_of(hour_of(now) - LONGEST_GAP)) & (HOURS.c.begin <= text_of(now))
        with self._database.read() as connection:
            rows = connection.execute(select(HOURS).where(wanted).order_by(HOURS.c.begin)).all()
        found = {row.key: lag for row in rows if (lag := _lag(row)) is not None}
        return {
            TableName.parse(key): LagSample(lag.last_at, lag.last_seconds, lag.freshness_seconds)
            for key, lag in found.items()
        }

    # -- for pages

    def summaries(self, now: datetime) -> dict[TableName, Summary]:
        """The day and the week of each table that has any past."""
        week, day = text_of(hour_of(now - WEEK)), text_of(hour_of(now - DAY))
        of_day = HOURS.c.begin >= day

        def total(column: str) -> Any:
            return func.coalesce(func.sum(HOURS.c[column]), 0)

        def total_day(column: str) -> Any:
            return func.coalesce(func.sum(case((of_day, HOURS.c[column]), else_=0)), 0)

        statement = (
            select(
                HOURS.c.key,
                total_day("judged_seconds"),
                total_day("late_seconds"),
                total("judged_seconds"),
                total("late_seconds"),
                *(total_day(column) for column in _SUMS),
            )
            .where((HOURS.c.begin >= week) & (HOURS.c.begin <= text_of(now)))
            .group_by(HOURS.c.key)
        )
        with self._database.read() as connection:
            rows = connection.execute(statement).all()
        return {TableName.parse(row[0]): Summary(row[1], row[2], row[3], row[4], RefreshSums(*row[5:])) for row in rows}

    def recent_spans(
        self, since: datetime, now: datetime, name: TableName | None = None
    ) -> dict[TableName, list[LagSpan]]:
        """The spans of each table, or of one, that began in this time, the oldest first."""
        wanted = (SPANS.c.begin >= text_of(minute_of(since))) & (SPANS.c.begin <= text_of(now))
        if name is not None:
            wanted &= SPANS.c.key == key_of(name)
        columns = [SPANS.c.key, *(SPANS.c[column] for column in _LAG)]
        with self._database.read() as connection:
            rows = connection.execute(select(*columns).where(wanted).order_by(SPANS.c.begin)).all()
        found: dict[str, list[LagSpan]] = {}
        for key, first_at, first, last_at, last, *rest in rows:
            found.setdefault(key, []).append(LagSpan(time_of(first_at), first, time_of(last_at), last, *rest))
        return {TableName.parse(key): spans for key, spans in found.items()}

    def hours(self, name: TableName, since: datetime, now: datetime) -> list[Hour]:
        """The hours of a table, the oldest first."""
        wanted = (HOURS.c.key == key_of(name)) & (HOURS.c.begin >= text_of(hour_of(since)))
        statement = select(HOURS).where(wanted & (HOURS.c.begin <= text_of(now))).order_by(HOURS.c.begin)
        with self._database.read() as connection:
            rows = connection.execute(statement).all()
        return [Hour(time_of(row.begin), _lag(row), _sums(row)) for row in rows]

    def marks(self, name: TableName, since: datetime, now: datetime) -> list[Mark]:
        """The refreshes and decisions of a table, the oldest first."""
        wanted = (MARKS.c.key == key_of(name)) & (MARKS.c.at >= text_of(since)) & (MARKS.c.at <= text_of(now))
        columns = [MARKS.c[column] for column in Mark.__dataclass_fields__]
        with self._database.read() as connection:
            rows = connection.execute(select(*columns).where(wanted).order_by(MARKS.c.at, MARKS.c.id)).all()
        return [Mark(time_of(at), *rest) for at, *rest in rows]


def add_refresh(connection: Connection, result: RefreshResult) -> None:
    """Add a refresh or a decision, in the transaction that records it."""
    key = key_of(result.table)
    if not result.is_check:
        connection.execute(insert(MARKS).values(key=key, **{**asdict(mark_of(result)), "at": text_of(result.at)}))
    sample = sample_of(result)
    # A check comes every second, and whoever reads the lag after it adds its span.
    span = None if sample is None or result.is_check else LagSpan.of(sample)
    _add(connection, key, result.at, span, RefreshSums() if result.state in DECISIONS else sums_of(result))


def _add(connection: Connection, key: str, at: datetime, span: LagSpan | None, sums: RefreshSums) -> None:
    if span is not None:
        _merge(connection, SPANS, key, minute_of(at), span, {})
    if _merge(connection, HOURS, key, hour_of(at), span, asdict(sums)):
        _forget_old(connection, key, at)


def _merge(
    connection: Connection, table: Table, key: str, begin: datetime, span: LagSpan | None, sums: Mapping[str, Any]
) -> bool:
    """Add to the row of a minute or an hour; whether it is new."""
    place = (table.c.key == key) & (table.c.begin == text_of(begin))
    row = connection.execute(select(table).where(place)).first()
    if row is None:
        values = {} if span is None else _values(span)
        connection.execute(insert(table).values(key=key, begin=text_of(begin), **values, **sums))
        return True
    before = _lag(row)
    both = before if span is None else span if before is None else before.with_span(span)
    added = {column: table.c[column] + value for column, value in sums.items() if value}
    changed = {**({} if both is None or both == before else _values(both)), **added}
    if changed:
        connection.execute(update(table).where(place).values(**changed))
    return False


def _forget_old(connection: Connection, key: str, now: datetime) -> None:
    oldest_span, oldest_hour = text_of(now - KEPT_SPANS), text_of(now - KEPT_HOURS)
    connection.execute(delete(MARKS).where((MARKS.c.key == key) & (MARKS.c.at < oldest_span)))
    connection.execute(delete(SPANS).where(SPANS.c.begin < oldest_span))
    connection.execute(delete(HOURS).where(HOURS.c.begin < oldest_hour))
    hour = text_of(hour_of(now))
    begun = connection.execute(select(HOURS.c.key).where((HOURS.c.begin == hour) & (HOURS.c.key != key)).limit(1))
    if begun.first() is None:
        # The first of the hour: of tables that are gone nothing is added, so nothing else would take theirs away.
        alive = select(HOURS.c.key).where(HOURS.c.begin >= oldest_span)
        connection.execute(delete(MARKS).where(MARKS.c.key.not_in(alive)))


def _values(span: LagSpan) -> dict[str, Any]:
    return {**asdict(span), **{name: text_of(getattr(span, name)) for name in _TIMES}}


def _lag(row: Row[Any]) -> LagSpan | None:
    if row.first_at is None:
        return None
    values = {name: getattr(row, name) for name in _LAG}
    return LagSpan(**{**values, **{name: time_of(values[name]) for name in _TIMES}})


def _sums(row: Row[Any]) -> RefreshSums:
    return RefreshSums(**{name: getattr(row, name) for name in _SUMS})
