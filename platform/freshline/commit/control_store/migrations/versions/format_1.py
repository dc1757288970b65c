"""Format 1: epoch, checks, refreshes, requests. Stores of that format were made without Alembic."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "format_1"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    there = set(sa.inspect(op.get_bind()).get_table_names())
    if "freshline_format" not in there:
        op.create_table("freshline_format", sa.Column("format", sa.Integer, nullable=False))
        op.execute(sa.text("INSERT INTO freshline_format (format) VALUES (1)"))
    if "freshline_epoch" not in there:
        op.create_table("freshline_epoch", sa.Column("epoch", sa.Integer, nullable=False))
    if "freshline_check" not in there:
        op.create_table(
            "freshline_check",
            sa.Column("key", sa.String(300), primary_key=True),
            sa.Column("name", sa.String(300), nullable=False),
            sa.Column("data_timestamp", sa.String(40), nullable=False),
            sa.Column("position", sa.Text, nullable=False),
            sa.Column("checked_at", sa.String(40), nullable=False),
        )
    if "freshline_refresh" not in there:
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
            sa.Column("rows_in", sa.Integer),
            sa.Column("rows_out", sa.Integer),
            sa.Column("rejected", sa.Integer, nullable=False),
            sa.Column("committed", sa.Boolean, nullable=False),
            sa.Column("data_timestamp", sa.String(40)),
            sa.Column("error", sa.Text),
            sa.Column("problems", sa.Text, nullable=False),
        )
    if "freshline_request" not in there:
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
