"""Names of tables and sources: `name` or `namespace.name`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
# Columns that freshline adds to tables of its own begin with this, in any letter case.
RESERVED_COLUMN = "_freshline"
# Delta's change data feed has these columns beside those of a table.
CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
FEED_COLUMNS = frozenset({CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})
# So ends the name of the table of rows that came too late for a table with EMIT FINAL.
LATE = "__late"
# Names of columns with one of these are no names of columns in Parquet: Delta maps them to others in its files.
MAPPED_IN_COLUMN = re.compile(r"[ ,;{}()=]")
# Nobody reads these on a page or in a terminal.
_REFUSED_IN_COLUMN = re.compile(r"[\n\r\t]")


def column_mistake(name: str) -> tuple[str, str] | None:
    """The rule that the name of a stored column breaks, and a sentence; None of a name that can be stored and read."""
    if name.lower().startswith(RESERVED_COLUMN):
        return "RESERVED_NAME", f"column {name}: names that begin with {RESERVED_COLUMN} are freshline's own."
    if name.lower() in FEED_COLUMNS:
        return "RESERVED_NAME", f"column {name}: what is read of changes of its rows has a column of this name."
    if _REFUSED_IN_COLUMN.search(name):
        return "COLUMN_NAME", f"column {name!r} has a tab or a line end in its name."
    return None


def quoted(name: str) -> str:
    """A name in backquotes, as Spark's SQL has it.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class TableName:
    """The name of a table or source; equal names are equal in any letter case, as in Spark.

    >>> str(TableName.parse("sales.orders"))
    'sales.orders'
    >>> TableName.parse("Orders") == TableName.parse("orders")
    True
    """

    namespace: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read `name` or `namespace.name`; raises ValueError, with a sentence, for anything else."""
        parts = [part.strip().strip("`") for part in text.split(".")]
        if len(parts) > 2 or not all(PART.match(part) for part in parts):
            raise ValueError(
                f"{text!r} is not a name. A name is `name` or `namespace.name`; each part begins with a letter or "
                "underscore and has up to 128 letters, digits and underscores."
            )
        return cls(parts[0] if len(parts) == 2 else None, parts[-1])

    @property
    def parts(self) -> tuple[str, ...]:
        """The one or two parts, as Dagster's asset key and the folders of the warehouse use them."""
        return (self.namespace, self.name) if self.namespace else (self.name,)

    @property
    def view(self) -> str:
        """The name under which queries see the table in a session: a temporary view has no namespace.

        The length of the namespace distinguishes `a_b.c` and `a.b_c`.
        """
        if self.namespace is None:
            return self.name
        return f"freshline_{len(self.namespace)}_{self.namespace}_{self.name}"

    def __str__(self) -> str:
        return ".".join(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableName) and self._folded == other._folded

    def __hash__(self) -> int:
        return hash(self._folded)

    def __lt__(self, other: TableName) -> bool:
        return self._folded < other._folded

    @cached_property
    def _folded(self) -> tuple[str, ...]:
        return tuple(part.lower() for part in self.parts)


def late_name(name: TableName) -> TableName:
    """The table of the rows that came too late for a table with EMIT FINAL.

    >>> str(late_name(TableName.parse("sales.per_minute")))
    'sales.per_minute__late'
    """
    return TableName(name.namespace, name.name + LATE)
