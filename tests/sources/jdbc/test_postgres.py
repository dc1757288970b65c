"""A table of a real Postgres, read by queries, without Spark: which rows a read gives, and from where it goes on."""

from __future__ import annotations

import threading

import psycopg
import pytest

from freshline.compute.cancellation import Cancellation
from freshline.sources.jdbc.postgres import xmin_condition
from freshline.sources.reader import ReadRequest
from tests.databases import Database
from tests.sources.jdbc.queried import GROWING, back_again

pytestmark = pytest.mark.seconds

BY_XMIN = {"read": "incremental", "column": "xmin"}


@pytest.fixture
def database(postgres, monkeypatch):
    made = Database(postgres)
    monkeypatch.setenv("SHOP_URL", made.url)
    made.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT, n INT, at TIMESTAMPTZ)")
    yield made
    made.close()


def test_a_whole_table_is_read_once_while_it_does_not_change(log, database):
    database.sql("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    assert log.refresh() == [(1, "a"), (2, None)]
    assert log.refresh() is None
    log.open()
    assert log.refresh() is None
    # Other columns and the order of rows are no change.
    database.sql("UPDATE t SET n = 5")
    assert log.refresh() is None
    database.sql("DELETE FROM t WHERE id = 1")

    assert log.refresh() == [(2, None)]
    assert (log.position.reads, log.position.rows, log.position.table) == (2, 1, "public.t")
    assert [file for file in log.host.root.rglob("*") if file.is_file()] == []


def test_a_condition_is_the_databases_own(log, database):
    database.sql("INSERT INTO t VALUES (1, 'a'), (2, '%s'), (3, 'b')")
    log.open(where="name <> 'a' OR id = 9 -- not the first")
    assert log.refresh() == [(2, "%s"), (3, "b")]
    log.open(where="nmae = 1")

    assert "nmae" in str(log.error("DATABASE_REFUSED"))


def test_a_view_and_a_materialized_view_are_read(log, database):
    database.sql("INSERT INTO t VALUES (1, 'a'); CREATE VIEW v AS SELECT id, upper(name) AS name FROM t")
    database.sql("CREATE MATERIALIZED VIEW m AS SELECT * FROM v")
    for name in ("v", "m"):
        log.open(table=name)
        log.position = None
        assert log.refresh() == [(1, "A")], name


def test_values_behind_the_position_and_within_the_overlap_are_read(log, database):
    log.open(**{**GROWING, "overlap": "10"})
    database.sql("INSERT INTO t VALUES (1, 'a', 100), (2, 'b', 95), (3, 'c', 50)")
    assert log.refresh() == [(1, "a"), (2, "b"), (3, "c")]
    assert (log.step, log.position.value) == ("whole", "100")
    assert log.refresh() is None
    # One row is late within the overlap, the other one behind it.
    database.sql("INSERT INTO t VALUES (4, 'd', 90), (5, 'e', 89)")
    assert log.refresh() == [(1, "a"), (2, "b"), (4, "d")]
    assert log.step == "changed"
    assert log.refresh() is None
    database.sql("UPDATE t SET n = 200 WHERE id = 3")
    assert log.refresh() == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert log.position.value == "200"
    assert log.refresh() is None


def test_equal_values_at_the_border_are_read_again(log, database):
    log.open(**GROWING)
    database.sql("INSERT INTO t VALUES (1, 'a', 7)")
    log.refresh()
    database.sql("INSERT INTO t VALUES (2, 'b', 7)")

    assert log.refresh() == [(1, "a"), (2, "b")]
    assert log.refresh() is None


def test_rows_without_a_value_are_read_each_time(log, database):
    log.open(**GROWING)
    database.sql("INSERT INTO t VALUES (1, 'a', NULL)")
    assert log.refresh() == [(1, "a")]
    # Nothing has a value: the whole table is read, and is the same.
    assert log.refresh() is None
    database.sql("INSERT INTO t VALUES (2, 'b', 7)")
    log.refresh()
    database.sql("INSERT INTO t VALUES (3, 'c', NULL), (4, 'd', 6)")

    assert log.refresh() == [(1, "a"), (2, "b"), (3, "c")]


def test_times_of_the_future_and_without_end_do_not_move_the_position_there(log, database):
    log.open(**{**GROWING, "column": "at", "overlap": "1 minute"})
    database.sql("INSERT INTO t VALUES (1, 'a', 0, 'infinity'), (2, 'b', 0, '-infinity'), (3, 'c', 0, '9999-12-31')")
    database.sql("INSERT INTO t VALUES (4, 'd', 0, '0044-03-15 BC')")
    assert len(log.refresh()) == 4
    # No value is one that a position can be at, so all is read until one is.
    assert log.position.value is None
    database.sql("INSERT INTO t VALUES (5, 'e', 0, now()), (6, 'f', 0, now() - interval '1 hour')")
    assert {row[0] for row in log.refresh()} == {1, 2, 3, 4, 5, 6}
    assert "2000" < str(log.position.value) < "2100"
    database.sql("INSERT INTO t VALUES (7, 'g', 0, now()), (8, 'h', 0, now() - interval '1 hour')")
    assert {row[0] for row in log.refresh()} == {1, 3, 5, 7}
    # The rows of this year may go: those of the future are there.
    database.sql("DELETE FROM t WHERE id IN (5, 7)")
    assert {row[0] for row in log.refresh()} == {1, 3}


def test_times_that_lag_behind_the_clock_are_read_beside_a_row_of_the_future(log, database):
    database.sql("ALTER TABLE t ALTER at TYPE TIMESTAMP")
    log.open(**{**GROWING, "column": "at", "overlap": "1 minute"})
    lagging = "now() AT TIME ZONE 'UTC' - interval '5 hours'"
    database.sql(f"INSERT INTO t VALUES (1, 'a', 0, {lagging}), (2, 'b', 0, '9999-12-31')")
    assert len(log.refresh()) == 2
    for number in (3, 4):
        database.sql(f"INSERT INTO t VALUES ({number}, 'c', 0, {lagging} + interval '{number} minutes')")
        assert number in {row[0] for row in log.refresh()}


def test_a_column_that_does_not_grow_and_an_overlap_of_another_kind_are_errors(log, database):
    log.open(**{**GROWING, "column": "name"})
    assert "do not grow" in str(log.error("SOURCE_TYPE"))
    log.open(**{**GROWING, "overlap": "10 minutes"})
    assert "'overlap' is a number" in str(log.error("SOURCE_TYPE"))
    log.open(**{**GROWING, "column": "at", "overlap": "10"})
    assert "a length of time" in str(log.error("SOURCE_TYPE"))
    log.open(**{**GROWING, "column": "none"})
    assert "has no column none" in str(log.error("DATABASE_REFUSED"))


def test_values_that_go_back_are_an_error_until_it_is_accepted(log, database):
    log.open(**{**GROWING, "overlap": "10"})
    database.sql("INSERT INTO t VALUES (1, 'a', 100), (2, 'b', 95), (3, 'c', 5)")
    log.refresh()
    # Within the overlap nothing can be missed.
    database.sql("DELETE FROM t WHERE id = 1")
    assert log.refresh() == [(2, "b")]
    assert log.position.value == "100"
    database.sql("DELETE FROM t WHERE id = 2")
    error = log.error("DATABASE_REPLACED")
    assert not error.retry_helps
    assert "no row of public.t has n from 90 on, and up to 100 was read" in str(error)
    clause = str(error).partition("'accept-database' = '")[2].partition("'")[0]
    log.open(accept_database=clause)

    assert log.refresh() == [(3, "c")]
    assert (log.step, log.position.value) == ("whole", "5")
    assert log.refresh() is None
    database.sql("TRUNCATE t")
    # The clause accepts nothing else.
    log.error("DATABASE_REPLACED")


def test_another_database_is_not_read_on_and_no_table_that_was_made_anew(log, database, postgres, monkeypatch):
    database.sql("INSERT INTO t VALUES (1, 'a', 1)")
    log.refresh()
    other = Database(postgres)
    other.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT, n INT)")
    monkeypatch.setenv("SHOP_URL", other.url)
    assert f"the database is {other.name}, and {database.name} was read" in str(log.error("DATABASE_REPLACED"))
    monkeypatch.setenv("SHOP_URL", database.url)
    # A whole reading is compared with all that is stored, so that this is no loss.
    made = "CREATE TABLE t (id INT PRIMARY KEY, name TEXT, n INT); INSERT INTO t VALUES (2, 'b', 5)"
    database.sql(f"DROP TABLE t; {made}")
    assert log.refresh() == [(2, "b")]
    log.open(**GROWING)
    log.refresh()
    database.sql(f"DROP TABLE t; {made}")
    assert "it was made anew" in str(log.error("DATABASE_REPLACED"))
    other.close()


def test_the_table_is_read_as_a_whole_when_it_is_time_or_something_else_is_asked_for(log, database):
    log.open(**GROWING, reconcile="1 hour")
    database.sql("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    log.refresh()
    database.sql("DELETE FROM t WHERE id = 1")
    assert log.refresh() is None
    log.host.clock.advance(minutes=61)
    assert log.refresh() == [(2, "b")]
    assert log.step == "whole"
    assert log.refresh() is None
    log.open(where="n > 0")
    log.refresh()
    assert log.step == "whole"
    log.open(overlap="5")
    log.refresh()
    assert log.step == "whole"


def test_by_xmin_rows_of_transactions_that_end_late_are_read(log, database):
    log.open(**BY_XMIN)
    database.sql("INSERT INTO t VALUES (1, 'a')")
    with psycopg.connect(database.url) as late:
        late.execute("INSERT INTO t VALUES (2, 'late')")
        # A part of a transaction has a number of its own, which no snapshot names.
        with late.transaction():
            late.execute("INSERT INTO t VALUES (3, 'part')")
        database.sql("INSERT INTO t VALUES (4, 'd')")
        assert log.refresh() == [(1, "a"), (4, "d")]
        assert log.refresh() is None
    assert log.refresh() == [(2, "late"), (3, "part"), (4, "d")]
    assert log.step == "changed"
    # The transactions that were open then are over: nothing is read any more.
    assert log.refresh() is None
    database.sql("UPDATE t SET name = 'A' WHERE id = 1; DELETE FROM t WHERE id = 4")
    assert log.refresh() == [(1, "A")]
    assert log.refresh() is None
    # Transactions of other tables are no reason to commit a position.
    database.sql("CREATE TABLE other (id INT); INSERT INTO other VALUES (1)")
    assert log.refresh() is None


def test_numbers_of_transactions_are_compared_over_the_end_of_32_bits(database):
    size = 1 << 32
    spans = [(1000, 1200), (size - 10, size + 50), (5 * size + 7, 5 * size + 9), (size - 1, size + 2**31 - 2)]
    for first, next_ in spans:
        for number in (first, first + 1, next_ - 1, next_, first - 1, first - 1000):
            low = number % size
            # The numbers below 3 stand for none.
            if number > 2 and low > 2:
                ((found,),) = database.ask(f"SELECT {xmin_condition(first, next_)} FROM (VALUES ({low})) AS t (xmin)")
                assert found == (number >= first), (first, next_, number)


def test_by_xmin_a_view_is_refused(log, database):
    database.sql("CREATE VIEW v AS SELECT * FROM t")
    log.open(**BY_XMIN, table="v")

    assert "has no xmin" in str(log.error("DATABASE_REFUSED"))


def test_more_rows_than_memory_takes_are_in_files(log, database, monkeypatch):
    monkeypatch.setattr("freshline.sources.spill.MOST_ROWS", 50)
    database.sql("INSERT INTO t SELECT n, 'a' FROM generate_series(1, 120) AS n")
    reader = log.reader
    portion = reader.cut(reader.inspect(None, ReadRequest(Cancellation())), None)
    portion = reader.prepare(None, portion, None, Cancellation())
    assert (portion.rows.is_spilled, portion.rows.count, portion.small) == (True, 120, False)
    reader.finish(None)
    assert [file for file in log.host.root.rglob("*") if file.is_file()] == []


def test_a_row_that_does_not_fit_is_rejected_alone(log, database):
    database.sql("ALTER TABLE t ALTER id TYPE BIGINT; INSERT INTO t VALUES (1, 'a'), (99999999999, 'far')")
    database.sql("INSERT INTO t VALUES (3, repeat('x', 200))")
    log.open(max_record_bytes="100")

    assert log.refresh() == [(1, "a"), "TOO_LARGE", "VALUE_CHANGED(id)"]
    assert log.refresh() is None


def test_a_column_that_is_gone_or_has_another_type_ends_the_reading(log, database):
    log.refresh()
    database.sql("ALTER TABLE t ALTER COLUMN name TYPE BYTEA USING name::bytea")
    error = log.error("SOURCE_TYPE")
    assert "Declare BINARY" in str(error)
    database.sql("ALTER TABLE t DROP COLUMN name")
    error = log.error("DATABASE_REFUSED")
    assert ("has no column name" in str(error), error.retry_helps) == (True, False)
    database.sql("DROP TABLE t")
    assert "there is no table t" in str(log.error("DATABASE_REFUSED"))


def test_a_wrong_connection_is_reported_without_its_secret(log, database, postgres, monkeypatch):
    host = f"host={postgres.folder}"
    wrong = {
        "hunter2 is the secret": "DATABASE_REFUSED",
        f"postgresql://freshline:hunter2@/nothing?{host}": "DATABASE_REFUSED",
        f"postgresql://nobody:hunter2@/{database.name}?{host}": "DATABASE_REFUSED",
        "oracle://freshline:hunter2@db/x": "DATABASE_REFUSED",
        f"postgresql://freshline:hunter2@localhost:1/{database.name}": "DATABASE",
    }
    for url, code in wrong.items():
        monkeypatch.setenv("SHOP_URL", url)
        assert log.error(code).retry_helps == (code == "DATABASE"), url
    monkeypatch.setenv("SHOP_URL", f"jdbc:{database.url}")
    assert log.refresh() == []
    monkeypatch.delenv("SHOP_URL")
    assert "SHOP_URL" in str(log.error("SOURCE"))


def test_a_user_needs_a_password_and_the_right_to_read(log, database, postgres, monkeypatch):
    database.sql("CREATE USER asker PASSWORD 'right'")

    def connect(password):
        monkeypatch.setenv("SHOP_URL", f"postgresql://asker:{password}@/{database.name}?host={postgres.folder}")

    with postgres.passwords_for("asker"):
        connect("hunter2")
        assert not log.error("DATABASE_REFUSED").retry_helps
        connect("right")
        assert 'GRANT SELECT ON "public"."t"' in str(log.error("DATABASE_REFUSED"))
        database.sql("GRANT SELECT ON t TO asker")
        assert log.refresh() == []
        log.open(**BY_XMIN)
        assert log.refresh() == []
    database.sql("DROP OWNED BY asker; DROP USER asker")


def test_a_server_that_starts_again_is_read_on(log, database, postgres):
    log.open(**GROWING)
    database.sql("INSERT INTO t VALUES (1, 'a', 1)")
    log.refresh()
    postgres.stop()
    try:
        assert log.error("DATABASE").retry_helps
    finally:
        back_again(postgres, database)
    database.sql("INSERT INTO t VALUES (2, 'b', 2)")

    assert log.refresh() == [(1, "a"), (2, "b")]


def test_a_server_that_dies_in_the_middle_of_a_reading_is_read_from_the_beginning(log, database, postgres, monkeypatch):
    database.sql("INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 20000) AS n")
    log.dies_in_the_middle(postgres, database, monkeypatch)
    database.sql("DELETE FROM t WHERE id > 1")
    assert len(log.refresh()) == 1


def test_a_table_that_is_emptied_while_it_begins_to_be_read_is_not_read_as_empty(log, database):
    database.sql("INSERT INTO t VALUES (1, 'a')")
    log.refresh()
    found: list[object] = []
    with psycopg.connect(database.url) as other:
        other.execute("TRUNCATE t")
        other.execute("INSERT INTO t VALUES (9, 'new')")
        reading = threading.Thread(target=lambda: found.extend(log.refresh()))
        reading.start()
        while not database.ask("SELECT FROM pg_locks WHERE NOT granted AND relation = 't'::regclass"):
            assert reading.is_alive()
    reading.join()

    assert found == [(9, "new")]
