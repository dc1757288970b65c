"""The scoreboard of peers: what lands, the right answers, how figures become lines, and a run with two peers."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from benchmarks.measure import Cost
from benchmarks.peers import tpch
from benchmarks.peers.answers import TABLES, Answers
from benchmarks.peers.catalog import FRESHLINE, PEERS, TPCH_PEERS, Peer, tpch_peer
from benchmarks.peers.events import Sizes, changes, events, land
from benchmarks.peers.main import compare_peers, main
from benchmarks.peers.run import Run, run_peer
from benchmarks.peers.scoreboard import FAR, Line, Spread, figures_of, steps_of, table
from benchmarks.peers.tpch import MEASURED
from benchmarks.peers.workloads import event_workload, tpch_workload
from benchmarks.tpch_tables.data import generate
from benchmarks.tpch_tables.declarations import sources_of
from benchmarks.tpch_tables.shapes import Altered, Shape, shape_named

pytestmark = pytest.mark.seconds

SIZES = Sizes(events=2000, customers=200, new_events=1000, new_changes=200)

PREIMAGE, POSTIMAGE = "update_preimage", "update_postimage"


def landed(folder: Path, steps: int) -> Path:
    for step in range(steps):
        land(folder, SIZES, step)
    return folder


def records(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in sorted(folder.glob("*.json")) for line in file.read_text().splitlines()]


def test_a_step_lands_the_same_lines_again_and_other_lines_by_another_seed():
    assert list(events(SIZES, 1)) == list(events(SIZES, 1))
    assert list(events(SIZES, 1)) != list(events(SIZES, 1, seed=1))
    assert list(changes(SIZES, 1)) == list(changes(SIZES, 1))


def test_one_event_of_a_hundred_comes_twice_at_first_and_three_later():
    large = Sizes(events=20_000, customers=2000, new_events=20_000)

    first, later = list(events(large, 0)), list(events(large, 1))

    assert 150 < len(first) - 20_000 < 250
    assert 500 < len(later) - 20_000 < 700
    assert len(set(first)) == 20_000
    # Half of what comes again at an increment is from before it.
    assert 200 < len(set(later) & set(first)) < 400


def test_a_tenth_of_later_events_is_older_than_all_before():
    large = Sizes(events=20_000, customers=2000, new_events=20_000)
    earliest = min(json.loads(line)["happened_at"] for line in events(large, 0))

    older = sum(json.loads(line)["happened_at"] < earliest for line in set(events(large, 1)) - set(events(large, 0)))

    assert 1800 < older < 2200


def test_of_the_changes_some_delete_and_some_are_out_of_date():
    large = Sizes(events=0, customers=2000, new_changes=20_000)
    earliest = min(json.loads(line)["changed_at"] for line in changes(Sizes(0, 2000), 0) if '"op": "i"' in line)

    found = [json.loads(line) for line in changes(large, 1)]

    assert 2800 < Counter(change["op"] for change in found)["d"] < 3200
    assert 1800 < sum(change["changed_at"] < earliest for change in found) < 2200


def test_the_answers_of_duckdb_are_those_of_plain_python(tmp_path):
    landing = landed(tmp_path, 3)
    happened = {record["event_id"]: record for record in records(landing / "event")}
    changed = records(landing / "change")
    first: dict[object, dict[str, object]] = {}
    for event in sorted(happened.values(), key=lambda event: (event["happened_at"], event["event_id"])):
        first.setdefault(event["customer_id"], event)
    last = {
        change["customer_id"]: change for change in sorted(changed, key=lambda c: (c["changed_at"], c["change_id"]))
    }
    customers = {name: change for name, change in last.items() if change["op"] != "d"}
    counts: Counter[tuple[object, object]] = Counter()
    for event in happened.values():
        segment = customers.get(event["customer_id"], {}).get("segment")
        counts[segment, datetime.fromisoformat(str(event["happened_at"])).date()] += 1

    with Answers(landing) as answers:
        assert {row[0] for row in answers.rows("event")} == set(happened)
        assert {row[0]: row[1] for row in answers.rows("first_event")} == {
            name: event["event_id"] for name, event in first.items()
        }
        assert {row[0]: row[1] for row in answers.rows("customer")} == {
            name: change["change_id"] for name, change in customers.items()
        }
        assert {row[0]: row[5] for row in answers.rows("enriched")} == {
            name: customers.get(event["customer_id"], {}).get("segment") for name, event in happened.items()
        }
        assert {(row[0], row[1]): row[2] for row in answers.rows("revenue")} == counts
    assert len(customers) < len(last)


def test_a_wrong_a_missing_and_a_repeated_row_are_found(tmp_path):
    with Answers(landed(tmp_path, 1)) as answers:
        names = ["segment", "day", "events", "amount"]
        rows = [dict(zip(names, row, strict=True)) for row in answers.rows("revenue")]
        wrong = [{**rows[0], "events": 10**6}, *rows[1:]]

        assert answers.difference("revenue", pa.Table.from_pylist(list(reversed(rows)))) is None
        assert answers.difference("revenue", pa.Table.from_pylist(wrong)) == (
            "revenue has 1 rows that it should not have, and lacks 1"
        )
        assert answers.difference("revenue", pa.Table.from_pylist(rows[1:])) == (
            "revenue has 0 rows that it should not have, and lacks 1"
        )
        assert answers.difference("revenue", pa.Table.from_pylist([*rows, rows[0]])) == (
            "revenue has 1 rows that it should not have, and lacks 0"
        )
        assert answers.difference("revenue", pa.table({"segment": ["gold"]})) == (
            "revenue has no column day, events, amount"
        )


def run(peer: str, *cpu: float, why: str | None = None) -> Run:
    return Run(peer, {step: Cost(seconds, 2 * seconds) for step, seconds in enumerate(cpu)}, 10**9, why)


def test_a_figure_has_the_ratio_of_each_round_and_says_equal_where_the_range_includes_one():
    rounds = [
        (run("freshline", 10.0, 2.0, 4.0), run("again", 20.0, 1.0, 4.4)),
        (run("freshline", 12.0, 2.0, 4.0), run("again", 20.0, 1.0, 3.8)),
    ]

    first, worse, equal = figures_of(rounds)

    assert (first.step, first.ratio, first.verdict) == ("first load", Spread(0.55, 0.5, 0.6), "freshline less")
    assert (worse.step, worse.verdict) == ("increment 1", "freshline more")
    assert equal.verdict == "equal"
    assert [figure.verdict for figure in figures_of(rounds[:1])] == ["one pair"] * 3


def test_a_step_that_one_side_lacks_has_no_figure():
    (only,) = figures_of([(run("freshline", 10.0), run("dbt", 20.0, 1.0))])

    assert only.step == "first load"


def test_the_increments_after_a_hundred_are_one_figure():
    assert steps_of(1, far=False, fresh=True) == ([0, 1, 2], frozenset({0, 1, 2}))
    steps, watched = steps_of(3, far=True)
    ours = Run("freshline", {step: Cost(2.0, 1.0) for step in watched}, 1)
    theirs = Run("again", {step: Cost(4.0 if step in FAR else 8.0, 1.0) for step in watched}, 1)

    figures = {figure.step: figure.ratio.middle for figure in figures_of([(ours, theirs)])}

    assert steps == list(range(111))
    assert figures["increments 100 to 110"] == 0.5
    assert list(figures) == ["first load", "increment 1", "increment 2", "increment 3", "increments 100 to 110"]


def test_a_peer_that_did_not_run_is_a_line_that_says_why():
    lines = [
        Line("again", "everything again", 40, list(figures_of([(run("freshline", 1.0), run("again", 2.0))]))),
        Line("dbt", "dbt", 50, [], why="no matching\ndistribution | at all"),
    ]

    text = table(lines)

    assert "| everything again | first load | 1.0 (1.0 to 1.0) | 2.0 (2.0 to 2.0) | 2.0 | 4.0 | 0.50" in text
    assert "| dbt | 50 |  | not run: no matching distribution \\| at all |" in text


@pytest.mark.parametrize(
    ("peer", "path"),
    [
        ("merge", "tables/{}"),
        ("dbt", "spark-warehouse/shop.db/{}"),
        ("sqlmesh", "spark-warehouse/sqlmesh__shop.db/shop__{}__1234"),
    ],
)
def test_the_customers_of_a_way_that_keeps_their_state_are_those_that_are_not_deleted(tmp_path, peer, path):
    rows = [{"customer_id": "c1", "op": "u"}, {"customer_id": "c2", "op": "d"}]
    write_deltalake(tmp_path / path.format("customer_state"), pa.Table.from_pylist(rows))
    write_deltalake(tmp_path / path.format("event"), pa.table({"event_id": ["e1"]}))
    write_deltalake(tmp_path / path.format("first_event"), pa.table({"event_id": ["e2"]}))

    assert PEERS[peer].read(tmp_path, "customer")["customer_id"].to_pylist() == ["c1"]
    assert PEERS[peer].read(tmp_path, "event")["event_id"].to_pylist() == ["e1"]


@pytest.mark.parametrize("peer", [FRESHLINE, *(PEERS[name] for name in TPCH_PEERS)], ids=lambda peer: peer.name)
@pytest.mark.parametrize("shape", MEASURED, ids=lambda shape: shape.table)
def test_every_peer_of_tpch_has_a_program_and_the_name_of_its_query(peer: Peer, shape: Shape):
    found = tpch_peer(peer, shape)

    assert (found.way / "drive.py").is_file()
    assert shape_named(*found.arguments) is shape
    # Its query is that of all ways, so nobody writes it for one of them.
    assert (found.name, found.lines) == (peer.name, 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tpch") / "made"
    generate(folder, 0.01)
    return folder


@pytest.mark.parametrize("shape", MEASURED, ids=lambda shape: shape.table)
def test_a_thousandth_of_the_rows_of_an_input_change_at_each_increment(tmp_path, made, shape: Shape):
    change = shape.change
    assert isinstance(change, Altered)
    source = tmp_path / change.source
    land = tpch_workload(shape, made).land
    land(tmp_path, 0)
    rows = DeltaTable(source).to_pyarrow_table()

    land(tmp_path, 1)
    land(tmp_path, 2)

    assert {path.name for path in tmp_path.iterdir()} == set(sources_of(shape.query))
    changed: list[set[tuple[object, ...]]] = []
    for version in (1, 2):
        found = pa.table(DeltaTable(source).load_cdf(starting_version=version, ending_version=version)).to_pylist()
        before = {tuple(row[key] for key in change.keys): row for row in found if row["_change_type"] == PREIMAGE}
        after = {tuple(row[key] for key in change.keys): row for row in found if row["_change_type"] == POSTIMAGE}
        assert all(after[key][change.column] == row[change.column] + 1 for key, row in before.items())
        assert 0.0007 < len(before) / rows.num_rows < 0.0013
        changed.append(set(before))
    assert changed[0] != changed[1]
    assert DeltaTable(source).to_pyarrow_table().schema == rows.schema


@pytest.mark.parametrize("shape", MEASURED, ids=lambda shape: shape.table)
def test_rows_that_are_not_computed_again_are_found_to_be_wrong(tmp_path, made, shape: Shape):
    workload = tpch_workload(shape, made)
    workload.land(tmp_path, 0)
    right = tpch.answer(tmp_path, shape)

    assert workload.difference(tmp_path, lambda table: right) is None
    workload.land(tmp_path, 1)
    assert str(workload.difference(tmp_path, lambda table: right)).startswith(f"{shape.table} has ")
    assert workload.difference(tmp_path, lambda table: tpch.answer(tmp_path, shape)) is None
    assert workload.difference(tmp_path, unreadable) == f"{shape.table} cannot be read: no such table"


def unreadable(table: str) -> pa.Table:
    raise OSError("no such table")


def test_the_rows_that_change_are_chosen_by_numbers_that_fit_in_64_bits():
    # The greatest keys of scale 100.
    keys = {"l_orderkey": 600_000_000, "l_linenumber": 7, "o_orderkey": 600_000_000}
    with duckdb.connect() as database:
        for shape in MEASURED:
            assert isinstance(shape.change, Altered)
            condition = shape.change.chosen(0.001, 110)
            for name, value in keys.items():
                condition = condition.replace(name, str(value))

            # It raises an error where a number is too large.
            assert database.execute(f"SELECT {condition}").fetchall() in ([(True,)], [(False,)])


def test_an_average_of_money_is_rounded_half_up_as_by_spark():
    values = ", ".join(["(0.01::DECIMAL(15, 2))"] + ["(0.00::DECIMAL(15, 2))"] * 31)
    with duckdb.connect() as database:
        database.execute(tpch.AVERAGE)

        # 0.01 / 32 is 0.0003125, with a five as its seventh digit.
        assert database.sql(f"SELECT avg(x) FROM (VALUES {values}) AS t(x)").fetchall() == [(Decimal("0.000313"),)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--peers", "again,flink"], "events has no such peer: flink; it has again, merge, dbt"),
        (["--workload", "tpch", "--peers", "dbt"], "tpch has no such peer: dbt; it has again"),
    ],
)
def test_a_peer_that_a_workload_does_not_have_is_refused(monkeypatch, capsys, given, said):
    monkeypatch.setattr("sys.argv", ["peers", *given])

    with pytest.raises(SystemExit):
        main()

    assert said in capsys.readouterr().err


@pytest.mark.parametrize("peer", [FRESHLINE, *PEERS.values()], ids=lambda peer: peer.name)
def test_every_peer_has_a_program_and_pins_with_reasons(peer: Peer):
    assert (peer.way / "drive.py").is_file()
    assert peer.lines > 0
    if peer.environment is not None:
        pins = (peer.way.parents[1] / "requirements" / f"{peer.environment}.txt").read_text().splitlines()
        for pin in pins:
            assert pin.startswith("#") or ("#" in pin and any(sign in pin for sign in ("==", ">="))), pin


DRIVE = """
import os, sys
from pathlib import Path

sys.path.insert(0, sys.argv[3])
from serve import folders, serve

landing, own = folders()


def refresh():
    with (own / "made").open("a") as made:
        made.write(f"{os.getpid()} {len(list(landing.iterdir()))}\\n")


serve(refresh)
"""


@pytest.mark.parametrize("recomputes", [False, True])
def test_a_peer_that_recomputes_makes_few_of_the_steps_that_are_not_watched(tmp_path, recomputes):
    way = tmp_path / "way"
    way.mkdir()
    (way / "drive.py").write_text(DRIVE)
    arguments = (str(FRESHLINE.way.parent),)
    peer = Peer("x", "x", lambda own, table: pa.table({}), folder=str(way), arguments=arguments)
    peer = replace(peer, recomputes=recomputes, goes_on=True)

    def land(landing: Path, step: int) -> None:
        (landing / str(step)).touch()

    folder, watched = tmp_path / "run", frozenset({0, 1, 40, 41})
    made = run_peer(
        peer, Path(sys.executable), os.environ, folder, land, lambda *_: None, range(42), watched, lambda _: None, 41
    )

    assert made.why is None
    assert set(made.costs) == watched
    lines = [line.split() for line in (folder / "own" / "made").read_text().splitlines()]
    # Each has the files of all steps so far, made or not.
    asked = [0, 1, *range(20, 42)] if recomputes else list(range(42))
    assert [int(files) for _, files in lines] == [step + 1 for step in asked]
    assert len({process for process, _ in lines[:-1]}) == 1
    assert lines[-1][0] != lines[0][0]


@pytest.mark.long
def test_freshline_and_two_peers_give_the_right_rows_at_every_step(tmp_path):
    ways = ["again", "duckdb"]
    lines = compare_peers(tmp_path, event_workload(SIZES), ways, 2, False, 1, lambda message: None, fresh=True)

    assert [line.why for line in lines] == [None] * 3
    steps = ["first load", "increment 1", "increment 2", "an increment of a fresh process, start included"]
    for line in lines[1:]:
        assert [figure.step for figure in line.figures] == steps
    assert set(TABLES) == {"event", "first_event", "customer", "enriched", "revenue"}


@pytest.mark.long
@pytest.mark.parametrize("shape", MEASURED, ids=lambda shape: shape.table)
def test_freshline_and_everything_again_give_the_right_rows_of_tpch_at_every_step(tmp_path, made, shape: Shape):
    lines = compare_peers(tmp_path, tpch_workload(shape, made), ["again"], 2, False, 1, lambda message: None)

    assert [line.why for line in lines] == [None] * 2
    assert [figure.step for figure in lines[1].figures] == ["first load", "increment 1", "increment 2"]
