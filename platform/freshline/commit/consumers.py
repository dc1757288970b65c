"""Registered consumers: how far each has read the changes of a table, as files beside the tables.

A position belongs to its consumer, which moves it after it is done with what it read. Maintenance keeps all changes
after it until it expires.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from freshline.commit.notes import ENDING, read_note, read_notes, remove_note, write_note
from freshline.commit.warehouse import Warehouse
from freshline.plan.read import Consumer


def read_consumers(warehouse: Warehouse) -> list[Consumer]:
    """All consumers, by name, expired ones too."""
    folder = warehouse.notes / "consumers"
    return [Consumer.from_json(value, str(file)) for file, value in read_notes(folder)]


def read_consumer(warehouse: Warehouse, name: str) -> Consumer | None:
    """The consumer of a name, None where there is none."""
    file = _file(warehouse, name)
    value = read_note(file)
    return None if value is None else Consumer.from_json(value, str(file))


def keep_consumer(
    warehouse: Warehouse,
    *,
    name: str,
    table: str,
    table_id: str,
    version: int,
    commit: str | None,
    expiry_seconds: int,
    now: datetime,
    rows_first: bool = False,
    new: bool = False,
) -> Consumer | None:
    """Write a consumer's position, whose commit has the digest `commit`; with `new`, None where the name is in use."""
    expires = now + timedelta(seconds=expiry_seconds)
    consumer = Consumer(name, table, table_id, version, expiry_seconds, now, expires, rows_first, commit)
    return consumer if write_note(_file(warehouse, name), consumer.as_json(), new=new) else None


def forget_consumer(warehouse: Warehouse, name: str) -> bool:
    """Remove a consumer; whether there was one."""
    return remove_note(_file(warehouse, name))


def _file(warehouse: Warehouse, name: str) -> Path:
    return warehouse.notes / "consumers" / f"{name.lower()}{ENDING}"
