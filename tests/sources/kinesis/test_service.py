"""The service as it is asked: what it refuses, what is tried again, where a source begins, and how much is read."""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from freshline.compute.cancellation import Cancellation
from freshline.errors import BrokerError, CancelledError, RequestError, StreamError
from freshline.sources.kinesis import client as client_module
from freshline.sources.reader import ReadRequest
from freshline.values.format import VALUE
from tests.kinesis import empty_page, error, page_of_a_proxy, running_kinesis
from tests.sources.kinesis.reading import Log, numbered, rows_of
from tests.sources.reading import Host

pytestmark = pytest.mark.seconds

FIRST = "shardId-000000000000"
SECRET = "hunter2-is-the-secret"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.001)


# -- errors


@pytest.mark.parametrize(
    "answer",
    [
        error("ProvisionedThroughputExceededException"),
        error("LimitExceededException"),
        error("KMSThrottlingException"),
        error("InternalFailure", 500),
        error("ServiceUnavailable", 503),
        error("SlowDown", 429),
        error("", 502),
        page_of_a_proxy(b"<html>Sign in</html>"),
        page_of_a_proxy(b"{}"),
        page_of_a_proxy(b'"text"'),
        page_of_a_proxy(b"[1]"),
        page_of_a_proxy(b"\xff"),
    ],
)
def test_a_service_that_is_busy_is_asked_again(log, kinesis, quick, answer):
    kinesis.send(log.stream, numbered(0, 3))
    for operation in ("DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"):
        kinesis.answers[operation] = [answer, answer]

    assert log.refresh() == numbered(0, 3)
    assert not any(kinesis.answers.values())


def test_one_that_stays_busy_is_an_error_that_is_tried_again(log, kinesis, quick):
    log.refresh()
    kinesis.answers["GetRecords"] = [error("ProvisionedThroughputExceededException")] * 8
    with pytest.raises(BrokerError, match="ProvisionedThroughputExceededException") as raised:
        log.refresh()

    assert raised.value.retry_helps
    assert not kinesis.answers["GetRecords"]
    assert log.refresh() == []


@pytest.mark.security
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (error("UnrecognizedClientException", message=f"token {SECRET}"), "refuses the access key"),
        (error("InvalidSignatureException", message=f"the canonical string has {SECRET}"), "refuses the access key"),
        (error("ExpiredTokenException"), "refuses the access key"),
        (error("AccessDeniedException", message="User: x is not authorized"), "x is not authorized"),
        (error("KMSAccessDeniedException"), "KMSAccessDeniedException"),
        (error("ResourceNotFoundException"), "there is no stream"),
    ],
)
def test_a_request_that_the_service_refuses_is_sent_once(log, kinesis, quick, answer, said):
    kinesis.answers["DescribeStreamSummary"] = [answer]
    kinesis.asked.clear()
    with pytest.raises(StreamError, match=said) as raised:
        log.refresh()

    assert not raised.value.retry_helps
    assert kinesis.asked == {"DescribeStreamSummary": 1}
    assert SECRET not in f"{raised.value}{raised.value.__cause__!r}"


def test_a_stream_that_is_not_there_and_keys_that_are_not(log, kinesis, monkeypatch, tmp_path):
    log.stream = "none"
    with pytest.raises(StreamError, match="no stream none at http"):
        log.refresh()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    log.open()
    with pytest.raises(StreamError, match="finds no access key"):
        log.refresh()


def test_keys_are_references_that_are_read_when_they_are_used(log, kinesis, monkeypatch, tmp_path):
    (tmp_path / "key").write_text("first\n", encoding="utf-8")
    log.options |= {"access-key-id": "${env:AWS_ACCESS_KEY_ID}", "secret-access-key": "${file:key}"}
    kinesis.send(log.stream, numbered(0, 1))
    assert log.refresh() == numbered(0, 1)
    before = log.reader._client._client
    assert log.refresh() == []
    assert log.reader._client._client is before
    (tmp_path / "key").write_text("second\n", encoding="utf-8")
    assert log.refresh() == []
    assert log.reader._client._client is not before


def test_a_service_that_is_away_costs_nothing(log, kinesis, quick):
    kinesis.send(log.stream, numbered(0, 2))
    log.refresh()
    kinesis.stop()
    with pytest.raises(BrokerError, match="tried again"):
        log.refresh()
    kinesis.start()
    kinesis.send(log.stream, numbered(2, 3))

    assert log.refresh() == numbered(2, 3)


def test_a_service_that_hangs_is_left(log, kinesis, quick, monkeypatch):
    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.2)
    log.open()
    with kinesis.hanging(), pytest.raises(BrokerError):
        log.refresh()
    assert log.refresh() == []


def test_waiting_for_a_busy_service_ends_when_it_is_cancelled(log, kinesis):
    log.refresh()
    kinesis.answers["GetRecords"] = [error("ProvisionedThroughputExceededException")] * 8
    cancellation = Cancellation()
    timer = threading.Timer(0.5, cancellation.cancel)
    timer.start()
    begun = time.monotonic()
    with pytest.raises(CancelledError):
        log.inspect(cancellation)

    assert time.monotonic() - begun < 5
    timer.join()


def test_tls_is_verified(tmp_path, monkeypatch, quick):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    files = (tmp_path / "certificate.pem", tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost", "-keyout", str(files[1]), "-out", str(files[0])],
        check=True, capture_output=True,
    )  # fmt: skip
    with running_kinesis(files) as server:
        log = Log(Host(tmp_path), server, server.create())
        with pytest.raises(StreamError, match="certificate of the service"):
            log.refresh()
        for wrong in (tmp_path / "none.pem", files[1]):
            log.options["tls.ca"] = str(wrong)
            log.open()
            with pytest.raises(StreamError, match="a file of 'tls.ca'"):
                log.refresh()
        log.options["tls.ca"] = str(files[0])
        log.open()
        server.send(log.stream, numbered(0, 1))
        assert log.refresh() == numbered(0, 1)
        log.close()


# -- where a source begins


def test_latest_begins_at_the_first_check(log, kinesis):
    log.options["starting"] = "latest"
    kinesis.send(log.stream, numbered(0, 2))
    found = kinesis.streams[log.stream].shards[FIRST]
    for record in found.records.values():
        record.created_at -= 60
    assert log.refresh() == []
    # Records that came between two engines are read, also those of shards that were split meanwhile.
    children = kinesis.split(log.stream, FIRST)
    for child in children:
        kinesis.send(log.stream, [child.encode()], shard=child)
    log.open()
    assert log.refresh() == [child.encode() for child in children]


def test_a_moment_is_where_each_shard_begins(log, kinesis):
    kinesis.send(log.stream, numbered(0, 2))
    children = kinesis.split(log.stream, FIRST)
    kinesis.send(log.stream, numbered(2, 4), shard=children[0])
    shards = kinesis.streams[log.stream].shards
    for record in [*shards[FIRST].records.values(), *list(shards[children[0]].records.values())[:1]]:
        record.created_at -= 3_600
    log.options["starting"] = (datetime.now(UTC) - timedelta(minutes=30)).isoformat()

    assert log.refresh() == numbered(3, 4)


def test_a_moment_to_come_has_nothing_before_it(log, kinesis):
    moment = datetime.now(UTC) + timedelta(hours=1)
    log.options["starting"] = moment.isoformat()
    kinesis.send(log.stream, numbered(0, 2))
    kinesis.asked.clear()
    assert log.refresh() == []
    start, end = log.reader.find_tail(log.position, 1, ReadRequest(Cancellation()))
    assert log.reader.tail(None, start, end, log.position, ReadRequest(Cancellation())).unread is None
    assert kinesis.asked["GetShardIterator"] == 0
    for record in kinesis.streams[log.stream].shards[FIRST].records.values():
        record.created_at += 7_200
    # As if the moment had come.
    log.position = replace(log.position, starting=(moment - timedelta(hours=2)).isoformat())
    log.open()
    assert log.refresh() == numbered(0, 2)


# -- how it is read


def test_a_page_without_records_is_not_the_end(log, kinesis):
    kinesis.send(log.stream, numbered(0, 2))
    kinesis.answers["GetRecords"] = [empty_page, empty_page]
    assert log.refresh() == numbered(0, 2)
    kinesis.send(log.stream, numbered(2, 3))
    log.open()
    kinesis.answers["GetRecords"] = [empty_page] * 4
    assert log.refresh() == numbered(2, 3)


def test_an_iterator_that_expired_is_asked_for_again(log, kinesis):
    kinesis.send(log.stream, numbered(0, 2))
    log.refresh()
    kinesis.send(log.stream, numbered(2, 4))
    kinesis.answers["GetRecords"] = [error("ExpiredIteratorException")]

    assert log.refresh() == numbered(2, 4)


@pytest.mark.parametrize(
    "answer", ["StartingSequenceNumber 5 is no longer available", "Invalid StartingSequenceNumber"]
)
def test_a_number_that_is_not_taken_any_more_is_that_of_a_record_that_expired(log, kinesis, answer):
    kinesis.send(log.stream, numbered(0, 2))
    log.refresh()
    kinesis.expire(log.stream, FIRST)
    kinesis.send(log.stream, numbered(2, 3))
    shard = log.position.shards[FIRST]
    log.position = replace(log.position, shards={FIRST: replace(shard, arrived=shard.arrived - 25 * 3_600_000)})
    log.open()
    kinesis.answers["GetShardIterator"] = [error("InvalidArgumentException", message=answer)]

    assert log.refresh() == numbered(2, 3)


def test_many_records_are_read_in_commits_of_a_size(kinesis, tmp_path, monkeypatch):
    log = Log(Host(tmp_path), kinesis, kinesis.create(shards=2))
    one, other = kinesis.open_shards(log.stream)
    monkeypatch.setattr("freshline.sources.kinesis.client.PAGE_RECORDS", 10)
    monkeypatch.setattr("freshline.sources.kinesis.reader.BATCH_RECORDS", 29)
    monkeypatch.setattr("freshline.sources.spill.MOST_ROWS", 5)
    kinesis.send(log.stream, numbered(0, 45), shard=one)
    kinesis.send(log.stream, numbered(100, 109), shard=other)
    inspection = log.inspect()
    portion = log.reader.prepare(None, log.reader.cut(inspection, None), None, Cancellation())

    assert portion.rows.is_spilled
    # A page of each shard in turn.
    assert [row["_freshline_shard"] for row in rows_of(portion)] == [one] * 20 + [other] * 9
    assert (portion.at, portion.left) == (None, 1)
    assert log.reader.partitions(inspection, portion.after, portion.left) == {one: True, other: False}
    folder = portion.rows.folder
    assert folder.exists()
    log.reader.finish(None)
    assert not folder.exists()
    log.refresh()
    assert sorted(log.data) == sorted(numbered(0, 45) + numbered(100, 109))
    log.close()


def test_a_service_that_goes_away_between_two_pages_costs_nothing(log, kinesis, quick, monkeypatch):
    monkeypatch.setattr("freshline.sources.kinesis.client.PAGE_RECORDS", 10)
    monkeypatch.setattr("freshline.sources.spill.MOST_ROWS", 5)
    kinesis.send(log.stream, numbered(0, 45))
    log.open()
    walk, read, pages = log.reader._walk, log.reader._walk.read, []

    def read_and_stop(*asked, **more):
        pages.append(1)
        if len(pages) == 3:
            kinesis.stop()
        return read(*asked, **more)

    monkeypatch.setattr(walk, "read", read_and_stop)
    with pytest.raises(BrokerError):
        log.refresh()
    assert (log.commits, log.position) == ([], None)
    assert not (log.host.warehouse.notes / "reading" / "s").exists()
    kinesis.start()
    assert log.refresh() == numbered(0, 45)


def test_a_key_with_half_of_a_character_is_a_text(log, kinesis):
    kinesis.send(log.stream, [b"1"], key="k")
    (record,) = kinesis.streams[log.stream].shards[FIRST].records.values()
    record.partition_key = "k\ud800"
    assert log.refresh() == [b"1"]
    assert log.commits[0][0]["_freshline_partition_key"] == "k\\ud800"


def test_a_tail_that_is_too_large_is_refused(log, kinesis, monkeypatch):
    log.refresh()
    monkeypatch.setattr("freshline.sources.kinesis.client.PAGE_RECORDS", 10)
    monkeypatch.setattr("freshline.sources.kinesis.reader.MOST_TAIL_BYTES", 1_000)
    kinesis.send(log.stream, numbered(0, 30))

    with pytest.raises(RequestError, match="more unread records"):
        log.reader.find_tail(log.position, 1, ReadRequest(Cancellation()))


def test_a_tail_goes_on_through_splits_and_is_the_same_again(log, kinesis):
    kinesis.send(log.stream, numbered(0, 2))
    log.refresh()
    kinesis.send(log.stream, numbered(2, 4))
    children = kinesis.split(log.stream, FIRST)
    kinesis.send(log.stream, numbered(4, 6), shard=children[0])
    asked = ReadRequest(Cancellation())
    start, end = log.reader.find_tail(log.position, 1, asked)
    kinesis.send(log.stream, numbered(6, 8), shard=children[0])

    for _ in range(2):
        tail = log.reader.tail(None, start, end, log.position, asked)
        assert tail.logged is None
        assert [row[VALUE] for row in rows_of(tail.unread)] == numbered(2, 6)
    assert log.reader.tail(None, start, start, log.position, asked).unread is None
