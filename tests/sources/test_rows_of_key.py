"""Rows that have one key for a moment: which one has it at the end; pure, against a table in plain Python."""

from __future__ import annotations

import random

import pytest

from freshline.sources.rows_of_key import SeenEvent, find_survivors
from tests.lanes import few_or_many


def seen(place, op, image=None, removed=None, *, transaction="t", bare=False, truncates=0, asked=True):
    return SeenEvent((place,), op, transaction, image, removed, bare, truncates, asked)


def outcome(*events):
    return [(each.place[0], None if each.row is None else each.row[0]) for each in find_survivors(events)]


def before(image, op="r"):
    return seen(1, op, image, transaction="before", asked=False)


def test_a_row_that_comes_before_another_leaves_stays():
    assert outcome(before(10), seen(2, "c", 20), seen(3, "d", None, 10)) == [(3, 2)]


def test_a_row_that_only_passes_leaves_the_other_one():
    assert outcome(before(10), seen(2, "c", 20), seen(3, "d", None, 20)) == [(3, 1)]
    # Also where both are equal, as rows of the key alone are.
    assert outcome(before(10), seen(2, "c", 10), seen(3, "d", None, 10, bare=True)) == [(3, 1)]


def test_a_row_that_is_deleted_is_gone():
    assert outcome(seen(2, "c", 20), seen(3, "d", None, 20)) == []
    assert outcome(before(10), seen(2, "d", None, 10), seen(3, "c", 20), seen(4, "d", None, 20)) == []
    # Where the key alone is sent, one row has it.
    assert outcome(before(10), seen(2, "c", 20), seen(3, "d", None, 99, bare=True)) == []
    assert outcome(before(10), seen(2, "c", 20), seen(3, "d", None, None)) == []


def test_an_update_is_of_the_row_that_it_names():
    assert outcome(before(10), seen(2, "c", 20), seen(3, "u", 11, 10), seen(4, "d", None, 11)) == [(4, 2)]
    assert outcome(before(10), seen(2, "c", 20), seen(3, "u", 21, 20), seen(4, "d", None, 10)) == [(4, 3)]
    assert outcome(before(10), seen(2, "c", 20), seen(3, "u", 11, 10), seen(4, "d", None, 20)) == [(4, 3)]


def test_a_truncate_and_another_transaction_begin_anew():
    assert outcome(before(10), seen(2, "c", 20, truncates=1), seen(3, "d", None, 20, truncates=1)) == []
    assert outcome(before(10), seen(2, "c", 20, truncates=1), seen(3, "d", None, 99, truncates=1)) == []
    assert outcome(seen(1, "c", 10), seen(2, "d", None, 10, transaction="u")) == []


def test_a_row_in_quarantine_is_known_by_none_but_its_place():
    rejected = seen(2, "c", None, asked=False)
    assert outcome(before(10), rejected, seen(3, "d", None, 20)) == [(3, 1)]
    assert outcome(before(10), rejected, seen(3, "d", None, 10)) == []
    assert outcome(before(10), seen(2, "u", None, 10, asked=False), seen(3, "d", None, 20)) == []
    # Nothing is known of it: then nobody knows which row is left.
    unread = seen(2, None, None, transaction=None, asked=False)
    assert outcome(before(10), unread, seen(3, "d", None, 20)) == [(3, None)]
    assert outcome(before(10), unread, seen(3, "d", None, 10)) == []
    later = [seen(4, "c", 30, transaction="u"), seen(5, "d", None, 31, transaction="v")]
    assert outcome(before(10), unread, seen(3, "d", None, 20), *later)[1:] == []


def read(seed):
    """Random changes of one key, of which several rows have it within a transaction; what is left is what survives."""
    chance = random.Random(seed)
    rows: list[int] = []
    stored, events, place = {}, [], 0
    asked_from = chance.randint(0, 10)
    for transaction in map(str, range(chance.randint(1, 4))):
        for _ in range(chance.randint(1, 8)):
            place += 1
            what = chance.random()
            if not rows or what < 0.4:
                rows.append(chance.randint(0, 3))
                events.append(seen(place, "c", rows[-1], transaction=transaction))
            elif what < 0.6:
                row = rows.pop(chance.randrange(len(rows)))
                rows.append(chance.randint(0, 3))
                events.append(seen(place, "u", rows[-1], row, transaction=transaction))
            else:
                row = rows.pop(chance.randrange(len(rows)))
                events.append(seen(place, "d", None, row, transaction=transaction))
        while len(rows) > 1:
            place += 1
            row = rows.pop(chance.randrange(len(rows)))
            events.append(seen(place, "d", None, row, transaction=transaction))
        stored[len(events)] = rows[0] if rows else None
    # Events of earlier batches are read as they were stored.
    images = {each.place: each.image for each in events}
    kept = {each.place: each.row for each in find_survivors(events)}
    begun = [each._replace(op="k") if each.place in kept else each for each in events[:asked_from]]
    again = find_survivors([*[each._replace(is_asked=False) for each in begun], *events[asked_from:]])
    assert [each for each in find_survivors(events) if each.place > (asked_from,)] == [
        each for each in again if each.place > (asked_from,)
    ], seed
    for end, expected in stored.items():
        last = events[end - 1]
        found = images[kept[last.place]] if last.place in kept else last.image
        assert found == expected, (seed, end, events)


@pytest.mark.parametrize("seeds", few_or_many(range(2_000), range(2_000, 200_000)))
def test_the_last_event_of_a_transaction_says_which_row_has_the_key(seeds):
    for seed in seeds:
        read(seed)
