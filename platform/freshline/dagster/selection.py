"""Selections of tables, in the syntax of dbt: names with wildcards, methods, and `+` for what stands above or below.

| selection | selects |
|---|---|
| `sales.revenue` | one table or source |
| `sales.*` | every name that matches: `*` is any text, `?` one character |
| `namespace:sales` | all of a namespace; `namespace:` those without one |
| `mode:batch` | all whose mode is effective now: `continuous`, `incremental` or `batch` |
| `kind:log` | all of a kind: `table`, `log` or `source` |
| `group:finance`, `owner:ada` | by what their declarations say |
| `+sales.revenue` | the table and everything that it reads, near or far; `1+` only what it reads itself |
| `sales.revenue+` | the table and everything that reads it; `+1` only what reads it itself |
| `a b` | either |
| `a,b` | both at once |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from freshline.dagster.translator import FreshlineTable, table_of
from freshline.declare.graph import Graph
from freshline.errors import SettingsError
from freshline.values.names import TableName
from freshline.values.rules import nearest

Selection = str | Sequence[str]

ALL = "*"
_TERM = re.compile(r"(?P<above>(?P<up>[0-9]*)\+)?(?P<text>[^+]+)(?P<below>\+(?P<down>[0-9]*))?")
_METHODS: dict[str, Callable[[FreshlineTable], str]] = {
    "group": lambda table: table.group or "",
    "kind": lambda table: table.kind,
    "mode": lambda table: table.mode,
    "namespace": lambda table: table.namespace or "",
    "owner": lambda table: table.owner or "",
}
# The allowed values, where they are a fixed list: another one is a mistake, and not a selection of nothing.
_VALUES = {"kind": ("table", "log", "source"), "mode": ("continuous", "incremental", "batch")}


def select_tables(graph: Graph, select: Selection = ALL, exclude: Selection = ()) -> tuple[TableName, ...]:
    """The tables and sources of a selection without the excluded ones, in the order of the graph.

    A list selects what any of its entries does. Raises SettingsError for what is no selection, and for a name, or the
    value of a method, without a wildcard that no table has: a spelling mistake would otherwise lose tables without a
    word. A kind or a mode that exists and no table has now selects nothing.
    """
    excluded = _any_of(graph, exclude)
    selected = _any_of(graph, select)
    return tuple(name for name in graph.order if name in selected and name not in excluded)


def _any_of(graph: Graph, selection: Selection) -> set[TableName]:
    entries = [selection] if isinstance(selection, str) else list(selection)
    return {name for entry in entries for part in entry.split() for name in _all_of(graph, part)}


def _all_of(graph: Graph, part: str) -> set[TableName]:
    sets = [_term(graph, term, part) for term in part.split(",")]
    return set.intersection(*sets)


def _term(graph: Graph, term: str, part: str) -> set[TableName]:
    found = _TERM.fullmatch(term)
    if found is None:
        raise SettingsError(
            f"{part!r} is no selection. Write a name such as sales.revenue or sales.*, or a method such as mode:batch, "
            "with + before it for what it reads and after it for what reads it."
        )
    chosen = _matching(graph, found["text"])
    result = set(chosen)
    if found["above"]:
        result |= _reach(chosen, graph.reads, found["up"])
    if found["below"]:
        result |= _reach(chosen, graph.consumers, found["down"])
    return result


def _matching(graph: Graph, text: str) -> set[TableName]:
    method, colon, value = text.partition(":")
    if colon:
        return _by_method(graph, method, value)
    pattern = text.lower()
    found = {name for name in graph.order if fnmatchcase(str(name).lower(), pattern)}
    if not found and not set("*?[") & set(text):
        known = [str(name) for name in graph.order]
        raise SettingsError(f"the selection names {text}, and there is no such table or source.{nearest(text, known)}")
    return found


def _by_method(graph: Graph, method: str, value: str) -> set[TableName]:
    if method not in _METHODS:
        raise SettingsError(f"{method}: is no method of a selection. There are {', '.join(_METHODS)}.")
    if method in _VALUES and value not in _VALUES[method]:
        raise SettingsError(f"{method}:{value} selects nothing. There are {', '.join(_VALUES[method])}.")
    of = _METHODS[method]
    values = {name: of(table_of(graph, name)) for name in graph.order}
    found = {name for name, each in values.items() if fnmatchcase(each.lower(), value.lower())}
    if not found and method not in _VALUES and value and not set("*?[") & set(value):
        known = sorted({each for each in values.values() if each})
        there = (
            f"There are {', '.join(known)}." if known else f"No table has one: {method} is an option of declarations."
        )
        raise SettingsError(f"{method}:{value} selects nothing.{nearest(value, known)} {there}")
    return found


def _reach(
    begin: Collection[TableName], step: Callable[[TableName], Iterable[TableName]], steps: str
) -> set[TableName]:
    """The tables that are reached within so many steps, without an end where no number is given."""
    reached: set[TableName] = set()
    edge, left = set(begin), int(steps) if steps else None
    while edge and left != 0:
        edge = {after for name in edge for after in step(name)} - reached
        reached |= edge
        left = None if left is None else left - 1
    return reached
