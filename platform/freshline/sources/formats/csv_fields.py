r"""The fields of a record of CSV, by patterns that Python and Java read alike.

A field is a text between separators, or a text in quotes (RFC 4180): a quote in it stands twice, or has the escape
before it, which then stands twice itself. A text that begins with a quote is nothing else: what stands behind the
closing quote has no meaning.

>>> Dialect().split('1,"a ""b"", c",')
['1', '"a ""b"", c"', '']
>>> Dialect(separator=";", escape="\\").split('1;"a \\"b\\"; c"')
['1', '"a \\"b\\"; c"']
>>> Dialect().split('1,"say \\"hi, you\\""') is None
True
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """The signs of a file of CSV, each one of ASCII; without an `escape` quotes are doubled."""

    separator: str = ","
    escape: str | None = None

    @property
    def quoted(self) -> str:
        """A pattern for a field in quotes."""
        if self.escape is None:
            return '"(?:[^"]++|"")*+"'
        sign = _literal(self.escape)
        return rf'"(?:[^"{sign}]++|{sign}[\s\S])*+"'

    @property
    def field(self) -> str:
        """A pattern for a field."""
        return f'(?:{self.quoted}|(?!")[^{_literal(self.separator)}]*+)'

    @property
    def record(self) -> str:
        """A pattern for a whole record with a separator before it."""
        return rf"^(?:{_literal(self.separator)}{self.field})*+\z"

    @property
    def behind_separator(self) -> str:
        """A pattern for a separator and the field behind it, which is its group."""
        return f"{_literal(self.separator)}({self.field})"

    @property
    def between(self) -> str:
        """A pattern for a separator."""
        return _literal(self.separator)

    @property
    def escaped(self) -> str | None:
        """A pattern for a sign of a field in quotes that stands for itself, which is its group; None: it is doubled."""
        return None if self.escape is None else rf'{_literal(self.escape)}(["{_literal(self.escape)}])'

    def split(self, text: str) -> list[str] | None:
        """The fields of a record as they are written; None where it is no record."""
        marked = self.separator + text
        # Python spells the end in another way. It keeps what it compiled, and this is sent to tasks as it is.
        if re.match(self.record.replace(r"\z", r"\Z"), marked) is None:
            return None
        return [found[1] for found in re.finditer(self.behind_separator, marked)]

    def value(self, field: str) -> str:
        """The text of a field.

        >>> for field in ('a', '"a ""b"" "'):
        ...     Dialect().value(field)
        'a'
        'a "b" '
        >>> Dialect(escape="|").value('"a |"b|| |c"')
        'a "b| |c'
        """
        if not field.startswith('"'):
            return field
        inner = field[1:-1]
        return inner.replace('""', '"') if self.escaped is None else re.sub(self.escaped, r"\1", inner)


def _literal(sign: str) -> str:
    """A pattern for one sign of ASCII, within brackets or without."""
    return f"\\x{ord(sign):02x}"
