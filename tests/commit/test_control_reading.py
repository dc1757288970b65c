"""The file of the control store opened without SQLAlchemy gives what SQLAlchemy gives, or is left to it."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from freshline.commit import control_reading
from freshline.commit.control_reading import ControlReader, StoreFile, open_for_a_look
from freshline.commit.control_rows import FORMAT, TABLES
from freshline.commit.control_store import ControlStore
from freshline.commit.control_store.schema import METADATA
from freshline.errors import FormatError, StorageError
from freshline.freshness.intentions import FreshnessOverride, Suspension
from freshline.plan.request import BACKFILL
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.result import DECISIONS, RefreshResult, State

NOW = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)
ORDERS = TableName.parse("sales.Orders")
TEXTS = ("", 'it\'s "quoted"', "<script>alert(1)</script>", "two\nlines", "\u202eleft", "x" * 10_000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "a ? folder # of %41 ünïcode"
    folder.mkdir()
    return folder / "control.db"


@pytest.fixture
def store(file: Path) -> Iterator[ControlStore]:
    store = ControlStore.open(f"sqlite:///{file}")
    yield store
    store.close()


def reader_of(file: Path) -> ControlReader:
    opened = StoreFile.open(f"sqlite:///{file}")
    assert opened is not None
    return ControlReader(opened)


def compare(store: ControlStore, file: Path) -> None:
    reader = reader_of(file)
    try:
        assert reader.intentions.read() == store.intentions.read()
        assert reader.heartbeats.read() == store.heartbeats.read()
        assert reader.checks() == store.checks()
        assert reader.last_refreshes() == store.last_refreshes()
        assert reader.seconds() == store.seconds()
        assert reader.seconds(ORDERS) == store.seconds(ORDERS)
        assert reader.seconds_of(ORDERS) == store.seconds_of(ORDERS)
    finally:
        reader.close()


def test_an_empty_store_says_nothing(store, file):
    compare(store, file)


@pytest.mark.seconds
@pytest.mark.parametrize("seed", range(5))
def test_it_says_what_the_store_says(store, file, seed):
    chance = random.Random(seed)
    names = [TableName.parse(name) for name in ("a", "B", "sales.Orders", "sales.returned", "n" * 128)]
    for number in range(120):
        committed = chance.random() < 0.7
        states = [State.SUCCEEDED] if committed else [State.SUCCEEDED, State.FAILED, *sorted(DECISIONS)]
        store.record_refresh(
            RefreshResult(
                table=chance.choice(names),
                at=NOW + timedelta(seconds=number),
                state=chance.choice(states),
                strategy=chance.choice([None, "append", "full", "noop"]),
                reason=chance.choice(TEXTS),
                seconds=chance.choice([0.0, 0.1, 3.7, 1e6]),
                version=chance.choice([None, 0, 1, 2, 3, 10_000]),
                committed=committed,
                cause=chance.choice([None, "schedule", BACKFILL]),
            )
        )
    for number, name in enumerate(names):
        store.record_check(name, NOW, json.dumps({"text": TEXTS[number]}))
        store.heartbeats.beat(f"beat {TEXTS[number][:50]}", NOW, {"text": TEXTS[number]})
        until = None if number % 2 else NOW + timedelta(days=number)
        store.intentions.change(
            set_overrides=[FreshnessOverride(name, Freshness(2**40 + number), TEXTS[number][:300], NOW, until)],
            set_suspensions=[Suspension(name, "me", NOW, until, TEXTS[number], automatic=bool(number % 2))],
        )

    compare(store, file)


def test_of_more_refreshes_than_are_counted_the_newest_are(store, file):
    one = RefreshResult(
        table=ORDERS,
        at=NOW,
        state=State.SUCCEEDED,
        strategy="append",
        reason="",
        seconds=1.0,
        version=7,
        committed=True,
    )
    for number in range(120):
        store.record_refresh(replace(one, seconds=float(number)))

    compare(store, file)


def test_its_tables_and_format_are_those_of_the_store(store, file):
    assert set(TABLES) == set(METADATA.tables)
    connection = sqlite3.connect(file)
    assert connection.execute("SELECT format FROM freshline_format").fetchall() == [(FORMAT,)]
    connection.close()


def test_rows_that_others_write_meanwhile_are_seen_by_the_next_question(store, file):
    reader = reader_of(file)
    assert reader.checks() == {}

    store.record_check(ORDERS, NOW, "{}")

    assert set(reader.checks()) == {ORDERS}
    reader.close()


def test_reading_leaves_nothing_behind_and_the_file_as_it_is(store, file):
    store.record_check(ORDERS, NOW, "{}")
    store.close()
    before = file.read_bytes(), sorted(file.parent.iterdir())

    reader = reader_of(file)
    reader.checks()
    reader.close()

    assert (file.read_bytes(), sorted(file.parent.iterdir())) == before


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///file:control.db",
        "sqlite:///control.db?timeout=5",
        "sqlite:////nowhere/control.db",
        "postgresql://nobody@localhost/none",
        "no url",
    ],
)
def test_any_other_store_is_left_to_sqlalchemy(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert StoreFile.open(url) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE freshline_format SET format = {FORMAT - 1}",
        f"UPDATE freshline_format SET format = {FORMAT + 1}",
        "DELETE FROM freshline_format",
        "DROP TABLE freshline_alert",
        "DROP TABLE freshline_format",
        "PRAGMA journal_mode = DELETE",
    ],
)
def test_a_store_that_is_not_as_it_is_written_now_is_left_to_sqlalchemy(store, file, change):
    store.close()
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute(change)
    connection.close()

    assert StoreFile.open(f"sqlite:///{file}") is None


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100])
def test_a_file_that_is_no_store_is_left_to_sqlalchemy(file, content):
    file.write_bytes(content)

    assert StoreFile.open(f"sqlite:///{file}") is None
    assert file.read_bytes() == content


def test_a_store_that_is_not_there_is_made_and_a_newer_one_is_refused(file):
    made = open_for_a_look(f"sqlite:///{file}", 0o077)
    assert isinstance(made, ControlStore)
    made.close()
    found = open_for_a_look(f"sqlite:///{file}", 0o077)
    assert not isinstance(found, ControlStore)
    found.close()
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("UPDATE freshline_format SET format = 99")
    connection.close()

    with pytest.raises(FormatError, match="format 99"):
        open_for_a_look(f"sqlite:///{file}", 0o077)


def test_a_store_that_another_process_does_not_let_go_of_is_reported_once(store, file, monkeypatch):
    monkeypatch.setattr(control_reading, "BUSY_SECONDS", 0.2)
    store.close()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")

    with pytest.raises(StorageError, match="is locked by another process"):
        open_for_a_look(f"sqlite:///{file}", 0o077)
    other.close()


def test_a_store_that_loses_a_table_meanwhile_is_reported(store, file):
    reader = reader_of(file)
    store.close()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("DROP TABLE freshline_check")
    other.close()

    with pytest.raises(StorageError, match="no such table"):
        reader.checks()
    reader.close()
