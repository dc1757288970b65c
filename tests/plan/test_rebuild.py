"""The content that a lost store is filled with: each refresh once, in its order, and decisions as sentences."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from freshline.plan.rebuild import newest_decisions, rebuilt_records
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
SPEND = TableName.parse("spend")


def record(second: int, version: int | None = None, **other: object) -> RefreshResult:
    made = RefreshResult(
        table=SPEND,
        at=NOW + timedelta(seconds=second),
        state=State.SUCCEEDED,
        strategy="append",
        reason="INSERTS_ONLY",
        seconds=1.0,
        version=version,
        fingerprint="",
        committed=version is not None,
    )
    return replace(made, **other)  # type: ignore[arg-type]


def test_a_refresh_that_log_and_commit_have_is_there_once_as_the_log_has_it():
    logged = [record(10, 1, cpu_seconds=0.5), record(20, strategy="noop")]
    committed = [record(31, 2, fingerprint="new"), record(9, 1, fingerprint="old")]

    found = rebuilt_records(logged, committed, 200)

    assert [(one.at.second, one.version, one.cpu_seconds, one.fingerprint) for one in found] == [
        (10, 1, 0.5, "old"),
        (20, None, None, "new"),
        (31, 2, None, "new"),
    ]


def test_of_each_sort_the_newest_are_kept():
    logged = [record(second, second) for second in range(5)] + [record(9, state="ALTERED")]

    assert [one.at.second for one in rebuilt_records(logged, [], 2)] == [3, 4, 9]


def test_of_decisions_the_newest_change_and_the_suspension_that_was_not_resumed_are_there():
    other = TableName.parse("orders")
    records = [
        record(1, state="ALTERED", reason="5 s"),
        record(2, state="SUSPENDED"),
        record(3, state="ALTERED", reason="9 s"),
        record(4, state="RESUMED"),
        record(5, state="SUSPENDED", table=other),
    ]

    assert [(one.at.second, one.state) for one in newest_decisions(records)] == [(3, "ALTERED"), (5, "SUSPENDED")]
