"""Lookups: a query without its lookup joins, which gives of each row what it has of itself.

A row of the table keeps the dimension rows that it was joined with, and nobody can compute it as stored. Where rows of
inputs change, the stored rows that came from them are found by their own columns: those that no dimension decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from freshline.query.query import read_query
from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.append import Branches, find_branches
from freshline.query.tree import (
    NotDerivedError,
    all_of,
    conjuncts,
    expression_queries,
    fragment,
    kind_of,
    sql,
    unsupported,
)
from freshline.values.names import TableName
from freshline.values.query import PREDICT_CALL, SqlQuery
from freshline.values.reason import Reason
from freshline.values.spec import TableSpec

# The version of each dimension in the text from which lookups are taken out: no query has this number by chance.
VERSION = 8_070_450_532_247_928_831


@dataclass(frozen=True)
class OwnRows:
    """The rows of a query before any lookup: `text` is SQL over the inputs, `columns` are those of the result it has.

    There is one for each combination of rows of the inputs that can give a row of the result, so there may be more than
    the result has: an INNER lookup join and conditions on a dimension leave rows out. `whole` is the query itself as it
    was read, for a comparison with the declared one. `reads` are the columns of each input, by its view in lower case,
    that the query reads: where these are as they were, a row of the input has not changed.
    """

    text: str
    columns: tuple[str, ...]
    whole: str
    reads: tuple[tuple[str, frozenset[str]], ...]

    def columns_read(self, relation: str) -> frozenset[str]:
        """The columns of an input that the query reads, in lower case."""
        return dict(self.reads)[relation]


def find_own_rows(query: SqlQuery, schema: Mapping[str, tuple[str, ...]]) -> OwnRows | Reason:
    """The query without lookups, or why there is none; pure.

    `schema` has the columns of every input by its view in lower case. The query is one whose rows come from one
    combination of rows of the inputs each, as `find_branches` says.
    """
    versions = {join.alias.lower(): VERSION for join in query.lookup_joins}
    text = query.render(versions=versions, analysed=True)
    resolved = ResolvedQuery.of(text, schema)
    lookups = frozenset(name.view.lower() for name in query.lookups)
    kept = frozenset(model.sha256 for model in query.kept_models)
    try:
        tree = resolved.tree
        whole, names = sql(tree), resolved.columns
        reads = {relation: frozenset(_columns_read(tree, relation)) for relation in schema if relation not in lookups}
        work = _Without(lookups, kept)
        found = tree.copy()
        decided = work.query(found, {})
    except NotDerivedError as error:
        return error.reason
    own = [place for place in range(len(names)) if place not in decided]
    if not own:
        return Reason("NO_KEY", "a dimension decides every column")
    _select_only(found, own)
    return OwnRows(sql(found, copy=False), tuple(names[place] for place in own), whole, tuple(reads.items()))


@dataclass(frozen=True)
class Lookups:
    """The way from changes of one input after the other to rows of a table with lookup joins.

    `columns` of the table, in lower case, say from which rows of the inputs a row came.
    """

    own: OwnRows
    branches: Branches
    columns: tuple[str, ...]


def find_lookups(
    spec: TableSpec, columns: Mapping[TableName, Sequence[str]], changed: Sequence[TableName]
) -> Lookups | Reason:
    """The way in which changes of these inputs are followed, or why all rows need their lookups again; pure.

    `columns` are those of every input.
    """
    branches = find_branches(read_query(spec.sql))
    if isinstance(branches, Reason):
        return branches
    for name in changed:
        inputs = branches.delta_inputs(frozenset({name}))
        if isinstance(inputs, Reason):
            return inputs
    unknown = [name for name in spec.reads if not columns.get(name)]
    if unknown:
        return Reason("UNSUPPORTED", f"the columns of {unknown[0]} are not known")
    own = find_own_rows(spec.sql, {name.view.lower(): tuple(columns[name]) for name in spec.reads})
    return own if isinstance(own, Reason) else Lookups(own, branches, tuple(name.lower() for name in own.columns))


def asked_text(query: SqlQuery) -> str:
    """The declared query, for a comparison with `OwnRows.whole`."""
    return query.render(versions={join.alias.lower(): VERSION for join in query.lookup_joins})


def _columns_read(tree: exp.Expr, relation: str) -> Iterator[str]:
    aliases = {table.alias_or_name for table in tree.find_all(exp.Table) if table.name.lower() == relation}
    return (column.name.lower() for column in tree.find_all(exp.Column) if column.table in aliases)


class _Without:
    """Takes lookup joins out of a qualified tree, and finds the columns of each query that a dimension decides."""

    def __init__(self, lookups: frozenset[str], kept_models: frozenset[str]) -> None:
        self._lookups = lookups
        self._kept_models = kept_models

    def query(self, node: exp.Expr, known: Mapping[str, frozenset[str]]) -> frozenset[int]:
        """The places of the select list that a dimension decides; the tree is changed.

        `known` are the columns that one decides of common tables, by their names. Raises NotDerivedError.
        """
        if isinstance(node, exp.Subquery):
            return self.query(node.this, known)
        clause = node.args.get("with_")
        if clause is not None:
            known = dict(known)
            for common in clause.expressions:
                known[common.alias] = self._names(common.this, self.query(common.this, known))
        node.set("order", None)
        if isinstance(node, exp.SetOperation):
            return self.query(node.this, known) | self.query(node.expression, known)
        if not isinstance(node, exp.Select):
            raise unsupported(fragment(node))
        return self._select(node, known)

    def _select(self, select: exp.Select, known: Mapping[str, frozenset[str]]) -> frozenset[int]:
        for inside in expression_queries(select):
            if any(table.name.lower() in self._lookups for table in inside.find_all(exp.Table)):
                raise unsupported("a lookup join inside an expression")
        # By the alias of a source: the columns that a dimension decides, None for all.
        decided: dict[str, frozenset[str] | None] = {}
        start = select.args.get("from_")
        if start is not None:
            self._source(start.this, "INNER", known, decided)
        joins = []
        for join in select.args.get("joins") or ():
            table = join.this
            if isinstance(table, exp.Table) and table.name.lower() in self._lookups and table.name not in known:
                decided[join.this.alias_or_name] = None
                continue
            self._source(join.this, kind_of(join), known, decided)
            if self._is_decided(join.args.get("on"), decided):
                raise unsupported(f"a join by a column of a dimension: {fragment(join)}")
            joins.append(join)
        select.set("joins", joins)
        for lateral in select.args.get("laterals") or ():
            if self._is_decided(lateral, decided):
                raise unsupported(fragment(lateral))
        where = select.args.get("where")
        if where is not None:
            left = all_of(part for part in conjuncts(where.this) if not self._is_decided(part, decided))
            select.set("where", None if left is None else exp.Where(this=left))
        places = frozenset(place for place, item in enumerate(select.expressions) if self._is_decided(item, decided))
        for place in places:
            item = select.expressions[place]
            item.replace(exp.alias_(exp.null(), item.alias_or_name, quoted=True))
        return places

    def _source(
        self,
        source: exp.Expr,
        kind: str,
        known: Mapping[str, frozenset[str]],
        decided: dict[str, frozenset[str] | None],
    ) -> None:
        if isinstance(source, exp.Table):
            decided[source.alias_or_name] = known.get(source.name, frozenset())
            return
        if not any(table.name.lower() in self._lookups for table in source.find_all(exp.Table)):
            return
        if not isinstance(source, exp.Subquery) or kind != "INNER":
            # The number of rows would depend on rows that found no dimension.
            raise unsupported(f"a {kind} JOIN of rows with lookups")
        decided[source.alias_or_name] = self._names(source.this, self.query(source.this, known))

    def _names(self, node: exp.Expr, places: frozenset[int]) -> frozenset[str]:
        assert isinstance(node, exp.Query)
        return frozenset(name for place, name in enumerate(node.named_selects) if place in places)

    def _is_decided(self, node: exp.Expr | None, decided: Mapping[str, frozenset[str] | None]) -> bool:
        """Whether an expression has a value of a dimension, of its version, or of a model that rows keep."""
        if node is None:
            return False
        for inner in node.walk():
            match inner:
                case exp.Column():
                    names = decided.get(inner.table, frozenset())
                    if names is None or inner.name in names:
                        return True
                case exp.Literal() if inner.this == str(VERSION) or inner.this in self._kept_models:
                    return True
                case exp.Anonymous() if PREDICT_CALL.fullmatch(str(inner.this)):
                    return True
        return False


def _select_only(node: exp.Expr, places: list[int]) -> None:
    """Leave these items in the select list of a query, and of each side of a set operation."""
    if isinstance(node, exp.Subquery):
        _select_only(node.this, places)
    elif isinstance(node, exp.SetOperation):
        _select_only(node.this, places)
        _select_only(node.expression, places)
    else:
        node.set("expressions", [node.expressions[place] for place in places])
