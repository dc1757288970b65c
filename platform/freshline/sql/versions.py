"""Rows as versions of their keys: what a declaration says of them to as-of joins."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from freshline.sql.columns import unknown_columns
from freshline.sql.expression import parse_expression
from freshline.sql.volatile import find_volatile
from freshline.values.as_of_joins import Versions
from freshline.values.names import TableName
from freshline.values.options import Options
from freshline.values.rules import nearest
from freshline.values.spec import Watermark

TIE_BREAKER, DELETE_WHEN = "as-of.tie-breaker", "as-of.delete-when"


def read_versions(options: Options, watermark: Watermark | None, *, declared: bool) -> Versions | None:
    """The way in which as-of joins read the rows, None without a watermark; `declared` says that one is written.

    Mistakes go to the problems of `options`.
    """
    for key in (TIE_BREAKER, DELETE_WHEN):
        options.require(key, "a WATERMARK, which names the time of a version", declared)
    names = (options.text(TIE_BREAKER) or "").split(",")
    tie_breaker = tuple(dict.fromkeys(name.strip().strip("`") for name in names if name.strip()))
    condition = options.text(DELETE_WHEN)
    if condition is not None:
        try:
            volatile = find_volatile(parse_expression(condition, several=False), compared=False)
        except ValueError as error:
            options.problems.add("OPTION_VALUE", f"option '{DELETE_WHEN}': {error}", options.at(DELETE_WHEN))
            return None
        if volatile is not None:
            options.reject(DELETE_WHEN, f"a condition over the columns of a row, without {volatile}")
            return None
    return None if watermark is None else Versions(watermark.column, tie_breaker, condition)


def check_version_columns(versions: Versions, columns: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    """The options that name columns which the rows do not have, each with a sentence."""
    known = {column.lower() for column in columns}
    for name in versions.tie_breaker:
        if name.lower() not in known:
            yield TIE_BREAKER, f"option '{TIE_BREAKER}' names {name}, which is no column.{nearest(name, columns)}"
    if versions.delete_when is not None:
        condition: exp.Expr = parse_expression(versions.delete_when, several=False)
        for name in unknown_columns(condition, "", TableName(None, "row"), columns, ()):
            yield DELETE_WHEN, f"option '{DELETE_WHEN}' reads {name}, which is no column.{nearest(name, columns)}"
