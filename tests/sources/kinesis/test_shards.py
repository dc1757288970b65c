"""Shards in their order: splits, merges, streams that were made anew, and records that expired."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from freshline.compute.cancellation import Cancellation
from freshline.errors import OffsetsLostError, ShardGoneError, StreamError, StreamReplacedError
from freshline.sources.kinesis.shards import StreamState, is_at_edge
from freshline.sources.kinesis.walk import Walk
from tests.lanes import few_or_many
from tests.sources.kinesis.reading import Log, numbered
from tests.sources.reading import Host

pytestmark = pytest.mark.seconds

FIRST = "shardId-000000000000"
DAY = 24 * 3_600_000


def later(log, milliseconds):
    """The position of a log that stood still for so long: all that it knows is older."""
    shards = {
        name: replace(
            shard,
            until=None if shard.until is None else shard.until - milliseconds,
            arrived=None if shard.arrived is None else shard.arrived - milliseconds,
        )
        for name, shard in log.position.shards.items()
    }
    log.position = replace(log.position, shards=shards)
    log.open()


def test_every_record_comes_once_in_the_order_of_its_shard(log, kinesis):
    assert log.refresh() == []
    assert len(log.commits) == 1
    kinesis.send(log.stream, numbered(0, 5))
    assert log.refresh() == numbered(0, 5)
    assert log.refresh() == []
    log.open()
    kinesis.send(log.stream, numbered(5, 7))
    assert log.refresh() == numbered(5, 7)

    assert log.places == [(FIRST, number) for number in range(7)]
    assert len(log.commits) == 3


def test_an_idle_check_asks_each_shard_once(log, kinesis):
    log.refresh()
    assert not log.inspect().is_new
    kinesis.asked.clear()
    for _ in range(3):
        assert not log.inspect().is_new

    assert kinesis.asked == {"DescribeStreamSummary": 3, "GetRecords": 3}


def test_children_begin_in_a_later_commit_than_their_parent_ends(log, kinesis):
    kinesis.send(log.stream, numbered(0, 3))
    log.refresh()
    kinesis.send(log.stream, numbered(3, 5))
    children = kinesis.split(log.stream, FIRST)
    for child in children:
        kinesis.send(log.stream, [child.encode()], shard=child)
    log.refresh()

    # One refresh reads all of it.
    assert [[row["_freshline_shard"] for row in commit] for commit in log.commits] == [
        [FIRST] * 3,
        [FIRST] * 2,
        children,
    ]
    assert log.refresh() == []


def test_a_merged_shard_waits_for_both_of_its_parents(kinesis, tmp_path, monkeypatch):
    log = Log(Host(tmp_path), kinesis, kinesis.create(shards=2))
    one, other = kinesis.open_shards(log.stream)
    log.refresh()
    kinesis.send(log.stream, numbered(0, 3), shard=one)
    kinesis.send(log.stream, numbered(3, 9), shard=other)
    merged = kinesis.merge(log.stream, one, other)
    kinesis.send(log.stream, numbered(9, 11))
    monkeypatch.setattr("freshline.sources.kinesis.client.PAGE_RECORDS", 2)
    monkeypatch.setattr("freshline.sources.kinesis.reader.BATCH_RECORDS", 2)
    log.refresh()

    assert log.data[-2:] == numbered(9, 11)
    assert sorted(log.data) == sorted(numbered(0, 11))
    # The commits that have records of the merged shard come after all of its parents'.
    of_merged = [any(row["_freshline_shard"] == merged for row in commit) for commit in log.commits]
    assert of_merged == sorted(of_merged)
    log.close()


@pytest.mark.parametrize("rounds", few_or_many(12, 300))
def test_whatever_is_split_and_merged_a_key_stays_in_order(kinesis, tmp_path, monkeypatch, rounds):
    """Sent by random keys, with engines that end at any point, in pages and commits of any size."""
    chance = random.Random(rounds)
    log = Log(Host(tmp_path), kinesis, kinesis.create(shards=2))
    sent: dict[str, list[int]] = {}
    total = 0
    for _ in range(rounds):
        monkeypatch.setattr("freshline.sources.kinesis.client.PAGE_RECORDS", chance.choice([1, 3, 10_000]))
        monkeypatch.setattr("freshline.sources.kinesis.reader.BATCH_RECORDS", chance.choice([1, 4, 200_000]))
        for _ in range(chance.randint(0, 4)):
            key = f"key-{chance.randint(0, 6)}"
            kinesis.send(log.stream, [f"{key} {total}".encode()], key=key)
            sent.setdefault(key, []).append(total)
            total += 1
        shards = kinesis.streams[log.stream].shards
        there = sorted(kinesis.open_shards(log.stream), key=lambda name: shards[name].starting_hash)
        match chance.randint(0, 5):
            case 0 if len(there) < 5:
                kinesis.split(log.stream, chance.choice(there))
            case 1 if len(there) > 1:
                place = chance.randrange(len(there) - 1)
                kinesis.merge(log.stream, there[place], there[place + 1])
            case 2:
                log.open()
            case 3:
                # Killed before the commit: what was prepared is nobody's.
                inspection = log.inspect()
                if (portion := log.reader.cut(inspection, log.position)) is not None:
                    log.reader.prepare(None, portion, None, Cancellation())
                log.open()
        log.refresh(most=chance.choice([1, 2, None]))
    log.refresh()

    got: dict[str, list[int]] = {}
    for data in log.data:
        key, number = data.decode().split()
        got.setdefault(key, []).append(int(number))
    assert got == sent
    assert len(set(log.places)) == total
    log.close()


# -- another stream


def test_a_stream_that_was_made_anew_is_an_error_that_names_both(log, kinesis):
    kinesis.send(log.stream, numbered(0, 3))
    log.refresh()
    old = kinesis.streams[log.stream]
    kinesis.delete(log.stream)
    kinesis.create(name=log.stream)
    kinesis.send(log.stream, numbered(5, 6))
    before = log.position
    with pytest.raises(StreamReplacedError) as raised:
        log.refresh()

    assert log.position == before
    identity = str(raised.value).rpartition("'accept-stream' = '")[2].partition("'")[0]
    created = old.creation_datetime.isoformat(timespec="milliseconds")[:23]
    assert f"{old.arn}@{created}" in str(raised.value)
    assert identity.startswith(f"{old.arn}@")
    log.options["accept-stream"] = identity
    log.open()
    assert log.refresh() == numbered(5, 6)
    # Rows of both have places of their own.
    assert log.places == [(FIRST, number) for number in range(4)]
    assert log.refresh() == []


def test_a_stream_that_is_made_anew_while_it_is_read_is_not_committed(log, kinesis):
    kinesis.send(log.stream, numbered(0, 3))
    portion = log.open().cut(log.inspect(), None)
    kinesis.delete(log.stream)
    kinesis.create(name=log.stream)
    with pytest.raises(StreamReplacedError, match="while it was read"):
        log.commit(portion)

    assert log.commits == []


# -- what expired


def test_records_that_expired_after_they_were_read_are_no_loss(log, kinesis):
    kinesis.send(log.stream, numbered(0, 3))
    log.refresh()
    later(log, DAY // 2)
    position = log.position
    log.position = replace(
        position,
        shards={name: replace(shard, arrived=shard.arrived - DAY) for name, shard in position.shards.items()},
    )
    kinesis.expire(log.stream, FIRST)
    kinesis.send(log.stream, numbered(3, 4))

    assert log.refresh() == numbered(3, 4)


def test_records_that_expired_unread_are_an_error_and_a_clause(log, kinesis):
    kinesis.send(log.stream, numbered(0, 3))
    log.refresh()
    kinesis.send(log.stream, numbered(3, 6))
    later(log, 2 * DAY)
    kinesis.expire(log.stream, FIRST, 5)
    with pytest.raises(OffsetsLostError) as raised:
        log.refresh()

    clause = str(raised.value).rpartition("'accept-gap' = '")[2].partition("'")[0]
    log.options["accept-gap"] = clause
    log.open()
    assert log.refresh() == numbered(5, 6)
    # The clause may stay.
    assert log.refresh() == []
    kinesis.send(log.stream, numbered(6, 7))
    log.open()
    assert log.refresh() == numbered(6, 7)


def test_a_record_that_is_still_there_says_that_nothing_expired(log, kinesis):
    kinesis.send(log.stream, numbered(0, 3))
    log.refresh()
    kinesis.send(log.stream, numbered(3, 6))
    later(log, 2 * DAY)

    assert log.refresh() == numbered(3, 6)


def test_a_record_that_is_gone_before_its_time_is_an_error(log, kinesis):
    kinesis.send(log.stream, numbered(0, 3))
    log.refresh()
    kinesis.expire(log.stream, FIRST)
    log.open()

    with pytest.raises(OffsetsLostError, match="gone before its time"):
        log.refresh()


def test_a_shard_that_is_gone_unread_is_an_error_and_a_clause(log, kinesis):
    kinesis.send(log.stream, numbered(0, 3))
    log.refresh()
    kinesis.send(log.stream, numbered(3, 4))
    children = kinesis.split(log.stream, FIRST)
    kinesis.send(log.stream, numbered(4, 6))
    kinesis.forget(log.stream, FIRST)
    log.open()
    with pytest.raises(ShardGoneError, match=FIRST) as raised:
        log.refresh()

    log.options["accept-gap"] = str(raised.value).rpartition("'accept-gap' = '")[2].partition("'")[0]
    log.open()
    assert sorted(log.refresh()) == numbered(4, 6)
    assert {shard for shard, _ in log.places[3:]} <= set(children)
    assert log.refresh() == []


def test_a_shard_that_goes_between_two_checks_is_found_by_the_one_after(log, kinesis):
    log.refresh()
    assert not log.inspect().is_new
    kinesis.split(log.stream, FIRST)
    kinesis.forget(log.stream, FIRST)
    with pytest.raises(StreamError, match="no such shard"):
        log.refresh()
    with pytest.raises(ShardGoneError):
        log.refresh()


def test_a_generation_of_shards_that_nobody_saw_is_an_error(log, kinesis):
    """The shard that was read is closed and there, its child came and went meanwhile."""
    log.refresh()
    child, _ = kinesis.split(log.stream, FIRST)
    kinesis.split(log.stream, child)
    kinesis.forget(log.stream, child)
    # As after a long absence; before it, nothing could have expired.
    log.open()

    with pytest.raises(ShardGoneError, match=f"no shard {child} any more, and nothing of it was read"):
        log.refresh()


def test_shards_that_were_gone_before_the_first_check_are_no_loss(log, kinesis):
    kinesis.split(log.stream, FIRST)
    kinesis.forget(log.stream, FIRST)
    kinesis.send(log.stream, numbered(0, 4))
    assert sorted(log.refresh()) == numbered(0, 4)
    log.open()
    assert log.refresh() == []


def test_a_child_is_unread_since_the_last_record_of_its_parent(log, kinesis):
    kinesis.send(log.stream, numbered(0, 3))
    log.refresh()
    kinesis.split(log.stream, FIRST)
    kinesis.send(log.stream, numbered(3, 5))
    # The end of the parent is read long after it was closed, and its children later still.
    later(log, DAY - 3_600_000)
    assert log.refresh(most=1) == []
    assert log.position.shards[FIRST].is_closed
    later(log, 2 * 3_600_000)
    with pytest.raises(OffsetsLostError, match="some may be lost"):
        log.refresh()


def test_a_closed_shard_is_forgotten_with_the_last_that_came_from_it(log, kinesis):
    kinesis.split(log.stream, FIRST)
    log.refresh()
    kinesis.forget(log.stream, FIRST)
    log.refresh()
    kinesis.send(log.stream, numbered(0, 2))
    log.refresh()
    assert FIRST in log.position.shards
    one, other = kinesis.open_shards(log.stream)
    kinesis.merge(log.stream, one, other)
    log.refresh()
    for shard in (one, other):
        kinesis.forget(log.stream, shard)
    kinesis.send(log.stream, numbered(2, 3))
    log.refresh()

    assert FIRST not in log.position.shards


def test_rows_of_a_shard_that_is_forgotten_keep_their_places_when_the_stream_is_made_anew(log, kinesis):
    kinesis.send(log.stream, numbered(0, 5))
    kinesis.split(log.stream, FIRST)
    log.refresh()
    one, other = kinesis.open_shards(log.stream)
    kinesis.merge(log.stream, one, other)
    log.refresh()
    for shard in (FIRST, one, other):
        kinesis.forget(log.stream, shard)
    kinesis.send(log.stream, numbered(5, 6))
    log.refresh()
    assert FIRST not in log.position.shards
    kinesis.delete(log.stream)
    kinesis.create(name=log.stream)
    kinesis.send(log.stream, numbered(6, 9))
    with pytest.raises(StreamReplacedError) as raised:
        log.refresh()
    log.options["accept-stream"] = str(raised.value).rpartition("'accept-stream' = '")[2].partition("'")[0]
    log.open()

    assert log.refresh() == numbered(6, 9)
    # A union read finds rows by shard and number, and the first shards of both streams have one name.
    assert len(log.places) == len(set(log.places)) == 9


def test_a_quiet_stream_has_a_commit_now_and_then_that_renews_what_is_known(log, kinesis):
    kinesis.send(log.stream, numbered(0, 1))
    log.refresh()
    later(log, DAY // 5)
    assert not log.inspect().is_new
    later(log, DAY // 4)
    assert log.refresh() == []
    assert len(log.commits) == 2
    assert not log.inspect().is_new

    kinesis.expire(log.stream, FIRST)
    later(log, DAY // 2)
    log.position = replace(
        log.position,
        shards={name: replace(shard, arrived=shard.arrived - DAY) for name, shard in log.position.shards.items()},
    )
    assert log.refresh() == []


@pytest.mark.parametrize("at_edge", [True, False])
def test_records_that_expire_while_they_are_read_are_found_missing_at_the_edge(log, kinesis, monkeypatch, at_edge):
    """Elsewhere than at the edge no record can expire between two pages."""
    from freshline.sources.kinesis import walk

    kinesis.send(log.stream, numbered(0, 6))
    monkeypatch.setattr("freshline.sources.kinesis.client.PAGE_RECORDS", 2)
    monkeypatch.setattr(walk, "is_at_edge", lambda state, behind_ms: at_edge)
    read = walk.Walk.read

    def read_and_expire(self, *asked, **more):
        found = read(self, *asked, **more)
        kinesis.expire(log.stream, FIRST, 4)
        return found

    monkeypatch.setattr(walk.Walk, "read", read_and_expire)
    if at_edge:
        with pytest.raises(OffsetsLostError):
            log.refresh()
        assert log.commits == []
    else:
        assert log.refresh() == numbered(0, 2) + numbered(4, 6)


def test_the_edge_is_an_hour_before_records_expire():
    state = StreamState("s", "arn", 0, DAY, 0)

    assert [is_at_edge(state, DAY - 61 * 60_000), is_at_edge(state, DAY - 59 * 60_000)] == [False, True]


def test_a_reading_of_days_knows_what_expired_meanwhile(log, kinesis):
    kinesis.send(log.stream, numbered(0, 3))
    log.refresh()
    state = log.inspect().state
    later(log, DAY + DAY // 2)
    kinesis.expire(log.stream, FIRST)
    kinesis.send(log.stream, numbered(3, 4))
    long_ago = replace(state, now=state.now - 2 * DAY)
    walk = Walk(log.reader._kinesis, log.reader._client, "here")
    walk.begin(long_ago, log.position.starting)

    with pytest.raises(OffsetsLostError):
        walk.quiet_until(long_ago, FIRST, log.position.shards[FIRST], Cancellation())
