"""A project whose tables are written by delta-rs, with receipts as an engine would write them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.declare.project_settings import read_settings
from freshline.errors import error_from_json
from freshline.plan.project import open_project
from freshline.values.names import TableName
from freshline.values.position import Position, TablePosition
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult
from freshline.values.settings import Settings

ORDERS, SPEND = TableName.parse("orders"), TableName.parse("sales.spend")
DECLARATIONS = {
    "orders.sql": "CREATE SOURCE orders (id STRING) FRESHNESS = INTERVAL '{freshness}' SECOND "
    "WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing')",
    "sales/spend.sql": "CREATE MATERIALIZED TABLE sales.spend FRESHNESS = INTERVAL '{freshness}' SECOND AS "
    "SELECT id FROM orders",
}


@dataclass
class Shop:
    """The log table `orders` and the table `sales.spend` over it."""

    settings: Settings
    graph: Graph
    warehouse: Warehouse
    control: ControlStore

    def path(self, name: TableName) -> Path:
        return self.warehouse.location(self.graph.spec(name))

    def commit(self, name: TableName, seq: int, stamp: datetime) -> None:
        """A refresh whose data is as of `stamp`."""
        positions: dict[TableName, Position] = {}
        if name == SPEND:
            orders = DeltaTable(self.path(ORDERS))
            positions[ORDERS] = TablePosition(str(orders.metadata().id), orders.version(), seq)
        receipt = Receipt(
            table=name, fingerprint="f", epoch=1, seq=seq, mode="continuous", strategy="append", reason="new rows",
            data_timestamp=stamp, positions=positions, rows_in=1, rows_out=1, attempt="a", seconds=1.5,
        )  # fmt: skip
        properties = CommitProperties(custom_metadata={"userMetadata": receipt.to_json()})
        table = pa.table({"id": pa.array(["1"], pa.string())})
        write_deltalake(self.path(name), table, mode="append", commit_properties=properties)

    def refresh(self, seq: int, stamp: datetime) -> None:
        """Both tables are as of `stamp`."""
        self.commit(ORDERS, seq, stamp)
        self.commit(SPEND, seq, stamp)

    def record(self, name: TableName, at: datetime, **changes: Any) -> None:
        values: dict[str, Any] = {
            "table": name, "at": at, "state": "SUCCEEDED", "strategy": "append", "reason": "new rows", "seconds": 0.1,
            "version": 0, "rows_in": 0, "rows_out": 0, "rejected": 0, "committed": True, "fingerprint": "f",
            "cause": "live", **changes,
        }  # fmt: skip
        if isinstance(error := values.get("error"), dict):
            values["error"] = error_from_json(error)
        self.control.record_refresh(RefreshResult(**values))

    def fail(self, name: TableName, at: datetime, code: str = "QUERY", *, retry_helps: bool = False) -> None:
        error = {"code": code, "message": "it cannot be.", "where": str(name), "retry_helps": retry_helps}
        self.record(name, at, state="FAILED", strategy=None, committed=False, error=error)


def make_shop(root: Path, *, control_store: str | None = None, freshness: int = 10, settings: str = "") -> Shop:
    """The project on disk, without any refresh yet."""
    store = "" if control_store is None else f'control-store = "{control_store}"\n'
    root.mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text(f"[tool.freshline]\n{store}{settings}\n", encoding="utf-8")
    for path, text in DECLARATIONS.items():
        file = root / "assets" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(freshness=freshness), encoding="utf-8")
    (root / "landing").mkdir(exist_ok=True)
    found = read_settings(root, {})
    control = ControlStore.open(found.control_store)
    return Shop(found, open_project(found), Warehouse(found.warehouse), control)
