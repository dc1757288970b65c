"""The expected rows of the reference deployment's tables, folded in plain Python from the landing directory.

It shares no code with the generator, freshline or Spark: it reads the files as a person would, line by line, and
is the second opinion of tests that refresh the real tables. It only reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

Row = dict[str, Any]

COLUMNS = {
    "touch_event": {
        "event_id": "STRING",
        "customer_id": "STRING",
        "event_type": "STRING",
        "campaign_id": "STRING",
        "event_ts": "TIMESTAMP",
    },
    "sale_order": {
        "order_id": "STRING",
        "customer_id": "STRING",
        "total_amount": "DECIMAL",
        "order_ts": "TIMESTAMP",
    },
    "customer_change": {
        "event_id": "STRING",
        "op": "STRING",
        "customer_id": "STRING",
        "email": "STRING",
        "phone": "STRING",
        "segment": "STRING",
        "acquisition_channel": "STRING",
        "country": "STRING",
        "opt_in": "BOOLEAN",
        "updated_at": "TIMESTAMP",
    },
}


@dataclass(frozen=True)
class Landed:
    """The records of one source: each valid one once, and how many lines were redelivered or broken."""

    rows: tuple[Row, ...]
    redelivered: int
    broken: int


def read_landing(landing: Path, kind: str) -> Landed:
    """Read all files of one source, in the order of their names."""
    key = next(iter(COLUMNS[kind]))
    rows: dict[str, Row] = {}
    redelivered = broken = 0
    for path in sorted((landing / kind).iterdir()):
        if path.name.startswith((".", "_")):
            continue
        for line in path.read_bytes().splitlines():
            row = _read(line, COLUMNS[kind])
            if row is None or row[key] is None:
                broken += 1
            elif row[key] in rows:
                assert rows[row[key]] == row, f"{row[key]} came back with other values"
                redelivered += 1
            else:
                rows[row[key]] = row
    return Landed(tuple(rows.values()), redelivered, broken)


def fold_customer(changes: tuple[Row, ...]) -> list[Row]:
    """The newest change of each customer by (updated_at, event_id), without those whose newest is a delete."""
    newest: dict[str, Row] = {}
    for row in changes:
        other = newest.get(row["customer_id"])
        if other is None or (row["updated_at"], row["event_id"]) > (other["updated_at"], other["event_id"]):
            newest[row["customer_id"]] = row
    kept = [row for row in newest.values() if row["op"] != "d"]
    return [{name: value for name, value in row.items() if name not in ("event_id", "op")} for row in kept]


def fold_first_touch(touches: tuple[Row, ...]) -> list[Row]:
    """The first touch of each customer by (event_ts, event_id)."""
    first: dict[str, Row] = {}
    for row in sorted(touches, key=lambda row: (row["event_ts"], row["event_id"]), reverse=True):
        first[row["customer_id"]] = row
    return list(first.values())


def _read(line: bytes, columns: dict[str, str]) -> Row | None:
    try:
        record = json.loads(line.decode("utf-8"), parse_float=Decimal, parse_int=Decimal)
    except ValueError:  # also bad UTF-8
        return None
    if not isinstance(record, dict):
        return None
    row: Row = {}
    for name, kind in columns.items():
        value = record.get(name)
        match kind:
            case _ if value is None:
                row[name] = None
            case "TIMESTAMP":
                try:
                    row[name] = datetime.fromisoformat(value)
                except (TypeError, ValueError):
                    return None
            case "DECIMAL":
                try:
                    row[name] = Decimal(value).quantize(Decimal("0.01"))
                except (TypeError, ValueError, InvalidOperation):
                    return None
            case "BOOLEAN":
                if not isinstance(value, bool):
                    return None
                row[name] = value
            case _:
                if not isinstance(value, str):
                    return None
                row[name] = value
    return row
