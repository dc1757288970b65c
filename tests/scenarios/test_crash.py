"""Stopped at any point, a refresh leaves nothing half done; the next one, of another engine, continues.

Each story is one stop: the table before it, the stop, a new engine with or without the control store, and the table
afterwards, in which every event is once.
"""

from __future__ import annotations

import pytest

from freshline.testing import Crash
from tests.crashes import crash
from tests.scenarios.tables import HOURLY, declare, declare_merge, fill

LOG_POINTS = ["log-before-quarantine", "log-after-quarantine", "log-before-commit", "log-after-commit"]
TABLE_POINTS = ["table-pinned", "table-before-commit", "table-after-commit"]


@pytest.fixture
def events(lab):
    """A log with a merge, an append and a partition table below it; one file is read."""
    lab.files("ev", "id STRING, k STRING, ts TIMESTAMP", primary_key=["id"])
    declare_merge(lab, "SELECT k, id, ts FROM ev", "k", "first_row", order="ts", tie_breaker="id", name="first")
    declare(lab, "SELECT id, k FROM ev", "(PRIMARY KEY (id))", name="copied")
    lab.declare(
        f"CREATE MATERIALIZED TABLE days PARTITIONED BY (d) {HOURLY} "
        "AS SELECT CAST(ts AS DATE) AS d, count(*) AS n FROM ev GROUP BY CAST(ts AS DATE)"
    )
    lab.land("ev", "1.json", _text(0))
    lab.refresh_all()
    return lab


def _text(number):
    return (
        f'{{"id": "e{number}", "k": "a", "ts": "2026-01-0{5 - number}T00:00:00Z"}}\n'
        f'{{"id": "f{number}", "k": "k{number}", "ts": "2026-01-09T00:00:00Z"}}\n'
        f'{{"id": "n{number}", "ts": "2026-01-09T00:00:00Z"}}\n'
        f"{{broken {number}\n"
    )


def assert_everything_once(lab, files):
    outcomes = lab.refresh_all()
    assert [o.error for o in outcomes] == [None] * len(outcomes)
    assert sorted(row["id"] for row in lab.rows("ev")) == sorted(f"{c}{n}" for n in range(files) for c in "efn")
    found = [(row["file"], row["line"], row["error"]) for row in lab.quarantine("ev")]
    assert sorted(found) == sorted(
        (f"{n + 1}.json", line, error)
        for n in range(files)
        for line, error in ((3, "NULL_KEY(first)"), (4, "NOT_JSON"))
    )
    assert [row["id"] for row in lab.rows("first") if row["k"] == "a"] == [f"e{files - 1}"]
    for name in ("first", "copied", "days"):
        assert lab.diff(name) == [], name
    assert {o.strategy for o in lab.refresh_all()} == {"noop"}


@pytest.mark.long
def test_stops_while_files_are_read(events):
    for number, point in enumerate(LOG_POINTS, 1):
        events.land("ev", f"{number + 1}.json", _text(number))
        crash(events, point, "ev", lose_control_store=point == "log-after-quarantine")

        assert events.refresh("ev").error is None
        assert len(events.rows("ev")) == 3 * (number + 1), point

    assert_everything_once(events, 1 + len(LOG_POINTS))


def test_stops_while_tables_are_written(events):
    for number, point in enumerate(TABLE_POINTS, 1):
        events.land("ev", f"{number + 1}.json", _text(number))
        events.refresh("ev")
        for name in ("first", "copied", "days"):
            with events.crash_at(point), pytest.raises(Crash):
                events.refresh(name, upstreams=False)
        events.restart(lose_control_store=point == "table-after-commit")
        if number < len(TABLE_POINTS):
            assert [o.error for o in events.refresh_all()] == [None] * 4, point

    assert_everything_once(events, 1 + len(TABLE_POINTS))


@pytest.mark.long
def test_one_stop_after_the_other_before_anything_is_committed(events):
    events.land("ev", "2.json", _text(1))
    for point in ("log-after-quarantine", "log-before-commit", "log-after-quarantine"):
        crash(events, point, "ev")

    assert_everything_once(events, 2)


def test_a_stop_after_a_table_was_made(lab):
    fill(lab, "s", "id INT", "(1)")
    declare(lab, "SELECT id FROM s")
    with lab.crash_at("table-created"), pytest.raises(Crash):
        lab.refresh("t")
    assert lab.receipt("t") is None
    lab.restart()

    outcome = lab.refresh("t")

    assert outcome.reason.startswith("NO_RECEIPT")
    assert lab.rows("t") == [{"id": 1}]


def test_a_stop_between_noting_files_and_reading_more(lab, monkeypatch):
    monkeypatch.setattr("freshline.sources.files.side_table.RECENT_FILES", 2)
    lab.files("ev", "id STRING")
    for batch in range(2):
        for number in range(2):
            lab.land("ev", f"{batch}{number}.json", f'{{"id": "{batch}{number}"}}\n')
        if batch == 0:
            lab.refresh("ev")
    crash(lab, "log-after-flush", "ev")

    assert lab.refresh("ev").rows_out == 2
    lab.land("ev", "20.json", '{"id": "20"}\n')
    lab.restart(lose_control_store=True)
    assert lab.refresh("ev").rows_out == 1
    assert [row["id"] for row in lab.rows("ev")] == ["00", "01", "10", "11", "20"]
