"""The query of a table, kept as it was written.

Spark runs the text of the declaration. freshline only cuts and inserts at places that the parser found: it
names the view to read for each table, takes out `FOR SYSTEM_TIME AS OF PROCTIME()`, puts the pinned version in
the place of `version_of(d)`, and adds columns of its own to the outermost select list. Nothing is printed
back from a syntax tree, so nothing of the user's SQL can change on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from freshline.declare.location import Location
from freshline.declare.names import TableName
from freshline.declare.rules import declaration_error
from freshline.errors import DeclarationError


@dataclass(frozen=True)
class Span:
    """The characters [start, end) of the query's text."""

    start: int
    end: int


@dataclass(frozen=True)
class Reference:
    """One place where the query reads a table.

    `span` covers the name as written. `alias` is what columns are qualified by: the alias, or the name's last part.
    `has_alias` says whether the query itself gives one. `lookup` says that FOR SYSTEM_TIME AS OF PROCTIME() follows.
    """

    name: TableName
    span: Span
    alias: str
    has_alias: bool
    lookup: bool


@dataclass(frozen=True)
class LookupJoin:
    """A dimension met at a pinned version.

    `keys` are pairs (column of the dimension, SQL of the probe's expression), from the equalities of the ON clause.
    `outer` is True for LEFT JOIN.
    """

    table: TableName
    alias: str
    keys: tuple[tuple[str, str], ...]
    outer: bool


@dataclass(frozen=True)
class WindowTime:
    """A column by which rows are put into windows: one of `table`, None where that is a query in parentheses."""

    function: str
    table: TableName | None
    column: str
    line: int

    def check(self, types: Mapping[TableName, Mapping[str, str]], path: str) -> DeclarationError | None:
        """The error for a column that is no time; `types` are those of the tables whose columns are known.

        Columns are in lower case there, and types are Spark's in upper case.
        """
        known = {} if self.table is None else types.get(self.table, {})
        found = known.get(self.column.lower())
        if found is None or found.startswith("TIMESTAMP"):
            return None
        return declaration_error(
            "WINDOW_TIME",
            f"{self.function} puts rows into windows by {self.column}, which is {found} and no TIMESTAMP. Name another "
            f"column, or read {self.table} in a query in parentheses that makes one of it, such as "
            f"(SELECT *, CAST({self.column} AS TIMESTAMP) AS at FROM {self.table}).",
            Location(path, self.line),
        )


@dataclass(frozen=True)
class SqlQuery:
    """One SELECT in Spark SQL, and the places in it that freshline works on.

    `line` is the line of the file on which `text` begins. `select_end` is where further select items can be
    added to the outermost SELECT (the place of its FROM), None for a set operation or a query without FROM.
    `meaning` is the query without comments and layout: two queries with equal meaning are the same query.
    `written` is the query of the file: `text` differs from it where window table functions are written out, line by
    line the same. `window_times` are the columns by which these put rows into windows.
    """

    text: str
    line: int
    references: tuple[Reference, ...]
    lookup_joins: tuple[LookupJoin, ...]
    removed: tuple[Span, ...]
    version_calls: tuple[tuple[Span, str], ...]
    qualifiers: tuple[tuple[Span, TableName], ...]
    select_end: int | None
    meaning: str
    written: str
    window_times: tuple[WindowTime, ...] = ()

    @property
    def reads(self) -> tuple[TableName, ...]:
        """Every table that is read, each once, in the order of the query."""
        return tuple(dict.fromkeys(reference.name for reference in self.references))

    @property
    def lookups(self) -> frozenset[TableName]:
        """Tables read only as dimensions of lookup joins."""
        probed = {reference.name for reference in self.references if not reference.lookup}
        return frozenset(reference.name for reference in self.references if reference.lookup) - probed

    def render(
        self,
        *,
        views: Mapping[TableName, str] | None = None,
        versions: Mapping[str, int] | None = None,
        select_also: Sequence[str] = (),
    ) -> str:
        """The text for Spark.

        `views` names the view to read for a table (default: `TableName.view`), `versions` gives the pinned version for
        each lookup alias that `version_of` names, `select_also` are select items to add at the end of the outermost
        list.
        """
        views = views or {}
        edits: list[tuple[int, int, str]] = [(span.start, span.end, " ") for span in self.removed]
        for reference in self.references:
            view = f"`{views.get(reference.name, reference.name.view)}`"
            if not reference.has_alias:
                view += f" AS `{reference.alias}`"
            edits.append((reference.span.start, reference.span.end, view))
        for span, name in self.qualifiers:
            edits.append((span.start, span.end, f"`{name.name}`"))
        for span, alias in self.version_calls:
            version = (versions or {}).get(alias.lower(), 0)
            edits.append((span.start, span.end, f"CAST({version} AS BIGINT)"))
        if select_also:
            if self.select_end is None:
                raise ValueError("columns can only be added to a query that is one SELECT with a FROM")
            edits.append((self.select_end, self.select_end, ", " + ", ".join(select_also) + " "))
        text = self.text
        for start, end, replacement in sorted(edits, reverse=True):
            text = text[:start] + replacement + text[end:]
        return text


@dataclass(frozen=True)
class PythonInput:
    """A parameter of a Python table: what it reads, and whether as a lookup dimension."""

    parameter: str
    name: TableName
    lookup: bool = False


@dataclass(frozen=True)
class PythonQuery:
    """A table computed by a Python function of DataFrames.

    `path` is the file, relative to the project's root, and `function` the function's name in it. `code_hash` covers
    the file and the project's own modules that it imports.
    """

    path: str
    function: str
    inputs: tuple[PythonInput, ...]
    code_hash: str

    @property
    def reads(self) -> tuple[TableName, ...]:
        return tuple(dict.fromkeys(item.name for item in self.inputs))

    @property
    def lookups(self) -> frozenset[TableName]:
        probed = {item.name for item in self.inputs if not item.lookup}
        return frozenset(item.name for item in self.inputs if item.lookup) - probed

    @property
    def meaning(self) -> object:
        return [self.function, [(i.parameter, str(i.name).lower(), i.lookup) for i in self.inputs], self.code_hash]
