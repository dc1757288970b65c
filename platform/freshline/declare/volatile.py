"""Functions that give another value each time, so that a row computed again may be another one."""

from __future__ import annotations

from sqlglot import exp

VOLATILE = frozenset(
    "rand random randn uuid shuffle current_timestamp now current_date curdate current_time localtimestamp "
    "unix_timestamp monotonically_increasing_id spark_partition_id input_file_name input_file_block_start "
    "input_file_block_length randstr uniform reflect try_reflect java_method".split()
)


def find_volatile(tree: exp.Expr) -> str | None:
    """The first function in a tree that gives another value each time, None where there is none."""
    for node in tree.walk():
        if isinstance(node, exp.Anonymous):
            name = str(node.this).lower()
        elif isinstance(node, exp.Func):
            name = node.sql_name().lower()
        else:
            continue
        if name in VOLATILE:
            # A seed makes rand repeatable for one layout of files only, so it is refused too.
            return name
    return None
