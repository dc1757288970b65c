"""Going on from the state of a key is the same as a replay of all of its rows, or it is not done."""

from __future__ import annotations

import copy
import json
import pickle
import random
import tracemalloc
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cache
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any, ClassVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from freshline.declare.process_state import DeclaredState
from freshline.keyed.batches import (
    AGAIN,
    CAME,
    ENTRY,
    FROM,
    GONE,
    KEY,
    KIND,
    LAYER,
    STATE,
    TIMER,
    KeyedProcess,
    ProcessFailed,
    replay_batches,
)
from freshline.keyed.replay import Out, OutputTarget, ProcessError, Replay, ReplayProgress, Row
from freshline.keyed.state import MOST_BYTES, Shared, instance_of, keep, read
from freshline.keyed.state_types import StateType, state_type
from freshline.keyed.values import checker
from tests.lanes import few_or_many

START = datetime(1969, 12, 31, 23, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
INPUT = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("set", pa.int32())])
COLUMNS = pa.schema([("said", pa.string())])
Key = str | None
Input = tuple[Key, datetime | None, int, int | None]


class Recorder:
    """Puts out all that it is called with, with what it remembers of the calls before."""

    def __init__(self) -> None:
        self.calls: deque[str] = deque(maxlen=4)
        self.times: dict[datetime | None, list[int]] = {}
        self.first: int | None = None

    def row(self, row: Any, out: Out) -> None:
        self.first = row.n if self.first is None else self.first
        self.times.setdefault(row.at, []).append(row.n)
        self._said(out, f"row {row.n}")
        if row.set is not None:
            at = row.at or START
            out.timer(at + row.set * MINUTE)
            if row.set % 3 == 0:
                out.timer(at + row.set * MINUTE)

    def timer(self, at: datetime, out: Out) -> None:
        number = round((at - START) / MINUTE)
        self._said(out, f"timer {number}")
        if number % 7 == 0:
            out.timer(at + 5 * MINUTE)
        if number % 11 == 0:
            out.timer(at - 60 * MINUTE)

    def _said(self, out: Out, call: str) -> None:
        self.calls.append(call)
        out.emit(f"{call} of {self.first} and {len(self.times)}: {', '.join(self.calls)}")


def process(make: Any, until: datetime | None, **told: bool) -> KeyedProcess:
    micros = None if until is None else (until - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    has_timer = hasattr(make, "timer")
    state = {name: str(kind) for name, kind in types_of(make).items()}
    return KeyedProcess(
        make, ("k",), ("at", "n"), COLUMNS, "", (), has_timer, micros, 60.0, 2**33, __file__, state=state, **told
    )


def by_order(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((0, 0) if value is None else (1, value) for value in (row[0], row[1], row[2], row[3]))


def batches(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> list[pa.RecordBatch]:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return [whole.slice(start, 3) for start in range(0, len(rows), 3)]


def results(of: KeyedProcess, given: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    found = list(replay_batches(of)(iter(given)))
    return pa.Table.from_batches(found).to_pylist() if found else []


@dataclass
class World:
    """Rows by key, what was put out for them, and the layers of entries, the newest first."""

    make: Callable[[], Any]
    until: datetime | None = None
    rows: list[Input] = field(default_factory=list)
    out: dict[Key, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    layers: list[dict[Key, tuple[datetime | None, str | None]]] = field(default_factory=list)
    knows_all: bool = True
    gone_on: int = 0
    replayed: int = 0

    def refresh(self, came: Sequence[Input], gone: Sequence[Input], until: datetime | None) -> None:
        self.rows = [row for row in self.rows if row not in gone] + list(came)
        self.until = until
        schema = pa.schema([
            *INPUT, (FROM, pa.int8()), (LAYER, pa.int32()), (TIMER, pa.timestamp("us", "UTC")), (STATE, pa.string()),
        ])  # fmt: skip
        entries = [
            ((k, None, None, None, ENTRY, -number, *entry), number)
            for number, layer in enumerate(self.layers)
            for k, entry in layer.items()
        ]
        changed = [((*row, kind, None, None, None), 0) for kind, some in ((GONE, gone), (CAME, came)) for row in some]
        fed = sorted([*entries, *changed], key=lambda row: (by_order(row[0])[0], row[0][4], row[1], by_order(row[0])))
        told = process(self.make, until, keeps_state=True, knows_all=self.knows_all)
        newest: dict[Key, tuple[datetime | None, str | None]] = {}
        again = set()
        for row in results(told, batches([row for row, _ in fed], schema)):
            key = row[f"{KEY}0"]
            if row[KIND] == AGAIN:
                again.add(key)
            elif row[KIND] == ENTRY:
                newest[key] = (row[TIMER], row[STATE])
                self.gone_on += 1
            else:
                self.out[key][row["said"]] += 1
        for key in again:
            self.out[key], newest[key] = Counter(), (None, None)
        for row in self.replay([row for row in self.rows if row[0] in again], keeps_state=True):
            key = row[f"{KEY}0"]
            if row[KIND] == ENTRY:
                newest[key] = (row[TIMER], row[STATE])
            else:
                self.out[key][row["said"]] += 1
        self.replayed += len(again)
        self.layers.insert(0, newest)

    def replay(self, rows: Sequence[Input], **told: bool) -> list[dict[str, Any]]:
        return results(process(self.make, self.until, **told), batches(sorted(rows, key=by_order), INPUT))

    def check(self) -> None:
        expected: dict[Key, Counter[str]] = defaultdict(Counter)
        waiting = {}
        for row in self.replay(self.rows):
            if row[KIND] is None:
                expected[row[f"{KEY}0"]][row["said"]] += 1
            else:
                waiting[row[f"{KEY}0"]] = row[TIMER]
        assert {key: bag for key, bag in self.out.items() if bag} == expected
        known: dict[Key, datetime | None] = {}
        for layer in reversed(self.layers):
            known.update({key: timer for key, (timer, _) in layer.items()})
        if self.knows_all:
            assert {key: timer for key, timer in known.items() if timer} == waiting


def lived(seed: int, make: Callable[[], Any] = Recorder) -> World:
    """A world after refreshes with late rows, ties, rows without a time, deleted rows, and damage to what is kept."""
    chance, number, now = random.Random(seed), 0, 0
    world = World(make)
    for _ in range(14):
        came = []
        for _ in range(chance.randint(0, 6)):
            number += 1
            now += chance.choice((0, 0, 0, 1, 2))
            late = chance.choice((0, 0, 0, 0, 0, 0, 1, 3, 20))
            at = None if chance.random() < 0.05 else START + (now - late) * MINUTE
            sets = chance.choice((None, None, 0, 2, 7, 9, -3, -100))
            # Numbers do not always grow with the time, so that some ties are late.
            came.append((chance.choice(("a", "b", "c", None)), at, number if chance.random() < 0.9 else -number, sets))
        gone = [row for row in world.rows if chance.random() < 0.01]
        lag = chance.choice((0, 1, 2, 2, 5, 15, 90))
        until = START + max(now - lag, -1000) * MINUTE
        if world.until is not None:
            until = max(until, world.until)
        world.refresh(came, gone, until)
        world.check()
        if chance.random() < 0.05:
            world.layers, world.knows_all = [], False
            # A refresh after a loss replays all keys, or those that wait for a timer would be forgotten.
            every = {row[0] for row in world.rows}
            entries = [row for row in world.replay(world.rows, keeps_state=True) if row[KIND] == ENTRY]
            world.layers = [{row[f"{KEY}0"]: (row[TIMER], row[STATE]) for row in entries}]
            assert set(world.layers[0]) == every
            world.knows_all = chance.random() < 0.5
        for key, (timer, state) in list(world.layers[0].items()):
            if state is not None and chance.random() < 0.05:
                place = chance.randrange(len(state))
                world.layers[0][key] = (timer, state[:place])
    return world


@pytest.mark.seconds
@pytest.mark.parametrize("count", few_or_many(12, 60))
def test_going_on_equals_a_replay_of_all_rows(count: int) -> None:
    worlds = lived_all(count)
    assert sum(world.gone_on for world in worlds) > 5 * len(worlds)
    assert sum(world.replayed for world in worlds) > 5 * len(worlds)


@pytest.mark.parametrize(
    ("of", "name"), [(ReplayProgress, "goes_on"), (ReplayProgress, "goes_on_with"), (ReplayProgress, "is_due")]
)  # fmt: skip
def test_each_condition_is_needed(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> None:
    """Planted bugs: the property above is false for them."""
    monkeypatch.setattr(of, name, lambda *_: name != "is_due")
    with pytest.raises(AssertionError):
        lived_all(200)


def lived_all(count: int) -> list[World]:
    return [lived(seed) for seed in range(count)]


# -- what is kept


def told(make: Any, *rows: dict[str, Any], text: str | None = None) -> str | None:
    """The state of a key after some rows; `text` is that of the class."""
    shared = Shared(make)
    replay = Replay(make, SAID, {"k": "a"}, None, has_timer=False, file=__file__)
    for row in rows:
        replay.row(Row(row), None)
    replay.end()
    state = None if shared.changed else keep(replay, ("a",), (1,), shared, types_of(make, text))
    assert state is None or json.loads(state)
    return state


@cache
def types_of(make: Any, text: str | None = None) -> dict[str, StateType]:
    """The declared types of attributes."""
    found = DeclaredState(make, Path(__file__).read_text() if text is None else dedent(text))
    assert found.problems == []
    return {name: state_type(kind) for name, kind in found.state.items()}


def come_back(make: Any, state: str | None, text: str | None = None) -> Any:
    """The instance that goes on from a state."""
    assert state is not None
    kept = read(state, types_of(make, text))
    assert kept is not None
    assert (kept.key, kept.last) == (("a",), (1,))
    return instance_of(make, kept)


def declared(text: str, name: str = "Told") -> Any:
    """The class of a file, as Spark's processes get it."""
    module = ModuleType("freshline_declaration_of_the_test")
    exec(compile(dedent(text), "told.py", "exec", dont_inherit=True), module.__dict__)
    return pickle.loads(cloudpickle.dumps(getattr(module, name)))


class Slotted:
    __slots__ = ("__hidden", "none", "shown")
    none: int

    def __init__(self) -> None:
        self.__hidden: list[int] = [1]
        self.shown: int = 5

    def row(self, row: Any, out: Out) -> None:
        self.__hidden.append(row.n)

    def hidden(self) -> list[int]:
        return self.__hidden


class Both(Slotted):
    """Slots, attributes, and a default of the class."""

    count: int = 0
    names: ClassVar[dict[str, int]] = {}

    def row(self, row: Any, out: Out) -> None:
        super().row(row, out)
        self.count += 1


def test_an_instance_comes_back_with_slots_attributes_and_defaults_of_the_class() -> None:
    found = come_back(Both, told(Both, {"n": 2}, {"n": 3}))
    assert (found.hidden(), found.shown, found.count, Both.count) == ([1, 2, 3], 5, 2, 0)
    assert not hasattr(found, "none")
    assert "names" not in vars(found)
    assert found.names is Both.names
    assert "count" not in vars(come_back(Both, told(Both)))


BERLIN = ZoneInfo("Europe/Berlin")
VALUES: list[tuple[str, Any]] = [
    ("bool", True), ("int | None", None), ("int", 2**80), ("int", -(2**63)), ("int", False), ("float", 1.5),
    ("float", float("nan")), ("float", -0.0), ("float", 5), ("float", 2**80), ("str", "\u00e9\ud800"), ("bytes", b"\0"),
    ("tuple[int, list[int]]", (1, [2])), ("tuple[int, ...]", (1, 2, 3)), ("tuple[int, ...]", ()),
    ("dict[str, dict[int, str | None]]", {"a": {1: "b", 2: None}}), ("dict[tuple[str, int], bool]", {("a", 1): True}),
    ("set[int]", {1, 2, 3}), ("frozenset[str]", frozenset("a")), ("deque[int]", deque([1, 2], maxlen=2)),
    ("deque[int]", deque([1, 2])), ("Counter[str]", Counter("aab")), ("Decimal", Decimal("1.50")),
    ("Decimal", Decimal("sNaN")), ("UUID", UUID(int=5)), ("date", date(1, 1, 1)), ("timedelta", timedelta(days=-1)),
    ("datetime", START), ("datetime.datetime", datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)),
    ("datetime", datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=3, microseconds=7)))),
    ("datetime", datetime(2026, 1, 1)),  # noqa: DTZ001
    ("time", time(1, 2, 3, 4)), ("time", time(1, tzinfo=UTC, fold=1)), ("Optional[list[int]]", [1]),
    ("'list[int]'", []), ("typing.Optional[int]", None), ("None | int", 5), ("list[str | None]", [None, "a"]),
]  # fmt: skip


def holding(kind: str) -> tuple[Any, str]:
    """A class that keeps a value of this type, and its text."""
    text = f"""
        from __future__ import annotations

        class Told:
            held: {kind}

            def row(self, row, out):
                self.held = row.value
        """
    return declared(text), text


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_values_of_declared_types_come_back_as_they_are(kind: str, value: Any) -> None:
    make, text = holding(kind)
    held = come_back(make, told(make, {"value": copy.deepcopy(value)}, text=text), text).held
    assert type(held) is type(value)
    assert repr(held) == repr(value)
    if isinstance(value, datetime):
        assert (held.tzinfo, held.fold) == (value.tzinfo, value.fold)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "5"), ("int", None), ("int", 1.5), ("float", "1"), ("float", Decimal(1)), ("bool", 1), ("str", b"a"),
        ("bytes", bytearray(b"a")), ("date", START), ("datetime", date(1, 1, 1)), ("list[int]", (1,)),
        ("list[int]", [1, "a"]), ("list[int]", [None]), ("tuple[int, int]", (1,)), ("dict[str, int]", {"a": "b"}),
        ("dict[str, int]", {1: 1}), ("set[int]", [1]), ("deque[int]", [1]), ("Counter[str]", {"a": 1}),
        ("int", object()), ("int", print), ("int", Recorder),
    ],
)  # fmt: skip
def test_a_value_of_another_type_than_declared_is_reported(kind: str, value: Any) -> None:
    make, text = holding(kind)
    with pytest.raises(ProcessError, match=r"^keeps self.held = .* for the key \{k: 'a'\}: it is (of the|a) t"):
        told(make, {"value": value}, text=text)


def test_an_attribute_that_only_running_shows_is_reported() -> None:
    text = """
        class Told:
            def row(self, row, out):
                setattr(self, row.name, 5)
        """
    said = "keeps self.a = 5 for the key {k: 'a'}: the class does not declare it. Write `a: ..` with its type there"
    with pytest.raises(ProcessError) as raised:
        told(declared(text), {"name": "a"}, text=text)
    assert raised.value.sentence == said


def test_such_an_attribute_fails_the_refresh_that_would_keep_it() -> None:
    class Undeclared:
        def row(self, row: Any, out: Out) -> None:
            setattr(self, "a", row.n)  # noqa: B010

    rows = batches([("b", START, 1, None)], INPUT)
    with pytest.raises(ProcessFailed, match=r'"PROCESS_FAILED", "sentence": "keeps self.a = 1 for the key'):
        results(process(Undeclared, START, keeps_state=True), rows)
    assert results(process(Undeclared, START), rows) == []


class Text(str):
    __slots__ = ()


def _counter_with_attribute() -> Any:
    found = Counter("a")
    found.extra = 1  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("str", Text("a")), ("list[str]", [Text("a")]), ("dict[str, int]", OrderedDict(a=1)),
        ("dict[str, int]", defaultdict(int, a=1)), ("dict[str, int]", Counter("a")), ("str", "x" * MOST_BYTES),
        ("str", "\u00e9" * (MOST_BYTES // 6)), ("Counter[str]", _counter_with_attribute()),
        ("datetime", datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET"))),
        ("datetime", datetime(2026, 1, 1, tzinfo=ZoneInfo.no_cache("Europe/Berlin"))),
    ],
)  # fmt: skip
def test_values_that_would_not_come_back_have_their_key_replayed(kind: str, value: Any) -> None:
    make, text = holding(kind)
    assert told(make, {"value": value}, text=text) is None


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ("SEEN[row.n] = 1", "a value of the module changes"),
        ("Told.total += 1", "an attribute of the class changes"),
        ("self.kinds.append(row.n)", "a list of a class above changes"),
        ("seen.append(row.n)", "a default of an argument changes"),
        ("global LIMIT; LIMIT = row.n", "a name of the module gets another value"),
        ("note(row.n)", "a function keeps something"),
        ("self.mine = SEEN", "the instance holds what all share"),
        ("self.lists = [self.kinds]", "the instance holds what all share, within a list"),
        ("self.lists = [[]] * 2", "one object is twice in the state"),
        ("self.lists = [[]]; self.other = self.lists", "two attributes are one object"),
        ("self.mine = vars(self)", "an attribute is what has it"),
        ("self.__class__ = Base", "the instance is of another class"),
    ],
)
def test_state_that_is_not_of_one_instance_has_its_keys_replayed(body: str, about: str) -> None:
    text = f"""
        SEEN, LIMIT = {{}}, 5

        def note(n, noted=[]):
            noted.append(n)

        class Base:
            kinds = []

        class Told(Base):
            total = 0
            n: tuple[int, ...]
            mine: dict[int, int]
            lists: list[list[int]]
            other: list[list[int]]

            def row(self, row, out, seen=[]):
                {body}

            def others(self):
                return LIMIT, SEEN, Base, note
        """
    assert told(declared(text), {"n": 1}, text=text) is None, about
    kept = text.replace(body, "self.n = (row.n, LIMIT, len(SEEN))")
    assert told(declared(kept), {"n": 1}, text=kept) is not None


@pytest.mark.parametrize(
    "body",
    [
        "def __new__(cls): return super().__new__(cls)",
        "def __getattribute__(self, name): return super().__getattribute__(name)",
        "__dict__ = {}",
    ],
)
def test_classes_that_make_their_instances_otherwise_are_replayed(body: str) -> None:
    text = f"""
        class Told:
            def row(self, row, out):
                pass

            {body}
        """
    assert told(declared(text), {}, text=text) is None
    plain = text.replace(body, "x = 1")
    assert told(declared(plain), {}, text=plain) is not None


@pytest.mark.parametrize(
    "data",
    [
        *("", "5", "{}", "[0, 1]", "\0", "[" * 100_000, '[3, [], [], [null, null, null], null, 0, {"x": 1}]'),
        *("[2, [], [], [null, null, null], null, 0, {}]", "[3, [], [], [null, null], null, 0, {}]"),
        '[3, [], [["print", 1]], [null, null, null], null, 0, {}]',
    ],
)
def test_a_text_that_is_no_state_is_not_read(data: str) -> None:
    assert read(data, {}) is None


def test_a_key_whose_state_is_that_of_another_is_replayed() -> None:
    world = World(Recorder)
    world.refresh([("a", START, 1, None), ("b", START, 2, None)], [], START)
    world.layers[0]["a"] = world.layers[0]["b"]
    world.refresh([("a", START + MINUTE, 3, None)], [], START)
    world.check()
    assert world.replayed == 1


def test_a_watermark_that_goes_back_has_keys_replayed() -> None:
    world = World(Recorder)
    world.refresh([("a", START, 1, 2)], [], START + 9 * MINUTE)
    world.refresh([("a", START + 10 * MINUTE, 2, None)], [], START)
    world.check()
    assert world.replayed == 1


# -- times of the local clock, which come twice in autumn

# 02:00 of the summer; an hour later it is 02:00 again.
AUTUMN = datetime(2026, 10, 25, tzinfo=UTC)


class Local:
    """Sets timers in local time, and says in which hour they run."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def row(self, row: Any, out: Out) -> None:
        self._said(out, f"row {row.n}")
        if row.set is not None:
            out.timer((row.at + row.set * MINUTE).astimezone(BERLIN))

    def timer(self, at: datetime, out: Out) -> None:
        assert at.tzinfo is BERLIN
        self._said(out, f"timer {at.astimezone(UTC):%H:%M} {at:%H:%M}")

    def _said(self, out: Out, call: str) -> None:
        self.calls.append(call)
        out.emit(", ".join(self.calls))


def minutes(number: int) -> datetime:
    return AUTUMN + number * MINUTE


def test_timers_run_by_their_instant_when_clocks_go_back() -> None:
    world = World(Local)
    world.refresh([("a", minutes(0), 1, 75), ("a", minutes(0), 2, 50), ("a", minutes(0), 3, 5)], [], minutes(600))
    assert max(world.out["a"], key=len) == (
        "row 1, row 2, row 3, timer 00:05 02:05, timer 00:50 02:50, timer 01:15 02:15"
    )


def test_going_on_equals_a_replay_when_clocks_go_back() -> None:
    world = World(Local)
    world.refresh([("a", minutes(0), 1, 30), ("a", minutes(40), 2, 30)], [], minutes(20))
    world.check()
    world.refresh([("a", minutes(60), 3, 600)], [], minutes(35))
    world.check()
    assert world.out["a"]["row 1, timer 00:30 02:30, row 2, row 3"] == 1


def test_the_last_timer_that_ran_is_by_its_instant_when_clocks_go_back() -> None:
    world = World(Local)
    world.refresh([("a", minutes(0), 1, 50), ("a", minutes(0), 2, 75)], [], minutes(80))
    world.refresh([("a", minutes(70), 3, None)], [], minutes(80))
    world.check()
    assert world.replayed == 1


@pytest.mark.seconds
@pytest.mark.parametrize("seed", range(40))
def test_generated_refreshes_when_clocks_go_back(seed: int) -> None:
    chance = random.Random(seed)
    world, now, until = World(Local), -30, -60
    for number in range(12):
        now += chance.choice((0, 5, 15))
        until = max(until, now + chance.choice((-70, -20, 0, 20, 70)))
        world.refresh([("a", minutes(now), number, chance.choice((-70, 0, 5, 30, 60, 75)))], [], minutes(until))
        world.check()


def test_timers_at_the_ends_of_time_wait_or_run() -> None:
    class Ends:
        def row(self, row: Any, out: Out) -> None:
            zone = timezone(timedelta(hours=-row.n))
            out.timer(datetime.max.replace(tzinfo=zone))
            out.timer(datetime.min.replace(tzinfo=timezone(timedelta(hours=row.n))))

        def timer(self, at: datetime, out: Out) -> None:
            out.emit(f"{at.year}")

    replay = Replay(Ends, SAID, {"k": "a"}, AUTUMN, has_timer=True, file=__file__)
    replay.row(Row({"n": 5}), AUTUMN)
    assert replay.end() == datetime.max.replace(tzinfo=UTC)
    assert [row[0] for row in replay.out.rows] == ["1"]


SAID = OutputTarget("", (("said", checker(pa.string())),), frozenset())


# -- how much is kept


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("bytes", lambda: bytes(2**25)), ("str", lambda: "a" * 2**25), ("str", lambda: "\u00e9" * 2**24),
        ("list[int]", lambda: [0] * 2**20), ("int", lambda: 1 << 2**28), ("Decimal", lambda: Decimal("1" * 2**22)),
        ("float", lambda: 1 << 2**28), ("Counter[int]", lambda: Counter(range(2**17))),
        ("list[bytes]", lambda: [bytes(2**14), bytes(2**25)]), ("list[list[bytes]]", lambda: [[bytes(2**14)]] * 500),
    ],
)  # fmt: skip
def test_a_large_state_takes_no_memory_to_be_found_large(kind: str, make: Callable[[], Any]) -> None:
    of, text = holding(kind)
    shared, types = Shared(of), types_of(of, text)
    replay = Replay(of, SAID, {"k": "a"}, None, has_timer=False, file=__file__)
    replay.row(Row({"value": make()}), None)
    tracemalloc.start()
    try:
        assert keep(replay, ("a",), (1,), shared, types) is None
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()
