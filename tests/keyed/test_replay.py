"""One key's rows and timers, in their order: what a class is given, and what it may put out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from freshline.keyed import replay as replays
from freshline.keyed.replay import Out, OutputTarget, ProcessError, Replay, Row
from freshline.keyed.values import UnfitValueError, checker

START = datetime(1969, 12, 31, 23, 55, tzinfo=UTC)
ODD_OFFSET = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1, microseconds=7)))
ENDS = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))


def minutes(number: float) -> datetime:
    return START + timedelta(minutes=number)


class Recorder:
    """Puts out all that it is called with; rows set the timers of their `timers`."""

    def row(self, row: Any, out: Out) -> None:
        out.emit(f"row {row.name}")
        for at in row.timers:
            out.timer(minutes(at))

    def timer(self, at: datetime, out: Out) -> None:
        number = (at - START) / timedelta(minutes=1)
        out.emit(f"timer {number:g}")
        if number == 7:
            out.timer(minutes(8))
            out.timer(minutes(2))


def target(**columns: pa.DataType) -> OutputTarget:
    return OutputTarget("", tuple((name, checker(kind)) for name, kind in columns.items()), frozenset({"refused"}))


def replayed(rows: list[tuple[float | None, str, list[float]]], until: float | None) -> tuple[list[str], Any]:
    made = Replay(
        Recorder,
        target(said=pa.string()),
        {"k": None},
        None if until is None else minutes(until),
        has_timer=True,
        file=__file__,
    )
    for at, name, timers in rows:
        made.row(Row({"name": name, "timers": timers}), None if at is None else minutes(at))
    waiting = made.end()
    return [row[0] for row in made.out.rows], waiting


def test_a_timer_runs_behind_the_rows_of_its_time_and_before_later_ones() -> None:
    rows: list[tuple[float | None, str, list[float]]] = [(None, "n", [5]), (5, "a", []), (5, "b", []), (6, "c", [])]
    assert replayed(rows, 100) == (["row n", "row a", "row b", "timer 5", "row c"], None)


def test_a_timer_that_the_watermark_has_not_come_to_waits() -> None:
    rows: list[tuple[float | None, str, list[float]]] = [(1, "a", [5, 3]), (9, "b", [])]
    assert replayed(rows, 4) == (["row a", "timer 3", "row b"], minutes(5))
    assert replayed(rows, 5) == (["row a", "timer 3", "timer 5", "row b"], None)
    assert replayed(rows, None) == (["row a", "row b"], minutes(3))


def test_equal_timers_run_as_often_as_they_were_set_and_past_ones_at_once() -> None:
    rows: list[tuple[float | None, str, list[float]]] = [(3, "a", [7, 7, 1]), (3, "b", [])]
    found = ["row a", "timer 1", "row b", "timer 7", "timer 2", "timer 7", "timer 2", "timer 8", "timer 8"]
    assert replayed(rows, 9) == (found, None)


class Silent(Exception):
    """An exception that fails to say what it is about."""

    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (lambda out: out.emit(), "puts out 0 values"),
        (lambda out: out.emit("a", 1), "puts out 2 values"),
        (lambda out: out.emit(what="a"), "the columns are said"),
        (lambda out: out.emit(5), "it is an int, and has to be a str"),
        (lambda out: out.emit("\ud800"), "no text"),
        (lambda out: out.emit("a", to="nowhere"), "Outputs are: refused"),
        (lambda out: out.timer(timedelta(minutes=1)), "no time with a time zone"),
        (lambda out: out.timer(datetime(2026, 1, 1)), "no time with a time zone"),  # noqa: DTZ001
        (lambda out: 1 // 0, "raises ZeroDivisionError"),
        (lambda out: out.nothing(), "AttributeError"),
        (lambda out: exit(3), "raises SystemExit: 3"),
        (lambda out: _raise(Silent()), "raises Silent"),
        (lambda out: _raise(GeneratorExit("over")), "raises GeneratorExit: over"),
        (lambda out: (each for each in "ab"), "gives a coroutine or generator"),
    ],
)
def test_a_mistake_is_reported_with_the_key_and_the_row(does: Callable[[Out], None], said: str) -> None:
    class Wrong:
        def row(self, row: Any, out: Out) -> None:
            return does(out)

        def timer(self, at: datetime, out: Out) -> None: ...

    made = Replay(Wrong, target(said=pa.string()), {"k": "ann"}, None, has_timer=True, file=__file__)
    with pytest.raises(ProcessError) as raised:
        made.row(Row({"id": 7}), None)
    assert said in raised.value.sentence
    assert "the key {k: 'ann'}, given {id: 7}" in raised.value.sentence
    assert (raised.value.line is None) == said.startswith("gives")


def test_a_mistake_counts_although_the_class_catches_it() -> None:
    class Catches:
        def row(self, row: Any, out: Out) -> None:
            with contextlib.suppress(Exception):
                out.emit(5)

    made = Replay(Catches, target(said=pa.string()), {}, None, has_timer=False, file=__file__)
    with pytest.raises(ProcessError, match="has to be a str"):
        made.row(Row({}), None)


def test_a_timer_without_its_method_is_a_mistake() -> None:
    class Untimely:
        def row(self, row: Any, out: Out) -> None:
            out.timer(START)

    made = Replay(Untimely, target(said=pa.string()), {}, None, has_timer=False, file=__file__)
    with pytest.raises(ProcessError, match=r"no method `timer"):
        made.row(Row({}), None)


def test_a_column_of_the_key_has_the_value_of_the_key() -> None:
    own = OutputTarget("", (("k", checker(pa.string())),), frozenset(), (0,))
    out = Out(own, (None,), None)
    out.emit(None)
    with pytest.raises(UnfitValueError, match="not that of the key"):
        out.emit("other")


def test_a_key_may_be_put_out_in_another_time_zone() -> None:
    twice = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    own = OutputTarget("", (("k", checker(pa.timestamp("us", "UTC"))),), frozenset(), (0,))
    out = Out(own, (twice,), None)
    out.emit(twice.astimezone(ZoneInfo("Europe/Berlin")))
    with pytest.raises(UnfitValueError, match="not that of the key"):
        out.emit(twice.astimezone(ZoneInfo("Europe/Berlin")).replace(fold=0))


def test_a_column_may_have_any_name() -> None:
    out = Out(target(self=pa.string(), values=pa.string()), (), None)
    out.emit(self="a", values="b")
    assert out.rows == [("a", "b")]


def test_rows_have_attributes_and_any_name() -> None:
    row = Row({"id": 1, "odd name": 2, "class": 3})
    assert (row.id, row["odd name"], row["class"]) == (1, 2, 3)
    with pytest.raises(AttributeError, match=r"no column idd; they have id, odd name"):
        row.idd  # noqa: B018


@pytest.mark.parametrize(
    ("kind", "fits", "unfit"),
    [
        (pa.int8(), [5, -128], [128, True, 1.0, "1"]),
        (pa.float64(), [1.5, float("nan")], [1, True, "1"]),
        (pa.float32(), [0.1, float("nan"), float("-inf")], [1, 1e300, "1"]),
        (pa.bool_(), [True], [1, "true"]),
        (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("1.500"), Decimal("999.99"), Decimal("0E+9")], [1, 1.5]),
        (pa.decimal128(5, 2), [Decimal("1E+2")], [Decimal("1.005"), Decimal("1000"), Decimal("NaN"), Decimal("1E+3")]),
        (pa.timestamp("us", "UTC"), [START, ODD_OFFSET], [datetime(2026, 1, 1), date(2026, 1, 1), 5]),  # noqa: DTZ001
        (pa.timestamp("us", "UTC"), [pd.Timestamp(START)], [pd.Timestamp(START) + pd.Timedelta(1, "ns"), ENDS, pd.NaT]),
        (pa.timestamp("us"), [datetime(2026, 1, 1)], [START, pd.NaT]),  # noqa: DTZ001
        (pa.date32(), [date(2026, 1, 1)], [START]),
        (pa.binary(), [b"a"], ["a", bytearray()]),
        (pa.list_(pa.int32()), [[1, None], ()], [["a"], "ab"]),
        (pa.map_(pa.string(), pa.int32()), [{"a": 1}, [("a", 1)]], [{1: 1}, ["ab"], [("a", "b")]]),
        (pa.struct([("a", pa.int32())]), [{"a": None}], [{"b": 1}, {"a": 1, "b": 2}, (1,)]),
    ],
)
def test_values_have_the_type_of_their_column(kind: pa.DataType, fits: list[Any], unfit: list[Any]) -> None:
    check = checker(kind)
    for value in fits:
        (found,) = pa.array([check(value)], kind).to_pylist()
        assert not isinstance(value, datetime) or found == value
    for value in unfit:
        with pytest.raises(UnfitValueError):
            check(value)


def test_a_timer_before_the_row_of_its_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the claim above is false for a wrong order."""
    right = Replay._run_timers
    monkeypatch.setattr(
        replays.Replay,
        "_run_timers",
        lambda self, before: right(self, None if before is None else before + timedelta(microseconds=1)),
    )
    with pytest.raises(AssertionError):
        test_a_timer_runs_behind_the_rows_of_its_time_and_before_later_ones()
