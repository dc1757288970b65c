"""Sorted rows in Arrow batches, replayed key by key; Spark calls this once a partition.

Each result row has the values of its key, the time of the first waiting timer (of the one row of a key that tells it)
and the columns of the table (of all other rows).
"""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

from freshline.keyed.replay import OutOfTimeError, ProcessError, Replay, Row, Target, shortened
from freshline.keyed.values import checker, comparable

# Before what is wrong, as JSON, in what Spark raises: see `freshline.attempt.failure`.
PROCESS_ERROR = "freshline:process "
KEY, TIMER = "_freshline_key_", "_freshline_timer"
_BATCH = 10_000
# So often code may catch that its time is over.
_MOST_CAUGHT = 5


class ProcessFailed(Exception):
    """A replay that ended; the text tells freshline why."""

    def __init__(self, code: str, sentence: str, line: int | None = None) -> None:
        super().__init__(PROCESS_ERROR + json.dumps({"code": code, "sentence": sentence, "line": line}))


@dataclass(frozen=True)
class Process:
    """How the rows of a table are made, as Spark's processes are handed it.

    `make` makes an instance of the class. `keys` and `time` are names of columns of the input. `columns` is the schema
    of the table. `until` is the watermark in microseconds since 1970. `seconds` is what one key may take, `memory` what
    the process may take beside what it has, in bytes. `file` is that of the class.
    """

    make: Callable[[], Any]
    keys: tuple[str, ...]
    time: str
    columns: pa.Schema
    output: str
    outputs: tuple[str, ...]
    has_timer: bool
    until: int | None
    seconds: float
    memory: int
    file: str

    @property
    def target(self) -> Target:
        """What the replay checks rows against."""
        names = [name.lower() for name in self.columns.names]
        keys = [name.lower() for name in self.keys]
        own = tuple(names.index(key) for key in keys) if set(keys) <= set(names) else ()
        columns = tuple((field.name, checker(field.type)) for field in self.columns)
        return Target(self.output.lower(), columns, frozenset(name.lower() for name in self.outputs), own)

    @property
    def watermark(self) -> datetime | None:
        if self.until is None:
            return None
        seconds, microseconds = divmod(self.until, 1_000_000)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)


def replay_batches(process: Process) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
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

    def __init__(self, process: Process) -> None:
        self.process = process
        self.key: dict[str, Any] = {}
        self.rows: list[tuple[Any, ...]] = []
        self._target, self._until = process.target, process.watermark
        self._replay: Replay | None = None
        self._known: tuple[Any, ...] = ()
        self._left = 0.0
        self._types: list[pa.DataType] = []

    @property
    def full(self) -> bool:
        return len(self.rows) >= _BATCH

    def take(self, batch: pa.RecordBatch) -> None:
        """Replay more rows. The time of a key does not run while Spark is waited for."""
        if self._replay is not None:
            _set_time(self._left)
        self._take(batch)
        self._left = _set_time(0)

    def _take(self, batch: pa.RecordBatch) -> None:
        process = self.process
        names, columns = batch.schema.names, [_values(batch, name) for name in batch.schema.names]
        places = [names.index(name) for name in process.keys]
        time = names.index(process.time)
        self._types = [batch.schema.field(place).type for place in places]
        for values in zip(*columns, strict=True):
            known = tuple(comparable(values[place]) for place in places)
            if self._replay is None or known != self._known:
                self._end()
                self._known = known
                self.key = {name: values[place] for name, place in zip(process.keys, places, strict=True)}
                self._begin()
            assert self._replay is not None
            at = values[time]
            self._replay.row(Row(dict(zip(names, values, strict=True))), at if isinstance(at, datetime) else None)

    def _begin(self) -> None:
        process = self.process
        _set_time(process.seconds)
        self._replay = Replay(
            process.make, self._target, self.key, self._until, has_timer=process.has_timer, file=process.file
        )

    def finish(self) -> None:
        """There are no more rows."""
        if self._replay is not None:
            _set_time(self._left)
        self._end()
        _set_time(0)

    def _end(self) -> None:
        if self._replay is None:
            return
        waiting = self._replay.end()
        own = tuple(self.key.values())
        self.rows += [(*own, None, *row) for row in self._replay.out.rows]
        if waiting is not None:
            self.rows.append((*own, waiting, *[None] * len(self.process.columns)))
        self._replay = None

    def made(self) -> pa.RecordBatch:
        """Some of the result rows, which are not held any longer."""
        some, self.rows = self.rows[:_BATCH], self.rows[_BATCH:]
        fields = [
            *(pa.field(f"{KEY}{number}", kind) for number, kind in enumerate(self._types)),
            pa.field(TIMER, pa.timestamp("us", "UTC")),
            *self.process.columns,
        ]
        columns = zip(*some, strict=True)
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)],
            schema=pa.schema(fields),
        )


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
def _limited(process: Process) -> Iterator[None]:
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
    """What raises OutOfTimeError, and ends the process where code goes on catching it."""
    raised = count(1)

    def handle(*_: object) -> None:
        if next(raised) > _MOST_CAUGHT:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OutOfTimeError

    return handle


def _address_space() -> int:
    """How many bytes of addresses the process has now."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 4 * 2**30  # no Linux: a generous guess of what libraries have mapped
