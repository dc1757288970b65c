"""The schedule decides what is refreshed next: upstreams first, and never two refreshes of one input for one wish."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.freshness.schedule import DUE, POLLED, WOKEN, Schedule
from freshline.values.names import TableName
from freshline.values.spec import Mode

SOURCE = (
    "CREATE SOURCE {name} (id BIGINT) FRESHNESS = INTERVAL '{freshness}' SECOND "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = '{name}')"
)
TABLE = "CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '{freshness}' SECOND AS SELECT {columns} FROM {reads}"


def graph_of(settings, sources: dict[str, int], tables: dict[str, tuple[int, list[str]]]) -> Graph:
    files = {f"{name}.sql": SOURCE.format(name=name, freshness=freshness) for name, freshness in sources.items()}
    for name, (freshness, reads) in tables.items():
        joined = reads[0] + "".join(f" JOIN {read} ON {read}.id = {reads[0]}.id" for read in reads[1:])
        files[f"{name}.sql"] = TABLE.format(
            name=name, freshness=freshness, reads=joined, columns=f"{reads[0]}.id" if len(reads) > 1 else "id"
        )
    return read_declarations(files, settings)


def name(table: str) -> TableName:
    return TableName.parse(table)


def ready(schedule: Schedule, *busy: str, resting: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> list[str]:
    """The tables that may begin; `without` are the tables that have no version."""
    found = schedule.ready(
        {name(table) for table in busy}, {name(table) for table in resting}, lambda one: str(one) not in without
    )
    return [str(one) for one in found]


def due(schedule: Schedule, *tables: str, now: float = 0.0) -> Schedule:
    return schedule.wish_due([name(table) for table in tables], now)[0]


def begun(schedule: Schedule, *tables: str) -> Schedule:
    for table in tables:
        schedule = schedule.begin(name(table))
    return schedule


def ended(schedule: Schedule, *tables: str, brought_in: bool = True) -> Schedule:
    for table in tables:
        schedule, _ = schedule.end(name(table), brought_in=brought_in)
    return schedule


@pytest.fixture
def shop(settings) -> Graph:
    """log -> clean (continuous) -> i0 .. i3 (incremental), and total over i0 and i1"""
    tables = {"clean": (10, ["log"]), **{f"i{n}": (300 + 60 * n, ["clean"]) for n in range(4)}}
    return graph_of(settings, {"log": 10}, {**tables, "total": (900, ["i0", "i1"])})


# -- one wave


def test_a_wave_runs_upstreams_first_and_each_table_once(shop):
    schedule = due(Schedule(shop), "total")

    waves = []
    while schedule.wishes:
        names = ready(schedule)
        waves.append(sorted(names))
        schedule = ended(begun(schedule, *names), *names)

    assert waves == [["log"], ["clean"], ["i0", "i1"], ["total"]]


def test_a_wish_is_answered_by_the_first_refresh_after_it_however_many_waves_follow(shop):
    schedule = begun(due(Schedule(shop), "i0"), "log")
    for number in range(1, 4):
        schedule = due(schedule, f"i{number}")
    assert ready(schedule) == []

    schedule = ended(schedule, "log")
    schedule = begun(schedule.wish([name("log")], POLLED, 1.0), "log")

    assert ready(schedule) == ["clean"]
    schedule = ended(begun(schedule, "clean"), "clean")
    assert ready(schedule) == ["i0", "i1", "i2", "i3"]


def test_a_refresh_that_runs_already_answers_a_wish_that_comes_up_meanwhile(shop):
    schedule = due(begun(Schedule(shop), "clean"), "i0")
    assert ready(schedule) == ["log"]

    schedule = ended(begun(schedule, "log"), "clean")

    assert ready(schedule) == ["i0"]


def test_a_commit_ends_the_waiting_of_a_continuous_table(settings):
    graph = graph_of(settings, {"fast": 5, "slow": 5}, {"both": (10, ["fast", "slow"]), "hourly": (600, ["both"])})
    schedule = begun(due(Schedule(graph), "hourly"), "fast", "slow")
    assert ready(schedule) == []

    schedule = ended(schedule, "fast").wish([name("both")], WOKEN, 1.0)

    assert ready(schedule) == ["both"]
    schedule = ended(begun(schedule, "both"), "both")
    assert ready(schedule) == ["hourly"]


def test_a_table_that_was_passed_by_leads_to_another_check_when_it_ends(settings):
    graph = graph_of(settings, {"fast": 5, "slow": 5}, {"both": (10, ["fast", "slow"]), "hourly": (600, ["both"])})
    schedule = begun(due(Schedule(graph), "hourly"), "fast", "slow")
    schedule = ended(schedule, "fast").wish([name("both")], WOKEN, 1.0)
    schedule = begun(ended(begun(schedule, "both"), "both"), "hourly")

    schedule, passed_by = schedule.end(name("slow"), brought_in=True)

    assert passed_by == {name("both"), name("hourly")}
    assert schedule.end(name("slow"), brought_in=True)[1] == frozenset()


def test_a_due_table_that_is_being_refreshed_asks_for_nothing(shop):
    schedule, added = begun(Schedule(shop), "i0").wish_due([name("i0")], 0.0)

    assert (added, dict(schedule.wishes)) == ((), {})


def test_a_poll_of_a_source_that_is_being_read_asks_for_nothing(shop):
    assert not begun(Schedule(shop), "log").wish([name("log")], POLLED, 0.0).wishes


def test_a_table_that_a_commit_wakes_while_it_is_being_refreshed_is_refreshed_again(shop):
    schedule = begun(Schedule(shop), "clean").wish([name("clean")], WOKEN, 0.0)
    assert ready(schedule) == []

    assert ready(ended(schedule, "clean")) == ["clean"]


def test_a_refresh_of_partitions_answers_nobody(shop):
    schedule = begun(due(Schedule(shop), "i0"), "log")

    schedule = ended(schedule.wish([name("log")], DUE, 0.0), "log", brought_in=False)

    assert ready(schedule) == ["log"]


# -- nobody is waited for in vain


def test_nobody_waits_for_what_rests_is_left_alone_or_was_given_up(shop):
    schedule = due(Schedule(shop), "i0")
    assert ready(schedule, resting=("log",)) == ["clean"]
    assert ready(schedule.without([name("log")])) == ["clean"]
    left_alone, _ = Schedule(shop).wish_due([name("i0")], 0.0, left_alone={name("log")})
    assert ready(left_alone) == ["clean"]
    assert ready(ended(begun(schedule, "log"), "log", brought_in=False)) == ["clean"]


def test_a_table_waits_for_the_first_version_of_what_it_reads_and_only_while_somebody_makes_it(shop):
    schedule = Schedule(shop).wish([name("clean")], WOKEN, 0.0)
    assert ready(schedule, without=("log",)) == ["clean"]
    assert ready(schedule, "log", without=("log",)) == []
    assert ready(schedule.wish([name("log")], POLLED, 0.0), without=("log",)) == ["log"]


def test_a_table_that_may_have_missed_a_commit_runs_upstreams_first_and_although_an_upstream_fails(shop):
    schedule = Schedule(shop).wish_awake([name("clean")], 0.0)
    assert ready(schedule) == ["log"]
    assert ready(ended(begun(schedule, "log"), "log")) == ["clean"]
    assert ready(schedule, resting=("log",)) == ["clean"]
    assert schedule.wishes[name("clean")].why == WOKEN


# -- the order of what may begin


def test_a_reader_comes_before_the_next_check_of_its_source(shop):
    schedule = Schedule(shop).wish([name("log")], POLLED, 0.0).wish([name("clean")], WOKEN, 1.0)

    assert ready(schedule) == ["clean", "log"]


def test_others_come_by_the_moment_up_to_which_they_may_wait(settings):
    tables = {"soon": (300, ["log"]), "daily": (86_400, ["log"]), "hourly": (3_600, ["log"])}
    graph = graph_of(settings, {"log": 10}, tables)
    schedule = ended(begun(due(Schedule(graph), "daily"), "log"), "log")
    schedule = ended(begun(due(schedule, "hourly", now=83_000.0), "log"), "log")
    schedule = ended(begun(due(schedule, "soon", now=86_200.0), "log"), "log")

    assert ready(schedule) == ["daily", "soon", "hourly"]


def test_refreshes_that_may_take_long_leave_a_place(shop):
    schedule = ended(begun(due(Schedule(shop), "i0", "i1", "i2"), "log", "clean"), "log", "clean")
    found = schedule.ready((), (), lambda one: True)

    assert [str(one) for one in schedule.choose(found, (), 3)] == ["i0", "i1"]
    assert [str(one) for one in schedule.choose(found, {name("i3")}, 3)] == ["i0"]
    assert [str(one) for one in schedule.choose(found, {name("clean")}, 1)] == ["i0"]


# -- simulated: random graphs, durations and failures


@dataclass
class Waiting:
    """Refreshes of the inputs of a table that ended since the table was wished for."""

    ends: Counter[TableName] = field(default_factory=Counter)


class Simulation:
    """An engine whose refreshes take as long as a random number says, and whose places are few."""

    def __init__(self, graph: Graph, places: int, seed: int) -> None:
        self.graph = graph
        self.places = places
        self.random = random.Random(seed)
        self.schedule = Schedule(graph)
        self.now = 0.0
        self.queue: list[TableName] = []
        self.running: dict[TableName, float] = {}
        self.events: list[tuple[float, int, TableName]] = []
        self.versions: set[TableName] = set()
        self.resting: dict[TableName, float] = {}
        self.waiting: dict[TableName, Waiting] = {}
        self.speed = {one: self.random.choice((0.1, 1.0, 15.0)) for one in graph.order}
        self.refreshes: dict[TableName, list[tuple[float, float]]] = {one: [] for one in graph.order}
        self.data_at = dict.fromkeys(graph.order, -1e9)
        self.begun_with: dict[TableName, float] = {}
        self.begun_at: dict[TableName, list[float]] = {one: [] for one in graph.order}
        self.committed_at: dict[TableName, list[float]] = {one: [] for one in graph.order}
        self.failing: set[TableName] = set()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.step()
            self.now += 0.25
            while self.events and self.events[0][0] <= self.now:
                _, _, table = heapq.heappop(self.events)
                self.end(table)

    def wish(self, names: list[TableName], why: str) -> None:
        self.schedule = self.schedule.wish(names, why, self.now)
        self.note_wishes()

    def note_wishes(self) -> None:
        for table in self.schedule.wishes:
            self.waiting.setdefault(table, Waiting())

    def step(self) -> None:
        sources = [one.name for one in self.graph.sources if self.graph.mode(one.name) is Mode.CONTINUOUS]
        self.wish(sources, POLLED)
        late = [
            one
            for one in self.graph.order
            if self.now - self.data_at[one] > self.graph.freshness(one).seconds * self.random.uniform(0.5, 1)
        ]
        self.schedule, _ = self.schedule.wish_due(late, self.now)
        self.note_wishes()
        resting = {one for one, until in self.resting.items() if self.now < until}
        busy = {*self.queue, *self.running}
        able = self.schedule.ready(busy, resting, self.versions.__contains__)
        self.check_who_waits(able, busy, resting)
        for table in self.schedule.choose(able, busy, self.places):
            self.schedule = self.schedule.begin(table)
            self.queue.append(table)
        while self.queue and len(self.running) < self.places:
            self.begin(self.queue.pop(0))

    def check_who_waits(self, able: tuple[TableName, ...], busy: set[TableName], resting: set[TableName]) -> None:
        """A table that may not begin waits for an input of which no refresh has ended since; one that was woken does
        not wait at all."""
        for table, wish in self.schedule.wishes.items():
            if table in able or table in busy or table in resting:
                continue
            blocker = self.schedule.waits_for(table, busy, resting, self.versions.__contains__)
            assert blocker is not None
            if blocker in self.versions:
                assert self.waiting[table].ends[blocker] == 0, f"{table} waits for a second refresh of {blocker}"
                assert wish.why != WOKEN

    def refreshes_of(self, table: TableName) -> list[tuple[float, float]]:
        """When each began and ended; one that runs ends with the simulation."""
        running = [(self.running[table], self.now)] if table in self.running else []
        return [*self.refreshes[table], *running]

    def begin(self, table: TableName) -> None:
        self.waiting.pop(table, None)
        self.begun_at[table].append(self.now)
        driving = self.graph.driving(table)
        self.begun_with[table] = min((self.data_at[read] for read in driving), default=self.now)
        self.running[table] = self.now
        took = self.random.expovariate(1.0) * self.speed[table]
        heapq.heappush(self.events, (self.now + took, self.random.randrange(10**9), table))

    def end(self, table: TableName) -> None:
        self.refreshes[table].append((self.running.pop(table), self.now))
        failed = table in self.failing
        self.schedule, _ = self.schedule.end(table, brought_in=not failed)
        if failed:
            self.resting[table] = self.now + 30
            if self.graph.driving(table):
                self.wish([table], WOKEN)
            return
        self.versions.add(table)
        self.data_at[table] = self.begun_with[table]
        for one in self.waiting.values():
            one.ends[table] += 1
        if self.random.random() < 0.7:
            self.committed_at[table].append(self.now)
            woken = [
                reader
                for reader in self.graph.consumers(table)
                if self.graph.mode(reader) is Mode.CONTINUOUS and table in self.graph.driving(reader)
            ]
            self.wish(woken, WOKEN)


def random_graph(settings, rng: random.Random) -> Graph:
    sources = {f"s{n}": 5 for n in range(rng.randint(1, 3))}
    tables: dict[str, tuple[int, list[str]]] = {}
    levels = [list(sources)]
    freshness = 5
    for level in range(rng.randint(2, 4)):
        freshness = rng.choice((10, 20)) if level == 0 else freshness * rng.choice((1, 4, 12))
        own = []
        for number in range(rng.randint(1, 5)):
            below = [one for names in levels for one in names]
            reads = rng.sample(below, min(len(below), rng.randint(1, 3)))
            tables[f"t{level}{number}"] = (freshness + number, reads)
            own.append(f"t{level}{number}")
        levels.append(own)
    limits = {**sources}
    for one, (own_freshness, reads) in tables.items():
        limits[one] = max(own_freshness, *(limits[read] for read in reads))
        tables[one] = (limits[one], reads)
    return graph_of(settings, sources, tables)


@pytest.mark.seconds
@pytest.mark.parametrize("seed", range(12))
def test_no_table_waits_for_two_refreshes_of_an_input_and_each_commit_is_taken_in(settings, seed):
    rng = random.Random(seed)
    graph = random_graph(settings, rng)
    simulation = Simulation(graph, places=rng.randint(1, 4), seed=seed)

    simulation.run(400)

    # Nobody is left out, whatever the others do.
    for table in graph.order:
        assert simulation.begun_at[table], table
    for spec in graph.tables:
        if graph.mode(spec.name) is not Mode.CONTINUOUS:
            continue
        for read in graph.driving(spec.name):
            commits = [at for at in simulation.committed_at[read] if at < simulation.now - 200]
            for at in commits:
                assert any(begin >= at for begin in simulation.begun_at[spec.name]), (spec.name, read, at)


@pytest.mark.seconds
@pytest.mark.parametrize("seed", range(6))
def test_with_a_place_for_each_a_continuous_table_takes_in_every_commit_at_once(settings, seed):
    graph = random_graph(settings, random.Random(seed))
    simulation = Simulation(graph, places=len(graph.order) + 1, seed=seed)

    simulation.run(300)

    checked = 0
    for table in graph.tables:
        if graph.mode(table.name) is not Mode.CONTINUOUS:
            continue
        refreshes = simulation.refreshes_of(table.name)
        first = max(simulation.refreshes[read][0][1] for read in graph.upstream(table.name))
        for read in graph.driving(table.name):
            for at in simulation.committed_at[read]:
                free = max([at, *(end for begin, end in refreshes if begin < at < end)])
                if first < at and free < simulation.now - 1:
                    begins = simulation.begun_at[table.name]
                    assert any(at <= begin <= free + 0.5 for begin in begins), (table.name, read, at, free)
                    checked += 1
    assert checked > 20


@pytest.mark.seconds
@pytest.mark.parametrize("seed", range(6))
def test_failing_tables_delay_nobody_for_ever(settings, seed):
    rng = random.Random(100 + seed)
    graph = random_graph(settings, rng)
    simulation = Simulation(graph, places=2, seed=seed)
    simulation.run(100)
    simulation.failing = set(rng.sample(list(graph.order), 2))
    before = {one: len(times) for one, times in simulation.begun_at.items()}

    simulation.run(400)

    for table in graph.order:
        if graph.freshness(table).seconds < 200:
            assert len(simulation.begun_at[table]) > before[table], table
