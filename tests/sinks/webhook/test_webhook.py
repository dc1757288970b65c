"""Changes that go out to a webhook: posts in order, repeated with the same key, and answers of all kinds."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from freshline.errors import (
    SinkError,
    SinkFencedError,
    SinkRefusedError,
    SinkRejectedError,
    SinkSchemaError,
)
from freshline.sinks.webhook.sink import WebhookSink
from freshline.sinks.webhook.writer import WebhookWriter
from freshline.values.sink import JSON, OnReject
from tests.report.alerts.servers import make_certificate
from tests.servers.web import Answer, Fault, web_server
from tests.sinks.delivering import Host, Rows, Sending, declared_sink, position, sink_spec


@dataclass
class Posting(Sending):
    """Deliveries that note for how long they would wait."""

    paused: list[float] = field(default_factory=list)

    def open(self):
        return WebhookWriter(self.spec, self.host, self.paused.append)


@pytest.fixture
def send(tmp_path, webhook, monkeypatch):
    monkeypatch.setenv("HOOK", webhook.url + "/in")
    monkeypatch.setenv("HOOK_SECRET", "hunter2")

    def make(*, on_reject=OnReject.FAIL, **options):
        sink = WebhookSink(
            url="${env:HOOK}",
            secret="${env:HOOK_SECRET}",
            **{"private_addresses": True, "rows_per_request": 2, **options},
        )
        return Posting(sink_spec(sink, on_reject=on_reject), Host(tmp_path))

    return make


def numbers(*values):
    return pa.table({"id": pa.array(values, pa.int32()), "v": pa.array([f"v{value}" for value in values], pa.string())})


def posts(webhook):
    """The key and the lines of each post that was taken."""
    return [
        (each.headers["Idempotency-Key"], [json.loads(line) for line in each.body.splitlines()])
        for each in webhook.received
        if each.answered == 200
    ]


def lines(webhook):
    return [line for _, found in posts(webhook) for line in found]


def test_a_snapshot_comes_first_and_changes_follow_in_order(send, webhook):
    out = send()
    assert out.writer.position() is None
    assert out.whole(numbers(1, 2, 3), 1).written == 3
    assert [key for key, _ in posts(webhook)] == ["out/big/1/0", "out/big/1/1", "out/big/1/2"]
    begin, *rows, end = lines(webhook)
    assert (begin["op"], begin["kind"], begin["table"], begin["key"]) == ("begin", "snapshot", "big", ["id"])
    assert begin["position"]["seq"] == 1
    assert rows == [{"op": "upsert", "row": {"id": n, "v": f"v{n}"}} for n in (1, 2, 3)]
    assert end == {"op": "end", "kind": "snapshot", "rows": 3}
    assert out.writer.position() == position(1)
    webhook.received.clear()
    assert out.changes(Rows(numbers(4), numbers(1)), 1, 2).deleted == 1
    assert [(key, [line["op"] for line in found]) for key, found in posts(webhook)] == [
        ("out/big/2/0", ["begin", "delete"]),
        ("out/big/2/1", ["upsert", "end"]),
    ]
    # The key alone: the row is gone.
    assert lines(webhook)[1] == {"op": "delete", "row": {"id": 1}}


def test_each_post_is_signed_with_the_time_and_shows_no_secret(send, webhook):
    out = send()
    out.whole(numbers(1), 1)
    for each in webhook.received:
        assert each.headers["Content-Type"] == "application/x-ndjson"
        seconds, _, given = each.headers["Freshline-Signature"].removeprefix("t=").partition(",v1=")
        assert int(seconds) == out.host.now.timestamp()
        meant = hmac.new(b"hunter2", seconds.encode() + b"." + each.body, hashlib.sha256).hexdigest()
        assert given == meant
    kept = b"".join(file.read_bytes() for file in out.host.root.rglob("*") if file.is_file())
    assert b"hunter2" not in kept
    assert webhook.url.encode() not in kept


@pytest.mark.parametrize("point", ["sink-post-confirmed", "sink-before-commit", "sink-committed"])
def test_a_stop_repeats_at_most_one_post_with_the_same_key_and_bytes(send, webhook, point):
    out = send()
    out.whole(numbers(1), 1)
    webhook.received.clear()
    with out.stopping_at(point):
        out.changes(Rows(numbers(2, 3, 4), numbers(1)), 1, 2)
    # The table has moved on; and first the delivery ends that was begun.
    assert out.writer.position() == position(2)
    assert [key for key, _ in posts(webhook)] == ["out/big/2/0", "out/big/2/1", "out/big/2/2"]
    assert [line["row"]["id"] for line in lines(webhook) if "row" in line] == [1, 2, 3, 4]
    out.changes(Rows(numbers(5)), 2, 3)
    assert posts(webhook)[-1][0].startswith("out/big/3/")


def test_an_answer_that_is_lost_is_asked_for_again_with_the_same_key(send, webhook):
    out = send(timeout=1)
    webhook.next(Fault.CUT)
    webhook.next(Fault.CUT_IN_REQUEST)
    webhook.next(Answer(503, headers={"Retry-After": "7"}))
    webhook.next(429)
    out.whole(numbers(), 1)
    assert [each.headers["Idempotency-Key"] for each in webhook.received] == ["out/big/1/0"] * 5
    assert len({each.body for each in webhook.received if each.answered is not None}) == 1
    assert out.paused == [0.5, 1.0, 7.0, 4.0]


def test_a_service_that_hangs_ends_after_the_timeout_and_the_delivery_goes_on_later(send, webhook):
    out = send(timeout=1)
    webhook.next(200)
    webhook.next(Fault.HANG, times=5)
    begun = time.monotonic()
    with pytest.raises(SinkError, match="did not answer in time") as failed:
        out.whole(numbers(1, 2, 3), 1)
    assert failed.value.retry_helps
    assert time.monotonic() - begun < 10
    webhook.release()
    webhook.received.clear()
    assert out.writer.position() == position(1)
    assert [key for key, _ in posts(webhook)] == ["out/big/1/1", "out/big/1/2"]


def test_a_long_wait_is_left_to_the_engine(send, webhook):
    out = send()
    webhook.next(Answer(429, headers={"Retry-After": "3600"}))
    with pytest.raises(SinkError, match="429"):
        out.whole(numbers(1), 1)
    assert (out.paused, len(webhook.received)) == ([], 1)


@pytest.mark.parametrize("status", [301, 401, 403, 404, 410])
def test_a_service_that_refuses_is_not_asked_again_and_goes_on_when_it_is_corrected(send, webhook, status):
    out = send(on_reject=OnReject.QUARANTINE)
    webhook.next(Answer(status, headers={"Location": webhook.url + "/elsewhere"}))
    with pytest.raises(SinkRefusedError, match=str(status)):
        out.whole(numbers(1), 1)
    assert [each.path for each in webhook.received] == ["/in"]
    assert out.writer.position() == position(1)


def test_rows_that_are_refused_are_found_and_set_aside(send, webhook):
    out = send(on_reject=OnReject.QUARANTINE, rows_per_request=8)
    # The post of 8 lines, its first half, and of that the second; there the row that is the first of two.
    for status in (422, 422, 200, 422, 422, 200, 200):
        webhook.next(status)
    out.whole(numbers(*range(6)), 1)
    assert [(each.headers["Idempotency-Key"], each.answered) for each in webhook.received] == [
        ("out/big/1/0", 422),
        ("out/big/1/0:0-4", 422),
        ("out/big/1/0:0-2", 200),
        ("out/big/1/0:2-4", 422),
        ("out/big/1/0:2-3", 422),
        ("out/big/1/0:3-4", 200),
        ("out/big/1/0:4-8", 200),
    ]
    assert [(each.row, each.code) for each in out.rejected] == [('{"id": 1, "v": "v1"}', "422")]
    assert out.writer.position() == position(1)


def test_a_refused_row_fails_and_all_rows_come_next_under_another_number(send, webhook):
    out = send()
    out.whole(numbers(1), 1)
    webhook.next(422)
    with pytest.raises(SinkRejectedError, match="422"):
        out.changes(Rows(numbers(2)), 1, 2)
    assert out.writer.position() is None
    webhook.received.clear()
    out.whole(numbers(1, 2), 2)
    assert {key.rpartition("/")[0] for key, _ in posts(webhook)} == {"out/big/3"}
    assert lines(webhook)[0]["kind"] == "snapshot"


def test_texts_that_json_has_not_are_rows_that_are_not_taken(send, webhook):
    texts = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    rows = pa.table([pa.array([1, 2]), texts], names=["id", "v"])
    with pytest.raises(SinkRejectedError, match="UTF-8"):
        send().whole(rows, 1)
    assert webhook.received == []
    out = send(on_reject=OnReject.QUARANTINE)
    assert out.whole(rows, 1).written == 1
    assert [(each.row, each.code) for each in out.rejected] == [('{"id": 2}', "NOT_UTF8")]


def test_addresses_within_a_network_are_refused_unless_they_are_meant(send, webhook, monkeypatch):
    with pytest.raises(SinkRefusedError, match="does not begin with https") as failed:
        send(private_addresses=False).whole(numbers(1), 1)
    assert str(webhook.port) not in str(failed.value)
    monkeypatch.setenv("HOOK", f"https://localhost:{webhook.port}/in?key=hunter3")
    with pytest.raises(SinkRefusedError, match="'private-addresses' = 'true'") as failed:
        send(private_addresses=False).writer.position()
    assert "hunter3" not in str(failed.value)
    assert webhook.received == []


def test_owners_epochs_and_damaged_notes_are_refused(send, webhook):
    out = send()
    out.whole(numbers(1), 1, epoch=2)
    webhook.received.clear()
    for other in ({"epoch": 1}, {"epoch": 2, "owner": "other 1"}):
        with pytest.raises(SinkFencedError):
            out.whole(numbers(1), 2, **other)
    assert webhook.received == []
    (out.host.sink_notes / "out" / "position.json").write_bytes(b"{")
    with pytest.raises(SinkSchemaError, match="damaged"):
        out.writer.position()


def test_values_of_all_types_are_json(send, webhook):
    local = datetime.fromisoformat("2026-03-29 02:30:00.000001")
    rows = pa.table(
        {
            "id": pa.array([1]),
            'x"\n': ['\u00e9"\n'],
            "f": pa.array([1.1], pa.float32()),
            "g": [float("nan")],
            "d": [Decimal("12345678901234567.890")],
            "b": [b"\x00\xff"],
            "day": [date(1, 1, 1)],
            "at": pa.array([datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)], pa.timestamp("us", "UTC")),
            "local": [local],
            "no": pa.array([None], pa.bool_()),
            "nested": ['{"a": [1.50]}'],
        }
    )
    place = rows.schema.get_field_index("nested")
    sent = Rows(rows)
    # The note is in the columns of all rows, and not in those of a batch.
    sent.schema = rows.schema.set(place, rows.schema.field(place).with_metadata({JSON: b""}))
    send(rows_per_request=10).whole(sent, 1)
    assert lines(webhook)[1]["row"] == {
        "id": 1,
        'x"\n': '\u00e9"\n',
        "f": 1.1,
        "g": "NaN",
        "d": "12345678901234567.890",
        "b": "AP8=",
        "day": "0001-01-01",
        "at": "9999-12-31T23:59:59.999999Z",
        "local": "2026-03-29T02:30:00.000001",
        "no": None,
        "nested": {"a": [1.5]},
    }


def test_a_private_authority_and_a_certificate_of_the_client_are_declared(tmp_path, monkeypatch):
    authority, key = make_certificate(tmp_path)
    monkeypatch.setenv("HOOK_SECRET", "hunter2")

    def make(**tls):
        sink = WebhookSink("${env:HOOK}", "${env:HOOK_SECRET}", private_addresses=True, **tls)
        return Posting(sink_spec(sink), Host(tmp_path))

    with web_server(certificate=(authority, key), asks_for=authority) as front:
        monkeypatch.setenv("HOOK", front.url + "/in")
        files = {"tls_ca": str(authority), "tls_certificate": str(authority), "tls_key": str(key)}
        assert make(**files).whole(numbers(1), 1).written == 1
        assert front.received
        front.received.clear()
        # Without its own certificate the service ends the connection, which may be otherwise soon.
        with pytest.raises(SinkError):
            make(tls_ca=str(authority)).changes(Rows(numbers(2)), 1, 2)
        monkeypatch.setenv("HOOK", front.url.replace("localhost", "127.0.0.1") + "/in")
        for out, sentence in (
            (make(), "certificate that is not accepted: self-signed certificate.*tls.ca"),
            (make(**files), "certificate that is not accepted: IP address mismatch"),
            (make(tls_ca=str(tmp_path / "missing")), "No such file"),
            (make(tls_ca=str(key)), "cannot be used"),
        ):
            with pytest.raises(SinkRefusedError, match=sentence) as caught:
                out.writer.position()
            assert not caught.value.retry_helps
            assert out.paused == []
            assert "hunter2" not in str(caught.value)
        assert front.received == []
        # The delivery that was stopped goes on with the right files.
        monkeypatch.setenv("HOOK", front.url + "/in")
        assert make(**files).writer.position() == position(2)


def test_the_files_of_tls_stand_below_the_project(tmp_path):
    options = "'connector' = 'webhook', 'url' = '${env:HOOK}', 'secret' = '${env:S}', 'tls.ca' = 'ca.pem'"
    (tmp_path / "ca.pem").write_text("")
    sink = declared_sink(tmp_path, options).sink
    assert isinstance(sink, WebhookSink)
    assert sink.tls_ca == str(tmp_path / "ca.pem")
