"""A backfill of days: it resumes by the table's own log, and one day that cannot be done keeps no other from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from freshline.commit.delta_log import read_receipts
from freshline.compute.cancellation import Cancellation
from freshline.engine.backfills import BackfillRequest, Backfills
from freshline.engine.requests import Request
from freshline.engine.work import Job, WorkQueue
from freshline.plan.request import BACKFILL, RefreshRequest
from freshline.run import refresh_table
from freshline.testing import Crash, Lab
from freshline.values.names import TableName
from tests.plain_lab import PlainLab

T, BELOW = TableName.parse("t"), TableName.parse("below")
NOON = datetime(2026, 1, 6, 12, tzinfo=UTC)
DAYS = [f"2026-01-0{day}" for day in range(1, 7)]
DAILY = "PARTITIONED BY (ds) WITH ('partition.unit' = 'day', 'partition.start' = '2026-01-01')"


@pytest.fixture
def days(spark):
    """Six days of a source that is partitioned like the table over it, and a table below."""
    with PlainLab(spark, start=NOON) as lab:
        lab.sql(
            f"CREATE TABLE raw (ds DATE, id INT, n INT) USING delta PARTITIONED BY (ds) "
            f"LOCATION '{lab.settings.root / 'raw'}' TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
        )
        lab.sql("INSERT INTO raw SELECT date_add(DATE'2026-01-01', CAST(id DIV 4 AS INT)), id, id * id FROM range(24)")
        lab.declare(
            "CREATE SOURCE s (ds DATE, id INT, n INT) "
            f"WITH ('connector' = 'delta', 'path' = '{lab.settings.root / 'raw'}')"
        )
        lab.declare(
            f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (ds)) {DAILY} FRESHNESS = INTERVAL '6' HOUR AS "
            "SELECT ds, count(*) AS c, sum(n) AS n FROM s GROUP BY ds"
        )
        lab.declare(
            f"CREATE MATERIALIZED TABLE below {DAILY} FRESHNESS = INTERVAL '6' HOUR AS SELECT ds, n * 2 AS n FROM t"
        )
        yield lab


def backfill(
    lab: Lab, name: str = "b", *, before: Callable[[Job], object] = lambda job: None, **asked: Any
) -> tuple[str, list[dict[str, Any]]]:
    """Ask for a backfill as the engine does; its state and its events. `before` is called with each refresh."""

    def refresh(job):
        before(job)
        return refresh_table(lab.runtime, job.table, job.request, cancellation=job.cancellation, progress=job.progress)

    work = WorkQueue(refresh, 2, lambda job, outcome: None)
    request = Request("backfill", {})
    asked.setdefault("ranges", ((None, DAYS[0], DAYS[-1]),))
    state = Backfills(lab.runtime, work, dict).run(request, lab.runtime.graph, BackfillRequest(T, name, **asked))
    work.close(5)
    return state, request.events(0)[0]


def one(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [event for event in events if event["type"] == kind]
    return found


def actions(events: list[dict[str, Any]]) -> dict[str, str]:
    return {each["partition"]: each["action"] for each in one(events, "plan")["chunks"] if each["table"] == "t"}


def commits(lab: Lab) -> Counter[str]:
    """How often each partition of t was replaced by name."""
    return Counter(key for _, receipt in read_receipts(lab.path("t")) for key in receipt.replaced)


def test_a_backfill_goes_on_where_it_was_killed_and_late_rows_make_their_day_stale(days):
    for number, key in enumerate(DAYS[:3]):
        request = RefreshRequest(partitions=((("ds", key),),), cause=BACKFILL, backfill="b")
        with days.crash_at("table-after-commit" if number < 2 else "table-before-commit"), pytest.raises(Crash):
            refresh_table(days.runtime, T, request, cancellation=Cancellation(), progress=lambda message: None)
    days.restart(lose_control_store=True)

    state, events = backfill(days, again=True, resume=True)

    assert state == "SUCCEEDED"
    assert actions(events) == {**dict.fromkeys(DAYS[:2], "skip"), **dict.fromkeys(DAYS[2:], "replace")}
    assert commits(days) == Counter(DAYS)
    assert days.diff("t") == []
    assert days.receipt("t").data_timestamp is None
    assert days.status()[1].lag_seconds is None, "a backfill says nothing about how far the table lags"

    assert set(actions(backfill(days, dry_run=True)[1]).values()) == {"skip"}
    days.sql("INSERT INTO raw VALUES (DATE'2026-01-02', 100, 1000)")
    days.sql("UPDATE raw SET n = n + 1 WHERE id = 20")
    state, events = backfill(days, "c", cascade=True)
    assert [key for key, action in actions(events).items() if action == "replace"] == [DAYS[1], DAYS[5]]
    assert state == "SUCCEEDED"
    # The table below has the days that were asked for: an attempt that was stopped may have left some of them undone.
    assert [str(row["ds"]) for row in days.rows("below")] == DAYS
    days.refresh("below")
    days.sql("DELETE FROM raw WHERE ds = DATE'2026-01-03'")
    state, events = backfill(days, "d", cascade=True)
    assert state == "SUCCEEDED"
    assert [(each["table"], each["partition"]) for each in one(events, "backfill")["done"]] == [
        ("t", DAYS[2]),
        *[("below", day) for day in DAYS],
    ]
    assert days.diff("t") == days.diff("below") == []
    assert DAYS[2] not in {str(row["ds"]) for row in days.rows("below")}


@pytest.mark.long
def test_a_day_whose_files_are_gone_fails_with_its_reason_and_the_others_are_done(days):
    for file in Path(days.settings.root / "raw" / "ds=2026-01-03").glob("*.parquet"):
        file.unlink()

    state, events = backfill(days)

    assert state == "FAILED"
    result = one(events, "backfill")
    assert [each["partition"] for each in result["done"]] == [*DAYS[:2], *DAYS[3:]]
    (failed,) = result["failed"]
    assert failed["partition"] == DAYS[2]
    assert failed["error"]["code"] == "SOURCE"
    assert days.verify("t").error is None
    assert len(days.rows("t")) == 5


@pytest.mark.long
def test_partitions_of_another_declaration_are_reported_as_stale(days):
    backfill(days)
    days.declare(
        f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (ds)) {DAILY} FRESHNESS = INTERVAL '6' HOUR AS "
        "SELECT ds, count(*) AS c, sum(n) + 1 AS n FROM s GROUP BY ds"
    )

    _, events = backfill(days, "e", ranges=((None, DAYS[0], DAYS[1]),))
    (_, seen) = backfill(days, "f", dry_run=True)

    assert len(one(events, "backfill")["done"]) == 2
    assert {each["partition"]: each["state"] for each in one(seen, "plan")["chunks"]} == {
        **dict.fromkeys(DAYS[:2], "done"),
        **dict.fromkeys(DAYS[2:], "stale"),
    }


@pytest.mark.long
def test_a_definition_that_changes_in_the_middle_leaves_what_was_done_stale_and_not_wrong(days):
    other = (
        f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (ds)) {DAILY} FRESHNESS = INTERVAL '6' HOUR AS "
        "SELECT ds, count(*) AS c, sum(n) + 1 AS n FROM s GROUP BY ds"
    )
    begun = []

    def changing(job):
        begun.append(job.table)
        if len(begun) == 4:
            days.declare(other)

    state, events = backfill(days, before=changing)
    (_, seen) = backfill(days, "f", dry_run=True)

    assert state == "SUCCEEDED"
    assert one(events, "backfill")["stale"] == DAYS[:3]
    states = {each["partition"]: each["state"] for each in one(seen, "plan")["chunks"]}
    assert states == {**dict.fromkeys(DAYS[:3], "stale"), **dict.fromkeys(DAYS[3:], "done")}
    # Partitions that are still stale have the rows of their own declaration; the rest follows the new one.
    rows = {str(row["ds"]): row["n"] for row in days.rows("t")}
    squares = {key: sum(n * n for n in range(4 * day, 4 * day + 4)) for day, key in enumerate(DAYS)}
    assert rows == {key: squares[key] + (0 if key in DAYS[:3] else 1) for key in DAYS}

    assert set(actions(backfill(days, "g")[1]).items()) >= {(key, "replace") for key in DAYS[:3]}
    assert days.diff("t") == []
