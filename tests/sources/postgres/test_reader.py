"""The reader on a real Postgres, without Spark: what it reads, from where, and what it does with the slot.

A commit is a position that is kept, as the receipt keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from freshline.compute.cancellation import Cancellation
from freshline.sources.postgres import reader as reader_module
from freshline.sources.postgres.position import lsn_text
from freshline.sources.reader import ReadRequest
from freshline.testing.crash import Crash
from freshline.values.position import position_from_json
from tests.databases import Database
from tests.sources.reading import Host, failure_of, open_reader

pytestmark = pytest.mark.seconds

COLUMNS = "id INT, name STRING, PRIMARY KEY (id)"


@dataclass
class Log:
    """A log table, as far as it matters here: the events of each commit, and the position of the last one."""

    host: Host
    database: Database
    options: dict[str, str] = field(default_factory=dict)
    position: Any = None
    commits: list[list[tuple[str, Any, Any]]] = field(default_factory=list)
    reader: Any = None

    def open(self):
        """Go on as another engine would."""
        if self.reader is not None:
            self.reader.close()
        given = {
            "connector": "postgres", "url": "${env:SHOP_URL}", "table": "t", "slot": self.database.slot, **self.options
        }  # fmt: skip
        self.reader = open_reader(self.host, COLUMNS, given, "feed")
        return self.reader

    def refresh(self):
        """All that is there, in commits; the events of this time. Stops where the host does, or before a commit."""
        reader = self.reader or self.open()
        inspection = reader.inspect(self.position, ReadRequest(Cancellation()))
        before = len(self.commits)
        while (portion := reader.cut(inspection, self.position)) is not None:
            portion = reader.prepare(None, portion, None, Cancellation())
            self.host.failpoint("before-commit")
            rows = portion.rows.table.to_pylist()
            self.commits.append([(row["_freshline_op"], *row["_freshline_parsed"].values()) for row in rows])
            self.position = portion.after
            reader.finish(None)
            reader.release(portion, seconds=1.0, rejected=0)
        self.inspection = inspection
        return [event for commit in self.commits[before:] for event in commit]

    def stop_at(self, point):
        self.host.stop_at = point
        with pytest.raises(Crash):
            self.refresh()
        self.host.stop_at = ""
        self.open()

    def error(self):
        return failure_of(self.refresh, "feed")


@pytest.fixture
def database(postgres, monkeypatch):
    made = Database(postgres)
    monkeypatch.setenv("SHOP_URL", made.url)
    made.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
    yield made
    made.close()


@pytest.fixture
def log(database, tmp_path):
    made = Log(Host(tmp_path), database)
    made.open()
    yield made
    made.reader.close()


def test_the_table_comes_first_and_then_each_transaction(log, database):
    database.sql("INSERT INTO t VALUES (1, 'a')")
    assert log.refresh() == [("r", 1, "a")]
    assert log.refresh() == []
    database.sql("INSERT INTO t VALUES (2, 'b'); UPDATE t SET id = 3 WHERE id = 1")
    database.sql("TRUNCATE t; INSERT INTO t VALUES (4, 'd')")

    assert log.refresh() == [("c", 2, "b"), ("d", 1, None), ("c", 3, "a"), ("t", None, None), ("c", 4, "d")]
    assert (log.position.records, len(log.commits)) == (6, 2)
    assert database.confirmed() == lsn_text(log.position.lsn)
    assert log.refresh() == []
    assert (log.inspection.left, log.inspection.is_new) == (0, False)
    assert log.inspection.retained_bytes < 1024**2
    # A first snapshot leaves no note, and nothing is left on the disk.
    assert [file for file in log.host.root.rglob("*") if file.is_file()] == []


def test_stopped_at_each_point_it_loses_and_repeats_nothing(log, database):
    for number, point in enumerate(("slot-before-made", "slot-made", "before-commit", "slot-before-advanced")):
        database.sql(f"INSERT INTO t VALUES ({number}, 'a')")
        log.stop_at(point)
    assert log.commits == [[("r", number, "a") for number in range(4)]]
    for number, point in enumerate(("before-commit", "slot-before-advanced"), 4):
        database.sql(f"INSERT INTO t VALUES ({number}, 'a')")
        log.stop_at(point)
    assert log.commits[1:] == [[("c", 4, "a"), ("c", 5, "a")]]
    # The slot is behind, and what it gives again is left out.
    assert database.confirmed() != lsn_text(log.position.lsn)
    database.sql("INSERT INTO t VALUES (6, 'a')")

    assert log.refresh() == [("c", 6, "a")]
    assert database.confirmed() == lsn_text(log.position.lsn)


def test_a_transaction_is_whole_in_batches_of_any_size(log, database, monkeypatch):
    monkeypatch.setattr(reader_module, "BATCH_MESSAGES", 3)
    log.refresh()
    with psycopg.connect(database.url) as other:
        other.execute("INSERT INTO t SELECT n, 'open' FROM generate_series(90, 93) AS n")
        for first in (0, 10, 20):
            database.sql(f"INSERT INTO t SELECT n + {first}, 'a' FROM generate_series(1, 4) AS n")
        log.refresh()
    log.refresh()

    sizes = [len(commit) for commit in log.commits if commit]
    assert sizes == [4, 4, 4, 4]
    assert {name for _, _, name in log.commits[-1] or log.commits[-2]} == {"open"}


def test_a_lost_slot_is_read_anew_when_its_loss_is_accepted(log, database):
    database.sql("INSERT INTO t VALUES (1, 'a')")
    log.refresh()
    database.sql(f"SELECT pg_drop_replication_slot('{database.slot}')")
    error = log.error()
    assert (error.code, error.retry_helps) == ("SLOT_LOST", False)
    accepted = f"{database.slot}@{lsn_text(log.position.lsn)}"
    assert f"'accept-slot' = '{accepted}'" in str(error)

    log.options["accept-slot"] = accepted
    log.open()
    log.stop_at("before-commit")
    assert log.refresh() == [("r", 1, "a")]
    database.sql("INSERT INTO t VALUES (2, 'b')")
    assert log.refresh() == [("c", 2, "b")]
    database.sql(f"SELECT pg_drop_replication_slot('{database.slot}')")
    assert log.error().code == "SLOT_LOST"


def test_half_of_a_new_snapshot_is_not_taken_for_one_that_is_done(log, database):
    log.refresh()
    database.sql(f"SELECT pg_drop_replication_slot('{database.slot}')")
    log.options["accept-slot"] = f"{database.slot}@{lsn_text(log.position.lsn)}"
    log.open()
    log.stop_at("before-commit")
    del log.options["accept-slot"]
    log.open()

    assert "was not finished" in str(log.error())


def test_a_slot_that_somebody_else_read_or_made_is_not_ours(log, database):
    database.sql(f"SELECT pg_create_logical_replication_slot('{database.slot}', 'pgoutput')")
    error = log.error()
    assert (error.code, error.retry_helps) == ("SLOT_FOREIGN", False)
    database.sql(f"SELECT pg_drop_replication_slot('{database.slot}')")
    log.refresh()
    database.sql("INSERT INTO t VALUES (1, 'a')")
    database.sql(f"SELECT pg_replication_slot_advance('{database.slot}', pg_current_wal_flush_lsn())")
    assert "somebody else read it" in str(log.error())


def test_a_slot_that_is_in_use_is_waited_for_and_then_an_error(log, database, monkeypatch):
    monkeypatch.setattr(reader_module, "_SETTLE_SECONDS", 0.4)
    log.refresh()
    other = psycopg.connect(database.url, autocommit=True, replication="database")
    try:
        statement = f"START_REPLICATION SLOT {database.slot} LOGICAL 0/0 (proto_version '1', publication_names 'p')"
        other.pgconn.exec_(statement.encode())
        error = log.error()
    finally:
        other.close()
    assert (error.code, "in use by process" in str(error)) == ("SLOT_FOREIGN", True)


def test_another_database_or_table_is_not_read_on(log, database, postgres, monkeypatch):
    log.refresh()
    other = Database(postgres)
    other.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
    monkeypatch.setenv("SHOP_URL", other.url)
    assert f"the database is {other.name}, and {database.name} was read" in str(log.error())
    monkeypatch.setenv("SHOP_URL", database.url)
    database.sql("DROP TABLE t; CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
    assert "it was made anew" in str(log.error())
    other.close()


def test_changes_of_other_tables_move_an_idle_slot(log, database, monkeypatch):
    monkeypatch.setattr(reader_module, "IDLE_BYTES", 200_000)
    log.refresh()
    before = log.position.lsn
    database.sql("CREATE TABLE other AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 1000)")
    assert (log.refresh(), len(log.commits)) == ([], 1)
    log.host.clock.advance(minutes=2)
    assert (log.refresh(), len(log.commits)) == ([], 2)

    assert log.position.lsn >= before + 200_000
    assert database.confirmed() == lsn_text(log.position.lsn)


def test_a_publication_is_made_or_its_statement_is_said(log, database):
    log.refresh()
    assert database.ask("SELECT pubname::text FROM pg_publication") == [(database.slot,)]
    database.sql(f"ALTER PUBLICATION {database.slot} DROP TABLE t")
    error = log.error()
    assert (error.code, "ADD TABLE public.t" in str(error)) == ("PUBLICATION", True)
    database.sql(f"DROP PUBLICATION {database.slot}")
    assert f"CREATE PUBLICATION {database.slot}" in str(log.error())


def test_a_wrong_connection_is_reported_without_its_secret(log, database, postgres, monkeypatch):
    host = f"host={postgres.folder}"
    wrong = {
        "hunter2 is the secret": "DATABASE_REFUSED",
        f"postgresql://freshline:hunter2@/nothing?{host}": "DATABASE_REFUSED",
        f"postgresql://nobody:hunter2@/{database.name}?{host}": "DATABASE_REFUSED",
        f"postgresql://freshline:hunter2@localhost:1/{database.name}": "DATABASE",
    }
    for url, code in wrong.items():
        monkeypatch.setenv("SHOP_URL", url)
        error = log.error()
        assert (error.code, error.retry_helps) == (code, code == "DATABASE"), url
    monkeypatch.delenv("SHOP_URL")
    assert "SHOP_URL" in str(log.error())


def test_a_user_needs_a_password_and_rights(log, database, postgres, monkeypatch):
    database.sql("CREATE USER guarded PASSWORD 'right'")

    def connect(password):
        monkeypatch.setenv("SHOP_URL", f"postgresql://guarded:{password}@/{database.name}?host={postgres.folder}")

    with postgres.passwords_for("guarded"):
        connect("hunter2")
        error = log.error()
        assert (error.code, error.retry_helps) == ("DATABASE_REFUSED", False)
        connect("right")
        assert "GRANT SELECT ON public.t" in str(log.error())
        database.sql("GRANT SELECT ON t TO guarded")
        error = log.error()
        assert (error.code, "CREATE PUBLICATION" in str(error)) == ("PUBLICATION", True)
        database.sql(f"CREATE PUBLICATION {database.slot} FOR TABLE t")
        assert log.error().code == "DATABASE_REFUSED"
        database.sql("ALTER USER guarded REPLICATION; INSERT INTO t VALUES (1, 'a')")
        assert log.refresh() == [("r", 1, "a")]
        database.sql("INSERT INTO t VALUES (2, 'b')")
        assert log.refresh() == [("c", 2, "b")]


def test_a_server_that_starts_again_is_read_on(log, database, postgres):
    log.refresh()
    database.sql("INSERT INTO t VALUES (1, 'a')")
    postgres.stop()
    try:
        error = log.error()
        assert (error.code, error.retry_helps) == ("DATABASE", True)
    finally:
        postgres.start()
        database.forget()

    assert log.refresh() == [("c", 1, "a")]


def test_partitions_count_as_their_table(log, database):
    database.sql("DROP TABLE t; CREATE TABLE t (id INT PRIMARY KEY, name TEXT) PARTITION BY RANGE (id)")
    database.sql("CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (1) TO (10)")
    database.sql("CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20)")
    database.sql("INSERT INTO t VALUES (1, 'a')")
    assert log.refresh() == [("r", 1, "a")]
    database.sql("INSERT INTO t VALUES (11, 'b'); UPDATE t SET id = 12 WHERE id = 1; TRUNCATE t")

    assert log.refresh() == [("c", 11, "b"), ("d", 1, None), ("c", 12, "a"), ("t", None, None)]


def test_a_snapshot_that_policies_would_leave_rows_out_of_is_an_error(log, database, postgres, monkeypatch):
    database.sql("INSERT INTO t VALUES (1, 'a'); ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    database.sql(f"CREATE PUBLICATION {database.slot} FOR TABLE t")
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE limited LOGIN REPLICATION PASSWORD 'p'")
        connection.execute("GRANT SELECT ON t TO limited")
    try:
        monkeypatch.setenv("SHOP_URL", psycopg.conninfo.make_conninfo(database.url, user="limited", password="p"))
        error = log.error()
        assert error.code == "DATABASE_REFUSED"
        assert "row-level security" in str(error)
        database.sql("ALTER ROLE limited BYPASSRLS")
        assert log.refresh() == [("r", 1, "a")]
    finally:
        log.reader.close()
        database.sql("DROP OWNED BY limited; DROP ROLE limited")


def test_a_table_that_others_inherit_from_is_refused(log, database):
    database.sql("CREATE TABLE more () INHERITS (t)")
    error = log.error()
    assert error.code == "DATABASE_REFUSED"
    assert "other tables inherit from" in str(error)
    database.sql("DROP TABLE more; INSERT INTO t VALUES (1, 'a')")
    assert log.refresh() == [("r", 1, "a")]


def test_a_publication_of_partitions_is_an_error_with_the_statement_that_helps(log, database):
    database.sql("DROP TABLE t; CREATE TABLE t (id INT PRIMARY KEY, name TEXT) PARTITION BY RANGE (id)")
    database.sql("CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (1) TO (10)")
    database.sql(f"CREATE PUBLICATION {database.slot} FOR TABLE t")
    error = log.error()
    statement = str(error).partition("Run: ")[2].rstrip(".")
    assert (error.code, statement[:17]) == ("PUBLICATION", "ALTER PUBLICATION")

    database.sql(statement)
    database.sql("INSERT INTO t VALUES (1, 'a')")
    assert log.refresh() == [("r", 1, "a")]


def test_a_type_that_changes_ends_the_reading(log, database):
    log.refresh()
    database.sql("ALTER TABLE t ALTER COLUMN name TYPE BYTEA USING name::bytea")
    error = log.error()

    assert (error.code, "Declare BINARY" in str(error)) == ("SOURCE_TYPE", True)


def of_loss(log):
    """The text by which the loss that stops the source is accepted; with it the source goes on from a new snapshot."""
    error = log.error()
    assert error.code == "SLOT_LOST"
    assert log.error().code == "SLOT_LOST"
    log.options["accept-slot"] = log.position.loss
    log.open()
    return str(error)


def test_another_column_of_the_same_name_is_not_read_on(log, database):
    database.sql("INSERT INTO t VALUES (1, 'old'), (2, 'old')")
    log.refresh()
    database.sql("ALTER TABLE t ADD COLUMN other TEXT; UPDATE t SET other = 'x'")
    assert log.refresh() == [("u", 1, "old"), ("u", 2, "old")]
    database.sql("ALTER TABLE t DROP COLUMN name; ALTER TABLE t ADD COLUMN name TEXT DEFAULT 'new'")
    said = of_loss(log)
    assert "column name of public.t is column number 4, and 2 was read" in said
    assert [(row[0], row[2]) for row in log.refresh()] == [("r", "new"), ("r", "new")]
    database.sql("ALTER TABLE t RENAME name TO was; ALTER TABLE t RENAME other TO name")
    assert "column number 3, and 4 was read" in of_loss(log)


def test_a_column_that_is_only_renamed_or_added_is_read_on(log, database):
    database.sql("INSERT INTO t VALUES (1, 'a')")
    log.refresh()
    database.sql("ALTER TABLE t RENAME name TO title; ALTER TABLE t RENAME title TO name; ALTER TABLE t ADD x INT")
    database.sql("ALTER TABLE t ALTER COLUMN name TYPE VARCHAR(100); INSERT INTO t VALUES (2, 'b')")
    assert log.refresh() == [("c", 2, "b")]


KINDS = {
    "mood": "'sad'",
    "mood_domain": "'sad'",
    "mood[]": "ARRAY['sad']::mood[]",
    "pair": "ROW(1, 'sad')::pair",
    "mood_range": "'[sad,sad]'",
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_a_type_that_are_renamed_are_not_read_on(log, database, kind):
    database.sql(
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN mood_domain AS mood; "
        "CREATE TYPE pair AS (n INT, m mood); CREATE TYPE mood_range AS RANGE (subtype = mood)"
    )
    database.sql(f"ALTER TABLE t ALTER COLUMN name TYPE {kind} USING NULL; INSERT INTO t VALUES (1, {KINDS[kind]})")
    log.refresh()
    # A value more changes no row.
    database.sql("ALTER TYPE mood ADD VALUE 'more' BEFORE 'glad'")
    database.sql(f"INSERT INTO t VALUES (2, {KINDS[kind]})")
    assert [row[:2] for row in log.refresh()] == [("c", 2)]
    database.sql("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    assert "has the type mood, whose values were renamed" in str(log.error())
    database.sql("ALTER TYPE mood RENAME VALUE 'blue' TO 'sad'")
    assert log.refresh() == []
    database.sql("ALTER TYPE pair ADD ATTRIBUTE more INT")
    if kind == "pair":
        assert "has the type pair" in of_loss(log)
        log.refresh()
    assert log.refresh() == []


def test_a_position_of_an_earlier_version_is_read_on(log, database):
    log.refresh()
    stored = {name: value for name, value in log.position.as_json().items() if name != "columns"}
    log.position = position_from_json(stored)
    database.sql("INSERT INTO t VALUES (1, 'a')")
    assert log.refresh() == [("c", 1, "a")]
    assert position_from_json(log.position.as_json()) == log.position
    database.sql("ALTER TABLE t DROP COLUMN name; ALTER TABLE t ADD COLUMN name TEXT")
    assert log.error().code == "SLOT_LOST"
