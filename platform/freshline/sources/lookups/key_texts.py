"""Values of keys as they stand in names and addresses."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def key_text(value: Any) -> str:
    """The text of a value: decimal numbers with all digits, times in UTC with a Z.

    >>> key_text(datetime(2026, 1, 2, tzinfo=UTC))
    '2026-01-02T00:00:00Z'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
