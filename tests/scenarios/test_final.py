"""A table with EMIT FINAL is a function of its log: no row of it changes, however and whenever it is refreshed."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from freshline.errors import DeclarationErrors, DefinitionChangedError
from freshline.ingest import batch as batch_module
from freshline.plan.request import RefreshRequest
from freshline.testing import Crash
from freshline.values.watermark import after_batch
from tests.crashes import refresh_by
from tests.lanes import long_but
from tests.plain_lab import PlainLab
from tests.scenarios.shop import Bag as Bag
from tests.scenarios.shop import bag
from tests.scenarios.test_ingest import redeclare

EVENTS = "id BIGINT, k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

Event = Mapping[str, object]
Window = tuple[datetime, datetime]
# The rows, and the late rows, that a query of some windows has over batches with an allowed lateness.
Definition = Callable[[Sequence[Sequence[Event]], timedelta], tuple[Bag, Bag]]
POINTS = ("table-pinned", "table-before-commit", "table-writing", "table-after-commit", "log-before-commit")


def event(number: int, key: str | None, value: int, minutes: float | None) -> Event:
    at = None if minutes is None else START + minutes * MINUTE
    return {"id": number, "k": key, "v": value, "ts": None if at is None else at.isoformat()}


def time_of(row: Event) -> datetime | None:
    return None if row["ts"] is None else datetime.fromisoformat(str(row["ts"]))


def watermarks(batches: Sequence[Sequence[Event]]) -> list[datetime | None]:
    """The watermark before each batch, and after the last."""
    found: list[datetime | None] = [None]
    for batch in batches:
        times = [time for row in batch if (time := time_of(row)) is not None]
        after = max(times) - MINUTE if times else None
        found.append(max((each for each in (found[-1], after) if each is not None), default=None))
    return found


def grid(size: timedelta, slide: timedelta) -> Callable[[datetime], list[Window]]:
    def windows(at: datetime) -> list[Window]:
        last = EPOCH + (at - EPOCH) // slide * slide
        return [(last - slide * n, last - slide * n + size) for n in range(size // slide)]

    return windows


def by_windows(
    batches: Sequence[Sequence[Event]], windows: Callable[[datetime], Iterable[Window]], lateness: timedelta
) -> tuple[Bag, Bag]:
    """By definition: counts and sums of the windows that are closed, and the rows that came too late for theirs."""
    marks = watermarks(batches)
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    late: Bag = Counter()
    for before, batch in zip(marks, batches, strict=False):
        for row in batch:
            at = time_of(row)
            for start, end in [] if at is None else windows(at):
                if before is not None and end + lateness <= before:
                    by = Decimal((before - end - lateness) // timedelta(microseconds=1)) / 10**6
                    late[(row["id"], start, end, by)] += 1
                elif marks[-1] is not None and end + lateness <= marks[-1]:
                    groups[(start, end, row["k"])].append(int(str(row["v"])))
    return Counter({(*key, len(values), sum(values)): 1 for key, values in groups.items()}), late


def by_sessions(batches: Sequence[Sequence[Event]], gap: timedelta, lateness: timedelta) -> tuple[Bag, Bag]:
    marks = watermarks(batches)
    times: dict[object, list[tuple[datetime, int]]] = defaultdict(list)
    late: Bag = Counter()
    for before, batch in zip(marks, batches, strict=False):
        for row in batch:
            at = time_of(row)
            if at is None:
                continue
            if before is not None and at + lateness <= before:
                by = Decimal((before - at - lateness) // timedelta(microseconds=1)) / 10**6
                late[(row["id"], None, None, by)] += 1
            else:
                times[row["k"]].append((at, int(str(row["v"]))))
    found: Bag = Counter()
    for key, rows in times.items():
        session: list[tuple[datetime, int]] = []
        for at, value in [*sorted(rows), (datetime.max.replace(tzinfo=UTC), 0)]:
            if session and at - session[-1][0] > gap:
                end = session[-1][0] + gap
                if marks[-1] is not None and end + lateness <= marks[-1]:
                    found[(session[0][0], end, key, len(session), sum(each for _, each in session))] += 1
                session = []
            session.append((at, value))
    return found, late


def by_places(batches: Sequence[Sequence[Event]], size: int, lateness: timedelta) -> tuple[Bag, Bag]:
    """Windows of so many rows of a key, counted among the rows that came in time."""
    marks = watermarks(batches)
    until = marks[-1]
    times: dict[object, list[tuple[datetime, int, int]]] = defaultdict(list)
    late: Bag = Counter()
    for before, batch in zip(marks, batches, strict=False):
        for row in batch:
            at = time_of(row)
            if at is not None and before is not None and at + lateness <= before:
                by = Decimal((before - at - lateness) // timedelta(microseconds=1)) / 10**6
                late[(row["id"], None, None, by)] += 1
            elif at is not None:
                times[row["k"]].append((at, int(str(row["id"])), int(str(row["v"]))))
    found: Bag = Counter()
    for key, rows in times.items():
        rows.sort()
        for begin in range(0, len(rows) - size + 1, size):
            window = rows[begin : begin + size]
            if until is not None and window[-1][0] + lateness <= until:
                found[(window[0][0], window[-1][0], key, size, sum(value for *_, value in window))] += 1
    return found, late


def drawn_batches(seed: int, count: int = 6, *, held_back: float = 0) -> list[list[Event]]:
    """Rows that go on in time, some late by much, some at bounds, some of one time, some without a time.

    `held_back` is the share of batches all of whose rows are late.
    """
    chance = random.Random(seed)
    batches, number, now = [], 0, 0.0
    for _ in range(count):
        batch = []
        all_back = 20 if held_back and chance.random() < held_back else 0
        for _ in range(chance.randint(1, 8)):
            number += 1
            now += chance.choice((0, 0.25, 1, 4))
            back = all_back + chance.choice((0, 0, 0, 1, 5, 12, 60))
            minutes = (
                None if chance.random() < 0.06 else float(round(now - back)) if chance.random() < 0.4 else now - back
            )
            batch.append(event(number, chance.choice(("a", "b", None)), chance.randint(1, 9), minutes))
        batches.append(batch)
    return batches


def shown(lab, name: str) -> Bag:
    return bag(lab.rows(name))


def late(lab, name: str) -> Bag:
    found: Bag = Counter()
    for row in lab.late(name):
        start, end = (
            None if row[each] is None else row[each].astimezone(UTC) for each in ("window_start", "window_end")
        )
        found[(row["id"], start, end, row["late_by"])] += 1
    return found


QUERY = """SELECT window_start, window_end, k, count(*) AS rows, sum(v) AS total FROM TABLE({call})
GROUP BY window_start, window_end, k"""


def query(call: str) -> str:
    """The query over some windows. Two windows of so many rows can have the same bounds."""
    return QUERY.format(call=call) + (", window_number" if call.startswith("COUNT_WINDOW") else "")


FIVE_MINUTES = "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '5' MINUTES)"
CALLS = {
    FIVE_MINUTES: grid(5 * MINUTE, 5 * MINUTE),
    "HOP((SELECT * FROM ev WHERE v > 0), DESCRIPTOR(ts), INTERVAL '2' MINUTES, INTERVAL '6' MINUTES)": grid(
        6 * MINUTE, 2 * MINUTE
    ),
    "SESSION(TABLE ev PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' MINUTES)": None,
}


CALENDARS = {
    "CUMULATE(TABLE ev, DESCRIPTOR(ts), INTERVAL '2' MINUTES, INTERVAL '6' MINUTES)": lambda at: [
        (start, start + 2 * n * MINUTE) for start, end in grid(6 * MINUTE, 6 * MINUTE)(at) for n in (1, 2, 3)
        if at < start + 2 * n * MINUTE
    ],
    "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' DAY, OFFSET => INTERVAL '12 hours 10 minutes')": lambda at: [
        (start + 730 * MINUTE, end + 730 * MINUTE)
        for start, end in grid(1440 * MINUTE, 1440 * MINUTE)(at - 730 * MINUTE)
    ],
}  # fmt: skip


def declare(lab, name: str, text: str, lateness: int) -> None:
    allowed = f" ALLOWED LATENESS INTERVAL '{lateness}' MINUTE" if lateness else ""
    lab.declare(f"CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '10' SECOND EMIT FINAL{allowed} AS {text}")


class ThreeTables:
    """Tables of one query, refreshed after each batch, at the end, and anew: the same rows, and late rows.

    `late` has the late rows of a table as the definition of the query has them.
    """

    names = ("each_time", "at_the_end", "anew")

    def __init__(self, lab, text: str, lateness: int, late: Callable[[Any, str], Bag]) -> None:
        self.lab, self.late = lab, late
        self.seen: Bag = Counter()
        for name in self.names:
            declare(lab, name, text, lateness)

    def refresh_each_time(self, expected: tuple[Bag, Bag], *, first: bool) -> None:
        result = self.lab.refresh("each_time")
        assert result.error is None, result.error
        assert first or result.strategy in ("append", "noop"), result.reason
        self.check("each_time", expected)
        # Rows that were written stay.
        assert self.seen <= expected[0]
        self.seen = expected[0]

    def end(self, expected: tuple[Bag, Bag]) -> None:
        for name in ("at_the_end", "anew"):
            assert self.lab.refresh(name).error is None
            self.check(name, expected)
        assert self.lab.refresh("anew", full=True).error is None
        for name in self.names:
            self.check(name, expected)
            for each in (name, f"{name}__late"):
                verified = self.lab.verify(each)
                assert verified.equal, verified

    def check(self, name: str, expected: tuple[Bag, Bag]) -> None:
        rows, late = expected
        assert shown(self.lab, name) == rows, name
        assert self.late(self.lab, name) == late, name


def require_each_row_once_after_crashes(
    lab, logs: Mapping[str, int], definition: Callable[..., tuple[Bag, Bag]], late: Callable[[Any, str], Bag]
) -> None:
    """Refresh `t` after each batch, stopped at another point, and then anew. A log has the batches of a seed.

    `definition` has the rows and late rows of the first batches of each log and a lateness of a minute.
    """
    points = POINTS[:-1]
    drawn = {log: drawn_batches(seed, count=len(points)) for log, seed in logs.items()}
    for number, point in enumerate(points, 1):
        for log, batches in drawn.items():
            lab.land(log, f"{number}.json", batches[number - 1])
            lab.refresh(log)
        for name in ("t__late", "t"):
            # A refresh without anything to write comes to fewer of the points.
            with contextlib.suppress(Crash), lab.crash_at(point):
                lab.refresh(name, upstreams=False)
        lab.restart(lose_control_store=number % 2 == 0)
        assert lab.refresh("t").error is None
        rows, too_late = definition(*(batches[:number] for batches in drawn.values()), MINUTE)
        assert (shown(lab, "t"), late(lab, "t")) == (rows, too_late)
    assert rows
    assert lab.verify("t").equal


def require_refusal(lab, text: str, code: str, said: str) -> None:
    """Rows of this query are never final, for one reason."""
    with pytest.raises(DeclarationErrors) as refused:
        lab.declare(f"CREATE MATERIALIZED TABLE t\nEMIT FINAL AS\n{text}")
    [error] = refused.value.errors
    assert error.rule == code, error
    assert said in error.message
    assert "t.sql:" in str(error)


def drawn_call(chance: random.Random) -> tuple[str, Definition]:
    """Windows of a random kind and size, and their rows and late rows by definition."""
    minutes, several = chance.randint(1, 9), chance.randint(1, 4)
    offset = chance.choice((0, 0, 1, -2))
    size, slide = minutes * several * MINUTE, minutes * MINUTE
    source = chance.choice(("TABLE ev", "(SELECT * FROM ev WHERE id > 0)", "(SELECT k, v, `ts`, id FROM ev AS e)"))
    head = f"{source}, DESCRIPTOR(ts), INTERVAL"
    behind = f"OFFSET => INTERVAL '{offset}' MINUTE"
    match chance.randrange(4):
        case 0:
            found = grid(slide, slide)
            call = f"TUMBLE({head} '{minutes}' MINUTES, {behind})"
        case 1:
            found = grid(size, slide)
            call = f"HOP({head} '{minutes}' MINUTES, INTERVAL '{minutes * several}' MINUTES, {behind})"
        case 2:
            gap = f"SESSION({source} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '{minutes}' MINUTES)"
            return gap, lambda batches, lateness: by_sessions(batches, slide, lateness)
        case _:
            counted = f"COUNT_WINDOW(TABLE ev PARTITION BY k ORDER BY ts, id, SIZE => {several})"
            return counted, lambda batches, lateness: by_places(batches, several, lateness)

    def windows(at: datetime) -> list[Window]:
        shift = offset * MINUTE
        return [(start + shift, end + shift) for start, end in found(at - shift)]

    return call, lambda batches, lateness: by_windows(batches, windows, lateness)


def expected(call: str, batches: Sequence[Sequence[Event]], lateness: int) -> tuple[Bag, Bag]:
    windows = {**CALLS, **CALENDARS}[call]
    if windows is None:
        return by_sessions(batches, 3 * MINUTE, lateness * MINUTE)
    return by_windows(batches, windows, lateness * MINUTE)


@pytest.mark.parametrize(
    ("call", "lateness"),
    # Sessions.
    long_but([(list(CALLS)[-1], 3)], itertools.product(CALLS, (0, 3))),
)
def test_a_final_table_is_the_same_however_often_it_is_refreshed(lab, call: str, lateness: int) -> None:
    rows, too_late = play(
        lab,
        call,
        lateness,
        drawn_batches(lateness * 7 + len(call)),
        lambda batches, _: expected(call, batches, lateness),
    )
    # Else the case says little.
    assert rows
    assert too_late


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_final_table_is_the_same_for_other_rows_and_windows_too(lab, seed: int) -> None:
    play_drawn(lab, seed)


def play_drawn(lab, seed: int) -> None:
    """Play a random case."""
    chance = random.Random(seed)
    lateness, batches = chance.choice((0, 0, 1, 3, 30)), drawn_batches(seed, chance.randint(4, 10), held_back=0.2)
    if chance.random() < 0.2:
        call = chance.choice([*CALLS, *CALENDARS])
        play(lab, call, lateness, batches, lambda rows, _: expected(call, rows, lateness), seed=seed)
    else:
        call, definition = drawn_call(chance)
        play(lab, call, lateness, batches, definition, seed=seed)


def play(
    lab, call: str, lateness: int, batches: Sequence[Sequence[Event]], definition: Definition, *, seed: int = 0
) -> tuple[Bag, Bag]:
    """Three tables of one query, refreshed after each batch, at the end, and at random moments, where some of the
    refreshes are stopped, and then anew: the same rows, and late rows."""
    chance = random.Random(f"{seed} refreshes")
    lab.files("ev", EVENTS, primary_key=["id"])
    tables = ThreeTables(lab, query(call), lateness, late)
    for number, batch in enumerate(batches, 1):
        lab.land("ev", f"{number}.json", batch)
        found = definition(batches[:number], lateness * MINUTE)
        tables.refresh_each_time(found, first=number == 1)
        if chance.random() < 0.3:
            with contextlib.suppress(Crash), lab.crash_at(chance.choice((*POINTS, ""))):
                lab.refresh("anew", full=chance.random() < 0.2)
            lab.restart(lose_control_store=chance.random() < 0.3)
    tables.end(found)
    return found


def by_this_batch_alone(real):
    """The watermark is that of the newest batch, and goes back with it."""

    def planted(before, seen, unread, **named):
        found, alone = (real(known, seen, unread, **named) for known in (before, None))
        return found if alone.watermark is None else replace(found, watermark=alone.watermark)

    return planted


@pytest.mark.long
def test_a_watermark_that_goes_back_is_found(spark, monkeypatch) -> None:
    """Mistakes in what closes a window are planted in `tests/query/test_final_windows.py`, where DuckDB finds them."""
    monkeypatch.setattr(batch_module, "after_batch", by_this_batch_alone(after_batch))

    for seed in range(3):
        try:
            with PlainLab(spark) as lab:
                batches = drawn_batches(seed, held_back=0.4)
                play(lab, FIVE_MINUTES, 0, batches, lambda rows, _: expected(FIVE_MINUTES, rows, 0), seed=seed)
        except AssertionError:
            return
    pytest.fail("no case finds it")


def test_killed_anywhere_it_goes_on_without_a_row_twice(lab) -> None:
    lab.files("ev", EVENTS)
    declare(lab, "t", query(FIVE_MINUTES), 1)
    require_each_row_once_after_crashes(lab, {"ev": 5}, lambda batches, _: expected(FIVE_MINUTES, batches, 1), late)


def test_windows_close_by_the_watermark_and_not_by_rows(lab) -> None:
    lab.files("ev", EVENTS)
    declare(lab, "t", query(FIVE_MINUTES), 0)
    assert lab.refresh("t").error is None
    assert shown(lab, "t") == Counter()
    lab.land("ev", "1.json", [event(1, "a", 1, 1), event(2, "a", 2, 5.99)])
    assert lab.refresh("t").error is None
    assert shown(lab, "t") == Counter()
    version = lab.receipt("t").seq
    assert lab.refresh("t").strategy == "noop"
    assert lab.receipt("t").seq == version, "a refresh without a closed window commits nothing"
    lab.land("ev", "2.json", [event(3, "a", 4, 6)])
    result = lab.refresh("t")
    assert (result.strategy, result.rows_out) == ("append", 1)
    assert result.reason.startswith("WINDOWS_CLOSED")
    assert shown(lab, "t") == {(START, START + 5 * MINUTE, "a", 1, 1): 1}
    # The watermark moves by four minutes, in which no window ends.
    lab.land("ev", "3.json", [event(4, "a", 1, 10.99999)])
    result = lab.refresh("t")
    assert (result.strategy, result.reason.split(":")[0]) == ("noop", "NO_WINDOW_CLOSED")


@pytest.mark.long
def test_final_tables_build_on_final_tables(lab) -> None:
    lab.files("ev", EVENTS)
    declare(
        lab, "minute_times", "SELECT window_time AS at, k, count(*) AS rows, sum(v) AS total FROM "
        "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_time, k", 1,
    )  # fmt: skip
    again = """SELECT window_start, window_end, CAST(NULL AS STRING) AS k, sum(rows) AS rows, sum(total) AS total
    FROM TABLE(TUMBLE(TABLE minute_times, DESCRIPTOR(at), INTERVAL '5' MINUTES)) GROUP BY 1, window_end"""
    declare(lab, "five", again, 2)
    batches = drawn_batches(11)
    for number, batch in enumerate(batches, 1):
        lab.land("ev", f"{number}.json", batch)
        assert lab.refresh("five").error is None
        marks = watermarks(batches[:number])
        # A row is in the five minutes where its minute took it in; a minute is there once it is closed.
        sums: dict[Window, list[int]] = defaultdict(list)
        for before, rows in zip(marks, batches[:number], strict=False):
            for row in rows:
                at = time_of(row)
                for (_, minute_end), five in (
                    zip(grid(MINUTE, MINUTE)(at), grid(5 * MINUTE, 5 * MINUTE)(at), strict=True) if at else []
                ):
                    in_time = before is None or minute_end + MINUTE > before
                    if in_time and marks[-1] is not None and five[1] + 3 * MINUTE <= marks[-1]:
                        sums[five].append(int(str(row["v"])))
        assert shown(lab, "five") == Counter(
            {(*window, None, len(values), sum(values)): 1 for window, values in sums.items()}
        )
        assert late(lab, "five") == Counter()
    assert sums
    assert lab.verify("five").equal


@pytest.mark.long
def test_a_watermark_moves_on_through_a_final_table_that_gets_no_row(lab) -> None:
    lab.files("ev", EVENTS)
    lab.declare(
        "CREATE MATERIALIZED TABLE sums FRESHNESS = INTERVAL '10' SECOND EMIT FINAL AS SELECT k, v, ts, sum(v) OVER "
        "(PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW) AS s "
        "FROM ev WHERE v > 0"
    )
    lab.declare("CREATE MATERIALIZED TABLE shown FRESHNESS = INTERVAL '10' SECOND AS SELECT k, ts, s FROM sums")
    lab.declare(
        "CREATE MATERIALIZED TABLE waits (PRIMARY KEY (k)) FRESHNESS = INTERVAL '10' SECOND "
        "EMIT FINAL WHEN (watermark() > ts + INTERVAL '5' MINUTES) AS SELECT k, ts, s FROM shown"
    )
    lab.land("ev", "1.json", [event(1, "a", 2, 1), event(2, "b", 1, 4)])
    assert lab.refresh("waits").error is None
    assert lab.rows("waits") == []
    # The watermark moves by a row that the table does not have.
    lab.land("ev", "2.json", [event(3, "a", 0, 8)])
    assert lab.refresh("waits").error is None
    assert [(row["k"], row["s"]) for row in lab.rows("waits")] == [("a", 2)]


@pytest.mark.long
def test_a_watermark_moves_on_through_a_table_whose_rows_stay_as_they_are(lab) -> None:
    lab.files("ev", EVENTS)
    lab.declare(
        "CREATE MATERIALIZED TABLE shown (PRIMARY KEY (k)) FRESHNESS = INTERVAL '10' SECOND AS "
        "SELECT k, max(ts) AS ts FROM ev WHERE v > 0 GROUP BY k"
    )
    lab.declare(
        "CREATE MATERIALIZED TABLE waits (PRIMARY KEY (k)) FRESHNESS = INTERVAL '10' SECOND "
        "EMIT FINAL WHEN (watermark() > ts + INTERVAL '5' MINUTES) AS SELECT k, ts FROM shown"
    )
    lab.land("ev", "1.json", [event(1, "a", 2, 1), event(2, "b", 1, 4)])
    assert lab.refresh("waits").error is None
    lab.land("ev", "2.json", [event(3, "a", 0, 8)])
    assert lab.refresh("waits").error is None
    assert [row["k"] for row in lab.rows("waits")] == ["a"]
    # Nothing moved: no commit.
    assert lab.refresh("shown").committed is False


@pytest.mark.long
def test_a_final_table_over_one_that_was_computed_anew_is_computed_anew(lab) -> None:
    lab.files("ev", EVENTS)
    for least, lateness in ((0, 0), (1, 120)):
        minutes = f"TUMBLE((SELECT * FROM ev WHERE v > {least}), DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
        declare(lab, "minutes", query(minutes), lateness)
        hours = "TUMBLE((SELECT k, total AS v, window_end AS ts FROM minutes), DESCRIPTOR(ts), INTERVAL '1' HOUR)"
        declare(lab, "hours", query(hours), 0)
        if not least:
            lab.land("ev", "1.json", [event(1, "a", 1, 1), event(2, "a", 2, 5), event(3, "a", 1, 150)])
            assert lab.refresh("hours").error is None
            before = shown(lab, "hours")
            assert [row[-1] for row in before] == [3]
        else:
            assert lab.refresh("minutes", full=True).error is None
            lab.refresh("hours", upstreams=False)
    # With two hours more the watermark of the minutes went back by as much.
    outcome = lab.refresh("hours")
    assert outcome.error is None
    assert shown(lab, "hours") == Counter()
    assert lab.verify("hours").equal
    lab.land("ev", "2.json", [event(4, "a", 5, 40), event(5, "a", 1, 300)])
    assert lab.refresh("hours").error is None
    assert [row[-1] for row in shown(lab, "hours")] == [7]
    assert lab.verify("hours").equal


@pytest.mark.long
def test_rows_that_come_while_no_watermark_is_declared_are_late_by_the_one_that_stands(lab) -> None:
    lab.files("ev", EVENTS)
    declare(lab, "t", query(FIVE_MINUTES), 0)
    lab.land("ev", "1.json", [event(1, "a", 1, 1), event(2, "a", 1, 12)])
    assert lab.refresh("t").error is None
    before = shown(lab, "t")
    (lab.settings.declarations / "t.sql").unlink()
    redeclare(lab, EVENTS.split(", WATERMARK")[0])
    lab.land("ev", "2.json", [event(3, "a", 8, 2), event(4, "a", 2, 13)])
    assert lab.refresh("ev").error is None
    redeclare(lab, EVENTS)
    declare(lab, "t", query(FIVE_MINUTES), 0)
    lab.land("ev", "3.json", [event(5, "a", 1, 30)])
    assert lab.refresh("t").error is None
    assert before <= shown(lab, "t")
    assert sum(late(lab, "t").values()) == 1
    for name in ("t", "t__late"):
        assert lab.verify(name).equal


def test_a_final_table_goes_on_from_no_other_declaration(lab) -> None:
    lab.files("ev", EVENTS)
    declare(lab, "t", query(FIVE_MINUTES), 0)
    lab.land("ev", "1.json", [event(1, "a", 1, 1), event(2, "a", 1, 12)])
    assert lab.refresh("t").error is None
    before = shown(lab, "t")
    declare(lab, "t", query(FIVE_MINUTES), 3)
    for start in ("now", "2026-11-01"):
        # By itself: the table of late rows, which a Lab refreshes first, has another declaration too.
        asked = RefreshRequest(start=start)
        refused = refresh_by(lab.runtime, "t", asked)
        assert isinstance(refused.error, DefinitionChangedError)
        assert "EMIT FINAL writes a row once" in str(refused.error)
    assert shown(lab, "t") == before


@pytest.mark.long
def test_rows_of_several_logs_wait_for_the_slowest(lab) -> None:
    lab.files("ev", EVENTS)
    lab.files("other", EVENTS)
    union = "(SELECT k, v, ts FROM ev UNION ALL SELECT `o`.k, v AS v, o.ts FROM other AS o WHERE o.v IS NOT NULL)"
    declare(lab, "t", query(f"TUMBLE({union}, DESCRIPTOR(ts), INTERVAL '5' MINUTES)"), 0)
    lab.land("ev", "1.json", [event(1, "a", 1, 1), event(2, "a", 1, 20)])
    lab.land("other", "1.json", [event(1, "a", 1, 2)])
    assert lab.refresh("t").error is None
    assert shown(lab, "t") == Counter()
    lab.land("other", "2.json", [event(2, "a", 1, 3), event(3, "b", 1, 6.5)])
    assert lab.refresh("t").error is None
    assert shown(lab, "t") == {(START, START + 5 * MINUTE, "a", 3, 3): 1}
    # This event is late in its own log, although the table has not come as far.
    lab.land("ev", "2.json", [event(3, "a", 1, 14)])
    lab.land("other", "3.json", [event(4, "b", 1, 30)])
    assert lab.refresh("t").error is None
    assert [(row["k"], row["position"]) for row in lab.late("t")] == [("a", 2)]
    assert lab.verify("t").equal


@pytest.mark.long
def test_top_rows_and_counted_windows_are_final_too(lab) -> None:
    lab.files("ev", EVENTS, primary_key=["id"])
    declare(
        lab, "best", "SELECT window_start, id, v FROM (SELECT *, rank() OVER (PARTITION BY window_end ORDER BY v DESC, "
        f"id) AS place FROM {FIVE_MINUTES}) WHERE place <= 2", 0,
    )  # fmt: skip
    declare(
        lab, "pairs", "SELECT k, window_end, sum(v) AS total, count(*) AS rows FROM COUNT_WINDOW(TABLE ev PARTITION BY "
        "k ORDER BY ts, id, SIZE => 2) GROUP BY k, window_number, window_end", 0,
    )  # fmt: skip
    lab.land("ev", "1.json", [event(1, "a", 5, 1), event(2, "b", 7, 2), event(3, "a", 6, 3), event(4, "a", 9, 7)])
    assert lab.refresh("ev").error is None
    lab.land("ev", "2.json", [event(5, "a", 1, 0.5), event(6, "b", 2, 4), event(7, "a", 3, 10)])
    for name in ("best", "pairs"):
        assert lab.refresh(name).error is None
    assert shown(lab, "best") == {(START, 2, 7): 1, (START, 3, 6): 1}
    # The row of minute 0.5 came after the watermark had passed it.
    assert [row["id"] for row in lab.late("pairs")] == [5, 6]
    assert shown(lab, "pairs") == {("a", START + 3 * MINUTE, 11, 2): 1}
    for name in ("best", "pairs"):
        assert lab.verify(name).equal


@pytest.mark.long
def test_a_restored_table_closes_its_windows_again(lab) -> None:
    lab.files("ev", EVENTS)
    declare(lab, "t", query(FIVE_MINUTES), 0)
    batches = drawn_batches(21)
    for number, batch in enumerate(batches, 1):
        lab.land("ev", f"{number}.json", batch)
        assert lab.refresh("t").error is None
        if number == 3:
            kept = shown(lab, "t"), late(lab, "t"), lab.watermark("ev")
            lab.create_savepoint("s")
    assert shown(lab, "t") != kept[0]
    lab.restore_savepoint("s")
    assert (shown(lab, "t"), late(lab, "t"), lab.watermark("ev")) == kept
    assert lab.verify("t").equal
    # The files that the log had after the savepoint are read again, in one batch.
    assert lab.refresh("t").error is None
    again = [*batches[:3], [row for batch in batches[3:] for row in batch]]
    assert (shown(lab, "t"), late(lab, "t")) == expected(FIVE_MINUTES, again, 0)
    assert lab.verify("t").equal


@pytest.mark.long
def test_calendars_times_without_a_zone_and_clocks_that_are_wrong(lab) -> None:
    lab.files("ev", "id BIGINT, ts TIMESTAMP_NTZ, WATERMARK FOR ts AS ts")
    lab.declare(
        "CREATE MATERIALIZED TABLE days EMIT FINAL AS SELECT window_start, window_end, count(*) AS n FROM "
        "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' DAY, TIME_ZONE => 'America/New_York') GROUP BY 1, 2"
    )
    local = ["2026-03-08 04:59:59", "2026-03-08 05:00:00", "2026-03-09 03:59:59.999999", "2026-03-09 04:00:00"]
    lab.land("ev", "1.json", [{"id": n, "ts": at} for n, at in enumerate([*local, "2999-01-01 00:00:00", None])])
    assert lab.refresh("days").error is None
    at = [datetime(2026, 3, day, 5 if day < 9 else 4, tzinfo=UTC) for day in (7, 8, 9)]
    # The day on which clocks are set forward has 23 hours; the clock of the year 2999 closes nothing.
    assert shown(lab, "days") == {(at[0], at[1], 1): 1, (at[1], at[2], 2): 1}
    lab.land("ev", "2.json", [{"id": 9, "ts": "2026-03-08 12:00:00"}, {"id": 10, "ts": "2026-03-10 04:00:00"}])
    assert lab.refresh("days").error is None
    assert [(row["id"], row["late_by"], row["position"]) for row in lab.late("days")] == [(9, Decimal(0), 2)]
    assert shown(lab, "days")[at[2], at[2] + timedelta(days=1), 1] == 1
    assert lab.verify("days").equal
    assert lab.verify("days__late").equal


@pytest.mark.long
def test_time_that_passes_closes_windows_too(lab) -> None:
    lab.files("ev", EVENTS, **{"watermark.idle": "1 minute", "watermark.when-idle": "advance"})
    lab.declare(
        "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '10' SECOND EMIT FINAL AS SELECT window_start, count(*) AS n "
        "FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '5' MINUTES) GROUP BY window_start"
    )
    now = lab.clock()
    lab.land("ev", "1.json", [{"id": 1, "k": "a", "v": 1, "ts": now.isoformat()}])
    lab.clock.advance(seconds=20)
    lab.tick()
    assert shown(lab, "t") == Counter()
    for _ in range(12):
        lab.clock.advance(minutes=1)
        assert all(each.error is None for each in lab.tick())
    assert sum(shown(lab, "t").values()) == 1
    assert lab.verify("t").equal


@pytest.mark.long
def test_constraints_keys_and_partitions_of_a_final_table(lab) -> None:
    lab.files("ev", EVENTS)
    lab.declare(
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (window_start, k), CONSTRAINT few EXPECT (n < 3) ON VIOLATION "
        "QUARANTINE) PARTITIONED BY (k) EMIT FINAL AS SELECT window_start, coalesce(k, 'none') AS k, count(*) AS n "
        "FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '5' MINUTES) GROUP BY window_start, k"
    )
    lab.land("ev", "1.json", [event(1, "a", 1, 1), event(2, None, 1, 2), event(3, "b", 1, 7)])
    lab.land("ev", "2.json", [event(n, "a", 1, 8) for n in range(4, 8)])
    assert lab.refresh("t").error is None
    lab.land("ev", "3.json", [event(8, "a", 1, 30)])
    assert lab.refresh("t").rejected == 1
    assert shown(lab, "t") == {
        (START, "a", 1): 1, (START, "none", 1): 1, (START + 5 * MINUTE, "b", 1): 1
    }  # fmt: skip
    assert len(lab.quarantine("t")) == 1
    assert lab.refresh("t").strategy == "noop"
    refused = lab.refresh("t", partitions={"k": "a"})
    assert refused.error is not None
    assert refused.error.code == "PARTITION"
    assert lab.verify("t").equal


@pytest.mark.long
def test_a_new_lateness_is_taken_up_from_the_beginning(lab) -> None:
    lab.files("ev", EVENTS)
    declare(lab, "t", query(FIVE_MINUTES), 0)
    batches = drawn_batches(33)
    for number, batch in enumerate(batches, 1):
        lab.land("ev", f"{number}.json", batch)
        assert lab.refresh("t").error is None
    declare(lab, "t", query(FIVE_MINUTES), 3)
    with pytest.raises(DefinitionChangedError):
        lab.refresh("t")
    assert lab.refresh("t", full=True).error is None
    assert (shown(lab, "t"), late(lab, "t")) == expected(FIVE_MINUTES, batches, 3)


def test_rows_without_windows_are_written_once(lab) -> None:
    lab.files("ev", EVENTS)
    lab.declare("CREATE MATERIALIZED TABLE big EMIT FINAL AS SELECT id, v * 2 AS twice FROM ev WHERE v > 4")
    lab.land("ev", "1.json", [event(1, "a", 5, 1), event(2, "b", 2, 2)])
    assert lab.refresh("big").error is None
    lab.land("ev", "2.json", [event(3, "a", 9, -500)])
    assert lab.refresh("big").strategy == "append"
    assert shown(lab, "big") == {(1, 10): 1, (3, 18): 1}
    assert "big__late" not in [str(name) for name in lab.runtime.graph.order]


@pytest.fixture(scope="module")
def inputs(shared_lab):
    """The inputs of the refused tables."""
    shared_lab.files("ev", EVENTS)
    shared_lab.files("none", "v INT, ts TIMESTAMP")
    shared_lab.files("two", "v INT, ts TIMESTAMP, other TIMESTAMP, WATERMARK FOR ts AS ts")
    shared_lab.source("plain", "v INT, ts TIMESTAMP")
    return shared_lab


W = "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
OVER = "DESCRIPTOR(ts), INTERVAL '1' HOUR)"


@pytest.mark.parametrize(
    ("code", "query", "said"),
    [
        ("FINAL_INPUT", "SELECT k, count(*) AS n FROM ev GROUP BY k", "GROUP BY"),
        ("FINAL_INPUT", "SELECT DISTINCT k FROM ev", "DISTINCT"),
        ("FINAL_INPUT", "SELECT k FROM ev WHERE v IN (SELECT v FROM ev)", "subquery"),
        ("FINAL_INPUT", "SELECT a.k FROM ev a JOIN ev b ON a.id = b.id", "JOIN"),
        ("FINAL_INPUT", f"SELECT k, sum(v) AS s FROM {W} GROUP BY k", "GROUP BY without"),
        ("FINAL_INPUT", f"SELECT max(v) AS s FROM {W}", "without GROUP BY"),
        ("FINAL_INPUT", f"SELECT v FROM {W} LIMIT 3", "LIMIT"),
        ("FINAL_INPUT", f"SELECT v, rank() OVER (ORDER BY v) AS r FROM {W}", "not partitioned"),
        ("FINAL_INPUT", f"SELECT window_end, collect_list(v) AS vs FROM {W} GROUP BY window_end", "order of reading"),
        ("FINAL_INPUT", f"SELECT window_end, now() AS at FROM {W}", "now"),
        ("FINAL_INPUT", f"SELECT a.v FROM {W} a JOIN {W} b ON a.id = b.id", "one window function"),
        ("FINAL_INPUT", f"SELECT v FROM TUMBLE((SELECT v, max(ts) AS ts FROM ev GROUP BY v), {OVER}", "GROUP"),
        ("FINAL_INPUT", f"SELECT v FROM TUMBLE((SELECT v, max(ts) AS ts FROM ev), {OVER}", "MAX"),
        ("FINAL_INPUT", f"SELECT v FROM TUMBLE((SELECT v, ts + INTERVAL '1' DAY AS ts FROM ev), {OVER}", "no column"),
        ("FINAL_INPUT", f"SELECT v FROM TUMBLE(TABLE plain, {OVER}", "neither"),
        ("WATERMARK_MISSING", f"SELECT v FROM TUMBLE(TABLE none, {OVER}", "no watermark"),
        ("WATERMARK_MISSING", f"SELECT v FROM TUMBLE((SELECT v, other AS ts FROM two), {OVER}", "of ts"),
    ],
)
def test_a_query_that_cannot_be_final_is_refused_before_any_work(inputs, code: str, query: str, said: str) -> None:
    require_refusal(inputs, query, code, said)


def test_emit_takes_documented_words_only(lab) -> None:
    lab.files("ev", EVENTS)
    for clause, code in (
        ("EMIT FINAL ALLOWED LATENESS INTERVAL '-1' MINUTE", "LATENESS"),
        ("EMIT FINAL ALLOWED LATENESS INTERVAL '1' MINUTE WHEN (v > 1)", "LATENESS"),
        ("EMIT SOMETIMES", "SYNTAX"),
        ("WITH ('merge' = 'first_row') EMIT FINAL", "FINAL_INPUT"),
    ):
        with pytest.raises(DeclarationErrors) as refused:
            lab.declare(f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (id)) {clause} AS SELECT id, v FROM ev")
        assert [error.rule for error in refused.value.errors] == [code], clause
    lab.declare("CREATE MATERIALIZED TABLE t EMIT CHANGES AS SELECT id, v FROM ev")


@pytest.mark.long
def test_a_window_that_ends_behind_the_very_watermark_is_read_by_its_last_instant(lab):
    lab.files("ev", "id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts")
    window = "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' DAY, TIME_ZONE => 'UTC')"
    read = "(SELECT window_time AS at, n FROM days)"
    lab.declare(
        "CREATE MATERIALIZED TABLE days FRESHNESS = INTERVAL '5' MINUTE EMIT FINAL AS SELECT window_start, window_end, "
        f"window_time, count(*) AS n FROM {window} GROUP BY window_start, window_end, window_time"
    )
    lab.declare(
        "CREATE MATERIALIZED TABLE months FRESHNESS = INTERVAL '5' MINUTE EMIT FINAL AS SELECT window_start, sum(n) AS "
        f"n FROM TUMBLE(TABLE {read}, DESCRIPTOR(at), INTERVAL '1' MONTH, TIME_ZONE => 'UTC') GROUP BY window_start"
    )
    frame = "ORDER BY window_time RANGE BETWEEN INTERVAL '7' DAYS PRECEDING AND CURRENT ROW"
    lab.declare(
        "CREATE MATERIALIZED TABLE so_far FRESHNESS = INTERVAL '5' MINUTE EMIT FINAL AS SELECT window_time AS at, "
        f"sum(n) OVER ({frame}) AS n FROM days"
    )
    # The last instant of a month and of a day, and then rows of the next ones.
    for number, at in enumerate(("01-31T23:59:59.999999", "02-01T00:00:05", "02-01T23:59:59.999999", "03-02T00:00:00")):
        lab.land("ev", f"{number}.json", [{"id": number, "ts": f"2026-{at}Z"}])
        assert all(outcome.error is None for outcome in lab.refresh_all())
    for name in ("days", "months", "so_far"):
        assert lab.diff(name) == [], name
    assert [row["n"] for row in lab.rows("days")] == [1, 2]
    assert [row["n"] for row in lab.rows("months")] == [1, 2]
    assert [row["n"] for row in lab.rows("so_far")] == [1, 3]
    for name in ("days", "months", "so_far"):
        assert lab.rows(f"{name}__late") == []
