"""The rows of every table by its definition: its query, and those of all that it reads, over rows of the sources.

DuckDB computes them, which shares no code with Spark, and nothing of freshline has a part in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb

from tests.scenarios.graphs.case import Source, Table

Rows = Counter[tuple[Any, ...]]


class Definitions:
    """The tables of a case as views over the rows that their sources are given."""

    def __init__(self, sources: Iterable[Source], tables: Sequence[Table]) -> None:
        self.connection = duckdb.connect(":memory:", config={"threads": "1"})
        self.connection.execute("SET TimeZone = 'UTC'")
        # As in the second engine of generated queries: DuckDB 2.0.0 loses rows where statistics mislead it.
        self.connection.execute("PRAGMA disable_optimizer")
        self._filled: dict[str, int] = {}
        self._known: dict[tuple[str, tuple[tuple[str, int], ...]], Rows] = {}
        for source in sources:
            self.connection.execute(f"CREATE TABLE {source.name} (id INTEGER, g VARCHAR, v BIGINT, ts TIMESTAMP)")
        for table in tables:
            self.define(table)

    def close(self) -> None:
        """Let go of everything."""
        self.connection.close()

    def define(self, table: Table) -> None:
        """Give a table this definition from now on."""
        self._known.clear()
        if not table.unjudged:
            self.connection.execute(f"CREATE OR REPLACE VIEW {table.name} AS SELECT id, g, v FROM ({table.defined})")

    def rows(self, table: str, sources: Mapping[str, tuple[int, Sequence[tuple[Any, ...]]]]) -> Rows:
        """The rows of a table over those of its sources, each with a number by which a state of it is known."""
        key = (table, tuple((name, number) for name, (number, _) in sorted(sources.items())))
        if key not in self._known:
            for name, (number, rows) in sources.items():
                self._fill(name, number, rows)
            found = self.connection.execute(f"SELECT id, g, v FROM {table}").fetchall()
            self._known[key] = Counter(found)
        return self._known[key]

    def _fill(self, name: str, number: int, rows: Sequence[tuple[Any, ...]]) -> None:
        if self._filled.get(name) == number:
            return
        self._filled[name] = number
        self.connection.execute(f"DELETE FROM {name}")
        for row in rows:
            self.connection.execute(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", list(row))
