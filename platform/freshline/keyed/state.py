"""The state of a key as bytes, from which rows behind its last one go on.

State is what the attributes of an instance hold. It is kept where going on from it is the same as a replay: all values
are of KINDS, what is read back is the same, and nothing that instances share has changed or is
held by the instance. Everything else has no bytes, and is replayed.

The bytes are a pickle that is read without running anything: of classes it may name those of KINDS.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from inspect import getattr_static
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from pyspark import cloudpickle

from freshline.keyed.replay import PASSED_ON, Progress, Replay, Row

# Of another number, bytes are not read.
FORMAT = 1
# A key with more is replayed: it is written again with each of its rows.
MOST_BYTES = 2**16
MUTABLE = frozenset({bytearray, list, dict, set, deque, OrderedDict, defaultdict, Counter, Row})
KINDS = MUTABLE | {
    *(type(None), bool, int, float, complex, str, bytes, tuple, frozenset),
    *(date, datetime, time, timedelta, timezone, Decimal, UUID),
}
_NAMED = {(kind.__module__, kind.__qualname__): kind for kind in KINDS}
_PROTOCOL = 5


class _UnfitError(Exception):
    """A value that is no plain state."""


class Shared:
    """What all instances of a class share: its attributes, and what its code reaches in modules of the project.

    A replay would share it among the rows of all keys in its process. So it may not change.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._before, self.mutable = _look(make)

    @property
    def changed(self) -> bool:
        """Whether it is another than it was."""
        return self._before is None or _look(self._make)[0] != self._before


class _Look(cloudpickle.Pickler):
    """Writes a class with what its code reaches, and notes the objects that can change."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self.mutable: dict[int, Any] = {}

    def persistent_id(self, value: Any) -> None:
        if type(value) in MUTABLE:
            self.mutable[id(value)] = value


def _look(make: Callable[[], Any]) -> tuple[bytes | None, Mapping[int, Any]]:
    written = io.BytesIO()
    look = _Look(written)
    try:
        look.dump(make)  # type: ignore[no-untyped-call]
    except PASSED_ON:
        raise
    except Exception:  # noqa: BLE001 - what cannot be written cannot be compared: no state is kept then
        return None, {}
    return written.getvalue(), look.mutable


@dataclass(frozen=True)
class Kept:
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
    if kind is not shared._make or not _is_plain(kind):
        return None
    # The dictionary itself, and no copy: an attribute may hold it.
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
        data = _written(state, shared.mutable)
        same = len(data) <= MOST_BYTES and _is_same(state, _read(data), {})
    except PASSED_ON:
        raise
    except Exception:  # noqa: BLE001 - a value that Python does not write is no state
        return None
    return data if same else None


def read(data: bytes) -> Kept | None:
    """The state in these bytes; None for bytes that are none."""
    try:
        number, key, last, until, progress, attributes, slots = _read(data)
        if number != FORMAT:
            return None
        return Kept(key, last, until, Progress(*progress), attributes, slots)
    except PASSED_ON:
        raise
    except Exception:  # noqa: BLE001 - damaged bytes raise whatever they raise
        return None


def instance_of(make: Callable[[], Any], kept: Kept) -> Any:
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
    def __init__(self, file: io.BytesIO, shared: Mapping[int, Any]) -> None:
        super().__init__(file, _PROTOCOL)
        self._shared = shared

    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind is ZoneInfo and value.key is not None and ZoneInfo(value.key) is value:
            return value.key
        if kind is type and value in KINDS:
            return None
        if kind not in KINDS or (kind in MUTABLE and id(value) in self._shared):
            raise _UnfitError
        if kind in (Counter, OrderedDict) and vars(value):
            raise _UnfitError  # attributes of its own, which are not written
        return None


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMED[module, name]
        except KeyError:
            raise _UnfitError from None

    def persistent_load(self, key: Any) -> Any:
        return ZoneInfo(key)


def _written(state: Any, shared: Mapping[int, Any]) -> bytes:
    written = io.BytesIO()
    _Pickler(written, shared).dump(state)
    return written.getvalue()


def _read(data: bytes) -> Any:
    return _Unpickler(io.BytesIO(data)).load()


def _is_same(one: Any, other: Any, known: dict[int, int]) -> bool:
    """Whether two values are the same: in types, order, and where one object is meant twice.

    `known` are the objects that were met, and those in the place of which they stand.

    >>> twice = [1]
    >>> _is_same([twice, twice], [[1], [1]], {}), _is_same([twice, twice, -0.0], [twice, twice, 0.0], {})
    (False, False)
    """
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in MUTABLE:
        if id(one) in known:
            return known[id(one)] == id(other)
        known[id(one)] = id(other)
    if kind is Row:
        one, other = vars(one), vars(other)
    if isinstance(one, dict):
        factories = [getattr(each, "default_factory", None) for each in (one, other)]
        one, other = [factories[0], *one.items()], [factories[1], *other.items()]
    if isinstance(one, (tuple, list, set, frozenset, deque)):
        ends = [getattr(each, "maxlen", None) for each in (one, other)]
        return (
            len(one) == len(other)
            and ends[0] == ends[1]
            and all(_is_same(*pair, known) for pair in zip(one, other, strict=True))
        )
    # As text zeros differ by their sign, and times by their zone and whether it is summer time.
    return bool(one == other or one != one) and repr(one) == repr(other)
