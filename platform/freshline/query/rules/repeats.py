"""Searches for affected keys that find what others find: those among the earlier rows of a relation that only grew.

A row that was there before is still there. Where other rows match each row of a relation for itself, a search among
the rows as they are now finds all that one among the rows as they were finds. So one scan of that relation is enough.
"""

from __future__ import annotations

from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from freshline.query.tree import RelationState, expression_queries, rename, sql, view_of

# A row of what stands before such a join gives its own rows, whatever other rows there are.
_OF_EACH_ROW = frozenset({("", ""), ("", "INNER"), ("", "CROSS"), ("LEFT", ""), ("LEFT", "OUTER")})
_OF_MANY_ROWS = (exp.AggFunc, exp.Window, exp.Distinct, exp.Limit, exp.Lateral)


@lru_cache(maxsize=1024)
def without_repeats(queries: tuple[str, ...], grown: frozenset[str]) -> list[str]:
    """The searches, in their order, without those that another one makes needless.

    `grown` are relations, in lower case, that gained rows and lost none.
    """
    others = set(queries)
    return [query for query in queries if _over_new_rows(query, grown) not in others]


def _over_new_rows(query: str, grown: frozenset[str]) -> str | None:
    """The search that finds at least what this one finds, among the rows that are there now; None if none is known."""
    try:
        tree = sqlglot.parse_one(query, dialect="spark")
    except SqlglotError:
        return None
    if not isinstance(tree, exp.Select) or any(tree.find(kind) for kind in _OF_MANY_ROWS):
        return None
    root = tree.args["from_"].this if tree.args.get("from_") else None
    joins = tree.args.get("joins") or ()
    if not isinstance(root, exp.Table) or not all(map(_is_of_each_row, joins)) or list(expression_queries(tree)):
        return None
    for relation in grown:
        if root.name == view_of(RelationState.OLD, relation):
            rename(root, view_of(RelationState.NEW, relation))
            return sql(tree, copy=False)
    return None


def _is_of_each_row(join: exp.Join) -> bool:
    return ((join.side or "").upper(), (join.kind or "").upper()) in _OF_EACH_ROW
