"""The messages of `pgoutput`, the plug-in of Postgres' logical decoding: protocol version 1, values as text.

Pure: bytes in, values out. The form of each message is in Postgres' documentation, "Logical Replication Message
Formats". Messages of origins and types say nothing about rows and are left out.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

# Times are in microseconds since 2000.
_EPOCH_MICROSECONDS = 946_684_800_000_000
_BEGIN = struct.Struct(">xqqI")
_COMMIT = struct.Struct(">xBqqq")
_OID = struct.Struct(">I")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
# A type and its modifier.
_TYPE = struct.Struct(">Ii")


class Unsent(Enum):
    """Stands for a value that the database did not send, because it is large and did not change."""

    UNSENT = "unsent"


UNSENT = Unsent.UNSENT
Value = bytes | None | Unsent
Tuple = list[Value]


class WireError(ValueError):
    """Bytes that are no message of this protocol."""


@dataclass(frozen=True)
class Begin:
    """A transaction begins, whose commit is at `commit_lsn`. `committed_at` is in microseconds since 1970."""

    commit_lsn: int
    committed_at: int
    xid: int


@dataclass(frozen=True)
class Commit:
    """It ends. Later transactions begin at `end_lsn` or behind it."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True)
class RelationColumn:
    """A column of a table; `type_id` is the oid of its type."""

    name: str
    type_id: int


@dataclass(frozen=True)
class Relation:
    """The columns of a table from here on, in the order of the values of its rows."""

    id: int
    schema: str
    name: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A row changed: `op` is c, u or d.

    `old` is the row before, or the columns of its identity alone with None for the others (`only_key`); None where it
    was not sent. `new` is None for a delete. `size` is that of the message in bytes.
    """

    op: str
    relation: int
    old: Tuple | None
    only_key: bool
    new: Tuple | None
    size: int


@dataclass(frozen=True)
class Truncate:
    """All rows of these tables were removed."""

    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Change | Truncate


def read_message(data: bytes) -> Message | None:
    """One message, None for one that says nothing about rows. Raises WireError."""
    try:
        return _read(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"a message that begins with {data[:16]!r} is cut off or damaged") from error


def _read(data: bytes) -> Message | None:
    match data[:1]:
        case b"I":
            new, _ = _tuple(data, _expect(data, 5, b"N"))
            return Change("c", _OID.unpack_from(data, 1)[0], None, False, new, len(data))
        case b"U":
            return _update(data)
        case b"D":
            old, _ = _tuple(data, 6)
            return Change("d", _OID.unpack_from(data, 1)[0], old, data[5:6] == b"K", None, len(data))
        case b"B":
            commit_lsn, committed_at, xid = _BEGIN.unpack_from(data)
            return Begin(commit_lsn, committed_at + _EPOCH_MICROSECONDS, xid)
        case b"C":
            _, commit_lsn, end_lsn, _ = _COMMIT.unpack_from(data)
            return Commit(commit_lsn, end_lsn)
        case b"R":
            return _relation(data)
        case b"T":
            (count,) = _INT.unpack_from(data, 1)
            return Truncate(struct.unpack_from(f">{count}I", data, 6))
        case b"O" | b"Y" | b"M":
            return None
        case _:
            raise WireError(f"a message that begins with {data[:16]!r} is none of version 1 of pgoutput")


def _update(data: bytes) -> Change:
    old, only_key, at = None, False, 5
    if data[5:6] in (b"K", b"O"):
        only_key = data[5:6] == b"K"
        old, at = _tuple(data, 6)
    new, _ = _tuple(data, _expect(data, at, b"N"))
    return Change("u", _OID.unpack_from(data, 1)[0], old, only_key, new, len(data))


def _expect(data: bytes, at: int, mark: bytes) -> int:
    if data[at : at + 1] != mark:
        raise WireError(f"a message that begins with {data[:16]!r} has no {mark.decode()} at {at}")
    return at + 1


def _tuple(data: bytes, at: int) -> tuple[Tuple, int]:
    (count,) = _SHORT.unpack_from(data, at)
    at += 2
    values: Tuple = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t: a text
            (length,) = _INT.unpack_from(data, at)
            at += 4
            end = at + length
            if length < 0 or end > len(data):
                raise IndexError(end)
            values.append(data[at:end])
            at = end
        elif kind == 0x6E:  # n: NULL
            values.append(None)
        elif kind == 0x75:  # u: not sent
            values.append(UNSENT)
        else:
            raise WireError(f"a message that begins with {data[:16]!r} has a value of kind {chr(kind)!r}")
    return values, at


def _relation(data: bytes) -> Relation:
    (relation,) = _OID.unpack_from(data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    # Behind it: the replica identity, which the catalog was asked for.
    (count,) = _SHORT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        column, at = _text(data, at + 1)
        type_id, _ = _TYPE.unpack_from(data, at)
        columns.append(RelationColumn(column, type_id))
        at += 8
    return Relation(relation, schema or "pg_catalog", name, tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\x00", at)
    if end < 0:
        raise IndexError(at)
    return data[at:end].decode(), end + 1
