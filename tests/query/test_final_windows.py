"""The windows that refreshes close are those of the definition, whenever they happen: DuckDB says so, of random cases.

It reads what freshline makes of a query with EMIT FINAL, with the two watermarks of each refresh in it. No Spark is
needed for that, so many hundreds of cases can be checked. `tests/scenarios/test_final.py` has whole refreshes.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import duckdb
import pytest

from freshline.sql import window_functions
from freshline.sql.tokens import Text
from freshline.sql.window_functions import LoweredQuery, lower_windows
from freshline.values import closing
from freshline.values.closing import AFTER, UNTIL, Closing, Final, moment, written_moment
from freshline.values.connector import SEQ, WATERMARK
from tests.scenarios.generator.second_engine import MACROS, translated
from tests.scenarios.test_final import (
    CALENDARS,
    CALLS,
    MINUTE,
    Bag,
    Event,
    drawn_batches,
    drawn_call,
    expected,
    query,
    time_of,
    watermarks,
)

# DuckDB has no times as far away as the least and the greatest number of microseconds.
FARTHEST = 9_200_000_000_000_000_000
CLAMPED = f"timestamp_micros(a) AS make_timestamp(greatest(least(a, {FARTHEST}), -{FARTHEST}))"


class Log:
    """The rows of a log table up to a batch, each with what a refresh is given beside its columns."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(":memory:", config={"threads": "1"})
        self.connection.execute("SET TimeZone = 'UTC'")
        for macro in (*MACROS, CLAMPED):
            self.connection.execute(f"CREATE OR REPLACE MACRO {macro}")
        self.connection.execute(
            f"CREATE TABLE ev (id BIGINT, k VARCHAR, v INTEGER, ts TIMESTAMP, {WATERMARK} TIMESTAMP, {SEQ} BIGINT)"
        )

    def land(self, batch: Sequence[Event], before: datetime | None, seq: int) -> None:
        for event in batch:
            values = [event["id"], event["k"], event["v"], _naive(time_of(event)), _naive(before), seq]
            self.connection.execute("INSERT INTO ev VALUES (?, ?, ?, ?, ?, ?)", values)

    def rows(self, text: str, refresh: Closing | None) -> list[tuple[object, ...]]:
        """The rows of a query of FINAL rows at a refresh."""
        bound = re.sub(rf"(?:{AFTER}|{UNTIL})\(-?\d+\)", lambda call: moment(refresh, *written_moment(call[0])), text)
        found = self.connection.execute(translated(bound)).fetchall()
        return [tuple(v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for v in row) for row in found]


def _naive(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC).replace(tzinfo=None)


def refreshed(
    lowered: LoweredQuery, lateness: int, batches: Sequence[Sequence[Event]], chance: random.Random
) -> tuple[Bag, Bag]:
    """The rows that refreshes behind random batches append, and the late rows after the last."""
    log, marks = Log(), watermarks(batches)
    found: Bag = Counter()
    after = None
    share = chance.choice((0.2, 0.5, 1))
    for number, batch in enumerate(batches, 1):
        log.land(batch, marks[number - 1], number)
        if number < len(batches) and chance.random() > share:
            continue
        ends = None if lowered.ends is None else (lowered.ends[0] + lateness, lowered.ends[1])
        refresh = Closing.between(after, marks[number], ends)
        if refresh.closes:
            found.update(log.rows(lowered.text, refresh))
            after = marks[number]
    assert lowered.late is not None
    late = f"SELECT id, window_start, window_end, late_by FROM ({lowered.late}) AS late"
    return found, Counter(log.rows(late, None))


def differing(seeds: range) -> Iterator[str]:
    """The random cases in which refreshes give something else than the definition has."""
    for seed in seeds:
        chance = random.Random(seed)
        lateness, batches = chance.choice((0, 0, 1, 3, 30)), drawn_batches(seed, chance.randint(3, 9), held_back=0.2)
        if chance.random() < 0.2:
            call = chance.choice([*CALLS, *CALENDARS])
            right = expected(call, batches, lateness)
        else:
            call, definition = drawn_call(chance)
            right = definition(batches, lateness * MINUTE)
        final = Final(lateness * 60)
        got = refreshed(lower_windows(Text(query(call), "t"), final), final.lateness, batches, chance)
        for what, one, other in zip(("rows", "late rows"), got, right, strict=True):
            if one != other:
                yield f"{seed} {what} of {call} at {lateness}: more {one - other}, less {other - one}"


@pytest.mark.long
@pytest.mark.slow
def test_refreshes_close_the_windows_of_the_definition():
    assert list(differing(range(60))) == []


@pytest.mark.long
def test_refreshes_close_the_windows_of_the_definition_in_many_cases():
    assert list(differing(range(10_000, 20_000))) == []


def by_the_refresh(real):
    """A row is late where its window was closed before the refresh, and not before its batch."""

    def rows(*arguments, **named):
        found = real(*arguments, **named)
        return replace(found, closed=found.closed.replace(f"{closing._ROWS}.{WATERMARK} IS NULL", "TRUE"))

    return rows


def closed_twice(real):
    """A window that ends at the watermark of the last refresh is closed by the next one too."""
    return lambda end, lateness: real(end, lateness).replace(" > ", " >= ")


def closed_behind_its_end(real):
    """A window is not closed by a watermark at its end."""
    return lambda end, lateness: real(end, lateness).replace(" <= ", " < ")


def of_too_short_a_span(real):
    """Rows are read from the last watermark on, whose windows may have begun long before."""
    return lambda source, time, lateness, reach: real(source, time, lateness, 0)


def skipped_early(real):
    """A refresh does nothing where the watermark comes to an end of a window exactly."""
    return property(lambda self: replace(self, until=None if self.until is None else self.until - 1)._closes)


BUGS = [
    (window_functions, "by_window", by_the_refresh),
    (closing, "is_closed", closed_twice),
    (closing, "is_closed", closed_behind_its_end),
    (closing, "_spanned", of_too_short_a_span),
    (Closing, "closes", skipped_early),
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "name", "plant"), BUGS, ids=[plant.__name__ for _, _, plant in BUGS])
def test_a_planted_bug_is_found(monkeypatch, place, name, plant):
    right = getattr(place, name)
    monkeypatch.setattr(Closing, "_closes", Closing.closes, raising=False)
    monkeypatch.setattr(place, name, plant(right))

    assert next(differing(range(60)), None) is not None, plant.__doc__
