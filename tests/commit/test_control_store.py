"""The control store: its records, for how long they stay, and the sentence for a person when it cannot be used."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import OperationalError

from freshline.commit.control_store import FORMAT, KEPT_RECORDS, KEPT_REFRESHES, ControlStore
from freshline.commit.control_store import store as store_module
from freshline.commit.control_store.database import _WRITERS
from freshline.errors import FileChangedError, FormatError, QueryError, SettingsError, StorageError
from freshline.freshness.intentions import FreshnessOverride, Intentions, Suspension
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State
from tests.postgres import PostgresServer

NOW = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)
ORDERS = TableName.parse("sales.Orders")
RECORD = RefreshResult(
    table=ORDERS,
    at=NOW,
    state=State.SUCCEEDED,
    strategy="append",
    reason="INSERTS_ONLY: new rows",
    seconds=1.5,
    version=3,
    fingerprint="abc",
    rows_in=10,
    rows_out=9,
    rejected=1,
    committed=True,
    data_timestamp=NOW - timedelta(seconds=5),
    problems=(FileChangedError("a file changed", where="a.json"),),
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_database()
    (tmp_path / "state").mkdir()
    return f"sqlite:///{tmp_path / 'state' / 'control.db'}"


@pytest.fixture
def store(url: str) -> Iterator[ControlStore]:
    store = ControlStore.open(url)
    yield store
    store.close()


def test_an_epoch_is_above_every_earlier_one_and_above_what_tables_know(store, url):
    assert store.take_epoch(1) == 1
    assert store.take_epoch(1) == 2
    assert store.take_epoch(10) == 10
    other = ControlStore.open(url)
    assert other.take_epoch(3) == 11
    other.close()


def test_two_that_take_an_epoch_at_once_get_different_ones(store):
    taken: list[int] = []
    threads = [threading.Thread(target=lambda: taken.append(store.take_epoch(1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == list(range(1, 9))


@pytest.mark.seconds
def test_many_processes_may_open_a_new_store_at_once(url):
    # Forked from one that has imported everything, they begin together.
    code = (
        "import os, sys; from freshline.commit.control_store import ControlStore\n"
        "for _ in range(6):\n"
        "    if os.fork() == 0:\n"
        "        store = ControlStore.open(sys.argv[1])\n"
        "        os.write(1, f'{store.take_epoch(1)}\\n'.encode())  # One call: lines of six processes stay whole.\n"
        "        store.close(); os._exit(0)\n"
        "sys.exit(any(os.wait()[1] for _ in range(6)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert sorted(int(line) for line in done.stdout.split()) == [1, 2, 3, 4, 5, 6]


@pytest.mark.seconds
def test_a_store_waits_for_another_process_that_makes_the_file(tmp_path):
    """SQLite itself does not wait there: it fails at once."""
    file = tmp_path / "control.db"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as thread:
        opened = thread.submit(ControlStore.open, f"sqlite:///{file}")
        with pytest.raises(TimeoutError):
            opened.result(timeout=1)
        other.execute("COMMIT")
        other.close()

        store = opened.result(timeout=30)
    assert store.take_epoch(1) == 1
    store.close()


def test_the_newest_check_of_a_source_is_remembered_in_any_letter_case(store):
    store.record_check(ORDERS, NOW, '{"version": 1}')
    store.record_check(TableName.parse("SALES.orders"), NOW + timedelta(seconds=1), '{"version": 2}')

    checks = store.checks()

    assert list(checks) == [ORDERS]
    assert checks[ORDERS].position == '{"version": 2}'
    assert checks[ORDERS].data_timestamp == NOW + timedelta(seconds=1)


def test_a_refresh_comes_back_as_it_was_recorded(store):
    failed = replace(
        RECORD,
        table=TableName.parse("revenue"),
        state=State.FAILED,
        strategy=None,
        version=None,
        committed=False,
        data_timestamp=None,
        error=QueryError("no", where="assets/revenue.sql:3"),
        problems=(),
    )
    store.record_refresh(RECORD)
    store.record_refresh(failed)

    assert store.last_refreshes() == {RECORD.table: RECORD, failed.table: failed}


@pytest.mark.seconds
def test_checks_that_found_nothing_do_not_push_out_refreshes_that_committed(store):
    store.record_refresh(RECORD)
    for _ in range(KEPT_REFRESHES + 5):
        store.record_refresh(replace(RECORD, strategy="noop", committed=False, seconds=0.1))

    kept = store.refreshes(ORDERS, limit=1000)

    assert len(kept) == KEPT_REFRESHES + 1
    assert kept[-1] == RECORD
    assert store.seconds_of(ORDERS) == 1.5


def test_records_since_a_time_are_read_alone(store):
    for minute in range(4):
        store.record_refresh(replace(RECORD, at=NOW + timedelta(minutes=minute)))

    found = store.refreshes(ORDERS, since=NOW + timedelta(minutes=2))

    assert [record.at for record in found] == [NOW + timedelta(minutes=3), NOW + timedelta(minutes=2)]


def test_so_many_records_of_a_table_are_all_that_is_kept(store, monkeypatch):
    monkeypatch.setattr(store_module, "KEPT_REFRESHES", 3)
    kinds = [(state, strategy) for state in (State.SUCCEEDED, State.ALTERED) for strategy in ("full", "keys")]
    for _ in range(5):
        for state, strategy in kinds:
            for committed in (True, False):
                store.record_refresh(replace(RECORD, state=state, strategy=strategy, committed=committed))

    assert len(store.refreshes(ORDERS, limit=1_000)) == 3 * KEPT_RECORDS // KEPT_REFRESHES


@pytest.mark.seconds
def test_the_time_of_a_full_refresh_is_known_long_after_it(store):
    store.record_refresh(replace(RECORD, strategy="full", seconds=30.0))
    for _ in range(KEPT_REFRESHES + 5):
        store.record_refresh(replace(RECORD, strategy="keys"))
        store.record_refresh(replace(RECORD, strategy="noop", committed=False))

    kept = store.refreshes(ORDERS, limit=1_000, checks=False)

    assert [record.strategy for record in kept] == ["keys"] * KEPT_REFRESHES + ["full"]


def test_seconds_are_the_95th_percentile_of_what_committed(store):
    for seconds in range(1, 41):
        store.record_refresh(replace(RECORD, seconds=float(seconds)))
    store.record_refresh(replace(RECORD, seconds=900.0, committed=False))
    # Commits without rows say nothing of what rows take.
    for _ in range(60):
        store.record_refresh(replace(RECORD, seconds=0.1, strategy="noop"))

    assert store.seconds_of(ORDERS) == 38.0
    assert store.seconds_of(TableName.parse("never")) is None


def test_the_time_and_the_failure_of_a_backfill_say_nothing_about_the_table(store):
    store.record_refresh(RECORD)
    store.record_refresh(replace(RECORD, seconds=500.0, cause="backfill"))
    store.record_refresh(replace(RECORD, state=State.FAILED, committed=False, strategy=None, cause="backfill"))

    assert store.seconds_of(ORDERS) == RECORD.seconds
    assert store.seconds(ORDERS) == {ORDERS: RECORD.seconds}
    assert store.last_refreshes()[ORDERS].state == "SUCCEEDED"
    store.record_refresh(replace(RECORD, state=State.FAILED, committed=False, strategy=None, cause="manual"))
    assert store.last_refreshes()[ORDERS].state == "FAILED"


def test_a_request_is_open_until_it_has_ended(store):
    store.create_request("a", "refresh", "{}", NOW)
    store.create_request("b", "sql", '{"statement": "SELECT 1"}', NOW + timedelta(seconds=1))
    store.finish_request("a", "SUCCEEDED", None, NOW)

    assert [request.id for request in store.open_requests()] == ["b"]


def test_a_store_of_a_newer_freshline_is_refused(store, url):
    with create_engine(url).begin() as connection:
        connection.execute(text(f"UPDATE freshline_format SET format = {FORMAT + 1}"))

    with pytest.raises(FormatError, match="Use the freshline that wrote it"):
        ControlStore.open(url)


def test_a_file_that_is_no_database_is_named(tmp_path):
    file = tmp_path / "control.db"
    file.write_bytes(b"not a database, but long enough to be read as the header of one" * 40)

    with pytest.raises(StorageError, match="Move the file away") as raised:
        ControlStore.open(f"sqlite:///{file}")
    assert str(file) in str(raised.value)


@pytest.mark.parametrize("older", range(1, FORMAT))
def test_a_store_of_an_older_freshline_is_refused_with_what_to_do(store, url, older):
    with create_engine(url).begin() as connection:
        connection.execute(text(f"UPDATE freshline_format SET format = {older}"))

    with pytest.raises(FormatError) as raised:
        ControlStore.open(url)
    assert raised.value.message == (
        f"the control store has format {older}, this freshline reads {FORMAT}. Move it away, and run freshline doctor "
        "--rebuild, which fills a new one from the tables' own logs."
    )


def test_a_store_whose_making_fails_is_not_there_and_the_next_makes_it(url, monkeypatch):
    def fail() -> None:
        raise OperationalError("INSERT INTO freshline_identity", {}, Exception("disk is full"))

    with monkeypatch.context() as patched:
        patched.setattr("freshline.commit.control_store.database.uuid4", fail)
        with pytest.raises(StorageError, match="disk is full"):
            ControlStore.open(url)

    with create_engine(url).connect() as connection:
        assert inspect(connection).get_table_names() == []
    store = ControlStore.open(url)
    assert store.take_epoch(1) == 1
    assert store.intentions.read() == Intentions()
    store.close()


@pytest.mark.parametrize("table", ["freshline_override", "freshline_format"])
def test_a_store_with_a_table_missing_is_refused_with_what_to_do(store, url, table):
    with create_engine(url).begin() as connection:
        connection.execute(text(f"DROP TABLE {table}"))

    with pytest.raises(FormatError, match=f"{table} is missing.*move it away"):
        ControlStore.open(url)


def test_a_writer_that_does_not_let_go_is_reported_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("freshline.commit.control_store.database.BUSY_SECONDS", 0.2)
    impatient = ControlStore.open(f"sqlite:///{tmp_path / 'control.db'}")
    holder = sqlite3.connect(tmp_path / "control.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    with pytest.raises(StorageError, match="locked by another process"):
        impatient.take_epoch(1)
    assert impatient.checks() == {}  # who only reads does not wait
    holder.close()
    impatient.close()


@pytest.mark.slow
def test_a_writer_of_postgres_that_does_not_let_go_is_reported_too(request, monkeypatch):
    monkeypatch.setattr("freshline.commit.control_store.database.BUSY_SECONDS", 0.3)
    url = request.getfixturevalue("postgres").new_database()
    impatient = ControlStore.open(url)
    other = create_engine(url)
    with other.connect() as holder:
        holder.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _WRITERS})
        with pytest.raises(StorageError, match="locked by another process"):
            impatient.take_epoch(1)
        assert impatient.checks() == {}
    assert impatient.take_epoch(1) == 1
    other.dispose()
    impatient.close()


@pytest.mark.slow
def test_postgres_lets_go_of_a_writer_that_was_stopped_in_the_middle(request, monkeypatch):
    monkeypatch.setattr("freshline.commit.control_store.database.BUSY_SECONDS", 0.3)
    url = request.getfixturevalue("postgres").new_database()
    store, other = ControlStore.open(url), ControlStore.open(url)

    def stop() -> None:
        with store._database.write() as stopped:
            # As long as the other waits for it, this one does nothing.
            wait_for(lambda: other.take_epoch(1) == 1)
            stopped.execute(text("SELECT 1"))

    with pytest.raises(StorageError):
        stop()
    other.close()
    store.close()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            assert condition()
            return
        except StorageError:
            assert time.monotonic() < end


@pytest.mark.slow
def test_counts_beyond_32_bits_are_kept_by_postgres_too(request):
    store = ControlStore.open(request.getfixturevalue("postgres").new_database())
    record = replace(RECORD, rows_in=3_000_000_000, rows_out=3_000_000_001, rejected=3_000_000_002)
    store.record_refresh(record)
    store.intentions.change(set_overrides=[FreshnessOverride(ORDERS, Freshness(30_000 * 86_400), "ann", NOW)])

    assert store.last_refreshes() == {ORDERS: record}
    assert store.intentions.read().overrides[ORDERS].freshness.seconds == 30_000 * 86_400
    store.close()


def test_a_store_that_is_read_only_is_read_and_says_so_when_it_is_to_be_written(tmp_path):
    file = tmp_path / "control.db"
    made = ControlStore.open(f"sqlite:///{file}")
    made.record_refresh(RECORD)

    store = ControlStore.open(f"sqlite:///file:{file}?mode=ro&uri=true")

    assert store.last_refreshes() == {ORDERS: RECORD}
    with pytest.raises(StorageError, match="read-only. Make the file and its folder writable"):
        store.record_refresh(RECORD)
    store.close()
    made.close()


def test_a_store_that_is_taken_away_while_it_is_open_is_made_anew(url):
    store = ControlStore.open(url)
    store.record_refresh(RECORD)
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).unlink()
    else:
        with create_engine(url).begin() as connection:
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
        with pytest.raises(StorageError):
            store.last_refreshes()

    assert store.last_refreshes() == {}
    store.record_refresh(RECORD)
    other = ControlStore.open(url)
    assert other.last_refreshes() == {ORDERS: RECORD}
    assert other.identity() == store.identity()
    other.close()
    store.close()


@pytest.mark.parametrize("url", ["nonsense", "nosuchdatabase://x/y", "postgresql+psycopg://u@host:port/x"])
def test_a_url_that_names_no_database_is_a_settings_error(url):
    with pytest.raises(SettingsError, match="SQLAlchemy URL"):
        ControlStore.open(url)


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "state").write_text("a file")

    with pytest.raises(StorageError, match="folder of the control store"):
        ControlStore.open(f"sqlite:///{tmp_path / 'state' / 'control.db'}")


def test_refreshes_committed_since_a_moment_are_found_in_the_order_in_which_they_were_written(url):
    store = ControlStore.open(url)
    for minute, committed in enumerate([True, False, True]):
        store.record_refresh(replace(RECORD, at=NOW + timedelta(minutes=minute), committed=committed))

    assert [record.at for record in store.committed_since(NOW)] == [NOW, NOW + timedelta(minutes=2)]
    assert [record.at for record in store.committed_since(NOW + timedelta(seconds=1))] == [NOW + timedelta(minutes=2)]
    store.close()


@pytest.mark.seconds
def test_a_decision_is_listed_among_the_refreshes_and_is_none_of_them(store):
    store.record_refresh(RECORD)
    for _ in range(KEPT_REFRESHES + 5):
        store.record_refresh(replace(RECORD, strategy="noop", committed=False))
    store.record_refresh(replace(RECORD, state=State.ALTERED, strategy=None, committed=False))
    for _ in range(KEPT_REFRESHES + 5):
        store.record_refresh(replace(RECORD, strategy="noop", committed=False))

    assert store.last_refreshes()[ORDERS].state == "SUCCEEDED"
    assert [record.state for record in store.refreshes(ORDERS, checks=False)] == ["ALTERED", "SUCCEEDED"]


def test_a_change_of_the_intentions_and_its_record_are_both_there_or_neither(store):
    suspension = Suspension(ORDERS, "operator", NOW)
    record = replace(RECORD, state=State.SUSPENDED, committed=False)

    assert store.decide([record], expected=0, set_suspensions=[suspension])
    assert not store.decide([record], expected=0, remove_suspensions=[ORDERS])

    assert store.intentions.read() == Intentions(1, {}, {ORDERS: suspension})
    assert len(store.refreshes(ORDERS)) == 1


def test_the_time_of_refreshes_is_known_of_all_tables_and_making_a_table_is_not_counted(store):
    spend = TableName.parse("spend")
    for version in (0, 1):
        store.record_refresh(replace(RECORD, seconds=90.0, version=version))
    store.record_refresh(replace(RECORD, table=spend, seconds=70.0, version=0))
    assert store.seconds() == {}
    assert (store.seconds_of(ORDERS), store.seconds_of(spend)) == (90.0, 70.0)

    for seconds in (24.0, 2.0, 3.0):  # the first ran in a cold engine
        store.record_refresh(replace(RECORD, seconds=seconds, version=2))
    store.record_refresh(replace(RECORD, table=TableName.parse("never"), seconds=1.0, committed=False))

    assert store.seconds() == store.seconds(ORDERS) == {ORDERS: 3.0}
    assert store.seconds_of(ORDERS) == 24.0
    for _ in range(17):
        store.record_refresh(replace(RECORD, seconds=4.0, version=2))
    assert store.seconds() == {ORDERS: 4.0}
