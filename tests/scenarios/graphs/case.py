"""A case: sources, a graph of tables over them, and the events of its life.

A case is a value, drawn from a seed. It is printed as the lines of a test in a Lab, replayed, and made smaller. All
sources and tables have the columns `id INT, g STRING, v BIGINT`, so that any of them may stand where another one did,
and queries are of the SQL that Spark and DuckDB read alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

# id, g and v of a row.
Row = tuple[int, str | None, int | None]
BEGINNING = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = "id INT, g STRING, v BIGINT"
# The time of a row of a log follows from its place in all that ever landed there, so that none is late.
EVERY = timedelta(minutes=3)
DELAY = timedelta(minutes=5)
WINDOW = timedelta(minutes=10)
# The value by which a row fails a refresh where a constraint says so; only the column v of a source has it.
FAILING = 777
MODEL = "twice"


@dataclass(frozen=True)
class Source:
    """A source: a Delta table that is read in place, or files that land in a log."""

    name: str
    log: bool = False

    def script(self) -> str:
        """The line that declares it."""
        if self.log:
            columns = f"{COLUMNS}, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE"
            return f"lab.files({self.name!r}, {columns!r}, primary_key=['id'])"
        return f"lab.source({self.name!r}, {COLUMNS!r}, primary_key=['id'])"


@dataclass(frozen=True)
class Table:
    """A table: `query` without what is declared around it, `kind` how it was drawn, for people.

    `freshness` is in seconds. `meaning` is a query for DuckDB that gives its rows, where `query` does not. Rows that do
    not satisfy `expected` go the way of `violated`. With `wide` it has a column more. `unjudged`: its rows follow the
    arrival of others, and are what `verify` says. `unique` is a column of which no two rows have one value.
    """

    name: str
    kind: str
    reads: tuple[str, ...]
    query: str
    freshness: int
    primary_key: tuple[str, ...] = ()
    partitioned: bool = False
    options: tuple[tuple[str, str], ...] = ()
    expected: str = ""
    violated: str = ""
    final: bool = False
    wide: bool = False
    meaning: str = ""
    unjudged: bool = False
    unique: str = ""

    @property
    def non_driving(self) -> tuple[str, ...]:
        """The inputs that do not count in its lag; so are the dimensions of lookups."""
        dimensions = self.reads[1:] if "PROCTIME" in self.query else ()
        return dimensions + tuple(value for key, value in self.options if key == "non-driving")

    @property
    def driving(self) -> tuple[str, ...]:
        """The inputs that do."""
        return tuple(name for name in self.reads if name not in self.non_driving)

    @property
    def declaration(self) -> str:
        """The statement that declares it."""
        inside = [f"PRIMARY KEY ({', '.join(self.primary_key)})"] if self.primary_key else []
        if self.expected:
            inside.append(f"CONSTRAINT good EXPECT ({self.expected}) ON VIOLATION {self.violated}")
        options = ", ".join(f"'{key}' = '{value}'" for key, value in self.options)
        clauses = [
            f"CREATE MATERIALIZED TABLE {self.name}",
            f"({', '.join(inside)})" if inside else "",
            "PARTITIONED BY (g)" if self.partitioned else "",
            f"WITH ({options})" if options else "",
            f"FRESHNESS = INTERVAL '{self.freshness}' SECOND",
            "EMIT FINAL" if self.final else "",
            f"AS {self.query.replace(' FROM ', ', 1 AS w FROM ', 1) if self.wide else self.query}",
        ]
        return " ".join(clause for clause in clauses if clause)

    @property
    def defined(self) -> str:
        """The query of its rows over those of its inputs, in DuckDB's SQL."""
        query = self.meaning or self.query
        return f"SELECT * FROM ({query}) AS q WHERE coalesce({self.expected}, false)" if self.expected else query


# -- events


@dataclass(frozen=True)
class Change:
    """A change of a source: insert, land, update (of `ids` to the `value`), delete, overwrite, same, optimize."""

    source: str
    what: str
    rows: tuple[Row, ...] = ()
    ids: tuple[int, ...] = ()
    value: int | None = None
    # How many rows had landed before.
    landed: int = 0

    def script(self) -> str:
        """The line of a test in a Lab."""
        name, ids = self.source, ", ".join(map(str, self.ids))
        match self.what:
            case "insert":
                return f"lab.sql({f'INSERT INTO {name} VALUES {_values(self.rows)}'!r})"
            case "overwrite":
                return f"lab.sql({f'INSERT OVERWRITE {name} VALUES {_values(self.rows)}'!r})"
            case "update":
                value = "NULL" if self.value is None else self.value
                return f"lab.sql('UPDATE {name} SET v = {value} WHERE id IN ({ids})')"
            case "delete":
                return f"lab.sql('DELETE FROM {name} WHERE id IN ({ids})')"
            case "same":
                return f"lab.sql('INSERT OVERWRITE {name} SELECT * FROM {name}')"
            case "optimize":
                return f"lab.sql('OPTIMIZE {name}')"
            case "land":
                return f"lab.land({name!r}, '{self.landed}.json', {self.records()!r})"
        raise ValueError(self.what)

    def records(self) -> list[dict[str, object]]:
        """The rows of a file that lands."""
        return [
            {"id": id_, "g": g, "v": v, "ts": (BEGINNING + (self.landed + place) * EVERY).isoformat()}
            for place, (id_, g, v) in enumerate(self.rows)
        ]


@dataclass(frozen=True)
class Refresh:
    """A refresh of one table that somebody asks for."""

    table: str
    upstreams: bool = True
    full: bool = False

    def script(self) -> str:
        more = ("" if self.upstreams else ", upstreams=False") + (", full=True" if self.full else "")
        return f"lab.refresh({self.table!r}{more})"


@dataclass(frozen=True)
class Partition:
    """The refresh of one partition that somebody names."""

    table: str
    value: str

    def script(self) -> str:
        return f"lab.refresh({self.table!r}, partitions={{'g': {self.value!r}}}, upstreams=False)"


@dataclass(frozen=True)
class Crash:
    """A refresh that ends at a failpoint, and another engine after it, that has the control store or has lost it."""

    table: str
    point: str
    lose: bool = False

    def script(self) -> str:
        again = "lab.restart(lose_control_store=True)" if self.lose else "lab.restart()"
        return (
            f"with lab.crash_at({self.point!r}), suppress(Crash):\n"
            f"    lab.refresh({self.table!r}, upstreams=False)\n{again}"
        )


@dataclass(frozen=True)
class Tick:
    """All tables that are due are refreshed."""

    def script(self) -> str:
        return "lab.tick()"


@dataclass(frozen=True)
class Advance:
    """Time passes."""

    seconds: int

    def script(self) -> str:
        return f"lab.clock.advance(seconds={self.seconds})"


@dataclass(frozen=True)
class Suspend:
    """A table is not refreshed by itself, for so many minutes; 0 is until it is resumed."""

    table: str
    minutes: int = 0

    def script(self) -> str:
        for_ = f", for_='{self.minutes} minutes'" if self.minutes else ""
        return f"freshline.suspend({self.table!r}{for_}, project=lab.settings, clock=lab.clock)"


@dataclass(frozen=True)
class Resume:
    """A table is refreshed by itself again."""

    table: str

    def script(self) -> str:
        return f"freshline.resume({self.table!r}, project=lab.settings, clock=lab.clock)"


@dataclass(frozen=True)
class Override:
    """A table has another freshness for some minutes."""

    table: str
    seconds: int
    minutes: int

    def script(self) -> str:
        return (
            f"freshline.set_freshness({self.table!r}, '{self.seconds} seconds', for_='{self.minutes} minutes', "
            "project=lab.settings, clock=lab.clock)"
        )


@dataclass(frozen=True)
class Save:
    """A savepoint of all tables."""

    name: str

    def script(self) -> str:
        return f"lab.create_savepoint({self.name!r})"


@dataclass(frozen=True)
class Restore:
    """All tables are brought back to a savepoint; with `point`, the engine ends there, and another one goes on."""

    name: str
    point: str = ""

    def script(self) -> str:
        if not self.point:
            return f"lab.restore_savepoint({self.name!r})"
        return (
            f"with lab.crash_at({self.point!r}), suppress(Crash):\n"
            f"    lab.restore_savepoint({self.name!r})\nlab.restart()"
        )


@dataclass(frozen=True)
class Restart:
    """Another engine goes on."""

    lose: bool = False

    def script(self) -> str:
        return "lab.restart(lose_control_store=True)" if self.lose else "lab.restart()"


@dataclass(frozen=True)
class Declare:
    """A table is declared now, and not before everything else."""

    table: str


@dataclass(frozen=True)
class Redeclare:
    """A table has another declaration: one column more, or, with `full`, other rows."""

    table: Table
    full: bool

    def script(self) -> str:
        again = f"\nlab.refresh({self.table.name!r}, full=True, upstreams=False)" if self.full else ""
        return f"lab.declare({self.table.declaration!r}){again}"


@dataclass(frozen=True)
class Settle:
    """Rows that a constraint lets fail go away, everything is refreshed, and the law is checked."""

    def script(self) -> str:
        return "lab.refresh_all()  # and every table is its query over the newest rows"


Event = (
    Change
    | Refresh
    | Partition
    | Crash
    | Tick
    | Advance
    | Suspend
    | Resume
    | Override
    | Save
    | Restore
    | Restart
    | Declare
    | Redeclare
    | Settle
)


@dataclass(frozen=True)
class Case:
    """Everything that happens: the declarations, and events in their order."""

    seed: int
    sources: tuple[Source, ...]
    tables: tuple[Table, ...]
    events: tuple[Event, ...]

    @property
    def later(self) -> frozenset[str]:
        """The tables that an event declares."""
        return frozenset(event.table for event in self.events if isinstance(event, Declare))

    def only(self, names: Iterable[str]) -> Case:
        """The case with these tables and all that they read, and without the sources and events of others."""
        wanted = set(names)
        for table in reversed(self.tables):
            if table.name in wanted:
                wanted.update(table.reads)
        return replace(
            self,
            sources=tuple(source for source in self.sources if source.name in wanted),
            tables=tuple(table for table in self.tables if table.name in wanted),
            events=tuple(event for event in self.events if of_event(event) in wanted | {""}),
        )

    def __str__(self) -> str:
        return "\n".join([f"# seed {self.seed}", *self._lines()])

    def _lines(self) -> Iterator[str]:
        yield from (source.script() for source in self.sources)
        if any(MODEL in table.query for table in self.tables):
            yield f"lab.model({MODEL!r}, linear_model([2.0], 1.0, element='DOUBLE'))"
        declared = {table.name: f"lab.declare({table.declaration!r})" for table in self.tables}
        yield from (text for name, text in declared.items() if name not in self.later)
        for event in self.events:
            yield declared[event.table] if isinstance(event, Declare) else event.script()


def of_event(event: Event) -> str:
    """The name of the table or source that an event is about; empty for one that is about all."""
    match event:
        case Change(source=name) | Refresh(table=name) | Partition(table=name) | Crash(table=name):
            return name
        case Suspend(table=name) | Resume(table=name) | Override(table=name) | Declare(table=name):
            return name
        case Redeclare(table=table):
            return table.name
    return ""


def _values(rows: Iterable[Row]) -> str:
    return ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)


def _literal(value: int | str | None) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
