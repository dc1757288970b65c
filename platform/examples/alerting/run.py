"""Replay a month of departures out of order, find aircraft whose delays grow, and let an alert be sent.

Exit code 0 only if each table equals what `re` and DuckDB find, `freshline verify` finds no difference, and the alert
about a delivery that cannot be read is delivered.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from replay import Project, Record, ReplayError, as_table, departures, main, out_of_order

# Seconds after which an alert should have been sent: the watch reads all logs every ten.
SENT_WITHIN = 120
ROTATION = """
    SELECT tail, min(left_at) AS window_start, max(left_at) + INTERVAL '8 hours' AS window_end,
      count(*) AS departures, max(delay) AS worst
    FROM (SELECT *, sum(begins) OVER (PARTITION BY tail ORDER BY left_at, id) AS number
          FROM (SELECT *, CASE WHEN left_at - lag(left_at) OVER (PARTITION BY tail ORDER BY left_at, id)
                                  <= INTERVAL '8 hours' THEN 0 ELSE 1 END AS begins
                FROM departure WHERE left_at IS NOT NULL))
    GROUP BY tail, number"""


def of_aircraft(records: Sequence[Record]) -> Iterator[tuple[str | None, list[Record]]]:
    """The departures of each aircraft in their order: those without a time, which were cancelled, first."""
    found: dict[str | None, list[Record]] = {}
    for record in sorted(
        records, key=lambda record: (record["left_at"] if record["left_at"] != "NA" else "", int(record["id"]))
    ):
        found.setdefault(None if record["tail"] == "NA" else record["tail"], []).append(record)
    yield from found.items()


def delay_of(record: Record) -> int | None:
    return None if record["delay"] == "NA" else int(record["delay"])


def growing(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    """The rows of `growing`: in a text with `+` for a delay that grew by more than ten minutes, and `.` for another."""
    for tail, flights in of_aircraft(records):
        delays = [delay_of(flight) for flight in flights]
        pairs = zip([None, *delays], delays, strict=False)
        text = "".join("+" if None not in pair and pair[1] > pair[0] + 10 else "." for pair in pairs)
        for match in re.finditer(r".\+{3,}", text):
            first, last = flights[match.start()], flights[match.end() - 1]
            yield tail, first["left_at"], last["left_at"], len(match[0]), delay_of(first), delay_of(last)


def recovered(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    """The rows of `recovered`: in a text with `L` for a late departure, `T` for one in time, and `.` for another."""
    for tail, flights in of_aircraft(records):
        delays = [delay_of(flight) for flight in flights]
        text = "".join("." if each is None else "L" if each > 30 else "T" if each <= 5 else "." for each in delays)
        # The last departure of a match may be the first one of the next: it is read, and not taken.
        for run, match in enumerate(re.finditer(r"TL{2,4}?(?=T)", text), start=1):
            late = delays[match.start() + 1 : match.end()]
            for place in range(match.start(), match.end() + 1):
                part = "LATE" if text[place] == "L" else "IN_TIME"
                yield tail, int(flights[place]["id"]), part, run, max(each for each in late if each is not None)


def expect(connection: duckdb.DuckDBPyConnection, name: str, columns: str, rows: Iterator[tuple[Any, ...]]) -> None:
    """Make a table of DuckDB from rows."""
    connection.execute(f"CREATE TABLE {name} ({columns})")
    found = list(rows)
    marks = ", ".join("?" * len(found[0]))
    connection.executemany(f"INSERT INTO {name} VALUES ({marks})", found)


def alert_is_sent(project: Project, records: Sequence[Record]) -> bool:
    """Whether an alert is delivered about a delivery whose delays are no numbers."""
    broken = [record | {"id": f"{record['id']}0000", "delay": "late"} for record in records[: len(records) // 20]]
    project.land("departure", "delivery-broken.csv", broken)
    project.run("refresh", "departure")
    watch = subprocess.Popen(
        [*project.command(), "watch", "--project", str(project.folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        ends = time.monotonic() + SENT_WITHIN
        while time.monotonic() < ends:
            for alert in json.loads(project.run("alerts", "--json")):
                if alert["kind"] == "quarantine" and alert["delivered_to"]:
                    print(f"alert, {alert['level']}: {alert['table']}: {alert['cause']}", flush=True)
                    return True
            time.sleep(1)
    finally:
        watch.terminate()
        watch.wait()
    raise ReplayError(f"no alert was delivered within {SENT_WITHIN} seconds")


def alerting(days: int, days_per_refresh: int) -> bool:
    """Replay New York's departures of 2013, find delays that grow, and compare with `re` and DuckDB."""
    project = Project(Path(__file__).resolve().parent)
    records = departures(days)
    project.wipe()
    try:
        project.replay("departure", out_of_order(records, days_per_refresh))
        verified = project.verify(["growing", "recovered", "rotation"])
        with duckdb.connect() as connection:
            as_table(connection, "departure", project.state / "raw" / "departure.csv", iter(records))
            expect(
                connection, "growing", "tail VARCHAR, began TIMESTAMPTZ, ended TIMESTAMPTZ, flights BIGINT, "
                "first_delay INTEGER, last_delay INTEGER", growing(records)
            )  # fmt: skip
            columns = "tail VARCHAR, id BIGINT, part VARCHAR, run BIGINT, worst INTEGER"
            expect(connection, "recovered", columns, recovered(records))
            queries = {"growing": "FROM growing", "recovered": "FROM recovered", "rotation": ROTATION}
            equal = [project.equals(connection, name, query) for name, query in queries.items()]
        return verified and all(equal) and alert_is_sent(project, records)
    finally:
        project.run("engine", "stop")


if __name__ == "__main__":
    raise SystemExit(main(alerting))
