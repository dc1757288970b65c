"""Messages of `pgoutput`, written byte by byte as Postgres' documentation has them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from freshline.sources.postgres.wire import UNSENT, Unsent

Given = str | bytes | None | Unsent


def begin(commit_lsn: int, xid: int = 700, microseconds: int = 0) -> bytes:
    return struct.pack(">cqqI", b"B", commit_lsn, microseconds, xid)


def commit(commit_lsn: int, end_lsn: int) -> bytes:
    return struct.pack(">cBqqq", b"C", 0, commit_lsn, end_lsn, 0)


def relation(oid: int, columns: Sequence[tuple[str, int]], name: str = "t") -> bytes:
    head = b"R" + struct.pack(">I", oid) + b"public\0" + name.encode() + b"\0d" + struct.pack(">h", len(columns))
    return head + b"".join(b"\1" + each.encode() + b"\0" + struct.pack(">Ii", kind, -1) for each, kind in columns)


def row(*values: Given) -> bytes:
    made = struct.pack(">h", len(values))
    for value in values:
        if value is None:
            made += b"n"
        elif value is UNSENT:
            made += b"u"
        else:
            data = value.encode() if isinstance(value, str) else value
            assert isinstance(data, bytes)
            made += b"t" + struct.pack(">i", len(data)) + data
    return made


def insert(oid: int, *values: Given) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + row(*values)


def update(oid: int, *values: Given, key: Sequence[Given] = (), old: Sequence[Given] = ()) -> bytes:
    before = b"K" + row(*key) if key else b"O" + row(*old) if old else b""
    return b"U" + struct.pack(">I", oid) + before + b"N" + row(*values)


def delete(oid: int, *values: Given, whole: bool = False) -> bytes:
    return b"D" + struct.pack(">I", oid) + (b"O" if whole else b"K") + row(*values)


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(f">iB{len(oids)}I", len(oids), 0, *oids)
