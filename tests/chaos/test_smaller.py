"""A failing schedule is made smaller, and the permanent list can be read."""

from __future__ import annotations

from itertools import islice

from tests.chaos.faults import FAULTS, WORK
from tests.chaos.schedule import Kind, draw
from tests.chaos.smaller import make_smaller, permanent_rounds

KINDS = [Kind(fault.kind, fault.weight, fault.seconds) for fault in FAULTS.values()]


def test_the_acts_that_a_failure_needs_are_left():
    rounds = list(islice(draw(5, KINDS, ("event", "latest", "daily")), 6))
    needed = {rounds[1].acts[0].id, rounds[4].acts[2].id}
    runs = []

    def fails(some):
        runs.append(some)
        return needed <= {act.id for each in some for act in each.acts}

    smaller = make_smaller(rounds, fails)

    assert {act.id for each in smaller for act in each.acts} == needed
    assert len(runs) < 60


def test_the_permanent_list_has_acts_that_exist():
    rounds = permanent_rounds()

    assert rounds
    assert {act.kind for each in rounds for act in each.acts} <= {*FAULTS, *WORK}
