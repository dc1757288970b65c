"""Replay a month of departures out of order, keep windows of time fresh, and compare each table with DuckDB's.

Exit code 0 only if every table equals DuckDB's, and `freshline verify` finds no difference.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from replay import Project, as_table, departures, main, out_of_order

EXPECTED = {
    "quarter_hour": """
        SELECT time_bucket(INTERVAL '15 minutes', left_at) AS window_start,
          time_bucket(INTERVAL '15 minutes', left_at) + INTERVAL '15 minutes' AS window_end, origin,
          count(*) AS departures, sum(delay)::BIGINT AS delay
        FROM flown GROUP BY ALL""",
    "sliding_hour": """
        SELECT start AS window_start, start + INTERVAL '1 hour' AS window_end, origin, count(*) AS departures
        FROM (SELECT origin, time_bucket(INTERVAL '15 minutes', left_at) - back * INTERVAL '15 minutes' AS start
              FROM flown, range(4) AS r(back)) GROUP BY ALL""",
    "local_day": """
        SELECT midnight AT TIME ZONE 'America/New_York' AS window_start,
          (midnight + INTERVAL '1 day') AT TIME ZONE 'America/New_York' AS window_end, origin,
          count(*) AS departures, max(delay) AS longest_delay
        FROM (SELECT *, date_trunc('day', left_at AT TIME ZONE 'America/New_York') AS midnight FROM flown)
        GROUP BY ALL""",
    "rotation": """
        SELECT tail, min(left_at) AS window_start, max(left_at) + INTERVAL '6 hours' AS window_end,
          count(*) AS departures
        FROM (SELECT *, sum(begins) OVER (PARTITION BY tail ORDER BY left_at, id) AS number
              FROM (SELECT *, CASE WHEN left_at - lag(left_at) OVER (PARTITION BY tail ORDER BY left_at, id)
                                      <= INTERVAL '6 hours' THEN 0 ELSE 1 END AS begins FROM flown))
        GROUP BY tail, number""",
    "busiest": """
        SELECT * FROM (
          SELECT origin, date_trunc('week', window_start AT TIME ZONE 'America/New_York')
              AT TIME ZONE 'America/New_York' AS week, window_start AS quarter, departures,
            rank() OVER (PARTITION BY origin, week ORDER BY departures DESC, quarter)::INTEGER AS place
          FROM (SELECT time_bucket(INTERVAL '15 minutes', left_at) AS window_start, origin, count(*) AS departures
                FROM flown GROUP BY ALL))
        WHERE place <= 3""",
}


def analytics(days: int, days_per_refresh: int) -> bool:
    """Replay New York's departures of 2013 in windows of time, and compare with DuckDB."""
    project = Project(Path(__file__).resolve().parent)
    records = departures(days)
    project.wipe()
    try:
        project.replay("departure", out_of_order(records, days_per_refresh))
        verified = project.verify(list(EXPECTED))
    finally:
        project.run("engine", "stop")
    with duckdb.connect() as connection:
        as_table(connection, "departure", project.state / "raw" / "departure.csv", iter(records))
        connection.execute("CREATE VIEW flown AS SELECT * FROM departure WHERE left_at IS NOT NULL")
        equal = [project.equals(connection, name, query) for name, query in EXPECTED.items()]
        return verified and all(equal)


if __name__ == "__main__":
    raise SystemExit(main(analytics))
