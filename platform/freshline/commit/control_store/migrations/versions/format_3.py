"""Format 3: counts of rows, and seconds of freshness, that do not fit into 32 bits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "format_3"
down_revision = "format_2"
branch_labels = None
depends_on = None

LONG = (
    ("freshline_refresh", "rows_in"),
    ("freshline_refresh", "rows_out"),
    ("freshline_refresh", "rejected"),
    ("freshline_refresh", "late_rows"),
    ("freshline_override", "freshness_seconds"),
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return  # its integers have as many bytes as they need
    for table, column in LONG:
        op.alter_column(table, column, type_=sa.BigInteger)
