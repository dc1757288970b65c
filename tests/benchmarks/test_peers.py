"""The scoreboard of peers: what lands, the right answers, how figures become lines, and a run with two peers."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from benchmarks.measure import Cost
from benchmarks.peers.answers import TABLES, Answers
from benchmarks.peers.catalog import FRESHLINE, PEERS, Peer
from benchmarks.peers.events import Sizes, changes, events, land
from benchmarks.peers.main import compare_peers
from benchmarks.peers.run import Run
from benchmarks.peers.scoreboard import FAR, Line, Spread, figures_of, steps_of, table

SIZES = Sizes(events=2000, customers=200, new_events=1000, new_changes=200)


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


def test_a_figure_has_the_ratio_of_each_round_and_says_equal_where_the_range_holds_one():
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


def test_the_customers_of_the_merge_by_hand_are_those_that_are_not_deleted(tmp_path):
    rows = [{"customer_id": "c1", "op": "u"}, {"customer_id": "c2", "op": "d"}]
    write_deltalake(tmp_path / "tables" / "customer_state", pa.Table.from_pylist(rows))

    assert PEERS["merge"].read(tmp_path, "customer")["customer_id"].to_pylist() == ["c1"]


@pytest.mark.parametrize("peer", [FRESHLINE, *PEERS.values()], ids=lambda peer: peer.name)
def test_every_peer_has_a_program_and_pins_with_reasons(peer: Peer):
    assert (peer.way / "drive.py").is_file()
    assert peer.lines > 0
    if peer.environment is not None:
        pins = (peer.way.parents[1] / "requirements" / f"{peer.environment}.txt").read_text().splitlines()
        for pin in pins:
            assert pin.startswith("#") or ("#" in pin and any(sign in pin for sign in ("==", ">="))), pin


@pytest.mark.long
def test_freshline_and_two_peers_give_the_right_rows_at_every_step(tmp_path):
    lines = compare_peers(tmp_path, ["again", "duckdb"], SIZES, 2, False, 1, lambda message: None)

    assert [line.why for line in lines] == [None] * 3
    for line in lines[1:]:
        assert [figure.step for figure in line.figures] == ["first load", "increment 1", "increment 2"]
    assert set(TABLES) == {"event", "first_event", "customer", "enriched", "revenue"}
