"""Conditions on the match so far: values are compared and added as Spark does it, or refused."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from freshline.compute.matching import match_rows
from freshline.patterns.conditions import read_condition

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def holds(tree: list[Any], *values: Any) -> bool:
    """A condition over one row with these values, each a column."""
    condition = read_condition(tree, 0, {number: [value] for number, value in enumerate(values)})
    return condition([], 0, 0)


@pytest.mark.parametrize("sign", ["=", "<>", "<"])
@pytest.mark.parametrize(
    ("one", "other"),
    [(NOON, NOON.date()), (5, "5"), (NOON, NOON.replace(tzinfo=None)), (True, 1), (HOUR, 3600)],
    ids=["timestamp and date", "number and text", "with and without a zone", "boolean", "interval"],
)
def test_values_of_different_types_are_refused(sign: str, one: Any, other: Any) -> None:
    with pytest.raises(TypeError, match="compared: cast one"):
        holds([sign, ["value", 0], ["value", 1]], one, other)


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (Decimal("1.0"), 1), (Decimal("0.5"), 0.5), (2**53 + 1, 2.0**53), (2.0**53, 2**53 + 1)]
)
def test_numbers_of_all_types_are_alike(one: Any, other: Any) -> None:
    assert holds(["=", ["value", 0], ["value", 1]], one, other)


def test_decimals_are_added_with_all_their_digits() -> None:
    great, more = Decimal("123456789012345678901234567890.11"), Decimal("123456789012345678901234567890.12")
    cent = Decimal("0.01")

    assert holds(["=", ["value", 1], ["+", ["value", 0], ["value", 2]]], great, more, cent)
    assert holds(["=", ["-", ["value", 1], ["value", 2]], ["value", 0]], great, more, cent)
    assert holds(["=", ["sum", None, 0], ["value", 1]], great, great)


def test_hours_are_not_added_to_a_date() -> None:
    condition = ["<", ["value", 0], ["+", ["value", 0], ["value", 1]]]

    with pytest.raises(TypeError, match="cast it to TIMESTAMP"):
        holds(condition, date(2026, 1, 1), 12 * HOUR)
    assert holds(condition, date(2026, 1, 1), 24 * HOUR)


def test_days_are_added_to_a_date() -> None:
    day, next_day = date(2026, 1, 31), date(2026, 2, 1)

    assert holds(["=", ["+", ["value", 0], ["value", 2]], ["value", 1]], day, next_day, 1)
    assert holds(["=", ["+", ["value", 2], ["value", 0]], ["value", 1]], day, next_day, 1)
    assert holds(["=", ["-", ["value", 1], ["value", 2]], ["value", 0]], day, next_day, 1)


@pytest.mark.parametrize("tree", [["value", 0], ["not", ["value", 0]], ["and", ["value", 1], ["value", 0]]])
@pytest.mark.parametrize("value", [1, "true", 0.0])
def test_a_value_that_is_no_condition_is_refused(tree: list[Any], value: Any) -> None:
    with pytest.raises(TypeError, match="where a condition has to be"):
        holds(tree, value, True)


@pytest.mark.parametrize("tree", [["+", ["value", 0], ["value", 0]], ["sum", None, 0]])
def test_texts_are_not_added(tree: list[Any]) -> None:
    condition = read_condition(["=", tree, ["value", 1]], 0, {0: ["1", "2"], 1: ["12", "12"]})
    with pytest.raises(TypeError, match="cast it to a number"):
        condition([0], 0, 1)


def test_an_interval_has_a_sign() -> None:
    before = ["+", ["value", 0], ["-", ["value", 1], ["value", 2]]]

    assert holds(["=", before, ["value", 3]], NOON, 0, HOUR, NOON - HOUR)
    assert holds(["=", ["-", ["value", 0], ["value", 3]], ["value", 2]], NOON, 0, HOUR, NOON - HOUR)


def test_a_time_beyond_the_years_that_there_are_is_refused() -> None:
    with pytest.raises(TypeError, match="year 9999"):
        holds(["<", ["value", 0], ["+", ["value", 0], ["value", 1]]], datetime(9999, 12, 31, 23, 59, tzinfo=UTC), HOUR)


def test_a_condition_may_compare_nothing_but_counts_of_rows() -> None:
    facts = {
        "variables": ["A", "B"],
        "pattern": "A+ B+",
        "skip": ["past"],
        "within": None,
        "show": "matched",
        "conditions": {"B": ["<=", ["count", [1], None], ["count", [0], None]]},
    }
    no_values = pa.array([None], pa.list_(pa.struct([("v0", pa.int32())])))

    # A row that may be A, and three that may be B.
    (rows,) = match_rows(
        pa.array([json.dumps(facts)]),
        pa.array([[1, 2, 2, 2]]),
        pa.array([None], pa.list_(pa.int64())),
        no_values,
    ).to_pylist()

    assert [(row["place"], row["label"]) for row in rows] == [(0, "A"), (1, "B")]
