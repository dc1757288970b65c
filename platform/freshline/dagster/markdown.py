"""Texts of rows, files and errors in the Markdown of Dagster's pages, where they are texts and nothing else.

A value of a row may be any text. Without this a backtick in it ended the code it stands in, and the rest became links
and images, which a browser fetches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from freshline.report.table_text import printable

# All that CommonMark takes as a sign (2.4 Backslash escapes), `<` and `&` of HTML among them.
_SIGNS = re.compile(r"([!-/:-@\[-`{-~])")
# A bare address becomes a link where a page extends Markdown by that; it begins with one of these.
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto|www)(?=[:.])")
_NO_SPACE = "\u2060"


def code_list(texts: Iterable[str]) -> str:
    """A list of texts as code, one an item.

    >>> print(code_list(['{"a":1}', "a`b"]))
    - `{"a":1}`
    - ``a`b``
    """
    return "\n".join(f"- {_code(printable(text))}" for text in texts)


def plain_list(texts: Iterable[str]) -> str:
    """A list of texts in which no sign has a meaning, one an item, without blanks around them.

    >>> print(plain_list(["a *b*"]))
    - a \\*b\\*
    """
    # Four blanks before a text would make it code.
    return "\n".join(f"- {_plain(printable(text).strip())}" for text in texts)


def _code(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    # One space on both sides is no part of the code, unless there are spaces alone.
    is_between_spaces = text[:1] == text[-1:] == " " and text.strip() != ""
    space = " " if not text or "`" in (text[:1], text[-1:]) or is_between_spaces else ""
    return f"{fence}{space}{text}{space}{fence}"


def _plain(text: str) -> str:
    return _ADDRESS.sub(rf"\1{_NO_SPACE}", _SIGNS.sub(r"\\\1", text))
