"""Stretch: where only the rows of a key near the times of its changed rows decide how the key's result changes.

The sessions of a key are such: a changed row touches those within a gap of it, and no others. So are matches WITHIN an
interval: those that began so long before a changed row stay. So are windows of so many rows: those that were full
before a changed row stay. So a refresh reads these rows alone, and replaces what is stored of them. Here is said which
columns that takes, read from the syntax alone; of a query that is not understood all rows of the keys are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from freshline.errors import DeclarationError
from freshline.query.functions import GENERATORS, is_session_key, name_of
from freshline.query.query import Query
from freshline.query.rules.partition import column_of, trace_to_input, trace_to_query
from freshline.query.tree import NotDerivedError, expression_nodes, item_expression, unsupported
from freshline.sql.count_windows import NUMBER, PLACE
from freshline.sql.session_windows import BEGINS
from freshline.sql.tokens import Text
from freshline.sql.window_functions import read_interval
from freshline.values.names import TableName
from freshline.values.query import MATCH_FUNCTION, RANK
from freshline.values.rules import declaration_error


@dataclass(frozen=True)
class Bound:
    """A column of the result that has the first or the last time of a session, and how far it is from it."""

    column: str
    moved: int = 0


@dataclass(frozen=True)
class AffectedInterval:
    """The rows of a key that changed rows of `input` touch.

    `keys` and `time` are columns of `input`, and `key_columns` those of the result that are the keys, in their order.
    Without keys, all rows are of one.
    """

    input: TableName
    keys: tuple[str, ...]
    time: str
    key_columns: tuple[str, ...]

    @property
    def place(self) -> Bound:
        """The column of the result by which rows of a key are found in time."""
        raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the result by which the rows that may change are replaced."""
        return (*self.key_columns, self.place.column)

    @property
    def whose(self) -> str:
        return "of these keys " if self.keys else ""


@dataclass(frozen=True)
class AffectedSessions(AffectedInterval):
    """The sessions of a key near a changed row.

    `gap` is in microseconds. `first` and `last` are columns with the bounds of a session, at least one of them is
    there. `complete` says that the result has each session of the input.
    """

    gap: int
    first: Bound | None
    last: Bound | None
    complete: bool

    @property
    def place(self) -> Bound:
        bound = self.first or self.last
        assert bound is not None
        return bound

    def __str__(self) -> str:
        return f"{self.whose}the sessions within {_shown(self.gap)} of a changed {self.time}"


@dataclass(frozen=True)
class Matches(AffectedInterval):
    """The matches of a key that began less than `within` microseconds before a changed row, and those after them.

    `began` is a column with the time of a match's first row. The result has every match.
    """

    within: int
    began: Bound

    @property
    def place(self) -> Bound:
        return self.began

    def __str__(self) -> str:
        return f"{self.whose}the matches from {_shown(self.within)} before a changed {self.time} on"


@dataclass(frozen=True)
class Counted(AffectedInterval):
    """The windows of so many rows of a key, from the first one on that has not all of its rows before a changed row.

    `order` are the columns of `input` that the rows of a key are ordered by, `time` the first of them. `number`,
    `first` and `last` are the columns of the result with the number of a window and its bounds. Rows of window n do
    not lie in window n + `overlap`. The result has every window.
    """

    order: tuple[str, ...]
    number: str
    first: Bound
    last: Bound
    overlap: int

    @property
    def place(self) -> Bound:
        return Bound(self.number)

    def __str__(self) -> str:
        return f"{self.whose}the windows from the first changed {self.time} on"


@dataclass(frozen=True)
class _Inner:
    """The query that has the rows of sessions: its source, and which of its columns are keys and bounds."""

    query: exp.Select
    source: exp.Expr
    keys: Mapping[str, str]
    time: str
    gap: int
    first: tuple[str, ...]
    last: Mapping[str, int]


@lru_cache(maxsize=1024)
def find_affected_interval(query: Query) -> AffectedSessions | Matches | Counted | None:
    """The stretch of a query's keys that changes of one input affect; None where it is the whole key. Pure."""
    if query.volatile is not None:
        return None
    try:
        tree = query.expanded
        sessions, patterns, places = [*_by_function(tree), *_by_spark(tree)], _patterns(tree), _places(tree)
        if len(sessions) + len(patterns) + len(places) != 1:
            return None
        if sessions:
            return _sessions(query, tree, sessions[0])
        return _matches(query, tree, patterns[0]) if patterns else _counted(query, tree, places[0])
    except (NotDerivedError, DeclarationError, ValueError):
        return None


def _patterns(tree: exp.Expr) -> list[exp.Anonymous]:
    return [call for call in tree.find_all(exp.Anonymous) if name_of(call) == MATCH_FUNCTION]


def _matches(query: Query, tree: exp.Expr, call: exp.Anonymous) -> Matches | None:
    """The matches of a MATCH_RECOGNIZE, as `freshline.sql.match_recognize` writes it."""
    facts = json.loads(call.expressions[0].name)
    selects = [call.parent_select]
    while selects[-1] is not None:
        selects.append(selects[-1].parent_select)
    found, inner = selects[0], selects[2]
    if facts["began"] is None or found is None or inner is None or not _keeps_rows(tree, inner):
        return None
    arrays = found.args["from_"].this.this
    source = arrays.args["from_"].this
    if any(item.alias == RANK for item in source.find_all(exp.Alias)):
        source = source.this.args["from_"].this
    group = arrays.args.get("group")
    if _multiplies(source):
        return None
    keys = {key.name: key.name for key in (group.expressions if group is not None else ())}
    began = column_of(facts["began"])
    traced = _Inner(inner, source, keys, column_of(facts["time"]), facts["within"], (began,), {})
    sessions = _sessions(query, tree, traced)
    if sessions is None or sessions.first is None:
        return None
    shared = (sessions.input, sessions.keys, sessions.time, sessions.key_columns)
    return Matches(*shared, within=facts["within"], began=sessions.first)


def _multiplies(source: exp.Expr) -> bool:
    """Whether a row of the input may be several rows of what is read: those that are alone are found in the input."""
    for node in source.walk():
        if isinstance(node, exp.UDTF | exp.SetOperation) or name_of(node) in GENERATORS:
            return True
        if isinstance(node, exp.Select):
            joins = node.args.get("joins") or ()
            if node.args.get("laterals") or any(join.kind not in ("SEMI", "ANTI") for join in joins):
                return True
    return False


def _places(tree: exp.Expr) -> list[exp.Alias]:
    return [item for item in tree.find_all(exp.Alias) if item.alias == PLACE]


def _counted(query: Query, tree: exp.Expr, item: exp.Alias) -> Counted | None:
    """The windows of a COUNT_WINDOW, as `freshline.sql.count_windows` writes it."""
    placed = item.parent_select
    numbered = placed.parent_select if placed is not None else None
    inner = numbered.parent_select if numbered is not None else None
    window = next(item.find_all(exp.Window), None)
    if placed is None or numbered is None or inner is None or window is None:
        raise unsupported(PLACE)
    order = window.args["order"].expressions
    # The first row by time is changed last where time descends.
    if order[0].args.get("desc") or not _keeps_rows(tree, inner) or not _is_only_shown(tree, inner, NUMBER):
        return None
    view = next(numbered.find_all(exp.Greatest), None)
    overlap = 1 if view is None else int(view.this.expression.name) + 1
    keys = {key.name: key.name for key in window.args.get("partition_by") or ()}
    source = placed.args["from_"].this
    if _multiplies(source):
        return None
    columns = tuple(each.this.name for each in order)
    traced = _Inner(inner, source, keys, columns[0], 0, ("window_start",), {"window_end": 0, "window_time": 0})
    sessions, number = _sessions(query, tree, traced), _shown_columns(query, tree, inner, [NUMBER]).get(NUMBER)
    if sessions is None or sessions.first is None or sessions.last is None or number is None:
        return None
    return Counted(
        sessions.input,
        sessions.keys,
        sessions.time,
        sessions.key_columns,
        order=tuple(column_of(trace_to_input(source, query, column)[1]) for column in columns),
        number=number,
        first=sessions.first,
        last=sessions.last,
        overlap=overlap,
    )


def _is_only_shown(tree: exp.Expr, inner: exp.Select, column: str) -> bool:
    """Whether the queries around the inner one only show a column of it, or group by it: its value means nothing else.

    They are those of `_keeps_rows`.
    """
    around: list[exp.Select] = []
    node = tree
    while node is not inner:
        assert isinstance(node, exp.Select)
        around.insert(0, node)
        node = node.args["from_"].this.this
    names = {column.lower()}
    for select in around:
        for part in expression_nodes(select):
            parent = part.parent
            if isinstance(part, exp.Query):
                return False
            if isinstance(part, exp.Star):
                whole = parent is select or (isinstance(parent, exp.Column) and parent.parent is select)
                if not whole and not isinstance(parent, exp.Count):
                    return False
            elif isinstance(part, exp.Column) and part.name.lower() in names:
                shown = parent is select or (isinstance(parent, exp.Alias) and parent.parent is select)
                grouped = isinstance(parent, exp.Group) or part.arg_key == "partition_by"
                if not shown and not grouped:
                    return False
        names |= {
            item.alias_or_name.lower()
            for item in select.expressions
            if isinstance(item_expression(item), exp.Column) and item_expression(item).name.lower() in names
        }
    return True


def _by_function(tree: exp.Expr) -> Iterable[_Inner]:
    """The calls of SESSION, as `freshline.sql.session_windows` writes them."""
    for item in tree.find_all(exp.Alias):
        begun = item.parent
        if item.alias != BEGINS or not isinstance(begun, exp.Select):
            continue
        numbered = begun.parent_select
        query = numbered.parent_select if numbered is not None else None
        window = next(item.find_all(exp.Window), None)
        if query is None or window is None:
            raise unsupported(BEGINS)
        time = next(window.args["order"].find_all(exp.Column))
        gap = int(window.args["spec"].args["start"].name)
        keys = {key.name: key.name for key in window.args.get("partition_by") or ()}
        source = begun.args["from_"].this
        yield _Inner(
            query, source, keys, time.name, gap, ("window_start",), {"window_end": gap, "window_time": gap - 1}
        )


def _by_spark(tree: exp.Expr) -> Iterable[_Inner]:
    """The queries that group by `session_window(time, 'gap')`."""
    for call in list(tree.find_all(exp.Anonymous)):
        if not is_session_key(call) or not isinstance(call.parent, exp.Group):
            continue
        query = call.parent_select
        time, length = call.expressions
        if query is None or query.args.get("joins") or query.args.get("laterals") or query.args.get("qualify"):
            raise unsupported("session_window")
        if any(isinstance(node, exp.Window | exp.Query) for node in expression_nodes(query)):
            raise unsupported("session_window")
        grouping = call.parent
        keys = [key for key in grouping.expressions if key is not call]
        plain = all(isinstance(key, exp.Column) and not isinstance(key.this, exp.Star) for key in keys)
        if not plain or not isinstance(time, exp.Column) or any(grouping.args.get(kind) for kind in _SETS):
            raise unsupported("session_window")
        columns = {
            item.alias_or_name: column
            for item in query.expressions
            if isinstance(column := item_expression(item), exp.Column)
        }
        of_window = {
            name: column.name.lower()
            for name, column in columns.items()
            if [part.name.lower() for part in column.parts][:-1] == [name_of(call)]
        }
        shown = {
            name: column.name
            for name, column in columns.items()
            if name not in of_window and any(column.name.lower() == key.name.lower() for key in keys)
        }
        if {name.lower() for name in shown.values()} != {key.name.lower() for key in keys}:
            raise unsupported("session_window")
        gap = _length(length.name)
        yield _Inner(
            query,
            query.args["from_"].this,
            shown,
            time.name,
            gap,
            tuple(name for name, bound in of_window.items() if bound == "start"),
            {name: gap for name, bound in of_window.items() if bound == "end"},
        )


_SETS = ("grouping_sets", "cube", "rollup", "all", "totals")


def _length(text: str) -> int:
    """The microseconds of an interval such as '10 minutes'. Raises NotDerivedError and DeclarationError."""

    written = Text(f"INTERVAL '{text}'", "")

    def refuse(rule: str, sentence: str) -> DeclarationError:
        return declaration_error(rule, sentence, written.at(0))

    found = read_interval(written.tokens(), "session_window", refuse).microseconds
    if found is None or found <= 0:
        raise unsupported(text)
    return found


def _sessions(query: Query, tree: exp.Expr, inner: _Inner) -> AffectedSessions | None:
    # Of two columns with one key, the last one is taken.
    by_column = {column.lower(): trace_to_input(inner.source, query, column) for column in inner.keys.values()}
    at = trace_to_input(inner.source, query, inner.time)
    inputs = {name for name, _ in (*by_column.values(), at)}
    if len(inputs) != 1:
        return None
    (name,) = inputs
    if sum(1 for table in tree.find_all(exp.Table) if query.input_of(table) == name) != 1:
        return None
    shown = _shown_columns(query, tree, inner.query, [*inner.keys, *inner.first, *inner.last])
    keys: dict[str, str] = {}
    for column, of in inner.keys.items():
        if column.lower() in shown:
            keys[of.lower()] = shown[column.lower()]
    first = next((shown[each.lower()] for each in inner.first if each.lower() in shown), None)
    last = next(((shown[each.lower()], by) for each, by in inner.last.items() if each.lower() in shown), None)
    if keys.keys() != by_column.keys() or (first is None and last is None):
        return None
    return AffectedSessions(
        input=name,
        keys=tuple(column_of(by_column[column][1]) for column in keys),
        time=column_of(at[1]),
        key_columns=tuple(keys.values()),
        gap=inner.gap,
        first=None if first is None else Bound(first),
        last=None if last is None else Bound(*last),
        complete=_keeps_rows(tree, inner.query),
    )


def _shown_columns(query: Query, tree: exp.Expr, inner: exp.Select, wanted: Sequence[str]) -> dict[str, str]:
    """The columns of the result, by those of the inner query that they are; both in lower case."""
    assert isinstance(tree, exp.Select)
    names = [item.alias_or_name for item in tree.expressions if not item.is_star]
    if any(item.is_star for item in tree.expressions):
        names += wanted
    found: dict[str, str] = {}
    for name in names:
        try:
            found.setdefault(trace_to_query(tree, query, name, inner).lower(), name.lower())
        except NotDerivedError:
            continue
    return found


def _keeps_rows(tree: exp.Expr, inner: exp.Select) -> bool:
    """Whether each session of the inner query, whose own groups are sessions, has a row in the result."""
    node: exp.Expr | None = tree
    while isinstance(node, exp.Select):
        if any(node.args.get(part) for part in ("having", "qualify", "limit", "offset", "joins", "laterals")):
            return False
        if any(
            isinstance(each, exp.UDTF) or name_of(each) in GENERATORS
            for item in node.expressions
            for each in item.walk()
        ):
            return False  # none of a group whose array is empty
        if node is inner:
            return True
        if node.args.get("where"):
            return False
        source = node.args["from_"].this
        node = source.this if isinstance(source, exp.Subquery) else None
    return False


def _shown(microseconds: int) -> str:
    """An interval for people.

    >>> _shown(600_000_000), _shown(1)
    ('10 minutes', '1 microseconds')
    """
    for unit, size in (("days", 86_400_000_000), ("hours", 3_600_000_000), ("minutes", 60_000_000), ("seconds", 10**6)):
        if microseconds % size == 0:
            return f"{microseconds // size} {unit}"
    return f"{microseconds} microseconds"
