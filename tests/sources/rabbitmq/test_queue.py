"""Queues of a real RabbitMQ, read without Spark: messages are read, acknowledged, kept and given back.

A commit is a position that is kept, as the receipt keeps it. Spark distinguishes committed messages that are sent
again from new ones, so that is tested with the stories.
"""

from __future__ import annotations

import struct
import time
from datetime import UTC, datetime
from decimal import Decimal

import pika
import pytest

from freshline.compute.cancellation import Cancellation
from freshline.errors import (
    BrokerError,
    CancelledError,
    OffsetsLostError,
    QueueError,
    QueueForeignError,
    QueueReplacedError,
    StorageError,
)
from freshline.sources.rabbitmq import queue as queue_module
from freshline.sources.rabbitmq.position import QueuePosition
from freshline.sources.reader import ReadRequest
from freshline.testing.crash import Crash
from tests.sources.rabbitmq.reading import Log, records, rows_of
from tests.sources.reading import Host, table_of

pytestmark = pytest.mark.seconds

ASKED = ReadRequest(Cancellation())
KINDS = ("classic", "quorum")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def made(rabbitmq, tmp_path, kind, **arguments):
    name = rabbitmq.new_name(kind)
    rabbitmq.declare(name, kind, **arguments)
    return Log(Host(tmp_path), rabbitmq, {"queue": name}, columns="id INT, PRIMARY KEY (id)")


@pytest.fixture
def log(rabbitmq, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("BROKER", rabbitmq.url)
    log = made(rabbitmq, tmp_path, kind)
    yield log
    log.close()


def send(log, *bodies, **properties):
    log.server.send(log.options["queue"], bodies, **properties)


def ready(log):
    return log.server.ready(log.options["queue"])


def received(log):
    """A batch that is received and not committed; the reader, what it has, and the portion."""
    reader = log.reader or log.open()
    inspection = reader.inspect(log.position, ASKED)
    portion = reader.prepare(None, reader.cut(inspection, log.position), None, Cancellation())
    return reader, [body for _, body in records(rows_of(portion))], portion


def test_each_message_is_read_once_and_acknowledged(log):
    assert log.refresh() == []
    send(log, b"a", b"b")
    assert log.refresh() == [b"a", b"b"]
    assert log.refresh() == []
    log.open()
    assert ready(log) == 0
    send(log, b"c")
    assert log.refresh() == [b"c"]
    assert log.commits == [[], [(0, b"a"), (1, b"b")], [(2, b"c")]]


def test_a_queue_is_read_in_several_commits_and_steps(log, monkeypatch):
    monkeypatch.setattr(queue_module, "BATCH_MESSAGES", 40)
    bodies = [b"%d" % number for number in range(100)]
    send(log, *bodies)

    assert log.refresh() == bodies
    assert [len(commit) for commit in log.commits] == [40, 40, 20]


def test_large_messages_wait_in_files_and_end_a_commit(log, monkeypatch):
    monkeypatch.setattr(queue_module, "BATCH_BYTES", 30_000_000)
    monkeypatch.setattr(queue_module, "FIRST_MESSAGES", 2)
    bodies = [bytes([number]) * 10_000_000 for number in range(5)]
    send(log, *bodies)

    assert log.refresh() == bodies
    assert [len(commit) for commit in log.commits] == [3, 2]
    assert not (log.host.warehouse.notes / "reading" / "s").exists()


def test_a_batch_that_was_not_committed_is_kept_and_not_sent_again(log):
    send(log, b"a", b"b")
    reader, first, _ = received(log)
    send(log, b"c")
    assert ready(log) == 1
    _, second, portion = received(log)

    assert first == second == [b"a", b"b"]
    assert not portion.held.has_redelivered
    assert log.refresh() == [b"a", b"b", b"c"]
    assert (reader, ready(log)) == (log.reader, 0)


def test_a_batch_whose_commit_nobody_heard_of_is_acknowledged(log):
    send(log, b"a")
    _, _, portion = received(log)
    log.position = portion.after
    send(log, b"b")
    assert log.refresh() == [b"b"]
    log.open()
    assert ready(log) == 0


def test_killed_before_the_acknowledgement_it_is_sent_again_with_a_mark(log):
    send(log, b"a")
    log.open()
    log.host.stop_at = "queue-before-acknowledged"
    with pytest.raises(Crash):
        log.refresh()
    log.host.stop_at = ""
    log.open()
    _, bodies, portion = received(log)

    assert bodies == [b"a"]
    assert portion.held.may_be_known
    assert portion.held.has_redelivered


def test_messages_read_after_the_queue_was_empty_were_never_sent_before(log):
    send(log, b"a", b"b")
    assert received(log)[2].held.may_be_known
    log.refresh()
    send(log, b"c")
    _, _, portion = received(log)

    assert not portion.held.may_be_known
    assert portion.clean


def test_a_log_that_was_put_back_is_an_error_until_that_is_accepted(log):
    send(log, b"a")
    log.refresh()
    before = log.position
    send(log, b"b")
    log.refresh()
    send(log, b"c")
    received(log)
    log.position = before
    with pytest.raises(OffsetsLostError, match="'accept-gap' = '1-2'"):
        log.refresh()

    log.options["accept-gap"] = "1-2"
    log.open()
    assert log.refresh() == [b"c"]
    assert (log.position.messages, log.commits[-1]) == (3, [(2, b"c")])
    send(log, b"d")
    assert log.refresh() == [b"d"]


def test_a_batch_is_given_back_when_the_log_goes_on_from_elsewhere(log):
    send(log, b"a", b"b")
    received(log)
    log.position = QueuePosition(log.options["queue"], 7)

    assert sorted(log.refresh()) == [b"a", b"b"]
    assert log.position.messages == 9


def test_a_request_that_is_cancelled_gives_everything_back(log):
    send(log, b"a", b"b")
    reader = log.open()
    inspection = reader.inspect(None, ASKED)
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(CancelledError):
        reader.prepare(None, reader.cut(inspection, None), None, cancellation)

    assert sorted(log.refresh()) == [b"a", b"b"]


def test_somebody_else_who_consumes_is_an_error(log, monkeypatch, rabbitmq):
    monkeypatch.setattr(queue_module, "_SETTLE_SECONDS", 0.5)
    send(log, b"a")
    with pika.BlockingConnection(rabbitmq.parameters) as other:
        channel = other.channel()
        channel.basic_qos(prefetch_count=1)
        tag = channel.basic_consume(log.options["queue"], lambda *message: None)
        with pytest.raises(QueueForeignError, match="consumed by somebody else"):
            log.refresh()
        channel.basic_cancel(tag)
    assert log.refresh() == [b"a"]


def test_a_queue_with_a_single_active_consumer_is_read(rabbitmq, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("BROKER", rabbitmq.url)
    log = made(rabbitmq, tmp_path, kind, x_single_active_consumer=True)
    send(log, b"a")
    assert log.refresh() == [b"a"]
    send(log, b"b")
    assert log.refresh() == [b"b"]
    log.close()


def test_messages_that_expired_are_no_reason_to_wait(rabbitmq, tmp_path, monkeypatch):
    monkeypatch.setenv("BROKER", rabbitmq.url)
    log = made(rabbitmq, tmp_path, "classic")
    send(log, b"a", expiration="300")
    reader = log.open()
    inspection = reader.inspect(None, ASKED)
    assert inspection.left == 1
    deadline = time.monotonic() + 30.0
    while ready(log):
        assert time.monotonic() < deadline, "the message did not expire"
        time.sleep(0.05)
    portion = reader.prepare(None, reader.cut(inspection, None), None, Cancellation())
    assert (portion.after.messages, portion.left, portion.at) == (0, 0, inspection.at)
    assert reader.cut(inspection, portion.after) is None
    log.close()


def test_messages_of_higher_priority_come_first(rabbitmq, tmp_path, monkeypatch):
    monkeypatch.setenv("BROKER", rabbitmq.url)
    log = made(rabbitmq, tmp_path, "classic", x_max_priority=3)
    send(log, b"low", priority=1)
    send(log, b"high", priority=3)
    assert log.refresh() == [b"high", b"low"]
    log.close()


def test_a_queue_that_is_gone_a_stream_and_another_queue_are_errors(log, rabbitmq):
    send(log, b"a")
    log.refresh()
    log.reader.close()
    rabbitmq.delete(log.options["queue"])
    with pytest.raises(QueueError, match="there is no queue"):
        log.refresh()
    rabbitmq.declare(log.options["queue"], "stream")
    send(log, b"x")
    while not ready(log):
        pass
    for position in (log.position, None):
        log.position, before = position, log.position
        with pytest.raises(QueueError, match="is a stream. Declare it with 'stream'"):
            log.refresh()
        log.position = before

    before = log.options["queue"]
    log.options["queue"] = rabbitmq.new_name("classic")
    rabbitmq.declare(log.options["queue"], "classic")
    send(log, b"b")
    log.open()
    with pytest.raises(QueueReplacedError, match=f"{before} was read before, and queue {log.options['queue']}"):
        log.refresh()
    log.options["accept-queue"] = before
    log.open()
    assert log.refresh() == [b"b"]
    assert log.position.queue == log.options["queue"]


def test_any_name_can_be_read(log, rabbitmq, kind):
    for name in (f"{kind} größe 数 \"x\" 'y' %2F {{a}}", "é" * 127 + "x", " "):
        rabbitmq.declare(name, kind)
        log.options["queue"], log.position = name, None
        send(log, b"a")
        log.open()
        assert log.refresh() == [b"a"]
        rabbitmq.delete(name)


def test_the_properties_of_a_message_are_in_its_row_and_none_of_them_stops_a_source(log, rabbitmq):
    exchange = rabbitmq.new_name("exchange")
    rabbitmq.channel.exchange_declare(exchange, "topic")
    rabbitmq.channel.queue_bind(log.options["queue"], exchange, "#")
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    headers = {
        "text": "größe", "none": None, "bytes": b"\xff\x00", "yes": True, "whole": -5, "large": 2**60,
        "decimal": Decimal("-1.50"), "time": moment, "list": [1, "a", None, moment], "table": {"a": {"b": b"\xff"}},
        "x-stream-offset": 77, "x-delivery-count": 5, "": "empty",
    }  # fmt: skip
    given = pika.BasicProperties(
        message_id="m-1", app_id="shop", timestamp=int(moment.timestamp()), headers=headers, priority=3
    )
    rabbitmq.channel.basic_publish(exchange, "order.größe", b"", given)
    rabbitmq.channel.basic_publish(exchange, b"\xff".decode("latin-1"), b"2", pika.BasicProperties(timestamp=2**63))
    _, _, portion = received(log)
    first, second = table_of(portion.held.rows).to_pylist()

    known = {name.removeprefix("_freshline_"): value for name, value in first.items()}
    found = {each["key"]: each["value"] for each in known.pop("headers")}
    assert len(known.pop("digest")) == 16
    assert known.pop("value") == b""
    assert known == {
        "record": 0, "exchange": exchange, "routing_key": "order.größe", "message_id": "m-1",
        "app_id": "shop", "timestamp": moment, "redelivered": False, "verdict": None,
    }  # fmt: skip
    assert found == {
        "text": "größe".encode(), "none": None, "bytes": b"\xff\x00", "yes": b"true", "whole": b"-5",
        "large": str(2**60).encode(), "decimal": b"-1.5", "time": b"2026-01-02T03:04:05+00:00",
        "list": b'[1, "a", null, "2026-01-02T03:04:05+00:00"]', "table": b'{"a": {"b": "\\\\xff"}}', "": b"empty",
    }  # fmt: skip
    assert (second["_freshline_timestamp"], second["_freshline_headers"]) == (None, None)


def test_a_message_without_an_id_is_rejected_where_ids_are_the_identity(log):
    log.columns = "id INT"
    log.options["identity"] = "message-id"
    send(log, b"a", message_id="1")
    send(log, b"b")
    _, _, portion = received(log)

    assert table_of(portion.held.rows)["_freshline_verdict"].to_pylist() == [None, "NO_MESSAGE_ID"]


def test_the_digest_of_a_message_is_the_same_when_it_is_sent_again(log):
    send(log, b"a", headers={"n": 1, "l": [Decimal("1.5"), True]}, message_id="1", timestamp=5)
    _, _, portion = received(log)
    (before,) = table_of(portion.held.rows)["_freshline_digest"].to_pylist()
    log.open()
    _, _, portion = received(log)
    (row,) = table_of(portion.held.rows).to_pylist()

    assert (row["_freshline_digest"], row["_freshline_redelivered"]) == (before, True)


@pytest.mark.security
@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        ("amqp://guest:wrong@127.0.0.1:{port}", QueueError, "the user or the password"),
        ("amqp://guest:hunter2-is-the-secret@127.0.0.1:{port}/nowhere", QueueError, "the virtual host"),
        ("amqp://guest:hunter2-is-the-secret@127.0.0.1:{tls_port}", BrokerError, "does not answer"),
        (
            "amqps://guest:hunter2-is-the-secret@localhost:{tls_port}",
            QueueError,
            "certificate of the broker is not accepted",
        ),
        ("amqps://guest:hunter2-is-the-secret@localhost:{port}", BrokerError, "does not answer"),
        ("amqp://guest:hunter2-is-the-secret@127.0.0.1:1", BrokerError, "does not answer"),
        ("amqp://guest:hunter2-is-the-secret@nowhere.invalid", BrokerError, "host that `url` names is not known"),
        ("postgres://guest:hunter2-is-the-secret@127.0.0.1", QueueError, "no address, such as"),
        ("amqp://guest:hunter2-is-the-secret@[127", QueueError, "no address, such as"),
        ("amqp://guest:hunter2-is-the-secret@127.0.0.1/?heartbeat=0", QueueError, "no parameters"),
    ],
)
def test_a_broker_that_refuses_or_is_away(rabbitmq, tmp_path, monkeypatch, url, error, said):
    log = made(rabbitmq, tmp_path, "classic")
    monkeypatch.setenv("BROKER", url.format(port=rabbitmq.port, tls_port=rabbitmq.tls_port))
    with pytest.raises(error, match=said) as refused:
        log.refresh()
    assert refused.value.retry_helps == (error is BrokerError)
    assert "hunter2" not in str(refused.value)
    assert "guest" not in str(refused.value)
    log.close()


@pytest.mark.security
def test_a_connection_with_tls_is_verified_by_the_certificate_that_is_named(rabbitmq, tmp_path, monkeypatch):
    log = made(rabbitmq, tmp_path, "classic")
    log.options["tls.ca"] = str(rabbitmq.folder / "certificate.pem")
    monkeypatch.setenv("BROKER", rabbitmq.tls_url)
    send(log, b"a")
    assert log.refresh() == [b"a"]

    monkeypatch.setenv("BROKER", rabbitmq.tls_url.replace("localhost", "127.0.0.1"))
    with pytest.raises(QueueError, match="certificate of the broker is not accepted"):
        log.refresh()
    monkeypatch.setenv("BROKER", rabbitmq.url)
    with pytest.raises(QueueError, match="'tls.ca' is for an address that begins with amqps"):
        log.refresh()
    log.close()


@pytest.mark.long
def test_a_broker_that_goes_while_a_batch_is_kept_sends_it_again(log, rabbitmq):
    send(log, b"a", b"b")
    received(log)
    rabbitmq.stop()
    with pytest.raises(BrokerError):
        log.refresh()
    rabbitmq.start()
    _, bodies, portion = received(log)

    assert sorted(bodies) == [b"a", b"b"]
    assert portion.held.may_be_known


@pytest.mark.long
def test_a_broker_that_hangs_is_away(log, rabbitmq):
    send(log, b"a")
    log.refresh()
    send(log, b"b")
    with rabbitmq.hanging(), pytest.raises(BrokerError):
        log.refresh()
    assert log.refresh() == [b"b"]


class RawProperties(pika.BasicProperties):  # type: ignore[misc] # pika ships no types
    """Properties as the bytes that are given."""

    def __init__(self, data):
        super().__init__()
        self.data = data

    def encode(self):
        return [self.data]


def test_values_that_pika_does_not_read_exactly_are_read_and_stop_no_source(rabbitmq, tmp_path, monkeypatch):
    """pika itself cuts the fraction off, and ends the connection at the time, at the same message each time."""
    monkeypatch.setenv("BROKER", rabbitmq.url)
    log = made(rabbitmq, tmp_path, "classic")
    for value in (b"d" + struct.pack(">d", 1.5), b"T" + struct.pack(">Q", 2**62)):
        header = b"\x01h" + value
        properties = RawProperties(struct.pack(">HI", 1 << 13, len(header)) + header)
        rabbitmq.channel.basic_publish("", log.options["queue"], b"a", properties)
    _, bodies, portion = received(log)

    assert bodies == [b"a", b"a"]
    found = table_of(portion.held.rows)["_freshline_headers"].to_pylist()
    assert found == [[{"key": "h", "value": b"1.5"}], [{"key": "h", "value": str(2**62).encode()}]]
    log.close()


def test_a_disk_that_is_full_gives_everything_back(log, monkeypatch):
    send(log, b"a", b"b")
    reader = log.open()
    inspection = reader.inspect(None, ASKED)

    def full(*_):
        raise OSError(28, "No space left on device")

    cut = reader.cut(inspection, None)
    with monkeypatch.context() as patch:
        patch.setattr("freshline.sources.rabbitmq.rows.MessageRows.add", full)
        with pytest.raises(StorageError, match="No space left"):
            reader.prepare(None, cut, None, Cancellation())
    # An acknowledgement is noted first: where that fails, nothing is acknowledged, and the messages come again.
    with monkeypatch.context() as patch:
        patch.setattr("freshline.sources.rabbitmq.queue.write_note", full)
        with pytest.raises(StorageError, match="cannot be noted"):
            log.refresh()
    _, bodies, portion = received(log)

    assert sorted(bodies) == [b"a", b"b"]
    assert portion.held.has_redelivered


def test_messages_that_are_asked_for_are_acknowledged_with_those_that_were_on_their_way(log):
    """The queue gets more than were counted, one of them by the question whether it is empty."""
    send(log, b"a")
    reader = log.open()
    inspection = reader.inspect(None, ASKED)
    send(log, *[b"%d" % number for number in range(50)])
    portion = reader.prepare(None, reader.cut(inspection, None), None, Cancellation())
    log.commits.append(records(rows_of(portion)))
    log.position = portion.after
    reader.release(portion, seconds=1.0, rejected=0)
    log.refresh()
    log.open()

    assert sorted(log.bodies) == sorted([b"a", *[b"%d" % number for number in range(50)]])
    assert ready(log) == 0
