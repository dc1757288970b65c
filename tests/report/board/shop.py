"""A project with a past, written by delta-rs and the control store as an engine and a watch would write it.

Texts that people and queries choose are hostile: markup, quotes, marks that turn the direction of writing, 10 KB.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.declare.project_settings import read_settings
from freshline.errors import QueryError
from freshline.freshness.alert import Alert, AlertEvent, AlertKind, AlertLevel, News
from freshline.freshness.intentions import FreshnessOverride, Suspension
from freshline.plan.project import open_project
from freshline.report.lag_recorder import LagRecorder
from freshline.report.status import TableStatus
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult, State
from freshline.values.settings import Settings

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOSTILE = (
    "</script></style><script>alert('x')</script><img src=x onerror=alert(1)>"
    "\"'`{{ 7 * 7 }}\u202egnp.exe\u2066\x1b[2J&amp;"
)
LONG = HOSTILE + "ä" * 10_000
ORDERS, SPEND, DAILY = (
    TableName.parse("shop.orders"),
    TableName.parse("shop.spend"),
    TableName.parse("shop.daily_revenue"),
)
LARGE, BEST = TableName.parse("shop.large_order"), TableName.parse("crm.best_customers")
PRICES, REPORT = TableName.parse("prices"), TableName.parse("crm.monthly_report")


def _sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


DECLARATIONS = {
    "shop/orders": "CREATE SOURCE shop.orders"
    " (id STRING, customer STRING, amount DECIMAL(10,2) COMMENT 'with tax', ts TIMESTAMP)"
    " COMMENT 'Orders as they arrive' WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing/orders')",
    "prices": "CREATE SOURCE prices (id STRING) WITH ('connector' = 'delta', 'path' = 'prices')",
    "shop/spend": "CREATE MATERIALIZED TABLE shop.spend (PRIMARY KEY (customer) NOT ENFORCED)"
    f" COMMENT {_sql(HOSTILE)} WITH ('owner' = 'data@example.com') FRESHNESS = INTERVAL '30' SECOND AS"
    " SELECT customer, sum(amount) AS spent, count(*) AS orders FROM shop.orders GROUP BY customer",
    "shop/daily_revenue": "CREATE MATERIALIZED TABLE shop.daily_revenue (PRIMARY KEY (day) NOT ENFORCED)"
    " FRESHNESS = INTERVAL '10' MINUTE AS"
    " SELECT CAST(ts AS DATE) AS day, sum(amount) AS revenue FROM shop.orders GROUP BY CAST(ts AS DATE)",
    "shop/large_order": "CREATE MATERIALIZED TABLE shop.large_order FRESHNESS = INTERVAL '5' MINUTE AS"
    " SELECT id, customer, amount FROM shop.orders WHERE amount > 100",
    "crm/best_customers": "CREATE MATERIALIZED TABLE crm.best_customers WITH ('owner' = 'crm@example.com')"
    " FRESHNESS = INTERVAL '1' HOUR AS SELECT customer, spent FROM shop.spend WHERE spent > 1000",
    "crm/monthly_report": "CREATE MATERIALIZED TABLE crm.monthly_report FRESHNESS = INTERVAL '1' DAY AS"
    " SELECT b.customer, p.id FROM crm.best_customers AS b JOIN prices AS p ON p.id = b.customer",
}  # fmt: skip


@dataclass
class Shop:
    """The project; `now` is its last moment."""

    root: Path
    settings: Settings
    graph: Graph
    control: ControlStore
    now: datetime = NOW

    def path(self, name: TableName) -> Path:
        return Warehouse(self.settings.warehouse).location(self.graph.spec(name))

    def commit(self, name: TableName, seq: int, columns: dict[str, Any], stamp: datetime, reason: str) -> int:
        """One commit with a receipt, whose positions are the newest of all inputs; its version."""
        reads = [read for read in self.graph.reads(name) if (self.path(read) / "_delta_log").is_dir()]
        receipt = Receipt(
            table=name, fingerprint="f", epoch=1, seq=seq, mode=str(self.graph.mode(name)), strategy="append",
            reason=reason, data_timestamp=stamp,
            positions={read: self.position(read) for read in reads}, rows_in=3, rows_out=3, attempt="a", seconds=0.4,
        )  # fmt: skip
        properties = CommitProperties(custom_metadata={"userMetadata": receipt.to_json()})
        write_deltalake(self.path(name), pa.table(columns), mode="append", commit_properties=properties)
        return DeltaTable(self.path(name)).version()

    def position(self, name: TableName) -> TablePosition:
        table = DeltaTable(self.path(name))
        return TablePosition(str(table.metadata().id), table.version(), table.version() + 1)

    def record(self, name: TableName, at: datetime, **values: object) -> None:
        """One refresh that ended at a moment."""
        known: dict[str, object] = {
            "table": name, "at": at, "state": State.SUCCEEDED, "strategy": "append", "reason": "INSERTS_ONLY: added",
            "committed": True, "rows_in": 120, "rows_out": 120, "seconds": 0.8, "cpu_seconds": 0.4, "lag_seconds": 2.0,
            "freshness_seconds": self.graph.freshness(name).seconds, "mode": "incremental", "cause": "live",
        }  # fmt: skip
        self.control.record_refresh(RefreshResult(**{**known, **values}))  # type: ignore[arg-type]


@contextmanager
def open_shop(root: Path, declarations: dict[str, str] | None = None) -> Iterator[Shop]:
    """The project in an empty folder, never refreshed."""
    (root / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    for name, statement in (DECLARATIONS if declarations is None else declarations).items():
        file = root / "assets" / f"{name}.sql"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(statement + "\n", encoding="utf-8")
    settings = read_settings(root, {})
    control = ControlStore.open(settings.control_store)
    try:
        yield Shop(root, settings, open_project(settings), control)
    finally:
        control.close()


def fill(shop: Shop, said: str = HOSTILE, long: str = LONG, value: str = HOSTILE) -> None:
    """Each state once: fresh, late since the source stopped, failing, suspended, blocked, and without data.

    `said` and `long` are in reasons, errors and causes, and `value` is one of rows.
    """
    now = shop.now
    ids: list[object] = ["a", "b", value]
    amounts: list[object] = [1.0, 2.0, 3.0]
    orders = {"id": ids, "customer": ids, "amount": amounts, "ts": [now] * 3}
    stamp = now - timedelta(minutes=4)
    for seq in range(1, 4):
        version = shop.commit(ORDERS, seq, orders, now - timedelta(seconds=4), "INSERTS_ONLY: new files")
    shop.record(ORDERS, now - timedelta(seconds=4), version=version, lag_seconds=0.2)
    for seq in range(1, 4):
        version = shop.commit(
            SPEND, seq, {"customer": ids, "spent": amounts, "orders": [1, 2, 3]}, stamp, "AFFECTED_KEYS: 3"
        )
        shop.commit(DAILY, seq, {"day": ids, "revenue": amounts}, stamp, "AFFECTED_KEYS: 1")
        shop.commit(BEST, seq, {"customer": ids, "spent": amounts}, stamp, "INSERTS_ONLY: added")
    # Rows that the tables do not have yet.
    shop.commit(ORDERS, 4, orders, now - timedelta(seconds=4), "INSERTS_ONLY: new files")
    _past(shop)
    shop.record(SPEND, now - timedelta(minutes=4), version=version, strategy="keys", reason="AFFECTED_KEYS: 3 keys")
    shop.record(
        LARGE, now - timedelta(seconds=20), state=State.FAILED, strategy=None, committed=False, version=None,
        reason=f"QUERY: {long}", error=QueryError(long, where="large_order.sql:1"), lag_seconds=None,
    )  # fmt: skip
    shop.record(DAILY, now - timedelta(minutes=4), version=2, strategy="keys", reason="AFFECTED_KEYS: 1 day")
    _decide(shop, said)


def _past(shop: Shop) -> None:
    """Nine days of spend, whose source stood still for a while each day, and whose promise was shorter before."""
    recorder = LagRecorder(shop.control.history)
    at = shop.now - timedelta(days=9)
    while at < shop.now:
        recent = at > shop.now - timedelta(hours=2)
        stands = at.hour == 3
        lag = 5.0 * at.minute if stands else 4.0 + at.minute % 7
        if at > shop.now - timedelta(minutes=4):
            lag = (at - shop.now + timedelta(minutes=4)).total_seconds()
        freshness = 30 if at > shop.now - timedelta(days=3) else 60
        recorder.record([_status(SPEND, lag, freshness), _status(DAILY, 60.0 + at.minute * 4, 600)], at)
        if at.minute % 20 == 0 and at > shop.now - timedelta(days=8):
            failed = stands and at.minute == 40
            shop.record(
                SPEND, at, version=1, strategy=None if failed else "keys", committed=not failed,
                state=State.FAILED if failed else State.SUCCEEDED, lag_seconds=lag, freshness_seconds=freshness,
                reason="SOURCE: the landing directory is gone" if failed else "AFFECTED_KEYS: 3 keys",
            )  # fmt: skip
        at += timedelta(minutes=1 if recent else 20)


def _status(name: TableName, lag: float, freshness: int) -> TableStatus:
    return TableStatus(name, "table", "batch", "", freshness, None, lag, "SUCCEEDED", 1, None, None, last_refresh=None)


def _decide(shop: Shop, said: str) -> None:
    now = shop.now
    raised = now - timedelta(minutes=3)
    shop.control.intentions.change(
        expected=shop.control.intentions.generation(),
        set_overrides=[FreshnessOverride(DAILY, Freshness(900), said, raised, now + timedelta(hours=2))],
        set_suspensions=[Suspension(BEST, "ada", raised, None, said)],
    )
    alerts = [
        Alert(str(SPEND), AlertKind.LATE, AlertLevel.FAIL, said, raised, raised, raised),
        Alert(
            str(SPEND), AlertKind.FAILING, AlertLevel.WARN, "SOURCE: the landing directory is gone",
            now - timedelta(days=1), now - timedelta(days=1), now - timedelta(days=1), None, now - timedelta(hours=20),
        ),
    ]  # fmt: skip
    shop.control.alerts.record([News(AlertEvent.RAISED, alert) for alert in alerts], [], [], raised)
