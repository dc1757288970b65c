"""The rejected records, for a person and a program: code, reason, place and bytes of each, the newest first.

It only reads, and needs neither Spark nor an engine. The bytes are shown as a text from which every byte is known:
bytes that are no UTF-8, characters that cannot be printed and backslashes are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from freshline.commit import delta_log
from freshline.errors import ReadError
from freshline.report.samples import quoted
from freshline.values.connector import RETRIED_IN
from freshline.values.names import RESERVED_COLUMN

# The columns that every record has; all other columns of a quarantine table are its place.
_TOLD = ("raw", "error", "message", "quarantined_at")
_SURROGATES = range(0xDC80, 0xDD00)


@dataclass(frozen=True)
class RejectedRecord:
    """One record in quarantine. `place` says where it came from: file and line, partition and offset, a slot's number.

    `content` are its bytes, escaped.
    """

    code: str
    reason: str
    place: Mapping[str, Any]
    content: str
    at: datetime

    @property
    def place_text(self) -> str:
        """The place on one line."""
        known = {name: value for name, value in self.place.items() if value is not None}
        if set(known) == {"file", "line"}:
            return f"{known['file']}:{known['line']}"
        if len(known) == 1:
            return str(next(iter(known.values())))
        return ", ".join(f"{name} {_place_value(value)}" for name, value in known.items())

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline quarantine --json` prints."""
        return {
            "code": self.code,
            "reason": self.reason,
            "place": {name: _place_value(value) for name, value in self.place.items()},
            "bytes": self.content,
            "quarantined_at": self.at.isoformat(),
        }


def read_rejected(path: Path, most: int | None) -> list[RejectedRecord]:
    """The newest records in a quarantine table that are no rows yet; none where there is no table.

    Raises SourceError where its log cannot be read, and ReadError where its rows cannot.
    """
    if not delta_log.exists(path):
        return []
    table = delta_log.open_table(path)
    names = [field.name for field in table.schema().fields]
    shown = [name for name in names if not name.lower().startswith(RESERVED_COLUMN) and name != RETRIED_IN]
    columns = ", ".join(quoted(name) for name in shown)
    condition = f" WHERE {quoted(RETRIED_IN)} IS NULL" if RETRIED_IN in names else ""
    places = [name for name in shown if name not in _TOLD]
    order = ", ".join([f"{quoted('quarantined_at')} DESC", *(f"{quoted(name)} DESC" for name in places)])
    limit = "" if most is None else f" LIMIT {most}"
    query = f"SELECT {columns} FROM rejected{condition} ORDER BY {order}{limit}"
    try:
        rows = pa.table(QueryBuilder().register("rejected", table).execute(query).read_all()).to_pylist()
    except Exception as error:
        # The errors of reading the files have no class of their own in delta-rs.
        raise ReadError(f"its records cannot be read: {error}", where=str(path)) from error
    return [
        RejectedRecord(
            str(row["error"]),
            str(row["message"]),
            {name: row[name] for name in places},
            escaped(row["raw"]),
            row["quarantined_at"].astimezone(UTC),
        )
        for row in rows
    ]


def escaped(content: bytes | str | None) -> str:
    r"""Bytes as a text of one line from which each of them is known; of a text, that of its UTF-8.

    >>> print(escaped(b'1,"a\xff"\n\\x'), escaped("é"), repr(escaped(None)))
    1,"a\xff"\n\\x é ''
    """
    text = content.decode("utf-8", "surrogateescape") if isinstance(content, bytes) else content or ""
    return "".join(map(_escaped, text))


def _place_value(value: Any) -> Any:
    """A part of a place as JSON has it: the bytes of a key are escaped, a time is a text."""
    if isinstance(value, bytes):
        return escaped(value)
    return value if value is None or isinstance(value, (int, str, float)) else str(value)


def _escaped(letter: str) -> str:
    if ord(letter) in _SURROGATES:
        return f"\\x{ord(letter) - 0xDC00:02x}"
    if letter == "\\" or not letter.isprintable():
        return letter.encode("unicode_escape").decode("ascii")
    return letter
