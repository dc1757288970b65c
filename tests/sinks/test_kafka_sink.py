"""Rows that go out to a topic of a real broker: what its readers see, and who may write it."""

from __future__ import annotations

import datetime as d
import json
import sys
from decimal import Decimal
from unittest.mock import patch

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType
from pyspark.sql import types as T

from freshline.compute.outgoing import Outgoing
from freshline.declare.project import read_declarations
from freshline.errors import (
    DeclarationErrors,
    SinkError,
    SinkFencedError,
    SinkHistoryError,
    SinkRefusedError,
    SinkRejectedError,
    SinkSchemaError,
)
from freshline.sinks.kafka.client import TopicClient
from freshline.sinks.kafka.properties import for_librdkafka
from freshline.sinks.writer import Delivery
from freshline.sources.formats.envelope import EnvelopeFacts, EnvelopeReader
from freshline.values.sink import JSON
from tests.sinks.delivering import Host, Stopped
from tests.sinks.kafka_topic import Shipped, Topic, declared, outgoing

pytestmark = pytest.mark.seconds

COLUMNS = "id INT, note STRING"
SCHEMA = pa.schema([("id", pa.int32()), ("note", pa.string())])


@pytest.fixture
def topic(kafka_broker):
    return Topic(kafka_broker.servers)


@pytest.fixture
def ship(topic, settings, tmp_path):
    """Makes a sink to the topic."""

    def made(**options):
        spec = declared(settings, topic, options.pop("columns", COLUMNS), options.pop("keys", "id"), **options)
        return Shipped(topic, Host(tmp_path), spec, SCHEMA)

    return made


def test_the_first_refresh_makes_the_topic_and_later_ones_send_changes(ship, topic):
    out = ship(partitions="3", replication="1")
    assert out.writer().position() is None
    sent = out.whole(1, (1, "a"), (2, "b"), (3, None), (4, '"\\\n\u00e9'))
    assert (sent.written, sent.deleted) == (4, 0)
    assert topic.state() == {
        '{"id":1}': {"id": 1, "note": "a"},
        '{"id":2}': {"id": 2, "note": "b"},
        '{"id":3}': {"id": 3, "note": None},
        '{"id":4}': {"id": 4, "note": '"\\\n\u00e9'},
    }
    sent = out.changes(2, [(1, "A"), (5, "e")], [(2, "b")])
    assert (sent.written, sent.deleted) == (2, 1)
    assert out.writer().position() == out.at(2)
    assert (b'{"id":2}', None) in topic.records()
    assert sorted(row["id"] for row in out.read()) == [1, 3, 4, 5]
    asked = ConfigResource(ResourceType.TOPIC, topic.name)
    found = topic.admin.describe_configs([asked])[asked].result()
    assert found["cleanup.policy"].value == "compact"


def test_the_position_is_an_offset_of_a_group_of_the_sinks_name(ship, topic):
    topic.create()
    out = ship()
    out.whole(7, (1, "a"))
    reader = Consumer({"bootstrap.servers": topic.servers, "group.id": "freshline-sink-out"})
    (found,) = reader.committed([TopicPartition(topic.name, 0)], 10)
    reader.close()
    assert (found.offset, found.metadata) == (8, out.at(7).to_json())


def test_names_types_and_values_of_all_kinds_come_back_as_they_are(settings, topic, tmp_path):
    topic.create()
    fields = [
        pa.field("k", pa.string()),
        pa.field('x"\n\u00e9', pa.int8()),
        pa.field("e", pa.decimal128(38, 18)),
        pa.field("f", pa.float32()),
        pa.field("g", pa.float64()),
        pa.field("b", pa.binary()),
        pa.field("d", pa.date32()),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("n", pa.timestamp("us")),
        pa.field("o", pa.bool_()),
        pa.field("l", pa.string(), metadata={JSON: b""}),
        pa.field("i", pa.int64()),
    ]
    rows = [
        *(
            ("", None, None, float("inf"), -0.0, b"", None, None, None, None, None, -(2**63)),
            ("\x00\x1f\u2028", -128, Decimal("1E-18"), 0.5, 5e-324, b"\0\xff", d.date(1, 1, 1), *[None] * 5),
        ),
        (
            *("a", 1, Decimal("-12345678901234567890.123456789012345678"), 1.5, 1e20, None, d.date(9999, 12, 31)),
            d.datetime(9999, 12, 31, 23, 59, 59, 999999, d.UTC),
            *(d.datetime.fromisoformat("1582-10-04T00:00:00.000001"), True, '{"a":[1.50,null,"x"]}', 2**63 - 1),
        ),
    ]
    spec = declared(settings, topic, "k STRING, v INT", keys="k")
    out = Shipped(topic, Host(tmp_path), spec, pa.schema(fields))
    out.whole(1, *rows)
    read = pa.Table.from_batches(list(out.writer().read(out.schema))).sort_by("k")
    assert read.equals(pa.Table.from_batches(outgoing(out.schema, rows, ()).read_upserts()))
    # The same rows again are no news.
    assert out.whole(2, *rows, takes_over=True).written == 0
    assert topic.state()['{"k":"a"}']["l"] == {"a": [1.5, None, "x"]}


def test_a_comparison_sends_what_differs_and_takes_away_what_does_not_belong(ship, topic):
    topic.create(partitions=2)
    out = ship()
    out.whole(1, *[(number, "x") for number in range(50)])
    topic.send((b'{"id":7}', b"changed"), (b"foreign", b"1"), (b'{"id":8}', None))
    before = len(topic.records())
    sent = out.whole(2, *[(number, "x") for number in range(1, 50)], (50, "y"))
    assert (sent.written, sent.deleted) == (3, 2)
    assert len(topic.records()) == before + 5
    assert sorted(row["id"] for row in out.read()) == list(range(1, 51))


def test_a_topic_that_is_not_there_is_named(ship):
    with pytest.raises(SinkRefusedError, match="there is no topic .* declare 'partitions'") as found:
        ship().whole(1, (1, "a"))
    assert not found.value.retry_helps


def test_a_transaction_that_a_dead_engine_left_open_is_ended_by_the_next_one(ship, topic):
    topic.create()
    out = ship()
    out.whole(1, (1, "a"))
    dead = Producer({"bootstrap.servers": topic.servers, "transactional.id": f"freshline-topic-{topic.name}"})
    dead.init_transactions(10)
    dead.begin_transaction()
    dead.produce(topic.name, b'{"id":9,"note":"half"}', b'{"id":9}')
    group = Consumer({"bootstrap.servers": topic.servers, "group.id": f"freshline-topic-{topic.name}"})
    at = TopicPartition(topic.name, 0, 3, out.at(2).to_json())
    dead.send_offsets_to_transaction([at], group.consumer_group_metadata(), 10)
    group.close()
    dead.flush(10)
    assert out.writer().position() == out.at(1)
    out.changes(2, [(2, "b")])
    assert topic.records() == [(b'{"id":1}', b'{"id":1,"note":"a"}'), (b'{"id":2}', b'{"id":2,"note":"b"}')]
    assert (b'{"id":9}', b'{"id":9,"note":"half"}') in topic.records(committed=False)


def test_rows_are_read_with_those_of_a_transaction_that_ends_meanwhile_and_without_those_of_an_open_one(ship, topic):
    topic.create()
    out = ship()
    out.whole(1, (1, "a"))
    other = Producer({"bootstrap.servers": topic.servers, "transactional.id": f"other-{topic.name}"})
    other.init_transactions(10)
    other.begin_transaction()
    other.produce(topic.name, b'{"id":9,"note":"late"}', b'{"id":9}')
    other.flush(10)
    assert out.read() == [{"id": 1, "note": "a"}]
    # A commit is confirmed before it is written into each partition. Here it comes after the reader has asked.
    asked = TopicClient._is_settled

    def and_commit(client, partitions):
        settled = asked(client, partitions)
        if not settled and not committed:
            other.commit_transaction(10)
            committed.append(True)
        return settled

    committed: list[bool] = []
    with patch.object(TopicClient, "_is_settled", and_commit):
        assert out.read() == [{"id": 1, "note": "a"}, {"id": 9, "note": "late"}]
    assert committed


def test_a_stop_before_the_commit_leaves_nothing_and_one_behind_it_leaves_the_position(ship, topic):
    topic.create()
    out = ship()
    out.whole(1, (1, "a"))

    def stop():
        raise Stopped

    out.host.once["sink-before-commit"] = stop
    with pytest.raises(Stopped):
        out.changes(2, [(2, "b")])
    assert out.writer().position() == out.at(1)
    assert topic.state() == {'{"id":1}': {"id": 1, "note": "a"}}
    out.host.once = {"sink-committed": stop}
    with pytest.raises(Stopped):
        out.changes(2, [(2, "b")])
    assert out.writer().position() == out.at(2)
    assert list(topic.state()) == ['{"id":1}', '{"id":2}']


def test_a_zombie_that_wakes_up_late_is_fenced(ship, topic):
    topic.create()
    out, newer = ship(), ship()
    newer.epoch = 2
    out.whole(1, (1, "a"))
    out.host.once["sink-before-commit"] = lambda: newer.changes(3, [(1, "newer")])
    with pytest.raises(SinkFencedError) as found:
        out.changes(2, [(1, "older")])
    assert not found.value.retry_helps
    assert topic.state() == {'{"id":1}': {"id": 1, "note": "newer"}}
    assert out.writer().position() == newer.at(3)


def test_an_older_engine_is_refused_without_ending_the_work_of_the_newer_one(ship, topic):
    topic.create()
    out, older = ship(), ship()
    out.epoch = 2
    out.whole(1, (1, "a"))
    refused = []

    def try_older():
        with pytest.raises(SinkFencedError, match="newer engine") as found:
            older.whole(5, (1, "older"))
        refused.append(found.value)

    out.host.once["sink-before-commit"] = try_older
    out.changes(2, [(2, "b")])
    assert len(refused) == 1
    assert list(topic.state()) == ['{"id":1}', '{"id":2}']


def test_an_older_version_never_goes_over_a_newer_one(ship, topic):
    topic.create()
    out = ship()
    out.whole(5, (1, "a"))
    with pytest.raises(SinkHistoryError):
        out.whole(4, (1, "old"))
    out.whole(4, (1, "put back"), takes_over=True)
    assert out.writer().position() == out.at(4)


def test_another_sink_takes_a_topic_over_only_when_asked_and_then_the_first_is_refused(ship, topic):
    topic.create()
    out, other = ship(), ship()
    other.owner = "other 2"
    out.whole(1, (1, "a"))
    with pytest.raises(SinkFencedError, match="belongs to out 1"):
        other.whole(1, (2, "b"))
    # While the first one writes.
    out.host.once["sink-before-commit"] = lambda: other.whole(1, (2, "b"), takes_over=True)
    with pytest.raises(SinkFencedError):
        out.changes(2, [(3, "c")])
    assert topic.state() == {'{"id":2}': {"id": 2, "note": "b"}}
    with pytest.raises(SinkFencedError, match="belongs to other 2"):
        out.whole(3, (3, "c"))


def test_records_of_others_stay_until_a_person_asks(ship, topic):
    topic.create()
    topic.send((b"k", b"mine"))
    out = ship()
    with pytest.raises(SinkSchemaError, match="records that freshline has not written"):
        out.whole(1, (1, "a"))
    assert topic.records() == [(b"k", b"mine")]
    out.whole(1, (1, "a"), takes_over=True)
    assert topic.state() == {'{"id":1}': {"id": 1, "note": "a"}}
    topic.send((None, b"no key"))
    with pytest.raises(SinkSchemaError, match="without a key"):
        out.whole(2, (1, "a"), takes_over=True)


def test_a_position_that_brokers_forgot_is_made_up_for_by_a_comparison(ship, topic):
    topic.create()
    out = ship()
    out.whole(1, (1, "a"), (2, "b"))
    topic.admin.delete_consumer_groups([f"freshline-topic-{topic.name}"])[f"freshline-topic-{topic.name}"].result()
    assert out.writer().position() is None
    with pytest.raises(SinkSchemaError):
        out.whole(2, (1, "a"), (3, "c"))
    sent = out.whole(2, (1, "a"), (3, "c"), was_written=True)
    assert (sent.written, sent.deleted) == (1, 1)
    assert list(topic.state()) == ['{"id":1}', '{"id":3}']


def test_a_row_that_is_not_taken_fails_or_is_set_aside(ship, topic):
    topic.create(max_message_bytes="5000")
    out = ship()
    out.whole(1, (1, "a"), (2, "b"), (3, "c"))
    large, broken = "x" * 5000, b"\xff"
    with pytest.raises(SinkRejectedError, match="5026 bytes"):
        out.changes(2, [(1, "A"), (2, large)])
    assert (out.writer().position(), topic.state()['{"id":1}']["note"]) == (out.at(1), "a")
    out = ship(on__reject="quarantine")
    out.schema = pa.schema([("id", pa.int32()), ("note", pa.binary())])

    def texts(rows):
        return [(number, note.encode() if isinstance(note, str) else note) for number, note in rows]

    out.as_texts = True
    sent = out.changes(2, texts([(1, "A"), (2, large), (3, broken)]))
    assert sent.written == 1
    assert [(each.code, each.row[:8]) for each in out.rejected] == [
        ("NOT_UTF8", '{"id": 3'),
        ("MSG_SIZE_TOO_LARGE", '{"id": 2'),
    ]
    assert {key: row["note"] for key, row in topic.state().items()} == {
        '{"id":1}': "A",
        '{"id":2}': "b",
        '{"id":3}': "c",
    }
    # A row that is not taken stays as it was, also when all rows are compared.
    sent = out.whole(3, *texts([(1, "A"), (2, large), (3, broken)]))
    assert (sent.written, sent.deleted, len(out.rejected)) == (0, 0, 4)
    assert len(topic.state()) == 3


def test_brokers_that_are_away_are_tried_again_and_wrong_options_are_not(ship, kafka_broker, settings, tmp_path):
    away = Topic("127.0.0.1:1")
    out = Shipped(away, Host(tmp_path), declared(settings, away, COLUMNS), SCHEMA)
    with pytest.raises(SinkError, match=r"127\.0\.0\.1:1/bootstrap: .* Connection refused") as found:
        out.writer().position()
    assert (found.value.code, found.value.retry_helps) == ("SINK", True)
    for option, value in (("kafka.no.such", "secret-value"), ("kafka.security.protocol", "secret-value")):
        out = ship(**{option: value})
        with pytest.raises(SinkRefusedError, match=option.removeprefix("kafka.")) as refused:
            out.writer().position()
        assert "secret-value" not in str(refused.value)


def test_a_transaction_that_takes_too_long_for_the_brokers_names_the_option(ship, topic):
    topic.create()
    out = ship(**{"kafka.transaction.timeout.ms": "2000000"})
    with pytest.raises(SinkRefusedError, match="transaction.timeout.ms"):
        out.whole(1, (1, "a"))


SINK = "CREATE SINK out FROM big WITH ('connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'h:1'%s)"


@pytest.mark.parametrize(
    ("more", "key", "code", "said"),
    [
        ("", "", "SINK_KEY", "declare 'mode' = 'changes'"),
        (", 'value.format' = 'debezium-json'", "id", "OPTION_NEEDS", "needs 'mode' = 'changes'"),
        (", 'kafka.transactional.id' = 'x'", "id", "OPTION_VALUE", "freshline sets transactional.id itself"),
        (", 'kafka.sasl.password' = 'x'", "id", "REFERENCE", "is a secret"),
        (", 'kafka.sasl.jaas.config' = 'x'", "id", "REFERENCE", "is a secret"),
        (", 'kafka.error_cb' = 'x'", "id", "OPTION_VALUE", "is no text"),
        (", 'kafka.ssl.truststore.location' = '/a.jks'", "id", "OPTION_VALUE", "Convert it to PEM"),
        (", 'replication' = '3'", "id", "OPTION_NEEDS", "needs 'partitions'"),
        (", 'mode' = 'no'", "id", "OPTION_VALUE", "upsert"),
        (", 'starting' = 'latest'", "id", "UNKNOWN_OPTION", "no option 'starting'"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_by_name(settings, more, key, code, said):
    primary = f" (PRIMARY KEY ({key}))" if key else ""
    files = {
        "src.sql": f"CREATE SOURCE src ({COLUMNS}) WITH ('connector' = 'delta', 'path' = '/nowhere')",
        "big.sql": f"CREATE MATERIALIZED TABLE big{primary} AS SELECT * FROM src",
        "out.sql": SINK % more,
    }
    with pytest.raises(DeclarationErrors, match=said) as found:
        read_declarations(files, settings)
    assert [each.rule for each in found.value.errors] == [code]


def test_properties_of_sources_are_those_of_sinks():
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b\\"=c";'
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": login,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/k.pem",
        "ssl.truststore.certificates": "-----",
    }
    assert for_librdkafka(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "a",
        "sasl.password": 'b"=c',
        "ssl.certificate.location": "/k.pem",
        "ssl.key.location": "/k.pem",
        "ssl.ca.pem": "-----",
    }
    with pytest.raises(ValueError, match="no username and password") as found:
        for_librdkafka({"sasl.jaas.config": "secret-value"})
    assert "secret-value" not in str(found.value)


def values_of(topic):
    return [json.loads(value) for _, value in topic.records()]


def test_changes_have_the_row_before_and_the_row_after(ship, topic):
    topic.create()
    out = ship(mode="changes")
    out.whole(1, (1, "a"), (2, "b"))
    sent = out.images(2, ((1, "a"), (1, "A")), ((2, "b"), None), (None, (3, None)))
    assert (sent.written, sent.deleted) == (2, 1)
    assert [key for key, _ in topic.records()] == [b'{"id":%d}' % number for number in (1, 2, 1, 2, 3)]
    assert values_of(topic)[2:] == [
        {"before": {"id": 1, "note": "a"}, "after": {"id": 1, "note": "A"}, "op": "u"},
        {"before": {"id": 2, "note": "b"}, "after": None, "op": "d"},
        {"before": None, "after": {"id": 3, "note": None}, "op": "c"},
    ]
    assert sorted(row["id"] for row in out.read()) == [1, 3]
    # A comparison sends the difference from what readers have, with what they have as the row before.
    sent = out.whole(3, (1, "x"), (4, "d"), takes_over=True)
    assert (sent.written, sent.deleted) == (2, 1)
    assert values_of(topic)[5:] == [
        {"before": {"id": 1, "note": "A"}, "after": {"id": 1, "note": "x"}, "op": "u"},
        {"before": None, "after": {"id": 4, "note": "d"}, "op": "c"},
        {"before": {"id": 3, "note": None}, "after": None, "op": "d"},
    ]
    assert out.whole(4, (1, "x"), (4, "d")).written == 0
    topic.send((b"k", b"mine"))
    with pytest.raises(SinkSchemaError, match="no change of big"):
        out.whole(5, (1, "x"), takes_over=True)


def test_rows_of_a_table_without_a_key_come_and_go_as_often_as_they_are(ship, topic):
    topic.create(partitions=3)
    out = ship(mode="changes", keys="")
    out.whole(1, (1, "a"), (1, "a"), (2, "b"))
    out.changes(2, [(2, "b")], [(1, "a")])
    assert {key for key, _ in topic.records()} == {None}
    assert sorted(row["id"] for row in out.read()) == [1, 2, 2]
    sent = out.whole(3, (1, "a"), (1, "a"), (3, "c"), takes_over=True)
    assert (sent.written, sent.deleted) == (2, 2)
    assert sorted(row["id"] for row in out.read()) == [1, 1, 3]


def test_a_row_that_was_not_taken_is_no_row_before(ship, topic):
    topic.create(max_message_bytes="5000")
    out = ship(mode="changes", on__reject="quarantine")
    out.whole(1, (1, "a"))
    large = "x" * 5000
    sent = out.images(2, ((1, "a"), (1, large)), (None, (2, "b")))
    assert (sent.written, [each.code for each in out.rejected]) == (1, ["MSG_SIZE_TOO_LARGE"])
    assert sorted(row["note"] for row in out.read()) == ["a", "b"]


def test_an_envelope_of_debezium_is_read_back_as_it_was(settings, topic, tmp_path):
    topic.create()
    fields = [
        pa.field("id", pa.int64()),
        pa.field("e", pa.decimal128(20, 3)),
        pa.field("g", pa.float64()),
        pa.field("b", pa.binary()),
        pa.field("d", pa.date32()),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("n", pa.timestamp("us")),
        pa.field("o", pa.bool_()),
        pa.field("l", pa.string(), metadata={JSON: b""}),
    ]
    kinds: list[T.DataType] = [
        T.LongType(),
        T.DecimalType(20, 3),
        T.DoubleType(),
        T.BinaryType(),
        T.DateType(),
        T.TimestampType(),
    ]
    kinds += [T.TimestampNTZType(), T.BooleanType(), T.ArrayType(T.StringType())]
    moment = d.datetime(2026, 1, 2, 3, 4, 5, 678901, d.UTC)
    first = (2**60, Decimal("12345678901234567.891"), 0.1, b"\0\xff", d.date(1, 1, 1), moment)
    row = (*first, moment.replace(tzinfo=None), True, '["x",null]')
    empty = (1, *[None] * 8)
    spec = declared(settings, topic, "id BIGINT, e INT", mode="changes", value_format="debezium-json")
    out = Shipped(topic, Host(tmp_path), spec, pa.schema(fields))
    out.whole(1, row)
    out.images(2, (row, (2**60, *empty[1:])), (None, empty))
    out.images(3, (empty, None))
    columns = tuple(zip(out.schema.names, kinds, strict=True))
    reader = EnvelopeReader(EnvelopeFacts(columns, ("id",)))
    events = [reader.read(value, key) for key, value in topic.records()]
    micros = (moment - d.datetime(1970, 1, 1, tzinfo=d.UTC)) // d.timedelta(microseconds=1)
    stored = (*row[:4], -719_162, micros, micros, True, ["x", None])
    assert [event.op for event in events] == ["c", "u", "c", "d"]
    assert events[0].values == stored
    assert (events[1].values, events[1].before) == ((2**60, *empty[1:]), stored)
    assert events[2].values == empty
    assert (events[3].values, events[3].before) == (empty, empty)
    assert len({(event.values[0], event.position) for event in events}) == 4
    assert events[0].changed_at == (out.host.now - d.datetime(1970, 1, 1, tzinfo=d.UTC)) // d.timedelta(microseconds=1)


def test_a_zombie_is_fenced_while_it_still_sends(ship, topic):
    topic.create()
    out, newer = ship(), ship()
    newer.epoch = 2
    out.whole(1, (1, "a"))
    many = outgoing(SCHEMA, [(number, "older") for number in range(9)], ())

    def read():
        for number, batch in enumerate(many.read()):
            if number == 1:
                newer.changes(3, [(1, "newer")])
            yield batch

    writer = out.writer()
    with pytest.raises(SinkFencedError):
        writer.apply(Outgoing(SCHEMA, 9, 0, read), Delivery(writer.position(), out.at(2)), out.rejected.extend)
    assert topic.state() == {'{"id":1}': {"id": 1, "note": "newer"}}
    # It knows from the position that it is of yesterday.
    with pytest.raises(SinkFencedError, match="newer engine"):
        out.whole(4, (1, "older"))


def test_a_client_that_is_not_installed_is_named_with_its_extra(ship, monkeypatch):
    out = ship()
    for name in [name for name in sys.modules if name.startswith(("confluent_kafka", "freshline.sinks.kafka."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(SinkRefusedError, match=r"pip install 'freshline\[kafka\]'"):
        out.spec.sink.open(out.spec, out.host)


def test_a_broker_that_restarts_within_a_transaction_costs_no_row_and_repeats_none(ship, topic, kafka_broker):
    topic.create()
    out = ship()
    out.whole(1, (1, "a"))

    def restart():
        kafka_broker.kill()
        kafka_broker.start()

    out.host.once["sink-before-commit"] = restart
    try:
        out.changes(2, [(2, "b")])
    except SinkError as error:
        if not error.retry_helps:
            raise
        # As the next try of a loop does it.
        out.host.once.clear()
        if out.writer().position() == out.at(1):
            out.changes(2, [(2, "b")])
    assert out.writer().position() == out.at(2)
    assert [key for key, _ in topic.records()] == [b'{"id":1}', b'{"id":2}']
