"""A class that is given the rows of one key after the other makes tables that equal a replay of all rows, always."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from textwrap import dedent
from typing import Any

import pytest

from freshline.errors import DeclarationErrors
from freshline.plan.project import open_project
from freshline.testing import Crash, Lab
from tests.engine.conftest import error_of
from tests.lanes import few_or_many, long_but

pytestmark = pytest.mark.slow

Event = Mapping[str, object]
Bag = Counter[tuple[object, ...]]
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EVENTS = "id BIGINT, customer STRING, kind STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2' MINUTE"

TAKEOVER = """
    from datetime import timedelta

    import freshline


    @freshline.process(
        reads="act",
        keys=["customer"],
        order=["ts", "id"],
        columns="customer STRING, at TIMESTAMP, fails INT",
        outputs={"refused": "id BIGINT, why STRING"},
    )
    class Takeover:
        def __init__(self):
            self.fails: int = 0
            self.calm: bool = False

        def row(self, row, out):
            if row.ts is None:
                out.emit(row.id, "no time", to="refused")
            elif row["kind"] == "fail":
                self.fails += 1
                out.timer(row.ts + timedelta(minutes=10))
            elif row.kind == "transfer" and self.fails >= 2:
                out.emit(row.customer, row.ts, fails=self.fails)
            elif row.kind == "transfer":
                out.emit(why="too early" if self.fails else None, id=row.id, to="refused")

        def timer(self, at, out):
            self.fails -= 1
            if self.fails == 0 and not self.calm:
                self.calm = True
                out.emit(None, f"calm at {at:%H:%M}", to="refused")
                out.timer(at - timedelta(days=1))
                self.fails = 1
"""


def declare(lab: Lab, name: str, text: str) -> None:
    file = lab.settings.declarations / f"{name}.py"
    file.write_text(dedent(text), encoding="utf-8")
    try:
        lab.runtime.graph = open_project(lab.settings)
    except DeclarationErrors:
        file.unlink()
        raise


def event(number: int, customer: str | None, kind: str, minutes: float | None) -> Event:
    at = None if minutes is None else (START + minutes * MINUTE).isoformat()
    return {"id": number, "customer": customer, "kind": kind, "ts": at}


def takeovers(batches: Sequence[Sequence[Event]]) -> tuple[Bag, Bag]:
    """By definition: timers and rows of each customer in one list, in order, timers up to the watermark only."""
    found: tuple[Bag, Bag] = (Counter(), Counter())
    rows = [row for batch in batches for row in batch]
    times = [datetime.fromisoformat(str(row["ts"])) for row in rows if row["ts"] is not None]
    watermark = max(times, default=START - timedelta(days=900)) - 2 * MINUTE
    of: dict[object, list[Event]] = defaultdict(list)
    for row in rows:
        of[row["customer"]].append(row)
    for customer, own in of.items():
        fails, calm = 0, False
        timers: list[datetime] = []
        for row in (each for each in own if each["ts"] is None):
            found[1][(row["id"], "no time")] += 1
        timed = sorted(
            (datetime.fromisoformat(str(row["ts"])), int(str(row["id"])), row) for row in own if row["ts"] is not None
        )
        for at, number, row in [*timed, (datetime.max.replace(tzinfo=UTC), 0, {"kind": "end"})]:
            while timers and min(timers) < at and min(timers) <= watermark:
                due = min(timers)
                timers.remove(due)
                fails -= 1
                if fails == 0 and not calm:
                    calm = True
                    found[1][(None, f"calm at {due:%H:%M}")] += 1
                    timers.append(due - timedelta(days=1))
                    fails = 1
            if row["kind"] == "fail":
                fails += 1
                timers.append(at + 10 * MINUTE)
            elif row["kind"] == "transfer" and fails >= 2:
                found[0][(customer, at, fails)] += 1
            elif row["kind"] == "transfer":
                found[1][(number, "too early" if fails else None)] += 1
    return found


def shown(lab: Lab, name: str) -> Bag:
    rows = [tuple(row.values()) for row in lab.rows(name)]
    return Counter(tuple(each.astimezone(UTC) if isinstance(each, datetime) else each for each in row) for row in rows)


def land(lab: Lab, number: int, batch: Sequence[Event]) -> None:
    lab.land("act", f"{number:03}.json", batch)
    assert lab.refresh("act").error is None
    lab.clock.advance(seconds=1)


def drawn(seed: int, count: int) -> list[list[Event]]:
    """Rows that go on in time, some late by much, some at one time, some exactly ten minutes behind another."""
    chance, batches, number, now = random.Random(seed), [], 0, 0.0
    for _ in range(count):
        batch = []
        for _ in range(chance.randint(1, 8)):
            number += 1
            now += chance.choice((0, 0, 1, 3))
            back = chance.choice((0, 0, 0, 1, 10, 25))
            minutes = None if chance.random() < 0.06 else now - back
            kind = chance.choice(("fail", "fail", "transfer", "other"))
            batch.append(event(number, chance.choice(("a", "b", None)), kind, minutes))
        batches.append(batch)
    return batches


@pytest.mark.parametrize("count", few_or_many(3, 9))
def test_every_version_equals_a_replay_of_all_rows(python_lab: Lab, count: int) -> None:
    lab = python_lab
    lab.files("act", EVENTS, primary_key=["id"])
    declare(lab, "takeover", TAKEOVER)
    batches = drawn(3, count)
    strategies = []
    for number in range(len(batches)):
        land(lab, number, batches[number])
        for name, expected in zip(("takeover", "refused"), takeovers(batches[: number + 1]), strict=True):
            if number == count // 2 + 1:
                # Whatever is kept beside the tables may go.
                shutil.rmtree(lab.settings.state / "keys")
            result = lab.refresh(name)
            assert result.error is None, result.error
            assert shown(lab, name) == expected, (number, name)
            strategies.append(result.strategy)
    assert set(strategies[2:]) <= {"keys", "noop"}, strategies
    assert lab.verify("takeover").equal
    assert lab.verify("refused").equal


@pytest.mark.long
def test_crashes_restarts_and_restores_give_the_same_tables(python_lab: Lab) -> None:
    lab = python_lab
    tables = lab.runtime.python_tables
    lab.files("act", EVENTS, primary_key=["id"])
    declare(lab, "takeover", TAKEOVER)
    batches = drawn(11, 5)
    for number, point in enumerate(("table-keys-kept", "table-writing", "table-after-commit", "table-before-commit")):
        land(lab, number, batches[number])
        for name in ("takeover", "refused"):
            # A refresh that finds nothing to write passes some of the points.
            with contextlib.suppress(Crash), lab.crash_at(point):
                lab.refresh(name)
            if number == 1:
                lab.restart(lose_control_store=True)
                lab.runtime.python_tables = tables
        if number == 2:
            lab.create_savepoint("calm")
    expected = takeovers(batches[:4])
    for name, rows in zip(("takeover", "refused"), expected, strict=True):
        assert lab.refresh(name).error is None
        assert shown(lab, name) == rows, name
    lab.restore_savepoint("calm")
    land(lab, 4, batches[4])
    for name, rows in zip(("takeover", "refused"), takeovers(batches), strict=True):
        assert lab.refresh(name).error is None
        assert shown(lab, name) == rows, name
        assert lab.verify(name).equal


@pytest.mark.long
def test_only_the_keys_whose_timers_are_due_are_replayed(python_lab: Lab) -> None:
    lab = python_lab
    lab.files("act", EVENTS, primary_key=["id"])
    declare(
        lab,
        "silence",
        """
        from datetime import datetime, timedelta

        import freshline

        LONG = timedelta(minutes=5)


        @freshline.process(
            reads="act", keys="customer", order=("ts", "id"), columns="customer STRING, since TIMESTAMP",
            primary_key="customer",
        )
        class Silence:
            last: datetime
            customer: str | None

            def row(self, row, out):
                self.last, self.customer = row.ts, row.customer
                out.timer(row.ts + LONG)

            def timer(self, at, out):
                if at - self.last >= LONG:
                    out.emit(self.customer, since=self.last)
        """,
    )
    land(lab, 0, [event(1, "a", "x", 0), event(2, "b", "x", 4)])
    assert lab.refresh("silence").rows_out == 0
    # The watermark comes to 5 minutes exactly: that of a is due, that of b is not.
    land(lab, 1, [event(3, "c", "x", 7)])
    result = lab.refresh("silence")
    assert (result.strategy, result.error) == ("keys", None)
    assert [row["customer"] for row in lab.rows("silence")] == ["a"]
    assert lab.refresh("silence").strategy == "noop"
    explained = lab.explain("silence")
    assert explained.strategies == {"keys"}
    assert "timers" in str(explained)
    # A late row takes the silence back, and the watermark brings it again.
    land(lab, 2, [event(4, "a", "x", 1)])
    assert lab.refresh("silence").strategy == "keys"
    assert lab.rows("silence") == []
    land(lab, 3, [event(5, "c", "x", 8)])
    assert lab.refresh("silence").strategy == "keys"
    assert [row["since"].astimezone(UTC) for row in lab.rows("silence")] == [START + MINUTE]
    assert lab.verify("silence").equal


@pytest.mark.long
def test_updates_and_deletes_of_a_table_replay_their_keys(python_lab: Lab) -> None:
    lab = python_lab
    lab.source("visit", "id BIGINT, `who-is` STRING, Nr INT, price DECIMAL(6,2), tags MAP<STRING, INT>")
    declare(
        lab,
        "rising",
        """
        from decimal import Decimal

        import freshline


        @freshline.process(
            reads="visit", keys=["WHO-is"], order=["nr"], columns="id BIGINT, least DECIMAL(6,2), n DOUBLE",
            constraints={"cheap": ("least < 100", "DROP ROW")},
        )
        class Rising:
            least: Decimal | None = None

            def row(self, row, out):
                if row.price is not None and (self.least is None or row.price > self.least):
                    self.least = row.price
                    out.emit(None if row.Nr is None else 7, self.least, float("nan"))
        """,
    )

    def expected() -> Bag:
        rows: dict[object, list[dict[str, Any]]] = defaultdict(list)
        for row in lab.sql("SELECT id, `who-is` AS who, Nr AS nr, price FROM visit"):
            rows[row["who"]].append(row)
        found: Bag = Counter()
        for own in rows.values():
            least = None
            for row in sorted(own, key=lambda each: (each["nr"] is not None, each["nr"] or 0, each["id"])):
                if row["price"] is not None and (least is None or row["price"] > least):
                    least = row["price"]
                    if least < 100:
                        found[(None if row["nr"] is None else 7, least)] += 1
        return found

    lab.sql(
        "INSERT INTO visit VALUES (1, 'a', 1, 5, NULL), (2, 'a', 2, 7, map('x', 1)), (3, NULL, NULL, 5, NULL), "
        "(4, 'b', 1, 5, NULL), (5, 'b', 2, 500, NULL)"
    )
    assert lab.refresh("rising").error is None
    for statement in (
        "UPDATE visit SET price = 6 WHERE id = 1",
        "DELETE FROM visit WHERE id = 2",
        "INSERT INTO visit VALUES (6, NULL, NULL, 9, NULL), (7, 'b', 1, 5, NULL)",
        "UPDATE visit SET `who-is` = 'c' WHERE `who-is` IS NULL",
        "DELETE FROM visit",
    ):
        lab.sql(statement)
        result = lab.refresh("rising")
        # Where rows only change their key, none of the table does.
        assert (result.error, result.strategy) == (None, "noop" if "'c'" in statement else "keys"), result.reason
        assert Counter((row["id"], row["least"]) for row in lab.rows("rising")) == expected(), statement
        assert lab.verify("rising").equal


@pytest.mark.long
def test_an_empty_text_and_null_are_two_keys_in_a_partition_too(python_lab: Lab) -> None:
    lab = python_lab
    lab.source("ev", "k STRING, n INT")
    lab.sql("INSERT INTO ev VALUES ('', 1), ('a', 1), (NULL, 5)")
    declare(
        lab,
        "total",
        """
        import freshline


        @freshline.process(
            reads="ev", keys="k", order="n", columns="k STRING, n INT", partitioned_by="k", outputs={"last": "n INT"}
        )
        class Total:
            def row(self, row, out):
                out.emit(row.k, row.n)
                out.emit(row.n, to="last")
        """,
    )
    declare(
        lab,
        "summed",
        """
        import freshline
        from pyspark.sql import functions as F


        @freshline.table(keys={"ev": "k"}, partitioned_by="k")
        def summed(ev):
            return ev.groupBy("k").agg(F.sum("n").alias("n"))
        """,
    )
    names = ("total", "last", "summed")
    assert [lab.refresh(name).error for name in names] == [None] * 3
    # A late row of NULL replays its key, which is that of the empty text too. A row at the end is only added.
    for statement, strategy, of_function in (
        ("('a', 3)", "keys", "keys"),
        ("(NULL, 2)", "full", "full"),
        ("('', 2)", "keys", "full"),
    ):
        lab.sql(f"INSERT INTO ev VALUES {statement}")
        found = [lab.refresh(name) for name in names]
        # A refresh of the main table refreshes its output too.
        assert [each.strategy for each in found] == [strategy, "noop", of_function], [each.reason for each in found]
        assert all(lab.verify(name).equal for name in names)


COUNTED = """
    import freshline


    @freshline.process(reads="{reads}", keys="k", order="n", columns="{columns}")
    class Counted:
        seen: int = 0

        def row(self, row, out):
            self.seen += 1
            out.emit({emitted})
"""


@pytest.mark.long
def test_a_key_with_a_nan_or_zeros_of_both_signs_inside_has_one_instance(python_lab: Lab) -> None:
    lab = python_lab
    nan, other = "named_struct('x', double('NaN'), 'y', array({}))", "named_struct('x', 1D, 'y', array({}))"
    kind = "STRUCT<x: DOUBLE, y: ARRAY<FLOAT>>"
    lab.source("ev", f"k {kind}, n INT")
    told = {"reads": "ev", "columns": f"k {kind}, n INT, seen INT", "emitted": "row.k, row.n, self.seen"}
    declare(lab, "own", COUNTED.format(**told))
    declare(lab, "values", COUNTED.format(**{**told, "columns": "n INT, seen INT", "emitted": "row.n, self.seen"}))
    zeros = [other.format(f"float('{zero}')") for zero in ("0.0", "-0.0")]
    for first in (1, 4):
        keys = (nan.format("float('NaN')"), *zeros)
        lab.sql("INSERT INTO ev VALUES " + ", ".join(f"({key}, {first + n})" for n, key in enumerate(keys)))
        for name in ("own", "values"):
            assert lab.refresh(name).error is None
        many = (first + 2) // 3
        expected = {1 + 3 * each: 1 + each for each in range(many)}
        expected |= {n: place for place, n in enumerate((n for n in range(1, 3 * many + 1) if n % 3 != 1), 1)}
        for name in ("own", "values"):
            assert {row["n"]: row["seen"] for row in lab.rows(name)} == expected, name
            assert lab.verify(name).equal


@pytest.mark.long
def test_a_key_with_a_collation_is_refused_and_one_of_plain_texts_is_right(collated_tables, python_lab: Lab) -> None:
    lab = python_lab
    lab.source("ev", "k STRING, n INT")
    lab.sql("INSERT INTO ev VALUES ('a', 1), ('A', 2), ('a', 3)")
    header = "FRESHNESS = INTERVAL '1' HOUR"
    lab.declare(f"CREATE MATERIALIZED TABLE loose {header} AS SELECT k COLLATE UTF8_LCASE AS k, n FROM ev")
    lab.declare(f"CREATE MATERIALIZED TABLE plain {header} AS SELECT lower(k) COLLATE UTF8_BINARY AS k, n FROM loose")
    for name in ("loose", "plain"):
        assert lab.refresh(name).error is None
        declare(lab, f"of_{name}", COUNTED.format(reads=name, columns="n INT, seen INT", emitted="row.n, self.seen"))
    error = error_of(lab, "of_loose")
    assert (error.code, error.where) == ("PROCESS_KEY", "assets/of_loose.py:5")
    assert "STRING COLLATE UTF8_LCASE" in error.message
    assert lab.receipt("of_loose") is None
    assert lab.refresh("of_plain").error is None
    assert shown(lab, "of_plain") == Counter([(1, 1), (2, 2), (3, 3)])


@pytest.mark.long
def test_a_column_of_a_narrower_type_than_its_key_is_refused(python_lab: Lab) -> None:
    lab = python_lab
    lab.source("ev", "k DOUBLE, n INT")
    lab.sql("INSERT INTO ev VALUES (0.1, 1)")
    lab.declare("CREATE MATERIALIZED TABLE read FRESHNESS = INTERVAL '1' HOUR AS SELECT k, n FROM ev")
    assert lab.refresh("read").error is None
    told = {"columns": "k FLOAT, n INT", "emitted": "row.k, row.n"}
    with pytest.raises(DeclarationErrors, match="k, which is DOUBLE, and columns has k FLOAT"):
        declare(lab, "t", COUNTED.format(reads="ev", **told))
    # The types of a table are known by its rows only.
    declare(lab, "t", COUNTED.format(reads="read", **told))
    assert error_of(lab, "t").code == "PROCESS_KEY"
    assert lab.receipt("t") is None
    declare(lab, "t", COUNTED.format(reads="read", **told).replace("FLOAT", "DOUBLE"))
    for n in (2, 3):
        assert lab.refresh("t").error is None
        lab.sql(f"INSERT INTO ev VALUES (0.1, {n})")
        assert lab.refresh("read").error is None
    assert lab.refresh("t").strategy == "keys"
    assert [row["n"] for row in lab.rows("t")] == [1, 2, 3]


# Mistakes that a class may make.
WRONG = [
    ("1 // row.n", "PROCESS_FAILED", "`row` raises ZeroDivisionError"),
    ("out.emit(row.k, '5')", "PROCESS_FAILED", "puts out n = '5': it is a str, and has to be an int"),
    ("out.emit(row.k)", "PROCESS_FAILED", "puts out 1 values"),
    ("out.emit('other', 1)", "PROCESS_FAILED", "not that of the key"),
    ("out.emit(row.k, 1, to=str(row.n))", "PROCESS_FAILED", "Outputs are: none"),
    ("out.timer(row.n)", "PROCESS_FAILED", "no method `timer"),
    ("setattr(self, 'kept', row.n)", "PROCESS_FAILED", "keeps self.kept = 0 for the key {k: 'c'}: the class does not"),
    ("raise SystemExit(row.k)", "PROCESS_FAILED", "raises SystemExit: c"),
    ("raise ValueError('No space left on device')", "PROCESS_FAILED", "raises ValueError: No space left"),
    ("import os; os._exit(1)", "PYTHON_LIMIT", "ended its process"),
    ("[None for _ in iter(int, 1)]", "PYTHON_LIMIT", "takes longer than 2 seconds for the key {k: 'c'}"),
    ("' ' * 10**12", "PYTHON_LIMIT", "takes more than"),
]


@pytest.mark.parametrize(("body", "code", "said"), long_but([WRONG[place] for place in (0, 1, 3, 6, 7, 9, 10)], WRONG))
def test_a_class_that_fails_fails_its_own_table_with_the_key(python_lab: Lab, body: str, code: str, said: str) -> None:
    lab = python_lab
    lab.source("ev", "k STRING, n INT")
    lab.sql("INSERT INTO ev VALUES ('c', 0)")
    declare(
        lab,
        "failing",
        f"""
        import freshline


        @freshline.process(
            reads="ev", keys=["k"], order=["n"], columns="k STRING, n INT", options={{"python.time-limit": "2 seconds"}}
        )
        class Failing:
            def row(self, row, out):
                {body}
        """,
    )
    error = error_of(lab, "failing")
    assert error.code == code, error
    assert said in error.message
    assert "'c'" in error.message or "ended its process" in said
    lab.declare("CREATE MATERIALIZED TABLE plain FRESHNESS = INTERVAL '1' HOUR AS SELECT k FROM ev")
    assert lab.refresh("plain").error is None
