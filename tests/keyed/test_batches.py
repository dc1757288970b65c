"""Sorted rows in batches become the rows of a table, within limits, and whatever the batches are."""

from __future__ import annotations

import faulthandler
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from freshline.keyed import batches
from freshline.keyed.batches import KEY, TIMER, KeyedProcess, ProcessFailed, replay_batches
from freshline.keyed.replay import Out

START = datetime(1969, 12, 31, 23, 59, tzinfo=UTC)
NAN = float("nan")
ROWS = [(NAN, 1), (NAN, 2), (None, 1), (None, 3), (0.0, 1), (1.5, 2)]


class Counts:
    """How many rows a key had before each."""

    def __init__(self) -> None:
        self.seen = 0

    def row(self, row: Any, out: Out) -> None:
        out.emit(self.seen, row.at)
        out.timer(row.at + timedelta(minutes=1))
        self.seen += 1

    def timer(self, at: datetime, out: Out) -> None:
        out.emit(-1, at)


def process(make: Callable[[], Any], until: datetime | None = None, **other: Any) -> KeyedProcess:
    columns = pa.schema([("seen", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
    micros = None if until is None else (until - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    given: dict[str, Any] = {"seconds": 60.0, "memory": 2**30, **other}
    return KeyedProcess(
        make, ("k",), ("at",), columns, "", (), True, micros, given["seconds"], given["memory"], __file__
    )


def batch(rows: Sequence[tuple[float | None, int]]) -> pa.RecordBatch:
    times = pa.array([START + timedelta(seconds=second) for _, second in rows], pa.timestamp("us", "Asia/Tokyo"))
    return pa.record_batch({"k": pa.array([key for key, _ in rows], pa.float64()), "at": times})


def made(of: KeyedProcess, *batches: pa.RecordBatch) -> list[tuple[Any, ...]]:
    found = pa.Table.from_batches(replay_batches(of)(iter(batches)))
    shown = (f"{KEY}0", TIMER, "seen", "at")
    return [tuple(str(row[name]) for name in shown) for row in found.to_pylist()]


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_keys_go_on_from_batch_to_batch(size: int) -> None:
    batches = [batch(ROWS[start : start + size]) for start in range(0, len(ROWS), size)]
    found = made(process(Counts), *batches)
    assert [(row[0], row[2]) for row in found if row[1] == "None"] == [
        ("nan", "0"),
        ("nan", "1"),
        ("None", "0"),
        ("None", "1"),
        ("0.0", "0"),
        ("1.5", "0"),
    ]
    assert [row[1] for row in found if row[1] != "None"] == [f"1970-01-01 00:00:0{n}+00:00" for n in (1, 1, 1, 2)]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.struct([("x", pa.float64())]), [{"x": NAN}, {"x": float("nan")}, {"x": -0.0}, {"x": 0.0}, {"x": None}]),
        (pa.list_(pa.float32()), [[NAN, 1.0], [float("nan"), 1.0], [-0.0], [0.0], [None]]),
        (
            pa.list_(pa.struct([("x", pa.float64())])),
            [[{"x": NAN}], [{"x": float("nan")}], [{"x": -0.0}], [{"x": 0.0}], []],
        ),
    ],
)
def test_a_nan_and_zeros_of_both_signs_inside_of_a_key_are_one_key_each(kind: pa.DataType, keys: list[Any]) -> None:
    times = pa.array([START] * len(keys), pa.timestamp("us", "UTC"))
    found = made(process(Counts), pa.record_batch({"k": pa.array(keys, kind), "at": times}))
    assert [row[2] for row in found if row[1] == "None"] == ["0", "1", "0", "1", "0"]


def test_the_watermark_is_exact_before_1970() -> None:
    at = START + timedelta(minutes=1, seconds=1)
    for until, timers in ((at - timedelta(microseconds=1), 0), (at, 3), (datetime(1960, 1, 1, tzinfo=UTC), 0)):
        assert len([row for row in made(process(Counts, until), batch(ROWS)) if row[2] == "-1"]) == timers


def test_a_key_that_takes_too_long_or_too_much_is_reported() -> None:
    class Loops:
        def row(self, row: Any, out: Out) -> None:
            while True:
                pass

    class Hoards:
        def row(self, row: Any, out: Out) -> None:
            self.hoard = bytearray(2**31)

    with pytest.raises(ProcessFailed, match=r"takes longer than 0.1 seconds for the key \{k: None\}"):
        made(process(Loops, seconds=0.1), batch(ROWS[2:]))
    with pytest.raises(ProcessFailed, match=r"takes more than 1024 MB of memory, at the key \{k: None\}"):
        made(process(Hoards), batch(ROWS[2:]))


class Catches:
    """Never ends, whatever is raised."""

    def row(self, row: Any, out: Out) -> None:
        while True:
            try:
                while True:
                    pass
            except BaseException:  # noqa: BLE001, S110
                pass


def _never_ends() -> None:
    made(process(Catches, seconds=0.05), batch(ROWS))


@pytest.mark.seconds
def test_code_that_catches_the_end_of_its_time_ends_with_its_process() -> None:
    assert ended_with(_never_ends) == -signal.SIGKILL


def ended_with(code: Callable[[], None]) -> int | None:
    """The exit code of a process that does this."""
    # The thread that watches this test is not there in a copy of the process, which would wait for it.
    faulthandler.cancel_dump_traceback_later()
    child = multiprocessing.get_context("fork").Process(target=code)
    child.start()
    try:
        child.join(30)
        return child.exitcode
    finally:
        child.kill()


class InC:
    """Spends its time where Python raises nothing, as sums of a large range do."""

    def row(self, row: Any, out: Out) -> None:
        deque(count(), maxlen=0)


def _never_returns() -> None:
    made(process(InC, seconds=0.05), batch(ROWS))


def test_code_in_c_that_takes_too_long_ends_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_MOST_LATE", 0.1)
    assert ended_with(_never_returns) == 1
