"""User records in aggregates of the Kinesis Producer Library."""

from __future__ import annotations

import random

import pytest

from freshline.sources.kinesis.aggregates import user_records
from freshline.sources.kinesis.client import KinesisRecord
from freshline.sources.kinesis.shards import Shard
from tests.kinesis import MAGIC, aggregate, hash_of, sealed
from tests.lanes import few_or_many
from tests.sources.kinesis.reading import Log, sequences, verdicts
from tests.sources.reading import Host

WHOLE = Shard("shardId-000000000000")


def unpacked(data, shard=WHOLE, *, all_keys=False):
    return [tuple(each) for each in user_records(KinesisRecord("1", "outer", data, None), shard, all_keys=all_keys)]


def test_user_records_have_their_own_keys_and_numbers():
    data = aggregate([("a", b"1"), ("größe", b""), ("a", b"\xf3\x89\x9a\xc2")])

    assert unpacked(data) == [("a", b"1", 0, None), ("größe", b"", 1, None), ("a", MAGIC, 2, None)]


def test_a_record_by_itself_stays_as_it_is():
    for data in (b"", b"{}", MAGIC[:3], b"x" + MAGIC):
        assert unpacked(data) == [("outer", data, None, None)]


def test_an_aggregate_without_records_has_none():
    assert unpacked(sealed(b"")) == []


@pytest.mark.parametrize(
    "data",
    [
        MAGIC,
        MAGIC + b"short",
        MAGIC + bytes(16),
        aggregate([("a", b"1")])[:-1],
        aggregate([("a", b"1")]) + b"\n",
        # The digest is right, and the message is none.
        sealed(b"\xff"),
        sealed(b"\x1a\x02\x08\x00"),  # a record without data
        sealed(b"\x1a\x04\x08\x05\x1a\x00"),  # a key that the aggregate has not
        sealed(b"\x0a\x01a\x1a\x06\x08\x00\x10\x03\x1a\x00"),  # a hash that it has not
        sealed(b"\x0a\x01a\x12\x02-1\x1a\x06\x08\x00\x10\x00\x1a\x00"),
        sealed(b"\x0a\x01a\x12\x031_0\x1a\x06\x08\x00\x10\x00\x1a\x00"),
        sealed(b"\x0a\x01a\x12\x27" + str(2**128).encode() + b"\x1a\x06\x08\x00\x10\x00\x1a\x00"),
    ],
)
def test_a_record_that_is_no_aggregate_is_rejected_as_a_whole(data):
    assert unpacked(data) == [("outer", data, None, "NOT_AGGREGATE")]


def test_a_changed_byte_is_found_wherever_it_is():
    chance = random.Random(1)
    data = aggregate([(f"k{number}", b"%d" % number) for number in range(20)])
    for place in range(len(MAGIC), len(data)):
        changed = data[:place] + bytes([data[place] ^ chance.randint(1, 255)]) + data[place + 1 :]
        assert unpacked(changed) == [("outer", changed, None, "NOT_AGGREGATE")]


def test_a_user_record_of_another_shard_is_said_to_be_one():
    """After a split an aggregate has keys of both shards; its producer sends those again that are not here."""
    middle = hash_of("a")
    here = Shard("s", (), middle, middle)
    data = aggregate([("a", b"1"), ("b", b"2"), ("b", b"3")], hashes=[None, None, middle])

    assert unpacked(data, here) == [("a", b"1", 0, None), ("b", b"2", 1, "OTHER_SHARD"), ("b", b"3", 2, None)]
    assert [verdict for *_, verdict in unpacked(data, here, all_keys=True)] == [None] * 3


def test_a_key_that_is_not_utf8_is_a_text():
    data = sealed(b"\x0a\x01\xff\x1a\x05\x08\x00\x1a\x01x")

    assert unpacked(data) == [("\\xff", b"x", 0, None)]


@pytest.mark.parametrize("number", few_or_many(30, 3_000))
def test_whatever_was_aggregated_comes_out_in_order(number):
    chance = random.Random(number)
    for _ in range(number):
        records = [
            (chance.choice(["", "k", "größe", "k" * 256]), chance.randbytes(chance.choice([0, 1, 200, 20_000])))
            for _ in range(chance.randint(1, 8))
        ]
        assert [(key, data) for key, data, _, _ in unpacked(aggregate(records))] == records


# -- as the reader has them


@pytest.fixture
def log(kinesis, tmp_path):
    made = Log(Host(tmp_path), kinesis, kinesis.create())
    yield made
    made.close()


@pytest.mark.seconds
def test_an_aggregate_is_never_split_between_two_commits(log, kinesis, monkeypatch):
    monkeypatch.setattr("freshline.sources.kinesis.reader.BATCH_RECORDS", 2)
    monkeypatch.setattr("freshline.sources.kinesis.client.PAGE_RECORDS", 1)
    many = aggregate([(f"k{number}", b"%d" % number) for number in range(5)])
    kinesis.send(log.stream, [b"first", many, many[:-1], b"last"])
    log.refresh()

    assert verdicts(log) == [
        (b"first", None, None),
        *[(b"%d" % number, number, None) for number in range(5)],
        (many[:-1], None, "NOT_AGGREGATE"),
        (b"last", None, None),
    ]
    assert [number for _, number in log.places] == list(range(8))
    assert len(set(sequences(log))) == 4
    assert [len(commit) for commit in log.commits] == [6, 2]


def test_an_aggregate_that_came_to_a_child_has_its_keys_only(log, kinesis):
    log.refresh()
    one, other = kinesis.split(log.stream, "shardId-000000000000")
    keys = [f"k{number}" for number in range(20)]
    kinesis.send(log.stream, [aggregate([(key, key.encode()) for key in keys])], shard=one)
    log.refresh()

    middle = kinesis.streams[log.stream].shards[other].starting_hash
    assert [row["_freshline_shard"] for row in log.commits[-1]] == [one] * 20
    assert [(data.decode(), verdict) for data, _, verdict in verdicts(log)] == [
        (key, None if hash_of(key) < middle else "OTHER_SHARD") for key in keys
    ]
