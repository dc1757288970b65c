"""Versions of inputs that agree: the newest ones, and none that saw different amounts of a shared source."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from freshline.plan.cut import Candidate, Root, ahead_of, choose_agreeing, greatest_of, least_of
from freshline.values.names import TableName
from freshline.values.position import TablePosition

A, B, S = (TableName(None, name) for name in ("a", "b", "s"))


def versions(*seen: int | None, root: str = "s", uneven: tuple[int, ...] = ()) -> list[Candidate]:
    """Versions of a table, newest first, by what they saw of a root; None for a table that does not know it."""
    return [
        Candidate(
            TablePosition("id", len(seen) - place),
            {} if number is None else {root: number},
            frozenset([root]) if number in uneven else frozenset(),
        )
        for place, number in enumerate(seen)
    ]


def test_an_older_version_of_the_input_that_is_ahead_is_taken() -> None:
    chosen = choose_agreeing({A: versions(9, 7, 4), B: versions(7, 5)})

    assert chosen is not None
    assert {name: candidate.cut["s"] for name, candidate in chosen.items()} == {A: 7, B: 7}
    assert choose_agreeing({A: versions(9, 6), B: versions(7, 5)}) is None


def test_a_version_whose_rows_saw_different_amounts_agrees_with_none() -> None:
    chosen = choose_agreeing({A: versions(9, 7, uneven=(9,)), B: versions(9, 7)})

    assert chosen is not None
    assert chosen[B].cut == {"s": 7}


def test_a_source_is_read_where_the_tables_are_and_never_before_what_was_read() -> None:
    source = Candidate(TablePosition("s", 12), {"s": 12})

    chosen = choose_agreeing({A: versions(9, 3), B: versions(8, 3)}, {S: Root(source, 3)})

    assert chosen is not None
    assert {candidate.cut["s"] for candidate in chosen.values()} == {3}
    assert choose_agreeing({A: versions(9, 3), B: versions(8, 3)}, {S: Root(source, 4)}) is None
    # The source was checked before the tables were, and its position is the limit.
    early = Candidate(TablePosition("s", 8), {"s": 8})
    chosen = choose_agreeing({A: versions(9, 8)}, {S: Root(early, 0)})
    assert chosen is not None
    assert chosen[A].cut == {"s": 8}


SEEN = st.dictionaries(st.sampled_from("rst"), st.integers(0, 3), max_size=3)


@given(st.lists(st.lists(SEEN, min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_choice_is_the_newest_that_agrees(histories: list[list[dict[str, int]]]) -> None:
    candidates = {}
    for number, history in enumerate(histories):
        # The cut of a table only grows, and its sources are the same at each version.
        cut = dict(history[0])
        found = [Candidate(TablePosition("id", len(history)), dict(cut))]
        for place, less in enumerate(history[1:], 1):
            cut = {root: min(seen, less.get(root, seen)) for root, seen in cut.items()}
            found.append(Candidate(TablePosition("id", len(history) - place), cut))
        candidates[TableName(None, f"t{number}")] = found

    chosen = choose_agreeing(candidates)

    def agree(choice: tuple[Candidate, ...]) -> bool:
        return all(
            one.cut[root] == other.cut[root]
            for one in choice
            for other in choice
            for root in one.cut.keys() & other.cut.keys()
        )

    agreeing = [choice for choice in product(*candidates.values()) if agree(choice)]
    assert (chosen is None) == (not agreeing)
    if chosen is not None:
        newest = tuple(max(c.position.version for c in column) for column in zip(*agreeing, strict=True))
        assert tuple(candidate.position.version for candidate in chosen.values()) == newest


def test_rows_have_seen_the_least_and_some_of_them_more() -> None:
    one, other = {"s": {"seq": 4}, "t": {"version": 2}}, {"s": {"seq": 6}}

    cut = least_of([one, other])

    assert cut == {"s": {"seq": 4}, "t": {"version": 2}}
    assert ahead_of(cut, greatest_of([one, other])) == {"s": {"seq": 6}}
