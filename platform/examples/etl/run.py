"""Replay a month of departures into tables whose rows are written once, and compare each with DuckDB's.

Late and refused records are beside the tables, and are compared too. Exit code 0 only if every table equals DuckDB's,
and `freshline verify` finds no difference.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from replay import Project, Record, as_table, departures, main, out_of_order

DELAY = timedelta(hours=1)
LATENESS = "INTERVAL '6 hours'"
HOURS = "time_bucket(INTERVAL '1 hour', left_at)"
EXPECTED = {
    "departure": "SELECT id, origin, left_at, distance FROM accepted",
    "departure__quarantine": "SELECT 'CONSTRAINT(far_enough)' AS error FROM departure WHERE distance <= 0",
    "hourly": f"""
        SELECT * FROM (
          SELECT {HOURS} AS window_start, {HOURS} + INTERVAL '1 hour' AS window_end, origin,
            count(*) AS departures, sum(distance)::BIGINT AS miles
          FROM in_time GROUP BY 1, 2, 3)
        WHERE window_end + {LATENESS} <= (SELECT max(watermark) FROM passed)""",
    "hourly__late": f"""
        SELECT id, {HOURS} AS window_start, delivery AS position,
          (epoch_us(before) - epoch_us({HOURS} + INTERVAL '1 hour' + {LATENESS}))::DECIMAL(20, 6) / 1000000 AS late_by
        FROM accepted WHERE late""",
    "daily": f"""
        SELECT * FROM (
          SELECT time_bucket(INTERVAL '1 day', {HOURS} + INTERVAL '1 hour') AS window_start,
            count(*) AS departures, sum(distance)::BIGINT AS miles
          FROM in_time GROUP BY 1)
        WHERE window_start + INTERVAL '1 day' + {LATENESS} <= (SELECT max(watermark) FROM passed)""",
}


def delivered(deliveries: Sequence[Sequence[Record]]) -> Iterator[Record]:
    """The records with the number of their delivery, which is one batch, and the watermark before it and after it."""
    before: datetime | None = None
    for number, records in enumerate(deliveries, 1):
        times = [
            datetime.fromisoformat(record["left_at"])
            for record in records
            if record["left_at"] != "NA" and int(record["distance"]) > 0
        ]
        after = max([max(times) - DELAY, *([] if before is None else [before])])
        for record in records:
            yield record | {"delivery": str(number), "before": _text(before), "after": _text(after)}
        before = after


def _text(time: datetime | None) -> str:
    return "NA" if time is None else time.astimezone(UTC).isoformat()


def spoiled(records: Sequence[Record]) -> list[Record]:
    """The records, of which one in 500 has a distance that no flight has."""
    chance = random.Random(2)
    return [record | ({"distance": "0"} if chance.random() < 0.002 else {}) for record in records]


def etl(days: int, days_per_refresh: int) -> bool:
    """Replay New York's departures of 2013 into final tables, and compare with DuckDB."""
    project = Project(Path(__file__).resolve().parent)
    deliveries = out_of_order(spoiled(departures(days)), days_per_refresh)
    project.wipe()
    try:
        project.replay("departure", deliveries)
        verified = project.verify(["hourly", "hourly__late", "daily"])
    finally:
        project.run("engine", "stop")
    with duckdb.connect() as connection:
        as_table(connection, "departure", project.state / "raw" / "departure.csv", delivered(deliveries))
        connection.execute("ALTER TABLE departure ALTER before TYPE TIMESTAMPTZ")
        connection.execute(f"""
            CREATE VIEW accepted AS SELECT *,
              coalesce({HOURS} + INTERVAL '1 hour' + {LATENESS} <= before, false) AS late
            FROM departure WHERE distance > 0""")
        connection.execute("CREATE VIEW in_time AS SELECT * FROM accepted WHERE left_at IS NOT NULL AND NOT late")
        connection.execute('CREATE VIEW passed AS SELECT "after"::TIMESTAMPTZ AS watermark FROM departure')
        equal = [project.equals(connection, name, query) for name, query in EXPECTED.items()]
        return verified and all(equal)


if __name__ == "__main__":
    raise SystemExit(main(etl))
