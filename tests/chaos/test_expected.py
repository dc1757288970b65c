"""The oracle itself, on cases that were worked out by hand."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from tests.chaos import expected
from tests.chaos.observer import differences
from tests.chaos.sent import Generator, Portion, Sent

AT = datetime(2026, 1, 1, 0, 10, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def bag(letters):
    return Counter((letter,) for letter in letters)


def event(name, k, n, ts, op="u"):
    return (name, k, op, n, ts)


def test_the_newest_event_of_a_key_may_take_it_away():
    rows = [event("a", "k", 1, AT), event("b", "k", 2, AT + MINUTE, "d"), event("c", "l", 3, AT)]

    assert expected.latest({"event": rows}) == Counter([("l", "c", "u", 3, AT)])
    assert expected.earliest({"event": rows}) == Counter([("k", "b", "d", 2), ("l", "c", "u", 3)])


def test_aggregates_of_the_newest_events_have_those_that_are_left():
    rows = [
        event("a", "k", 9, AT),
        event("b", "k", 4, AT + MINUTE),
        event("c", "l", -3, AT),
        event("d", "m", 1, AT, "d"),
    ]

    assert expected.extremes({"event": rows}) == Counter([("k", 1, 4, 4), ("l", 1, -3, -3)])
    assert expected.overall({"event": rows}) == Counter([(2, 1, -3, 4)])
    assert expected.overall({"event": [event("d", "m", 1, AT, "d")]}) == Counter([(0, None, None, None)])


def test_a_table_of_two_ways_to_one_log_has_the_rows_behind_each():
    rows = [event("a", "k", 9, AT), event("b", "k", 4, AT + MINUTE), event("c", "l", 3, AT, "d")]
    spanned = next(each for each in expected.DERIVED if each.name == "spanned")

    found = spanned.named(lambda table, log: rows if table == "extremes" else rows[1:])

    assert found == Counter([("k", 4, "b")])
    assert spanned.named(lambda table, log: rows) == Counter([("k", 4, "a")])


def test_a_row_is_late_when_the_batch_before_has_closed_its_window():
    # After the first batch the watermark is 00:08:30. With a minute of lateness windows that end by 00:07 are closed.
    batches = {
        1: [event("a", "k", 1, AT)],
        2: [event("b", "k", 2, AT - 4 * MINUTE), event("c", "k", 5, AT - 3 * MINUTE)],
    }

    found = expected.windows(batches, AT)

    assert found.late == Counter([event("b", "k", 2, AT - 4 * MINUTE)])
    start = datetime(2026, 1, 1, 0, 7, tzinfo=UTC)
    assert found.final == Counter([(start, start + MINUTE, "k", 1, 5)])


def test_bags_differ_in_how_often_a_row_is_there():
    assert differences(bag("aab"), bag("aab")) == ""
    assert "1 rows are missing" in differences(bag("ab"), bag("aab"))
    assert "1 are too many" in differences(bag("aab"), bag("ab"))


def test_portions_that_were_sent_are_read_again_as_they_were(tmp_path):
    sent = Sent.read(tmp_path / "sent")
    generator = Generator(5, sent)
    for source in ("event", "plain", "paid", "event"):
        sent.add(generator.portion(source, 20, odd=True, broken=True, again=True))

    again = Sent.read(tmp_path / "sent")

    assert again.portions == sent.portions
    assert [portion.content() for portion in again.portions] == [portion.content() for portion in sent.portions]
    assert Generator(5, Sent(tmp_path / "other")).portion("event", 20, odd=True, broken=True) == sent.portions[0]
    assert isinstance(again.portions[0], Portion)
    assert again.broken("event") > 0
