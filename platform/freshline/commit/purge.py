"""Delete the data of a table that is declared no more; what is begun is finished, whoever is stopped in between.

A mark beside the tables says that a table is to go; then its folders are moved out of readers' sight, one step each,
and deleted; the mark goes last. The next engine finishes what it finds marked, unless the name was declared again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from freshline.commit.delta_log import read_newest
from freshline.commit.warehouse import Warehouse
from freshline.errors import RequestError, StorageError
from freshline.values.names import TableName
from freshline.values.position import TablePosition

FOLDER = "_freshline_purged"
_MARK = ".purge"


def purge_table(
    warehouse: Warehouse,
    name: TableName,
    declared: Collection[TableName],
    failpoint: Callable[[str], None] = lambda point: None,
) -> list[Path]:
    """Delete the folder of a table and of the rows that wait for their dimension; the folders that were there.

    One that is another declared table's is left. Raises RequestError where a folder of that name is no table that was
    computed (a log table is the only copy of its rows), and StorageError where the warehouse cannot be written.
    """
    _require_computed(warehouse, name)
    away = warehouse.root / FOLDER
    mark = away / f"{name}{_MARK}"
    kept = {warehouse.path(other) for other in declared}
    try:
        away.mkdir(parents=True, exist_ok=True)
        mark.touch()
        failpoint("purge-marked")
        found = []
        for path in (warehouse.path(name), warehouse.pending_lookups(name)):
            if path not in kept and (path / "_delta_log").is_dir():
                path.rename(away / uuid4().hex)
                found.append(path)
                failpoint("purge-moved")
        _delete_moved(away)
        if name.namespace is not None:
            # Others may be in it.
            with suppress(OSError):
                warehouse.path(name).parent.rmdir()
        mark.unlink()
    except OSError as error:
        raise StorageError(
            f"the table cannot be deleted: {error.strerror or error}. Make the warehouse writable for this user, and "
            "drop it again.",
            where=str(error.filename or warehouse.path(name)),
        ) from error
    return found


def _require_computed(warehouse: Warehouse, name: TableName) -> None:
    newest = read_newest(warehouse.path(name))
    if newest is None:
        return
    receipt = newest.receipt
    computed = receipt is not None and all(isinstance(one, TablePosition) for one in receipt.positions.values())
    if receipt is None or not computed or receipt.table != name:
        raise RequestError(
            f"the folder {warehouse.path(name)} is no table that was computed from others. If nobody needs its rows, "
            "delete it yourself, with the engine stopped.",
            where=str(name),
        )


def finish_purges(warehouse: Warehouse, declared: Collection[TableName]) -> list[TableName]:
    """Finish what was begun; the names of tables that were deleted. Raises StorageError as `purge_table` does."""
    away = warehouse.root / FOLDER
    if not away.is_dir():
        return []
    finished = []
    for mark in sorted(away.glob(f"*{_MARK}")):
        name = TableName.parse(mark.name.removesuffix(_MARK))
        if name in declared:
            # Its folder may contain a table that was declared since.
            mark.unlink(missing_ok=True)
            continue
        purge_table(warehouse, name, declared)
        finished.append(name)
    _delete_moved(away)
    return finished


def _delete_moved(away: Path) -> None:
    for folder in away.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
