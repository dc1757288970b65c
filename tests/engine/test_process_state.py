"""A class goes on from the state of its keys, and the tables are those that a replay of all rows gives."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from freshline.strategies.keys import process as by_process
from freshline.testing import Crash, Lab
from tests.engine.conftest import error_of
from tests.engine.test_process import (
    EVENTS,
    TAKEOVER,
    Bag,
    declare,
    drawn,
    event,
    land,
    shown,
    takeovers,
)

pytestmark = pytest.mark.slow

# Puts out each row with how many there were before it, and keeps a set of what it has seen.
COUNTED = """
    import freshline


    @freshline.process(
        reads="{reads}", keys="{key}", order=("{order}", "{value}"), columns="{columns}", {more}
    )
    class Counted:
        def __init__(self):
            self.seen: dict[int, int] = {{}}

        def row(self, row, out):
            self.seen[row["{value}"]] = len(self.seen)
            out.emit({emitted})
"""


def counted(**told: str) -> str:
    given = {"reads": "act", "key": "customer", "order": "ts", "value": "id", "more": ""}
    given |= {"columns": "customer STRING, id BIGINT, n INT", "emitted": "row.customer, row.id, len(self.seen)"}
    return COUNTED.format(**{**given, **told})


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of replayed keys of each refresh that replayed any."""
    found: list[int] = []
    right = by_process._replay

    def noted(process: Any, keys: Any) -> Any:
        found.append(keys.count)
        return right(process, keys)

    monkeypatch.setattr(by_process, "_replay", noted)
    return found


def expected_counts(rows: list[Any]) -> Bag:
    found: Bag = Counter()
    for customer in {row["customer"] for row in rows}:
        own = sorted((row for row in rows if row["customer"] == customer), key=lambda row: (row["ts"], row["id"]))
        for number, row in enumerate(own, 1):
            found[customer, row["id"], number] += 1
    return found


@pytest.mark.long
def test_rows_at_the_end_are_added_and_only_keys_of_late_ones_are_replayed(python_lab: Lab, replays: list[int]) -> None:
    lab = python_lab
    lab.files("act", EVENTS, primary_key=["id"])
    declare(lab, "counted", counted(more='primary_key=["customer", "id"]'))
    rows: list[Any] = []
    folder = lab.settings.state / "keys" / "counted"

    def batch(*events: Any) -> None:
        rows.extend(events)
        land(lab, len(rows), events)
        result = lab.refresh("counted")
        assert result.error is None, result.error
        assert shown(lab, "counted") == expected_counts(rows)

    batch(*[event(number, f"c{number % 40}", "x", number) for number in range(200)])
    for number in range(6):
        # The last customer is new each time.
        start = 1000 + 10 * number
        batch(
            *[event(start + each, f"c{each}", "x", start + each) for each in range(4)],
            event(start + 9, f"n{number}", "x", 0),
        )
    assert replays == []
    # As many layers as there are powers of two at most, and no files of before.
    said = json.loads((folder / "of.json").read_text())
    named = {layer["name"] for each in said for layer in each["layers"]}
    assert len(said[0]["layers"]) <= 4
    assert {each.name for each in folder.iterdir()} == {*named, "of.json"}
    assert min(layer["rows"] for layer in said[0]["layers"]) < 40
    batch(event(2000, "c1", "x", 5), event(2001, "c2", "x", 3000), event(2002, "c3", "x", 1013 - 10))
    assert replays == [2]
    # A tie with the last row is decided by its id, and is behind it or not.
    batch(event(2003, "c2", "x", 3000), event(1999, "c2", "x", 3000))
    batch(event(2004, "c2", "x", 3000))
    assert replays == [2, 1]
    assert lab.verify("counted").equal


@pytest.mark.long
def test_a_primary_key_of_an_old_row_is_found_when_a_key_goes_on(python_lab: Lab, replays: list[int]) -> None:
    lab = python_lab
    lab.source("ev", "k STRING, n INT, v INT")
    told = {"reads": "ev", "key": "k", "order": "n", "value": "v"}
    own = counted(**told, columns="k STRING, v INT", emitted="row.k, row.v", more='primary_key=["k", "v"]')
    other = counted(**told, columns="k STRING, v INT", emitted="row.k, row.v", more='primary_key="v"')
    for name, text in (("own", own), ("other", other)):
        declare(lab, name, text)
    lab.sql("INSERT INTO ev VALUES ('a', 1, 1), ('b', 1, 2)")
    for name in ("own", "other"):
        assert lab.refresh(name).error is None
    lab.sql("INSERT INTO ev VALUES ('a', 2, 3), ('b', 2, 4)")
    for name in ("own", "other"):
        assert lab.refresh(name).rows_out == 2
    lab.sql("INSERT INTO ev VALUES ('a', 3, 2)")
    assert lab.refresh("own").error is None
    assert error_of(lab, "other").code == "DUPLICATE_KEY"
    lab.sql("INSERT INTO ev VALUES ('b', 4, 4)")
    assert error_of(lab, "own").code == "DUPLICATE_KEY"
    assert replays == []
    # Deletes and updates replay their keys, beside one that goes on.
    lab.sql("DELETE FROM ev WHERE n > 2")
    lab.sql("UPDATE ev SET v = 7 WHERE v = 1")
    lab.sql("INSERT INTO ev VALUES ('b', 5, 9), ('c', 1, 8)")
    for name in ("own", "other"):
        assert lab.refresh(name).error is None
        assert shown(lab, name) == Counter([("a", 7), ("b", 2), ("a", 3), ("b", 4), ("b", 9), ("c", 8)])
        assert lab.verify(name).equal
    assert replays == [1, 1]


@pytest.mark.long
@pytest.mark.parametrize("more", ["", 'partitioned_by="k",'])
def test_a_row_that_moves_from_a_replayed_key_to_one_that_goes_on_stays(
    python_lab: Lab, replays: list[int], more: str
) -> None:
    lab = python_lab
    lab.source("ev", "k STRING, n INT, v INT")
    told = {"reads": "ev", "key": "k", "order": "n", "value": "v", "more": f'primary_key="v", {more}'}
    declare(lab, "moved", counted(**told, columns="k STRING, v INT", emitted="row.k, row.v"))
    lab.sql("INSERT INTO ev VALUES ('a', 1, 1), ('a', 2, 2), ('b', 1, 3)")
    assert lab.refresh("moved").error is None
    lab.sql("UPDATE ev SET k = 'b', n = 9 WHERE v = 2")
    result = lab.refresh("moved")
    assert (result.error, result.strategy, replays) == (None, "keys", [1])
    assert shown(lab, "moved") == Counter([("a", 1), ("b", 2), ("b", 3)])
    # Beside such a move, a row whose primary key stays where it is is still found.
    lab.sql("UPDATE ev SET k = 'c' WHERE v = 1")
    lab.sql("INSERT INTO ev VALUES ('d', 1, 3)")
    assert error_of(lab, "moved").code == "DUPLICATE_KEY"
    lab.sql("DELETE FROM ev WHERE k = 'd'")
    assert lab.refresh("moved").error is None
    assert shown(lab, "moved") == Counter([("c", 1), ("b", 2), ("b", 3)])
    assert lab.verify("moved").equal


def damages(folder: Path) -> list[Callable[[], object]]:
    """Damages to the files that are kept of a table; the last two leave them as they are."""

    def each_file(does: Callable[[Path], object]) -> Callable[[], object]:
        return lambda: [does(file) for file in folder.glob("*/part-*")]

    def flip(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)

    return [
        each_file(lambda file: file.write_bytes(file.read_bytes()[:-50])),
        each_file(flip),
        each_file(lambda file: file.unlink()),
        lambda: (folder / "of.json").write_text('[{"of": 5}]'),
        lambda: (folder / "of.json").write_bytes(b"\xff"),
        lambda: shutil.rmtree(folder.parent),
        lambda: (folder / "left.behind").mkdir(),
        lambda: None,
    ]


@pytest.mark.long
def test_whatever_happens_to_what_is_kept_the_tables_are_right(python_lab: Lab, replays: list[int]) -> None:
    lab = python_lab
    tables = lab.runtime.python_tables
    lab.files("act", EVENTS, primary_key=["id"])
    declare(lab, "takeover", TAKEOVER)
    folder = lab.settings.state / "keys" / "takeover"
    does = damages(folder)
    chance, batches, number, old = random.Random(5), [], 0, None
    for now in range(2 + len(does)):
        batch = []
        for _ in range(5):
            number += 1
            kind = chance.choice(("fail", "fail", "transfer"))
            batch.append(event(number, chance.choice(("a", "b", None)), kind, 3 * now + chance.random()))
        batches.append(batch)
    for now, batch in enumerate(batches):
        before = len(replays)
        land(lab, now, batch)
        if now > 1:
            does[now - 2]()
            lab.restart(lose_control_store=now % 2 == 0)
            lab.runtime.python_tables = tables
        for name, expected in zip(("takeover", "refused"), takeovers(batches[: now + 1]), strict=True):
            assert lab.refresh(name).error is None
            assert shown(lab, name) == expected, (now, name)
        if 1 < now < 8:
            assert len(replays) > before, now
        if now == len(batches) - 4:
            old = {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    # The files that were kept three refreshes ago belong to other rows.
    assert old is not None
    shutil.rmtree(folder)
    for file, data in old.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(data)
    last = [event(900, "a", "fail", 40), event(901, "a", "transfer", 41)]
    land(lab, 99, last)
    assert lab.refresh("takeover").error is None
    assert shown(lab, "takeover") == takeovers([*batches, last])[0]
    assert lab.verify("takeover").equal
    assert lab.verify("refused").equal


POINTS = ("table-pinned", "table-before-commit", "table-writing", "table-keys-kept", "table-after-commit")


@pytest.mark.long
def test_a_refresh_that_is_stopped_anywhere_leaves_no_row_twice_and_none_out(
    python_lab: Lab, replays: list[int]
) -> None:
    lab = python_lab
    tables = lab.runtime.python_tables
    lab.files("act", EVENTS, primary_key=["id"])
    declare(lab, "takeover", TAKEOVER)
    batches = drawn(23, 2 + len(POINTS))
    for now, batch in enumerate(batches):
        land(lab, now, batch)
        point = POINTS[(now - 2) % len(POINTS)]
        for name, expected in zip(("takeover", "refused"), takeovers(batches[: now + 1]), strict=True):
            if now > 1:
                with contextlib.suppress(Crash), lab.crash_at(point):
                    lab.refresh(name)
                lab.restart(lose_control_store=now > len(POINTS))
                lab.runtime.python_tables = tables
            assert lab.refresh(name).error is None
            assert shown(lab, name) == expected, (now, name, point)
    assert lab.verify("takeover").equal
    assert lab.verify("refused").equal


@pytest.mark.long
def test_a_stop_before_the_commit_does_not_lose_what_is_kept(python_lab: Lab, replays: list[int]) -> None:
    lab = python_lab
    lab.files("act", EVENTS, primary_key=["id"])
    declare(lab, "counted", counted())
    rows: list[Any] = []
    for now in range(3):
        rows += [event(10 * now + each, "abc"[each], "x", 10 * now + each) for each in range(3)]
        land(lab, now, rows[-3:])
        if now:
            with pytest.raises(Crash), lab.crash_at("table-keys-kept"):
                lab.refresh("counted")
        assert lab.refresh("counted").error is None
        assert shown(lab, "counted") == expected_counts(rows)
    assert replays == []


@pytest.mark.long
def test_state_that_would_not_come_back_as_it_is_is_replayed(python_lab: Lab, replays: list[int]) -> None:
    lab = python_lab
    lab.source("ev", "k STRING, n INT")
    declare(
        lab,
        "shared",
        """
        import freshline

        LAST = {}


        @freshline.process(reads="ev", keys="k", order="n", columns="k STRING, n INT, sum INT")
        class Shared:
            total: int = 0
            odd: list[list[int]]

            def row(self, row, out):
                if row.k == "kept":
                    self.total += row.n
                elif row.k == "odd":
                    self.total += row.n
                    self.odd = [[]] * 2
                out.emit(row.k, row.n, self.total)
        """,
    )
    lab.sql("INSERT INTO ev VALUES ('kept', 1), ('odd', 1), ('other', 1)")
    assert lab.refresh("shared").error is None
    lab.sql("INSERT INTO ev VALUES ('kept', 2), ('odd', 2), ('other', 2)")
    assert lab.refresh("shared").error is None
    assert replays == [1]
    expected = [("kept", 1, 1), ("kept", 2, 3), ("odd", 1, 1), ("odd", 2, 3), ("other", 1, 0), ("other", 2, 0)]
    assert shown(lab, "shared") == Counter(expected)
    text = (lab.settings.declarations / "shared.py").read_text()
    # The same class, which now leaves something in its module: no key of it has a state.
    declare(lab, "shared", text.replace("out.emit", "LAST[row.k] = row.n\n        out.emit"))
    assert lab.refresh("shared", full=True).error is None
    files = list((lab.settings.state / "keys" / "shared").glob("*/part-*"))
    assert files
    states = [row["_freshline_state"] for file in files for row in pq.read_table(file).to_pylist()]
    assert states == [None] * 3
    lab.sql("INSERT INTO ev VALUES ('kept', 3)")
    assert lab.refresh("shared").error is None
    assert replays == [1, 1]
    assert lab.verify("shared").equal


@pytest.mark.long
def test_a_class_reads_tables_that_change_and_tables_that_are_final(python_lab: Lab, replays: list[int]) -> None:
    lab = python_lab
    lab.files("act", EVENTS, primary_key=["id"])
    group = "count(*) AS n FROM TUMBLE(TABLE act, DESCRIPTOR(ts), INTERVAL '5' MINUTES) GROUP BY window_start, customer"
    select = f"SELECT window_start, window_end, customer, {group.replace('window_start,', 'window_start, window_end,')}"
    lab.declare(f"CREATE MATERIALIZED TABLE final FRESHNESS = INTERVAL '1' HOUR EMIT FINAL AS {select}")
    lab.declare(f"CREATE MATERIALIZED TABLE changing FRESHNESS = INTERVAL '1' HOUR AS {select}")
    text = """
        from datetime import timedelta

        import freshline


        @freshline.process(
            reads="{reads}", keys="customer", order="window_end", columns="customer STRING, at TIMESTAMP, sum BIGINT"
        )
        class Sums:
            sum: int = 0
            customer: str | None

            def row(self, row, out):
                self.sum += row.n
                self.customer = row.customer
                out.emit(row.customer, row.window_end, self.sum)
    """
    timer = """
                out.timer(row.window_end + timedelta(minutes=10))

            def timer(self, at, out):
                out.emit(self.customer, at, -1)
    """
    declare(lab, "of_changing", text.format(reads="changing"))
    declare(lab, "of_final", text.format(reads="final").rstrip() + timer)
    # The last rows close all windows before them, and have the timers of these run.
    batches = [*drawn(31, 2), [event(900, "a", "x", 100), event(901, "a", "x", 200)]]
    for now, batch in enumerate(batches):
        land(lab, now, batch)
        for name in ("final", "changing", "of_final", "of_changing"):
            result = lab.refresh(name)
            assert result.error is None, (name, result.error)
        for name in ("of_final", "of_changing"):
            assert lab.verify(name).equal, (now, name)
    assert {row["sum"] for row in lab.rows("of_final")} > {-1}
    assert lab.rows("of_changing")
    # Computed anew of another declaration, with rows that are gone, where nothing is kept that knows their key.
    query = select.replace("GROUP BY", "WHERE customer IS DISTINCT FROM 'a' GROUP BY")
    lab.declare(f"CREATE MATERIALIZED TABLE final FRESHNESS = INTERVAL '1' HOUR EMIT FINAL AS {query}")
    assert lab.refresh("final", full=True).error is None
    shutil.rmtree(lab.settings.state / "keys")
    result = lab.refresh("of_final", strategy="keys")
    assert (result.error, result.strategy) == (None, "keys")
    assert "a" not in {row["customer"] for row in lab.rows("of_final")}
    assert lab.verify("of_final").equal


def test_a_class_over_undeclared_columns_reports_those_that_do_not_serve(python_lab: Lab) -> None:
    lab = python_lab
    lab.files("ev", "id BIGINT, k STRING, ts TIMESTAMP_NTZ, WATERMARK FOR ts AS ts", primary_key=["id"])
    over = "count(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW)"
    lab.declare(
        f"CREATE MATERIALIZED TABLE final FRESHNESS = INTERVAL '1' HOUR EMIT FINAL AS SELECT k, ts, {over} AS n FROM ev"
    )
    text = """
        import freshline


        @freshline.table(freshness="1 hour")
        def made(final):
            return final
    """
    declare(lab, "made", text)
    timer = "\n\n        def timer(self, at, out):\n            pass\n"
    told = {"key": "k", "value": "n", "columns": "k STRING, n INT", "emitted": "row.k, 1"}
    declare(lab, "of_made", counted(**{**told, "reads": "made", "order": "nope"}))
    declare(lab, "of_final", counted(**{**told, "reads": "final"}).rstrip() + timer)
    lab.land("ev", "1.json", [{"id": n, "k": "a", "ts": f"2026-01-01T0{n}:00:00"} for n in range(3)])
    for name in ("final", "made"):
        assert lab.refresh(name).error is None
    for name, said in (("of_made", "order names nope"), ("of_final", "ts is TIMESTAMP_NTZ")):
        error = error_of(lab, name)
        assert (error.code, said in error.message) == ("PROCESS_KEY", True), error
        assert lab.receipt(name) is None


@pytest.mark.long
def test_texts_that_a_collation_finds_equal_come_in_one_order(collated_tables, python_lab: Lab) -> None:
    lab = python_lab
    lab.source("typed", "k INT, name STRING")
    query = "SELECT k, name COLLATE UTF8_LCASE AS name, 0 AS n FROM typed"
    lab.declare(f"CREATE MATERIALIZED TABLE ev FRESHNESS = INTERVAL '1' HOUR AS {query}")
    so_far = 'self.seen.setdefault("all", []).append(row.name) or "".join(self.seen["all"])'
    told = {"reads": "ev", "key": "k", "order": "name", "value": "n", "columns": "k INT, so_far STRING"}
    declare(lab, "t", counted(**told, emitted=f"row.k, {so_far}"))
    lab.sql("INSERT INTO typed VALUES (1, 'a'), (1, 'B'), (2, 'b')")
    lab.sql("INSERT INTO typed VALUES (2, 'B'), (1, 'b'), (1, 'A')")
    assert [lab.refresh(name).error for name in ("ev", "t")] == [None, None]
    assert shown(lab, "t") == Counter([(1, "A"), (1, "Aa"), (1, "AaB"), (1, "AaBb"), (2, "B"), (2, "Bb")])
