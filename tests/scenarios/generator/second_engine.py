"""DuckDB, which shares no code with Spark: it computes queries, and judges affected keys without Spark.

Affected keys are right when rows that have none of them are the same before and after. That is a claim about SQL, so
any engine can test it, and DuckDB does so in milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import duckdb
import sqlglot

from freshline.query.rules.keys import Affected, QueryStage
from freshline.query.tree import RelationState, view_of
from tests.scenarios.generator.changes import Change
from tests.scenarios.generator.definitions import WINDOWS, all_windows, translated_definition
from tests.scenarios.generator.matches import Matching
from tests.scenarios.generator.values import DUCKDB, Relation, declaration

Row = tuple[Any, ...]
# Where the sources stand as they were before the changes.
BEFORE = "before"
# Rows that are added up in these orders give other sums of DOUBLE.
FORWARD, BACKWARD = "", "DESC"
BLURRED = "some number"
_ALL = tuple(all_windows())


# Functions of Spark that window functions and as-of joins become, which DuckDB has under other names.
MACROS = (
    "unix_micros(a) AS epoch_us(a)",
    "timestamp_micros(a) AS make_timestamp(a)",
    "pmod(a, b) AS ((a % b) + b) % b",
    "raise_error(a) AS error(a)",
)


class NotReadError(Exception):
    """DuckDB does not read this SQL."""


class SecondEngine:
    """The sources of a case in DuckDB, before and after a round of changes."""

    def __init__(self, relations: Sequence[Relation]) -> None:
        self.relations = tuple(relations)
        self.connection = duckdb.connect(":memory:", config={"threads": "1"})
        self.connection.execute("SET TimeZone = 'UTC'")
        # Queries are computed as written: the order of rows that are joined is not to follow how many there are,
        # and DuckDB 2.0.0 loses a HAVING over sum(DISTINCT ..) where its statistics say that every group passes.
        self.connection.execute("PRAGMA disable_optimizer")
        self.connection.execute(f"CREATE SCHEMA {BEFORE}")
        for macro in MACROS:
            self.connection.execute(f"CREATE MACRO {macro}")
        for relation in relations:
            columns = declaration(relation.columns, DUCKDB)
            self.connection.execute(f"CREATE TABLE {relation.name} ({columns})")
        rows = ", ".join(f"('{name}', TIMESTAMP '{start:%F %T}', TIMESTAMP '{end:%F %T}')" for name, start, end in _ALL)
        self.connection.execute(
            f"CREATE TEMP TABLE {WINDOWS} AS SELECT * FROM (VALUES {rows}) AS w (function, window_start, window_end)"
        )

    def close(self) -> None:
        """Let go of everything."""
        self.connection.close()

    def apply(self, changes: Iterable[Change]) -> None:
        """Change the sources."""
        by_name = {relation.name: relation for relation in self.relations}
        for change in changes:
            for statement in change.statements(by_name[change.source], DUCKDB):
                self.connection.execute(statement)

    def fill(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Give a source these rows instead of its own."""
        self.connection.execute(f"DELETE FROM {name}")
        for row in rows:
            marks = ", ".join("?" for _ in row)
            self.connection.execute(f"INSERT INTO {name} VALUES ({marks})", list(row.values()))

    def match(self, matchings: Iterable[Matching]) -> int:
        """Make the tables of matches by definition, from the sources as they are; returns how many rows they have."""
        count = 0
        for matching in matchings:
            found = self.connection.execute(f"SELECT * FROM {matching.data}")
            names = [column[0] for column in found.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            columns = declaration(matching.columns, DUCKDB)
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {matching.name} ({columns})")
            for row in matching.rows(rows):
                marks = ", ".join("?" for _ in row)
                self.connection.execute(f"INSERT INTO {matching.name} VALUES ({marks})", list(row))
                count += 1
        return count

    def keep(self) -> None:
        """Keep the rows that there are as those before the changes that follow."""
        for relation in self.relations:
            name = relation.name
            self.connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {_view(RelationState.OLD, name)} AS SELECT * FROM {name}"
            )
            self.connection.execute(f"CREATE OR REPLACE TABLE {BEFORE}.{name} AS SELECT * FROM {name}")

    def compare(self) -> frozenset[str]:
        """Make the views that an analysis reads, and return the relations whose rows changed, in lower case."""
        changed = set()
        for relation in self.relations:
            name, new, old = (
                relation.name,
                _view(RelationState.NEW, relation.name),
                _view(RelationState.OLD, relation.name),
            )
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {new} AS SELECT * FROM {name}")
            self.connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {_view(RelationState.CHANGED, name)} AS SELECT DISTINCT * FROM "
                f"((FROM {new} EXCEPT ALL FROM {old}) UNION ALL (FROM {old} EXCEPT ALL FROM {new}))"
            )
            if self._one(f"SELECT count(*) FROM {_view(RelationState.CHANGED, name)}"):
                changed.add(name.lower())
        return frozenset(changed)

    def rows(self, spark_sql: str) -> Counter[Row]:
        """The bag of rows of a query in Spark's SQL. Raises NotReadError."""
        return Counter(plain(self._fetch(translated(spark_sql))))

    def defined_rows(self, text: str) -> Counter[Row]:
        """The bag of rows of a query with everything by its definition. Raises NotReadError."""
        return Counter(plain(self._fetch(translated_definition(text))))

    def at(self, spark_sql: str, reading: RelationState) -> Counter[Row]:
        """The rows of a query over the sources at one time."""
        if reading is RelationState.NEW:
            return self.rows(spark_sql)
        self.connection.execute(f"SET schema = '{BEFORE}'")
        try:
            return self.rows(spark_sql)
        finally:
            self.connection.execute("SET schema = 'main'")

    def arrange(self, order: str) -> None:
        """Give every reading of every source its rows in one order, or in the opposite one."""
        for relation in self.relations:
            readings = [
                _view(reading, relation.name)
                for reading in (RelationState.NEW, RelationState.OLD, RelationState.CHANGED)
            ]
            for name in (*readings, relation.name, f"{BEFORE}.{relation.name}"):
                kind = "TEMP TABLE" if name in readings else "TABLE"
                self.connection.execute(f"CREATE OR REPLACE {kind} {name} AS SELECT * FROM {name} ORDER BY ALL {order}")

    def keys(self, affected: Affected) -> set[Row] | None:
        """The affected keys; None behind a guard."""
        for stage in affected.stages:
            self._provide(stage)
        for guard, _ in affected.guards:
            if self._fetch(f"SELECT * FROM ({translated(guard)}) LIMIT 1"):
                return None
        keys: set[Row] = set()
        for query in affected.queries:
            keys |= set(plain(self._fetch(translated(query))))
        return keys

    def wrong_rows(
        self,
        spark_sql: str,
        names: Sequence[str],
        affected: Affected,
        *,
        summed: Sequence[str] = (),
        before: str | None = None,
    ) -> Counter[Row] | None:
        """Rows that differ between before and after and have none of the affected keys; None behind a guard.

        `names` are the columns of the query, in lower case. The values of those of `summed` are not compared. `before`
        is the query of the time before, where it is another one.
        """
        keys = self.keys(affected)
        if keys is None:
            return None
        blurred = [names.index(name) for name in summed]
        old = _blur(self.at(before or spark_sql, RelationState.OLD), blurred)
        after = _blur(self.at(spark_sql, RelationState.NEW), blurred)
        read = _blur(self.rows(affected.whole), blurred)
        if read != after:
            raise AssertionError(f"the query as it was read gives {read - after} more and {after - read} less")
        places = [names.index(column) for column in affected.columns]
        found: Counter[Row] = Counter()
        for row in (old - after) + (after - old):
            if tuple(row[place] for place in places) not in keys:
                found[row] += 1
        return found

    def _provide(self, stage: QueryStage) -> None:
        self._make(view_of(RelationState.NEW, stage.relation), translated(stage.new))
        if stage.old is None:
            return
        new, old = (view_of(reading, stage.relation) for reading in (RelationState.NEW, RelationState.OLD))
        self._make(old, translated(stage.old))
        if stage.changed:
            text = " UNION ALL ".join(f"({translated(query)})" for query in stage.changed)
        elif stage.keys:
            keys = " UNION ALL ".join(f"({translated(query)})" for query in stage.keys)
            on = " AND ".join(f'r."{name}" IS NOT DISTINCT FROM k."{name}"' for name in stage.key_columns)
            text = " UNION ALL ".join(
                f'SELECT * FROM "{view}" r WHERE EXISTS (SELECT 1 FROM ({keys}) k WHERE {on})' for view in (new, old)
            )
        else:
            text = f'SELECT * FROM "{new}" WHERE false'
        self._make(view_of(RelationState.CHANGED, stage.relation), text)

    def _make(self, name: str, text: str) -> None:
        try:
            self.connection.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS {text}')
        except duckdb.Error as error:
            raise NotReadError(f"{error}: {text}") from error

    def _one(self, text: str) -> Any:
        found = self.connection.execute(text).fetchone()
        assert found is not None
        return found[0]

    def _fetch(self, text: str) -> list[Row]:
        try:
            return self.connection.execute(text).fetchall()
        except duckdb.Error as error:
            raise NotReadError(f"{error}: {text}") from error


def _blur(rows: Counter[Row], places: Sequence[int]) -> Counter[Row]:
    """The rows with nothing but whether it is NULL of what is at some places."""
    if not places:
        return rows
    found: Counter[Row] = Counter()
    for row, times in rows.items():
        found[tuple(BLURRED if n in places and v is not None else v for n, v in enumerate(row))] += times
    return found


def plain(rows: Iterable[Sequence[Any]]) -> list[Row]:
    """Rows whose values can be compared and counted."""
    return [tuple(_plain(value) for value in row) for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(_plain(item) for item in value.values())
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return value


@lru_cache(maxsize=10_000)
def translated(spark_sql: str) -> str:
    """Spark's SQL in DuckDB's."""
    return sqlglot.transpile(spark_sql, read="spark", write="duckdb")[0]


def _view(reading: RelationState, name: str) -> str:
    return view_of(reading, name.lower())
