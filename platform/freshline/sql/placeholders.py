"""Names of freshline's own in queries that are written out, in the words of the person who wrote them.

Spark's errors on a query name the aliases that stand for window functions, patterns and joins as of a time, and the
views that tables are read under.
"""

from __future__ import annotations

import re

_VIEW = re.compile(r"`?\bfreshline_(\d+)_(\w+)`?")
_QUALIFIER = re.compile(r"`?\bfreshline_\w+`?\.(?=[`\w*])")
# In a list of suggestions, `[`a`, `freshline_match`]`.
_LISTED = re.compile(r"(?<=[\[ ])`freshline_\w+`, |, `freshline_\w+`(?=[\],])|(?<=\[)`freshline_\w+`(?=\])")
_ALONE = re.compile(r"`?\bfreshline_\w+`?")


def in_own_words(text: str) -> str:
    """A message without the names that are given here.

    >>> in_own_words("`freshline_rows`.`tss` cannot be resolved. Did you mean [`freshline_rows`.`ts`, `freshline_m`]?")
    '`tss` cannot be resolved. Did you mean [`ts`]?'
    >>> in_own_words("no column x in `freshline_4_shop_orders`")
    'no column x in shop.orders'
    """
    text = _QUALIFIER.sub("", _VIEW.sub(_table, text))
    return _ALONE.sub("the query", _LISTED.sub("", text)) if "freshline_" in text else text


def _table(found: re.Match[str]) -> str:
    """The name of a table whose view is named by the length of its namespace, the namespace, and its own name."""
    length, name = int(found[1]), found[2]
    if length >= len(name) or name[length] != "_":
        return found[0]
    return f"{name[:length]}.{name[length + 1 :]}"
