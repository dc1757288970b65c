"""Values of keys as texts that databases read, each as itself."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any


def format_key(value: Any) -> str:
    """The text of a number, a date or a time; times have microseconds, and are of UTC where they have a zone.

    >>> format_key(Decimal("1E+2"))
    '100'
    """
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat(" ", "microseconds")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
