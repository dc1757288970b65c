"""The tree of a query with every column under the alias of its source, and every alias used once.

Parts of a query are moved into subqueries later; an alias that is used twice would catch columns that are not its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from freshline.declare.query_parser import parse_sql
from freshline.plan.affected.tree import DIALECT, fragment, sources_of, unsupported

ALIAS = "a"


@lru_cache(maxsize=512)
def _qualified(text: str, schema: tuple[tuple[str, tuple[str, ...]], ...]) -> exp.Query:
    columns: dict[str, object] = {relation: dict.fromkeys(names, "unknown") for relation, names in schema}
    parsed = parse_sql(text)
    for join in parsed.find_all(exp.Join):
        if str(join.method).upper() == "NATURAL":
            # Which columns it joins by changes with the columns that its inputs have.
            raise unsupported(fragment(join))
    tree = qualify(parsed, schema=columns, dialect=DIALECT, validate_qualify_columns=True, quote_identifiers=True)
    assert isinstance(tree, exp.Query)
    _make_unique(tree)
    return tree


def qualify_query(text: str, schema: Mapping[str, Sequence[str]]) -> exp.Query:
    """The qualified tree of a query over relations whose columns are known.

    Raises NotDerivedError where the query cannot be understood; Spark may still run it.
    """
    try:
        return _qualified(text, tuple((name, tuple(columns)) for name, columns in schema.items())).copy()
    except SqlglotError as error:
        first, _, _ = str(error).partition("\n")
        raise unsupported(f"not understood: {first}") from error


def _make_unique(tree: exp.Query) -> None:
    # Scopes come with the inner ones first. A column that an inner scope does not know is renamed with the outer
    # scope that does.
    number = 0
    for scope in traverse_scope(tree):
        if not isinstance(scope.expression, exp.Select):
            continue
        new: dict[str, str] = {}
        for source in sources_of(scope.expression):
            if isinstance(source, exp.Table | exp.Subquery):
                new[source.alias_or_name] = f"freshline_{ALIAS}{number}"
                number += 1
        for column in list(scope.columns):
            if column.table in new:
                column.set("table", exp.to_identifier(new[column.table], quoted=True))
        for source in sources_of(scope.expression):
            if source.alias_or_name in new:
                columns = source.args["alias"].args.get("columns") if source.args.get("alias") else None
                alias = exp.to_identifier(new[source.alias_or_name], quoted=True)
                source.set("alias", exp.TableAlias(this=alias, columns=columns))
