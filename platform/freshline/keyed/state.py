"""The state of a key as JSON, from which rows behind its last one go on.

State is the values of the attributes that a class declares (`freshline.keyed.state_types`). It is kept where going on
from it is the same as a replay: values come back equal, and nothing that instances share has changed or, where it can
change, is in the state. Everything else has no state, and is replayed.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from inspect import getattr_static
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from pyspark import cloudpickle

from freshline.keyed.replay import PASSED_ON, ProcessError, Replay, ReplayProgress, Timer, shortened
from freshline.keyed.state_types import Room, StateType, UnkeptError, WrongTypeError, read_values, write_values

# States with another number are not read.
FORMAT = 3
# A key with more is replayed: it is written again with each of its rows.
MOST_BYTES = 2**16
_MUTABLE = frozenset({bytearray, list, dict, set, deque, OrderedDict, defaultdict, Counter})


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

    @property
    def changed(self) -> bool:
        """Whether it is another than it was."""
        written = io.BytesIO()
        now = _look(self.make, cloudpickle.Pickler(written), written)  # type: ignore[no-untyped-call]
        return now is None or now != self._before


class _Reach(cloudpickle.Pickler):
    """Writes a class with what its code reaches, and notes the objects that can change."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self.mutable: dict[int, Any] = {}

    def persistent_id(self, value: Any) -> None:
        if type(value) in _MUTABLE:
            self.mutable[id(value)] = value


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
    progress: ReplayProgress
    attributes: dict[str, Any]


def keep(
    replay: Replay, key: tuple[Any, ...], last: tuple[Any, ...], shared: Shared, declared: Mapping[str, StateType]
) -> str | None:
    """The state of a key whose replay has ended, None where only a replay gives it again.

    `declared` are the types of attributes. Raises ProcessError for an attribute without one, or of another type.
    """
    instance = replay.instance
    kind = type(instance)
    if kind is not shared.make or not _is_plain(kind):
        return None
    room = Room(MOST_BYTES, {*shared.mutable, id(getattr(instance, "__dict__", None))})
    progress = replay.progress
    try:
        attributes = _written(replay, declared, room)
        waiting = progress.timers
        timers = None if waiting is None else [[of.number, *write_values((of.due, of.at), room)] for of in waiting]
        times = write_values((replay.until, progress.last, progress.ran), room)
        own = [write_values(key, room), write_values(last, room)]
    except UnkeptError:
        return None
    written = json.dumps([FORMAT, *own, times, timers, progress.number, attributes])
    return written if len(written) <= MOST_BYTES else None


def _written(replay: Replay, declared: Mapping[str, StateType], room: Room) -> dict[str, Any]:
    """The attributes that the instance of a replay has, as JSON has them."""
    instance = replay.instance
    values = dict(getattr(instance, "__dict__", {}))
    for name, member in _slots(type(instance)):
        with contextlib.suppress(AttributeError):
            values[name] = member.__get__(instance)
    found = {}
    for name, value in values.items():
        kind = declared.get(name)
        if kind is None:
            raise _wrong(replay, name, value, f"the class does not declare it. Write `{name}: ..` with its type there")
        try:
            found[name] = kind.write(value, room)
        except WrongTypeError as error:
            raise _wrong(replay, name, value, str(error)) from None
    return found


def _wrong(replay: Replay, name: str, value: Any, said: str) -> ProcessError:
    return ProcessError(f"keeps self.{name} = {shortened(value)} for the key {shortened(replay.key)}: {said}")


def read(data: str, declared: Mapping[str, StateType]) -> StoredState | None:
    """The state in this text; None for a text that is none."""
    try:
        number, key, last, times, timers, next_number, attributes = json.loads(data)
        if number != FORMAT:
            return None
        until, last_time, ran = read_values(times)
        waiting = None if timers is None else [_timer(*each) for each in timers]
        return StoredState(
            read_values(key),
            read_values(last),
            until,
            ReplayProgress(waiting, next_number, last_time, ran),
            {name: declared[name].read(value) for name, value in attributes.items()},
        )
    except PASSED_ON:
        raise
    except Exception:  # noqa: BLE001 - a damaged text raises whatever it raises
        return None


def _timer(number: int, *times: Any) -> Timer:
    due, at = read_values(times)
    return Timer(due, number, at)


def instance_of(make: Callable[[], Any], kept: StoredState) -> Any:
    """The instance with this state."""
    assert isinstance(make, type)
    made: Any = object.__new__(make)
    for name, value in kept.attributes.items():
        object.__setattr__(made, name, value)
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


def _slots(kind: type) -> list[tuple[str, MemberDescriptorType]]:
    """The attributes of an instance that are not in its dictionary."""
    every = [item for each in kind.__mro__ for item in vars(each).items()]
    return [(name, member) for name, member in every if isinstance(member, MemberDescriptorType)]
