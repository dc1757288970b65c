"""Queries inside the query become relations of their own (stages).

Common table expressions, derived tables and the sides of set operations are lifted out. What is left of each query
reads relations only: inputs and stages that came before it. Queries inside expressions stay where they are, because
they may look at the row that they are computed for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from freshline.plan.affected.tree import DIALECT, aliases_in, fragment, rename, sources_of, sql, unsupported

# A name that no input has: theirs begin with a letter.
STAGE = "_stage"


@dataclass(frozen=True)
class Lifted:
    """A query without queries in its FROM. `columns` are the names that it yields, in lower case."""

    relation: str
    query: exp.Query
    columns: tuple[str, ...]


@dataclass(frozen=True)
class LiftedQuery:
    """The stages of a query, each behind what it reads, and the query itself as the last one."""

    stages: tuple[Lifted, ...]
    top: Lifted


def lift(tree: exp.Query) -> LiftedQuery:
    """Take a qualified query apart; raises NotDerivedError for what cannot be."""
    work = _Lift()
    top = work.query(tree.copy(), {})
    return LiftedQuery(tuple(work.stages), Lifted("", top, columns_of(top)))


def columns_of(query: exp.Query) -> tuple[str, ...]:
    """The names that a query yields, in lower case; refused where they do not tell its columns apart."""
    names = tuple(name.lower() for name in query.named_selects)
    width = len(query.selects)
    if len(set(names)) < len(names) or len(names) != width or not all(names):
        raise unsupported(f"columns that share a name, or have none: {', '.join(names)}")
    return names


class _Lift:
    def __init__(self) -> None:
        self.stages: list[Lifted] = []

    def query(self, node: exp.Expr, common: Mapping[str, Lifted]) -> exp.Query:
        """The query with all that stands in its FROM lifted out."""
        if isinstance(node, exp.Subquery):
            if node.args.get("order") or node.args.get("limit") or node.args.get("offset"):
                raise unsupported("LIMIT")
            return self.query(node.this, common)
        if not isinstance(node, exp.Select | exp.SetOperation):
            raise unsupported(fragment(node))
        common = self._with(node, common)
        if isinstance(node, exp.SetOperation):
            return self._sides(node, common)
        for source in sources_of(node):
            self._source(source, common)
        for argument, value in list(node.args.items()):
            if argument in ("from_", "with_"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, exp.Join):
                    self._expression(child.args.get("on"), common)
                elif isinstance(child, exp.Expr):
                    self._expression(child, common)
        return node

    def _with(self, node: exp.Expr, common: Mapping[str, Lifted]) -> Mapping[str, Lifted]:
        clause = node.args.get("with_")
        if clause is None:
            return common
        if clause.args.get("recursive"):
            raise unsupported("WITH RECURSIVE")
        node.set("with_", None)
        known = dict(common)
        for cte in clause.expressions:
            known[cte.alias.lower()] = self._stage(cte.this, known)
        return known

    def _stage(self, node: exp.Expr, common: Mapping[str, Lifted]) -> Lifted:
        query = self.query(node, common)
        made = Lifted(f"{len(self.stages)}{STAGE}", query, columns_of(query))
        self.stages.append(made)
        return made

    def _sides(self, node: exp.SetOperation, common: Mapping[str, Lifted]) -> exp.Query:
        for side in ("this", "expression"):
            made = self._stage(node.args[side], common)
            names = [exp.column(name, quoted=True) for name in made.columns]
            node.set(side, exp.select(*names).from_(exp.to_table(f"`{made.relation}`", dialect=DIALECT)))
        return node

    def _source(self, source: exp.Expr, common: Mapping[str, Lifted]) -> None:
        if isinstance(source, exp.Table):
            if source.args.get("sample") or source.args.get("pivots") or source.args.get("joins"):
                raise unsupported(fragment(source))
            if not isinstance(source.this, exp.Identifier):
                # A function that makes rows of its arguments.
                raise unsupported(fragment(source))
            if source.args.get("alias") and source.args["alias"].args.get("columns"):
                raise unsupported(f"columns renamed by the alias {fragment(source)}")
            known = common.get(source.name.lower())
            if known is not None:
                rename(source, known.relation)
                source.set("freshline_done", None)
            return
        if not isinstance(source, exp.Subquery) or source.args.get("sample") or source.args.get("pivots"):
            raise unsupported(fragment(source))
        inner = source.this
        if isinstance(inner, exp.Query):
            self._require_free(inner)
            made = self._stage(inner, common)
            source.replace(
                exp.Table(
                    this=exp.to_identifier(made.relation, quoted=True),
                    alias=exp.TableAlias(this=exp.to_identifier(source.alias, quoted=True)),
                )
            )
            return
        raise unsupported(fragment(source))

    def _require_free(self, query: exp.Query) -> None:
        """A derived table that looks at rows beside it cannot stand by itself."""
        inside = aliases_in(query)
        for column in query.find_all(exp.Column):
            if column.table and column.table not in inside:
                raise unsupported(f"a derived table that reads {sql(column)} of another")

    def _expression(self, node: exp.Expr | None, common: Mapping[str, Lifted]) -> None:
        """Lift what stands in the FROM of queries inside an expression."""
        if node is None:
            return
        found = [node] if isinstance(node, exp.Query) else []
        if not found:
            found = [
                inner
                for inner in node.walk(prune=lambda item: isinstance(item, exp.Query))
                if isinstance(inner, exp.Query)
            ]
        for inner in found:
            body = inner.this if isinstance(inner, exp.Subquery) else inner
            if isinstance(body, exp.SetOperation):
                raise unsupported(f"{fragment(body)} inside an expression")
            self.query(body, common)
