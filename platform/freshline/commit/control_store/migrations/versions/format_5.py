"""Format 5: the past of each table's freshness, for the board."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "format_5"
down_revision = "format_4"
branch_labels = None
depends_on = None

# Integers of SQLite have as many bytes as they need.
_LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table("freshline_span", *_key_and_begin(), *_lag(nullable=False))
    op.create_index("ix_freshline_span_begin", "freshline_span", ["begin"])
    op.create_table(
        "freshline_hour",
        *_key_and_begin(),
        *_lag(nullable=True),
        sa.Column("refreshes", sa.Integer, nullable=False),
        sa.Column("checks", sa.Integer, nullable=False),
        sa.Column("failed", sa.Integer, nullable=False),
        sa.Column("rows_in", _LONG, nullable=False),
        sa.Column("rows_out", _LONG, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("cpu_seconds", sa.Float, nullable=False),
        sa.Column("measured", sa.Integer, nullable=False),
    )
    op.create_index("ix_freshline_hour_begin", "freshline_hour", ["begin"])
    op.create_table(
        "freshline_mark",
        sa.Column("id", _LONG, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String(300), nullable=False),
        sa.Column("at", sa.String(40), nullable=False),
        sa.Column("state", sa.String(40), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("strategy", sa.String(100)),
        sa.Column("committed", sa.Boolean, nullable=False),
        sa.Column("version", _LONG),
        sa.Column("rows_in", _LONG),
        sa.Column("rows_out", _LONG),
        sa.Column("rejected", _LONG, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("cpu_seconds", sa.Float),
        sa.Column("lag_seconds", sa.Float),
        sa.Column("freshness_seconds", _LONG),
        sa.Column("mode", sa.String(40)),
        sa.Column("cause", sa.String(40)),
    )
    op.create_index("ix_freshline_mark_key_at", "freshline_mark", ["key", "at"])


def _key_and_begin() -> tuple[sa.Column[str], sa.Column[str]]:
    return sa.Column("key", sa.String(300), primary_key=True), sa.Column("begin", sa.String(40), primary_key=True)


def _lag(*, nullable: bool) -> list[sa.Column[Any]]:
    return [
        sa.Column("first_at", sa.String(40), nullable=nullable),
        sa.Column("first_seconds", sa.Float, nullable=nullable),
        sa.Column("last_at", sa.String(40), nullable=nullable),
        sa.Column("last_seconds", sa.Float, nullable=nullable),
        sa.Column("greatest_seconds", sa.Float, nullable=nullable),
        sa.Column("freshness_seconds", _LONG, nullable=nullable),
        sa.Column("judged_seconds", sa.Float, nullable=nullable),
        sa.Column("late_seconds", sa.Float, nullable=nullable),
    ]
