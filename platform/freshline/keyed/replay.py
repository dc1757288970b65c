"""One key's rows in order, and its timers between them.

A replay is a function of the rows and of the watermark. A timer runs behind the rows of its time and before those of
later times, once the watermark has come to it. Timers of one time run in the order in which they were set, each as
often as it was set. A timer in the past is the next thing that runs. Timers that the watermark has not come to wait,
and the least of them says when the key has to be replayed although none of its rows changed.

The time of a timer is its instant: Python compares two times of one time zone by what the clock shows, which shows an
hour twice in autumn. The class is given the time as it set it.
"""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, NamedTuple, NoReturn

from freshline.keyed.values import Checker, UnfitValueError, comparable, instant

MOST_SHOWN = 300


class Timer(NamedTuple):
    """A timer that waits: the time in UTC by which it is ordered, its number, and the time as it was set."""

    due: datetime
    number: int
    at: datetime


class ProcessError(Exception):
    """A mistake of a class for a key: the sentence, and the line of its code where one is known."""

    def __init__(self, sentence: str, line: int | None = None) -> None:
        self.sentence = sentence
        self.line = line
        super().__init__(sentence)


class OutOfTimeError(BaseException):
    """Raised into code of the user that takes too long; it is no Exception, so that no usual handler there keeps it."""


# Errors that are no mistake of a class: the limits of its process.
PASSED_ON = (OutOfTimeError, MemoryError)


class Row:
    """One row of the input: `row.name`, or `row["any name"]`."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__ = values

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"the rows have no column {name}; they have {', '.join(self.__dict__)}")

    def __repr__(self) -> str:
        return shortened(self.__dict__)


@dataclass(frozen=True)
class OutputTarget:
    """The rows that a table takes of those that a class puts out.

    `output` is its name, empty for the main table. `columns` are names with checks of their values. `outputs` are
    all names that rows may be put out to. `own_key` are the places of columns that have the values of the key, in the
    order of the key.
    """

    output: str
    columns: tuple[tuple[str, Checker], ...]
    outputs: frozenset[str]
    own_key: tuple[int, ...] = ()


class Out:
    """The second argument of `row` and `timer`, by which they put out rows and set timers."""

    def __init__(self, target: OutputTarget, key: tuple[Any, ...], timers: list[Timer] | None, number: int = 0) -> None:
        """`number` is that of the next timer."""
        self._target = target
        self._key = key
        self._timers = timers
        self.number = number
        self.rows: list[tuple[Any, ...]] = []
        # The first mistake: it counts although the class may catch what it raises.
        self.unfit: UnfitValueError | None = None

    def emit(self, /, *values: Any, to: str | None = None, **named: Any) -> None:
        """Put a row out: values in the order of the columns, or by their names; with `to`, to that output."""
        target = self._target
        if to is not None and str(to).lower() not in target.outputs:
            known = ", ".join(sorted(target.outputs)) or "none"
            raise self._unfit(f"puts a row out to {to!r}. Outputs are: {known}")
        if ("" if to is None else str(to).lower()) == target.output:
            try:
                self.rows.append(self._checked(values, named))
            except UnfitValueError as error:
                raise self._unfit(str(error)) from None

    def timer(self, at: datetime) -> None:
        """Have `timer` called for this time, once the watermark has come to it."""
        if self._timers is None:
            raise self._unfit("sets a timer, and the class has no method `timer(self, at, out)`")
        if not isinstance(at, datetime) or at.tzinfo is None or at.utcoffset() is None:
            raise self._unfit(
                f"sets a timer at {shortened(at)}, which is no time with a time zone. A timer is a time of events, "
                "such as `row.at + timedelta(minutes=10)`"
            )
        heappush(self._timers, Timer(instant(at), self.number, at))
        self.number += 1

    def _unfit(self, said: str) -> UnfitValueError:
        self.unfit = self.unfit or UnfitValueError(said)
        return self.unfit

    def _checked(self, values: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        columns = self._target.columns
        if named:
            values = self._in_order(values, named)
        elif len(values) != len(columns):
            raise UnfitValueError(
                f"puts out {len(values)} values {shortened(values)}, and the columns are {_names(columns)}"
            )
        found = []
        for (name, check), value in zip(columns, values, strict=True):
            try:
                found.append(None if value is None else check(value))
            except UnfitValueError as error:
                raise UnfitValueError(f"puts out {name} = {shortened(value)}: {error}") from None
        for place, own in zip(self._target.own_key, self._key, strict=False):
            if comparable(found[place]) != comparable(own):
                name = columns[place][0]
                raise UnfitValueError(
                    f"puts out {name} = {shortened(found[place])}, which is not that of the key. A column with the "
                    "name of a key has its value: give the column another name"
                )
        return tuple(found)

    def _in_order(self, values: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        columns = self._target.columns
        rest = [name for name, _ in columns[len(values) :]]
        if len(values) > len(columns) or set(rest) != set(named):
            given = [*map(shortened, values), *(f"{name}=" for name in named)]
            raise UnfitValueError(f"puts out ({', '.join(given)}), and the columns are {_names(columns)}")
        return (*values, *(named[name] for name in rest))


def _names(columns: Iterable[tuple[str, Checker]]) -> str:
    return ", ".join(name for name, _ in columns)


@dataclass(frozen=True)
class ReplayProgress:
    """The progress of a replay: the timers that wait, and the number of the next one.

    `last` is the time of the last row. `ran` is the latest time of those timers that ran behind the last row, in UTC.
    """

    timers: list[Timer] | None
    number: int
    last: datetime | None
    ran: datetime | None

    def is_due(self, until: datetime | None) -> bool:
        """Whether the watermark has come to a timer that waits."""
        return bool(self.timers) and until is not None and self.timers[0].due <= until  # type: ignore[index]

    def goes_on(self, until: datetime | None) -> bool:
        """Whether a replay up to this watermark comes to the same: no timer would have run before the last row."""
        return not self.is_due(until) or self.last is None or self.timers[0].due >= self.last  # type: ignore[index]

    def goes_on_with(self, at: datetime | None) -> bool:
        """Whether a row of this time, behind the last one, is behind the timers that ran there too."""
        return self.ran is None or (at is not None and self.ran < at)


class Replay:
    """The replay of one key. `make` makes an instance of the class; `until` is the watermark, None for none.

    With `progress` it goes on from there. `make` gives the instance as it was then.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        target: OutputTarget,
        key: Mapping[str, Any],
        until: datetime | None,
        *,
        has_timer: bool,
        file: str,
        progress: ReplayProgress | None = None,
    ) -> None:
        self.key = key
        self.until = until
        self._file = file
        before = ReplayProgress([] if has_timer else None, 0, None, None) if progress is None else progress
        self._timers = before.timers
        self._last, self._ran = before.last, before.ran
        self.out = Out(target, tuple(key.values()), self._timers, before.number)
        try:
            self.instance = make()
        except PASSED_ON:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the code of the user raises is reported with its key
            raise self._failed("__init__", None, error) from None

    def row(self, row: Row, at: datetime | None) -> None:
        """The next row, with its time; rows without a time come before all others."""
        if at is not None and self._timers:
            self._run_timers(at)
        self._last, self._ran = at, None
        try:
            _require_done(self.instance.row(row, self.out))
        except PASSED_ON:
            raise
        except BaseException as error:  # noqa: BLE001
            raise self._failed("row", row, error) from None
        if self.out.unfit is not None:
            raise self._failed("row", row, self.out.unfit)

    def end(self) -> datetime | None:
        """The timers behind the last row; the time in UTC of the first one that waits, None for none."""
        if self._timers:
            self._run_timers(None)
        return self._timers[0].due if self._timers else None

    @property
    def progress(self) -> ReplayProgress:
        """The progress of this replay, after its end."""
        return ReplayProgress(self._timers, self.out.number, self._last, self._ran)

    def _run_timers(self, before: datetime | None) -> None:
        timers, until = self._timers, self.until
        while timers and until is not None and timers[0].due <= until and (before is None or timers[0].due < before):
            due, _, at = heappop(timers)
            self._ran = due if self._ran is None else max(self._ran, due)
            try:
                _require_done(self.instance.timer(at, self.out))
            except PASSED_ON:
                raise
            except BaseException as error:  # noqa: BLE001
                raise self._failed("timer", at, error) from None
            if self.out.unfit is not None:
                raise self._failed("timer", at, self.out.unfit)

    def _failed(self, method: str, given: object, error: BaseException) -> ProcessError:
        """The error of a method, with the key, and the row or the time that it was given."""
        error = self.out.unfit or error
        at = "" if given is None else f", given {shortened(given)}"
        said = str(error) if isinstance(error, UnfitValueError) else f"raises {_said(error)}"
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self._file]
        line = lines[-1] if lines else None
        return ProcessError(f"`{method}` {said}, for the key {shortened(self.key)}{at}", line)


def _require_done(made: object) -> None:
    """Refuse a result that is still to be run; Python runs nothing of it."""
    if isinstance(made, (Awaitable, Generator, AsyncGenerator)):
        raise UnfitValueError("gives a coroutine or generator, of which nothing runs")


def _said(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception of the user may fail to show itself
        text = ""
    text = next((line.strip() for line in text.split("\n") if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shortened(value: object) -> str:
    """A value for people, on one line."""
    if isinstance(value, datetime):
        text = value.isoformat(sep=" ")
    elif isinstance(value, dict):
        text = f"{{{', '.join(f'{name}: {shortened(each)}' for name, each in list(value.items())[:20])}}}"
    else:
        try:
            text = repr(value)
        except Exception:  # noqa: BLE001 - a class of the user may fail to show itself
            text = f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 2]}.."
