"""The rules of a constraint: one condition over one row, that gives the same answer each time.

A row that is computed again must be judged as before; so a condition reads the row and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from freshline.sql.columns import unknown_columns
from freshline.sql.expression import parse_expression
from freshline.sql.volatile import find_volatile
from freshline.values.location import Location, Written
from freshline.values.names import PART, TableName
from freshline.values.rules import Problems, nearest
from freshline.values.spec import Constraint


def check_constraints(
    constraints: Sequence[Written[Constraint]], declared_at: Location, problems: Problems
) -> tuple[Constraint, ...]:
    """The constraints of a declaration, judged without its columns."""
    seen: set[str] = set()
    for written in constraints:
        constraint, at = written.value, Location(declared_at.path, written.line)
        if constraint.name.lower() in seen:
            problems.add("CONSTRAINT", f"CONSTRAINT {constraint.name} is declared twice. Name one otherwise.", at)
        seen.add(constraint.name.lower())
        if not PART.match(constraint.name):
            problems.add(
                "CONSTRAINT",
                f"CONSTRAINT `{constraint.name}`: a name begins with a letter or underscore and has up to 128 letters, "
                "digits and underscores. Take another.",
                at,
            )
        try:
            volatile = find_volatile(parse_expression(constraint.condition, several=False), compared=False)
        except ValueError as error:
            problems.add("CONSTRAINT", f"CONSTRAINT {constraint.name} expects ({constraint.condition}): {error}", at)
            continue
        if volatile is not None:
            problems.add(
                "CONSTRAINT",
                f"CONSTRAINT {constraint.name} has {volatile}, which gives another value each time, so a row would "
                "be judged otherwise when it is computed again. Compare with a column.",
                at,
            )
    return tuple(written.value for written in constraints)


def check_constraint_columns(
    constraints: Sequence[Written[Constraint]], columns: tuple[str, ...], path: str, problems: Problems
) -> None:
    """Report columns that conditions read and the rows do not have."""
    for written in constraints:
        constraint = written.value
        try:
            expression: exp.Expr = parse_expression(constraint.condition, several=False)
        except ValueError:
            continue  # reported by check_constraints
        for column in unknown_columns(expression, "", TableName(None, "row"), columns, ()):
            problems.add(
                "CONSTRAINT",
                f"CONSTRAINT {constraint.name} reads {column}, which is no column of the rows."
                f"{nearest(column, columns)} They have {', '.join(columns)}.",
                Location(path, written.line),
            )
