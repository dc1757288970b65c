"""The promise of the affected keys, looked at in DuckDB: no row outside of them differs between two times.

The SQL of an analysis is run as it is, translated, over tables of two times, without Spark: a check takes milliseconds,
so that many queries can meet many changes. What runs it in a refresh is `freshline.refresh.keys`, which has tests of
its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import duckdb
import sqlglot

from freshline.query.reason import Reason
from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.keys import Affected, Stage, find_affected
from freshline.query.tree import Reading, view_of

Row = tuple[object, ...]


@dataclass(frozen=True)
class Found:
    """What an analysis and the two results say of a change.

    `keys` are the affected ones, `differing` those of the rows by which the two results differ; `alike` says whether
    the query as the analysis read it gives the rows of the query as it was written.
    """

    columns: tuple[str, ...]
    keys: frozenset[Row]
    differing: frozenset[Row]
    alike: bool

    @property
    def missing(self) -> frozenset[Row]:
        """Keys of rows that differ although the analysis says that they cannot."""
        return self.differing - self.keys


class TwoTimes:
    """Tables `old_<name>` and `new_<name>` of a DuckDB connection, for relations with these columns."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        relations: Mapping[str, Sequence[str]],
        types: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.connection = connection
        self._relations = relations
        self._types = {relation: tuple(kinds.items()) for relation, kinds in (types or {}).items()}

    def look(self, query: str) -> Found | Reason:
        """Follow the changes between the two times through a query; a reason where that cannot be done."""
        read = {name: self._relations[name] for name in self._relations if _reads(query, name)}
        # Changes that come to nothing are changes too.
        changed = frozenset([name for name in read if self._changed(name)] or read)
        columns = tuple((name, tuple(names)) for name, names in read.items())
        affected = _analysed(query, columns, changed, tuple(self._types.items()))
        if isinstance(affected, Reason):
            return affected
        for stage in affected.stages:
            self._provide(stage)
        for guard, reason in affected.guards:
            if self.connection.execute(translated(guard)).fetchone():
                return reason
        results = {}
        for reading in (Reading.OLD, Reading.NEW):
            for name in read:
                self._name(name, f"{reading.value}_{name}")
            results[reading] = self._make(f"result_{reading.value}", translated(query))
        alike = self._make("read", translated(affected.whole))
        return Found(
            affected.columns,
            self._rows(self._all_of(affected.queries)),
            self._rows(_different(results[Reading.OLD], results[Reading.NEW], affected.columns)),
            alike=not self._rows(_different(alike, results[Reading.NEW], affected.columns)),
        )

    def _changed(self, name: str) -> bool:
        """Make the views of an input; whether it changed."""
        old, new = f"old_{name}", f"new_{name}"
        self._name(view_of(Reading.NEW, name), new)
        self._name(view_of(Reading.OLD, name), old)
        images = self._make(view_of(Reading.CHANGED, name), f"SELECT DISTINCT * FROM ({_difference(old, new)})")
        return bool(self.connection.execute(f"FROM {images} LIMIT 1").fetchone())

    def _provide(self, stage: Stage) -> None:
        new = self._make(view_of(Reading.NEW, stage.relation), translated(stage.new))
        if stage.old is None:
            return
        old = self._make(view_of(Reading.OLD, stage.relation), translated(stage.old))
        if stage.changed:
            self._make(view_of(Reading.CHANGED, stage.relation), self._all_of(stage.changed, also="ALL"))
            return
        names = [f"k{number}" for number in range(len(stage.key_columns))]
        keys = f"(SELECT * FROM ({self._all_of(stage.keys)}) AS named ({', '.join(names)}))"
        on = " AND ".join(
            f'r."{column}" IS NOT DISTINCT FROM k.{name}' for column, name in zip(stage.key_columns, names, strict=True)
        )
        rows = (f"(SELECT r.* FROM {relation} r SEMI JOIN {keys} k ON {on})" for relation in (new, old))
        self._make(view_of(Reading.CHANGED, stage.relation), " UNION ALL ".join(rows))

    def searched(self, query: str) -> str:
        """A search for affected keys as it is run."""
        return query

    def _all_of(self, queries: Iterable[str], also: str = "") -> str:
        return f" UNION {also} ".join(f"({translated(self.searched(query))})" for query in queries)

    def _make(self, name: str, query: str) -> str:
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
        return name

    def _name(self, name: str, table: str) -> None:
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM {table}")

    def _rows(self, query: str) -> frozenset[Row]:
        return frozenset(self.connection.execute(query).fetchall())


@cache
def _analysed(
    query: str,
    relations: tuple[tuple[str, tuple[str, ...]], ...],
    changed: frozenset[str],
    types: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
) -> Affected | Reason:
    known = {relation: dict(kinds) for relation, kinds in types}
    return find_affected(ResolvedQuery.of(query, dict(relations), known), changed)


@cache
def _reads(query: str, name: str) -> bool:
    return any(table.name == name for table in sqlglot.parse_one(query, dialect="spark").find_all(sqlglot.exp.Table))


@cache
def translated(text: str) -> str:
    """Spark's SQL as that of DuckDB."""
    return sqlglot.transpile(text, read="spark", write="duckdb")[0]


def _difference(left: str, right: str) -> str:
    return f"(FROM {left} EXCEPT ALL FROM {right}) UNION ALL (FROM {right} EXCEPT ALL FROM {left})"


def _different(left: str, right: str, columns: Sequence[str]) -> str:
    names = ", ".join(sqlglot.exp.column(column, quoted=True).sql() for column in columns)
    return f"SELECT {names} FROM ({_difference(left, right)})"


# What a test that changes the analysis has to forget.
KEPT = (_analysed,)
