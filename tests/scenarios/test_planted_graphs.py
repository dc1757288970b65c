"""The generated graphs find mistakes of how tables follow each other: each, planted, is found within a few cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshline.commit import lag_reading
from freshline.freshness import exclusion
from freshline.refresh import outcome, pin
from freshline.refresh.decide import Decision
from freshline.report import status
from freshline.run import savepoint
from freshline.testing import Lab
from tests.scenarios.graphs.case import Advance, Case, Change, Crash, Refresh, Settle, Source, Table, Tick
from tests.scenarios.graphs.drawing import draw
from tests.scenarios.graphs.judge import Counts, Failure, judge
from tests.scenarios.graphs.stand_in import computing_by_duckdb
from tests.stand_in import no_spark

MOST_CASES = 60


def without_unchanged_inputs(real):
    """An unchanged input does not count for the cut: a refresh without changes commits nothing."""
    return property(lambda decision: False)


def without_what_was_checked(real):
    """A restore forgets what was checked: its receipts do not say how far they have seen the roots."""
    return lambda *arguments, **named: replace(real(*arguments, **named), cut={}, cut_ahead={})


def with_siblings_held(real):
    """A suspended table blocks its siblings: what reads an input that it reads is blocked too."""

    def blocked(graph, suspended):
        found = real(graph, suspended)
        for name in graph.order:
            for other in suspended:
                if other in graph and name not in suspended and set(graph.driving(name)) & set(graph.driving(other)):
                    found.setdefault(name, other)
        return found

    return blocked


def with_partitions_as_tables(real):
    """A partition that was named escapes the cut: the receipt does not say that some rows have seen more."""
    return lambda *arguments: {}


def without_agreement(real):
    """Each input is read at its newest version, whatever the others have seen."""
    return lambda runtime, spec, newest, *rest: (dict(newest), ())


def without_times_before(real):
    """The time of a table falls back to its own last refresh when an input commits."""
    return lambda graph, warehouse, held, checks: dict(held)


def with_empty_inputs(real):
    """The empty table that CREATE makes counts as an input."""
    return lambda upstream, receipt, check: True


# The mistakes and their places; of some, the things that the cases have more often than others.
PLANTS = [
    (without_unchanged_inputs, [(Decision, "moves_cut")], {}),
    (without_what_was_checked, [(savepoint, "told_again")], {"restored": True}),
    (with_siblings_held, [(exclusion, "blocked_tables")], {}),
    (with_partitions_as_tables, [(outcome, "_ahead")], {"parted": True}),
    (without_agreement, [(pin, "_agree")], {}),
    (without_times_before, [(each, "with_superseded") for each in (lag_reading, pin, status)], {}),
]


def judged(case: Case) -> Failure | None:
    return judge(case, lambda start: Lab(no_spark(), start=start), Counts(), computing_by_duckdb)


@pytest.mark.long
@pytest.mark.parametrize(("plant", "places", "shares"), PLANTS, ids=[plant.__name__ for plant, _, _ in PLANTS])
def test_a_planted_mistake_is_found(monkeypatch, plant, places, shares):
    for place, name in places:
        monkeypatch.setattr(place, name, plant(getattr(place, name)))

    for number in range(MOST_CASES):
        failure = judged(draw(30_000 + number, plain=True, **shares))
        # A refresh that breaks has found what nobody planted.
        assert failure is None or failure.kind != "error", failure
        if failure is not None:
            print(f"{plant.__name__} was found by case {number + 1}: {failure.kind} {failure.detail[:200]}")
            return
    pytest.fail(str(plant.__doc__))


def two_of_one_source() -> Case:
    """Two tables of one source, of which a change concerns one, and a table over both."""
    a, b = (
        Table(name, "filter", ("t0",), f"SELECT id, g, v FROM t0 WHERE id = {wanted}", 300)
        for name, wanted in (("a", 1), ("b", 2))
    )
    ab = Table("ab", "union", ("a", "b"), "SELECT id, g, v FROM a UNION ALL SELECT id, g, v FROM b", 300)
    events = (
        Change("t0", "insert", ((1, "a", 100), (2, "a", 200))),
        Refresh("ab"),
        Advance(300),
        Change("t0", "update", ids=(2,), value=555),
        Advance(300),
        Tick(),
        Settle(),
    )
    return Case(0, (Source("t0"),), (a, b, ab), events)


def test_a_table_that_stands_still_is_found(monkeypatch):
    assert judged(two_of_one_source()) is None

    monkeypatch.setattr(Decision, "moves_cut", without_unchanged_inputs(None))
    late = judged(two_of_one_source())
    case = two_of_one_source()
    law = judged(replace(case, events=tuple(event for event in case.events if event != Tick())))

    assert late is not None
    assert (late.table, late.kind) == ("ab", "late")
    assert law is not None
    assert (law.table, law.kind) == ("ab", "law")


def test_an_input_that_was_created_and_never_refreshed_is_found(monkeypatch):
    a = Table("a", "filter", ("t0",), "SELECT id, g, v FROM t0 WHERE id > 0", 300)
    query = "SELECT x.id, y.g, x.v FROM t0 AS x LEFT JOIN a AS y ON x.id = y.id"
    beside = Table("beside", "left", ("t0", "a"), query, 300)
    events = (
        Change("t0", "insert", ((1, "a", 100),)),
        Crash("a", "table-created"),
        Refresh("beside", upstreams=False),
        Settle(),
    )
    case = Case(0, (Source("t0"),), (a, beside), events)
    assert judged(case) is None

    monkeypatch.setattr(pin, "_was_read", with_empty_inputs(None))
    failure = judged(case)

    assert failure is not None
    # Its receipt says that the table has everything up to no time at all.
    assert (failure.table, failure.kind) == ("beside", "receipt")
