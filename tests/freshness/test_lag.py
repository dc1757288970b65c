"""Lag follows rule 1 of docs/rules.md: what the driving roots had, and never the time of the last run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from freshline.freshness.lag import LagFacts, data_timestamps, is_newest, lag_seconds
from freshline.sources.files.position import FileMark, FilesPosition
from freshline.values.names import TableName
from freshline.values.position import TablePosition

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
EVENTS, CUSTOMERS, TABLE, REPORT = (TableName.parse(n) for n in ("events", "customers", "totals", "sales.report"))


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def position(seq: int, version: int | None = None, table_id: str = "t") -> TablePosition:
    return TablePosition(table_id, seq if version is None else version, seq)


def source(seq: int, checked: datetime | None) -> LagFacts:
    return LagFacts(position(seq), checked)


def table(seq: int, stamp: datetime | None, reached: Mapping[TableName, TablePosition]) -> LagFacts:
    return LagFacts(position(seq), stamp, tuple(reached), dict(reached))


def test_a_check_that_finds_nothing_new_is_handed_on_through_all_tables() -> None:
    held = {
        EVENTS: source(3, at(30)),
        TABLE: table(2, at(5), {EVENTS: position(3)}),
        REPORT: table(1, at(5), {TABLE: position(2)}),
    }

    assert data_timestamps(held) == {EVENTS: at(30), TABLE: at(30), REPORT: at(30)}


def test_a_table_behind_its_input_is_as_old_as_its_receipt() -> None:
    held = {EVENTS: source(4, at(30)), TABLE: table(2, at(5), {EVENTS: position(3)})}

    assert data_timestamps(held)[TABLE] == at(5)


def test_the_slowest_driving_input_decides() -> None:
    reached = {EVENTS: position(3), CUSTOMERS: position(7)}
    held = {EVENTS: source(3, at(30)), CUSTOMERS: source(7, at(10)), TABLE: table(2, at(5), reached)}

    assert data_timestamps(held)[TABLE] == at(10)


def test_an_input_that_does_not_drive_does_not_delay_a_table() -> None:
    held = {
        EVENTS: source(3, at(30)),
        CUSTOMERS: source(9, at(1)),
        TABLE: LagFacts(position(2), at(5), (EVENTS,), {EVENTS: position(3), CUSTOMERS: position(7)}),
    }

    assert data_timestamps(held)[TABLE] == at(30)


def test_a_receipt_stays_true_when_the_checks_are_lost() -> None:
    reached = {EVENTS: position(3)}

    assert data_timestamps({EVENTS: source(3, None), TABLE: table(2, at(5), reached)})[TABLE] == at(5)
    assert data_timestamps({EVENTS: source(3, at(1)), TABLE: table(2, at(5), reached)})[TABLE] == at(5)


def test_a_table_that_was_never_refreshed_has_no_data_timestamp() -> None:
    held = {EVENTS: source(3, at(30)), TABLE: LagFacts(None, None, (EVENTS,))}

    assert data_timestamps(held)[TABLE] is None
    assert lag_seconds(None, NOON) is None


def test_a_commit_of_maintenance_does_not_make_a_reader_late() -> None:
    assert is_newest(position(3, version=10), position(3, version=12))
    assert not is_newest(position(3, version=10), position(4, version=12))


def test_a_replaced_input_is_another_table_at_any_version() -> None:
    assert not is_newest(position(3, table_id="old"), position(3, table_id="new"))


def test_a_table_of_another_writer_is_compared_by_version() -> None:
    assert is_newest(TablePosition("t", 4), TablePosition("t", 4))
    assert not is_newest(TablePosition("t", 4), TablePosition("t", 5))


def test_files_and_nothing_are_no_position_of_a_table() -> None:
    assert not is_newest(FilesPosition(0, (FileMark("a", 1, 2),)), position(1))
    assert not is_newest(None, position(1))
    assert not is_newest(position(1), None)


def test_lag_is_never_negative() -> None:
    assert lag_seconds(at(0), NOON + timedelta(seconds=90)) == 90.0
    assert lag_seconds(at(1), NOON) == 0.0


@given(
    checked=st.integers(0, 60),
    stamp=st.integers(0, 60),
    newest=st.integers(1, 3),
    reached=st.integers(1, 3),
)
def test_the_data_timestamp_never_goes_below_the_receipt_nor_above_what_is_known(
    checked: int, stamp: int, newest: int, reached: int
) -> None:
    held = {EVENTS: source(newest, at(checked)), TABLE: table(1, at(stamp), {EVENTS: position(reached)})}

    found = data_timestamps(held)[TABLE]

    assert found is not None
    assert at(stamp) <= found <= max(at(stamp), at(checked))
    assert newest == reached or found == at(stamp)
