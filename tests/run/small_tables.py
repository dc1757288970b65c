"""Tables with receipts, written without Spark, and a runtime that has none: what needs Spark fails."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from freshline.commit.control_store import ControlStore
from freshline.commit.delta_log import read_newest
from freshline.commit.small import append_small, change_small, create_small
from freshline.commit.write import _properties
from freshline.plan.project import open_project
from freshline.run import Runtime, open_runtime
from freshline.sources.files.position import FilesPosition
from freshline.testing import Crash
from freshline.values.names import TableName
from freshline.values.position import Position
from freshline.values.receipt import Receipt
from freshline.values.settings import Settings

DELETED = re.compile(r'("deletionTimestamp":)(\d+)')
MONTH = 30 * 86400


def field(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


SCHEMA = {"type": "struct", "fields": [field("_freshline_seq", "long"), field("id", "integer"), field("n", "integer")]}


class SmallTables:
    """The runtime of a project without Spark, and commits as refreshes would make them."""

    def __init__(self, settings: Settings, declarations: dict[str, str]) -> None:
        settings.declarations.mkdir(parents=True)
        for name, text in declarations.items():
            (settings.declarations / f"{name}.sql").write_text(text)
        settings.state.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self.now = datetime.now(UTC)
        self._stop: Callable[[str], None] = lambda name: None
        self.runtime = self.open()

    def open(self) -> Runtime:
        """A runtime as another engine would have it."""
        self.runtime = open_runtime(
            self.settings,
            open_project(self.settings),
            cast(SparkSession, None),
            ControlStore.open(self.settings.control_store),
            clock=lambda: self.now,
            failpoint=lambda name: self._stop(name),
        )
        return self.runtime

    def path(self, name: str) -> Path:
        return self.runtime.warehouse.path(TableName.parse(name))

    def receipt(self, name: str) -> Receipt:
        newest = read_newest(self.path(name))
        assert newest is not None
        assert newest.receipt is not None
        return newest.receipt

    def ids(self, name: str) -> list[int]:
        return sorted(DeltaTable(str(self.path(name))).to_pyarrow_table()["id"].to_pylist())

    def create(self, name: str) -> Path:
        path = self.path(name)
        create_small(path, json.dumps(SCHEMA), partitioned_by=[], configuration=_properties(86400, None))
        return path

    def commit(
        self,
        name: str,
        ids: list[int],
        *,
        positions: dict[str, Position] | None = None,
        cut: dict[str, Any] | None = None,
        update: bool = False,
        seq: int | None = None,
        pending_lookups: int | None = None,
    ) -> Receipt:
        """One more commit of a table, with the rows of these ids; those of a log carry its number."""
        path = self.create(name)
        newest = read_newest(path)
        base = None if newest is None else newest.receipt
        number = seq or (1 if base is None else base.seq + 1)
        table = TableName.parse(name)
        receipt = Receipt(
            table=table,
            fingerprint=self.runtime.graph.spec(table).fingerprint if table in self.runtime.graph else "side",
            epoch=self.runtime.epoch,
            seq=number,
            mode="batch",
            strategy="append",
            reason="NEW_FILES",
            data_timestamp=self.now,
            positions={TableName.parse(key): at for key, at in (positions or {}).items()},
            rows_in=len(ids),
            rows_out=len(ids),
            attempt=uuid4().hex,
            cut=cut or {},
            pending_lookups=pending_lookups,
        )
        rows = pa.table(
            {
                "_freshline_seq": pa.array([number] * len(ids), pa.int64()),
                "id": pa.array(ids, pa.int32()),
                "n": pa.array([-each if update else each for each in ids], pa.int32()),
            }
        )
        if update:
            changes = rows.append_column("o", pa.array(["U"] * len(ids)))
            assert change_small(DeltaTable(str(path)), changes, receipt, op="o", keys=["id"], unique=True)
        else:
            assert append_small(DeltaTable(str(path)), rows, receipt)
        return receipt

    def batch(self, name: str, ids: list[int]) -> Receipt:
        """One more batch of a log table."""
        newest = read_newest(self.path(name)) if self.path(name).exists() else None
        seq = 1 if newest is None or newest.receipt is None else newest.receipt.seq + 1
        return self.commit(name, ids, positions={name: FilesPosition(0, ())}, cut={name: {"seq": seq}})

    @contextmanager
    def crash_at(self, point: str) -> Iterator[None]:
        def stop(name: str) -> None:
            if name == point:
                raise Crash(point)

        self._stop = stop
        try:
            yield
        finally:
            self._stop = lambda name: None

    def age(self) -> None:
        """All that was written is a month older, by the logs."""
        for file in self.settings.warehouse.rglob("*"):
            if not file.is_file():
                continue
            if file.parent.name == "_delta_log" and file.suffix == ".json":
                text = file.read_text()
                older = DELETED.sub(lambda found: f"{found[1]}{int(found[2]) - MONTH * 1000}", text)
                if older != text:
                    file.write_text(older)
            status = file.stat()
            os.utime(file, (status.st_atime - MONTH, status.st_mtime - MONTH))
