"""Declarations as values that are not in a file yet, and their SQL.

The text is one that a person would have written. It is read like any other before it counts: a draft promises the
quotes, and not that the declaration is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from freshline.values.freshness import Freshness
from freshline.values.names import TableName, quoted
from freshline.values.spec import Column, Downstream

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Words that begin something else where a column may stand.
_CLAUSES = frozenset({"CONSTRAINT", "PRIMARY", "WATERMARK"})
_UNITS = (("DAY", 86_400), ("HOUR", 3_600), ("MINUTE", 60), ("SECOND", 1))


@dataclass(frozen=True)
class SourceDraft:
    """A source: its columns, and the options of WITH by name."""

    name: TableName
    columns: Sequence[Column]
    options: Mapping[str, str]
    primary_key: Sequence[str] = ()
    comment: str | None = None

    def sql(self) -> str:
        """CREATE SOURCE, with a line for each column and option."""
        items = [*map(_column, self.columns), *_key(self.primary_key)]
        clauses = [*_comment(self.comment), _with(self.options)]
        return "\n".join([f"CREATE SOURCE {self.name} (", ",\n".join(items), ")", *clauses]) + ";\n"


@dataclass(frozen=True)
class TableDraft:
    """A table: its query, how fresh it is, and the options of WITH by name."""

    name: TableName
    query: str
    freshness: Freshness | Downstream
    primary_key: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    def sql(self) -> str:
        """CREATE MATERIALIZED TABLE, with the query as it was given."""
        key = [" (", *_key(self.primary_key), ")"] if self.primary_key else []
        clauses = [*_comment(self.comment), *([_with(self.options)] if self.options else [])]
        head = f"CREATE MATERIALIZED TABLE {self.name}" + "\n".join(key)
        query = self.query.strip().rstrip(";").rstrip()
        # A comment at the end of the query would take the semicolon with it.
        end = "\n;\n" if "--" in query.rpartition("\n")[2] else ";\n"
        return "\n".join([head, *clauses, f"FRESHNESS = {_freshness(self.freshness)}", f"AS {query}"]) + end


def quoted_name(name: str) -> str:
    """The name of a column, in backquotes where it would not be read as one without.

    >>> quoted_name("order_id"), quoted_name("order-id"), quoted_name("primary")
    ('order_id', '`order-id`', '`primary`')
    """
    plain = _PLAIN.match(name) and name.upper() not in _CLAUSES
    return name if plain else quoted(name)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _column(column: Column) -> str:
    words = [quoted_name(column.name), column.type]
    words += [] if column.metadata is None else ["METADATA FROM", _text(column.metadata)]
    words += [] if column.comment is None else ["COMMENT", _text(column.comment)]
    return "  " + " ".join(words)


def _key(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield f"  PRIMARY KEY ({', '.join(map(quoted_name, names))})"


def _comment(text: str | None) -> Iterator[str]:
    if text is not None:
        yield f"COMMENT {_text(text)}"


def _with(options: Mapping[str, str]) -> str:
    lines = ",\n".join(f"  {_text(name)} = {_text(value)}" for name, value in options.items())
    return f"WITH (\n{lines}\n)"


def _freshness(freshness: Freshness | Downstream) -> str:
    if isinstance(freshness, Downstream):
        return freshness.value
    unit, seconds = next((unit, size) for unit, size in _UNITS if freshness.seconds % size == 0)
    return f"INTERVAL '{freshness.seconds // seconds}' {unit}"
