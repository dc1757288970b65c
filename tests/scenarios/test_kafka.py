"""A Kafka source: a log table of what its topic has, each record once, through a real broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from freshline.errors import OffsetsLostError, RequestError
from freshline.plan.union import UnionToken
from freshline.reads.sql import query
from freshline.sources.kafka.client import Brokers, TopicClient
from freshline.sources.kafka.position import TopicPosition
from tests.crashes import crash
from tests.kafka import Record

COLUMNS = "id INT, a STRING"


def source(lab, kafka, columns=COLUMNS, *, partitions=1, **options):
    """A source `s` of a new topic; returns the name of the topic."""
    topic = kafka.new(partitions=partitions)
    lab.kafka("s", columns, servers=kafka.servers, topic=topic, **options)
    return topic


def ids(lab, name="s"):
    return sorted(row["id"] for row in lab.rows(name))


def offsets(lab, name="s"):
    position = lab.receipt(name).positions
    (found,) = position.values()
    assert isinstance(found, TopicPosition)
    return dict(found.offsets)


def test_records_become_typed_rows_with_what_kafka_knows_of_them(lab, kafka):
    topic = kafka.new(partitions=2, retention_ms="-1")
    lab.kafka(
        "s",
        "id INT, a STRING, p INT METADATA FROM 'partition', o BIGINT METADATA FROM 'offset', "
        "t STRING METADATA FROM 'topic', at TIMESTAMP METADATA FROM 'timestamp', k BINARY METADATA FROM 'key', "
        "h ARRAY<STRUCT<key: STRING, value: BINARY>> METADATA FROM 'headers', "
        "i TIMESTAMP METADATA FROM 'ingested_at'",
        servers=kafka.servers,
        topic=topic,
    )
    at = datetime(2026, 11, 1, 12, 30, tzinfo=UTC)
    kafka.send(
        topic,
        [
            Record({"id": 1, "a": "x"}, b"k1", 0, (("trace", b"\x00\x01"),), int(at.timestamp() * 1000)),
            Record({"id": 2, "other": 5}, None, 1, (), int(at.timestamp() * 1000)),
        ],
    )
    outcome = lab.refresh("s")

    assert (outcome.state, outcome.rows_out, outcome.reason.split(":")[0]) == ("SUCCEEDED", 2, "NEW_RECORDS(2)")
    first, second = lab.rows("s")
    assert first == {
        "id": 1, "a": "x", "p": 0, "o": 0, "t": topic, "at": at, "k": b"k1",
        "h": [{"key": "trace", "value": b"\x00\x01"}], "i": lab.clock(),
    }  # fmt: skip
    assert (second["id"], second["a"], second["p"], second["o"], second["k"], second["h"]) == (
        2,
        None,
        1,
        0,
        None,
        None,
    )
    assert offsets(lab) == {0: 1, 1: 1}

    assert lab.refresh("s").strategy == "noop"
    kafka.send(topic, [Record({"id": 3}, partition=1)])
    assert lab.refresh("s").rows_out == 1
    assert (ids(lab), offsets(lab)) == ([1, 2, 3], {0: 1, 1: 2})


def test_a_check_of_a_topic_that_is_all_read_asks_little_of_the_jvm(spark, lab, kafka, monkeypatch):
    """An engine checks each topic each second; a check has two calls more for each partition more."""
    topic = source(lab, kafka, partitions=40)
    kafka.send(topic, [Record({"id": number}, partition=number) for number in range(40)])
    assert lab.refresh("s").rows_out == 40
    assert lab.refresh("s").strategy == "noop"

    client = spark.sparkContext._gateway._gateway_client
    send, calls = client.send_command, []

    def counted(command, *rest, **named):
        if not command.startswith("m\n"):
            calls.append(command)
        return send(command, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(client, "send_command", counted)
        assert lab.refresh("s").strategy == "noop"
    assert 40 < len(calls) < 60 + 3 * 40

    # Partitions that the topic gained are known of a client that has seen it before.
    kafka.grow(topic, 43)
    kafka.send(topic, [Record({"id": 42}, partition=42)])
    assert lab.refresh("s").rows_out == 1
    assert offsets(lab) == {**dict.fromkeys(range(40), 1), 40: 0, 41: 0, 42: 1}


def test_a_value_that_is_no_record_goes_to_quarantine_with_its_place(lab, kafka):
    topic = source(lab, kafka, primary_key=("id",), max_record_bytes="100")
    bad = [
        b'{"id": 1',
        b"\xff\xfe",
        b'{"id": 1} {"id": 2}',
        b'{"id": "x"}',
        b"",
        None,
        {"a": "y"},
        {"id": 2, "a": "z" * 99},
    ]
    kafka.send(topic, [{"id": 7, "a": "good"}, *[Record(value, key=b"k") for value in bad], {"id": 8}])
    outcome = lab.refresh("s")

    assert (outcome.rows_out, outcome.rejected, ids(lab)) == (2, 8, [7, 8])
    rejected = lab.quarantine("s")
    assert [(row["offset"], row["error"]) for row in sorted(rejected, key=lambda row: row["offset"])] == [
        (1, "NOT_JSON"),
        (2, "NOT_UTF8"),
        (3, "NOT_JSON"),
        (4, "NOT_JSON"),
        (5, "NOT_JSON"),
        (6, "NULL_VALUE"),
        (7, "NULL_KEY"),
        (8, "TOO_LARGE"),
    ]
    row = next(row for row in rejected if row["offset"] == 2)
    assert (row["topic"], row["partition"], row["raw"], row["key"], row["file"]) == (topic, 0, b"\xff\xfe", b"k", None)


@pytest.mark.long
def test_a_redelivered_key_is_dropped_and_another_record_with_it_is_a_conflict(lab, kafka):
    topic = source(lab, kafka, primary_key=("id",))
    kafka.send(topic, [{"id": 1, "a": "x"}, {"id": 1, "a": "x"}])
    lab.refresh("s")
    kafka.send(topic, [{"id": 1, "a": "x"}, {"id": 1, "a": "other"}, {"id": 2, "a": "x"}])
    lab.refresh("s")

    assert ids(lab) == [1, 2]
    assert [(row["error"], row["offset"]) for row in lab.quarantine("s")] == [("KEY_CONFLICT", 3)]


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    [
        "log-after-quarantine",
        pytest.param("log-before-quarantine", marks=pytest.mark.long),
        pytest.param("log-before-commit", marks=pytest.mark.long),
        pytest.param("log-after-commit", marks=pytest.mark.long),
    ],
)
def test_a_stop_at_any_point_loses_and_repeats_nothing(lab, kafka, point):
    topic = source(lab, kafka, partitions=2)
    kafka.send(topic, [{"id": 1}])
    lab.refresh("s")
    kafka.send(topic, [{"id": 2}, b"bad", {"id": 3}])
    crash(lab, point, "s", lose_control_store=True)
    kafka.send(topic, [{"id": 4}])
    lab.refresh("s")

    assert ids(lab) == [1, 2, 3, 4]
    assert [row["error"] for row in lab.quarantine("s")] == ["NOT_JSON"]


def test_records_of_an_aborted_transaction_are_never_seen_and_open_ones_are_waited_for(lab, kafka):
    topic = source(lab, kafka)
    kafka.send(topic, [{"id": 1}])
    aborted = kafka.send(topic, [{"id": 2}], transaction="a")
    aborted.abortTransaction()
    aborted.close()
    opened = kafka.send(topic, [{"id": 3}], transaction="b")
    kafka.send(topic, [{"id": 4}])
    lab.refresh("s")
    before = ids(lab)
    opened.commitTransaction()
    opened.close()
    lab.refresh("s")

    assert before == [1]
    assert ids(lab) == [1, 3, 4]
    # The mark at the end of a transaction is an offset without a record: it is passed, and not searched again.
    assert lab.refresh("s").strategy == "noop"


@pytest.mark.long
def test_many_records_are_read_in_one_pass_and_one_by_one_where_some_are_no_rows(lab, kafka, spark):
    topic = source(lab, kafka, partitions=2)

    def send_many(start):
        rows = spark.range(start, start + 21_000).selectExpr("concat('{\"id\": ', id, '}') AS value")
        rows.write.format("kafka").option("kafka.bootstrap.servers", kafka.servers).option("topic", topic).save()

    send_many(0)
    clean = lab.refresh("s")
    kafka.send(topic, [b"bad"])
    send_many(21_000)
    broken = lab.refresh("s")
    send_many(42_000)
    careful = lab.refresh("s")

    assert [(o.state, o.rows_out, o.rows_in, o.rejected) for o in (clean, broken, careful)] == [
        ("SUCCEEDED", 21_000, 21_000, 0),
        ("SUCCEEDED", 21_000, 21_001, 1),
        ("SUCCEEDED", 21_000, 21_000, 0),
    ]
    assert lab.sql("SELECT count(*) AS n, count(DISTINCT id) AS u, max(id) AS m FROM s") == [
        {"n": 63_000, "u": 63_000, "m": 62_999}
    ]
    assert [row["raw"] for row in lab.quarantine("s")] == [b"bad"]


@pytest.mark.long
def test_a_source_begins_where_it_is_declared_to_and_takes_new_partitions_up_from_their_beginning(lab, kafka):
    topic = kafka.new(retention_ms="-1")
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    stamps = [int((moment + timedelta(hours=hours)).timestamp() * 1000) for hours in (-1, 1)]
    kafka.send(topic, [Record({"id": number}, timestamp_ms=stamp) for number, stamp in enumerate(stamps)])
    lab.kafka("all_of_it", COLUMNS, servers=kafka.servers, topic=topic)
    lab.kafka("since", COLUMNS, servers=kafka.servers, topic=topic, starting="2026-11-01 00:00:00")
    lab.kafka("from_now", COLUMNS, servers=kafka.servers, topic=topic, starting="latest")
    lab.refresh_all()
    kafka.grow(topic, 3)
    kafka.send(topic, [Record({"id": 10 + partition}, partition=partition) for partition in range(3)])
    lab.refresh_all()

    assert ids(lab, "all_of_it") == [0, 1, 10, 11, 12]
    assert ids(lab, "since") == [1, 10, 11, 12]
    assert ids(lab, "from_now") == [10, 11, 12]


def test_expired_records_are_reported_and_passed_only_when_that_is_declared(lab, kafka):
    topic = source(lab, kafka)
    kafka.send(topic, [{"id": 0}, {"id": 1}])
    lab.refresh("s")
    kafka.send(topic, [{"id": 2}, {"id": 3}, {"id": 4}])
    kafka.expire(topic, before={0: 4})
    lost = lab.refresh("s")
    lab.kafka("s", COLUMNS, servers=kafka.servers, topic=topic, accept_gap="0:2-4")
    lab.refresh("s")

    assert (lost.state, lost.error.code, lost.error.retry_helps) == ("FAILED", "OFFSETS_LOST", False)
    assert "'accept-gap' = '0:2-4'" in lost.error.message
    assert ids(lab) == [0, 1, 4]


def test_a_topic_that_was_made_anew_is_reported_and_read_only_when_that_is_declared(lab, kafka):
    topic = source(lab, kafka)
    kafka.send(topic, [{"id": 0}])
    lab.refresh("s")
    kafka.delete(topic)
    gone = lab.refresh("s")
    kafka.create(topic)
    kafka.send(topic, [{"id": 1}, {"id": 2}])
    replaced = lab.refresh("s")
    accepted = replaced.error.message.rpartition("'accept-topic' = '")[2].rstrip("'.")
    lab.kafka("s", COLUMNS, servers=kafka.servers, topic=topic, accept_topic=accepted)
    lab.refresh("s")

    assert (gone.error.code, replaced.error.code) == ("TOPIC", "TOPIC_REPLACED")
    assert ids(lab) == [0, 1, 2]


@pytest.mark.long
def test_the_time_of_a_record_may_be_the_time_of_its_event(lab, kafka):
    topic = kafka.new(retention_ms="-1")
    columns = "id INT, sent TIMESTAMP METADATA FROM 'timestamp', WATERMARK FOR sent AS sent - INTERVAL '1' MINUTE"
    lab.kafka("s", columns, servers=kafka.servers, topic=topic)
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    for seconds in (0, 300, 10):
        stamp = int((moment + timedelta(seconds=seconds)).timestamp() * 1000)
        kafka.send(topic, [Record({"id": seconds}, timestamp_ms=stamp)])
        outcome = lab.refresh("s")

    assert outcome.late_rows == 1
    assert lab.status()[0].event_timestamp == moment + timedelta(seconds=300)


def events(*records, start=datetime(2026, 11, 1, tzinfo=UTC)):
    """Records of events, each its partition and the minute of its time."""
    return [
        Record({"id": minute, "ts": (start + timedelta(minutes=minute)).isoformat()}, partition=partition)
        for partition, minute in records
    ]


def watermark(lab):
    """The minute of the watermark after the newest batch, and the partitions that were left out."""
    found = lab.receipt("s").event_time
    idle = [name for name, each in found.partitions.items() if each.idle]
    since = None if found.watermark is None else found.watermark - datetime(2026, 11, 1, tzinfo=UTC)
    return (None if since is None else since.total_seconds() / 60), idle


TIMES = "id INT, ts TIMESTAMP, w TIMESTAMP METADATA FROM 'watermark', WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE"


@pytest.mark.long
def test_the_slowest_partition_of_a_topic_delays_the_watermark_until_it_is_idle(lab, kafka):
    topic = source(lab, kafka, TIMES, partitions=2)
    found = []
    for advance, records in [
        (0, [(0, 60)]),  # nothing came to partition 1 yet
        (10, [(1, 30)]),
        (10, [(0, 100)]),
        (60, [(0, 110)]),  # partition 1 is left out
        (1, [(1, 40), (0, 120)]),  # until its next record, which is late
        (1, [(1, 118)]),
    ]:
        lab.clock.advance(seconds=advance)
        kafka.send(topic, events(*records))
        outcome = lab.refresh("s")
        assert outcome.error is None, outcome.error
        found.append((*watermark(lab), outcome.late_rows))

    assert found == [
        (None, [], 0),
        (25, [], 0),
        (25, [], 0),
        (105, ["1"], 0),
        (105, [], 1),
        (113, [], 0),
    ]
    assert {row["id"]: row["w"] for row in lab.rows("s")}[40] == datetime(2026, 11, 1, 1, 45, tzinfo=UTC)
    # Partition 1 falls silent before partition 0 does: nothing new is read, and it delays nothing any more.
    lab.clock.advance(seconds=30)
    kafka.send(topic, events((0, 200)))
    lab.refresh("s")
    assert watermark(lab) == (113, [])
    lab.clock.advance(seconds=30)
    assert lab.refresh("s").reason.startswith("WATERMARK_MOVED(events)")
    assert watermark(lab) == (195, ["1"])
    lab.clock.advance(hours=1)
    assert lab.refresh("s").strategy == "noop"


@pytest.mark.long
def test_records_behind_a_limit_come_later_and_the_data_is_as_old_as_it_is(lab, kafka):
    topic = source(lab, kafka, rate_limit="10")
    kafka.send(topic, [{"id": number} for number in range(35)])
    start = lab.clock()
    first = lab.refresh("s")
    at_once = lab.refresh("s")
    lab.clock.advance(seconds=2)
    second = lab.refresh("s")
    lab.clock.advance(seconds=60)
    last = lab.refresh("s")

    assert [outcome.rows_out for outcome in (first, at_once, second, last)] == [10, 0, 20, 5]
    assert (first.data_timestamp, second.data_timestamp) == (None, None)
    assert last.data_timestamp == start + timedelta(seconds=62)
    assert ids(lab) == list(range(35))


@pytest.mark.long
def test_brokers_that_are_away_are_a_matter_of_trying_again(lab, kafka):
    topic = source(lab, kafka)
    kafka.send(topic, [{"id": 1}])
    lab.refresh("s")
    kafka.send(topic, [{"id": 2}])
    kafka.broker.kill()
    try:
        away = lab.refresh("s")
    finally:
        kafka.broker.start()
    again = lab.refresh("s")

    assert (away.state, away.error.code, away.error.retry_helps) == ("FAILED", "BROKER", True)
    assert again.state == "SUCCEEDED", again.error
    assert ids(lab) == [1, 2]


@pytest.mark.long
def test_tables_are_kept_up_over_a_topic(lab, kafka):
    topic = source(lab, kafka, "id INT, v INT, at INT", partitions=2)
    lab.declare(
        "CREATE MATERIALIZED TABLE newest (PRIMARY KEY (id)) "
        "WITH ('merge' = 'last_row', 'merge.sequence' = 'at', 'merge.tie-breaker' = 'v') "
        "AS SELECT id, v, at FROM s"
    )
    lab.declare("CREATE MATERIALIZED TABLE total AS SELECT id, sum(v) AS v, count(*) AS n FROM s GROUP BY id")
    for step in range(3):
        kafka.send(
            topic, [{"id": number % 3, "v": step * 10 + number, "at": step * 10 + number} for number in range(9)]
        )
        kafka.send(topic, [{"id": None, "v": 1, "at": step}])
        assert all(outcome.state == "SUCCEEDED" for outcome in lab.refresh_all())

    assert [(row["id"], row["v"]) for row in lab.rows("newest")] == [(0, 26), (1, 27), (2, 28)]
    assert [row["n"] for row in lab.rows("total")] == [3, 9, 9, 9]
    assert lab.verify("newest").equal
    assert lab.verify("total").equal
    assert [(row["error"], row["topic"]) for row in lab.quarantine("s")] == [("NULL_KEY(newest)", topic)] * 3


def union_ids(lab, name="s", token=None):
    rows, token = lab.union(name, token)
    return [row["id"] for row in rows], token


def test_a_union_read_has_what_the_log_has_not_and_is_repeatable(lab, kafka, spark):
    topic = source(lab, kafka, "id INT, o BIGINT METADATA FROM 'offset'", partitions=2)
    kafka.send(topic, [Record({"id": number}, partition=number % 2) for number in range(4)])
    lab.refresh("s")
    kafka.send(topic, [Record(value, partition=0) for value in ({"id": 4}, b"bad", {"id": 5})])
    found, token = union_ids(lab)
    kafka.send(topic, [Record({"id": 6 + number}, partition=number % 2) for number in range(4)])
    again = union_ids(lab, token=UnionToken.parse(token.as_json()))
    wider, _ = union_ids(lab)
    lab.refresh("s")
    ingested = union_ids(lab, token=token)
    kafka.expire(topic, before={0: 7, 1: 4})
    expired = union_ids(lab, token=token)
    spark.sql(f"OPTIMIZE delta.`{lab.path('s')}`")
    compacted = union_ids(lab, token=token)

    assert found == list(range(6))
    assert again == ingested == expired == compacted == (found, token)
    assert wider == list(range(10))
    assert (token.start.offsets, token.end.offsets) == ({0: 2, 1: 2}, {0: 5, 1: 2})


@pytest.mark.long
def test_a_union_read_needs_records_that_are_in_the_log_or_in_the_topic(lab, kafka):
    topic = source(lab, kafka)
    with pytest.raises(RequestError, match="no version yet"):
        lab.union("s")
    kafka.send(topic, [{"id": 1}])
    lab.refresh("s")
    kafka.send(topic, [{"id": 2}, {"id": 3}])
    _, token = lab.union("s")
    kafka.expire(topic, before={0: 2})

    with pytest.raises(OffsetsLostError):
        lab.union("s", token)


@pytest.mark.long
def test_a_union_read_of_a_source_with_a_key_drops_what_an_ingest_would_drop(lab, kafka):
    topic = source(lab, kafka, partitions=2, primary_key=("id",))
    kafka.send(topic, [Record({"id": 1, "a": "x"}, partition=0)])
    lab.refresh("s")
    first = [{"id": 1, "a": "x"}, {"id": 2, "a": "x"}]
    second = [{"id": 2, "a": "y"}, {"id": None}, {"id": 3}]
    kafka.send(topic, [*(Record(value, partition=0) for value in first), *(Record(v, partition=1) for v in second)])
    found, token = lab.union("s")
    lab.refresh("s")

    assert [(row["id"], row["a"]) for row in found] == [(1, "x"), (2, "x"), (3, None)]
    assert lab.union("s", token) == (found, token)
    assert lab.rows("s") == found


@pytest.mark.long
@pytest.mark.parametrize(
    "merge",
    [
        "'merge' = 'last_row', 'merge.sequence' = 'at', 'merge.tie-breaker' = 'v', 'merge.delete-when' = 'gone'",
        *(
            pytest.param(options, marks=pytest.mark.long)
            for options in (
                "'merge' = 'first_row'",
                "'merge' = 'first_row', 'merge.order' = 'at', 'merge.tie-breaker' = 'v'",
                "'merge' = 'first_row', 'merge.order' = 'at', 'merge.tie-breaker' = 'v', 'merge.late' = 'ignore'",
                "'merge' = 'last_row', 'merge.sequence' = 'at', 'merge.tie-breaker' = 'v'",
                (
                    "'merge' = 'last_row', 'merge.sequence' = '-at', 'merge.tie-breaker' = '-v', "
                    "'merge.delete-when' = 'gone'"
                ),
            )
        ),
    ],
)
def test_a_union_read_of_a_table_with_a_merge_is_the_table_that_a_refresh_would_make(lab, kafka, merge):
    topic = source(lab, kafka, "id INT, v INT, at INT, gone BOOLEAN")
    lab.declare(
        f"CREATE MATERIALIZED TABLE m (PRIMARY KEY (id)) WITH ({merge}) AS SELECT id, v, at FROM s WHERE v <> 99"
    )
    events = [
        {"id": (number * 7) % 5, "v": number, "at": (number * 11) % 6, "gone": number % 4 == 0} for number in range(30)
    ]
    kafka.send(topic, events[:10])
    lab.refresh("m")
    # Part of what the table has not folded is in the log, the rest in the topic.
    kafka.send(topic, events[10:20])
    lab.refresh("s")
    kafka.send(topic, [*events[20:], {"id": 1, "v": 99, "at": 0}])
    found, token = lab.union("m")
    lab.refresh("m")

    assert lab.rows("m") == found
    assert lab.union("m", token) == (found, token)
    assert lab.union("m")[0] == found


def test_a_union_read_of_files_takes_what_was_not_ingested(lab):
    lab.files("s", "id INT, f STRING METADATA FROM 'file', i TIMESTAMP METADATA FROM 'ingested_at'")
    lab.land("s", "a.json", [{"id": 1}, {"id": 2}])
    lab.refresh("s")
    lab.land("s", "b.json", [{"id": 3}])
    path = lab.land("s", "c.json", '{"id": 4}\nbad\n')
    found, token = lab.union("s")
    lab.land("s", "d.json", [{"id": 5}])
    again = lab.union("s", token)
    lab.refresh("s")
    path.unlink()

    assert [(row["id"], row["f"], row["i"] is None) for row in found] == [
        (1, "a.json", False),
        (2, "a.json", False),
        (3, "b.json", True),
        (4, "c.json", True),
    ]
    assert again == lab.union("s", token) == (found, token)


def test_union_read_is_a_table_in_sql(lab):
    lab.files("n.s", "id INT, a STRING")
    lab.land("n.s", "a.json", [{"id": 1, "a": "x"}])
    lab.refresh("n.s")
    lab.land("n.s", "b.json", [{"id": 2, "a": "y"}])
    result = query(
        lab.runtime,
        "SELECT s.id FROM union_read('n.s') WHERE s.a = 'y' AND NOT EXISTS (SELECT 1 FROM n.s x WHERE x.id = s.id)",
    )
    (token,) = result.tokens
    lab.land("n.s", "c.json", [{"id": 3, "a": "y"}])
    text = json.dumps(token.as_json())
    both = query(
        lab.runtime,
        f"SELECT u.id, w.id AS other FROM union_read('n.s', '{text}') u "
        "FULL JOIN union_read('n.s') AS w ON u.id = w.id ORDER BY 2",
    )

    assert result.rows == ('{"id":2}',)
    assert both.rows == ('{"id":1,"other":1}', '{"id":2,"other":2}', '{"id":null,"other":3}')
    assert len(both.tokens) == 2
    for statement, said in [
        ("SELECT * FROM union_read('n.x')", "there is no table or source n.x"),
        ("SELECT * FROM union_read(n.s)", "takes a table's name as a text"),
        ("SELECT * FROM union_read('n.s', 'x')", "no token of a union read"),
    ]:
        with pytest.raises(RequestError, match=said):
            query(lab.runtime, statement)


@pytest.mark.security
def test_a_secret_that_was_changed_is_kept_no_longer(spark, kafka):
    topic, client = kafka.new(), TopicClient(spark)

    def ask(secret, where):
        client.ends(Brokers(topic, kafka.servers, {"client.id": secret}, where))
        return list(client._clients.values())

    try:
        (first,) = ask("before", "a.sql:1")
        assert ask("before", "b.sql:1") == [first]
        # The other source has the old one still.
        assert len(ask("after", "a.sql:1")) == 2
        (second,) = ask("after", "b.sql:1")
        assert second != first
        assert ask("after", "a.sql:1") == [second]
        assert "before" not in repr(vars(client))
        assert "after" not in repr(vars(client))
    finally:
        client.close()
