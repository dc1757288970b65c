"""The types of declared columns, in Spark's spelling.

Types are compared as text, so one type must have one spelling: upper case, no blanks but after the name of a
struct's field.
"""

from __future__ import annotations

import re

from freshline.values.names import quoted

SIMPLE = {
    "STRING": "STRING",
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "BYTE": "TINYINT",
    "SMALLINT": "SMALLINT",
    "SHORT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "FLOAT": "FLOAT",
    "REAL": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
    "BINARY": "BINARY",
}
NAMES = (*SIMPLE, "DECIMAL", "ARRAY", "MAP", "STRUCT")

_LEXEME = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<word>\w+)|(?P<mark>[<>(),:]))")
_QUOTED = re.compile(r"`(?:[^`]|``)*`")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
# The digits of their greatest values.
_INTEGERS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
# Floating-point types, and those of which they have every value.
_EXACT_IN = {"FLOAT": ("TINYINT", "SMALLINT"), "DOUBLE": ("TINYINT", "SMALLINT", "INT", "FLOAT")}


def normalise_type(text: str) -> str:
    """The one spelling of a type; raises ValueError, with a sentence, for what is not a type.

    >>> normalise_type("struct<a: int, b: array<decimal(10, 2)>>")
    'STRUCT<a: INT, b: ARRAY<DECIMAL(10,2)>>'
    """
    reader = _Reader(text)
    result = reader.type()
    if reader.lexeme is not None:
        raise reader.refuse(f"{reader.lexeme} is not expected")
    return result


def takes_values(kind: str, of: str) -> bool:
    """Whether a type takes every value of another as it is, so that two values are equal in both types or in neither.

    Types are in Spark's spelling, of declarations or of schemas.

    >>> takes_values("BIGINT", "INT"), takes_values("DECIMAL(12,2)", "DECIMAL(10,2)"), takes_values("DOUBLE", "FLOAT")
    (True, True, True)
    >>> takes_values("STRUCT<a: INT, b: STRING>", "struct<a:int,b:string>")
    True
    >>> takes_values("INT", "BIGINT"), takes_values("DECIMAL(9,4)", "DECIMAL(10,2)"), takes_values("FLOAT", "DOUBLE")
    (False, False, False)
    """
    kind, of = (re.sub("[ `]", "", each).upper() for each in (kind, of))
    if kind == of or of in _EXACT_IN.get(kind, ()):
        return True
    whole, given = _digits(kind), _digits(of)
    if whole is None or given is None or (kind in _INTEGERS and of not in _INTEGERS):
        return False
    return whole[0] >= given[0] and whole[1] >= given[1]


def _digits(kind: str) -> tuple[int, int] | None:
    """The digits that a number has before and after the point; None for other types."""
    if kind in _INTEGERS:
        return _INTEGERS[kind], 0
    found = _DECIMAL.fullmatch(kind)
    return None if found is None else (int(found[1]) - int(found[2]), int(found[2]))


def is_nested(kind: str) -> bool:
    """Whether values of a type, in the spelling of declarations, have values within.

    >>> is_nested("ARRAY<INT>"), is_nested("DECIMAL(10,2)")
    (True, False)
    """
    return kind.startswith(("ARRAY<", "MAP<", "STRUCT<"))


def map_keys(kind: str) -> list[str]:
    """The types of the keys of every MAP in a type, in the spelling of declarations.

    >>> map_keys("STRUCT<`a MAP<INT`: MAP<STRUCT<x: INT, y: INT>, ARRAY<MAP<DATE, INT>>>>")
    ['STRUCT<x: INT, y: INT>', 'DATE']
    """
    text = _QUOTED.sub("name", kind)
    found = []
    for place in re.finditer(r"\bMAP<", text):
        depth, end = 0, place.end()
        while depth or text[end] != ",":
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(text[end], 0)
            end += 1
        found.append(text[place.end() : end])
    return found


def refuses_keys(kind: str) -> str | None:
    """The reason why a format with names in its records, such as JSON, gives no values of a type; None where it does.

    >>> refuses_keys("MAP<STRING, INT>")
    >>> refuses_keys("ARRAY<MAP<INT, STRING>>")
    'names in a record are texts, and the keys of this MAP are INT. Declare MAP<STRING, ..>, and cast in a query'
    """
    other = next((key for key in map_keys(kind) if key != "STRING"), None)
    if other is None:
        return None
    return (
        f"names in a record are texts, and the keys of this MAP are {other}. "
        "Declare MAP<STRING, ..>, and cast in a query"
    )


def refuses_of_database(kind: str) -> str | None:
    """The reason why no database column gives values of a type; None where one does: single values, or one list.

    >>> refuses_of_database("ARRAY<INT>")
    >>> refuses_of_database("MAP<STRING, INT>")
    'no column of a database is read so. Declare STRING, and read the text in a query, as from_json does'
    """
    if not is_nested(kind) or (kind.startswith("ARRAY<") and not is_nested(kind.removeprefix("ARRAY<"))):
        return None
    return "no column of a database is read so. Declare STRING, and read the text in a query, as from_json does"


# Readers of Parquet and of JSON go down as deep; none of them counts.
_MOST_NESTED = 100
_LONGEST_SHOWN = 500


class _Reader:
    """A recursive-descent reader of one type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lexemes: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _LEXEME.match(text, position)
            if match is None:
                raise self.refuse(f"{text[position:].strip()[:1]!r} is not expected")
            self._lexemes.append(match[0].strip())
            position = match.end()
        self._next = 0
        self._depth = 0

    @property
    def lexeme(self) -> str | None:
        return self._lexemes[self._next] if self._next < len(self._lexemes) else None

    def refuse(self, why: str) -> ValueError:
        text = self._text.strip()
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}.."
        return ValueError(f"{shown!r} is not a type: {why}. Types are {', '.join(NAMES)}.")

    def type(self) -> str:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise self.refuse(f"more than {_MOST_NESTED} types in each other")
        found = self._one()
        self._depth -= 1
        return found

    def _one(self) -> str:
        word = self._take().upper()
        if word in SIMPLE:
            return SIMPLE[word]
        if word in ("DECIMAL", "DEC", "NUMERIC"):
            return self._decimal()
        if word == "ARRAY":
            self._expect("<")
            element = self.type()
            self._expect(">")
            return f"ARRAY<{element}>"
        if word == "MAP":
            self._expect("<")
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return f"MAP<{key}, {value}>"
        if word == "STRUCT":
            return self._struct()
        from freshline.values.rules import nearest

        raise self.refuse(f"there is no type {word}.{nearest(word, NAMES)}".rstrip("."))

    def _decimal(self) -> str:
        if self.lexeme != "(":
            return "DECIMAL(10,0)"
        self._expect("(")
        precision = self._number()
        scale = 0
        if self.lexeme == ",":
            self._expect(",")
            scale = self._number()
        self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise self.refuse("DECIMAL(p,s) has 1 to 38 digits, s of them after the point")
        return f"DECIMAL({precision},{scale})"

    def _struct(self) -> str:
        self._expect("<")
        fields: list[str] = []
        names: set[str] = set()
        while True:
            name = self._take()
            plain = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if not plain or (not name.startswith("`") and not _PLAIN.match(name)):
                raise self.refuse(f"{name} is not the name of a field")
            if plain.lower() in names:
                raise self.refuse(f"field {plain} occurs twice")
            names.add(plain.lower())
            if self.lexeme == ":":
                self._expect(":")
            shown = plain if _PLAIN.match(plain) else quoted(plain)
            fields.append(f"{shown}: {self.type()}")
            if self.lexeme != ",":
                break
            self._expect(",")
        self._expect(">")
        return f"STRUCT<{', '.join(fields)}>"

    def _take(self) -> str:
        lexeme = self.lexeme
        if lexeme is None:
            raise self.refuse("it ends too early")
        self._next += 1
        return lexeme

    def _expect(self, mark: str) -> None:
        lexeme = self._take()
        if lexeme != mark:
            raise self.refuse(f"{mark} is expected where {lexeme} stands")

    def _number(self) -> int:
        lexeme = self._take()
        if not (lexeme.isascii() and lexeme.isdigit() and len(lexeme) < 4):
            raise self.refuse(f"a number is expected where {lexeme} stands")
        return int(lexeme)
