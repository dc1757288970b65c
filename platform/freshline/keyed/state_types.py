"""The types of the attributes that a class of `freshline.process` declares, and their values as JSON.

A type is written as in Python: `int`, `datetime | None`, `dict[str, list[int]]`. JSON alone does not tell a text from a
date, so values are written and read by their types, and come back as equal values of the same types.

This module imports nothing that takes long, because it is used where a project is read.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

# JSON of larger numbers is not read everywhere, and Python limits the digits that it reads.
_LARGE = 2**63


class UnkeptError(Exception):
    """A value that is not kept: too large, of a subclass, or an object that something else has too."""


class WrongTypeError(Exception):
    """A value that is not of its declared type."""


@dataclass
class Room:
    """How many bytes may still be written, and the mutable objects, by their ids, that may not be written (again)."""

    left: int
    known: set[int] = field(default_factory=set)

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise UnkeptError

    def once(self, value: Any) -> None:
        """Of two places with one object, each would get an object of its own."""
        if id(value) in self.known:
            raise UnkeptError
        self.known.add(id(value))


def _size_of(value: Any) -> int:
    return value.bit_length() // 4 if isinstance(value, int) else 8


def _write_number(value: Any) -> float | str:
    return value if isinstance(value, float) or -_LARGE <= value < _LARGE else f"{value:x}"


def _read_number(written: float | str) -> float:
    return int(written, 16) if isinstance(written, str) else written


def _write_time(value: datetime | time) -> list[Any]:
    return [value.replace(tzinfo=None, fold=0).isoformat(), _write_zone(value.tzinfo), value.fold]


def _write_zone(zone: tzinfo | None) -> str | int | None:
    if isinstance(zone, ZoneInfo) and zone.key and ZoneInfo(zone.key) is zone:
        return zone.key
    if isinstance(zone, timezone):
        offset = zone.utcoffset(None)
        # The difference is a name, as in timezone(timedelta(hours=1), "CET").
        if repr(zone) == repr(timezone(offset)):
            return offset // timedelta(microseconds=1)
    if zone is not None:
        raise UnkeptError
    return None


def _read_time(kind: type[datetime] | type[time], written: list[Any]) -> Any:
    text, zone, fold = written
    found = zone
    if zone is not None:
        found = timezone(timedelta(microseconds=zone)) if isinstance(zone, int) else ZoneInfo(zone)
    return kind.fromisoformat(text).replace(tzinfo=found, fold=fold)


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class _Scalar:
    """A type without parts: the values that it takes, their bytes, and how they are written and read."""

    takes: tuple[type, ...]
    size: Callable[[Any], int] = lambda _: 8
    write: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same


_NUMBER = _Scalar((float, int, bool), _size_of, _write_number, _read_number)
_SCALARS = {
    "bool": _Scalar((bool,)),
    "int": replace(_NUMBER, takes=(int, bool)),
    # A number without a fraction may be an int in Python, and JSON tells them apart.
    "float": _NUMBER,
    "str": _Scalar((str,), len),
    "bytes": _Scalar((bytes,), lambda value: 2 * len(value), bytes.hex, bytes.fromhex),
    "Decimal": _Scalar((Decimal,), sys.getsizeof, str, Decimal),
    "UUID": _Scalar((UUID,), write=str, read=UUID),
    "date": _Scalar((date,), write=date.isoformat, read=date.fromisoformat),
    "time": _Scalar((time,), write=_write_time, read=lambda written: _read_time(time, written)),
    "datetime": _Scalar((datetime,), write=_write_time, read=lambda written: _read_time(datetime, written)),
    "timedelta": _Scalar(
        (timedelta,), write=lambda it: [it.days, it.seconds, it.microseconds], read=lambda written: timedelta(*written)
    ),
}
_MANY: dict[str, type] = {"list": list, "set": set, "frozenset": frozenset, "deque": deque}
_PAIRS: dict[str, type] = {"dict": dict, "Counter": Counter}
# How many types are in the brackets.
_PARTS = {**dict.fromkeys((*_MANY, "Counter"), 1), "dict": 2}
SUPPORTED = f"{', '.join([*_SCALARS, *_MANY, *_PAIRS])} and tuple of these, or one of them `| None`"


@dataclass(frozen=True)
class StateType:
    """The declared type of an attribute. `parts` are the types in its brackets; with `or_none`, it takes None too.

    `is_long`: a tuple of any length, as `tuple[int, ...]`.
    """

    name: str
    parts: tuple[StateType, ...] = ()
    or_none: bool = False
    is_long: bool = False

    def __str__(self) -> str:
        parts = [*map(str, self.parts), *(["..."] if self.is_long else [])]
        text = f"{self.name}[{', '.join(parts)}]" if parts else self.name
        return f"{text} | None" if self.or_none else text

    def write(self, value: Any, room: Room) -> Any:
        """The value as JSON has it. Raises WrongTypeError and UnkeptError."""
        room.take(1)
        if value is None and self.or_none:
            return None
        scalar = _SCALARS.get(self.name)
        if scalar is not None:
            self._require(value, scalar.takes)
            room.take(scalar.size(value))
            return scalar.write(value)
        self._require(value, (_MANY.get(self.name) or _PAIRS.get(self.name) or tuple,))
        room.take(len(value))
        if self.name not in ("tuple", "frozenset"):
            room.once(value)
        if self.name == "Counter":
            if vars(value):
                raise UnkeptError  # attributes of its own
            return [[self.parts[0].write(key, room), _COUNT.write(count, room)] for key, count in value.items()]
        if self.name == "dict":
            keys, values = self.parts
            return [[keys.write(key, room), values.write(each, room)] for key, each in value.items()]
        if self.name == "tuple" and not self.is_long:
            if len(value) != len(self.parts):
                raise WrongTypeError(f"it is a tuple of {len(value)}, and is declared as {self}")
            return [part.write(each, room) for part, each in zip(self.parts, value, strict=True)]
        written = [self.parts[0].write(each, room) for each in value]
        return [value.maxlen, written] if self.name == "deque" else written

    def _require(self, value: Any, takes: tuple[type, ...]) -> None:
        if type(value) in takes:
            return
        # A datetime is a date to Python, and no date of a day.
        if isinstance(value, takes) and not (self.name == "date" and isinstance(value, datetime)):
            raise UnkeptError
        raise WrongTypeError(f"it is of the type {type(value).__name__}, and is declared as {self}")

    def read(self, written: Any) -> Any:
        """The value that was written; raises whatever JSON of something else leads to."""
        if written is None and self.or_none:
            return None
        if self.name in _SCALARS:
            return _SCALARS[self.name].read(written)
        if self.name == "Counter":
            return Counter({self.parts[0].read(key): count for key, count in written})
        if self.name == "dict":
            keys, values = self.parts
            return {keys.read(key): values.read(each) for key, each in written}
        if self.name == "tuple" and not self.is_long:
            return tuple(part.read(each) for part, each in zip(self.parts, written, strict=True))
        if self.name == "deque":
            maxlen, written = written
            return deque(map(self.parts[0].read, written), maxlen)
        return _MANY.get(self.name, tuple)(map(self.parts[0].read, written))


_COUNT = StateType("int")


def state_type(annotation: str | ast.expr) -> StateType:
    """The type that an annotation is; raises ValueError with a sentence for one that is not supported.

    >>> str(state_type("Optional[dict[str, tuple[datetime.datetime, int | None]]]"))
    'dict[str, tuple[datetime, int | None]] | None'
    >>> state_type("list[object]")
    Traceback (most recent call last):
    ValueError: the type is object, and has to be bool, int, float, str, bytes, Decimal, UUID, date, time, datetime, \
timedelta, list, set, frozenset, deque, dict, Counter and tuple of these, or one of them `| None`
    """
    node = ast.parse(annotation.strip(), mode="eval").body if isinstance(annotation, str) else annotation
    match node:
        case ast.Constant(value=str(text)):
            return state_type(text)
        case ast.BinOp(left=one, op=ast.BitOr(), right=ast.Constant(value=None)):
            return replace(state_type(one), or_none=True)
        case ast.BinOp(left=ast.Constant(value=None), op=ast.BitOr(), right=one):
            return replace(state_type(one), or_none=True)
        case ast.Subscript(value=name, slice=within):
            return _with_parts(node, _last(name), within.elts if isinstance(within, ast.Tuple) else [within])
        case _ if _last(node) in _SCALARS:
            return StateType(_last(node))
        case _:
            raise _unsupported(node)


def _with_parts(whole: ast.expr, name: str, parts: list[ast.expr]) -> StateType:
    if name == "Optional" and len(parts) == 1:
        return replace(state_type(parts[0]), or_none=True)
    if name == "tuple" and len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is ...:
        return StateType(name, (state_type(parts[0]),), is_long=True)
    if name != "tuple" and _PARTS.get(name) != len(parts):
        raise _unsupported(whole)
    return StateType(name, tuple(map(state_type, parts)))


def _last(annotation: ast.expr) -> str:
    """The name without the module, as `datetime` of `datetime.datetime`."""
    return annotation.attr if isinstance(annotation, ast.Attribute) else getattr(annotation, "id", "")


def _unsupported(annotation: ast.expr) -> ValueError:
    return ValueError(f"the type is {ast.unparse(annotation)}, and has to be {SUPPORTED}")


# -- values whose types are those of columns


def write_values(values: Iterable[Any], room: Room) -> list[Any]:
    """Values without parts, each with the name of its type; raises UnkeptError for others."""
    return [_write_value(value, room) for value in values]


def _write_value(value: Any, room: Room) -> Any:
    if value is None:
        return None
    name = type(value).__name__
    if name not in _SCALARS or type(value) is not _SCALARS[name].takes[0]:
        raise UnkeptError
    return [name, StateType(name).write(value, room)]


def read_values(written: Iterable[Any]) -> tuple[Any, ...]:
    """The values that `write_values` wrote."""
    return tuple(None if each is None else StateType(each[0]).read(each[1]) for each in written)
