"""The meaning of a declaration for the rows, and the class of a change of it (rule 14 of docs/rules.md).

A receipt names the fingerprint of the declaration that its rows follow. The content of that declaration is kept beside
the tables as a `Definition`, so that a change has a class: *additive*, where the query yields further columns and
everything else is as it was; *breaking*, where rows of both would not be alike, so that somebody must say from when on
the new one applies; *destructive*, where columns, the key or the partitioning of what is stored go away. Everything
here comes from the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from freshline.errors import RequestError, require_format
from freshline.query.functions import GENERATORS, is_aggregate, name_of
from freshline.query.query import Query
from freshline.sql.managing import BEGINNING
from freshline.values.json import from_json, to_compact_json
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.spec import TableSpec

FORMAT = 1
# Stands for the SHA-256 of whichever file a model has.
_ANY_FILE = "0" * 64


class ChangeClass(StrEnum):
    """The extent of a declaration's change; members are in the order of what they ask of a person."""

    UNCHANGED = "unchanged"
    ADDITIVE = "additive"
    BREAKING = "breaking"
    DESTRUCTIVE = "destructive"


@dataclass(frozen=True)
class DefinitionChange:
    """The class of a change, and what it is, as parts of a sentence."""

    kind: ChangeClass
    about: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "; ".join(self.about)


@dataclass(frozen=True)
class Definition:
    """The content that a table's fingerprint stands for.

    `query` is SQL, None for a table in Python. `arrival`: rows of the past cannot be computed again as they were.
    `rest` is whatever else counts, as a text. `models` are the files of models, by SHA-256, that all rows follow;
    neither `query` nor `rest` has them. `sent`: the rows are those of a sink, which are compared with its table anew.
    """

    fingerprint: str
    query: str | None
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]
    partitioned_by: tuple[str, ...]
    arrival: bool
    rest: str
    models: Mapping[str, str] = field(default_factory=dict)
    sent: bool = False

    def as_json(self) -> dict[str, Any]:
        """The object that is kept beside the tables."""
        return {"freshline": FORMAT, **to_compact_json(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Definition:
        """The definition that was kept. Raises FormatError for one of a newer format."""
        require_format(int(value["freshline"]), FORMAT, "a kept declaration")
        found: Definition = from_json(value, cls)
        return found


def definition_of(spec: TableSpec) -> Definition:
    """The definition of a table, from its declaration."""
    fingerprint, models = spec.fingerprint, dict[str, str]()
    if isinstance(spec.query, SqlQuery) and spec.query.clock is not None:
        # The time of one refresh is not part of what was declared.
        spec = replace(spec, query=replace(spec.query, clock=None))
    if spec.query.models:
        models = {str(m.name).lower(): m.sha256 for m in spec.query.models if not m.keeps_rows}
        alike = tuple(replace(model, sha256=_ANY_FILE) for model in spec.query.models)
        spec = replace(spec, query=replace(spec.sql, models=alike))
    query, merge = spec.query, spec.merge
    calls = [alias for _, alias in query.version_calls]
    graph = query.graph
    numbers = () if graph is None else ((graph.function.name, graph.tolerance, graph.rounds),)
    asked = [str(call.model).lower() for call in query.model_calls]
    return Definition(
        fingerprint=fingerprint,
        query=query.render() if isinstance(query, SqlQuery) else None,
        columns=tuple(column.lower() for column in spec.columns or ()),
        primary_key=tuple(column.lower() for column in spec.primary_key),
        partitioned_by=tuple(column.lower() for column in spec.partitioned_by),
        # Rows that a row was joined with, or that came first, cannot be read again.
        arrival=bool(spec.lookups)
        or spec.is_triggered
        or (
            merge is not None
            and (merge.is_by_arrival or merge.depends_on_refreshes or merge.upstream_deletes == "ignore")
        ),
        rest=repr((_rest(spec), sorted(map(str, spec.lookups)), calls, *numbers, *([asked] if asked else []))),
        models=models,
        sent=spec.sink is not None,
    )


def _rest(spec: TableSpec) -> str:
    """The fingerprint of whatever counts beside query, columns, key and partitions."""
    if not isinstance(spec.query, SqlQuery):
        return ""
    bare = replace(spec.query, meaning="")
    return replace(spec, query=bare, columns=None, primary_key=(), partitioned_by=()).fingerprint


def classify_change(before: Definition | None, after: Definition) -> DefinitionChange:
    """The class of a change of a declaration; `before` is None where nobody kept the one of the older fingerprint."""
    if before is not None and before.fingerprint == after.fingerprint:
        return DefinitionChange(ChangeClass.UNCHANGED)
    if after.sent:
        # Whatever changed, all rows are compared with those of the table, so none of an older declaration stays.
        return DefinitionChange(ChangeClass.ADDITIVE, ("all rows are sent again",))
    code_changed = DefinitionChange(ChangeClass.ADDITIVE, ("its code changed, and every refresh computes it whole",))
    if before is None:
        unknown = DefinitionChange(ChangeClass.BREAKING, ("what it said before is not known any more",))
        return code_changed if after.query is None else unknown
    # The columns of a function are known when it is called.
    known = after.query is not None or bool(after.columns)
    lost = [column for column in before.columns if known and column not in after.columns]
    destroyed = _destroyed(before, after, lost)
    if destroyed:
        return DefinitionChange(ChangeClass.DESTRUCTIVE, destroyed)
    if after.query is None:
        return code_changed
    if before.query is None:
        return DefinitionChange(ChangeClass.BREAKING, ("it was written in Python",))
    broken = [] if before.rest == after.rest else ["options that rows follow from changed"]
    other = _otherwise_changed(before.query, after.query)
    if other is not None:
        broken.append(other)
    new = [column for column in after.columns if column not in before.columns]
    about = tuple(f"new column {column}" for column in new)
    files = tuple(
        f"model {name} has another file"
        for name in sorted(after.models)
        if before.models.get(name) != after.models[name]
    )
    about = (*files, *about)
    if not broken and after.arrival:
        broken.append("rows of the past follow from when they arrived, and cannot be computed again as they were")
    if broken:
        return DefinitionChange(ChangeClass.BREAKING, (*broken, *about))
    if not about and before.columns == after.columns:
        return DefinitionChange(ChangeClass.BREAKING, ("what rows follow from changed",))
    return DefinitionChange(ChangeClass.ADDITIVE, about or ("the order of its columns",))


def _destroyed(before: Definition, after: Definition, lost: Sequence[str]) -> tuple[str, ...]:
    """The parts of what is stored that go away."""
    found = [f"column {column} goes away" for column in lost]
    if before.primary_key != after.primary_key:
        found.append(f"PRIMARY KEY was {_names(before.primary_key)}, is {_names(after.primary_key)}")
    if before.partitioned_by != after.partitioned_by:
        found.append(f"PARTITIONED BY was {_names(before.partitioned_by)}, is {_names(after.partitioned_by)}")
    return tuple(found)


def may_keep_rows(before: Definition, after: Definition) -> bool:
    """Whether rows of both may stand in one table.

    Stored rows are found by key and partition, so both must compute these alike. The inputs that they come from may
    differ: who keeps rows says that they are the same things.
    """
    found_by = {*after.primary_key, *after.partitioned_by}
    if not found_by:
        return True
    if before.query is None or after.query is None:
        return False
    try:
        old, new = _unwrapped(Query(before.query).tree, Query(after.query).tree)
    except SqlglotError:
        return False
    if not isinstance(old, exp.Select) or not isinstance(new, exp.Select):
        return False
    return all(_is_computed_alike(column, _Inside.of(old), _Inside.of(new)) for column in found_by)


@dataclass(frozen=True)
class _Inside:
    """A SELECT with the queries that it may read by name, each by its name in lower case."""

    select: exp.Select
    named: Mapping[str, exp.Expr]

    @classmethod
    def of(cls, query: exp.Select, named: Mapping[str, exp.Expr] | None = None) -> _Inside:
        """A query, within others that have a name."""
        tables = query.args.get("with_")
        own = {} if tables is None else {each.alias.lower(): each.this for each in tables.expressions}
        return cls(query, {**(named or {}), **own})

    def item(self, column: str) -> exp.Expr | None:
        """The expression of a column: the column itself, where only a star has it. None for no such column."""
        for item in self.select.expressions:
            if item.alias_or_name.lower() == column:
                found: exp.Expr = item.unalias()
                return found
        starred = any(item.is_star for item in self.select.expressions)
        return exp.column(column, quoted=True) if starred else None

    def sources(self, column: exp.Column) -> list[exp.Expr]:
        """The queries inside that a column may be of; none for one of a table."""
        from_, joins = self.select.args.get("from_"), self.select.args.get("joins") or ()
        found = []
        for source in (*([from_.this] if from_ is not None else []), *(join.this for join in joins)):
            if column.table and source.alias_or_name.lower() != column.table.lower():
                continue
            query = self.named.get(source.name.lower()) if isinstance(source, exp.Table) else source.unnest()
            if query is not None:
                found.append(query)
        return found


def _is_computed_alike(column: str, old: _Inside, new: _Inside) -> bool:
    """Whether a column is computed in one way by two queries, and so is what it is computed from by queries inside."""
    was, now = old.item(column), new.item(column)
    if was is None or now is None or was != now:
        return False
    for read in was.find_all(exp.Column):
        pair = old.sources(read), new.sources(read)
        if len(pair[0]) != len(pair[1]):
            return False
        for before, after in zip(*pair, strict=True):
            if before == after and old.named == new.named:
                continue
            if not isinstance(before, exp.Select) or not isinstance(after, exp.Select):
                return False
            inner = _Inside.of(before, old.named), _Inside.of(after, new.named)
            name = read.name.lower()
            neither = not read.table and inner[0].item(name) is None and inner[1].item(name) is None
            if not neither and not _is_computed_alike(name, *inner):
                return False
    return True


def may_start_at_date(spec: TableSpec) -> bool:
    """Whether a changed declaration may apply from a date on, as far as the declaration says."""
    by_one_column = len(spec.partitioned_by) == 1 and spec.time_partitions is None
    return by_one_column and isinstance(spec.query, SqlQuery) and not spec.may_wait


def start_arguments(
    name: TableName,
    change: DefinitionChange,
    start: str | None,
    *,
    force: bool,
    by_date: bool = True,
    in_sql: bool = True,
) -> dict[str, Any]:
    """The arguments of the refresh that takes a changed declaration up, beside the table: `full` or `start`.

    `start` is now, beginning, a date, or None where nobody said. `by_date` says that a date may be a start, `in_sql`
    that it is asked for by a statement, and not by a command. Raises RequestError where a start must be stated, and for
    what would destroy, unless it is computed from the beginning and `force` says that this is meant.
    """
    if change.kind is ChangeClass.UNCHANGED:
        return {}
    if change.kind is ChangeClass.DESTRUCTIVE and not (force and start == BEGINNING):
        raise RequestError(
            f"what is stored would go away: {change.text}. Change the declaration back, or replace all of it with "
            f"`freshline apply {name} --from beginning --force`.",
            where=str(name),
        )
    if start is None and change.kind is ChangeClass.BREAKING:
        words = ("FROM BEGINNING", "FROM NOW", "FROM DATE '2026-11-01'")
        if not in_sql:
            words = ("--from beginning", "--from now", "--from 2026-11-01")
        dated = f", {words[2]} those of the partitions before that date" if by_date else ""
        raise RequestError(
            f"rows of both declarations would not be alike: {change.text}. Say from when on the new one holds: "
            f"{words[0]} computes everything anew, {words[1]} keeps the rows that are there{dated}.",
            where=str(name),
        )
    if start == BEGINNING:
        return {"full": True}
    return {} if start is None else {"start": start}


def _names(columns: tuple[str, ...]) -> str:
    return f"({', '.join(columns)})" if columns else "none"


def _otherwise_changed(before: str, after: str) -> str | None:
    """The change beside new columns in the outermost list, in words; None where there is none."""
    try:
        old, new = _unwrapped(Query(before).tree, Query(after).tree)
    except SqlglotError:
        return "the query changed"
    if not isinstance(old, exp.Select) or not isinstance(new, exp.Select):
        return "the query changed"
    if old.args.get("distinct") or old.args.get("limit") or any(item.is_star for item in old.expressions):
        return "the query changed, and DISTINCT, LIMIT or * makes every column count"
    kept = {item.alias_or_name.lower(): item for item in old.expressions}
    added = [item for item in new.expressions if item.alias_or_name.lower() not in kept]
    for item in new.expressions:
        known = kept.get(item.alias_or_name.lower())
        if known is not None and known != item:
            return f"column {item.alias_or_name} is computed in another way"
    if _without_list(old) != _without_list(new):
        return "the query changed"
    if _counts_places(new):
        return "the query changed, and GROUP BY or ORDER BY names columns by their place"
    named = {column.name.lower() for part in ("having", "qualify", "order") for column in _columns_in(old, part)}
    for item in added:
        if item.alias_or_name.lower() in named:
            return f"{item.alias_or_name} is named in HAVING, QUALIFY or ORDER BY, where it may be another column now"
        if any(name_of(node) in GENERATORS or isinstance(node, exp.UDTF) for node in item.walk()):
            return f"column {item.alias_or_name} makes several rows of one"
        grouped = old.args.get("group") is not None or any(map(_has_aggregate, old.expressions))
        if not grouped and _has_aggregate(item):
            return f"column {item.alias_or_name} aggregates all rows"
    return None


def _unwrapped(old: exp.Expr, new: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    """Two queries without what is alike around them: `SELECT * FROM (..) WHERE ..`, as SIDE OUTPUT and WHEN have it."""
    one, other = _inside(old), _inside(new)
    if one is None or other is None or _around(old) != _around(new):
        return old, new
    return _unwrapped(one, other)


def _inside(tree: exp.Expr) -> exp.Expr | None:
    """The query in parentheses of which a SELECT only chooses rows; None for another SELECT."""
    if not isinstance(tree, exp.Select) or tree.expressions != [exp.Star()] or tree.args.get("from_") is None:
        return None
    if any(value for name, value in tree.args.items() if name not in ("expressions", "from_", "where", "kind")):
        return None
    source = tree.args["from_"].this
    return source.this if isinstance(source, exp.Subquery) else None


def _around(tree: exp.Expr) -> exp.Expr:
    bare = tree.copy()
    bare.args["from_"].this.set("this", exp.Select())
    return bare


def _has_aggregate(item: exp.Expr) -> bool:
    return any(is_aggregate(node) for node in item.walk(prune=lambda node: isinstance(node, exp.Query)))


def _without_list(tree: exp.Select) -> exp.Expr:
    bare = tree.copy()
    bare.set("expressions", [])
    return bare


def _counts_places(tree: exp.Select) -> bool:
    group, order = tree.args.get("group"), tree.args.get("order")
    if group is not None and (group.args.get("all") or any(item.is_int for item in group.expressions)):
        return True
    return order is not None and any(item.this.is_int for item in order.expressions)


def _columns_in(tree: exp.Select, part: str) -> list[exp.Column]:
    found = tree.args.get(part)
    return [] if found is None else list(found.find_all(exp.Column))
