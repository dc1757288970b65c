"""A schedule follows from its seed, has many kinds early, and can be run again with acts left out."""

from __future__ import annotations

from itertools import islice

from tests.chaos.faults import FAULTS, WORK
from tests.chaos.schedule import Kind, draw, from_json, to_json, without

KINDS = [Kind(fault.kind, fault.weight, fault.seconds) for fault in FAULTS.values()]
TABLES = ("event", "plain", "daily", "latest", "found")


def test_a_seed_gives_one_schedule_and_another_seed_another():
    first = list(islice(draw(7, KINDS, TABLES), 20))

    assert list(islice(draw(7, KINDS, TABLES), 20)) == first
    assert list(islice(draw(8, KINDS, TABLES), 20)) != first
    assert from_json(to_json(first)) == first


def test_thirty_faults_are_of_ten_kinds_at_least():
    for seed in range(50):
        acts = [act for each in islice(draw(seed, KINDS, TABLES), 10) for act in each.acts if act.kind in FAULTS]
        assert len(acts) == 30
        assert len({act.kind for act in acts}) >= 10


def test_half_of_the_kills_wait_for_a_point_of_a_refresh():
    acts = [act for seed in range(20) for each in islice(draw(seed, KINDS, TABLES), 20) for act in each.acts]
    kills = [act for act in acts if act.kind in FAULTS and {"engine", "jvm"} & set(FAULTS[act.kind].kills)]
    at_points = [act for act in kills if act.point or "point" in act.arguments]

    assert len(at_points) >= len(kills) / 2
    assert {act.kind for act in acts} == {*FAULTS, *WORK}


def test_an_act_that_is_left_out_changes_no_other_one():
    rounds = list(islice(draw(3, KINDS, TABLES), 5))
    gone = rounds[2].acts[1].id

    smaller = without(rounds, frozenset({gone}))

    assert [act for each in smaller for act in each.acts] == [
        act for each in rounds for act in each.acts if act.id != gone
    ]
