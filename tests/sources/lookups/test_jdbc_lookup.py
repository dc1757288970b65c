"""Tables of databases asked for the rows of keys, on real servers of Postgres and MariaDB."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from freshline.errors import DatabaseRefusedError, SourceTypeError
from freshline.sources.jdbc.connector import Name
from freshline.sources.jdbc.lookup import JdbcLookup
from freshline.sources.jdbc.lookup_client import JdbcLookupClient
from freshline.sources.lookups.ask import Limits, ask_all
from freshline.sources.lookups.client import NO_ROW, Answer, AwayError
from freshline.values.spec import Column
from tests.databases import Database
from tests.mariadb import MariadbDatabase

ASKED = "id INT, name STRING, n DECIMAL(10,2)"


def columns_of(text: str) -> tuple[Column, ...]:
    parts = [part.strip().split(" ", 1) for part in text.replace(",2)", ";2)").split(",")]
    return tuple(Column(name, kind.replace(";", ",")) for name, kind in parts)


def client_of(url, monkeypatch, table="t", columns=ASKED, key=("id",), **options) -> JdbcLookupClient:
    monkeypatch.setenv("SHOP_URL", url)
    connection = JdbcLookup(url="${env:SHOP_URL}", schema=None, table=Name(table, True), **options)
    spec: Any = SimpleNamespace(
        connection=connection, columns=columns_of(columns), primary_key=key, written_at="s.sql:1"
    )
    return JdbcLookupClient(spec, SimpleNamespace(root=Path()), pa.schema([]))


@pytest.fixture(params=["postgres", "mariadb"])
def database(request):
    server = request.getfixturevalue(request.param)
    made: Any = Database(server) if request.param == "postgres" else MariadbDatabase(server)
    yield made
    made.close()


@pytest.fixture
def asks(database, monkeypatch) -> Callable[..., JdbcLookupClient]:
    def ask(*given, **options):
        return client_of(database.url, monkeypatch, *given, **options)

    return ask


def test_keys_have_their_rows_in_one_query(database, asks):
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(50), n DECIMAL(10,2))")
    database.sql("INSERT INTO t VALUES (1, 'A', 1.50), (2, NULL, 2)")
    client = asks()

    assert client.ask([(2,), (3,), (1,), (2,)]) == [
        Answer({"name": None, "n": Decimal("2.00")}),
        NO_ROW,
        Answer({"name": "A", "n": Decimal("1.50")}),
        Answer({"name": None, "n": Decimal("2.00")}),
    ]
    client.close()


def test_keys_of_every_type_and_texts_with_quotes_find_their_row(database, asks):
    database.sql(
        "CREATE TABLE t (k VARCHAR(50), d DATE, m DECIMAL(10,2), at TIMESTAMP(6) NULL, b BOOLEAN, v INT)",
    )
    odd = """x"; DROP TABLE t; -- '\\ ü"""
    if isinstance(database, Database):
        database.connection.execute("ALTER TABLE t ALTER at TYPE TIMESTAMPTZ")
        insert = "INSERT INTO t VALUES (%s, '2026-01-02', 1.10, '2026-01-02 03:04:05.000006+00', true, 7)"
        database.connection.execute(insert, (odd,))
    else:
        with database.connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            insert = "INSERT INTO t VALUES (%s, '2026-01-02', 1.10, '2026-01-02 03:04:05.000006', true, 7)"
            cursor.execute(insert, (odd,))
    client = asks(
        columns="k STRING, d DATE, m DECIMAL(10,2), at TIMESTAMP, b BOOLEAN, v INT", key=("k", "d", "m", "at", "b")
    )
    key = (odd, date(2026, 1, 2), Decimal("1.10"), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), True)

    assert client.ask([key, ("other", *key[1:]), ("a\0b", *key[1:])]) == [Answer({"v": 7}), NO_ROW, NO_ROW]
    client.close()


def test_connections_are_kept_from_one_refresh_to_the_next(database, asks):
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(50), n DECIMAL(10,2))")
    client = asks()
    for _ in range(3):
        ask_all(client, [(number,) for number in range(800)], Limits(4), lambda: None, lambda arrived: True)
        assert len(client._connections._resting) <= 4
        assert client._connections._used == []
    client.close()


def test_several_rows_and_values_that_do_not_fit_are_no_answer(database, asks):
    database.sql("CREATE TABLE t (id INT, name VARCHAR(50), n DECIMAL(20,4))")
    database.sql("INSERT INTO t VALUES (1, 'A', 1), (1, 'B', 2), (2, 'C', 1.2345), (3, 'D', 3)")
    several, unfit, fits = asks().ask([(1,), (2,), (3,)])

    assert "2 rows of" in several.failed
    assert unfit.failed == "column n is DECIMAL(10,2), and the table has a value that it cannot have"
    assert fits.row == {"name": "D", "n": Decimal("3.00")}
    assert asks(where="name = 'B'").ask([(1,), (3,)]) == [Answer({"name": "B", "n": Decimal("2.00")}), NO_ROW]


def test_a_wrong_table_column_type_or_password_is_refused_and_shows_no_secret(database, asks, monkeypatch):
    database.sql("CREATE TABLE t (id INT, name VARCHAR(50))")
    with pytest.raises(DatabaseRefusedError, match="no table missing"):
        asks("missing").ask([(1,)])
    with pytest.raises(DatabaseRefusedError, match="has no column n"):
        asks().ask([(1,)])
    with pytest.raises(SourceTypeError, match="column name is declared INT"):
        asks(columns="id INT, name INT").ask([(1,)])
    with pytest.raises(DatabaseRefusedError, match="option 'url'") as refused:
        client_of("oracle://u:a-secret@h/x", monkeypatch)
    assert "a-secret" not in str(refused.value)


def test_a_query_that_takes_too_long_ends_and_the_next_one_has_a_new_connection(database, asks):
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(50), n DECIMAL(10,2))")
    database.sql("INSERT INTO t VALUES (1, 'A', 1)")
    client = asks(lookup_timeout=1)
    assert client.ask([(1,)])[0].row is not None
    slow = "pg_sleep(20) IS NOT NULL" if isinstance(database, Database) else "SLEEP(20) IS NOT NULL"
    sleeping = asks(lookup_timeout=1, where=slow)
    with pytest.raises(AwayError, match=r"takes longer than 'lookup.timeout'"):
        sleeping.ask([(1,)])

    assert client.ask([(1,)])[0].row == {"name": "A", "n": Decimal("1.00")}
