"""A case: sources, tables over them, and rounds of changes with a refresh behind each.

A case is a value, drawn from a seed. It can be printed, replayed and made smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from random import Random

from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.algebra import find_algebra
from freshline.sql.match_recognize import lower_patterns
from freshline.sql.query_parser import parse_query
from freshline.sql.tokens import Text
from freshline.sql.window_functions import lower_windows
from freshline.values.as_of_joins import Versions
from freshline.values.clock import CLOCK
from tests.scenarios.generator.changes import Change, Changes
from tests.scenarios.generator.definitions import Meaning, defined
from tests.scenarios.generator.queries import Queries, Query, Term
from tests.scenarios.generator.values import (
    PLAIN,
    SPARK,
    SUMMED,
    Relation,
    declaration,
    sources,
    with_doubles,
    with_marks,
    with_times,
)

HOURLY = "FRESHNESS = INTERVAL '1' HOUR"
# Time partitions are days from here on, so that generated rows lie before them, in them, at both bounds, and beyond.
FIRST_DAY = date(2026, 1, 1)
# When a case begins, and how much later each round is: the second day begins after some rounds.
BEGINNING = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROUND = timedelta(hours=9)
# Few of the sources have times, and so few queries.
MOST_QUERIES = 30


@dataclass(frozen=True)
class Table:
    """A table: its query, and what stands before it in the declaration. `names` are its columns, in lower case.

    With `daily` it has time partitions of a day each. Rows that do not satisfy `expected` are left out. `summed` are
    those of its columns whose values follow the order in which rows are added up. `outputs` are its side outputs, each
    with its condition; `taken` is what is true of its rows then. With `first` it keeps the first
    rows of an order.
    """

    name: str
    query: str
    names: tuple[str, ...]
    primary_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    daily: bool = False
    expected: str = ""
    summed: tuple[str, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    taken: str = ""
    versions: tuple[tuple[str, Versions], ...] = ()
    meanings: tuple[Meaning, ...] = ()
    first: bool = False

    @property
    def defined(self) -> str:
        """The query in Spark's SQL, with window functions and as-of joins by their definitions."""
        return defined(self.query, self.meanings)

    @property
    def lowered(self) -> str:
        """The query in Spark's SQL: without window functions in FROM and as-of joins."""
        return _lowered(self.query, self.name, self.versions)

    @property
    def analysed(self) -> str:
        """The query in Spark's SQL as the rules read it: with the call that stands for the time."""
        return self.lowered.replace("now()", f"{CLOCK}()").replace("current_date()", f"CAST({CLOCK}() AS DATE)")

    @property
    def parts(self) -> tuple[Table, ...]:
        """Its side outputs, as tables that nobody declares."""
        found = []
        for number, (name, condition) in enumerate(self.outputs):
            mine = f"coalesce({condition}, false)"
            taken = " AND ".join([mine, *_untaken(self.outputs[:number])])
            found.append(replace(self, name=name, outputs=(), taken=taken))
        return tuple(found)

    @property
    def declaration(self) -> str:
        """The statement that declares it."""
        clauses = [f"CONSTRAINT good EXPECT ({self.expected}) ON VIOLATION QUARANTINE"] if self.expected else []
        clauses += [f"PRIMARY KEY ({', '.join(self.primary_key)})"] if self.primary_key else []
        inside = f" ({', '.join(clauses)})" if clauses else ""
        parts = f" PARTITIONED BY ({', '.join(self.partitioned_by)})" if self.partitioned_by else ""
        daily = f" WITH ('partition.unit' = 'day', 'partition.start' = '{FIRST_DAY}')" if self.daily else ""
        outputs = "".join(f" SIDE OUTPUT {name} WHERE ({condition})" for name, condition in self.outputs)
        return f"CREATE MATERIALIZED TABLE {self.name}{inside}{parts}{daily} {HOURLY}{outputs} AS {self.query}"

    def query_at(self, now: datetime, *, by_definition: bool = False) -> str:
        """The query whose rows the table has after a refresh, where that is not the whole query."""
        query = (self.defined if by_definition else self.lowered).replace(
            "now()", f"TIMESTAMP '{now:%Y-%m-%d %H:%M:%S}'"
        )
        query = query.replace("current_date()", f"DATE '{now:%Y-%m-%d}'")
        conditions = [f"coalesce({self.expected}, false)"] if self.expected else []
        if self.taken:
            conditions.append(self.taken)
        if self.daily:
            (column,) = self.partitioned_by
            # Freshness is shorter than a day, so the day that has begun is there too.
            end = now.date() + timedelta(days=1)
            conditions.append(f"{column} >= TIMESTAMP '{FIRST_DAY} 00:00:00' AND {column} < TIMESTAMP '{end} 00:00:00'")
        return f"SELECT * FROM ({query}) AS q WHERE {' AND '.join(conditions)}" if conditions else query


@lru_cache(maxsize=1_000)
def _lowered(query: str, name: str, versions: tuple[tuple[str, Versions], ...]) -> str:
    if "SYSTEM_TIME" not in query:
        return lower_windows(Text(lower_patterns(Text(query, name)).text, name)).text
    parsed, known = parse_query(query, name, 1), dict(versions)
    joins = tuple(replace(join, versions=known[join.table.name.lower()]) for join in parsed.as_of_joins)
    return replace(parsed, as_of_joins=joins).render()


@dataclass(frozen=True)
class Case:
    """Everything that happens. `first` are the changes before the first refresh."""

    seed: int
    relations: tuple[Relation, ...]
    first: tuple[Change, ...]
    tables: tuple[Table, ...]
    rounds: tuple[tuple[Change, ...], ...]

    def relation(self, name: str) -> Relation:
        """The source of a name."""
        return next(relation for relation in self.relations if relation.name == name)

    def only(self, table: str) -> Case:
        """The case with one of its tables."""
        return replace(self, tables=tuple(item for item in self.tables if item.name == table))

    def __str__(self) -> str:
        lines = [f"seed {self.seed}"]
        lines += [
            f"lab.source({relation.name!r}, {declaration(relation.columns, SPARK)!r}, "
            f"primary_key={list(relation.primary_key)}, watermark={relation.since!r})"
            for relation in self.relations
        ]
        lines += [f"lab.declare({table.declaration!r})" for table in self.tables]
        for number, changes in enumerate((self.first, *self.rounds)):
            lines.append(f"# round {number}" if number else "# before the first refresh")
            lines += [
                f"lab.sql({statement!r})"
                for change in changes
                for statement in change.statements(self.relation(change.source), SPARK)
            ]
        return "\n".join(lines)


def draw(
    seed: int,
    *,
    tables: int = 4,
    rounds: int = 3,
    deep: int = 3,
    partitioned: float = 0.2,
    daily: float = 0.15,
    judged: float = 0.15,
    summed: float = 0.0,
    one_row: float = 0.0,
    doubles: bool = False,
    thresholds: bool = False,
    growing: bool = False,
    subqueries: bool = False,
    windows: bool = False,
    patterns: bool = False,
    intervals: bool = False,
    other_forms: bool = False,
    timed: float = 0.0,
    parted: float = 0.0,
    ordered: float = 0.0,
) -> Case:
    """The case of a seed.

    `partitioned` is the share of tables that are, as far as their columns allow it, `daily` of those with time
    partitions, `judged` of those that expect something of their rows, `summed` of those whose aggregates follow
    from stored and changed rows alone, beside the ones that come by themselves, and `one_row` of those whose aggregates
    over all rows do. With `doubles`, sources have columns of DOUBLE, and queries add them up; with `thresholds`, such
    sums decide whether rows are there. With `growing`, rows only come; with `subqueries`, more rows show one, and many
    are there by one that all rows see. With `windows`, sources have times, many at bounds and gaps, and many are read
    by window functions; with `patterns`, many are read by MATCH_RECOGNIZE, and have more rows; with `intervals`, rows
    match others in an interval of time, in joins and frames; with `other_forms`, they are joined with constant rows,
    columns have other names by an alias, and joins have subqueries. `timed` is the share of tables whose rows enter and
    leave as time passes, `parted` of those with side outputs, and `ordered` of those that keep the first rows of an
    order.
    """
    random = Random(seed)
    relations = sources(random)
    # These choices are separate from the other ones, which stay as they are for a seed.
    relations = with_doubles(Random(f"{seed} doubles"), relations) if doubles else relations
    relations = with_times(Random(f"{seed} times"), relations) if windows or intervals else relations
    relations = with_marks(relations) if patterns else relations
    # Of two numbers the sum is the same in any order, so groups are to have more.
    timely = windows or patterns or intervals
    begins = (20, 40) if doubles else (30, 50) if patterns else (10, 25) if intervals else (1, 9)
    changes = Changes(
        random, relations, begins, busy=doubles or patterns or intervals, growing=growing, at_bounds=timely
    )
    queries = Queries(
        random,
        relations,
        deep,
        doubles=doubles,
        thresholds=thresholds,
        subqueries=subqueries,
        windows=windows,
        patterns=patterns,
        intervals=intervals,
        other_forms=other_forms,
    )
    begun = tuple(changes.first())
    made = []
    for number in range(tables):
        query = queries.top()
        table = _table(random, f"t{number}", query, partitioned)
        apart = Random(f"{seed} {table.name}")
        if summed and Random(f"{seed} {table.name} summed").random() < summed:
            alone = _of_sums(Queries(Random(f"{seed} {table.name} sums"), relations, deep))
            if alone is not None:
                made.append(_table(random, table.name, alone, 0))
                continue
        if one_row and Random(f"{seed} {table.name} one row").random() < one_row:
            whole = _of_all_rows(Queries(Random(f"{seed} {table.name} of all"), relations, deep))
            if whole is not None:
                made.append(_table(apart, table.name, whole, 0))
                continue
        if apart.random() < daily:
            found = _of_times(Queries(apart, relations, deep))
            if found is not None:
                query, time = found
                table = _table(apart, table.name, query, 0)
                table = replace(table, partitioned_by=(time,), daily=True)
        if timed and Random(f"{seed} {table.name} timed").random() < timed:
            filtered = _of_clock(Queries(Random(f"{seed} {table.name} clock"), relations, deep))
            if filtered is not None:
                made.append(_table(apart, table.name, filtered, partitioned))
                continue
        other = _parted_or_ordered(seed, table, query, parted, ordered)
        if other is not None:
            made.append(other)
            continue
        if apart.random() < judged:
            terms = [Term(f"`{column.name}`", column.kind, True) for column in query.columns]
            table = replace(table, expected=Queries(apart, relations, 1).condition(terms))
        made.append(table)
    versions = tuple((each.name.lower(), each.versions) for each in relations if each.versions is not None)
    known = tuple(dict.fromkeys(queries.meanings))
    made = [
        replace(table, versions=versions, meanings=tuple(each for each in known if each.written in table.query))
        for table in made
    ]
    return Case(seed, relations, begun, tuple(made), tuple(tuple(changes.some()) for _ in range(rounds)))


def _table(random: Random, name: str, query: Query, partitioned: float) -> Table:
    key = query.unique if query.unique and random.random() < 0.5 else ()
    plain = [column.name for column in query.columns if column.kind in PLAIN and column.kind != "double"]
    parts = (random.choice(plain),) if plain and len(query.columns) > 1 and random.random() < partitioned else ()
    summed = tuple(column.name.lower() for column in query.columns if column.kind == SUMMED)
    return Table(name, query.text, tuple(column.name.lower() for column in query.columns), key, parts, summed=summed)


def _parted_or_ordered(seed: int, table: Table, query: Query, parted: float, ordered: float) -> Table | None:
    """The table with side outputs, or with the first rows of an order, by chance; None for neither."""
    if table.daily:
        return None
    if parted and Random(f"{seed} {table.name} parted").random() < parted:
        return _parted(Random(f"{seed} {table.name} parts"), table, query)
    if ordered and Random(f"{seed} {table.name} ordered").random() < ordered:
        return _first(Random(f"{seed} {table.name} order"), table, query)
    return None


def _parted(random: Random, table: Table, query: Query) -> Table:
    """The table with one or two side outputs, by conditions on its columns."""
    terms = [Term(f"`{column.name}`", column.kind, True) for column in query.columns if column.kind != SUMMED]
    drawn = Queries(random, (), 1)
    outputs = tuple((f"{table.name}_{n}", drawn.condition(terms)) for n in range(random.choice((1, 2))) if terms)
    return replace(table, outputs=outputs, taken=" AND ".join(_untaken(outputs)))


def _first(random: Random, table: Table, query: Query) -> Table:
    """The table with the first rows of its query, by an order in which others may be equal."""
    names = [column.name for column in query.columns]
    order = [
        f"`{name}`{random.choice(('', '', ' DESC'))}{random.choice(('', '', ' NULLS FIRST', ' NULLS LAST'))}"
        for name in random.sample(names, random.randint(1, len(names)))
    ]
    text = f"{table.query} ORDER BY {', '.join(order)} LIMIT {random.choice((1, 2, 3, 5, 9))}"
    return replace(table, query=text, partitioned_by=(), first=True)


def _untaken(outputs: Sequence[tuple[str, str]]) -> list[str]:
    return [f"NOT coalesce({condition}, false)" for _, condition in outputs]


def _of_times(queries: Queries) -> tuple[Query, str] | None:
    """A query that yields times beside other columns, and the column that has them."""
    for _ in range(MOST_QUERIES):
        query = queries.top()
        times = [column.name for column in query.columns if column.kind in ("date", "time")]
        if times and len(query.columns) > 1:
            return query, queries.random.choice(times)
    return None


def _of_clock(queries: Queries) -> Query | None:
    """A query that compares a time in its result with that of the refresh, often just at one of the drawn times."""
    found = _of_times(queries)
    if found is None:
        return None
    (query, name), random = found, queries.random
    is_date = next(column for column in query.columns if column.name == name).kind == "date"

    def moment() -> str:
        if is_date:
            return f"current_date() - {random.choice((-1, 0, 1, 2))}"
        return f"now() - INTERVAL '{random.choice((-9, 0, 6, 9, 15, 21, 30))}' HOURS"

    column, compared = f"q.`{name}`", random.choice((">", ">=", "<", "<=", "="))
    condition = random.choice(
        (
            f"{column} {compared} {moment()}",
            f"{moment()} {compared} {column}",
            f"{column} BETWEEN {moment()} AND {moment()}",
            f"{column} > {moment()} AND {column} <= {moment()}",
        )
    )
    return replace(query, text=f"SELECT q.* FROM ({query.text}) AS q WHERE {condition}")


def _of_sums(queries: Queries) -> Query | None:
    """A query whose groups follow from changed rows, whichever of its inputs has them."""
    return _by_algebra(queries, queries.top, one_row=False)


def _of_all_rows(queries: Queries) -> Query | None:
    """A query whose one row follows from changed rows, whichever of its inputs has them."""
    return _by_algebra(queries, queries.of_all_rows, one_row=True)


def _by_algebra(queries: Queries, drawn: Callable[[], Query], *, one_row: bool) -> Query | None:
    schema = {relation.name.lower(): [column.name for column in relation.columns] for relation in queries.relations}
    for _ in range(MOST_QUERIES):
        query = drawn()
        found = find_algebra(ResolvedQuery.of(query.text, schema), frozenset(schema))
        if found is not None and (not found.keys) is one_row:
            return query
    return None
