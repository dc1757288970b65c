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
_CASTING = (exp.Cast, exp.TryCast, exp.Predicate, exp.Binary, exp.Between, exp.In)


def find_volatile(tree: exp.Expr) -> str | None:
    """The first function in a tree that gives another value each time, None where there is none."""
    for node in tree.walk():
        if isinstance(node, exp.Anonymous):
            name = str(node.this).lower()
        elif isinstance(node, exp.Func):
            name = node.sql_name().lower()
        else:
            continue
        if name in VOLATILE and not _is_given_its_chance(node, name):
            # A seed makes rand repeatable for one layout of files only, so it is refused too.
            return name
    return next((_shown(literal) for literal in tree.find_all(exp.Literal) if _is_special_date(literal)), None)


def _is_given_its_chance(node: exp.Expr, name: str) -> bool:
    """Whether a call of aes_encrypt is given its initialization vector, which is a new one each time otherwise."""
    return name == "aes_encrypt" and isinstance(node, exp.Anonymous) and len(node.expressions) > 4


def _is_special_date(literal: exp.Expr) -> bool:
    """Whether Spark may read the text as the time of the query: today, now, ..

    It does where the text is cast to a date or timestamp, and a comparison with one casts it: of which type the other
    side is nobody knows here. A text that is only shown stays what it is.
    """
    if not (isinstance(literal, exp.Literal) and literal.is_string and SPECIAL_DATE.match(literal.name)):
        return False
    around = literal.parent
    while isinstance(around, exp.Paren | exp.Alias):
        around = around.parent
    return isinstance(around, _CASTING) or (isinstance(around, exp.Func) and not isinstance(around, exp.Case | exp.If))


def _shown(literal: exp.Expr) -> str:
    return f"the text {literal.sql()} as a date"
