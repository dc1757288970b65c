"""Rule 2: a freshness is a positive whole number of seconds, minutes, hours or days."""

from __future__ import annotations

from datetime import timedelta

import pytest

from freshline.values.freshness import Freshness, parse_seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("INTERVAL '30' SECOND", 30),
        ("interval '30' seconds", 30),
        ("INTERVAL 5 MINUTES", 300),
        ("INTERVAL '45 minutes'", 2700),
        ('INTERVAL "5" HOUR', 18_000),
        ("5 hours", 18_000),
        ("'6 hours'", 21_600),
        ("INTERVAL '1' DAY", 86_400),
        ("INTERVAL '36500' DAY", 36_500 * 86_400),
        (timedelta(minutes=5), 300),
        (timedelta(days=2), 172_800),
        ("PT30S", 30),
        ("PT1H30M", 5_400),
        ("P1D", 86_400),
        ("p1dt1h", 90_000),
    ],
)
def test_an_interval_of_whole_seconds_is_read(value, seconds):
    assert Freshness.parse(value) == Freshness(seconds)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("INTERVAL '0' SECOND", "not positive"),
        ("INTERVAL '-1' SECOND", "not positive"),
        ("INTERVAL -1 SECOND", "not positive"),
        ("INTERVAL - '1' SECOND", "not positive"),
        ("INTERVAL '1.5' MINUTE", "not a whole number"),
        ("INTERVAL '1e3' SECOND", "not a whole number"),
        ("INTERVAL '1' MONTH", "a month has no fixed length"),
        ("1 MONTH", "a month has no fixed length"),
        ("INTERVAL '1' YEAR", "a year has no fixed length"),
        ("INTERVAL '1' WEEK", "week is not a unit"),
        ("INTERVAL '100' MILLISECOND", "millisecond is not a unit"),
        ("INTERVAL '99999999999999999999999' DAY", "too long"),
        ("INTERVAL '36501' DAY", "too long"),
        ("INTERVAL '1:30' HOUR", "not an interval"),
        ("30", "it has no unit"),
        ("0", "it has no unit"),
        ("soon", "not an interval"),
        ("", "not an interval"),
        ("P1M", "months"),
        ("PT0.5S", "not a whole number"),
        ("PT0S", "not positive"),
        ("-PT5S", "not positive"),
        ("P", "not an interval"),
        ("PT", "not an interval"),
        (timedelta(0), "not positive"),
        (timedelta(seconds=-1), "not positive"),
        (timedelta(milliseconds=1500), "not a whole number"),
        (timedelta(days=40_000), "too long"),
        (0, "no unit"),
        (-1, "no unit"),
        (1.5, "no unit"),
        (True, "it is a bool"),
        (None, "it is a NoneType"),
    ],
)
def test_anything_else_is_refused_with_the_value_and_what_is_accepted(value, why):
    with pytest.raises(ValueError, match=why) as refused:
        Freshness.parse(value)

    message = str(refused.value)
    assert (value if isinstance(value, str) else repr(value)) in message
    assert "Accepted is a positive whole number of seconds, minutes, hours or days, from 1 second" in message


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1, "1 second"),
        (30, "30 seconds"),
        (60, "1 minute"),
        (300, "5 minutes"),
        (21_600, "6 hours"),
        (86_400, "1 day"),
        (90, "90 seconds"),
        (129_600, "36 hours"),
    ],
)
def test_a_freshness_is_described_in_its_largest_whole_unit(seconds, said):
    assert Freshness(seconds).describe() == said


def test_freshness_is_ordered_by_length():
    assert Freshness(10) < Freshness(60)
    assert Freshness(5).allowed_lag == timedelta(seconds=5)


def test_a_length_of_time_may_be_zero_where_that_has_a_meaning():
    assert parse_seconds("0 seconds", "settle", least=0) == 0
    with pytest.raises(ValueError, match="below 0 seconds"):
        parse_seconds("-1 seconds", "settle", least=0)
