"""Common table expressions put in the place of their names, so that a tree shows what is read, and how often."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

# Each name that is read twice doubles what it stands for: beyond this a query is not looked into.
MOST_NODES = 50_000


class TooLargeError(Exception):
    """The tree would have more than MOST_NODES nodes."""


class RecursiveError(Exception):
    """A common table expression reads itself."""


def inline_common_tables(tree: exp.Expr) -> exp.Expr:
    """A copy of a parsed query without WITH: each reference is a subquery, with the alias and clauses it was read by.

    Names are resolved as Spark does: a body sees those before it and around it, not itself nor those after it. Raises
    RecursiveError for WITH RECURSIVE and TooLargeError.
    """
    return _Inlining().resolve(tree, {})


class _Inlining:
    def __init__(self) -> None:
        self._nodes = 0

    def resolve(self, node: exp.Expr, known: Mapping[str, exp.Subquery]) -> exp.Expr:
        """A copy of the node; `known` are the bodies of what is in scope, by lower-case name."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise TooLargeError
        if isinstance(node, exp.Hint):
            return node.copy()
        clause = node.args.get("with_")
        if clause is not None:
            if clause.args.get("recursive"):
                raise RecursiveError
            known = dict(known)
            for common in clause.expressions:
                body = self.resolve(common.this, known)
                known[common.alias.lower()] = exp.Subquery(this=body, alias=common.args.get("alias").copy())
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and node.args.get("db") is None:
            common_table = known.get(node.name.lower())
            if common_table is not None:
                return self._reference(node, common_table, known)
        copy = node.__class__()
        copy.meta.update(node.meta)
        for name, value in node.args.items():
            if name == "with_":
                continue
            if isinstance(value, list):
                copy.set(name, [self.resolve(each, known) if isinstance(each, exp.Expr) else each for each in value])
            else:
                copy.set(name, self.resolve(value, known) if isinstance(value, exp.Expr) else value)
        return copy

    def _reference(self, table: exp.Table, body: exp.Subquery, known: Mapping[str, exp.Subquery]) -> exp.Expr:
        self._nodes += sum(1 for _ in body.walk())
        if self._nodes > MOST_NODES:
            raise TooLargeError
        found = body.copy()
        own = table.args.get("alias")
        if own is not None:
            columns = own.args.get("columns") or found.args["alias"].args.get("columns")
            found.set("alias", exp.TableAlias(this=own.this.copy(), columns=[each.copy() for each in columns or []]))
        for name, value in table.args.items():
            if name in ("this", "alias") or not value:
                continue
            values = value if isinstance(value, list) else [value]
            resolved = [self.resolve(each, known) if isinstance(each, exp.Expr) else each for each in values]
            found.set(name, resolved if isinstance(value, list) else resolved[0])
        return found
