"""The tables of the control store, as its format has them.

Times are ISO texts in UTC: they sort, and every database keeps them as they are. `key` is a table's name in lower case.
A change here comes with a new FORMAT: a store of another one is refused, and a new one is filled from the tables' logs.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

METADATA = MetaData()

# The type of numbers that may pass two thousand million; SQLite's integers are long enough as they are.
LongInteger = BigInteger().with_variant(Integer(), "sqlite")


def _lag_columns(*, nullable: bool) -> list[Column[Any]]:
    """The fields of a span of lag."""
    return [
        Column("first_at", String(40), nullable=nullable),
        Column("first_seconds", Float, nullable=nullable),
        Column("last_at", String(40), nullable=nullable),
        Column("last_seconds", Float, nullable=nullable),
        Column("greatest_seconds", Float, nullable=nullable),
        Column("freshness_seconds", LongInteger, nullable=nullable),
        Column("judged_seconds", Float, nullable=nullable),
        Column("late_seconds", Float, nullable=nullable),
    ]


def _table_columns() -> tuple[Column[str], Column[str]]:
    """The key of a table with one row, and its name."""
    return Column("key", String(300), primary_key=True), Column("name", String(300), nullable=False)


FORMATS = Table("freshline_format", METADATA, Column("format", Integer, nullable=False))

# Distinguishes this store from another that takes its place: ids of records begin anew there.
IDENTITIES = Table("freshline_identity", METADATA, Column("id", String(40), nullable=False))

EPOCHS = Table("freshline_epoch", METADATA, Column("epoch", Integer, nullable=False))

CHECKS = Table(
    "freshline_check",
    METADATA,
    *_table_columns(),
    Column("data_timestamp", String(40), nullable=False),
    Column("position", Text, nullable=False),
    Column("checked_at", String(40), nullable=False),
)

# Every refresh that ended, and every decision about a table. `result` is the whole of it as JSON. The other columns are
# those that statements ask for.
REFRESHES = Table(
    "freshline_refresh",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", String(300), nullable=False, index=True),
    Column("name", String(300), nullable=False),
    Column("at", String(40), nullable=False),
    Column("state", String(40), nullable=False),
    Column("strategy", String(40)),
    Column("seconds", Float, nullable=False),
    Column("version", Integer),
    Column("committed", Boolean, nullable=False),
    Column("cause", String(40)),
    Column("cpu_seconds", Float),
    Column("result", Text, nullable=False),
)

REQUESTS = Table(
    "freshline_request",
    METADATA,
    Column("id", String(100), primary_key=True),
    Column("kind", String(40), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("created_at", String(40), nullable=False),
    Column("state", String(40)),
    Column("error", Text),
    Column("finished_at", String(40)),
)

# Counts every change of the intentions below, so that whoever follows them reads one number.
GENERATIONS = Table("freshline_generation", METADATA, Column("generation", Integer, nullable=False))

OVERRIDES = Table(
    "freshline_override",
    METADATA,
    *_table_columns(),
    Column("freshness_seconds", LongInteger, nullable=False),
    Column("decided_by", String(300), nullable=False),
    Column("decided_at", String(40), nullable=False),
    Column("until", String(40)),
)

SUSPENSIONS = Table(
    "freshline_suspension",
    METADATA,
    *_table_columns(),
    Column("decided_by", String(300), nullable=False),
    Column("decided_at", String(40), nullable=False),
    Column("until", String(40)),
    Column("reason", Text),
    Column("automatic", Boolean, nullable=False),
)

# Scheduled failures in a row that a retry cannot help, of each table that has any (rule 12 of docs/rules.md).
FAILURES = Table(
    "freshline_failure",
    METADATA,
    *_table_columns(),
    Column("count", Integer, nullable=False),
    Column("first_at", String(40), nullable=False),
    Column("last_at", String(40), nullable=False),
    Column("error", Text, nullable=False),
)

# When a process that must not fall silent was last heard of, and what it said of itself.
HEARTBEATS = Table(
    "freshline_heartbeat",
    METADATA,
    Column("name", String(100), primary_key=True),
    Column("at", String(40), nullable=False),
    Column("detail", Text, nullable=False),
)

ALERTS = Table(
    "freshline_alert",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("subject", String(300), nullable=False, index=True),
    Column("kind", String(40), nullable=False),
    Column("level", String(10), nullable=False),
    Column("cause", Text, nullable=False),
    Column("since", String(40), nullable=False),
    Column("raised_at", String(40), nullable=False),
    Column("reminded_at", String(40), nullable=False),
    Column("calm_since", String(40)),
    Column("recovered_at", String(40)),
    Column("link", Text),
)

# Since when tables that have no data yet are waited for.
AWAITED = Table(
    "freshline_awaited",
    METADATA,
    *_table_columns(),
    Column("at", String(40), nullable=False),
)

# The deliveries of each channel, written in the same transaction as the alert's change.
DELIVERIES = Table(
    "freshline_delivery",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("alert_id", Integer, nullable=False, index=True),
    Column("channel", String(100), nullable=False),
    Column("event", String(40), nullable=False),
    Column("created_at", String(40), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", String(40), nullable=False),
    Column("delivered_at", String(40)),
    Column("given_up_at", String(40)),
    Column("error", Text),
)

# How tables lagged, in spans of a minute and more: kept for 7 days. `begin` is the minute of the first sample.
SPANS = Table(
    "freshline_span",
    METADATA,
    Column("key", String(300), primary_key=True),
    Column("begin", String(40), primary_key=True),
    *_lag_columns(nullable=False),
    Index("ix_freshline_span_begin", "begin"),
)

# The same by hours, with the sums of the refreshes: kept for 30 days. The lag is NULL where nobody read it.
HOURS = Table(
    "freshline_hour",
    METADATA,
    Column("key", String(300), primary_key=True),
    Column("begin", String(40), primary_key=True),
    *_lag_columns(nullable=True),
    Column("refreshes", Integer, nullable=False),
    Column("checks", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("rows_in", LongInteger, nullable=False),
    Column("rows_out", LongInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("cpu_seconds", Float, nullable=False),
    Column("measured", Integer, nullable=False),
    Index("ix_freshline_hour_begin", "begin"),
)

# Refreshes and decisions for charts, without checks that found nothing new: kept for 7 days.
MARKS = Table(
    "freshline_mark",
    METADATA,
    Column("id", LongInteger, primary_key=True, autoincrement=True),
    Column("key", String(300), nullable=False),
    Column("at", String(40), nullable=False),
    Column("state", String(40), nullable=False),
    Column("reason", Text, nullable=False),
    Column("strategy", String(100)),
    Column("committed", Boolean, nullable=False),
    Column("version", LongInteger),
    Column("rows_in", LongInteger),
    Column("rows_out", LongInteger),
    Column("rejected", LongInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("cpu_seconds", Float),
    Column("lag_seconds", Float),
    Column("freshness_seconds", LongInteger),
    Column("mode", String(40)),
    Column("cause", String(40)),
    Index("ix_freshline_mark_key_at", "key", "at"),
)
