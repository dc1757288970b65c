"""Rows enter and leave a table as time passes, and nothing else is computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from freshline.refresh import table
from freshline.refresh.outcome import receipt_of
from freshline.values.receipt import Receipt

EVENTS = "id BIGINT, k STRING, v INT, ts TIMESTAMP, day DATE"
HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)

Row = dict[str, Any]


def timestamp(at: datetime | None) -> str:
    return "NULL" if at is None else f"TIMESTAMP '{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%fZ}'"


def insert(lab: Any, rows: Sequence[tuple[int, str, int, datetime | None]]) -> None:
    values = ", ".join(
        f"({number}, '{k}', {v}, {timestamp(at)}, {'NULL' if at is None else f'DATE {at.date().isoformat()!r}'})"
        for number, k, v, at in rows
    )
    lab.sql(f"INSERT INTO ev VALUES {values}")


def declare(lab: Any, name: str, query: str, columns: str = "") -> None:
    lab.declare(f"CREATE MATERIALIZED TABLE {name} {columns} FRESHNESS = INTERVAL '1' MINUTE AS {query}")


def clock_of(lab: Any, name: str) -> datetime:
    receipt: Receipt | None = lab.receipt(name)
    assert receipt is not None
    assert receipt.clock is not None
    return receipt.clock


CONDITIONS: dict[str, tuple[str, Callable[[Row, datetime], bool]]] = {
    "after": ("ts > now() - INTERVAL '1' HOUR", lambda row, now: row["ts"] > now - HOUR),
    "from_then": ("ts >= now() - INTERVAL '1' HOUR", lambda row, now: row["ts"] >= now - HOUR),
    "before": ("current_timestamp() - INTERVAL 1 HOUR > ts", lambda row, now: row["ts"] < now - HOUR),
    "until_then": ("NOT id = -1 AND (ts <= current_timestamp)", lambda row, now: row["ts"] <= now),
    "between": (
        "ts BETWEEN now() - INTERVAL '2' HOURS AND now() + INTERVAL '30' MINUTES AND v > 0",
        lambda row, now: now - 2 * HOUR <= row["ts"] <= now + HOUR / 2 and row["v"] > 0,
    ),
    "holds": (
        "now() BETWEEN ts AND ts + INTERVAL '1' HOUR",
        lambda row, now: row["ts"] <= now <= row["ts"] + HOUR,
    ),
    "two": (
        "ts > now() - INTERVAL '1' HOUR AND ts + INTERVAL '10' MINUTES <= now()",
        lambda row, now: now - HOUR < row["ts"] <= now - HOUR / 6,
    ),
    "today": ("day = current_date()", lambda row, now: row["day"] == now.date()),
    "days": ("current_date - 2 <= day", lambda row, now: row["day"] >= now.date() - timedelta(days=2)),
    "months": (
        "ts >= date_trunc('MONTH', now()) AND day < date_add(curdate(), 30)",
        lambda row, now: (
            row["ts"] >= now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            and row["day"] < now.date() + timedelta(days=30)
        ),
    ),
}


@pytest.mark.long
def test_rows_enter_and_leave_as_the_clock_moves(lab: Any) -> None:
    """Every comparison, with rows at the bound and a microsecond beside it, NULL times, and a time before 1970."""
    lab.source("ev", EVENTS, primary_key=["id"])
    sides = [f"SELECT '{name}' AS c, id FROM ev WHERE {condition}" for name, (condition, _) in CONDITIONS.items()]
    declare(lab, "every", " UNION ALL ".join(sides))
    start = lab.clock()
    beside = [step * MICROSECOND for step in (-1, 0, 1)]
    steps = [timedelta(0), HOUR / 2, timedelta(days=40)]
    bounds = [-2 * HOUR, -HOUR, -HOUR / 6, timedelta(0), HOUR / 2]
    times = sorted({start + step + bound + near for step in steps[:2] for bound in bounds for near in beside})
    times += [start + timedelta(days=days) for days in (-400, -3, -2, -1, 1, 2, 3, 45)]
    insert(lab, [(number, "a", number % 3, at) for number, at in enumerate(times)])
    insert(lab, [(1_000, "a", 1, None), (1_001, "b", 2, datetime(1969, 7, 1, tzinfo=UTC))])
    rows = [row for row in lab.rows("ev") if row["ts"] is not None]
    for step in steps:
        lab.clock.advance(seconds=(start + step - lab.clock()).total_seconds())
        outcome = lab.refresh("every")
        assert outcome.error is None, outcome.error
        assert outcome.strategy == ("keys" if step else "full")
        shown = {(row["c"], row["id"]) for row in lab.rows("every")}
        for name, (_, holds) in CONDITIONS.items():
            expected = {row["id"] for row in rows if holds(row, lab.clock())}
            assert {number for c, number in shown if c == name} == expected, (name, step)
    assert lab.diff("every") == []
    assert "time passes: keys" in str(lab.explain("every"))


@pytest.mark.long
def test_changed_rows_and_time_go_together(lab: Any) -> None:
    """Corrections across the bound, deletes of rows that left meanwhile, late rows, and groups that become empty."""
    lab.source("ev", EVENTS, primary_key=["id"])
    lab.source("name", "k STRING, shown STRING", primary_key=["k"])
    lab.sql("INSERT INTO name VALUES ('a', 'A'), ('b', 'B')")
    declare(lab, "recent", "SELECT id, k, v FROM ev WHERE ts > now() - INTERVAL '1' HOUR AND v < 100")
    declare(
        lab,
        "per_key",
        "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS most FROM ev "
        "WHERE ts > now() - INTERVAL '1' HOUR AND ts <= now() GROUP BY k",
    )
    declare(
        lab,
        "named",
        "WITH x AS (SELECT * FROM ev WHERE ts BETWEEN now() - INTERVAL '1' HOUR AND now()) "
        "SELECT shown, count(x.id) AS n FROM name LEFT JOIN x ON name.k = x.k GROUP BY shown",
    )
    declare(lab, "above", "SELECT k, n FROM per_key WHERE n > 1", "(PRIMARY KEY (k))")
    start = lab.clock()
    at = [start - HOUR + minute * timedelta(minutes=1) for minute in range(120)]
    insert(lab, [(number, "ab"[number % 2], number, each) for number, each in enumerate(at[:70])])
    tables = ("recent", "per_key", "named", "above")

    def refresh(minutes: float) -> dict[str, str]:
        lab.clock.advance(minutes=minutes)
        outcomes = [lab.refresh(name, upstreams=name == "above") for name in tables]
        assert all(outcome.error is None for outcome in outcomes), [str(outcome.error) for outcome in outcomes]
        for name in tables:
            assert lab.diff(name) == [], name
        return {str(outcome.table): f"{outcome.strategy} {outcome.reason.split('(')[0]}" for outcome in outcomes}

    refresh(0)
    assert refresh(5)["per_key"] == "keys ALGEBRAIC"
    # A row moves out, one in, one that has left is deleted, one is deleted before it leaves, and late ones arrive.
    lab.sql(f"UPDATE ev SET ts = {timestamp(at[0])} WHERE id = 40")
    lab.sql(f"UPDATE ev SET ts = {timestamp(at[59])}, v = -5 WHERE id = 1")
    lab.sql("DELETE FROM ev WHERE id IN (2, 8, 9, 50)")
    insert(lab, [(200, "a", 7, at[3]), (201, "b", 8, at[60]), (202, "c", 9, at[10]), (203, "a", 9, None)])
    lab.sql("UPDATE ev SET k = 'd' WHERE id IN (30, 31)")
    lab.sql("UPDATE ev SET v = v + 1 WHERE id = 20")
    lab.sql("UPDATE ev SET v = v - 1 WHERE id = 20")
    assert refresh(27)["per_key"] == "keys ALGEBRAIC"
    lab.sql("DELETE FROM name WHERE k = 'b'")
    refresh(30)
    lab.sql(f"UPDATE ev SET ts = {timestamp(at[119])} WHERE id = 60")
    refresh(24 * 60)
    assert lab.rows("recent") == lab.rows("per_key") == lab.rows("above") == []
    assert lab.rows("named") == [{"shown": "A", "n": 0}]


def test_time_that_moves_no_row_costs_no_commit(lab: Any) -> None:
    """The table is due all the same, keeps its lag, and finds the clock again where it was lost."""
    lab.source("ev", EVENTS, primary_key=["id"])
    declare(lab, "recent", "SELECT id, k, v FROM ev WHERE ts > now() - INTERVAL '1' HOUR")
    declare(lab, "below", "SELECT k, count(*) AS n FROM recent GROUP BY k")
    start = lab.clock()
    insert(lab, [(1, "a", 1, start - HOUR / 2), (2, "b", 2, start), (3, "b", 2, start - 2 * HOUR)])
    lab.tick()
    first = lab.receipt("recent")
    assert clock_of(lab, "recent") == start

    assert lab.tick() == []
    lab.clock.advance(minutes=2)
    status = {str(each.table): each for each in lab.status()}
    assert status["recent"].lag_seconds == 120
    assert status["below"].lag_seconds == 120
    outcomes = {str(outcome.table): outcome for outcome in lab.tick()}
    assert outcomes["recent"].strategy == "noop"
    assert not outcomes["recent"].committed
    assert outcomes["recent"].reason.startswith("NO_ROW_CROSSED")
    assert outcomes["recent"].clock == lab.clock()
    assert lab.receipt("recent") == first
    status = {str(each.table): each for each in lab.status()}
    assert status["recent"].lag_seconds == 0
    assert status["below"].lag_seconds == 0

    # The check with the clock is lost: rows that crossed are searched from that of the receipt on.
    lab.restart(lose_control_store=True)
    lab.clock.advance(minutes=29)
    outcomes = {str(outcome.table): outcome for outcome in lab.tick()}
    assert (outcomes["recent"].strategy, outcomes["recent"].rows_out) == ("keys", 1)
    assert outcomes["below"].committed
    assert lab.rows("below") == [{"k": "b", "n": 1}]

    # A clock that was set back takes nothing back, and the next full refresh keeps to that too.
    later = lab.clock()
    lab.runtime.clock = lambda: later - 2 * HOUR
    assert lab.refresh("recent").strategy == "noop"
    assert lab.refresh("recent", full=True).clock == later
    assert clock_of(lab, "recent") == later
    assert lab.diff("recent") == []
    lab.runtime.clock = lab.clock
    lab.clock.advance(minutes=30)
    assert lab.refresh("recent").strategy == "keys"
    assert lab.rows("recent") == []


def test_a_clock_that_is_missing_from_the_receipt_is_found(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is a clock that is not the one which the rows were compared with."""
    lab.source("ev", EVENTS, primary_key=["id"])
    declare(lab, "recent", "SELECT id FROM ev WHERE ts > now() - INTERVAL '1' HOUR")
    insert(lab, [(1, "a", 1, lab.clock() - HOUR / 2), (2, "b", 2, lab.clock())])
    monkeypatch.setattr(table, "receipt_of", lambda *given: replace(receipt_of(*given), clock=None))
    lab.refresh("recent")
    assert not lab.verify("recent").equal
    assert "does not have the time" in lab.verify("recent").detail

    monkeypatch.setattr(table, "receipt_of", lambda *given: replace(receipt_of(*given), clock=lab.clock() + HOUR))
    outcome = lab.refresh("recent")
    assert (outcome.strategy, outcome.reason.split(":")[0]) == ("full", "NO_CLOCK")
    assert [sign for sign, _ in lab.diff("recent")] == ["+", "+"]


def test_a_restored_table_goes_on_from_its_own_clock(lab: Any) -> None:
    """A savepoint has the rows of its clock; what left since leaves again."""
    lab.source("ev", EVENTS, primary_key=["id"])
    declare(lab, "recent", "SELECT id, k, ts FROM ev WHERE ts > now() - INTERVAL '1' HOUR", "(PRIMARY KEY (id))")
    start = lab.clock()
    insert(lab, [(number, "a", 1, start - number * HOUR / 4) for number in range(6)])
    lab.refresh("recent")
    lab.create_savepoint("before")
    lab.clock.advance(minutes=20)
    lab.refresh("recent")
    assert len(lab.rows("recent")) == 3
    lab.restore_savepoint("before")
    assert len(lab.rows("recent")) == 4
    assert clock_of(lab, "recent") == start
    assert lab.verify("recent").equal
    lab.clock.advance(minutes=20)
    assert lab.refresh("recent").error is None
    assert [row["id"] for row in lab.rows("recent")] == [0, 1]
    assert lab.diff("recent") == []


@pytest.mark.long
def test_rows_of_a_log_and_of_windows_leave_too(lab: Any) -> None:
    """The filters are over a log table, over the end of a window, and over all of a UNION ALL."""
    lab.files("ev", "id BIGINT, k STRING, ts TIMESTAMP")
    declare(
        lab,
        "windows",
        "SELECT k, window_start, count(*) AS n FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '10' MINUTES) "
        "WHERE window_end > now() - INTERVAL '1' HOUR GROUP BY k, window_start",
    )
    declare(
        lab,
        "both",
        "SELECT id FROM ev WHERE ts <= now() UNION ALL "
        "SELECT -id FROM ev WHERE ts > localtimestamp() - INTERVAL 1 HOUR",
    )
    start = lab.clock()
    for minutes in (0, 14, 40, 60):
        lab.clock.advance(minutes=minutes)
        if minutes < 40:
            rows = [
                {"id": number + 100 * minutes, "k": "ab"[number % 2], "ts": (start + at * HOUR / 12).isoformat()}
                for number, at in enumerate(range(-20, 6))
            ]
            lab.land("ev", f"{lab.clock():%H%M}-{minutes}.json", rows)
        for outcome in (lab.refresh("windows"), lab.refresh("both")):
            assert outcome.error is None
        if lab.clock() > start:
            assert outcome.strategy == "keys"
        assert lab.diff("windows") == lab.diff("both") == []
        ids = [row["id"] for row in lab.rows("ev") if row["ts"] <= lab.clock()]
        ids += [-row["id"] for row in lab.rows("ev") if row["ts"] > lab.clock() - HOUR]
        assert sorted(row["id"] for row in lab.rows("both")) == sorted(ids)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, now() AS at FROM ev WHERE ts > now()",
        "SELECT id FROM ev WHERE ts > now() OR id = 1",
        "SELECT id FROM ev WHERE dayofweek(current_date()) = id",
        "SELECT a.id FROM ev AS a JOIN ev AS b ON a.id = b.id AND a.ts > now()",
        "SELECT id FROM ev WHERE EXISTS (SELECT 1 FROM ev AS e WHERE e.ts > now() AND e.id = ev.id)",
        "SELECT id FROM ev WHERE ts > now() - make_interval(0, 0, 0, id)",
        "SELECT id FROM ev WHERE ts > now() AND v > rand()",
        "SELECT node FROM CONNECTED_COMPONENTS((SELECT id, v + 0L AS v FROM ev WHERE ts > now()), DESCRIPTOR(id, v))",
        "SELECT node FROM CONNECTED_COMPONENTS((SELECT id, id AS to FROM ev), DESCRIPTOR(id, to)) WHERE node < now()",
    ],
)
def test_elsewhere_the_time_makes_a_query_nondeterministic(lab: Any, query: str) -> None:
    lab.source("ev", EVENTS, primary_key=["id"])
    declare(lab, "other", query)
    assert {case.strategy for case in lab.explain("other").cases} == {"full"}
    assert "NONDETERMINISTIC" in str(lab.explain("other"))
