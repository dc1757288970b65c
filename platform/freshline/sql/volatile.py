"""Functions that give another value each time, so that a row computed again may be another one."""

from __future__ import annotations

import re

from sqlglot import exp

VOLATILE = frozenset(
    "rand random randn uuid shuffle current_timestamp now current_date curdate current_time localtimestamp "
    "unix_timestamp monotonically_increasing_id spark_partition_id input_file_name input_file_block_start "
    "input_file_block_length randstr uniform reflect try_reflect java_method aes_encrypt".split()
)
# Texts that are the time of the query where they become a date or timestamp, with a zone or without.
SPECIAL_DATE = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+)?\s*$", re.IGNORECASE)
_OF_DATES = ("date", "time", "day", "month", "year", "week", "hour", "minute", "second", "quarter", "trunc")
# As the parser calls date_add, unix_timestamp and others.
_ALSO_OF_DATES = ("ts_or_ds_add", "ts_or_ds_diff", "extract", "str_to_unix")
_COMPARISONS = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In),
    # Their values become of one type too.
    *(exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif),
)
_TEXTS = (exp.Lower, exp.Upper, exp.Concat, exp.ConcatWs, exp.DPipe, exp.Trim, exp.Substring, exp.RegexpReplace)


def find_volatile(tree: exp.Expr, *, compared: bool = True) -> str | None:
    """The part of a tree that gives another value each time: a function's name, or a text that is the query's time.

    None where there is nothing. Without `compared`, texts that are compared with something are taken for texts.
    """
    for node in tree.walk():
        # A seed makes rand repeatable for one layout of files only, so it is refused too.
        if isinstance(node, exp.Func) and _name_of(node) in VOLATILE and not _has_vector(node):
            return _name_of(node)
    found = (literal for literal in tree.find_all(exp.Literal) if _is_special_date(literal, compared=compared))
    return next((f"the text {literal.sql()} as a date" for literal in found), None)


def _has_vector(node: exp.Func) -> bool:
    """Whether it is aes_encrypt with an initialization vector, which is a new one each time otherwise."""
    return _name_of(node) == "aes_encrypt" and len(node.expressions) > 4


def _is_special_date(literal: exp.Expr, *, compared: bool) -> bool:
    """Whether Spark reads the text as the time of the query: today, now, ..

    It does where the text is cast to a date or timestamp, by itself or by a function of dates. A comparison with one
    casts it too, and so does what gives one of several values: of which type the others are nobody knows here, so it
    counts (with `compared`) unless one is surely a text.
    """
    if not (isinstance(literal, exp.Literal) and literal.is_string and SPECIAL_DATE.match(literal.name)):
        return False
    node: exp.Expr = literal
    around = literal.parent
    while isinstance(around, exp.Paren):
        node, around = around, around.parent
    if isinstance(around, exp.Cast):
        return not around.is_type(*exp.DataType.TEXT_TYPES)
    if isinstance(around, exp.AtTimeZone):
        return True
    if isinstance(around, exp.Func) and not isinstance(around, (exp.Case, exp.If, exp.Binary, *_COMPARISONS)):
        name = _name_of(around)
        return name in _ALSO_OF_DATES or any(part in name for part in _OF_DATES)
    if not compared:
        return False
    if isinstance(around, exp.If) and isinstance(around.parent, exp.Case) and around.this is node:
        others = [around.parent.this] if around.parent.this is not None else []
        return bool(others) and not _is_text(others[0])
    if isinstance(around, exp.Case | exp.If):
        return not all(_is_shown(branch) for branch in _branches(around))
    if isinstance(around, _COMPARISONS):
        return not any(_is_text(other) for other in around.iter_expressions() if other is not node)
    return False


def _branches(node: exp.Expr) -> list[exp.Expr]:
    """The values that CASE or IF may give."""
    case = node.parent if isinstance(node, exp.If) and isinstance(node.parent, exp.Case) else node
    ifs = case.args.get("ifs") or [case]
    given = [*(each.args.get("true") for each in ifs), case.args.get("default"), case.args.get("false")]
    return [each for each in given if each is not None]


def _is_shown(node: exp.Expr) -> bool:
    """Whether a value is a text, or NULL, among values of CASE."""
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, exp.Null) or (isinstance(node, exp.Literal) and node.is_string) or _is_text(node)


def _name_of(node: exp.Func) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else node.sql_name().lower()


def _is_text(node: exp.Expr) -> bool:
    """Whether the value is a text whatever the columns are; another plain text is not: both may be dates."""
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, _TEXTS) or (isinstance(node, exp.Cast) and node.is_type(*exp.DataType.TEXT_TYPES))
