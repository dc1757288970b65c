"""The promise of the affected keys, checked in DuckDB: no row outside of them differs between two times.

The SQL of an analysis is run as it is, translated, over tables of two times, without Spark: a check takes milliseconds,
so that many queries can be tried with many changes. In a refresh `freshline.compute.keys` runs it, which has tests of
its own.

The signed changed rows of an `Algebra` are checked in the same way: their sums are those by which the groups differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import duckdb
import sqlglot

from freshline.query.clock import ClockSpan
from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.algebra import SIGN, AggregateKind, Algebra, find_algebra
from freshline.query.rules.keys import Affected, QueryStage, find_affected
from freshline.query.tree import RelationState, view_of
from freshline.values.clock import CLOCK
from freshline.values.reason import Reason

Row = tuple[object, ...]
Sums = tuple[int, ...]
# The windows of `window(time, size)` in Spark.
TIME_WINDOW = (
    "CREATE OR REPLACE MACRO time_window(moment, size) AS {'start': time_bucket(CAST(size AS INTERVAL), moment, "
    "TIMESTAMP '1970-01-01'), 'end': time_bucket(CAST(size AS INTERVAL), moment, TIMESTAMP '1970-01-01') + "
    "CAST(size AS INTERVAL)}"
)


@dataclass(frozen=True)
class Found:
    """The findings of an analysis and of the two results about a change.

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

    def look(self, query: str, clock: ClockSpan | None = None) -> Found | Reason:
        """Follow the changes between the two times through a query; a reason where that cannot be done.

        `clock` are the two instants of a query with temporal filters, which is written as rules read it.
        """
        columns, changed = self._columns(query), self._moved(query, clock)
        affected = _analysed(query, columns, changed, tuple(self._types.items()))
        if isinstance(affected, Reason):
            return affected
        affected = affected if clock is None else affected.at(clock)
        for stage in affected.stages:
            self._provide(stage)
        for guard, reason in affected.guards:
            if self.connection.execute(translated(guard)).fetchone():
                return reason
        results = self._results(query, clock)
        alike = self._make("read", translated(affected.whole))
        return Found(
            affected.columns,
            self._rows(self._all_of(affected.queries)),
            self._rows(_different(results[RelationState.OLD], results[RelationState.NEW], affected.columns)),
            alike=not self._rows(_different(alike, results[RelationState.NEW], affected.columns)),
        )

    def look_at_groups(self, query: str, clock: ClockSpan | None = None) -> dict[Row, tuple[Sums, Sums]] | None:
        """The groups whose counts and sums are not the old ones with the signed changed rows, each with both.

        None where the query is not kept up by signed rows.
        """
        columns, changed = self._columns(query), self._moved(query, clock)
        algebra = _followed(query, columns, changed, tuple(self._types.items()))
        if algebra is None:
            return None
        algebra = algebra if clock is None else algebra.at(clock)
        for name, _ in columns:
            more, less = (
                f'SELECT *, {sign} AS "{SIGN}" FROM (FROM {these}_{name} EXCEPT ALL FROM {others}_{name})'
                for sign, these, others in ((1, "new", "old"), (-1, "old", "new"))
            )
            self._make(view_of(RelationState.SIGNED, name), f"{more} UNION ALL {less}")
        for stage in algebra.stages:
            self._make(view_of(RelationState.NEW, stage.relation), translated(stage.new))
            if stage.old is not None:
                self._make(view_of(RelationState.OLD, stage.relation), translated(stage.old))
                self._make(view_of(RelationState.SIGNED, stage.relation), self._all_of(stage.signed, also="ALL"))
        keys = ", ".join(f"k{number}" for number in range(len(algebra.keys)))
        sums = ", ".join(_signed(one.kind, one.argument) for one in algebra.aggregates)
        width = len(algebra.aggregates)
        terms = self._all_of(algebra.terms, also="ALL")
        moved = self._by_group(f"SELECT {keys}, {sums} FROM ({terms}) GROUP BY ALL", width)
        results = self._results(query, clock)
        names = ", ".join(f'"{name}"' for name in (*algebra.keys, *(one.column for one in algebra.aggregates)))
        old, new = (
            self._by_group(f"SELECT {names} FROM {results[at]}", width) for at in (RelationState.OLD, RelationState.NEW)
        )
        nothing = (0,) * width
        found: dict[Row, tuple[Sums, Sums]] = {}
        for group in moved.keys() | old.keys() | new.keys():
            followed = tuple(map(sum, zip(old.get(group, nothing), moved.get(group, nothing), strict=True)))
            if followed != new.get(group, nothing):
                found[group] = followed, new.get(group, nothing)
        return found

    def _by_group(self, query: str, width: int) -> dict[Row, Sums]:
        """Rows by all but their last `width` columns; a sum of nothing is 0."""
        rows = self.connection.execute(query).fetchall()
        return {row[:-width]: tuple(value or 0 for value in row[-width:]) for row in rows}

    def _columns(self, query: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return tuple((name, tuple(names)) for name, names in self._relations.items() if _reads(query, name))

    def _moved(self, query: str, clock: ClockSpan | None) -> frozenset[str]:
        """Make the views of the inputs; those that changed, and the time where there is one."""
        read = [name for name, _ in self._columns(query)]
        # Changes that come to nothing are changes too.
        changed = frozenset([name for name in read if self._changed(name)] or read)
        return changed if clock is None else changed | {CLOCK}

    def _results(self, query: str, clock: ClockSpan | None) -> dict[RelationState, str]:
        """The tables of the query's rows at the two times. The views of the new ones stay."""
        results = {}
        for reading in (RelationState.OLD, RelationState.NEW):
            for name, _ in self._columns(query):
                self._name(name, f"{reading.value}_{name}")
            text = query
            if clock is not None:
                at = clock.before if reading is RelationState.OLD and clock.before is not None else clock.after
                text = ClockSpan(at, at).fill(query)
            results[reading] = self._make(f"result_{reading.value}", translated(text))
        return results

    def _changed(self, name: str) -> bool:
        """Make the views of an input; whether it changed."""
        old, new = f"old_{name}", f"new_{name}"
        self._name(view_of(RelationState.NEW, name), new)
        self._name(view_of(RelationState.OLD, name), old)
        images = self._make(view_of(RelationState.CHANGED, name), f"SELECT DISTINCT * FROM ({_difference(old, new)})")
        return bool(self.connection.execute(f"FROM {images} LIMIT 1").fetchone())

    def _provide(self, stage: QueryStage) -> None:
        new = self._make(view_of(RelationState.NEW, stage.relation), translated(stage.new))
        if stage.old is None:
            return
        old = self._make(view_of(RelationState.OLD, stage.relation), translated(stage.old))
        if stage.changed:
            self._make(view_of(RelationState.CHANGED, stage.relation), self._all_of(stage.changed, also="ALL"))
            return
        names = [f"k{number}" for number in range(len(stage.key_columns))]
        keys = f"(SELECT * FROM ({self._all_of(stage.keys)}) AS named ({', '.join(names)}))"
        on = " AND ".join(
            f'r."{column}" IS NOT DISTINCT FROM k.{name}' for column, name in zip(stage.key_columns, names, strict=True)
        )
        rows = (f"(SELECT r.* FROM {relation} r SEMI JOIN {keys} k ON {on})" for relation in (new, old))
        self._make(view_of(RelationState.CHANGED, stage.relation), " UNION ALL ".join(rows))

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
def _followed(
    query: str,
    relations: tuple[tuple[str, tuple[str, ...]], ...],
    changed: frozenset[str],
    types: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
) -> Algebra | None:
    known = {relation: dict(kinds) for relation, kinds in types}
    return find_algebra(ResolvedQuery.of(query, dict(relations), known), changed)


def _signed(kind: AggregateKind, argument: int | None) -> str:
    """The share of signed rows in a count or a sum, in SQL."""
    match kind:
        case AggregateKind.COUNT_ROWS:
            return f'sum("{SIGN}")'
        case AggregateKind.COUNT:
            return f'sum("{SIGN}") FILTER (WHERE a{argument} IS NOT NULL)'
        case AggregateKind.SUM:
            return f'sum("{SIGN}" * a{argument})'
        case _:
            raise AssertionError(f"{kind} does not follow from a sum")


@cache
def _reads(query: str, name: str) -> bool:
    return any(
        table.name == name for table in sqlglot.parse_one(_legible(query), dialect="spark").find_all(sqlglot.exp.Table)
    )


@cache
def translated(text: str) -> str:
    """Spark's SQL as that of DuckDB, in which `time_window` is a macro: see `TIME_WINDOW`."""
    return sqlglot.transpile(_legible(text), read="spark", write="duckdb")[0]


def _legible(text: str) -> str:
    """The text without `window(..)`, which the parser takes for a clause behind GROUP BY."""
    return re.sub(r"\bwindow(?=\()", "time_window", text, flags=re.IGNORECASE)


def _difference(left: str, right: str) -> str:
    return f"(FROM {left} EXCEPT ALL FROM {right}) UNION ALL (FROM {right} EXCEPT ALL FROM {left})"


def _different(left: str, right: str, columns: Sequence[str]) -> str:
    names = ", ".join(sqlglot.exp.column(column, quoted=True).sql() for column in columns)
    return f"SELECT {names} FROM ({_difference(left, right)})"


# The caches that a test which changes the analysis has to clear.
KEPT = (_analysed, _followed)
