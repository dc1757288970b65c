"""The columns of a source, read off a sample of its records.

The rule is one that a person can follow. A column has the narrowest of these types that takes all its values without
a change: BOOLEAN, BIGINT, DECIMAL(38,0), DOUBLE, DATE, TIMESTAMP, and else STRING. Objects are a STRUCT and lists an
ARRAY, by the same rule inside. NULL says nothing, and a column of nothing else is a STRING. Nothing is read but the
text.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import islice
from typing import Any

from freshline.sql.drafts import quoted_name
from freshline.values.column_types import normalise_type
from freshline.values.spec import Column

# More records rarely say more, and the sample may be a large file.
RECORDS = 1_000

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?\Z"
)
_DIGITS = 38
# Each takes the values of those before it.
_NUMBERS = ("BIGINT", f"DECIMAL({_DIGITS},0)", "DOUBLE")
_TIMES = ("DATE", "TIMESTAMP")
_STRING = "STRING"


@dataclass(frozen=True)
class _List:
    element: _Type


@dataclass(frozen=True)
class _Object:
    fields: Mapping[str, _Type]


# A name of a type, or None for NULL.
_Type = str | _List | _Object | None


def json_columns(lines: Iterable[str]) -> tuple[Column, ...]:
    """The columns of JSON objects, one a line, in the order in which they first appear.

    Raises ValueError, with a sentence, for a line that is no object, and where there is none.
    """
    filled = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    found = [_record(number, line) for number, line in islice(filled, RECORDS)]
    return _columns(reduce(_both, found, None))


def csv_columns(lines: Iterable[str]) -> tuple[Column, ...]:
    """The columns that the first line of a CSV file names.

    An empty field is NULL, and records of another length than the first line say nothing. Raises ValueError, with a
    sentence, where there is no first line, or a quote has no end.
    """
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, [])
        records = [record for record in islice(reader, RECORDS) if len(record) == len(header)]
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num} is no CSV: {error}.") from error
    if not all(name.strip() for name in header):
        raise ValueError("the first line has a column without a name. It names the columns.")
    types = (reduce(_both, (_of_text(record[at]) for record in records), None) for at in range(len(header)))
    return _columns(_Object(dict(zip((name.strip() for name in header), types, strict=True))))


def _record(number: int, line: str) -> _Type:
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number} is no JSON: {error}. A record is one line.") from error
    if not isinstance(value, dict):
        raise ValueError(f"line {number} is no JSON object. A record is one object, on a line of its own.")
    return _of_value(value)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no value of JSON")


def _of_value(value: Any) -> _Type:
    match value:
        case None:
            return None
        case bool():
            return "BOOLEAN"
        case int():
            return _whole(value)
        case float():
            return "DOUBLE"
        case str():
            return _time(value)
        case list():
            return _List(reduce(_both, map(_of_value, value), None))
        case _:
            return _Object({name: _of_value(each) for name, each in value.items()})


def _of_text(text: str) -> _Type:
    if not text:
        return None
    if text in ("true", "false"):
        return "BOOLEAN"
    # Zeros before a number are part of a code, such as that of a town. Python reads numbers of up to some digits only.
    if _WHOLE.match(text) and len(text) <= _DIGITS + 1:
        return _whole(int(text))
    return "DOUBLE" if _NUMBER.match(text) and not _WHOLE.match(text) else _time(text)


def _whole(value: int) -> str:
    if -(2**63) <= value < 2**63:
        return _NUMBERS[0]
    return _NUMBERS[1] if abs(value) < 10**_DIGITS else _STRING


def _time(text: str) -> str:
    kind = "DATE" if _DATE.match(text) else "TIMESTAMP" if _TIME.match(text) else _STRING
    if kind != _STRING:
        try:
            datetime.fromisoformat(text)
        except ValueError:
            return _STRING
    return kind


def _both(one: _Type, other: _Type) -> _Type:
    """The type that takes the values of both."""
    match one, other:
        case (None, known) | (known, None):
            return known
        case _List(), _List():
            return _List(_both(one.element, other.element))
        case _Object(), _Object():
            names = dict.fromkeys((*one.fields, *other.fields))
            return _Object({name: _both(one.fields.get(name), other.fields.get(name)) for name in names})
        case str(), str() if one != other:
            orders = (order for order in (_NUMBERS, _TIMES) if one in order and other in order)
            return next((max(one, other, key=order.index) for order in orders), _STRING)
        case _:
            return one if one == other else _STRING


def _columns(found: _Type) -> tuple[Column, ...]:
    if not isinstance(found, _Object) or not found.fields:
        raise ValueError("there is no record with a column. A sample has one or more.")
    return tuple(Column(name, normalise_type(_written(kind))) for name, kind in found.fields.items())


def _written(kind: _Type) -> str:
    match kind:
        case None:
            return _STRING
        case str():
            return kind
        case _List(element):
            return f"ARRAY<{_written(element)}>"
        case _Object(fields):
            return f"STRUCT<{', '.join(_fields(fields))}>" if fields else f"MAP<{_STRING}, {_STRING}>"


def _fields(fields: Mapping[str, _Type]) -> Iterator[str]:
    return (f"{quoted_name(name)}: {_written(kind)}" for name, kind in fields.items())
