"""The right rows of each table of workload A: by DuckDB, over all files that have landed.

A peer's time counts only if the rows of all its tables are these.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

_EVENTS = (
    "SELECT * FROM read_json('{folder}/event/*.json', format = 'newline_delimited', columns = "
    "{{event_id: 'VARCHAR', customer_id: 'VARCHAR', kind: 'VARCHAR', amount: 'BIGINT', happened_at: 'TIMESTAMP'}})"
)
_CHANGES = (
    "SELECT * FROM read_json('{folder}/change/*.json', format = 'newline_delimited', columns = "
    "{{change_id: 'VARCHAR', customer_id: 'VARCHAR', op: 'VARCHAR', name: 'VARCHAR', segment: 'VARCHAR', "
    "country: 'VARCHAR', changed_at: 'TIMESTAMP'}})"
)
# In the order in which one is made of those before.
TABLES: Mapping[str, str] = {
    "event": "SELECT DISTINCT event_id, customer_id, kind, amount, happened_at FROM raw_event",
    "first_event": "SELECT customer_id, event_id, kind, amount, happened_at FROM event "
    "QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY happened_at, event_id) = 1",
    "customer": "SELECT customer_id, change_id, name, segment, country, changed_at FROM (SELECT * FROM raw_change "
    "QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY changed_at DESC, change_id DESC) = 1) "
    "WHERE op <> 'd'",
    "enriched": "SELECT e.event_id, e.customer_id, e.kind, e.amount, e.happened_at, c.segment, c.country "
    "FROM event e LEFT JOIN customer c ON c.customer_id = e.customer_id",
    "revenue": "SELECT segment, CAST(happened_at AS DATE) AS day, count(*) AS events, "
    "CAST(sum(amount) AS BIGINT) AS amount FROM enriched GROUP BY ALL",
}


class Answers:
    """The rows that the tables must have, as of the files that are below `landing` now."""

    def __init__(self, landing: Path) -> None:
        self._database = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.execute(f"CREATE TABLE raw_event AS {_EVENTS.format(folder=landing)}")
        self._database.execute(f"CREATE TABLE raw_change AS {_CHANGES.format(folder=landing)}")
        for name, query in TABLES.items():
            self._database.execute(f"CREATE TABLE {name} AS {query}")

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *error: object) -> None:
        self._database.close()

    def rows(self, table: str) -> list[tuple[object, ...]]:
        """All rows of a table, sorted."""
        return self._database.execute(f"SELECT * FROM {table} ORDER BY ALL").fetchall()

    def difference(self, table: str, found: pa.Table) -> str | None:
        """How the rows of a peer differ from the right ones; None if they are equal, whatever their order."""
        return difference(self._database, table, self._database.sql(f"FROM {table}").to_arrow_table(), found)


def difference(database: duckdb.DuckDBPyConnection, table: str, right: pa.Table, found: pa.Table) -> str | None:
    """How the rows that were found differ from the right ones; None if they are equal, whatever their order."""
    missing = [name for name in right.column_names if name not in found.column_names]
    if missing:
        return f"{table} has no column {', '.join(missing)}"
    database.register("found_rows", _plain(found.select(right.column_names)))
    database.register("right_rows", _plain(right))
    counts: list[int] = []
    for left, other in (("found_rows", "right_rows"), ("right_rows", "found_rows")):
        query = f"SELECT count(*) FROM (FROM {left} EXCEPT ALL FROM {other})"
        counts += [count for (count,) in database.execute(query).fetchall()]
    if not any(counts):
        return None
    return f"{table} has {counts[0]} rows that it should not have, and lacks {counts[1]}"


def _plain(rows: pa.Table) -> pa.Table:
    """Times as microseconds and text as text, since engines mark zones and encode text in ways of their own."""
    fields = []
    for field in rows.schema:
        kind = field.type
        if pa.types.is_timestamp(kind):
            kind = pa.timestamp("us")
        elif pa.types.is_integer(kind):
            kind = pa.int64()
        elif not pa.types.is_date(kind):
            kind = pa.string()
        fields.append(pa.field(field.name, kind))
    return rows.cast(pa.schema(fields))
