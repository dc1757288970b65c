"""Draws a case from a seed: a graph with diamonds, and what happens to it.

Filters often leave nothing, values are few, and freshnesses are unequal. So an input often changes without a row, some
inputs of a table are newer than others, and the same root is read by ways of other lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.scenarios.graphs.case import (
    FAILING,
    MODEL,
    Advance,
    Case,
    Change,
    Crash,
    Declare,
    Event,
    Override,
    Partition,
    Redeclare,
    Refresh,
    Restart,
    Restore,
    Resume,
    Row,
    Save,
    Settle,
    Source,
    Suspend,
    Table,
    Tick,
)

FRESHNESS = (5, 10, 60, 300, 1_800, 3_600, 21_600)
GROUPS = ("a", "b", "c", None)
NUMBERS = (-5, 0, 3, 10, 20, 50, 120, None)
CONDITIONS = (
    "v > 100",
    "v > 10",
    "v <= 10",
    "v < -100",
    "v IS NULL",
    "g = 'a'",
    "g <> 'a'",
    "g = 'z'",
    "id % 2 = 0",
    "id = 1",
    "id > 4",
)
SECONDS = (1, 7, 30, 200, 300, 900, 3_000, 4_000, 9_000)
TABLE_POINTS = ("table-pinned", "table-created", "table-before-commit", "table-writing", "table-after-commit")
LOG_POINTS = ("log-before-commit", "log-writing", "log-after-commit", "log-after-flush")
RESTORE_POINTS = ("restore-begun", "restore-table", "restore-done")
# The rows of a table are those of its inputs in number, or fewer, but for UNION ALL.
MOST_ROWS = 400


@dataclass
class Known:
    """The facts known of a source or table while the graph is drawn."""

    name: str
    roots: frozenset[str]
    unique: str
    rows: int
    log: bool = False
    freshness: int = 0


def draw(
    seed: int,
    *,
    kills: float = 0.0,
    few: bool = False,
    plain: bool = False,
    restored: bool = False,
    parted: bool = False,
) -> Case:
    """The case of a seed.

    `kills` is the share of refreshes that end at a failpoint. With `few`, it has the fewest tables and events, for
    computations that are dear; with `plain` nothing that only Spark computes, such as logs, lookups and models. With
    `restored`, a savepoint of its first third is restored in the last one, and single tables are refreshed after it.
    With `parted`, more tables have partitions, which people name.
    """
    random = Random(seed)
    sources = _sources(random, plain)
    tables = _Graph(random, sources, plain, 0.6 if parted else 0.15).tables(random.randint(5, 6 if few else 12))
    life = _Life(random, sources, tables, kills, 4 if parted else 1)
    events = life.events(random.randint(2, 3) if few else random.randint(3, 6))
    if random.random() < 0.2:
        # Tables that come later may be the first that close a diamond. Each is declared before those that read it.
        place = random.randrange(len(sources), len(events))
        later = [Declare(table.name) for table in tables[-random.randint(1, 3) :]]
        events[place:place] = later
    if restored:
        third = len(events) // 3
        alone = [Refresh(table.name, upstreams=False) for table in random.sample(tables, len(tables) // 2)]
        restored_here: list[Event] = [Restore("third"), *alone]
        events = [*events[:third], Save("third"), *events[third:-third], *restored_here, *events[-third:]]
    return Case(seed, sources, tuple(tables), tuple(events))


def _sources(random: Random, plain: bool) -> tuple[Source, ...]:
    count = random.choices((1, 2, 3), (6, 3, 1))[0]
    log = random.randrange(count) if not plain and random.random() < 0.6 else None
    return tuple(Source(f"s{number}", log=number == log) for number in range(count))


@dataclass
class _Graph:
    random: Random
    sources: Sequence[Source]
    plain: bool = False
    parted: float = 0.15
    known: list[Known] = field(default_factory=list)

    def tables(self, count: int) -> list[Table]:
        self.known = [Known(source.name, frozenset({source.name}), "id", 10, source.log) for source in self.sources]
        made: list[Table] = []
        for number in range(count):
            table = self._table(f"t{number}", last=number == count - 1)
            made.append(table)
        return made

    def _table(self, name: str, *, last: bool) -> Table:
        random = self.random
        # The last ones join others: a graph is to have diamonds.
        kinds = {
            "filter": 6,
            "projection": 2,
            "union": 5,
            "inner": 3,
            "left": 3,
            "full": 3,
            "groups": 3,
            "row": 1.5,
            "newest": 1,
            "semi": 1,
            "anti": 1,
            "distinct": 1,
            "merge": 1,
            "final": 2 if any(each.log for each in self.known) else 0,
            "lookup": 0 if self.plain else 0.7,
            "model": 0 if self.plain else 0.3,
        }
        kind = random.choice(("union", "inner", "left", "full")) if last else self._one(kinds)
        for _ in range(20):
            table = self._of_kind(name, kind)
            if table is not None:
                break
            kind = self._one(kinds)
        else:
            table = self._of_kind(name, "filter")
            assert table is not None
        table = self._fresh(self._clothed(table))
        self._note(table)
        return table

    def _fresh(self, table: Table) -> Table:
        """The table with a freshness: none is tighter than that of a table which drives it."""
        least = max((each.freshness for each in self.known if each.name in table.driving), default=0)
        allowed = [each for each in FRESHNESS if each >= least]
        return replace(table, freshness=self.random.choices(allowed, range(len(allowed), 0, -1))[0])

    def _one(self, kinds: dict[str, float]) -> str:
        return self.random.choices(list(kinds), list(kinds.values()))[0]

    def _input(self) -> Known:
        """An input: rather one of the newest."""
        return self.random.choices(self.known, [1 + place for place in range(len(self.known))])[0]

    def _other(self, first: Known) -> Known:
        """Another input, mostly of the same root: a source itself, or a table over it."""
        random = self.random
        others = [each for each in self.known if each is not first]
        shared = [each for each in others if each.roots & first.roots]
        direct = [each for each in shared if each.name in first.roots]
        if direct and random.random() < 0.3:
            return random.choice(direct)
        return random.choice(shared if shared and random.random() < 0.85 else others or [first])

    def _of_kind(self, name: str, kind: str) -> Table | None:
        """A table of a kind; None where no two inputs suit it."""
        random, x = self.random, self._input()
        one = {
            "filter": f"SELECT id, g, v FROM {x.name} WHERE {random.choice(CONDITIONS)}",
            "projection": f"SELECT id, g, {random.choice(('v + 1', '-v', 'v - id', 'coalesce(v, 0)'))} AS v "
            f"FROM {x.name}",
            "groups": f"SELECT max(id) AS id, g, {random.choice(('sum(v)', 'count(*)', 'min(v)', 'max(v)'))} AS v "
            f"FROM {x.name} GROUP BY g{random.choice(('', '', ' HAVING count(*) > 1'))}",
            "row": f"SELECT max(id) AS id, min(g) AS g, {random.choice(('sum(v)', 'count(*)', 'max(v)'))} AS v "
            f"FROM {x.name}{random.choice(('', f' WHERE {random.choice(CONDITIONS)}'))}",
            "newest": "SELECT id, g, v FROM (SELECT id, g, v, row_number() OVER "
            f"(PARTITION BY g ORDER BY v DESC NULLS LAST, id DESC NULLS LAST) AS place FROM {x.name}) AS q "
            "WHERE place = 1",
            "distinct": f"SELECT DISTINCT id, g, v FROM {x.name}",
        }
        unique = {"filter": x.unique, "projection": x.unique, "groups": "g", "newest": "g"}
        if kind in one:
            return self._made(name, kind, (x,), one[kind], unique.get(kind, ""))
        if kind in ("union", "inner", "left", "full", "semi", "anti"):
            return self._of_two(name, kind, x, self._other(x))
        if kind == "merge":
            return self._merge(name, x)
        if kind == "final":
            return self._final(name)
        if kind == "model":
            return self._model(name, x)
        return self._lookup(name)

    def _made(self, name: str, kind: str, reads: Sequence[Known], query: str, unique: str) -> Table:
        names = tuple(dict.fromkeys(each.name for each in reads))
        return Table(name, kind, names, query, FRESHNESS[0], unique=unique)

    def _of_two(self, name: str, kind: str, x: Known, y: Known) -> Table | None:
        random = self.random
        if kind == "union":
            if x.rows + y.rows > MOST_ROWS:
                return None
            second = f"SELECT id, g, v FROM {y.name}{random.choice(('', f' WHERE {random.choice(CONDITIONS)}'))}"
            return self._made(name, kind, (x, y), f"SELECT id, g, v FROM {x.name} UNION ALL {second}", "")
        on = random.choice(("id", "g")) if kind in ("semi", "anti") else y.unique
        if kind in ("semi", "anti"):
            no = "NOT " if kind == "anti" else ""
            query = (
                f"SELECT x.id, x.g, x.v FROM {x.name} AS x "
                f"WHERE {no}EXISTS (SELECT 1 FROM {y.name} AS y WHERE y.{on} = x.{on})"
            )
            return self._made(name, kind, (x, y), query, x.unique)
        if not on:
            return None
        value = random.choice(("x.v", "y.v", "coalesce(x.v, 0) + coalesce(y.v, 0)", "coalesce(y.v, x.v)"))
        joined = {"inner": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN"}[kind]
        items = {"inner": "x.id, y.g", "left": "x.id, coalesce(y.g, x.g) AS g"}.get(
            kind, "coalesce(x.id, y.id) AS id, coalesce(x.g, y.g) AS g"
        )
        query = f"SELECT {items}, {value} AS v FROM {x.name} AS x {joined} {y.name} AS y ON x.{on} = y.{on}"
        # Of a group of x each row has one partner. A column that the other side gives is not unique any more.
        unique = x.unique if kind != "full" and x.unique == "id" else ""
        return self._made(name, kind, (x, y), query, unique)

    def _merge(self, name: str, x: Known) -> Table:
        last = self.random.random() < 0.5
        kept = {"merge": "last_row", "merge.sequence": "v"} if last else {"merge": "first_row", "merge.order": "v"}
        options = {**kept, "merge.tie-breaker": "id", **({} if x.log else {"upstream-deletes": "retract"})}
        order = "v DESC NULLS LAST, id DESC NULLS LAST" if last else "v ASC NULLS LAST, id ASC NULLS LAST"
        meaning = (
            "SELECT id, g, v FROM (SELECT id, g, v, "
            f"row_number() OVER (PARTITION BY g ORDER BY {order}) AS place FROM {x.name} WHERE g IS NOT NULL) AS m "
            "WHERE place = 1"
        )
        table = self._made(name, "merge", (x,), f"SELECT id, g, v FROM {x.name}", "g")
        return replace(table, primary_key=("g",), options=tuple(options.items()), meaning=meaning)

    def _final(self, name: str) -> Table | None:
        log = next((each for each in self.known if each.log), None)
        if log is None:
            return None
        query = (
            "SELECT CAST(count(*) AS INT) AS id, g, sum(v) AS v, window_start AS at "
            f"FROM TABLE(TUMBLE(TABLE {log.name}, DESCRIPTOR(ts), INTERVAL '10' MINUTE)) "
            "GROUP BY g, window_start, window_end"
        )
        meaning = (
            "SELECT CAST(count(*) AS INT) AS id, g, CAST(sum(v) AS BIGINT) AS v FROM "
            f"(SELECT g, v, epoch_us(ts) // 600000000 AS place FROM {log.name}) AS q GROUP BY g, place "
            f"HAVING (place + 1) * 600000000 <= (SELECT max(epoch_us(ts)) FROM {log.name}) - 300000000"
        )
        return replace(self._made(name, "final", (log,), query, ""), final=True, meaning=meaning)

    def _model(self, name: str, x: Known) -> Table:
        query = (
            f"SELECT id, g, CAST(ml_predict({MODEL}, CAST(v AS DOUBLE)) AS BIGINT) AS v FROM {x.name} "
            "WHERE v IS NOT NULL"
        )
        meaning = f"SELECT id, g, 2 * v + 1 AS v FROM {x.name} WHERE v IS NOT NULL"
        return replace(self._made(name, "model", (x,), query, x.unique), meaning=meaning)

    def _lookup(self, name: str) -> Table | None:
        dimensions = [each for each in self.known if each.unique == "id"]
        x, y = self._input(), self.random.choice(dimensions)
        if x.name == y.name:
            return None
        query = (
            f"SELECT x.id, y.g, x.v FROM {x.name} AS x "
            f"LEFT JOIN {y.name} FOR SYSTEM_TIME AS OF PROCTIME() AS y ON y.id = x.id"
        )
        return replace(self._made(name, "lookup", (x, y), query, ""), unjudged=True)

    def _clothed(self, table: Table) -> Table:
        """The table with what a declaration may have beside its query."""
        random = self.random
        two = len(table.reads) > 1
        if table.kind in ("merge", "final", "lookup", "model"):
            return table
        if table.unique and random.random() < 0.4:
            table = replace(table, primary_key=(table.unique,))
        if random.random() < self.parted and table.kind != "row":
            table = replace(table, partitioned=True)
        if two and random.random() < 0.12:
            table = replace(table, options=(("non-driving", table.reads[1]),))
        (first, *_) = table.reads
        source = next((each for each in self.sources if each.name == first), None)
        if table.kind == "filter" and source is not None and not source.log and random.random() < 0.12:
            return replace(table, expected=f"coalesce(v, 0) <> {FAILING}", violated="FAIL")
        if random.random() < 0.06:
            return replace(table, expected="v < 50", violated=random.choice(("DROP ROW", "QUARANTINE")))
        return table

    def _note(self, table: Table) -> None:
        reads = [each for each in self.known if each.name in table.reads]
        if table.unjudged:
            return
        rows = sum(each.rows for each in reads) if table.kind in ("union", "full") else max(e.rows for e in reads)
        roots = frozenset().union(*(each.roots for each in reads))
        self.known.append(Known(table.name, roots, table.unique, rows, freshness=table.freshness))


class _Life:
    """The events. The rows of the sources are followed, so that changes find rows."""

    def __init__(
        self, random: Random, sources: Sequence[Source], tables: Sequence[Table], kills: float, named: int
    ) -> None:
        self.random = random
        self.sources = sources
        self.tables = list(tables)
        self.kills = kills
        self.named = named
        self.rows: dict[str, dict[int, Row]] = {source.name: {} for source in sources}
        self.landed = dict.fromkeys(self.rows, 0)
        self.saved: list[str] = []
        self.suspended: list[str] = []

    def events(self, rounds: int) -> list[Event]:
        random = self.random
        found: list[Event] = [self._insert(source, random.randint(2, 6)) for source in self.sources]
        if random.random() < 0.85:
            found.append(Tick())
        middle = random.randrange(rounds) if random.random() < 0.5 else None
        for number in range(rounds):
            found += [self._change() for _ in range(random.choices((0, 1, 2, 3), (1, 5, 3, 1))[0])]
            if random.random() < 0.85:
                found.append(Advance(random.choice(SECONDS)))
            found += self._actions()
            if number == middle:
                found += self._settled()
        return found + self._settled()

    def _settled(self) -> list[Event]:
        failing = self._failing()
        return [*failing, Advance(self.random.choice(SECONDS)), Settle()]

    def _failing(self) -> list[Event]:
        found: list[Event] = []
        for source in self.sources:
            ids = tuple(id_ for id_, _, v in self.rows[source.name].values() if v == FAILING)
            if ids:
                found.append(self._done(Change(source.name, "delete", ids=ids)))
        return found

    # -- changes

    def _row(self, source: Source) -> Row:
        known = self.rows[source.name]
        free = [id_ for id_ in range(1, 16 if not source.log else 200) if id_ not in known]
        # A log has each key once.
        id_ = min(free) if source.log else self.random.choice(free)
        return id_, self.random.choice(GROUPS), self.random.choice(NUMBERS)

    def _insert(self, source: Source, count: int) -> Change:
        rows = []
        for _ in range(count):
            row = self._row(source)
            self.rows[source.name][row[0]] = row
            rows.append(row)
        landed = self.landed[source.name]
        self.landed[source.name] += count
        return Change(source.name, "land" if source.log else "insert", tuple(rows), landed=landed)

    def _change(self) -> Change:
        random = self.random
        source = random.choice(self.sources)
        known = list(self.rows[source.name])
        if source.log or len(known) < 2:
            return self._insert(source, random.randint(1, 3))
        what = random.choices(
            ("insert", "update", "delete", "overwrite", "same", "optimize", "fail"), (5, 6, 4, 0.7, 1, 0.7, 0.7)
        )[0]
        ids = tuple(sorted(random.sample(known, random.randint(1, 2))))
        if what == "insert" and len(known) > 9:
            what = "delete"
        if what == "insert":
            return self._insert(source, random.randint(1, 2))
        if what == "fail":
            return self._done(Change(source.name, "update", ids=ids[:1], value=FAILING))
        if what == "update":
            return self._done(Change(source.name, what, ids=ids, value=random.choice(NUMBERS)))
        if what == "overwrite":
            kept = [self.rows[source.name][id_] for id_ in known if random.random() < 0.7]
            rows = {row[0]: row for row in [*kept, self._row(source)]}
            return self._done(Change(source.name, what, tuple(rows.values())))
        return self._done(Change(source.name, what, ids=ids if what == "delete" else ()))

    def _done(self, change: Change) -> Change:
        """The change, after it was made to the rows that are followed."""
        rows = self.rows[change.source]
        if change.what == "overwrite":
            self.rows[change.source] = {row[0]: row for row in change.rows}
        for id_ in change.ids:
            if change.what == "delete":
                rows.pop(id_, None)
            else:
                rows[id_] = (id_, rows[id_][1], change.value)
        return change

    # -- what people and engines do

    def _actions(self) -> list[Event]:
        random = self.random
        found: list[Event] = []
        for _ in range(random.randint(1, 3)):
            if self.kills and random.random() < self.kills:
                found.append(self._crash())
                continue
            what = random.choices(
                ("refresh", "tick", "one", "full", "partition", "suspend", "override", "save", "restart", "redeclare"),
                (4, 5, 4, 1, self.named, 1, 0.6, 0.8, 0.7, 0.5),
            )[0]
            found += self._action(what)
            if random.random() < 0.3:
                found.append(Advance(random.choice(SECONDS)))
        return found

    def _action(self, what: str) -> list[Event]:
        random = self.random
        table = random.choice(self.tables)
        match what:
            case "tick":
                return [Tick()]
            case "one":
                return [Refresh(table.name, upstreams=False)]
            case "full":
                return [Refresh(table.name, upstreams=random.random() < 0.5, full=True)]
            case "partition":
                return self._partition()
            case "suspend":
                return self._suspend(table)
            case "override":
                return [Override(table.name, random.choice(FRESHNESS), random.choice((1, 10, 100)))]
            case "save":
                return self._save()
            case "restart":
                lose = random.random() < 0.5
                if lose:
                    self.suspended.clear()
                return [Restart(lose)]
            case "redeclare":
                return self._redeclare(table)
        return [Refresh(table.name)]

    def _partition(self) -> list[Event]:
        """A partition is named, and a table that reads it is refreshed next."""
        parted = [each for each in self.tables if each.partitioned]
        if not parted:
            return [Tick()]
        name = self.random.choice(parted).name
        readers = [each.name for each in self.tables if name in each.reads]
        return [
            Partition(name, self.random.choice("abc")),
            *([Refresh(self.random.choice(readers), upstreams=False)] if readers else []),
        ]

    def _suspend(self, table: Table) -> list[Event]:
        if self.suspended and self.random.random() < 0.6:
            return [Resume(self.suspended.pop(0))]
        self.suspended.append(table.name)
        return [Suspend(table.name, self.random.choice((0, 0, 5, 60)))]

    def _save(self) -> list[Event]:
        random = self.random
        if self.saved and random.random() < 0.6:
            point = random.choice(RESTORE_POINTS) if random.random() < self.kills else ""
            return [Restore(random.choice(self.saved), point)]
        name = f"p{len(self.saved)}"
        self.saved.append(name)
        return [Save(name)]

    def _redeclare(self, table: Table) -> list[Event]:
        place = self.tables.index(table)
        other = self.random.choice(CONDITIONS)
        if table.kind == "filter" and not table.wide and self.random.random() < 0.5:
            first = table.query.split(" WHERE ")[0]
            table = replace(table, query=f"{first} WHERE {other}")
            self.tables[place] = table
            return [Redeclare(table, full=True)]
        if table.wide or table.kind not in ("filter", "projection", "inner", "left", "full"):
            return [Tick()]
        self.tables[place] = replace(table, wide=True)
        return [Redeclare(self.tables[place], full=False)]

    def _crash(self) -> Event:
        random = self.random
        logs = [source.name for source in self.sources if source.log]
        lose = random.random() < 0.2
        if lose:
            self.suspended.clear()
        if logs and random.random() < 0.15:
            return Crash(logs[0], random.choice(LOG_POINTS), lose)
        return Crash(random.choice(self.tables).name, random.choice(TABLE_POINTS), lose)
