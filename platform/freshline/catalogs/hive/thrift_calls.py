"""The calls of a metastore's Thrift interface that freshline makes, and the structures in them.

Only the fields that are used are here; others that a newer metastore sends are skipped. The numbers are those of
`hive_metastore.thrift`, the same in Hive 2.3, 3 and 4.
"""

from __future__ import annotations

from typing import Any

from thrift.protocol.TBase import TBase
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType

Field = tuple[int, int, str, Any, Any]


class Struct(TBase):  # type: ignore[misc]  # thrift ships no types
    """A structure; fields that are not given are None and not sent."""

    thrift_spec: tuple[Field | None, ...] = ()

    def __init__(self, **values: Any) -> None:
        for each in self.thrift_spec:
            if each is not None:
                setattr(self, each[2], values.get(each[2]))


def _numbered(*fields: Field) -> tuple[Field | None, ...]:
    found: list[Field | None] = [None] * (max((each[0] for each in fields), default=-1) + 1)
    for each in fields:
        found[each[0]] = each
    return tuple(found)


def _text(number: int, name: str) -> Field:
    return number, TType.STRING, name, "UTF8", None


def _whole(number: int, name: str) -> Field:
    return number, TType.I32, name, None, None


def _flag(number: int, name: str) -> Field:
    return number, TType.BOOL, name, None, None


def _struct(number: int, name: str, kind: type[Struct]) -> Field:
    return number, TType.STRUCT, name, (kind, kind.thrift_spec), None


def _texts(number: int, name: str) -> Field:
    return number, TType.LIST, name, (TType.STRING, "UTF8", False), None


def _structs(number: int, name: str, kind: type[Struct]) -> Field:
    return number, TType.LIST, name, (TType.STRUCT, (kind, kind.thrift_spec), False), None


def _properties(number: int, name: str) -> Field:
    return number, TType.MAP, name, (TType.STRING, "UTF8", TType.STRING, "UTF8", False), None


class FieldSchema(Struct):
    """A column."""

    thrift_spec = _numbered(_text(1, "name"), _text(2, "type"), _text(3, "comment"))


class SerDeInfo(Struct):
    """How rows are read; Spark and Trino take the path from its parameters."""

    thrift_spec = _numbered(_text(1, "name"), _text(2, "library"), _properties(3, "parameters"))


class StorageDescriptor(Struct):
    """Where rows are, and their columns."""

    thrift_spec = _numbered(
        _structs(1, "columns", FieldSchema),
        _text(2, "location"),
        _text(3, "input_format"),
        _text(4, "output_format"),
        _flag(5, "compressed"),
        _whole(6, "buckets"),
        _struct(7, "serde", SerDeInfo),
        _texts(8, "bucket_columns"),
        _structs(9, "sort_columns", FieldSchema),
        _properties(10, "parameters"),
    )


class Table(Struct):
    """A table."""

    thrift_spec = _numbered(
        _text(1, "name"),
        _text(2, "database"),
        _text(3, "owner"),
        _whole(4, "created"),
        _whole(5, "accessed"),
        _whole(6, "retention"),
        _struct(7, "storage", StorageDescriptor),
        _structs(8, "partition_keys", FieldSchema),
        _properties(9, "parameters"),
        _text(12, "type"),
    )


class Database(Struct):
    """A database."""

    thrift_spec = _numbered(
        _text(1, "name"), _text(2, "description"), _text(3, "location"), _properties(4, "parameters")
    )


class _GetTables(Struct):
    thrift_spec = _numbered(_text(1, "database"), _texts(2, "names"))


class _Tables(Struct):
    thrift_spec = _numbered(_structs(1, "tables", Table))


class _Refusal(Struct):
    thrift_spec = _numbered(_text(1, "message"))


class RefusedError(Exception):
    """The metastore answered with an exception of its interface. `kind` is its place in the declared ones, from 1."""

    def __init__(self, call: str, kind: int, message: str) -> None:
        self.kind = kind
        super().__init__(f"{call}: {message}")


# Whatever answers, it takes no memory before it has sent as much.
_LONGEST_TEXT, _MOST_ELEMENTS = 16 * 2**20, 1_000_000
# The exceptions of no call have greater numbers.
_MOST_EXCEPTIONS = 5


class Calls:
    """The calls, one after the other. Each raises RefusedError, and what thrift's transport raises."""

    def __init__(self, transport: Any) -> None:
        self._protocol = TBinaryProtocol(
            transport, string_length_limit=_LONGEST_TEXT, container_length_limit=_MOST_ELEMENTS
        )
        self._number = 0

    def databases(self) -> list[str]:
        """The names of all databases."""
        return list(self._call("get_all_databases", [], _texts(0, "answer")))

    def create_database(self, database: Database) -> None:
        self._call("create_database", [(_struct(1, "database", Database), database)])

    def names(self, database: str) -> list[str]:
        """The names of all tables of a database."""
        return list(self._call("get_all_tables", [(_text(1, "database"), database)], _texts(0, "answer")))

    def names_by(self, database: str, condition: str) -> list[str]:
        """The names of the tables of a database that meet a condition."""
        arguments = [
            (_text(1, "database"), database),
            (_text(2, "condition"), condition),
            ((3, TType.I16, "most", None, None), -1),
        ]
        return list(self._call("get_table_names_by_filter", arguments, _texts(0, "answer")))

    def tables(self, database: str, names: list[str]) -> list[Any]:
        """The tables of these names that are there."""
        asked = _GetTables(database=database, names=names)
        arguments = [(_struct(1, "request", _GetTables), asked)]
        return list(self._call("get_table_objects_by_name_req", arguments, _struct(0, "answer", _Tables)).tables or ())

    def create_table(self, table: Table) -> None:
        self._call("create_table", [(_struct(1, "table", Table), table)])

    def alter_table(self, database: str, name: str, table: Table) -> None:
        arguments = [(_text(1, "database"), database), (_text(2, "name"), name), (_struct(3, "table", Table), table)]
        self._call("alter_table", arguments)

    def drop_table(self, database: str, name: str) -> None:
        """Drop an entry without its data."""
        arguments = [(_text(1, "database"), database), (_text(2, "name"), name), (_flag(3, "deletes_data"), False)]
        self._call("drop_table", arguments)

    def _call(self, name: str, arguments: list[tuple[Field, Any]], answer: Field | None = None) -> Any:
        sent = Struct()
        sent.thrift_spec = _numbered(*(field for field, _ in arguments))
        for field, value in arguments:
            setattr(sent, field[2], value)
        self._number += 1
        self._protocol.writeMessageBegin(name, TMessageType.CALL, self._number)
        sent.write(self._protocol)
        self._protocol.writeMessageEnd()
        self._protocol.trans.flush()
        _, kind, _ = self._protocol.readMessageBegin()
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            failure.read(self._protocol)
            raise failure
        refusals = [_struct(number, f"refusal_{number}", _Refusal) for number in range(1, _MOST_EXCEPTIONS + 1)]
        got = Struct()
        got.thrift_spec = _numbered(*(() if answer is None else (answer,)), *refusals)
        got.__init__()  # type: ignore[misc]  # its fields are those of this answer
        got.read(self._protocol)
        self._protocol.readMessageEnd()
        for number in range(1, _MOST_EXCEPTIONS + 1):
            refusal = getattr(got, f"refusal_{number}")
            if refusal is not None:
                raise RefusedError(name, number, refusal.message or "no reason given")
        return None if answer is None else got.answer
