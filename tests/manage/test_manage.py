"""Overrides and suspensions are decided on the newest state, recorded, and mean something when repeated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import freshline
from freshline.commit.control_store import ControlStore
from freshline.declare.project_settings import read_settings
from freshline.errors import FreshnessError, RequestError, SettingsError
from freshline.freshness.intentions import FailureRow, Intentions
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State

NOW = datetime(2026, 11, 27, 8, tzinfo=UTC)
FILES = {
    "events.sql": "CREATE SOURCE events (id BIGINT) WITH ('connector' = 'files', 'format' = 'json', 'path' = 'events')",
    "seen.sql": "CREATE MATERIALIZED TABLE seen FRESHNESS = INTERVAL '2' MINUTE AS SELECT id FROM events",
    "sales.sql": "CREATE MATERIALIZED TABLE sales FRESHNESS = INTERVAL '5' MINUTE AS SELECT id FROM seen",
}


class Project:
    """A project on disk, and the content of its control store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = NOW
        (root / "assets").mkdir(parents=True)
        (root / "pyproject.toml").write_text("[tool.freshline]\n")
        for path, text in FILES.items():
            (root / "assets" / path).write_text(text)
        self.control = ControlStore.open(read_settings(root, {}).control_store)

    def clock(self) -> datetime:
        return self.now

    def intentions(self) -> Intentions:
        return self.control.intentions.read()

    def records(self, table: str | None = None) -> list[RefreshResult]:
        return self.control.refreshes(None if table is None else TableName.parse(table))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.delenv("FRESHLINE_ENV", raising=False)
    made = Project(tmp_path / "shop")
    yield made
    made.control.close()


def test_an_override_is_kept_with_who_and_until_and_listed_in_the_records(project):
    decision = freshline.set_freshness(
        "SALES", "3 minutes", for_="48 hours", by="operator", project=project.root, clock=project.clock
    )

    (override,) = project.intentions().overrides.values()
    assert (override.table, override.freshness, override.by, override.until) == (
        TableName.parse("sales"), Freshness(180), "operator", NOW + timedelta(hours=48),
    )  # fmt: skip
    (record,) = project.records("sales")
    assert (record.state, record.mode, record.cause, record.at) == ("ALTERED", "incremental", "manual", NOW)
    assert record.reason == (
        "freshness 3 minutes until 2026-11-29 08:00:00+00:00, was 5 minutes; stays incremental; by operator"
    )
    assert decision.changes[0].before == Freshness(300)


def test_each_table_that_came_along_has_a_record(project):
    freshline.set_freshness("sales", timedelta(seconds=5), cascade=True, by="operator", project=project.root)

    assert {(str(r.table), r.state, r.mode) for r in project.records()} == {
        ("seen", "ALTERED", "continuous"),
        ("sales", "ALTERED", "continuous"),
    }

    freshline.reset_freshness("sales", cascade=True, by="operator", project=project.root)
    assert project.intentions().overrides == {}
    assert project.records("seen")[0].reason == (
        "freshness 2 minutes (as declared), was 5 seconds; incremental, was continuous; by operator"
    )


def test_a_freshness_that_is_refused_changes_nothing(project):
    with pytest.raises(FreshnessError):
        freshline.set_freshness("sales", "5 seconds", project=project.root)

    assert project.intentions() == Intentions()
    assert project.records() == []


@pytest.mark.parametrize("duration", ["0 seconds", timedelta(seconds=-5), "soon", "1 month"])
def test_a_duration_that_is_none_is_refused(project, duration):
    with pytest.raises(RequestError, match="is not a duration"):
        freshline.set_freshness("sales", "3 minutes", for_=duration, project=project.root)
    with pytest.raises(RequestError, match="is not a duration"):
        freshline.suspend("sales", for_=duration, project=project.root)
    with pytest.raises(RequestError, match="is not a freshness"):
        freshline.set_freshness("sales", duration, project=project.root)


def test_suspending_and_resuming_twice_says_so_and_records_once(project):
    for _ in range(2):
        last = freshline.suspend(
            "sales", because="wrong prices", by="operator", project=project.root, clock=project.clock
        )
    assert last.sentence.startswith("already suspended: sales, by operator")
    for _ in range(2):
        last = freshline.resume("sales", by="analyst", project=project.root)
    assert last.sentence == "not suspended: sales."

    assert [(record.state, record.reason) for record in project.records("sales")] == [
        ("RESUMED", "resumed: sales, by analyst."),
        ("SUSPENDED", "suspended: sales, by operator since 2026-11-27 08:00:00+00:00: wrong prices."),
    ]


def test_a_suspension_that_has_ended_may_be_made_again(project):
    freshline.suspend("sales", for_="1 hour", by="operator", project=project.root, clock=project.clock)
    project.now = NOW + timedelta(hours=2)

    freshline.suspend("sales", by="analyst", project=project.root, clock=project.clock)

    assert project.intentions().suspensions[TableName.parse("sales")].by == "analyst"


def test_resuming_begins_the_count_of_failures_anew(project):
    sales = TableName.parse("sales")
    project.control.intentions.record_failures(FailureRow(sales, 4, NOW, NOW, {"code": "QUERY"}))
    freshline.suspend("sales", project=project.root)

    freshline.resume("sales", project=project.root)

    assert project.control.intentions.failures() == {}


def test_two_at_once_are_both_decided_on_the_newest_state(project):
    """Each of the eight sets its own freshness: all are recorded, each from the freshness of the one before."""
    with ThreadPoolExecutor(8) as threads:
        done = list(
            threads.map(
                lambda seconds: freshline.set_freshness(
                    "sales", timedelta(seconds=seconds), by="operator", project=project.root
                ),
                range(121, 129),
            )
        )

    assert all(decision.overrides for decision in done)
    reasons = [record.reason for record in reversed(project.records("sales"))]
    values = [300, *(int(reason.split()[1]) for reason in reasons)]
    assert sorted(values[1:]) == list(range(121, 129))
    assert [reason.split("was ")[1].split(" until")[0].split(";")[0] for reason in reasons] == [
        "5 minutes", *(f"{value} seconds" for value in values[1:-1]),
    ]  # fmt: skip


def test_a_folder_without_a_project_is_reported(tmp_path):
    with pytest.raises(SettingsError):
        freshline.resume("sales", project=tmp_path)


def test_importing_freshline_loads_none_of_it():
    code = "import sys, freshline; print(sorted(name for name in sys.modules if name.startswith('freshline.')))"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "[]"


def test_a_freshness_that_refreshes_are_too_slow_for_is_set_and_warned_of(project):
    for table in ("events", "seen"):
        project.control.record_refresh(
            RefreshResult(
                table=TableName.parse(table), at=NOW, state=State.SUCCEEDED, strategy="append", reason="", seconds=4.0,
                version=2, fingerprint="f", committed=True,
            )
        )  # fmt: skip

    decision = freshline.set_freshness("seen", "5 seconds", project=project.root)

    assert project.intentions().overrides
    assert decision.warnings == (
        (
            "seen: freshness 5 seconds cannot be kept: the refreshes from events on take 8.0 s "
            "(events 4.0 s, seen 4.0 s), longer than its freshness, 5 seconds"
        ),
    )
