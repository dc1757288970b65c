"""Streams of a real RabbitMQ, read without Spark: what is read, from where, and what is noticed.

A commit is a position that is kept, as the receipt keeps it.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from freshline.compute.cancellation import Cancellation
from freshline.errors import BrokerError, OffsetsLostError, QueueError, QueueReplacedError, RequestError
from freshline.sources.rabbitmq import stream as stream_module
from freshline.sources.reader import ReadRequest
from freshline.values.format import VALUE
from freshline.values.position import position_from_json
from tests.sources.rabbitmq.reading import Log
from tests.sources.reading import Host, table_of

pytestmark = pytest.mark.seconds

ASKED = ReadRequest(Cancellation())


@pytest.fixture
def log(rabbitmq, tmp_path, monkeypatch):
    monkeypatch.setenv("BROKER", rabbitmq.url)
    name = rabbitmq.new_name("stream")
    rabbitmq.declare(name, "stream")
    made = Log(Host(tmp_path), rabbitmq, {"stream": name})
    yield made
    made.close()


def send(log, *bodies, **properties):
    log.server.send(log.options["stream"], bodies, **properties)


def again(log, **arguments):
    """Delete the stream, and make another one of its name."""
    log.server.delete(log.options["stream"])
    log.server.declare(log.options["stream"], "stream", **arguments)


def test_each_message_is_read_once(log):
    assert log.refresh() == []
    assert log.position.next == 0
    send(log, b"a", b"b")
    assert log.refresh() == [b"a", b"b"]
    assert log.refresh() == []
    send(log, b"c")
    log.position = position_from_json(json.loads(json.dumps(log.position.as_json())))
    log.open()
    assert log.refresh() == [b"c"]
    assert log.commits == [[], [(0, b"a"), (1, b"b")], [(2, b"c")]]


def test_a_stream_is_read_in_several_commits(log, monkeypatch):
    monkeypatch.setattr(stream_module, "BATCH_MESSAGES", 40)
    bodies = [b"%d" % number for number in range(100)]
    send(log, *bodies)

    assert log.refresh() == bodies
    assert [len(commit) for commit in log.commits] == [40, 40, 20]


def test_large_messages_wait_in_files_and_end_a_commit(log, monkeypatch):
    monkeypatch.setattr(stream_module, "BATCH_BYTES", 30_000_000)
    bodies = [bytes([number]) * 10_000_000 for number in range(5)]
    send(log, *bodies)

    assert log.refresh() == bodies
    assert [len(commit) for commit in log.commits] == [3, 2]
    assert not (log.host.warehouse.notes / "reading" / "s").exists()


def test_a_message_of_100_megabytes_is_read_however_long_it_takes(log):
    large = b"x" * 100_000_000
    send(log, large)
    assert log.refresh() == [large]
    send(log, b"b")
    assert log.refresh() == [b"b"]


@pytest.mark.parametrize("starting", ["latest", "2999-01-01"])
def test_messages_that_came_before_are_left_out(log, starting):
    log.options["starting"] = starting
    send(log, b"a", b"b")
    assert log.refresh() == []
    assert log.position.next == 2
    send(log, b"c")
    assert log.refresh() == [b"c"]


def test_a_time_begins_with_the_messages_from_then_on(log):
    send(log, b"a")
    time.sleep(1.1)
    log.options["starting"] = datetime.now(UTC).isoformat()
    time.sleep(1.1)
    send(log, b"b")
    assert log.refresh() == [b"b"]

    log.position = None
    log.options["starting"] = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    log.open()
    assert log.refresh() == [b"a", b"b"]


@pytest.mark.parametrize("new", [[], [b"a"], [b"a", b"x"], [b"a", b"x", b"c", b"d"]])
def test_a_stream_that_was_made_anew_is_an_error_until_that_is_accepted(log, monkeypatch, new):
    monkeypatch.setattr(stream_module, "SETTLE_SECONDS", 1.0)
    send(log, b"a", b"b")
    log.refresh()
    again(log)
    send(log, *new)
    with pytest.raises(QueueReplacedError, match="was read up to offset 1") as lost:
        log.refresh()
    clause = f"'accept-stream' = '{log.position.loss}'"
    assert clause in str(lost.value)

    log.options["accept-stream"] = log.position.loss
    log.open()
    assert log.refresh() == new
    assert (log.position.generation, log.position.next) == (1, len(new))
    send(log, b"e")
    assert log.refresh() == [b"e"]
    # The clause accepts this one loss.
    again(log)
    send(log, b"y", b"z")
    with pytest.raises(QueueReplacedError):
        log.refresh()


def test_another_stream_is_an_error_that_names_both(log, rabbitmq):
    send(log, b"a")
    log.refresh()
    before = log.options["stream"]
    log.options["stream"] = rabbitmq.new_name("stream")
    rabbitmq.declare(log.options["stream"], "stream")
    log.open()
    with pytest.raises(QueueReplacedError, match=f"{log.options['stream']} is not the one.*{before} was read"):
        log.refresh()


def test_messages_that_expired_unread_are_an_error_until_that_is_accepted(log):
    again(log, x_max_length_bytes=200_000, x_stream_max_segment_size_bytes=100_000)
    send(log, b"first")
    log.refresh()
    send(log, *[b"%04d" % number * 2_500 for number in range(200)])
    gap, left = "", None
    # The broker may go on forgetting between two checks: then the error names a greater gap.
    while left is None:
        with pytest.raises(OffsetsLostError) as lost:
            log.refresh()
        before, gap = gap, str(lost.value).split("'accept-gap' = '")[1].split("'")[0]
        start, end = map(int, gap.split("-"))
        assert start in (0, 1)
        assert end > (int(before.split("-")[1]) if before else 100)
        log.options["accept-gap"] = f"{start}-{end - 1}"
        log.open()
        with pytest.raises(OffsetsLostError):
            log.refresh()
        log.options["accept-gap"] = gap
        log.open()
        with suppress(OffsetsLostError):
            left = log.refresh()
    # Offsets are not those of the messages alone: the broker's own records have some.
    assert [body[:4] for body in left] == [b"%04d" % number for number in range(200 - len(left), 200)]
    assert log.commits[-1][0][0] == end
    assert log.refresh() == []


def test_a_stream_that_is_gone_and_a_queue_in_its_place_are_errors(log, rabbitmq):
    send(log, b"a")
    log.refresh()
    rabbitmq.delete(log.options["stream"])
    with pytest.raises(QueueError, match="there is no stream") as gone:
        log.refresh()
    assert not gone.value.retry_helps
    rabbitmq.declare(log.options["stream"], "classic")
    with pytest.raises(QueueError, match="is a queue. Declare it with 'queue'"):
        log.refresh()
    assert rabbitmq.ready(log.options["stream"]) == 0


@pytest.mark.parametrize("name", ["two words 'a' {b} %2F", "x" * 200])
def test_any_name_can_be_read(log, rabbitmq, name):
    """Any name that the server can make: version 3.10 hangs at most names that are not ASCII."""
    log.options["stream"] = name
    rabbitmq.declare(name, "stream")
    send(log, b"a")
    assert log.refresh() == [b"a"]
    rabbitmq.delete(name)


def test_the_properties_of_a_message_are_in_its_row(log, rabbitmq):
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    headers = {"text": "größe", "whole": -5, "x-stream-offset": 77}
    send(log, b"", message_id="m-1", app_id="shop", timestamp=int(moment.timestamp()), headers=headers)
    send(log, b"2")
    log.open()
    inspection = log.reader.inspect(None, ASKED)
    portion = log.reader.prepare(None, log.reader.cut(inspection, None), None, Cancellation())
    first, second = table_of(portion.rows).to_pylist()

    known = {name.removeprefix("_freshline_"): value for name, value in first.items()}
    assert {each["key"]: each["value"] for each in known.pop("headers")} == {"text": "größe".encode(), "whole": b"-5"}
    assert known.pop(VALUE) == b""
    assert known == {
        "record": 0, "exchange": "", "routing_key": log.options["stream"], "message_id": "m-1", "app_id": "shop",
        "timestamp": moment, "redelivered": False, "digest": None, "verdict": None,
    }  # fmt: skip
    assert (second["_freshline_timestamp"], second["_freshline_headers"]) == (None, None)


@pytest.mark.long
def test_a_broker_that_goes_and_comes_back_is_read_on(log, rabbitmq):
    send(log, b"a")
    log.refresh()
    rabbitmq.stop()
    with pytest.raises(BrokerError) as away:
        log.refresh()
    assert away.value.retry_helps
    rabbitmq.start()
    # The broker has begun to answer, and does not find its stream for a while.
    while True:
        with suppress(BrokerError):
            assert log.refresh() == []
            break
    send(log, b"b")
    assert log.refresh() == [b"b"]


def test_a_union_read_has_the_tail_and_says_when_it_is_too_long(log, monkeypatch):
    send(log, b"a")
    log.refresh()
    start = log.position
    send(log, b"b", b"c")
    found, end = log.reader.find_tail(start, 1, ASKED)
    assert (found, end.next) == (start, 3)
    tail = log.reader.tail(None, start, end, start, ASKED)
    assert table_of(tail.unread.rows)[VALUE].to_pylist() == [b"b", b"c"]
    assert log.reader.tail(None, end, end, end, ASKED).unread is None

    monkeypatch.setattr(stream_module, "MOST_TAIL_BYTES", 10)
    with pytest.raises(RequestError, match="freshline refresh s"):
        log.reader.tail(None, start, end, start, ASKED)


def test_a_token_of_a_stream_that_was_made_anew_is_refused(log):
    send(log, b"a")
    log.refresh()
    start = log.position
    send(log, b"b")
    _, end = log.reader.find_tail(start, 1, ASKED)
    again(log)
    send(log, b"a", b"other")
    with pytest.raises(QueueReplacedError, match="Read anew"):
        log.reader.tail(None, start, end, start, ASKED)
