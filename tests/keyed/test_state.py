"""Going on from the state of a key is the same as a replay of all of its rows, or it is not done."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
import tracemalloc
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from textwrap import dedent
from types import ModuleType
from typing import Any, ClassVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark import cloudpickle

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
    Process,
    replay_batches,
)
from freshline.keyed.replay import Out, Progress, Replay, Row, Target
from freshline.keyed.state import MOST_BYTES, MUTABLE, Shared, instance_of, keep, read
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
        self.calls: deque[Any] = deque(maxlen=4)
        self.times: dict[Any, list[int]] = defaultdict(list)
        self.first: Any = None

    def row(self, row: Any, out: Out) -> None:
        self.first = self.first or row
        self.times[row.at].append(row.n)
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
        out.emit(f"{call} of {self.first.n} and {len(self.times)}: {', '.join(self.calls)}")


def process(make: Callable[[], Any], until: datetime | None, **told: bool) -> Process:
    micros = None if until is None else (until - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    has_timer = hasattr(make, "timer")
    return Process(make, ("k",), ("at", "n"), COLUMNS, "", (), has_timer, micros, 60.0, 2**33, __file__, **told)


def by_order(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((0, 0) if value is None else (1, value) for value in (row[0], row[1], row[2], row[3]))


def batches(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> list[pa.RecordBatch]:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return [whole.slice(start, 3) for start in range(0, len(rows), 3)]


def results(of: Process, given: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    found = list(replay_batches(of)(iter(given)))
    return pa.Table.from_batches(found).to_pylist() if found else []


@dataclass
class World:
    """Rows by key, what was put out for them, and the layers of entries, the newest first."""

    make: Callable[[], Any]
    until: datetime | None = None
    rows: list[Input] = field(default_factory=list)
    out: dict[Key, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    layers: list[dict[Key, tuple[datetime | None, bytes | None]]] = field(default_factory=list)
    knows_all: bool = True
    gone_on: int = 0
    replayed: int = 0

    def refresh(self, came: Sequence[Input], gone: Sequence[Input], until: datetime | None) -> None:
        self.rows = [row for row in self.rows if row not in gone] + list(came)
        self.until = until
        schema = pa.schema([
            *INPUT, (FROM, pa.int8()), (LAYER, pa.int32()), (TIMER, pa.timestamp("us", "UTC")), (STATE, pa.binary()),
        ])  # fmt: skip
        entries = [
            ((k, None, None, None, ENTRY, -number, *entry), number)
            for number, layer in enumerate(self.layers)
            for k, entry in layer.items()
        ]
        changed = [((*row, kind, None, None, None), 0) for kind, some in ((GONE, gone), (CAME, came)) for row in some]
        fed = sorted([*entries, *changed], key=lambda row: (by_order(row[0])[0], row[0][4], row[1], by_order(row[0])))
        told = process(self.make, until, keeps_state=True, knows_all=self.knows_all)
        newest: dict[Key, tuple[datetime | None, bytes | None]] = {}
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
    ("of", "name"), [(Progress, "goes_on"), (Progress, "goes_on_with"), (Progress, "is_due")]
)  # fmt: skip
def test_each_condition_is_needed(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> None:
    """Planted bugs: the property above is false for them."""
    monkeypatch.setattr(of, name, lambda *_: name != "is_due")
    with pytest.raises(AssertionError):
        lived_all(200)


def lived_all(count: int) -> list[World]:
    return [lived(seed) for seed in range(count)]


# -- what is kept


def told(make: Callable[[], Any], *rows: dict[str, Any]) -> tuple[bytes | None, Shared]:
    """The state of a key after some rows."""
    shared = Shared(make)
    target = Target("", (("said", checker(pa.string())),), frozenset())
    replay = Replay(make, target, {"k": "a"}, None, has_timer=False, file=__file__)
    for row in rows:
        replay.row(Row(row), None)
    replay.end()
    return (None if shared.changed else keep(replay, ("a",), (1,), shared)), shared


def declared(text: str, name: str = "Told") -> Any:
    """The class of a file, as Spark's processes get it."""
    module = ModuleType("freshline_declaration_of_the_test")
    exec(compile(dedent(text), "told.py", "exec", dont_inherit=True), module.__dict__)
    return pickle.loads(cloudpickle.dumps(getattr(module, name)))


class Slotted:
    __slots__ = ("__hidden", "none", "shown")

    def __init__(self) -> None:
        self.__hidden = [1]
        self.shown = self.__hidden

    def row(self, row: Any, out: Out) -> None:
        self.__hidden.append(row.n)

    def hidden(self) -> list[int]:
        return self.__hidden


class Both(Slotted):
    """Slots, attributes, and a default of the class."""

    count = 0
    names: ClassVar[dict[str, int]] = {}

    def row(self, row: Any, out: Out) -> None:
        super().row(row, out)
        self.count += 1
        self.all = self.__dict__


def test_an_instance_comes_back_with_slots_attributes_and_what_is_one_object_in_it() -> None:
    data, shared = told(Both, {"n": 2}, {"n": 3})
    assert data is not None
    kept = read(data, shared)
    assert kept is not None
    found = instance_of(Both, kept)
    assert (found.hidden(), found.count, Both.count) == ([1, 2, 3], 2, 0)
    assert found.shown is found.hidden()
    assert found.all is vars(found)
    assert not hasattr(found, "none")
    assert "names" not in vars(found)
    assert found.names is Both.names


VALUES = [
    None, True, 2**80, 1.5, float("nan"), 1j, "é\ud800", b"\0", bytearray(b"a"), (1, [2]), {"a": {1: "b"}},
    {1, 2, 3}, frozenset("a"), deque([1, 2], maxlen=2), OrderedDict(b=1, a=2), defaultdict(list, {1: [2]}),
    Counter("aab"), Decimal("1.50"), UUID(int=5), date(1, 1, 1), START, timedelta(days=-1), Row({"a": [1]}),
    datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=3))),
    datetime(2026, 1, 1),  # noqa: DTZ001
    int,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_plain_values_are_kept_as_they_are(value: Any) -> None:
    class Holds:
        def row(self, row: Any, out: Out) -> None:
            own = copy.deepcopy(row.value)
            self.held = [own, own]

    data, shared = told(Holds, {"value": value})
    assert data is not None
    kept = read(data, shared)
    assert kept is not None
    held = instance_of(Holds, kept).held
    assert type(held[0]) is type(value)
    assert held[0] is held[1] or type(value) not in MUTABLE
    assert repr(held[0]) == repr(value)


class Text(str):
    __slots__ = ()


def _counter_with_attribute() -> Any:
    found = Counter("a")
    found.extra = 1  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    "value",
    [
        Text("a"), object(), print, lambda: 1, iter([1]), defaultdict(lambda: 1), [Text("a")], {"a": object()},
        "x" * MOST_BYTES, Exception("a"), ModuleType("a"), _counter_with_attribute(), Recorder, Recorder(),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_other_values_have_their_key_replayed(value: Any) -> None:
    class Holds:
        def row(self, row: Any, out: Out) -> None:
            self.held = value

    assert told(Holds, {})[0] is None


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
        ("self.mine = [self.kinds]", "the instance holds what all share, within a list"),
        ("self.__class__ = Base", "the instance is of another class"),
        ("self.act = self.row", "a method is no plain value"),
        ("self.out = out", "what puts rows out is no plain value"),
    ],
)
def test_state_outside_of_the_instance_has_its_keys_replayed(body: str, about: str) -> None:
    text = f"""
        SEEN, LIMIT = {{}}, 5

        def note(n, noted=[]):
            noted.append(n)

        class Base:
            kinds = []

        class Told(Base):
            total = 0

            def row(self, row, out, seen=[]):
                {body}

            def other(self):
                return LIMIT, SEEN, Base, note
        """
    assert told(declared(text), {"n": 1})[0] is None, about
    assert told(declared(text.replace(body, "self.n = (row.n, LIMIT, len(SEEN))")), {"n": 1})[0] is not None


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
    assert told(declared(text), {})[0] is None
    assert told(declared(text.replace(body, "x = 1")), {})[0] is not None


class Runs:
    def __reduce__(self) -> Any:
        return print, ("it ran",)


@pytest.mark.parametrize("data", [b"", b"\x80", pickle.dumps(5), pickle.dumps((0, 1)), pickle.dumps(Runs())])
def test_bytes_that_are_no_state_are_not_read_and_run_nothing(data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    assert read(data, Shared(Recorder)) is None
    assert capsys.readouterr().out == ""


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

BERLIN = ZoneInfo("Europe/Berlin")
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


# -- which objects are meant, of values that cannot change


def gone_on(make: Any, first: Sequence[dict[str, Any]], then: Sequence[dict[str, Any]]) -> tuple[list[Any], bool]:
    """The output for rows, of which the later ones go on from the state, and whether there was one.

    The later ones go on in another process, where the class is a copy.
    """
    data, _ = told(make, *first)
    there = pickle.loads(cloudpickle.dumps(make))
    kept = None if data is None else read(data, Shared(there))
    replay = Replay(
        there if kept is None else lambda: instance_of(there, kept), SAID, {"k": "a"}, None, has_timer=False, file=""
    )
    for row in then if kept is not None else [*first, *then]:
        replay.row(Row(row), None)
    return [row[0] for row in replay.out.rows][-len(then) :], kept is not None


SAID = Target("", (("said", checker(pa.string())),), frozenset())


@pytest.mark.parametrize(
    ("given", "expression"),
    [
        ("MISSING = '<missing>'", "MISSING"),
        ("MISSING = 'missing'", "MISSING"),
        ("MISSING = b'<missing>'", "MISSING"),
        ("MISSING = float('nan')", "MISSING"),
        ("MISSING = float('-1.5')", "MISSING"),
        ("MISSING = 10**9", "MISSING"),
        ("MISSING = ('<missing>', 1)", "MISSING"),
        ("MISSING = (1, (2, 3))", "MISSING[1]"),
        ("MISSING = frozenset(['a'])", "MISSING"),
        ("from datetime import datetime; MISSING = datetime(1970, 1, 1)", "MISSING"),
        ("from datetime import datetime", "datetime.min"),
        ("import datetime", "datetime.datetime.max"),
        ("from decimal import Decimal; MISSING = Decimal('1.50')", "MISSING"),
        ("import math", "math.nan"),
        ("import math", "math.inf"),
        ("", "__import__('math').nan"),
        ("", "self.NONE"),
        ("", "Told.NONE"),
        ("", "self.default()"),
        ("", "'<constant>'"),
        ("A = '<a>'; B = '-<a>'[1:]", "B"),
        ("A = '<a>'; B = '-<a>'[1:]", "A"),
    ],
)
def test_a_constant_comes_back_as_the_very_object(given: str, expression: str) -> None:
    text = f"""
        {given}

        class Told:
            NONE = "<none>"

            def __init__(self):
                self.v = self.w = None

            def row(self, row, out):
                out.emit(f"{{self.v is self.found()}} {{self.w == [self.found()]}}")
                self.v, self.w = self.found(), [self.found()]

            def default(self, value="<default>"):
                return value

            def found(self):
                return {expression}

            def others(self):
                return {", ".join(name for name in ("A", "B") if f"{name} =" in given) or None}
        """
    assert gone_on(declared(text), [{}], [{}]) == (["True True"], True)


def test_an_equal_value_does_not_come_back_as_the_constant() -> None:
    text = """
        MISSING = "<missing>"
        NUMBER = 10**9

        class Told:
            v = w = None

            def row(self, row, out):
                out.emit(f"{self.v is MISSING} {self.w is NUMBER} {self.v == MISSING} {self.w == NUMBER}")
                self.v, self.w = row.text, row.number
        """
    row = {"text": "".join(["<miss", "ing>"]), "number": int("1000000000")}
    assert gone_on(declared(text), [row], [row]) == (["False False True True"], True)


@pytest.mark.parametrize("value", ["float('nan')", "float('1.5')", "int('1000')", "'-'.join('ab')", "(row.n, 1)"])
def test_a_value_that_is_there_twice_is_one_object(value: str) -> None:
    text = f"""
        class Told:
            def __init__(self):
                self.seen, self.last, self.other = [], None, None

            def row(self, row, out):
                last = self.seen[-1] if self.seen else None
                out.emit(f"{{self.last in self.seen}} {{self.last is last}} {{self.other is last}}")
                self.last, self.other = {value}, {value}
                self.seen.append(self.last)
        """
    assert gone_on(declared(text), [{"n": 500}] * 3, [{"n": 500}]) == (["True True False"], True)


def test_values_that_python_shares_need_no_name() -> None:
    text = """
        class Told:
            def row(self, row, out):
                self.v = [row.n, 7, "", "a", b"", b"a", (), None, True]
        """
    data, shared = told(declared(text), {"n": 7})
    assert data is not None
    assert not any(value in ("", "a", b"", b"a", (), 7) for value in shared.objects.values())


def test_a_state_of_another_class_is_not_read() -> None:
    text = """
        class Told:
            def row(self, row, out):
                self.v = "<constant>"
        """
    data, shared = told(declared(text), {})
    assert data is not None
    assert read(data, shared) is not None
    assert read(data, Shared(declared(text.replace("<constant>", "<other>")))) is None


def test_constants_have_the_same_names_in_another_process() -> None:
    text = """
        import math
        from datetime import datetime

        MISSING, TABLE = "<missing>", {"a": ("b", 1.5)}

        class Base:
            kinds = ("x", "y")

        class Told(Base):
            def row(self, row, out, at=datetime.min):
                self.v = [MISSING, TABLE["a"], self.kinds, at, math.nan, "idle"]
        """
    data, _ = told(declared(text), {})
    assert data is not None
    written = cloudpickle.dumps(declared(text))
    program = (
        "import sys, pickle; from freshline.keyed.state import Shared, instance_of, read\n"
        "make, data = pickle.load(sys.stdin.buffer)\n"
        "make = pickle.loads(make); kept = read(data, Shared(make))\n"
        "print(instance_of(make, kept).v)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps((written, data)), capture_output=True, check=True
    )
    assert found.stdout.decode().startswith("['<missing>', ('b', 1.5), ('x', 'y'), datetime.datetime(1, 1, 1")


@pytest.mark.parametrize("held", ["row, vars(row)", "vars(row), row"])
def test_the_dictionary_of_a_row_beside_the_row_has_its_key_replayed(held: str) -> None:
    text = f"""
        class Told:
            def row(self, row, out):
                self.held = {held}
        """
    assert told(declared(text), {"n": 1})[0] is None
    assert told(declared(text.replace("vars(row)", "dict(vars(row))")), {"n": 1})[0] is not None


# -- how much is kept


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(2**25), lambda: bytes(2**25), lambda: "a" * 2**25,
        lambda: "é" * 2**24, lambda: [0] * 2**20, lambda: 1 << 2**28, lambda: Decimal("1" * 2**22),
        lambda: Counter(range(2**17)), lambda: [bytearray(2**15), bytearray(2**25)],
        lambda: [[bytearray(2**15)] for _ in range(500)],
    ],
)  # fmt: skip
def test_a_large_state_takes_no_memory_to_be_found_large(make: Callable[[], Any]) -> None:
    class Holds:
        def row(self, row: Any, out: Out) -> None:
            self.held = row.value

    shared = Shared(Holds)
    replay = Replay(Holds, SAID, {"k": "a"}, None, has_timer=False, file=__file__)
    replay.row(Row({"value": make()}), None)
    tracemalloc.start()
    try:
        assert keep(replay, ("a",), (1,), shared) is None
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()
