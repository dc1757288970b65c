"""Tables of text for a person to read in a terminal.

Columns are as wide as their widest cell, numbers stand to the right, and no line ends with spaces. A control
character in a value is shown as an escape, because a value must not be able to move the cursor.

Where a terminal has a width, columns are left out by their weight and lines end between words: nothing is cut.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import timedelta

NULL = "NULL"
# A column or line is not made narrower than this, however narrow the terminal is.
_LEAST_WRAPPED = 20


def table_text(
    headers: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    *,
    right: Sequence[int] = (),
    gap: str = "  ",
    most: int | None = None,
    omit: Sequence[int] = (),
) -> str:
    """The rows under their headers; `right` are the indexes of the columns that stand to the right.

    With `most` a line has at most so many columns of a terminal, as far as that is possible: the columns `omit` are
    left out in that order, and then the last one goes on in lines below.

    >>> print(table_text(["table", "rows"], [["orders", "3"], ["spend", None]], right=[1]))
    table   rows
    orders     3
    spend   NULL
    >>> print(table_text(["table", "kind", "reason"], [["orders", "log", "one two three"]], most=24, omit=[1]))
    table   reason
    orders  one two three
    >>> print(table_text(["table", "reason"], [["orders", "one two three four five six"]], most=30))
    table   reason
    orders  one two three four
            five six
    """
    shown = [[NULL if cell is None else printable(cell) for cell in row] for row in rows]
    # A header may be the name of a column in a table of others.
    table = [[printable(header) for header in headers], *shown]
    widths = [max(width(row[index]) for row in table) for index in range(len(headers))]
    kept = kept_columns(widths, gap=gap, most=most, omit=omit)
    lines = []
    *before, last = kept
    indent = sum(widths[index] + width(gap) for index in before)
    for row in table:
        cells = [padded(row[index], widths[index], right=index in right) for index in before]
        if most is None or last in right:
            cells.append(padded(row[last], widths[last], right=last in right))
            lines.append(gap.join(cells).rstrip())
            continue
        first, *others = wrapped(row[last], max(most - indent, _LEAST_WRAPPED)) or [""]
        lines.append(gap.join([*cells, first]).rstrip())
        lines += [" " * indent + other for other in others]
    return "\n".join(lines)


def kept_columns(widths: Sequence[int], *, gap: str, most: int | None, omit: Sequence[int]) -> list[int]:
    """The indexes of the columns that fit into a line of `most`, where those of `omit` are left out in that order.

    >>> kept_columns([5, 5, 5], gap="  ", most=13, omit=[1])
    [0, 2]
    """
    kept, left = list(range(len(widths))), list(omit)
    while most is not None and left and sum(widths[index] for index in kept) + width(gap) * (len(kept) - 1) > most:
        kept.remove(left.pop(0))
    return kept


def wrapped(text: str, most: int) -> list[str]:
    """The text in lines of at most so many columns of a terminal, which end between words; a longer word has its own.

    >>> wrapped("one two three", 7)
    ['one two', 'three']
    """
    lines: list[str] = []
    for word in text.split(" "):
        if lines and width(lines[-1]) + 1 + width(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def wrapped_lines(text: str, most: int | None) -> str:
    """Each line of the text in lines of at most `most`; those that go on are indented by two more.

    >>> print(wrapped_lines("  one two three four five six", 24))
      one two three four
        five six
    """
    if most is None:
        return text
    found = []
    for line in text.split("\n"):
        if width(line) <= most:
            found.append(line)
            continue
        said = line.lstrip(" ")
        indent = " " * (len(line) - len(said))
        first, *others = wrapped(said, max(most - len(indent) - 2, _LEAST_WRAPPED))
        found += [f"{indent}{first}", *(f"{indent}  {other}" for other in others)]
    return "\n".join(found)


def padded(cell: str, to: int, *, right: bool = False) -> str:
    """The cell with spaces up to a width in terminal columns."""
    space = " " * (to - width(cell))
    return space + cell if right else cell + space


def printable(text: str) -> str:
    """The text with control characters as escapes.

    >>> printable("a\\tb\\x1b[2J")
    'a\\\\tb\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def width(text: str) -> int:
    """How many columns of a terminal the text takes.

    >>> width("abc"), width("日本")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def duration_text(seconds: float | None) -> str:
    """A duration in the largest unit that says it in at most three digits, one decimal below ten seconds.

    >>> [duration_text(s) for s in (None, 0.04, 5, 59.6, 90, 7200, 200000)]
    ['-', '0.0 s', '5.0 s', '60 s', '90 s', '2 h', '2.3 d']
    """
    if seconds is None:
        return "-"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    for unit, size in (("min", 60), ("h", 3600), ("d", 86400)):
        amount = seconds / size
        if amount < (120 if unit == "min" else 48) or unit == "d":
            text = f"{amount:.1f}" if amount < 10 else f"{amount:.0f}"
            return f"{text.removesuffix('.0')} {unit}"
    raise AssertionError(timedelta(seconds=seconds))


def freshness_text(seconds: int) -> str:
    """A declared freshness in its largest whole unit.

    >>> [freshness_text(s) for s in (10, 90, 300, 21600, 86400)]
    ['10 s', '90 s', '5 min', '6 h', '1 d']
    """
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def bytes_text(size: int) -> str:
    """A number of bytes in the unit that says it in at most three digits, one decimal below ten.

    >>> [bytes_text(size) for size in (0, 999, 1_500, 43_000_000, -2_000_000_000)]
    ['0 B', '999 B', '1.5 kB', '43 MB', '-2.0 GB']
    """
    if abs(size) < 1_000:
        return f"{size} B"
    value = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1_000
        if abs(value) < 999.5 or unit == "TB":
            return f"{value:.{1 if abs(value) < 9.95 else 0}f} {unit}"
    raise AssertionError("TB is the last unit")


def count_text(count: int | None) -> str:
    """A number with separated thousands, `-` for an unknown one.

    >>> count_text(1234567), count_text(None)
    ('1,234,567', '-')
    """
    return "-" if count is None else f"{count:,}"
