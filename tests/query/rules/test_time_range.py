"""The greatest distance of a value from the time that it is computed from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.time_distance import find_time_distances
from freshline.query.rules.time_range import DAY, find_time_range
from freshline.sql.tokens import Text
from freshline.sql.window_functions import lower_windows

HOUR = 3_600_000_000
SCHEMA = {"ev": ("k", "v", "ts")}
TYPES = {"ev": {"k": "STRING", "v": "INT", "ts": "TIMESTAMP"}}


@pytest.mark.parametrize(
    ("expression", "least", "greatest"),
    [
        ("ts", 0, 0),
        ("ts - INTERVAL '5' MINUTES", -HOUR // 12, -HOUR // 12),
        ("ts + INTERVAL '1 hour 30 minutes'", HOUR * 3 // 2, HOUR * 3 // 2),
        ("ts + INTERVAL '-0.5' SECOND", -500_000, -500_000),
        ("ts + INTERVAL 1 DAY 2 HOURS", 26 * HOUR, 26 * HOUR),
        ("ts - INTERVAL '2' MONTHS", -62 * DAY, -56 * DAY),
        ("CAST(ts AS DATE)", -DAY, 0),
        ("CAST(date_trunc('HOUR', ts) AS TIMESTAMP)", -HOUR, 0),
        ("date_trunc('QUARTER', ts)", -92 * DAY, 0),
        ("from_utc_timestamp(ts, 'Asia/Tokyo')", -DAY, DAY),
        ("trunc(ts, 'WEEK')", -7 * DAY, 0),
        ("timestamp_micros(unix_micros(ts) - pmod(unix_micros(ts) - 7, 10) + 3)", -6, 3),
        ("timestamp_micros(unix_micros(CAST(ts AS TIMESTAMP)) - 3)", -3, -3),
    ],
)
def test_the_range_of_an_expression(expression, least, greatest):
    found = find_time_range(expression)
    assert found is not None
    assert (found.column, found.least, found.greatest) == ("ts", least, greatest)


@pytest.mark.parametrize(
    "expression",
    [
        # A number that is added to a date is one of days.
        "CAST(ts AS DATE) + 1",
        "date_add(CAST(ts AS DATE), 1)",
        "coalesce(ts, now())",
        "ts + v",
        "CAST(ts AS STRING)",
        "timestamp_micros(unix_micros(ts) * 2)",
        "timestamp_micros(unix_micros(ts) - pmod(unix_micros(ts), -5))",
        "date_trunc('CENTURY', ts)",
        "ts + INTERVAL '1 02' DAY TO HOUR",
        # They are NULL where something else is than the time.
        "from_utc_timestamp(ts, zone)",
        "to_utc_timestamp(ts, upper('utc'))",
        "timestamp_micros(unix_micros(ts) - pmod(v, 10))",
        "trunc(ts, 'DAY')",
    ],
)
def test_others_are_not_understood(expression):
    assert find_time_range(expression) is None


def first_of(month: int) -> datetime:
    return datetime(1970 + month // 12, month % 12 + 1, 1, tzinfo=ZoneInfo("America/New_York"))


@pytest.mark.parametrize(
    ("call", "bound", "windows"),
    [
        (
            "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' DAY, TIME_ZONE => 'America/New_York')",
            "window_start",
            [
                # Days of 23 and 25 hours.
                (datetime(2026, 3, 8, 5, tzinfo=UTC), datetime(2026, 3, 9, 4, tzinfo=UTC)),
                (datetime(2026, 11, 1, 4, tzinfo=UTC), datetime(2026, 11, 2, 5, tzinfo=UTC)),
            ],
        ),
        (
            "HOP(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' MONTH, INTERVAL '3' MONTHS, TIME_ZONE => 'America/New_York')",
            "window_start",
            [(first_of(month), first_of(month + 3)) for month in range(-30, 800)],
        ),
        (
            "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' YEAR, TIME_ZONE => 'America/New_York')",
            "window_end",
            [(first_of(month), first_of(month + 12)) for month in range(-36, 800, 12)],
        ),
        (
            "HOP(TABLE ev, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '15' MINUTES, INTERVAL '-1' MINUTE)",
            "window_end",
            [(datetime(2026, 1, 1, 0, 4, tzinfo=UTC), datetime(2026, 1, 1, 0, 19, tzinfo=UTC))],
        ),
        (
            "CUMULATE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)",
            "window_end",
            [(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, hour, tzinfo=UTC)) for hour in range(1, 24)],
        ),
    ],
)  # fmt: skip
def test_all_rows_of_a_window_are_in_reach_of_its_bounds(call, bound, windows):
    """The reach spans at most a few days more than twice the widest window."""
    text = lower_windows(Text(f"SELECT {bound}, max(v) AS g FROM {call} GROUP BY {bound}", "t.sql", 1)).text
    (reach,) = find_time_distances(ResolvedQuery.of(text, SCHEMA, TYPES), bound)

    assert (reach.relation, reach.column) == ("ev", "ts")
    widest = max(end - start for start, end in windows)
    for start, end in windows:
        value = start if bound == "window_start" else end
        near = [(each.astimezone(UTC) - value.astimezone(UTC)) / timedelta(microseconds=1) for each in (start, end)]
        assert reach.least <= near[0] <= near[1] <= reach.greatest + 1
    assert reach.greatest - reach.least <= 2 * (widest / timedelta(microseconds=1)) + 8 * DAY


def test_an_input_that_a_condition_of_a_join_asks_is_read_whole():
    text = (
        "SELECT e.ts, e.k, s.v FROM ev e LEFT JOIN ev s ON s.k = e.k AND s.ts = e.ts "
        "AND EXISTS (SELECT 1 FROM ev x WHERE x.k = s.k AND x.v > 1)"
    )

    assert find_time_distances(ResolvedQuery.of(text, SCHEMA, TYPES), "ts") == ()
