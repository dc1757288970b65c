"""Format 4: a result is one JSON text; only the columns that statements ask for stand beside it."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "format_4"
down_revision = "format_3"
branch_labels = None
depends_on = None

# Where a column of format 3 has another name in the result.
TEXTS = ("at", "state", "strategy", "reason", "fingerprint", "mode", "cause", "data_timestamp")
NUMBERS = ("seconds", "version", "rows_in", "rows_out", "rejected", "cpu_seconds", "predicted_seconds", "full_seconds")
OTHERS = ("lag_seconds", "late_rows")
GONE = (
    *("reason", "fingerprint", "rows_in", "rows_out", "rejected", "data_timestamp", "error", "problems", "mode"),
    *("predicted_seconds", "full_seconds", "lag_seconds", "late_rows"),
)


def upgrade() -> None:
    connection = op.get_bind()
    op.add_column("freshline_refresh", sa.Column("result", sa.Text, nullable=False, server_default="{}"))
    rows = connection.execute(sa.text("SELECT * FROM freshline_refresh")).mappings().all()
    if rows:
        connection.execute(
            sa.text("UPDATE freshline_refresh SET result = :result WHERE id = :id"),
            [{"id": row["id"], "result": json.dumps(_result(row), separators=(",", ":"))} for row in rows],
        )
    for column in GONE:
        op.drop_column("freshline_refresh", column)


def _result(row: Any) -> dict[str, Any]:
    found = {name: row[name] for name in (*TEXTS, *NUMBERS, *OTHERS) if row[name] is not None}
    found |= {"table": row["name"], "committed": bool(row["committed"]), "problems": json.loads(row["problems"])}
    if row["error"] is not None:
        found["error"] = json.loads(row["error"])
    return found
