"""Keys that changed rows tell by themselves, without the rows that they are joined with.

Below an inner join on `l.k = r.k`, what a changed row of r affects has l.k equal to its own r.k. So the key is read
from the changed row, and the other side is not looked at: neither as it is now nor as it was. Keys of rows without a
partner come with them, which affect nothing; there are never more keys than changed rows.

Sound only where equal values are the same value: both columns have one type, and it is none whose equality is looser
than that (floating-point zeros and texts with a collation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from freshline.plan.affected.rows import Touched
from freshline.plan.affected.tree import all_of, conjuncts, item_expression, kind_of, own_queries
from freshline.plan.affected.values import Types

# Types whose equal values are one value. A decimal's and a text's parameters are part of the comparison.
IDENTICAL = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "STRING", "DATE", "TIMESTAMP", "BOOLEAN", "BINARY")
Place = tuple[str, str]


def select_alone(touched: Touched, items: Sequence[exp.Expr], types: Types) -> exp.Select | None:
    """A SELECT of the items over the changed rows alone, None where they need the rows beside them."""
    source = touched.source
    simple = not (touched.padded or touched.laterals or touched.group or touched.having)
    if source is None or not simple or not touched.joins or any(kind_of(join) != "INNER" for join in touched.joins):
        return None
    changed = source.alias_or_name
    names = {part.alias_or_name: part.name for part in touched.tables() if isinstance(part, exp.Table)}
    names[changed] = source.name
    conditions = [*touched.where, *(on for join in touched.joins for on in conjuncts(join.args.get("on")))]
    same = _equal_to(changed, conditions, names, types)
    chosen = [_instead(item, changed, same) for item in items]
    if any(item is None for item in chosen):
        return None
    kept = [part for part in conditions if _is_of(part, changed)]
    at = next((part for part in touched.tables() if part.alias_or_name == changed), None)
    if at is None:
        return None
    made = exp.Select(expressions=chosen)
    made.set("from_", exp.From(this=at.copy()))
    condition = all_of(kept)
    if condition is not None:
        made.set("where", exp.Where(this=condition))
    return made


def _equal_to(
    changed: str, conditions: Sequence[exp.Expr], names: Mapping[str, str], types: Types
) -> dict[Place, exp.Column]:
    """The columns of other sources that equal a column of the changed rows, each with that column."""

    def type_of(column: exp.Column) -> str | None:
        kind = types.get(names.get(column.table, ""), {}).get(column.name.lower(), "").upper()
        return kind if kind.split("(")[0] in IDENTICAL else None

    pairs = [
        (condition.this, condition.expression)
        for condition in conditions
        if isinstance(condition, exp.EQ)
        and isinstance(condition.this, exp.Column)
        and isinstance(condition.expression, exp.Column)
        and type_of(condition.this) is not None
        and type_of(condition.this) == type_of(condition.expression)
    ]
    found: dict[Place, exp.Column] = {}
    grown = True
    while grown:
        grown = False
        for one, other in (pair for pair in (*pairs, *((b, a) for a, b in pairs))):
            there = one if one.table == changed else found.get(_place(one))
            if there is not None and other.table != changed and _place(other) not in found:
                found[_place(other)] = there
                grown = True
    return found


def _place(column: exp.Column) -> Place:
    return column.table, column.name.lower()


def _instead(item: exp.Expr, changed: str, same: Mapping[Place, exp.Column]) -> exp.Expr | None:
    """The item read from the changed rows; None where it is no column of theirs and none that equals one.

    An expression is left to the join: of a row without a partner it may fail.
    """
    column = item_expression(item)
    if not isinstance(column, exp.Column):
        return None
    if column.table == changed:
        return item.copy()
    there = same.get(_place(column))
    return None if there is None else exp.alias_(there.copy(), item.alias_or_name, quoted=True)


def _is_of(condition: exp.Expr, changed: str) -> bool:
    """Whether a condition looks at nothing but the changed rows."""
    return not own_queries(condition) and all(column.table == changed for column in condition.find_all(exp.Column))
