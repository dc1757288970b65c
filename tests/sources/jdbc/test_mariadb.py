"""A table of a real MariaDB, read by queries, without Spark: which rows a read gives, and from where it goes on."""

from __future__ import annotations

import threading
import time
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from freshline.compute.cancellation import Cancellation
from freshline.errors import CancelledError
from freshline.sources.jdbc import mysql as mysql_module
from freshline.sources.jdbc.mysql import MysqlDatabase
from freshline.sources.reader import ReadRequest
from tests.chaos.observer import wait_until
from tests.mariadb import MariadbDatabase
from tests.sources.jdbc.queried import GROWING, back_again

pytestmark = pytest.mark.seconds


@pytest.fixture
def database(mariadb, monkeypatch):
    made = MariadbDatabase(mariadb)
    monkeypatch.setenv("SHOP_URL", made.url)
    made.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT, n INT, at DATETIME(6))")
    yield made
    made.close()


def test_a_whole_table_is_read_once_while_it_does_not_change(log, database):
    database.sql("INSERT INTO t (id, name) VALUES (1, 'a'), (2, NULL)")
    assert log.refresh() == [(1, "a"), (2, None)]
    assert log.refresh() is None
    log.open()
    database.sql("UPDATE t SET n = 5")
    assert log.refresh() is None
    database.sql("DELETE FROM t WHERE id = 1")

    assert log.refresh() == [(2, None)]
    assert (log.position.table, log.position.rows) == (f"{database.name}.t", 1)


def test_every_type_is_exact_or_rejected(log, database):
    database.sql(
        "SET SESSION sql_mode = ''",
        "CREATE TABLE kinds (id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT, flag BIT(1), bits BIT(12), amount "
        "DECIMAL(65,30), single FLOAT, ratio DOUBLE, day DATE, at TIMESTAMP(6) NULL, local DATETIME, took TIME(3), "
        "raw VARBINARY(9), letters CHAR(3) CHARACTER SET latin1, feeling ENUM('sad', 'gläd'), some SET('a', 'b'), "
        "doc JSON, built YEAR, code UUID)",
        "SET SESSION time_zone = '+05:00'",
        "INSERT INTO kinds VALUES (18446744073709551615, -128, b'1', b'100000000001', "
        "'12345678901234567890123456789012345.000000000000000000000000000001', 0.1, 1e-300, '2026-11-26', "
        "'2026-11-26 12:00:00.123456', '2026-11-26 12:00:00', '-838:59:59.000', x'00FF', 'ü', 'gläd', 'a,b', "
        "'{\"b\": 1}', 1999, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')",
    )
    columns = (
        "id DECIMAL(20,0), tiny TINYINT, flag BOOLEAN, bits INT, amount STRING, single FLOAT, ratio DOUBLE, day DATE, "
        "at TIMESTAMP, local TIMESTAMP_NTZ, took STRING, raw BINARY, letters STRING, feeling STRING, some STRING, "
        "doc STRING, built SMALLINT, code STRING, PRIMARY KEY (id)"
    )
    log.columns = columns
    log.open(table="kinds")
    ((*found,),) = log.refresh()
    assert found == [
        Decimal(18446744073709551615), -128, True, 2049,
        "12345678901234567890123456789012345.000000000000000000000000000001", 0.10000000149011612, 1e-300,
        date(2026, 11, 26), datetime(2026, 11, 26, 7, 0, 0, 123456, UTC),
        datetime(2026, 11, 26, 12, tzinfo=UTC).replace(tzinfo=None), "-838:59:59.000", b"\x00\xff", "ü", "gläd", "a,b",
        '{"b": 1}', 1999, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ]  # fmt: skip
    # Dates that are none, and numbers that are too large, are not made to others.
    for column, kind, value in (
        ("day", "DATE", "'0000-00-00'"),
        ("local", "TIMESTAMP_NTZ", "'2026-02-00 00:00:00'"),
        ("at", "TIMESTAMP", "'0000-00-00 00:00:00'"),
        ("amount", "DECIMAL(38,10)", "'0.00000000001'"),
        ("tiny", "BOOLEAN", "2"),
    ):
        database.sql(f"UPDATE kinds SET {column} = {value}")
        log.columns, log.position = f"id DECIMAL(20,0), {column} {kind}, PRIMARY KEY (id)", None
        log.open()
        assert log.refresh() == [f"VALUE_CHANGED({column})"]


@pytest.mark.parametrize(
    ("column", "declared", "accepted"),
    [
        ("v BIGINT UNSIGNED", "v DATE", "BIGINT or DECIMAL(p,s) or STRING"),
        ("v BLOB", "v STRING", "Declare BINARY"),
        ("v POINT", "v STRING", "read it by a view"),
        ("v BIT(2)", "v BOOLEAN", "Declare BIGINT"),
    ],
)
def test_a_type_that_does_not_fit_names_those_that_do(log, database, column, declared, accepted):
    database.sql(f"CREATE TABLE odd (k INT PRIMARY KEY, {column})")
    log.columns = f"{declared}, PRIMARY KEY (v)"
    log.open(table="odd")

    assert accepted in str(log.error("SOURCE_TYPE"))


def test_names_and_conditions_are_the_databases_own(log, database):
    database.sql("CREATE TABLE `Order ``Lines` (`Id` INT PRIMARY KEY, `näme` TEXT)")
    database.sql("INSERT INTO `Order ``Lines` VALUES (1, 'a'), (2, '%s'), (3, 'b')")
    log.columns = "id INT, `näme` STRING, PRIMARY KEY (id)"
    log.open(table=f"{database.name}.`Order ``Lines`", where="`näme` <> 'a' -- not the first")
    assert log.refresh() == [(2, "%s"), (3, "b")]
    log.open(where="nmae = 1")
    assert "nmae" in str(log.error("DATABASE_REFUSED"))
    log.open(table="nothing")
    assert "there is no table nothing" in str(log.error("DATABASE_REFUSED"))


def test_values_behind_the_position_and_within_the_overlap_are_read(log, database):
    log.open(**{**GROWING, "overlap": "10"})
    database.sql("INSERT INTO t VALUES (1, 'a', 100, NULL), (2, 'b', 95, NULL), (3, 'c', 50, NULL)")
    assert log.refresh() == [(1, "a"), (2, "b"), (3, "c")]
    assert log.refresh() is None
    database.sql("INSERT INTO t VALUES (4, 'd', 90, NULL), (5, 'e', 89, NULL), (6, 'f', NULL, NULL)")
    assert log.refresh() == [(1, "a"), (2, "b"), (4, "d"), (6, "f")]
    assert (log.step, log.position.value) == ("changed", "100")
    assert log.refresh() is None


def test_times_are_compared_exactly(log, database):
    log.open(**{**GROWING, "column": "at", "overlap": "0"})
    database.sql("INSERT INTO t VALUES (1, 'a', 0, '2026-01-01 00:00:00.000001'), (2, 'b', 0, '9999-12-31')")
    log.refresh()
    assert "2000" < log.position.value < "2100"
    log.position = None
    database.sql("DELETE FROM t WHERE id = 2")
    log.refresh()
    assert log.position.value == "2026-01-01 00:00:00.000001"
    database.sql("INSERT INTO t VALUES (3, 'c', 0, '2026-01-01 00:00:00.000001'), (4, 'd', 0, '2026-01-01 00:00:00')")

    assert log.refresh() == [(1, "a"), (3, "c")]


def test_values_that_go_back_and_a_table_that_was_made_anew_are_errors_until_it_is_accepted(log, database):
    log.open(**GROWING)
    database.sql("INSERT INTO t VALUES (1, 'a', 100, NULL)")
    log.refresh()
    database.sql("UPDATE t SET n = 5")
    error = log.error("DATABASE_REPLACED")
    assert "no row of" in str(error)
    log.open(accept_database=str(error).partition("'accept-database' = '")[2].partition("'")[0])
    assert log.refresh() == [(1, "a")]
    before = log.position.table_id
    while database_created(database) == before:
        # The time when it was made is in seconds.
        database.sql("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, name TEXT, n INT)")
    database.sql("INSERT INTO t VALUES (1, 'a', 500)")

    assert "it was made anew" in str(log.error("DATABASE_REPLACED"))


def database_created(database):
    with database.connection.cursor() as cursor:
        cursor.execute(
            "SELECT CREATE_TIME FROM information_schema.TABLES WHERE TABLE_NAME = 't' AND TABLE_SCHEMA = DATABASE()"
        )
        return str(cursor.fetchone()[0])


def test_a_table_without_transactions_is_refused(log, database):
    database.sql("CREATE TABLE m (id INT PRIMARY KEY, name TEXT) ENGINE = MyISAM")
    log.open(table="m")

    assert "ENGINE = InnoDB" in str(log.error("DATABASE_REFUSED"))


def test_xmin_is_of_postgres(log, database):
    log.open(read="incremental", column="xmin")

    assert "has no xmin" in str(log.error("DATABASE_REFUSED"))


def test_a_wrong_connection_is_reported_without_its_secret(log, database, monkeypatch):
    database.sql("CREATE OR REPLACE USER asker@localhost IDENTIFIED BY 'pässword'")
    wrong = {
        "mysql://hunter2 is the secret": "DATABASE_REFUSED",
        "mysql://u:hunter2@/x?ssl=true": "DATABASE_REFUSED",
        "mysql://u:hunter2@localhost:port/x": "DATABASE_REFUSED",
        "mysql://u:hunter2@localhost": "DATABASE_REFUSED",
        database.url_of("freshline", "hunter2", "nothing"): "DATABASE_REFUSED",
        database.url_of("asker", "hunter2"): "DATABASE_REFUSED",
        database.url_of("nobody", "hunter2"): "DATABASE_REFUSED",
        f"mysql://freshline:hunter2@127.0.0.1:1/{database.name}": "DATABASE",
        f"mysql://freshline:hunter2@localhost/{database.name}?unix_socket=/none": "DATABASE",
    }
    for url, code in wrong.items():
        monkeypatch.setenv("SHOP_URL", url)
        assert log.error(code).retry_helps == (code == "DATABASE"), url
    monkeypatch.setenv("SHOP_URL", database.url_of("asker", "p%C3%A4ssword"))
    log.error("DATABASE_REFUSED")
    database.sql(f"GRANT SELECT ON {database.name}.t TO asker@localhost")
    assert log.refresh() == []
    monkeypatch.setenv("SHOP_URL", f"jdbc:{database.url_of('', '')}&user=asker&password=p%C3%A4ssword")
    assert log.refresh() is None
    database.sql("DROP USER asker@localhost")


def test_a_server_that_starts_again_is_read_on(log, database, mariadb):
    log.open(**GROWING)
    database.sql("INSERT INTO t VALUES (1, 'a', 1, NULL)")
    log.refresh()
    mariadb.stop()
    try:
        assert log.error("DATABASE").retry_helps
    finally:
        back_again(mariadb, database)
    database.sql("INSERT INTO t VALUES (2, 'b', 2, NULL)")

    assert log.refresh() == [(1, "a"), (2, "b")]


def test_a_reading_is_as_of_one_moment_and_one_that_is_left_leaves_nothing(log, database):
    database.sql("INSERT INTO t SELECT seq, REPEAT('x', 1000), seq, NULL FROM seq_1_to_20000")
    inspection = log.reader.inspect(None, ReadRequest(Cancellation()))
    made = MysqlDatabase(log.reader.spec.connection, "here")
    with made.reading(database.url, inspection.found, Cancellation()) as session:
        with session.rows(inspection.asked, None) as rows:
            next(rows)
            database.sql("DELETE FROM t WHERE id > 5")
            assert sum(1 for _ in rows) == 19_999
        with session.rows(inspection.asked, None) as rows:
            assert sum(1 for _ in rows) == 20_000

    def leave():
        with (
            made.reading(database.url, inspection.found, Cancellation()) as session,
            session.rows(inspection.asked, None) as rows,
        ):
            next(rows)
            raise ZeroDivisionError

    # PyMySQL would wait for the rest of the rows.
    with pytest.raises(ZeroDivisionError):
        leave()


@pytest.mark.security
def test_the_certificate_of_a_server_is_verified(log, database, mariadb, monkeypatch):
    def connect(host, mode="", **options):
        monkeypatch.setenv("SHOP_URL", f"mysql://freshline:@{host}:{mariadb.port}/{database.name}{mode}")
        log.open(**options)

    connect("127.0.0.1", "?ssl-mode=disabled")
    assert log.refresh() == []
    connect("localhost", "?ssl-mode=verify-identity")
    error = log.error("DATABASE_REFUSED")
    assert ("its certificate is not accepted" in str(error), error.retry_helps) == (True, False)
    connect("localhost", **{"tls.ca": str(mariadb.certificate)})
    assert log.refresh() is None
    # The certificate is one of another name.
    connect("127.0.0.1")
    assert "its certificate is not accepted" in str(log.error("DATABASE_REFUSED"))
    connect("localhost", **{"tls.ca": "/none.pem"})
    assert "a file of `tls` is not there" in str(log.error("DATABASE_REFUSED"))


def test_a_server_that_dies_in_the_middle_of_a_reading_is_read_from_the_beginning(log, database, mariadb, monkeypatch):
    database.sql("INSERT INTO t SELECT seq, REPEAT('x', 1000), seq, NULL FROM seq_1_to_20000")
    log.dies_in_the_middle(mariadb, database, monkeypatch)
    portion = prepared(log)
    assert portion.rows.count == 20_000
    log.reader.finish(None)


def prepared(log, cancellation=None):
    asked = cancellation or Cancellation()
    portion = log.reader.cut(log.reader.inspect(None, ReadRequest(asked)), None)
    return log.reader.prepare(None, portion, None, asked)


def test_a_reading_that_is_cancelled_ends_in_the_database_too(log, database):
    database.sql("INSERT INTO t VALUES (1, 'a', 1, NULL)")
    log.open(where="SLEEP(60) = 0")
    cancellation = Cancellation()
    timer = threading.Timer(1, cancellation.cancel)
    timer.start()
    begun = time.monotonic()
    with pytest.raises(CancelledError):
        prepared(log, cancellation)
    timer.join()

    assert time.monotonic() - begun < 30

    def is_over() -> bool:
        with database.connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM information_schema.PROCESSLIST "
                "WHERE INFO LIKE '%SLEEP(60)%' AND ID <> CONNECTION_ID()"
            )
            return bool(cursor.fetchone() == (0,))

    # The server ends a statement soon after it was told to, and this one by itself after 60 seconds.
    assert wait_until(is_over, 15)


@pytest.mark.parametrize(
    "statements",
    [
        ["TRUNCATE t", "INSERT INTO t VALUES (9, 'new', 1, NULL)"],
        ["DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, name TEXT, n INT, at DATETIME(6))"],
        ["ALTER TABLE t DROP COLUMN name", "ALTER TABLE t ADD COLUMN name TEXT"],
    ],
)
def test_a_table_that_is_changed_while_it_begins_to_be_read_is_read_again(log, database, monkeypatch, statements):
    database.sql("INSERT INTO t VALUES (1, 'a', 1, NULL)")
    ask = mysql_module._ask

    def changed_behind_the_snapshot(connection, query, *given):
        found = ask(connection, query, *given)
        if query.startswith("START TRANSACTION"):
            database.sql(*statements)
        return found

    monkeypatch.setattr(mysql_module, "_ask", changed_behind_the_snapshot)
    assert log.error("DATABASE").retry_helps
    monkeypatch.setattr(mysql_module, "_ask", ask)
    with database.connection.cursor() as cursor:
        cursor.execute("SELECT id, name FROM t")
        assert log.refresh() == list(cursor.fetchall())
