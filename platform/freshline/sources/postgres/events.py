"""From the messages of a slot, and the rows of a snapshot, to events of one table: the rows of its log. Pure.

An update of the key is a delete and an insert, as Debezium sends it. A value that was not sent is taken from the old
image where the database sent a whole one; else the event names the column in `unsent`, and the log's loop fills it in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from freshline.sources.databases.postgres_values import BUILT_IN, DatabaseType, copy_fields, value_reader
from freshline.sources.databases.text_values import AlteredValueError, Read
from freshline.sources.postgres.position import lsn_text
from freshline.sources.postgres.wire import UNSENT, Begin, Change, Commit, Relation, Truncate, Tuple, read_message
from freshline.values.change import DELETE, INSERT, READ, TRUNCATE, UPDATE

VALUE_CHANGED, VALUE_UNKNOWN, NOT_UTF8, TOO_LARGE = "VALUE_CHANGED", "VALUE_UNKNOWN", "NOT_UTF8", "TOO_LARGE"


class NamedValues(NamedTuple):
    """An enum with its labels by their oids, or a composite type with its attributes as one label.

    A label of the same oid that is another one changes the values of rows without an event.
    """

    id: int
    name: str
    labels: tuple[tuple[int, str], ...]


class UnfitTypeError(Exception):
    """A column has a type now, or had one when it changed, whose values the declared one does not fit."""

    def __init__(self, column: str, declared: str, found: DatabaseType) -> None:
        self.column = column
        self.declared = declared
        self.found = found
        super().__init__(f"{column} is {found.name}, and declared {declared}")


@dataclass(frozen=True)
class PostgresColumn:
    """A declared column: its name, its type in Spark's spelling, the name in the database, whether it is of the key.

    `number` is that of the column in the database, which no other column of its table ever gets. `named_values` are
    the types that it consists of whose values are texts that can be renamed, or made of other parts.
    """

    name: str
    type: str
    found: str
    is_key: bool
    number: int = 0
    named_values: tuple[NamedValues, ...] = ()


@dataclass(frozen=True)
class ReadTable:
    """The part of a table that is read.

    `types` are those of its columns by their oids. A change of more than `most_bytes` is rejected.
    """

    id: int
    name: str
    columns: tuple[PostgresColumn, ...]
    types: Mapping[int, DatabaseType]
    most_bytes: int

    def reader(self, column: PostgresColumn, type_id: int) -> Read:
        """The function that reads the values of a column. Raises UnfitTypeError."""
        found = self.types.get(type_id) or BUILT_IN.get(type_id) or DatabaseType("unknown")
        read = value_reader(column.type, found)
        if read is None:
            raise UnfitTypeError(column.name, column.type, found)
        return read


class PostgresEvent(NamedTuple):
    """One event. `values` are those of the declared columns, in their order.

    `position` and `commit` are places in the log of the database, `changed_at` is in microseconds since 1970. `broken`
    is a code of quarantine, None for a good one; then `raw` is the change as JSON, as it also is where values are
    missing. `size` is about how many bytes it takes. `before` are the values of the row that was changed, None where
    the database did not send all of them, and empty where they do not fit.
    """

    values: tuple[Any, ...]
    op: str
    position: int
    commit: int
    changed_at: int | None
    transaction: str | None
    unsent: tuple[str, ...]
    broken: str | None
    raw: str
    size: int
    before: tuple[Any, ...] | None = None


class SnapshotReader:
    """Reads the lines of COPY: every row as it is at the consistent point of a slot."""

    def __init__(self, table: ReadTable, type_ids: Sequence[int], at: int, changed_at: int) -> None:
        """`type_ids` are those of the columns, in the order of `table.columns`, which is that of the lines."""
        self._table = table
        self._readers = [table.reader(column, each) for column, each in zip(table.columns, type_ids, strict=True)]
        self._at = at
        self._changed_at = changed_at

    def read(self, line: bytes) -> PostgresEvent:
        """The event of a line, with its line end."""
        fields: Tuple = [*copy_fields(line)]
        values, _, broken = _values(self._table.columns, self._readers, fields, None)
        if len(line) > self._table.most_bytes:
            values, broken = _only_key(self._table.columns, values), TOO_LARGE
        raw = ""
        if broken is not None:
            raw = _raw(self._table, READ, self._at, self._at, None, fields, is_cut=broken == TOO_LARGE)
        return PostgresEvent(values, READ, self._at, self._at, self._changed_at, None, (), broken, raw, len(line))


class ChangeReader:
    """Reads the messages of a slot in their order: the events of one table, of whole transactions.

    `end` is the place up to which everything was read when the last transaction ended. Transactions whose commit is
    before `begin` are left out: they were read, and the slot was not moved yet.
    """

    def __init__(self, table: ReadTable, begin: int) -> None:
        self.end = begin
        self._table = table
        self._begin = begin
        self._transaction: Begin | None = None
        self._places: tuple[int | None, ...] = ()
        self._readers: Sequence[Read] = ()

    @property
    def is_inside(self) -> bool:
        """Whether a transaction began and did not end."""
        return self._transaction is not None

    def read(self, lsn: int, data: bytes) -> Sequence[PostgresEvent]:
        """The events of one message at a place. Raises WireError and UnfitTypeError."""
        message = read_message(data)
        if isinstance(message, Change):
            begin = self._transaction
            if message.relation != self._table.id or begin is None or begin.commit_lsn < self._begin:
                return ()
            return self._changed(message, lsn, begin)
        match message:
            case Begin():
                self._transaction = message
            case Commit(_, end_lsn):
                self._transaction = None
                self.end = max(self.end, end_lsn)
            case Relation(id=self._table.id):
                self._look_at(message)
            case Truncate(relations) if self._table.id in relations:
                begin = self._transaction
                if begin is not None and begin.commit_lsn >= self._begin:
                    none = (None,) * len(self._table.columns)
                    return (self._event(none, TRUNCATE, lsn, begin, (), None, "", len(data)),)
        return ()

    def _look_at(self, relation: Relation) -> None:
        found = {column.name: (place, column.type_id) for place, column in enumerate(relation.columns)}
        places: list[int | None] = []
        readers: list[Read] = []
        for column in self._table.columns:
            # A column that the table did not have yet.
            place, type_id = found.get(column.found, (None, 25))
            places.append(place)
            readers.append(self._table.reader(column, type_id) if place is not None else bytes)
        self._places, self._readers = tuple(places), readers

    def _changed(self, change: Change, lsn: int, begin: Begin) -> Sequence[PostgresEvent]:
        columns, readers = self._table.columns, self._readers
        old = None if change.old is None else self._image(change.old)
        image = None
        if old is not None and not change.only_key:
            image, _, lost = _values(columns, readers, old, None)
            image = () if lost is not None else image
        if change.new is None:
            values, _, broken = _values(columns, readers, old or [None] * len(columns), None, only_key=True)
            return (self._made(values, DELETE, lsn, begin, (), broken, change, image),)
        new = self._image(change.new)
        values, unsent, broken = _values(columns, readers, new, old, old_is_key=change.only_key)
        if change.size > self._table.most_bytes:
            values, broken = _only_key(columns, values), TOO_LARGE
        if old is None:
            return (self._made(values, change.op, lsn, begin, unsent, broken, change),)
        before, _, broken_before = _values(columns, readers, old, None, only_key=True)
        keys = [place for place, column in enumerate(columns) if column.is_key]
        if all(before[place] == values[place] for place in keys) and broken_before is None:
            return (self._made(values, UPDATE, lsn, begin, unsent, broken, change, image),)
        return (
            self._made(before, DELETE, lsn, begin, (), broken_before, change, image),
            self._made(values, INSERT, lsn, begin, unsent, broken, change),
        )

    def _image(self, image: Tuple) -> Tuple:
        """The values of a row in the order of the declared columns."""
        return [None if place is None else image[place] for place in self._places]

    def _made(
        self,
        values: tuple[Any, ...],
        op: str,
        lsn: int,
        begin: Begin,
        unsent: tuple[str, ...],
        broken: str | None,
        change: Change,
        before: tuple[Any, ...] | None = None,
    ) -> PostgresEvent:
        raw = ""
        if broken is not None or unsent:
            image = change.new if op != DELETE else change.old
            fields: Tuple = [None] * len(self._places) if image is None else self._image(image)
            is_cut = broken == TOO_LARGE
            raw = _raw(self._table, op, lsn, begin.commit_lsn, begin.xid, fields, is_cut=is_cut)
        event = self._event(values, op, lsn, begin, unsent, broken, raw, change.size)
        return event if before is None else event._replace(before=before)

    @staticmethod
    def _event(
        values: tuple[Any, ...],
        op: str,
        lsn: int,
        begin: Begin,
        unsent: tuple[str, ...],
        broken: str | None,
        raw: str,
        size: int,
    ) -> PostgresEvent:
        committed_at = begin.committed_at
        return PostgresEvent(values, op, lsn, begin.commit_lsn, committed_at, str(begin.xid), unsent, broken, raw, size)


def _values(
    columns: Sequence[PostgresColumn],
    readers: Sequence[Callable[[bytes], Any]],
    image: Tuple,
    old: Tuple | None,
    *,
    only_key: bool = False,
    old_is_key: bool = True,
) -> tuple[tuple[Any, ...], tuple[str, ...], str | None]:
    """The values of an image, the columns that were not sent, and the code of a value that does not fit.

    `old` is the image before, from which values that were not sent are taken; of one that `old_is_key` those of the
    key. With `only_key` the others are NULL.
    """
    values: list[Any] = []
    unsent: list[str] = []
    broken = None
    for column, read, text in zip(columns, readers, image, strict=True):
        if only_key and not column.is_key:
            values.append(None)
            continue
        if text is UNSENT and old is not None and (column.is_key or not old_is_key):
            text = old[len(values)]
        if text is None:
            values.append(None)
        elif text is UNSENT:
            if column.is_key:
                broken = VALUE_UNKNOWN
            unsent.append(column.name)
            values.append(None)
        else:
            try:
                values.append(read(text))
            except AlteredValueError:
                broken = f"{VALUE_CHANGED}({column.name})"
                values.append(None)
            except UnicodeDecodeError:
                broken = NOT_UTF8
                values.append(None)
    return tuple(values), tuple(unsent), broken


def _only_key(columns: Sequence[PostgresColumn], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of the key alone: what is rejected as too large is not kept."""
    return tuple(value if column.is_key else None for column, value in zip(columns, values, strict=True))


def _raw(table: ReadTable, op: str, lsn: int, commit: int, xid: int | None, fields: Tuple, *, is_cut: bool) -> str:
    """A change as JSON, for quarantine; of one that is too large, the beginnings of its values."""
    shown: dict[str, Any] = {"table": table.name, "op": op, "lsn": lsn_text(lsn), "commit": lsn_text(commit)}
    if xid is not None:
        shown["transaction"] = xid
    most = max(1, table.most_bytes // (2 * max(1, len(fields)))) if is_cut else None
    row = {}
    for column, text in zip(table.columns, fields, strict=True):
        if text is not UNSENT:
            row[column.name] = None if text is None else text[:most].decode("utf-8", "replace")
    return json.dumps({**shown, "row": row}, ensure_ascii=False)
