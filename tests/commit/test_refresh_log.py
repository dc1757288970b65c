"""The refresh log as a Delta table: every record once, whatever dies, and readable by others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from freshline.commit import refresh_log
from freshline.commit.control_store import ControlStore
from freshline.commit.refresh_log import RefreshLog, condense
from freshline.errors import QueryError, StorageError
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
RECORD = RefreshResult(
    table=TableName.parse("sales.orders"),
    at=NOW,
    state=State.SUCCEEDED,
    strategy="append",
    reason="INSERTS_ONLY: new rows",
    seconds=1.5,
    version=3,
    fingerprint="abc",
    rows_in=10,
    rows_out=9,
    committed=True,
    data_timestamp=NOW - timedelta(seconds=5),
    mode="continuous",
    cause="live",
    cpu_seconds=0.7,
    lag_seconds=5.0,
    error=QueryError("no such column", where="sales.orders"),
)
LOOK = replace(RECORD, strategy="noop", reason="NOTHING_NEW", committed=False, seconds=0.1)


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlStore]:
    store = ControlStore.open(f"sqlite:///{tmp_path / 'control.db'}")
    yield store
    store.close()


@pytest.fixture
def log(control: ControlStore, tmp_path: Path) -> RefreshLog:
    return RefreshLog(control, tmp_path / "warehouse")


def rows(log: RefreshLog) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(log.path)).to_pyarrow_table().to_pylist()
    return found


def test_every_record_is_there_once_with_what_is_known_of_it(control, log):
    control.record_refresh(RECORD)
    assert log.flush() == 1
    assert log.flush() == 0
    control.record_refresh(replace(RECORD, state=State.ALTERED, committed=False, strategy=None))
    assert log.flush() == 1

    found = rows(log)
    assert sorted(str(row["state"]) for row in found) == ["ALTERED", "SUCCEEDED"]
    (row,) = [row for row in found if row["state"] == "SUCCEEDED"]
    assert (row["table"], row["at"], row["cpu_seconds"], row["error"]) == (
        "sales.orders",
        NOW,
        0.7,
        '{"code": "QUERY", "message": "no such column", "where": "sales.orders", "retry_helps": false}',
    )


def test_an_engine_that_died_between_two_batches_repeats_none(control, log, tmp_path):
    control.record_refresh(RECORD)
    log.flush()
    control.record_refresh(replace(RECORD, version=4))

    another = RefreshLog(control, tmp_path / "warehouse")
    another.flush()
    another.flush()

    assert sorted(row["version"] for row in rows(another)) == [3, 4]


def test_a_store_that_begins_anew_is_logged_from_its_first_record(control, log, tmp_path):
    for _ in range(3):
        control.record_refresh(RECORD)
    log.flush()
    other = ControlStore.open(f"sqlite:///{tmp_path / 'other.db'}")
    other.record_refresh(replace(RECORD, version=9))

    assert RefreshLog(other, tmp_path / "warehouse").flush() == 1
    assert sorted(row["version"] for row in rows(log)) == [3, 3, 3, 9]
    other.close()


def test_checks_that_found_nothing_are_one_row_until_something_happens_to_their_table():
    other = replace(LOOK, table=TableName.parse("spend"))
    found = condense([LOOK, other, replace(LOOK, at=NOW + timedelta(seconds=1)), RECORD, LOOK, other])

    assert [(str(one.record.table), one.record.strategy, one.count) for one in found] == [
        ("sales.orders", "noop", 2),
        ("spend", "noop", 2),
        ("sales.orders", "append", 1),
        ("sales.orders", "noop", 1),
    ]
    assert found[0].record.seconds == pytest.approx(0.2)
    assert found[0].record.at == NOW + timedelta(seconds=1)


def test_small_files_are_joined(control, log, monkeypatch):
    monkeypatch.setattr(refresh_log, "_MOST_FILES", 3)
    for version in range(6):
        control.record_refresh(replace(RECORD, version=version))
        log.flush()

    assert len(DeltaTable(str(log.path)).file_uris()) <= 4
    assert sorted(row["version"] for row in rows(log)) == list(range(6))


def test_another_reader_reads_it(control, log):
    control.record_refresh(RECORD)
    log.flush()
    found = DeltaTable(str(log.path)).to_pyarrow_table()  # noqa: F841 - DuckDB reads the variable

    answer = duckdb.sql("SELECT sum(seconds) FROM found WHERE state = 'SUCCEEDED'")
    assert answer is not None
    assert answer.fetchall() == [(1.5,)]


def test_a_warehouse_that_cannot_be_written_is_reported(control, tmp_path):
    (tmp_path / "warehouse").write_text("a file")
    control.record_refresh(RECORD)

    with pytest.raises(StorageError, match="refresh log cannot be written"):
        RefreshLog(control, tmp_path / "warehouse").flush()
