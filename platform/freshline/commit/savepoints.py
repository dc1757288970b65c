"""Savepoints of a warehouse, and the restore that is under way, as files beside the tables."""

from __future__ import annotations

from pathlib import Path

from freshline.commit.notes import ENDING, read_note, read_notes, remove_note, write_note
from freshline.commit.warehouse import Warehouse
from freshline.plan.savepoint import Restoration, Savepoint


def read_savepoints(warehouse: Warehouse) -> list[Savepoint]:
    """All savepoints, the oldest first. Only reads."""
    found = [Savepoint.from_json(value, str(file)) for file, value in read_notes(warehouse.notes / "savepoints")]
    return sorted(found, key=lambda savepoint: (savepoint.created_at, savepoint.name))


def read_savepoint(warehouse: Warehouse, name: str) -> Savepoint | None:
    """The savepoint of a name, None where there is none."""
    file = _file(warehouse, name)
    value = read_note(file)
    return None if value is None else Savepoint.from_json(value, str(file))


def keep_savepoint(warehouse: Warehouse, savepoint: Savepoint) -> bool:
    """Write a savepoint; False where the name is in use. Stopped at any point it is there whole or not at all."""
    return write_note(_file(warehouse, savepoint.name), savepoint.as_json(), new=True)


def forget_savepoint(warehouse: Warehouse, name: str) -> bool:
    """Remove a savepoint; whether there was one."""
    return remove_note(_file(warehouse, name))


def read_restoration(warehouse: Warehouse) -> Restoration | None:
    """The restore that was begun and has not ended, None where there is none."""
    file = _under_way(warehouse)
    # Asked before every refresh: most often there is none.
    if not file.exists():
        return None
    value = read_note(file)
    return None if value is None else Restoration.from_json(value, str(file))


def begin_restoration(warehouse: Warehouse, restoration: Restoration) -> None:
    """Note a restore before anything of it is done: from here on it is finished, by whoever comes next."""
    write_note(_under_way(warehouse), restoration.as_json())


def end_restoration(warehouse: Warehouse) -> None:
    """Note that everything of the restore is done."""
    remove_note(_under_way(warehouse))


def _file(warehouse: Warehouse, name: str) -> Path:
    return warehouse.notes / "savepoints" / f"{name.lower()}{ENDING}"


def _under_way(warehouse: Warehouse) -> Path:
    return warehouse.notes / f"restore{ENDING}"
