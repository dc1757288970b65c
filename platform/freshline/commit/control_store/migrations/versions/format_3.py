"""Format 3: every table of the control store, as the newest format before releases had them."""

from __future__ import annotations

from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "format_3"
down_revision = None
branch_labels = None
depends_on = None

# Integers of SQLite have as many bytes as they need.
_LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table("freshline_format", sa.Column("format", sa.Integer, nullable=False))
    op.create_table("freshline_epoch", sa.Column("epoch", sa.Integer, nullable=False))
    op.create_table(
        "freshline_check",
        sa.Column("key", sa.String(300), primary_key=True),
        sa.Column("name", sa.String(300), nullable=False),
        sa.Column("data_timestamp", sa.String(40), nullable=False),
        sa.Column("position", sa.Text, nullable=False),
        sa.Column("checked_at", sa.String(40), nullable=False),
    )
    op.create_table(
        "freshline_refresh",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String(300), nullable=False, index=True),
        sa.Column("name", sa.String(300), nullable=False),
        sa.Column("at", sa.String(40), nullable=False),
        sa.Column("state", sa.String(40), nullable=False),
        sa.Column("strategy", sa.String(40)),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("version", sa.Integer),
        sa.Column("fingerprint", sa.String(100), nullable=False),
        sa.Column("rows_in", _LONG),
        sa.Column("rows_out", _LONG),
        sa.Column("rejected", _LONG, nullable=False),
        sa.Column("committed", sa.Boolean, nullable=False),
        sa.Column("data_timestamp", sa.String(40)),
        sa.Column("error", sa.Text),
        sa.Column("problems", sa.Text, nullable=False),
        sa.Column("mode", sa.String(40)),
        sa.Column("cause", sa.String(40)),
        sa.Column("cpu_seconds", sa.Float),
        sa.Column("predicted_seconds", sa.Float),
        sa.Column("full_seconds", sa.Float),
        sa.Column("lag_seconds", sa.Float),
        sa.Column("late_rows", _LONG),
    )
    op.create_table(
        "freshline_request",
        sa.Column("id", sa.String(100), primary_key=True),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(40), nullable=False),
        sa.Column("state", sa.String(40)),
        sa.Column("error", sa.Text),
        sa.Column("finished_at", sa.String(40)),
    )
    op.create_table("freshline_identity", sa.Column("id", sa.String(40), nullable=False))
    op.execute(sa.text("INSERT INTO freshline_identity (id) VALUES (:id)").bindparams(id=uuid4().hex))
    op.create_table("freshline_generation", sa.Column("generation", sa.Integer, nullable=False))
    op.execute(sa.text("INSERT INTO freshline_generation (generation) VALUES (0)"))
    op.create_table(
        "freshline_override",
        *_subject(),
        sa.Column("freshness_seconds", _LONG, nullable=False),
        sa.Column("decided_by", sa.String(300), nullable=False),
        sa.Column("decided_at", sa.String(40), nullable=False),
        sa.Column("until", sa.String(40)),
    )
    op.create_table(
        "freshline_suspension",
        *_subject(),
        sa.Column("decided_by", sa.String(300), nullable=False),
        sa.Column("decided_at", sa.String(40), nullable=False),
        sa.Column("until", sa.String(40)),
        sa.Column("reason", sa.Text),
        sa.Column("automatic", sa.Boolean, nullable=False),
    )
    op.create_table(
        "freshline_failure",
        *_subject(),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("first_at", sa.String(40), nullable=False),
        sa.Column("last_at", sa.String(40), nullable=False),
        sa.Column("error", sa.Text, nullable=False),
    )
    op.create_table(
        "freshline_heartbeat",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("at", sa.String(40), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_table(
        "freshline_alert",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("subject", sa.String(300), nullable=False, index=True),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("level", sa.String(10), nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("since", sa.String(40), nullable=False),
        sa.Column("raised_at", sa.String(40), nullable=False),
        sa.Column("reminded_at", sa.String(40), nullable=False),
        sa.Column("calm_since", sa.String(40)),
        sa.Column("recovered_at", sa.String(40)),
        sa.Column("link", sa.Text),
    )
    op.create_table("freshline_awaited", *_subject(), sa.Column("at", sa.String(40), nullable=False))
    op.create_table(
        "freshline_delivery",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("alert_id", sa.Integer, nullable=False, index=True),
        sa.Column("channel", sa.String(100), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("created_at", sa.String(40), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.String(40), nullable=False),
        sa.Column("delivered_at", sa.String(40)),
        sa.Column("given_up_at", sa.String(40)),
        sa.Column("error", sa.Text),
    )


def _subject() -> tuple[sa.Column[str], sa.Column[str]]:
    return sa.Column("key", sa.String(300), primary_key=True), sa.Column("name", sa.String(300), nullable=False)
