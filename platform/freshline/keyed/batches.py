"""Sorted rows in Arrow batches, replayed key by key; Spark calls this once a partition.

Each result row has the values of its key. Rows without KIND have the columns of the table. One row of a key is its
entry: the time of its first waiting timer, and its state (`freshline.keyed.state`) where that is asked for.

Rows may come with FROM, sorted by it within their key: first an ENTRY with the timer and the state of an earlier time,
the newest LAYER first, then rows that are GONE from the input, and those that CAME. The class then goes on from the
state with the rows that came. Where a replay of all rows would give another result, the key has one row of the kind
AGAIN.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

from freshline.keyed.replay import OutOfTimeError, OutputTarget, ProcessError, Replay, Row, shortened
from freshline.keyed.state import Shared, instance_of, keep, read
from freshline.keyed.state_types import state_type
from freshline.keyed.values import checker, comparable

# Before what is wrong, as JSON, in what Spark raises: see `freshline.refresh.failure`.
PROCESS_ERROR = "freshline:process "
KEY, KIND, TIMER, STATE = "_freshline_key_", "_freshline_kind", "_freshline_timer", "_freshline_state"
FROM, LAYER = "_freshline_from", "_freshline_layer"
# Kinds of result rows, and of rows that come with FROM.
ENTRY, AGAIN = 1, 2
GONE, CAME = 2, 3
_BATCH = 10_000
# Seconds by which the end of the process follows the time at which code should have ended by itself.
_MOST_LATE = 10
# So often code may catch that its time is over.
_MOST_CAUGHT = 5


class ProcessFailed(Exception):
    """A replay that ended; its text gives freshline the reason."""

    def __init__(self, code: str, sentence: str, line: int | None = None) -> None:
        super().__init__(PROCESS_ERROR + json.dumps({"code": code, "sentence": sentence, "line": line}))


@dataclass(frozen=True)
class KeyedProcess:
    """The class that makes the rows of a table and its limits, as Spark's processes get them.

    `make` makes an instance of the class. `keys` and `order` are names of columns of the input. `columns` is the schema
    of the table. `until` is the watermark in microseconds since 1970. `seconds` is the time that one key may take,
    `memory` the bytes that the process may take beside those that it has. `file` is that of the class. With
    `keeps_state` every key has an entry with its state, of which `state` has the declared types of attributes by name.
    With `knows_all` a key without an entry had no rows before.
    `is_sorted` says that Python sorts the values of `order` as Spark does; without, no state is kept.
    """

    make: Callable[[], Any]
    keys: tuple[str, ...]
    order: tuple[str, ...]
    columns: pa.Schema
    output: str
    outputs: tuple[str, ...]
    has_timer: bool
    until: int | None
    seconds: float
    memory: int
    file: str
    keeps_state: bool = False
    knows_all: bool = False
    is_sorted: bool = True
    state: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> OutputTarget:
        """The output, columns and key by which the replay checks rows."""
        names = [name.lower() for name in self.columns.names]
        keys = [name.lower() for name in self.keys]
        own = tuple(names.index(key) for key in keys) if set(keys) <= set(names) else ()
        columns = tuple((field.name, checker(field.type)) for field in self.columns)
        return OutputTarget(self.output.lower(), columns, frozenset(name.lower() for name in self.outputs), own)

    @property
    def watermark(self) -> datetime | None:
        if self.until is None:
            return None
        seconds, microseconds = divmod(self.until, 1_000_000)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)


def replay_batches(process: KeyedProcess) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for Spark's mapInArrow, over rows that are sorted by the key and within it.

    Raises ProcessFailed.
    """

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition = _Partition(process)
        with _limited(process):
            try:
                for batch in batches:
                    partition.take(batch)
                    while partition.full:
                        yield partition.made()
                partition.finish()
            except ProcessError as error:
                raise ProcessFailed("PROCESS_FAILED", error.sentence, error.line) from None
            except OutOfTimeError:
                said = f"takes longer than {process.seconds:g} seconds for the key {shortened(partition.key)}"
                raise ProcessFailed("PYTHON_LIMIT", said) from None
            except MemoryError:
                said = f"takes more than {process.memory // 2**20} MB of memory, at the key {shortened(partition.key)}"
                raise ProcessFailed("PYTHON_LIMIT", said) from None
        while partition.rows:
            yield partition.made()

    return replay


class _Partition:
    """The rows of one partition, and what has been made of them."""

    def __init__(self, process: KeyedProcess) -> None:
        self.process = process
        self.key: dict[str, Any] = {}
        self.rows: list[tuple[Any, ...]] = []
        self._target, self._until = process.target, process.watermark
        self._shared = Shared(process.make) if process.keeps_state else None
        self._declared = {name: state_type(text) for name, text in process.state.items()}
        self._replay: Replay | None = None
        self._earlier: _Earlier | None = None
        self._begun = self._again = False
        self._known: tuple[Any, ...] = ()
        self._last: tuple[Any, ...] = ()
        self._left = self._watched = 0.0
        self._types: list[pa.DataType] = []

    @property
    def full(self) -> bool:
        return len(self.rows) >= _BATCH

    def take(self, batch: pa.RecordBatch) -> None:
        """Replay more rows. The time of a key does not run while Spark is waited for."""
        with self._user_code():
            self._take(batch)
            self._left = _set_time(0)

    @contextmanager
    def _user_code(self) -> Iterator[None]:
        """The time of the key that is under way runs, and the process ends where it runs on for far too long."""
        self._watched = 0.0
        self._watch()
        try:
            if self._begun:
                _set_time(self._left)
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        """Have the process end where a key takes far longer than it may: Python raises nothing inside of a call in C.

        Set for each key it would cost more than the rows, so it is set again when a part of it is over.
        """
        limit, now = self.process.seconds, time.monotonic()
        if not self._watched or now - self._watched > limit:
            self._watched = now
            faulthandler.dump_traceback_later(2 * limit + _MOST_LATE, exit=True)

    def _take(self, batch: pa.RecordBatch) -> None:
        process = self.process
        names = batch.schema.names
        goes_on = FROM in names
        shown = [name for name in names if name not in (FROM, LAYER, TIMER, STATE)]
        columns = [_values(batch, name) for name in shown]
        places, order = ([shown.index(name) for name in some] for some in (process.keys, process.order))
        kinds, timers, states = [_values(batch, name) for name in (FROM, TIMER, STATE)] if goes_on else [()] * 3
        self._types = [batch.schema.field(shown[place]).type for place in places]
        for number, values in enumerate(zip(*columns, strict=True)):
            known = tuple(comparable(values[place]) for place in places)
            if not self._begun or known != self._known:
                self._end()
                self._begin(known, {name: values[place] for name, place in zip(process.keys, places, strict=True)})
            if goes_on and kinds[number] == ENTRY:
                # The first one is the newest.
                self._earlier = self._earlier or _Earlier(timers[number], states[number])
            elif goes_on and kinds[number] == GONE:
                self._again = True
            elif not self._again:
                self._row(Row(dict(zip(shown, values, strict=True))), tuple(values[place] for place in order), goes_on)

    def _begin(self, known: tuple[Any, ...], key: dict[str, Any]) -> None:
        self._known, self.key = known, key
        self._begun, self._again, self._earlier = True, False, None
        self._watch()
        _set_time(self.process.seconds)

    def _row(self, row: Row, order: tuple[Any, ...], goes_on: bool) -> None:
        at = order[0] if isinstance(order[0], datetime) else None
        if self._replay is None:
            self._replay = self._going_on(order, at) if goes_on else self._beginning()
        if self._replay is None:
            self._again = True
            return
        self._last = order
        self._replay.row(row, at)

    def _beginning(self) -> Replay:
        process = self.process
        return Replay(process.make, self._target, self.key, self._until, has_timer=process.has_timer, file=process.file)

    def _going_on(self, order: tuple[Any, ...] | None, at: datetime | None) -> Replay | None:
        """The replay of before, for a first row with this order, or for none; None where all rows are needed."""
        process, earlier = self.process, self._earlier
        if earlier is None:
            return self._beginning() if process.knows_all else None
        kept = None if earlier.state is None else read(earlier.state, self._declared)
        if kept is None or tuple(map(comparable, kept.key)) != self._known:
            return None
        if kept.until is not None and (self._until is None or self._until < kept.until):
            return None
        if not kept.progress.goes_on(self._until):
            return None
        if order is not None and not (_place(order) > _place(kept.last) and kept.progress.goes_on_with(at)):
            return None
        self._last = kept.last
        return Replay(
            lambda: instance_of(process.make, kept),
            self._target,
            self.key,
            self._until,
            has_timer=process.has_timer,
            file=process.file,
            progress=kept.progress,
        )

    def finish(self) -> None:
        """There are no more rows."""
        with self._user_code():
            self._end()
            _set_time(0)

    def _end(self) -> None:
        if not self._begun:
            return
        self._begun = False
        own = tuple(self.key.values())
        nothing = [None] * len(self.process.columns)
        if self._replay is None and not self._again:
            if self._earlier is None or not self._earlier.is_due(self._until):
                return  # an entry whose rows did not change
            self._replay = self._going_on(None, None)
            self._again = self._replay is None
        if self._again:
            self._replay = None
            self.rows.append((*own, AGAIN, None, None, *nothing))
            return
        replay, self._replay = self._replay, None
        assert replay is not None
        waiting = replay.end()
        self.rows += [(*own, None, None, None, *row) for row in replay.out.rows]
        if self._shared is not None:
            is_sorted = self.process.is_sorted
            state = keep(replay, own, self._last, self._shared, self._declared) if is_sorted else None
            self.rows.append((*own, ENTRY, waiting, state, *nothing))
        elif waiting is not None:
            self.rows.append((*own, ENTRY, waiting, None, *nothing))

    def made(self) -> pa.RecordBatch:
        """Some of the result rows, which are not kept any longer."""
        some, self.rows = self.rows[:_BATCH], self.rows[_BATCH:]
        fields = [
            *(pa.field(f"{KEY}{number}", kind) for number, kind in enumerate(self._types)),
            pa.field(KIND, pa.int8()),
            pa.field(TIMER, pa.timestamp("us", "UTC")),
            pa.field(STATE, pa.string()),
            *self.process.columns,
        ]
        columns = list(zip(*some, strict=True))
        if self._shared is not None and self._shared.changed:
            # Nobody knows which key changed it, and before which others.
            columns[len(self._types) + 2] = (None,) * len(some)
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)],
            schema=pa.schema(fields),
        )


@dataclass(frozen=True)
class _Earlier:
    """The entry of a key from an earlier time."""

    timer: datetime | None
    state: str | None

    def is_due(self, until: datetime | None) -> bool:
        return self.timer is not None and until is not None and self.timer <= until


def _place(order: tuple[Any, ...]) -> tuple[Any, ...]:
    """A value that compares as Spark sorts the values of a row's order: None first, NaN last.

    >>> _place((float("nan"), 1)) > _place((float("inf"), 2)) > _place((None, 3))
    True
    """
    return tuple((0, 0) if value is None else (2, 0) if value != value else (1, value) for value in order)


def _values(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    """The values of a column; times are in UTC."""
    column = batch.column(name)
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp("us", "UTC"))
    try:
        values: Sequence[Any] = column.to_pylist()
        return values
    except (ValueError, OverflowError) as error:
        raise ProcessError(f"is not called: the column {name} has a value that Python has not ({error})") from None


# -- limits


def _set_time(seconds: float) -> float:
    """Have OutOfTimeError raised after so many seconds, 0 for never; how many were left until then."""
    if threading.current_thread() is not threading.main_thread():
        return 0.0
    # Again after the first time: a handler of the user may have caught it.
    return signal.setitimer(signal.ITIMER_REAL, seconds, min(1.0, seconds))[0]


@contextmanager
def _limited(process: KeyedProcess) -> Iterator[None]:
    """The limits of time and memory of a table, for as long as its rows are made in this process."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = _address_space() + process.memory
    resource.setrlimit(
        resource.RLIMIT_AS, (most if before[1] == resource.RLIM_INFINITY else min(most, before[1]), before[1])
    )
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGALRM, _out_of_time()) if in_main else None
    try:
        yield
    finally:
        if in_main:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _out_of_time() -> Callable[[int, FrameType | None], None]:
    """The handler that raises OutOfTimeError, and ends the process where code goes on catching it."""
    raised = count(1)

    def handle(*_: object) -> None:
        if next(raised) > _MOST_CAUGHT:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OutOfTimeError

    return handle


def _address_space() -> int:
    """The bytes of addresses that the process has now."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 4 * 2**30  # no Linux: a generous guess of what libraries have mapped
