"""The state of a key as bytes, from which rows behind its last one go on.

State is the values of the attributes of an instance. It is kept where going on from it is the same as a replay: all
values are of KINDS, they are the same when they are read back, and nothing that instances share has changed or, where
it can change, is in the state. Everything else has no bytes, and is replayed.

Code may ask with `is` which object it has, and `in` asks that too. So an object comes back as one object wherever it
is in the state, and a constant that the class reaches comes back as this constant.

The bytes are a pickle that is read without running anything: of classes it may name those of KINDS.
"""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import struct
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from inspect import getattr_static
from types import GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from pyspark import cloudpickle

from freshline.keyed.replay import PASSED_ON, Progress, Replay, Row

# Bytes with another number are not read.
FORMAT = 2
# A key with more is replayed: it is written again with each of its rows.
MOST_BYTES = 2**16
MUTABLE = frozenset({bytearray, list, dict, set, deque, OrderedDict, defaultdict, Counter, Row})
KINDS = MUTABLE | {
    *(type(None), bool, int, float, complex, str, bytes, tuple, frozenset),
    *(date, datetime, time, timedelta, timezone, Decimal, UUID),
}
_SIZED = (MUTABLE - {Row}) | {str, bytes, tuple, frozenset}
_NAMED = {(kind.__module__, kind.__qualname__): kind for kind in KINDS}
_PROTOCOL = 5
# The name of a constant has so many bytes.
_NAME_BYTES = 6


class _UnfitError(Exception):
    """A value that is no plain state."""


class Shared:
    """Everything that all instances of a class share: its attributes, and what its code reaches in project modules.

    A replay would share it among the rows of all keys in its process. So it may not change.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        written = io.BytesIO()
        reach = _Reach(written)
        self._before = _look(make, reach, written)
        self.mutable: Mapping[int, Any] = reach.mutable
        self._constants: Mapping[int, Any] = reach.constants

    @cached_property
    def objects(self) -> Mapping[bytes, Any]:
        """The constants by their names, which they have in every process that runs the class.

        A name is made of the value. Different objects of one value are distinguished by their place, among as many.
        """
        same: dict[bytes, list[Any]] = {}
        for value in self._constants.values():
            same.setdefault(_value_of(value), []).append(value)
        same.pop(b"", None)
        found: dict[bytes, Any] = {}
        for written, values in same.items():
            for place, value in enumerate(values):
                said = b"%d of %d " % (place, len(values)) + written
                found[hashlib.sha256(said).digest()[:_NAME_BYTES]] = value
        return found

    @cached_property
    def names(self) -> Mapping[int, bytes | None]:
        """The names of the constants by their ids; None for one without."""
        named = {id(value): name for name, value in self.objects.items()}
        return {number: named.get(number) for number in self._constants}

    @property
    def changed(self) -> bool:
        """Whether it is another than it was."""
        written = io.BytesIO()
        now = _look(self.make, cloudpickle.Pickler(written), written)  # type: ignore[no-untyped-call]
        return now is None or now != self._before


def _value_of(constant: Any) -> bytes:
    """Equal bytes for equal values; none for one that no state can have."""
    try:
        return _written(constant, {}, {})
    except PASSED_ON:
        raise
    except Exception:  # noqa: BLE001 - it has a value that is not plain, or is large
        return b""


class _Reach(cloudpickle.Pickler):
    """Writes a class with what its code reaches, and notes the objects that can change, and the constants.

    Constants of installed modules and classes are the values of their attributes, and not those within their
    functions.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self.mutable: dict[int, Any] = {}
        self.constants: dict[int, Any] = {}
        self._holders: set[int] = set()
        # A function may import these by itself. In an order that is the same in every process.
        for kind in sorted(KINDS, key=lambda kind: kind.__qualname__):
            self._note_class(kind)
        self._note_module(math)

    def persistent_id(self, value: Any) -> None:
        kind = type(value)
        if kind in MUTABLE:
            self.mutable[id(value)] = value
        elif kind in KINDS:
            self._note(value)
        elif issubclass(kind, type):
            self._note_class(value)
        elif issubclass(kind, ModuleType):
            self._note_module(value)

    def _note_module(self, module: ModuleType) -> None:
        if self._is_known(module):
            return
        for name, value in list(vars(module).items()):
            if issubclass(type(value), type):
                self._note_class(value)
            elif not name.startswith("__"):
                self._note(value)

    def _note_class(self, kind: type) -> None:
        for each in kind.__mro__:
            if self._is_known(each):
                continue
            for name, value in list(vars(each).items()):
                if not name.startswith("__"):
                    self._note(value)

    def _is_known(self, holder: object) -> bool:
        # They do not end before this does: the class, or Python, has them.
        known = id(holder) in self._holders
        self._holders.add(id(holder))
        return known

    def _note(self, value: Any) -> None:
        kind = type(value)
        if kind not in KINDS or kind in MUTABLE or id(value) in self.constants or _is_single(value):
            return
        self.constants[id(value)] = value
        if kind is tuple or kind is frozenset:
            for each in value:
                self._note(each)


def _is_single(value: Any) -> bool:
    """Whether Python has one object of this value."""
    kind = type(value)
    if kind is int:
        return bool(-5 <= value <= 256)
    if kind is str:
        return len(value) <= 1 and value < "\u0100"
    if kind is bytes:
        return len(value) <= 1
    return value is None or kind is bool or (kind is tuple and not value)


def _look(make: Callable[[], Any], pickler: cloudpickle.Pickler, written: io.BytesIO) -> bytes | None:
    """The bytes that a pickler writes of a class, with what its code reaches; None where it cannot."""
    try:
        pickler.dump(make)  # type: ignore[no-untyped-call]
    except PASSED_ON:
        raise
    except Exception:  # noqa: BLE001 - what cannot be written cannot be compared: no state is kept then
        return None
    return written.getvalue()


@dataclass(frozen=True)
class StoredState:
    """The state of a key after some rows: of the instance, and how far its replay had come.

    `key` and `last` are the values of its key and of its last row's order. `until` is the watermark of the replay.
    """

    key: tuple[Any, ...]
    last: tuple[Any, ...]
    until: datetime | None
    progress: Progress
    attributes: dict[str, Any] | None
    slots: list[tuple[int, str, Any]]


def keep(replay: Replay, key: tuple[Any, ...], last: tuple[Any, ...], shared: Shared) -> bytes | None:
    """The state of a key whose replay has ended, None where only a replay gives it again."""
    instance = replay.instance
    kind = type(instance)
    if kind is not shared.make or not _is_plain(kind):
        return None
    # The dictionary itself, and no copy: an attribute may refer to it.
    attributes = getattr(instance, "__dict__", None)
    slots = [
        (number, name, member.__get__(instance))
        for number, name, member in _members(kind)
        if _is_there(instance, member)
    ]
    progress = replay.progress
    state = (
        FORMAT, key, last, replay.until,
        (progress.timers, progress.number, progress.last, progress.ran), attributes, slots,
    )  # fmt: skip
    try:
        data = _written(state, shared.mutable, shared.names)
        same = _is_same(state, _read(data, shared.objects), {})
    except PASSED_ON:
        raise
    except Exception:  # noqa: BLE001 - a value that Python does not write is no state
        return None
    return data if same else None


def read(data: bytes, shared: Shared) -> StoredState | None:
    """The state in these bytes; None for bytes that are none, or have a constant that the class does not reach."""
    try:
        number, key, last, until, progress, attributes, slots = _read(data, shared.objects)
        if number != FORMAT:
            return None
        return StoredState(key, last, until, Progress(*progress), attributes, slots)
    except PASSED_ON:
        raise
    except Exception:  # noqa: BLE001 - damaged bytes raise whatever they raise
        return None


def instance_of(make: Callable[[], Any], kept: StoredState) -> Any:
    """The instance with this state."""
    assert isinstance(make, type)
    made: Any = object.__new__(make)
    if kept.attributes is not None:
        object.__setattr__(made, "__dict__", kept.attributes)
    members = {(number, name): member for number, name, member in _members(make)}
    for number, name, value in kept.slots:
        members[number, name].__set__(made, value)
    return made


def _is_plain(kind: type) -> bool:
    """Whether attributes are all that an instance has, and making one without a call leaves nothing out."""
    called: Any = type(kind)
    own = {name for each in kind.__mro__ if each is not object for name in vars(each)}
    dictionaries = [vars(each)["__dict__"] for each in kind.__mro__ if "__dict__" in vars(each)]
    return (
        getattr_static(kind, "__new__") is object.__dict__["__new__"]
        and called.__call__ is type.__call__
        and not own & {"__getattribute__", "__del__"}
        and all(isinstance(each, GetSetDescriptorType) for each in dictionaries)
    )


def _members(kind: type) -> list[tuple[int, str, MemberDescriptorType]]:
    """The slots of a class and of those it is derived from, with the place of the class in their order."""
    return [
        (number, name, member)
        for number, each in enumerate(kind.__mro__)
        for name, member in vars(each).items()
        if isinstance(member, MemberDescriptorType)
    ]


def _is_there(instance: Any, member: MemberDescriptorType) -> bool:
    try:
        member.__get__(instance)
    except AttributeError:
        return False
    return True


class _Pickler(pickle.Pickler):
    """Writes a state, or raises _UnfitError.

    Constants are written by their names. Pickle writes a number again wherever it is. So those in `twice`, by their
    ids, are written as tuples, of which it notes where they were before.
    """

    def __init__(
        self, file: io.BytesIO, shared: Mapping[int, Any], names: Mapping[int, bytes | None], twice: Iterable[int] = ()
    ) -> None:
        super().__init__(file, _PROTOCOL)
        self._shared = shared
        self._names = names
        self._boxes: dict[int, tuple[bytes | str] | None] = dict.fromkeys(twice)
        # With the numbers, so that no other gets the id of one.
        self._numbers: dict[int, Any] = {}
        self.twice: set[int] = set()

    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind is ZoneInfo and value.key is not None and ZoneInfo(value.key) is value:
            return value.key
        if kind is type and value in KINDS:
            return None
        if kind not in KINDS or (kind in MUTABLE and id(value) in self._shared) or _is_large(value, kind):
            raise _UnfitError
        if kind in (Counter, OrderedDict) and vars(value):
            raise _UnfitError  # attributes of its own, which are not written
        if id(value) in self._names:
            name = self._names[id(value)]
            if name is None:
                raise _UnfitError
            return name
        if (kind is float or kind is int) and not _is_single(value):
            return self._number(value)
        return None

    def _number(self, value: float) -> tuple[bytes | str] | None:
        number = id(value)
        if number in self._boxes:
            box = self._boxes[number]
            if box is None:
                box = self._boxes[number] = (struct.pack(">d", value) if isinstance(value, float) else f"{value:x}",)
            return box
        if number in self._numbers:
            self.twice.add(number)
        self._numbers[number] = value
        return None


def _is_large(value: Any, kind: type) -> bool:
    """Whether a value alone has more bytes than are kept; it is asked before a copy of it is made."""
    if kind is int:
        return bool(value.bit_length() > 8 * MOST_BYTES)
    if kind is Decimal:
        return sys.getsizeof(value) > MOST_BYTES
    return kind in _SIZED and len(value) > MOST_BYTES


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, objects: Mapping[bytes, Any]) -> None:
        super().__init__(file)
        self._objects = objects
        # By the ids of their tuples, with these.
        self._numbers: dict[int, tuple[Any, float]] = {}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMED[module, name]
        except KeyError:
            raise _UnfitError from None

    def persistent_load(self, key: Any) -> Any:
        match key:
            case str():
                return ZoneInfo(key)
            case bytes():
                return self._objects[key]
            case (bytes() | str() as text,):
                if id(key) not in self._numbers:
                    number = int(text, 16) if isinstance(text, str) else struct.unpack(">d", text)[0]
                    self._numbers[id(key)] = key, number
                return self._numbers[id(key)][1]
            case _:
                raise _UnfitError


class _Limited(io.BytesIO):
    """Takes as many bytes as are kept."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MOST_BYTES:
            raise _UnfitError
        return super().write(data)


def _written(state: Any, shared: Mapping[int, Any], names: Mapping[int, bytes | None]) -> bytes:
    written = _Limited()
    pickler = _Pickler(written, shared, names)
    pickler.dump(state)
    if pickler.twice:
        written = _Limited()
        _Pickler(written, shared, names, pickler.twice).dump(state)
    return written.getvalue()


def _read(data: bytes, objects: Mapping[bytes, Any]) -> Any:
    return _Unpickler(io.BytesIO(data), objects).load()


def _is_same(one: Any, other: Any, known: dict[int, int]) -> bool:
    """Whether two values are the same: in types, order, and where one object is meant twice.

    `known` are the ids of earlier objects, with those of the objects that stand in their place.

    >>> twice = [1]
    >>> _is_same([twice, twice], [[1], [1]], {}), _is_same([twice, twice, -0.0], [twice, twice, 0.0], {})
    (False, False)
    """
    kind = type(one)
    if kind is not type(other):
        return False
    if not _is_single(one):
        if id(one) in known:
            return known[id(one)] == id(other)
        known[id(one)] = id(other)
    if kind is Row:
        # The dictionary too: one that is stored beside its row is another object when both are read.
        return _is_same(vars(one), vars(other), known)
    if isinstance(one, dict):
        # Keys and values without pairs of them: those are objects that end, and others get their ids.
        factories = [getattr(each, "default_factory", None) for each in (one, other)]
        one, other = [factories[0], *one, *one.values()], [factories[1], *other, *other.values()]
    if isinstance(one, (tuple, list, set, frozenset, deque)):
        ends = [getattr(each, "maxlen", None) for each in (one, other)]
        return (
            len(one) == len(other)
            and ends[0] == ends[1]
            and all(_is_same(*pair, known) for pair in zip(one, other, strict=True))
        )
    # As text zeros differ by their sign, and times by their zone and whether it is summer time.
    return bool(one == other or one != one) and repr(one) == repr(other)
