"""The refresh log as a Delta table: `freshline_refreshes` in the warehouse, for any reader, for as long as wanted.

Every refresh and decision is in the control store at once; from there the engine appends them here in batches. Each
batch is one commit with the id of its last record as transaction version, so a batch is there once or not at all,
whenever the engine dies. Checks that found nothing new, which come every second, are one row a batch, or more where
something else happened to their table in between.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import heappush, heappushpop
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from freshline.commit.control_store import ControlStore
from freshline.errors import FreshlineError, StorageError
from freshline.plan.rebuild import Sort, sort_of
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State, TableKind

LOG = logging.getLogger(__name__)

NAME = "freshline_refreshes"
TIMESTAMP = pa.timestamp("us", tz="UTC")
# A field of a result has a column by its type. A value that is no number, time or text is a text of JSON.
_TYPES: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    State: pa.string(),
    TableKind: pa.string(),
    TableName: pa.string(),
    datetime: TIMESTAMP,
    FreshlineError: pa.string(),
}
# Those of one store, or of a declaration that is known by its table.
_WITHOUT = ("id", "fingerprint")


def _schema() -> pa.Schema:
    """One column for each field of a result that has a single value, and `checks`, the count of results in a row."""
    types = {name: _plain(hint) for name, hint in get_type_hints(RefreshResult).items() if name not in _WITHOUT}
    columns = [(name, _TYPES[kind]) for name, kind in types.items() if kind in _TYPES]
    return pa.schema([*columns, ("looks", pa.int32())])


def _plain(hint: Any) -> Any:
    """The type of a field that may be None."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    return kinds[0] if isinstance(hint, UnionType) and len(kinds) == 1 else hint


SCHEMA = _schema()
_BATCH = 5_000
# Small files are joined when there are so many; their old versions go after the days that Delta keeps them.
_MOST_FILES = 64


@dataclass(frozen=True)
class Checks:
    """A record, and how many checks it stands for."""

    record: RefreshResult
    count: int = 1


def condense(records: Iterable[RefreshResult]) -> list[Checks]:
    """Records in their order, where a table's checks that found nothing are one until something else happens to it.

    The last of them stands for all, with the seconds of all.
    """
    found: list[Checks] = []
    place: dict[str, int] = {}
    for record in records:
        name = str(record.table)
        before = place.get(name)
        if before is not None and record.is_check and _is_alike(found[before].record, record):
            seconds = found[before].record.seconds + record.seconds
            found[before] = Checks(replace(record, seconds=seconds), found[before].count + 1)
            continue
        place[name] = len(found)
        found.append(Checks(record))
    return found


def _is_alike(before: RefreshResult, record: RefreshResult) -> bool:
    return before.is_check and (before.reason, before.mode, before.version) == (
        record.reason,
        record.mode,
        record.version,
    )


class RefreshLog:
    """Appends what the control store has and the table does not; used by one engine at a time."""

    def __init__(self, control: ControlStore, warehouse: Path) -> None:
        self._control = control
        self._path = warehouse / NAME
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        return self._path

    def flush(self) -> int:
        """Append all new records; returns how many rows. Raises StorageError when the table cannot be written."""
        with self._lock:
            try:
                return self._flush()
            except (DeltaError, OSError) as error:
                raise StorageError(f"the refresh log cannot be written: {error}", where=str(self._path)) from error

    def _flush(self) -> int:
        application = f"freshline/refresh-log/{self._control.identity()}"
        table = self._open()
        last = table.transaction_version(application) or 0
        written = 0
        while records := self._control.refreshes_after(last, _BATCH):
            rows = condense(records)
            last = records[-1].id or last
            write_deltalake(
                table,
                rows_of(rows),
                mode="append",
                # A table of an older freshline lacks the columns of newer fields.
                schema_mode="merge",
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(application, last, int(time.time() * 1000))]
                ),
            )
            written += len(rows)
        if written and len(table.file_uris()) > _MOST_FILES:
            table.optimize.compact()
            table.vacuum(dry_run=False)
        return written

    def _open(self) -> DeltaTable:
        if not (self._path / "_delta_log").is_dir():
            DeltaTable.create(
                str(self._path),
                schema=Schema.from_arrow(SCHEMA),
                mode="ignore",
                name=NAME,
                description="Every refresh of this warehouse, and every decision about its tables",
                configuration={"delta.checkpointInterval": "50"},
            )
        return DeltaTable(str(self._path))


def read_newest_records(warehouse: Path, most: int) -> list[RefreshResult]:
    """Of each table the newest records of each sort in the refresh log, at most so many, in their order.

    Empty where there is no log. Reads it as a whole, a part at a time. Raises StorageError for one that cannot be read.
    """
    path = warehouse / NAME
    if not (path / "_delta_log").is_dir():
        return []
    newest: dict[tuple[TableName, Sort], list[tuple[datetime, int, RefreshResult]]] = {}
    number = 0
    try:
        for batch in DeltaTable(str(path)).to_pyarrow_dataset().to_batches():
            for row in batch.to_pylist():
                record, number = _record(row), number + 1
                kept = newest.setdefault((record.table, sort_of(record)), [])
                put = heappush if len(kept) < most else heappushpop
                put(kept, (record.at, number, record))
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise StorageError(f"the refresh log cannot be read: {error}", where=str(path)) from error
    found = sorted((each for kept in newest.values() for each in kept), key=lambda each: each[:2])
    return [record for _, _, record in found]


def rows_of(checks: Sequence[Checks]) -> pa.Table:
    """The rows of the table."""
    return pa.Table.from_pylist([{**_row(one.record), "looks": one.count} for one in checks], schema=SCHEMA)


def _row(record: RefreshResult) -> dict[str, Any]:
    """A result by column: times are times, its table is a text and its error JSON."""
    row = {name: getattr(record, name) for name in SCHEMA.names if name != "looks"}
    error = None if record.error is None else json.dumps(record.error.as_json())
    return {**row, "table": str(record.table), "error": error}


def _record(row: Mapping[str, Any]) -> RefreshResult:
    """The result of a row; columns that the table did not have when it was written take their defaults."""
    values = {name: value for name, value in row.items() if value is not None}
    if "error" in values:
        values["error"] = json.loads(values["error"])
    return RefreshResult.from_json(values)
