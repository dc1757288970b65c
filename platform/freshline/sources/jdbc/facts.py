"""Facts of a server and a table, and the judgement how a source is read on from its position.

Everything here comes from the arguments, so each loss and each mistake can be tested without a server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from enum import StrEnum
from typing import Any, Protocol

from freshline.errors import DatabaseRefusedError, DatabaseReplacedError, SourceKeyError, SourceTypeError
from freshline.sources.jdbc.connector import INCREMENTAL, SNAPSHOT, XMIN, Jdbc, Name, Overlap
from freshline.sources.jdbc.position import QueryPosition

Read = Callable[[bytes], Any]
# More than any number of a database has.
_DIGITS = 200_000
# Among numbers of transactions, the greatest distance at which two of their lower 32 bits can be compared.
_MOST_TRANSACTIONS = 1 << 31

# Values of a growing column have no zone: those of a column with one are in UTC.
_FIRST = datetime(1, 1, 1, tzinfo=UTC).replace(tzinfo=None)


class GrowingKind(StrEnum):
    """The kinds of columns that can grow."""

    NUMBER = "number"
    DATE = "date"
    TIME = "time"


class NativeType(Protocol):
    """A type of a column, as its database has it."""

    @property
    def shown(self) -> str:
        """The name of the type."""

    @property
    def growing(self) -> GrowingKind | None:
        """The kind of comparison of a column that grows, None for a type whose values do not grow."""

    @property
    def least(self) -> int | None:
        """The least whole number that a column of numbers may be compared with, None for any."""

    def reader(self, declared: str) -> Read | None:
        """The function that reads a text of the database as a value of a declared type, None where none fits.

        It raises `Changed` for a value that the declared type cannot have.
        """

    def accepted(self) -> str:
        """The declared types that fit, in words."""


@dataclass(frozen=True)
class FoundColumn:
    """A column of a table."""

    name: str
    type: NativeType
    is_nullable: bool


@dataclass(frozen=True)
class FoundTable:
    """A table or view. `id` is empty where the database does not say, as of views.

    `unique_keys` are the columns of its unique indexes. `problem` says why it cannot be read, empty where it can be.
    `has_xmin` says that its rows have the transaction that wrote them, `is_locked` that a lock keeps it from being
    emptied while it is read.
    """

    id: str
    name: str
    statement_name: str
    columns: tuple[FoundColumn, ...]
    unique_keys: tuple[tuple[str, ...], ...]
    problem: str = ""
    has_xmin: bool = False
    is_locked: bool = False


@dataclass(frozen=True)
class JdbcServerFacts:
    """A server at one moment. `now` is its time in UTC, `place` how far it had written its log, None for not known.

    `oldest` is the oldest transaction that had not ended, `next` the one that is next, None where rows do not have
    the number of theirs.
    """

    system: str
    timeline: int
    database: str
    now: datetime
    place: int | None = None
    oldest: int | None = None
    next: int | None = None


@dataclass(frozen=True)
class JdbcColumn:
    """A declared column: its name, its type in Spark's spelling, the one in the database, whether it is of the key."""

    name: str
    type: str
    found: FoundColumn
    is_key: bool

    @property
    def reader(self) -> Read:
        read = self.found.type.reader(self.type)
        assert read is not None, "was refused when it was judged"
        return read


@dataclass(frozen=True)
class Growing:
    """The column that grows. By `xmin` there is none, and rows are found by the transaction that wrote them."""

    column: FoundColumn | None
    overlap: int = 0

    @property
    def kind(self) -> GrowingKind | None:
        return None if self.column is None else self.column.type.growing

    def value(self, text: bytes, now: datetime) -> Any:
        """The value of a text, None for one that a position cannot be at: NaN, infinity, and times behind `now`.

        A row of the year 9999 must not let the rows of this year be missed, whose times may lag behind `now`: of a
        column without a time zone they do by hours.
        """
        assert self.column is not None
        if self.kind is GrowingKind.NUMBER:
            number = Decimal(text.decode())
            return number if number.is_finite() else None
        try:
            if self.kind is GrowingKind.DATE:
                day = date.fromisoformat(text.decode())
                return day if day <= now.date() else None
            moment = datetime.fromisoformat(text.decode()).replace(tzinfo=None)
        except ValueError:
            # Infinity, before the year 1, behind 9999, a zero date.
            return None
        return moment if moment <= now.replace(tzinfo=None) else None

    def text(self, value: Any) -> str:
        """The inverse of `parse`."""
        return format(value, "f") if isinstance(value, Decimal) else value.isoformat(*self._separator)

    @property
    def _separator(self) -> tuple[str, ...]:
        return () if self.kind is GrowingKind.DATE else (" ", "microseconds")

    def parse(self, text: str) -> Any:
        """The value that a position has."""
        match self.kind:
            case GrowingKind.NUMBER:
                return Decimal(text)
            case GrowingKind.DATE:
                return date.fromisoformat(text)
            case _:
                return datetime.fromisoformat(text)

    def low(self, text: str) -> str:
        """The value from which on rows are read again, where the greatest one was that of the position."""
        assert self.column is not None
        value = self.parse(text)
        if isinstance(value, Decimal):
            least = self.column.type.least
            # With all digits: rounded to the 28 of Python's own, it could be a greater number.
            low = Context(prec=_DIGITS).subtract(value, Decimal(self.overlap))
            return self.text(low if least is None else max(low, Decimal(least)))
        # Days are whole, so that an hour before today is yesterday.
        length = timedelta(seconds=self.overlap)
        if self.kind is GrowingKind.DATE:
            length = timedelta(days=-(-self.overlap // 86_400))
        least_value = date.min if self.kind is GrowingKind.DATE else _FIRST
        return self.text(value - length if value - least_value > length else least_value)


class QueryStep(StrEnum):
    """The part of the table that is read: all, or the changed rows."""

    WHOLE = "whole"
    CHANGED = "changed"


@dataclass(frozen=True)
class TablePart:
    """The part of a table that is read. `digest` is one of all that decides which rows there are."""

    table: FoundTable
    columns: tuple[JdbcColumn, ...]
    where: str | None
    growing: Growing | None
    is_unique: bool
    digest: str


def require_table(
    declared: Jdbc, found: FoundTable | None, columns: Sequence[tuple[str, str]], key: Sequence[str], *, where: str
) -> TablePart:
    """The part that is read of the table that was found.

    `columns` are the declared ones, each with its type, `key` those of PRIMARY KEY. Raises DatabaseRefusedError and
    SourceTypeError.
    """
    if found is None:
        raise DatabaseRefusedError(
            f"there is no table {declared.full_name} in the database, or its user may not see it. Correct `table`.",
            where=where,
        )
    if found.problem:
        raise DatabaseRefusedError(found.problem, where=where)
    read = []
    for column, declared_type in columns:
        there = _require_column(found, column, where)
        if there.type.reader(declared_type) is None:
            raise SourceTypeError(
                f"column {column} is declared {declared_type}, and is {there.type.shown} in the database. Declare "
                f"{there.type.accepted()}.",
                where=where,
            )
        read.append(JdbcColumn(column, declared_type, there, column in key))
    growing = _growing(declared, found, where)
    # NULL in a key is rejected, so that what is left is unique where an index of these columns says so.
    names = {column.found.name for column in read if column.is_key}
    is_unique = any(set(unique) <= names for unique in found.unique_keys)
    return TablePart(found, tuple(read), declared.where, growing, is_unique, _digest(declared, read, growing))


def _require_column(found: FoundTable, name: str, where: str) -> FoundColumn:
    """The column of this name; in another letter case where only one is."""
    exact = [each for each in found.columns if each.name == name]
    similar = exact or [each for each in found.columns if each.name.lower() == name.lower()]
    if len(similar) != 1:
        names = ", ".join(each.name for each in found.columns)
        raise DatabaseRefusedError(
            f"{found.name} has no column {name}. Its columns are {names}. Correct the declaration.", where=where
        )
    return similar[0]


def _growing(declared: Jdbc, found: FoundTable, where: str) -> Growing | None:
    if declared.read == SNAPSHOT or declared.column is None:
        return None
    if declared.column == Name(XMIN, False):
        if not found.has_xmin:
            raise DatabaseRefusedError(
                f"{found.name} has no xmin, which the tables and materialized views of Postgres have. Name a column "
                "that grows, or set 'read' = 'snapshot'.",
                where=where,
            )
        return Growing(None)
    column = _require_column(found, declared.column.text, where)
    kind, overlap = column.type.growing, declared.overlap or Overlap(0, 0)
    if kind is None:
        raise SourceTypeError(
            f"column {column.name} is {column.type.shown} in the database, whose values do not grow. A growing column "
            "has whole numbers, decimals, dates or times.",
            where=where,
        )
    size = overlap.number if kind is GrowingKind.NUMBER else overlap.seconds
    if size is None:
        accepted = "a number, as '1000'" if kind is GrowingKind.NUMBER else "a length of time, as '10 minutes'"
        raise SourceTypeError(
            f"column {column.name} is {column.type.shown} in the database, whose 'overlap' is {accepted}. Correct it.",
            where=where,
        )
    return Growing(column, size)


def _digest(declared: Jdbc, columns: Sequence[JdbcColumn], growing: Growing | None) -> str:
    by = None if growing is None else (growing.column and growing.column.name, growing.overlap)
    read = [(column.name, column.type, column.found.name, column.is_key) for column in columns]
    return hashlib.sha256(repr((read, declared.where, declared.read, by)).encode()).hexdigest()[:32]


def find_step(
    declared: Jdbc,
    server: JdbcServerFacts,
    asked: TablePart,
    position: QueryPosition | None,
    now: datetime,
    *,
    where: str,
) -> QueryStep:
    """The part that is read behind a position, at `now` by the clock of the engine.

    Raises DatabaseReplacedError with what was replaced and how to accept that, and DatabaseRefusedError.
    """
    if asked.growing is not None and asked.growing.column is None and server.oldest is None:
        raise DatabaseRefusedError(
            "the server is a standby, which gives no numbers to transactions, so its tables are not read by xmin. Let "
            "the connection lead to the primary, or name a column that grows.",
            where=where,
        )
    if position is None or declared.accepted_loss == position.loss:
        return QueryStep.WHOLE
    loss = _loss(declared, server, asked.table, position)
    if loss is not None:
        raise replaced(loss, position, where=where)
    if declared.read == SNAPSHOT or asked.digest != position.asked:
        return QueryStep.WHOLE
    if position.value is None or is_too_far(server, position, asked.growing):
        return QueryStep.WHOLE
    if _is_reconciled_late(declared, position, now):
        return QueryStep.WHOLE
    return QueryStep.CHANGED


def is_too_far(server: JdbcServerFacts, position: QueryPosition, growing: Growing | None) -> bool:
    """Whether so many transactions ended since that rows do not say any more which of them wrote them."""
    if growing is None or growing.column is not None or position.value is None or server.next is None:
        return False
    return server.next - int(position.value) >= _MOST_TRANSACTIONS


def _is_reconciled_late(declared: Jdbc, position: QueryPosition, now: datetime) -> bool:
    if declared.reconcile is None:
        return False
    if position.reconciled_at is None:
        return True
    last = datetime.fromisoformat(position.reconciled_at)
    # A clock that was put back must not delay it.
    return now < last or (now - last).total_seconds() >= declared.reconcile


def replaced(loss: str, position: QueryPosition, *, where: str) -> DatabaseReplacedError:
    """The error of a database or table that is not the one that was read."""
    return DatabaseReplacedError(
        f"{loss} Nothing was read. 'accept-database' = '{position.loss}' reads the table as it is now, and removes "
        "rows that are gone.",
        where=where,
    )


def _loss(declared: Jdbc, server: JdbcServerFacts, table: FoundTable, position: QueryPosition) -> str | None:
    """The reason why a table is not read on behind a position, None where it is."""
    if server.system != position.system:
        return f"the server is {server.system or 'unknown'}, and {position.system or 'unknown'} was read."
    if server.database != position.database:
        return f"the database is {server.database}, and {position.database} was read."
    if table.name != position.table and (not table.id or table.id != position.table_id):
        return f"the table is {table.name}, and {position.table} was read."
    if declared.read != INCREMENTAL or position.value is None:
        # A snapshot is compared with all rows that are stored, so that another history of the table is no loss.
        return None
    if server.timeline != position.timeline:
        return f"the server is on timeline {server.timeline}, and {position.timeline} was read: a standby took over."
    if table.id != position.table_id:
        return f"{table.name} is the table {table.id}, and {position.table_id} was read: it was made anew."
    if server.place is not None and position.place is not None and server.place < position.place:
        return f"the server's log ends at {server.place}, before {position.place}, which was read: it was put back."
    by_transaction = declared.column == Name(XMIN, False) and table.has_xmin
    if by_transaction and server.next is not None and server.next < int(position.value):
        return f"the next transaction is {server.next}, and {position.value} was read: the server was put back."
    return None


def went_back(asked: TablePart, position: QueryPosition, *, where: str) -> DatabaseReplacedError:
    """The error of a growing column whose greatest value is further behind than `overlap` covers."""
    growing = asked.growing
    assert growing is not None
    assert growing.column is not None
    assert position.value is not None
    return replaced(
        f"no row of {asked.table.name} has {growing.column.name} from {growing.low(position.value)} on, and up to "
        f"{position.value} was read: the database was put back, or its newest rows were removed.",
        position,
        where=where,
    )


def not_unique(asked: TablePart, example: Sequence[object], *, where: str) -> SourceKeyError:
    """The error of a key that names several rows; `example` are its values of some of them."""
    key = [column.name for column in asked.columns if column.is_key]
    shown = ", ".join(f"{name} = {value!r}" for name, value in zip(key, example, strict=True))
    return SourceKeyError(
        f"PRIMARY KEY ({', '.join(key)}) names several rows of {asked.table.name}, such as those of {shown}. Declare "
        "columns that name one row.",
        where=where,
    )
