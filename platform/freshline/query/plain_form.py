"""Parts of a parsed query in a form that the rules know: constant rows, renamed columns, subqueries in ON.

Spark compares the result with the declared query before it decides anything (`freshline.compute.keys`).
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from freshline.query.tree import (
    KINDS,
    SHOWN_AS,
    all_of,
    conjuncts,
    fragment,
    item_expression,
    items_by_name,
    own_nodes,
    own_queries,
    same,
    sources_of,
    unsupported,
)

# No name in a query begins with `_freshline_`.
_ROWS = "_freshline_values"
# The parts of a table in FROM with which it is read as it is.
_PLAIN = frozenset({"this", "alias"})


def into_plain_form(tree: exp.Query, schema: Mapping[str, object]) -> None:
    """Change a parsed query in place. `schema` has the columns of inputs by their names in lower case.

    Raises NotDerivedError for what has no such form.
    """
    _write_out_values(tree)
    for select in list(tree.find_all(exp.Select)):
        _write_out_renamed(select, schema)
        _move_subqueries_out_of_on(select)
        _mark_aliases(select)


def _write_out_values(tree: exp.Query) -> None:
    """Constant rows as a query of their own, whose rows never change."""
    for values in list(tree.find_all(exp.Values)):
        alias = values.args.get("alias")
        if not isinstance(values.parent, exp.From | exp.Join) or any(values.find_all(exp.Alias)):
            # `VALUES 1, 2 AS v(a)` is read as if the name were that of the last value.
            raise unsupported(fragment(values))
        first = values.expressions[0]
        given = [each.copy() for each in alias.args.get("columns") or ()] if alias else []
        width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
        names = given or [exp.to_identifier(f"col{number}") for number in range(1, width + 1)]
        rows = exp.Values(
            expressions=[each.copy() for each in values.expressions],
            alias=exp.TableAlias(this=exp.to_identifier(_ROWS), columns=[name.copy() for name in names]),
        )
        shown = [exp.column(name.copy(), _ROWS) for name in names]
        named = alias.this if alias and alias.this else exp.to_identifier(_ROWS)
        query = exp.Subquery(this=exp.select(*shown).from_(rows), alias=exp.TableAlias(this=named.copy()))
        values.replace(query)


def _write_out_renamed(select: exp.Select, schema: Mapping[str, object]) -> None:
    """`t AS x(a, b)` of an input is `(SELECT first AS a, second AS b FROM t) AS x`.

    Of a common table, whose columns are known later, it is `(SELECT * FROM t) AS x(a, b)`.
    """
    common = {cte.alias.lower() for node in (select, *_above(select)) for cte in _common_tables(node)}
    for source in list(sources_of(select)):
        alias = source.args.get("alias")
        if alias is None or not isinstance(source, exp.Table):
            continue
        columns = alias.args.get("columns")
        if not columns:
            continue
        if any(value for part, value in source.args.items() if part not in _PLAIN):
            continue
        if source.name.lower() in common:
            every = exp.select(exp.Star()).from_(exp.Table(this=source.this.copy()))
            source.replace(exp.Subquery(this=every, alias=alias.copy()))
            continue
        known = schema.get(source.name.lower())
        if not isinstance(known, Mapping) or len(known) != len(columns):
            continue
        shown = [
            exp.alias_(exp.column(exp.to_identifier(name, quoted=True)), column.copy())
            for name, column in zip(known, columns, strict=True)
        ]
        bare = exp.Table(this=source.this.copy())
        source.replace(exp.Subquery(this=exp.select(*shown).from_(bare), alias=exp.TableAlias(this=alias.this.copy())))


def _above(node: exp.Expr) -> list[exp.Expr]:
    found = []
    while (parent := node.parent) is not None:
        found.append(parent)
        node = parent
    return found


def _common_tables(node: exp.Expr) -> list[exp.Expr]:
    clause = node.args.get("with_") if isinstance(node, exp.Query) else None
    return [] if clause is None else list(clause.expressions)


def _move_subqueries_out_of_on(select: exp.Select) -> None:
    """Move subqueries to WHERE: there a condition of inner joins keeps the same rows, and the rules know a subquery."""
    joins = select.args.get("joins") or []
    if any(_kind(join) != "INNER" for join in joins):
        return
    moved = []
    for join in joins:
        parts = conjuncts(join.args.get("on"))
        inside = [part for part in parts if own_queries(part)]
        if not inside:
            continue
        kept = [part for part in parts if not own_queries(part)]
        moved += [part.copy() for part in inside]
        join.set("on", all_of(kept) or exp.true())
    if moved:
        select.where(*moved, copy=False)


def _mark_aliases(select: exp.Select) -> None:
    """Put parentheses with a mark around columns of QUALIFY that may be aliases of the select list."""
    clause = select.args.get("qualify")
    if clause is None:
        return
    aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
    for column in [node for node in own_nodes(clause) if isinstance(node, exp.Column)]:
        if not column.table and column.name.lower() in aliases:
            marked = exp.Paren(this=column.copy())
            marked.set(SHOWN_AS, column.name.lower())
            column.replace(marked)


def check_marks(tree: exp.Query) -> None:
    """Take the marks away again from what is a column of an input in the qualified query, and no alias."""
    for select in tree.find_all(exp.Select):
        clause = select.args.get("qualify")
        items = items_by_name(select) if clause is not None else {}
        for marked in [node for node in own_nodes(clause) if node.args.get(SHOWN_AS)] if clause is not None else ():
            item = items.get(marked.args[SHOWN_AS])
            if item is None or not same(item_expression(item).unnest(), marked.unnest()):
                marked.set(SHOWN_AS, None)


def _kind(join: exp.Join) -> str | None:
    return KINDS.get(((join.side or "").upper(), (join.kind or "").upper()))
