"""Fields of CSV are those of RFC 4180, and of Python's reader; what is none of these is no record."""

from __future__ import annotations

import csv
import random
import re

import pytest

from freshline.sources.formats.csv_fields import Dialect

# RFC 4180, section 2: a field in quotes ends with its closing quote. Quotes in a field without them are data here.
FIELD = r'(?:"(?:[^"]|"")*"|(?:[^",][^,]*)?)'
RECORD = re.compile(f"{FIELD}(?:,{FIELD})*")


def by_python(text, separator=","):
    """The fields of a record as Python reads them; None where it is no record."""
    try:
        (row,) = csv.reader([text], delimiter=separator, strict=True)
    except (csv.Error, ValueError):
        return None
    return row


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "^"])
def test_random_records_are_those_of_python_and_of_the_rfc(seed, separator):
    chance, dialect = random.Random(f"{seed} {separator}"), Dialect(separator)
    found = 0
    for _ in range(1_000):
        text = "".join(chance.choices(f'"{separator}ab \\\u00e9', k=chance.randrange(1, 12)))
        fields = dialect.split(text)
        values = None if fields is None else [dialect.value(field) for field in fields]
        assert values == by_python(text, separator), text
        assert (fields is not None) == bool(RECORD.fullmatch(text.replace(separator, ","))), text
        found += fields is not None
    assert 100 < found < 1_000


@pytest.mark.parametrize(
    ("escape", "text", "values"),
    [
        ("\\", r'1,"say \"hi, you\""', ["1", 'say "hi, you"']),
        ("\\", r'"\\",b', ["\\", "b"]),
        ("\\", r'"\n\",",b', [r'\n",', "b"]),
        ("\\", r"a\,b\\", ["a\\", r"b\\"]),
        ("\\", r'"a""b",c', None),
        ("\\", r'"a\"', None),
        (None, r'1,"say \"hi, you\""', None),
        (None, r'2,"say \"hi\"",x', None),
        (None, '"a" ,b', None),
        (None, ' "a",b', [' "a"', "b"]),
        (None, ",", ["", ""]),
        (None, "", [""]),
    ],
)
def test_quotes_inside_quotes(escape, text, values):
    dialect = Dialect(escape=escape)
    fields = dialect.split(text)

    assert values == (None if fields is None else [dialect.value(field) for field in fields])


def test_a_record_of_a_million_quotes_is_read_in_a_moment():
    assert Dialect().split('"' + '""' * 1_000_000 + '",b') == ['"' + '""' * 1_000_000 + '"', "b"]
    assert Dialect().split('"' + '""' * 1_000_000 + "x") is None
