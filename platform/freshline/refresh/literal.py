"""Values of Spark types as SQL text, for the few places that take only text (Delta's `replaceWhere`)."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

from freshline.errors import RefreshError


def sql_literal(value: object) -> str:
    r"""A typed literal of Spark SQL that reads back as the value.

    >>> sql_literal("it's")
    "'it\\'s'"
    >>> sql_literal(date(2026, 11, 1))
    "DATE'2026-11-01'"

    Raises RefreshError for a value that has no literal (a partition column of a nested type).
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case Decimal():
            return f"{value:f}BD"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case datetime() if value.tzinfo is None:
            return f"TIMESTAMP_NTZ'{value.isoformat(sep=' ')}'"
        case datetime():
            return f"TIMESTAMP'{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE'{value.isoformat()}'"
    raise RefreshError(f"a partition value of type {type(value).__name__} cannot be written as a literal")


def quoted(name: str) -> str:
    """A column name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def partition_predicate(columns: tuple[str, ...], values: list[tuple[object, ...]]) -> str:
    """The condition that holds for exactly the rows of these partitions; NULL is a partition like any other.

    >>> partition_predicate(("ds",), [("a",), ("b",), (None,)])
    "(`ds` IN ('a', 'b')) OR (`ds` IS NULL)"
    """
    if len(columns) == 1:
        column = quoted(columns[0])
        present = [sql_literal(value) for (value,) in values if value is not None]
        parts = [f"({column} IN ({', '.join(present)}))"] if present else []
        if len(present) < len(values):
            parts.append(f"({column} IS NULL)")
        return " OR ".join(parts)
    return " OR ".join(
        "("
        + " AND ".join(
            f"{quoted(column)} IS NULL" if value is None else f"{quoted(column)} = {sql_literal(value)}"
            for column, value in zip(columns, row, strict=True)
        )
        + ")"
        for row in values
    )
