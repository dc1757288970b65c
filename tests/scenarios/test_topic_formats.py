"""Records of topics whose schemas a registry has, keys as columns, and topics whose records are the newest rows."""

from __future__ import annotations

import io
import json
import random
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import fastavro
import pytest

from freshline.errors import SchemaIdError, UndeclaredFieldsError
from freshline.sources.formats import framed_rows
from freshline.sources.formats.protobuf_topics import ProtobufSchema
from freshline.testing import Crash
from tests.crashes import crash
from tests.kafka import Record
from tests.lanes import long_but
from tests.protobuf import file_of, message_of, money_file, whole_file
from tests.registry import basic, framed, running_registry
from tests.typed_rows import avro_record

SECRET = "hunter2-is-the-secret"
ORDER = avro_record(
    id="long",
    name=["null", "string"],
    amount={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    at={"type": "long", "logicalType": "timestamp-millis"},
)
COLUMNS = "id BIGINT, name STRING, amount DECIMAL(12,2), at TIMESTAMP"
BY_CHANGE = "WITH ('merge' = 'last_row', 'merge.sequence' = 'change') FRESHNESS = INTERVAL '10' SECOND"
MOMENT = datetime(2026, 11, 26, 12, 0, 0, 500_000, UTC)


@pytest.fixture(scope="module")
def registries():
    with running_registry() as found:
        yield found


@pytest.fixture
def registry(registries):
    registries.recover()
    registries.asked.clear()
    return registries


def encoded(schema, value):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def order(**values):
    return {"id": 1, "name": "a", "amount": Decimal("1.50"), "at": MOMENT, **values}


def source(lab, kafka, columns=COLUMNS, *, topic=None, partitions=1, format="avro", key=(), **options):  # noqa: A002
    topic = kafka.new(partitions=partitions) if topic is None else topic
    lab.kafka("s", columns, servers=kafka.servers, topic=topic, primary_key=key, format=format, **options)
    return topic


def by_id(lab, name="s"):
    return sorted(lab.rows(name), key=lambda row: row["id"])


# -- Avro


def test_records_of_avro_are_rows_whatever_schema_they_were_written_with(lab, kafka, registry, monkeypatch):
    monkeypatch.setenv("REGISTRY_PASSWORD", SECRET)
    registry.authorization = basic("reader", SECRET)
    options = {
        "registry.url": registry.url,
        "registry.user": "reader",
        "registry.password": "${env:REGISTRY_PASSWORD}",
    }
    topic = source(lab, kafka, f"{COLUMNS}, schema INT METADATA FROM 'schema_id'", **options)
    first = registry.register(ORDER)
    kafka.send(topic, [framed(first, encoded(ORDER, order(id=n))) for n in range(3)])
    outcome = lab.refresh("s")
    assert (outcome.error, outcome.rows_out, outcome.problems) == (None, 3, ())
    assert by_id(lab)[0] == {**order(id=0), "schema": first}

    # The registry is not asked again for what it said, and a field that is new is reported once.
    tags = {"type": "array", "items": "string"}
    tagged = avro_record(id="long", name=["null", "string"], tags=tags)
    second = registry.register({**ORDER, "fields": [*ORDER["fields"][:2], {"name": "tags", "type": tags}]})
    kafka.send(topic, [framed(second, encoded(tagged, {"id": 3, "name": "b", "tags": ["x"]}))])
    kafka.send(topic, [framed(first, encoded(ORDER, order(id=4)))])
    outcome = lab.refresh("s")
    (problem,) = outcome.problems
    assert isinstance(problem, UndeclaredFieldsError)
    assert problem.fields == (("tags", "ARRAY<STRING>"),)
    assert by_id(lab)[3] == {"id": 3, "name": "b", "amount": None, "at": None, "schema": second}
    assert registry.paths == [f"/schemas/ids/{first}", f"/schemas/ids/{second}"]

    # A restart asks again, and does not report again.
    lab.restart(lose_control_store=True)
    kafka.send(topic, [framed(second, encoded(tagged, {"id": 5, "name": "b", "tags": []}))])
    outcome = lab.refresh("s")
    assert (outcome.error, outcome.rows_out, outcome.problems) == (None, 1, ())
    assert len(registry.paths) == 3
    assert SECRET not in "".join(
        map(repr, [outcome, lab.receipt("s").to_json(), lab.status(), lab.runtime.graph.sources])
    )
    registry.authorization = None


def test_a_value_that_is_no_avro_is_in_quarantine_with_its_bytes_and_schema(lab, kafka, registry):
    topic = source(
        lab, kafka, "id INT, name STRING", key=("id",), **{"registry.url": registry.url, "max_record_bytes": "100"}
    )
    schema = avro_record(id=["null", "long"], name=["null", "string"])
    number, other = registry.register(schema), registry.register("{}", kind="JSON")

    def record(**values):
        return framed(number, encoded(schema, {"id": None, "name": None, **values}))

    bad = [
        b"not Avro",
        b"",
        record(id=1)[:-1],
        framed(other, b"{}"),
        record(id=2**40),
        record(),
        record(id=7, name="x" * 200),
    ]
    kafka.send(
        topic,
        [Record(record(id=1, name="é")), *[Record(each, b"k") for each in bad], Record(None), Record(record(id=2))],
    )
    outcome = lab.refresh("s")

    assert (outcome.error, outcome.rows_out, outcome.rejected) == (None, 2, 8)
    assert by_id(lab) == [{"id": 1, "name": "é"}, {"id": 2, "name": None}]
    rejected = sorted(lab.quarantine("s"), key=lambda row: row["offset"])
    assert [(row["error"], row["schema_id"]) for row in rejected] == [
        ("NOT_AVRO", None), ("NOT_AVRO", None), ("NOT_AVRO", number), ("NOT_AVRO", other),
        ("VALUE_CHANGED(id)", number), ("NULL_KEY", number), ("TOO_LARGE", number), ("NULL_VALUE", None),
    ]  # fmt: skip
    assert [bytes(row["raw"] or b"") for row in rejected] == [*bad, b""]
    assert all(row["message"] for row in rejected)


def test_a_registry_that_is_away_loses_and_rejects_nothing(lab, kafka, registry):
    topic = source(lab, kafka, "id INT", **{"registry.url": registry.url})
    schema = avro_record(id="int")
    number = registry.register(schema)
    kafka.send(topic, [framed(number, encoded(schema, {"id": 1}))])
    registry.fail(503)
    outcome = lab.refresh("s")
    assert (outcome.error.code, outcome.error.retry_helps, lab.quarantine("s")) == ("REGISTRY", True, [])

    registry.recover()
    assert (lab.refresh("s").error, lab.rows("s")) == (None, [{"id": 1}])
    # For a schema that is known nobody is asked.
    registry.fail(503)
    kafka.send(topic, [framed(number, encoded(schema, {"id": 2}))])
    assert lab.refresh("s").error is None


def test_a_schema_that_the_registry_does_not_know_stops_the_source_or_goes_to_quarantine(
    lab, kafka, registry, monkeypatch
):
    topic = source(lab, kafka, "id INT", **{"registry.url": registry.url})
    schema = avro_record(id="int")
    number = registry.register(schema)
    kafka.send(topic, [framed(number, encoded(schema, {"id": 1})), framed(4_000, b"\x02")])
    outcome = lab.refresh("s")
    assert isinstance(outcome.error, SchemaIdError)
    assert (outcome.error.ids, lab.rows("s"), lab.quarantine("s")) == ((4_000,), [], [])

    source(lab, kafka, "id INT", topic=topic, **{"registry.url": registry.url, "registry.unknown_id": "quarantine"})
    assert (lab.refresh("s").error, lab.rows("s")) == (None, [{"id": 1}])
    kafka.send(topic, [framed(5_000, b"\x02"), framed(number, encoded(schema, {"id": 2}))])
    assert sorted(row["id"] for row in lab.union("s")[0]) == [1, 2]
    # Nobody is asked for as many numbers as garbage may have.
    monkeypatch.setattr(framed_rows, "MOST_SCHEMAS", 1)
    registry.asked.clear()
    assert (lab.refresh("s").error.code, registry.asked) == ("SCHEMA_ID", [])
    assert [(row["error"], row["schema_id"]) for row in lab.quarantine("s")] == [("UNKNOWN_SCHEMA", 4_000)]


@pytest.mark.long
def test_a_source_that_gains_a_registry_keeps_its_rows_and_its_quarantine(lab, kafka, registry):
    topic = source(lab, kafka, "id INT", format="json")
    kafka.send(topic, [{"id": 1}, b"no JSON"])
    lab.refresh("s")
    schema = avro_record(id="int")
    number = registry.register(schema)
    source(lab, kafka, "id INT", topic=topic, **{"registry.url": registry.url})
    kafka.send(topic, [framed(number, encoded(schema, {"id": 2})), framed(number, b"")])

    assert (lab.refresh("s").error, by_id(lab)) == (None, [{"id": 1}, {"id": 2}])
    found = sorted(lab.quarantine("s"), key=lambda row: row["offset"])
    assert [(row["error"], row["schema_id"]) for row in found] == [("NOT_JSON", None), ("NOT_AVRO", number)]


# -- Protobuf


def test_records_of_protobuf_are_rows(lab, kafka, registry):
    money, file = money_file(), whole_file()
    registry.register('syntax = "proto3";', "money", kind="PROTOBUF", descriptor=money.SerializeToString())
    version = max(number for of, number in registry.versions if of == "money")
    number = registry.register(
        'syntax = "proto3";', kind="PROTOBUF", descriptor=file.SerializeToString(),
        references=[{"name": "money.proto", "subject": "money", "version": version}],
    )  # fmt: skip
    schema = ProtobufSchema(file.SerializeToString(), (("money.proto", money.SerializeToString()),))
    order = message_of(schema)
    columns = "id BIGINT, price STRUCT<cents: BIGINT>, e STRING, b INT, n INT METADATA FROM 'schema_id'"
    topic = source(lab, kafka, columns, format="protobuf", **{"registry.url": registry.url})
    message = b"\x00" + order(id=1, price={"cents": 150}, e=1).SerializeToString()
    kafka.send(topic, [framed(number, message), framed(number, b"\x00\xff"), b"x"])
    outcome = lab.refresh("s")

    assert (outcome.error, outcome.rows_out, outcome.rejected) == (None, 1, 2)
    assert lab.rows("s") == [{"id": 1, "price": {"cents": 150}, "e": "BLUE", "b": None, "n": number}]
    assert sorted((row["error"], row["schema_id"] or 0) for row in lab.quarantine("s")) == [
        ("NOT_PROTOBUF", 0), ("NOT_PROTOBUF", number),
    ]  # fmt: skip


# -- JSON with a frame


def test_json_behind_a_frame_is_read_as_json(lab, kafka):
    topic = source(lab, kafka, "id INT, name STRING, n INT METADATA FROM 'schema_id'", format="json-schema")
    kafka.send(
        topic,
        [
            framed(200, b'{"id": 1, "name": "\xc3\xa9"}'),
            b'{"id": 2}',
            framed(1, b'{"id": "x"}'),
            framed(1, b"\xff"),
            framed(1, b""),
        ],
    )
    outcome = lab.refresh("s")

    assert (outcome.error, lab.rows("s")) == (None, [{"id": 1, "name": "é", "n": 200}])
    rejected = sorted(lab.quarantine("s"), key=lambda row: row["offset"])
    assert [row["error"] for row in rejected] == ["NOT_JSON", "NOT_JSON", "NOT_UTF8", "NOT_JSON"]
    assert bytes(rejected[1]["raw"]) == framed(1, b'{"id": "x"}')


# -- decoded again


def records_of(registry, format):  # noqa: A002
    """The options of a source of `id BIGINT`, what makes a record of an id and a schema, and the id of a schema."""
    options = {"format": format, "registry.unknown_id": "quarantine", "registry.url": registry.url}
    if format == "json-schema":
        return {"format": format}, lambda n, number: framed(number, b'{"id": %d}' % n), registry.register("{}")
    if format == "protobuf":
        file = file_of(id="int64")
        order = message_of(ProtobufSchema(file.SerializeToString()))
        number = registry.register("", kind="PROTOBUF", descriptor=file.SerializeToString())
        return options, lambda n, number: framed(number, b"\x00" + order(id=n).SerializeToString()), number
    schema = avro_record(id="long")
    return options, lambda n, number: framed(number, encoded(schema, {"id": n})), registry.register(schema)


@pytest.mark.parametrize(
    ("format", "point"),
    long_but(
        [("avro", "log-after-quarantine"), ("protobuf", "log-after-commit")],
        [
            (each, point)
            for each in ("avro", "protobuf", "json-schema")
            for point in ("log-before-quarantine", "log-after-quarantine", "log-before-commit", "log-after-commit")
        ],
    ),
)
def test_rejected_records_of_a_registry_are_decoded_again_under_the_declaration_of_now(
    lab, kafka, registry, format, point  # noqa: A002
):  # fmt: skip
    options, record, number = records_of(registry, format)
    columns = "id BIGINT, schema INT METADATA FROM 'schema_id', place BIGINT METADATA FROM 'offset'"
    small = ", CONSTRAINT small EXPECT (id < 100) ON VIOLATION QUARANTINE"
    topic = source(lab, kafka, columns + small, **options)
    broken, unknown = framed(number, b"\xff"), record(3, number + 1_000)
    kafka.send(topic, [record(1, number), record(200, number), broken, unknown, record(300, number)])
    outcome = lab.refresh("s")
    # Of JSON no schema is asked for.
    rejected = 3 if format == "json-schema" else 4
    assert (outcome.error, outcome.rejected) == (None, rejected)

    source(lab, kafka, columns, topic=topic, **options)
    with lab.crash_at(point), pytest.raises(Crash):
        lab.retry_quarantine("s")
    lab.restart(lose_control_store=point == "log-after-quarantine")
    lab.refresh("s")
    lab.retry_quarantine("s")

    found = {row["id"]: (row["schema"], row["place"]) for row in lab.rows("s") if row["id"] != 3}
    assert found == {1: (number, 0), 200: (number, 1), 300: (number, 4)}
    assert len(lab.rows("s")) == (4 if format == "json-schema" else 3)
    left = [bytes(row["raw"]) for row in lab.quarantine("s") if row["retried_in"] is None]
    assert sorted(left) == sorted([broken] if format == "json-schema" else [broken, unknown])


@pytest.mark.long
def test_a_schema_that_the_registry_has_by_now_makes_rows_of_what_waited_for_it(lab, kafka, registry):
    options = {"registry.url": registry.url, "key.format": "avro", "tombstones": "skip"}
    key = avro_record(id="long")
    value = avro_record(name="string")
    of_key = registry.register(key, "topic-key")
    topic = source(
        lab, kafka, "id BIGINT, name STRING", key=("id",), **{**options, "registry.unknown_id": "quarantine"}
    )
    record = Record(framed(8_000, encoded(value, {"name": "late"})), framed(of_key, encoded(key, {"id": 7})))
    kafka.send(topic, [record])
    assert lab.refresh("s").rejected == 1
    assert lab.retry_quarantine("s").reason.startswith("RETRIED(0 of 1)")

    # Nothing is taken from the quarantine while the registry is away, or refuses the number.
    registry.fail(503)
    assert lab.retry_quarantine("s").error.code == "REGISTRY"
    registry.recover()
    source(lab, kafka, "id BIGINT, name STRING", key=("id",), topic=topic, **options)
    assert isinstance(lab.retry_quarantine("s").error, SchemaIdError)

    registry.register(value, as_id=8_000)
    done = lab.retry_quarantine("s")
    assert (done.error, done.rows_out) == (None, 1)
    assert lab.rows("s") == [{"id": 7, "name": "late"}]
    kafka.send(topic, [record])
    assert lab.refresh("s").rows_out == 0


# -- keys as columns, and rows by their keys


def follow(lab, query="SELECT id, name FROM s"):
    lab.declare(f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (id)) {BY_CHANGE} AS {query}")


def test_keys_give_columns(lab, kafka, registry):
    options = {"key.format": "json", "key.columns": "Region, id", "tombstones": "skip"}
    topic = source(lab, kafka, "id INT, region STRING, name STRING", format="json", **options)
    kafka.send(
        topic,
        [
            Record({"name": "a", "id": 99}, b'{"id": 1, "region": "eu"}'),
            Record({"name": "no key"}),
            Record(None, b'{"id": 2, "region": "eu"}'),
            Record({"name": "b"}, b"not JSON"),
            Record({"name": "b"}, b'{"id": "x"}'),
            Record({"name": "b"}, b"\xff"),
            Record({"name": "b"}, b'{"id": 1.5}'),
        ],
    )
    outcome = lab.refresh("s")

    assert (outcome.error, outcome.rows_in, outcome.rows_out, outcome.rejected) == (None, 7, 2, 4)
    assert sorted(lab.rows("s"), key=lambda row: row["name"]) == [
        {"id": 1, "region": "eu", "name": "a"},
        {"id": None, "region": None, "name": "no key"},
    ]
    rejected = sorted(lab.quarantine("s"), key=lambda row: row["offset"])
    assert [row["error"] for row in rejected] == ["NOT_KEY"] * 4
    assert [row["key"] for row in rejected] == [b"not JSON", b'{"id": "x"}', b"\xff", b'{"id": 1.5}']


def test_a_topic_of_newest_rows_is_followed_by_a_table(lab, kafka, registry):
    topic = source(
        lab, kafka, "id INT, name STRING, op STRING METADATA FROM 'op', at TIMESTAMP METADATA FROM 'changed_at'",
        format="json", key=("id",), **{"key.format": "json", "changes": "upsert"},
    )  # fmt: skip
    follow(lab, "SELECT id, name FROM s WHERE name <> 'hidden'")

    # Not long ago, because Kafka removes old records.
    sent = int(time.time() * 1_000)

    def row(key, value):
        return Record(value, json.dumps({"id": key}).encode(), timestamp_ms=sent)

    kafka.send(
        topic,
        [row(1, {"name": "a"}), row(2, {"name": "b"}), row(3, {"name": "c"}), row(1, {"name": "a2"}), row(2, None)],
    )
    assert lab.refresh("t").error is None
    moment = datetime.fromtimestamp(sent // 1_000, UTC) + timedelta(milliseconds=sent % 1_000)
    assert by_id(lab, "t") == [{"id": 1, "name": "a2"}, {"id": 3, "name": "c"}]
    assert {"id": 2, "name": None, "op": "d", "at": moment} in lab.rows("s")
    # The same state again is an event of its own, and so is a delete of what is not there.
    kafka.send(topic, [row(1, {"name": "a2"}), row(9, None), row(3, {"name": "hidden"}), row(2, {"name": "again"})])
    outcome = lab.refresh("t")
    assert (outcome.error, outcome.strategy) == (None, "merge")
    expected = [{"id": 1, "name": "a2"}, {"id": 2, "name": "again"}]
    assert (by_id(lab, "t"), len(lab.rows("s")), lab.verify("t").equal) == (expected, 9, True)

    kafka.send(topic, [row(1, None), Record({"name": "x"}), Record({"name": "x"}, b"{}"), row(4, {"name": "d"})])
    assert sorted(each["id"] for each in lab.union("t")[0]) == [2, 4]
    crash(lab, "log-after-quarantine", "t")
    assert lab.refresh("t").error is None
    assert sorted(each["id"] for each in lab.rows("t")) == [2, 4]
    assert [each["error"] for each in lab.quarantine("s")] == ["NULL_KEY", "NULL_KEY"]
    assert lab.refresh("t", full=True).error is None
    assert sorted(each["id"] for each in lab.rows("t")) == [2, 4]


@pytest.mark.long
def test_newest_rows_in_avro_with_keys_of_their_own_schema(lab, kafka, registry):
    key, value = {"type": "string"}, avro_record(name="string")
    keys, values = registry.register(key, "s-key"), registry.register(value)
    topic = source(
        lab, kafka, "id STRING, name STRING", key=("id",), partitions=3,
        **{"key.format": "avro", "changes": "upsert", "registry.url": registry.url},
    )  # fmt: skip
    follow(lab)

    def row(name, value_of):
        data = None if value_of is None else framed(values, encoded(value, {"name": value_of}))
        return Record(data, framed(keys, encoded(key, name)))

    names = ["é", "", "x" * 300, "d"]
    kafka.send(topic, [*[row(name, "first") for name in names], row("é", "last"), row("d", None)])
    kafka.send(
        topic,
        [
            Record(framed(values, encoded(value, {"name": "n"})), b"no frame"),
            Record(b"bad", framed(keys, encoded(key, "k"))),
        ],
    )
    assert lab.refresh("t").error is None

    assert {each["id"]: each["name"] for each in lab.rows("t")} == {"é": "last", "": "first", "x" * 300: "first"}
    assert sorted(each["error"] for each in lab.quarantine("s")) == ["NOT_AVRO", "NOT_KEY"]


# -- Debezium's events as Avro


ROW = avro_record(
    id="int",
    name=["null", "string"],
    amount=["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
)
ENVELOPE = {
    "type": "record", "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "r"], "default": None},
        {"name": "source", "type": avro_record(connector="string", lsn="long", txId="long") | {"name": "Source"}},
        {"name": "op", "type": "string"},
    ],
}  # fmt: skip


def test_events_of_debezium_in_avro_give_the_rows_that_those_in_json_give(lab, kafka, registry):
    columns = "id INT, name STRING, amount DECIMAL(12,2)"
    topics = {}
    for name, own in (
        ("a", {"format": "debezium-avro", "registry.url": registry.url}),
        ("j", {"format": "debezium-json"}),
    ):
        topics[name] = kafka.new()
        facts = "op STRING METADATA FROM 'op', p STRING METADATA FROM 'position', tx STRING METADATA FROM 'transaction'"
        lab.kafka(name, f"{columns}, {facts}", servers=kafka.servers, topic=topics[name], primary_key=("id",), **own)
        lab.declare(
            f"CREATE MATERIALIZED TABLE t{name} (PRIMARY KEY (id)) {BY_CHANGE} AS SELECT id, name, amount FROM {name}"
        )
    number = registry.register(ENVELOPE)

    def event(op, lsn, after=None, before=None):
        return {
            "before": before,
            "after": after,
            "op": op,
            "source": {"connector": "postgresql", "lsn": lsn, "txId": 7},
        }

    def row(key, name, amount):
        return {"id": key, "name": name, "amount": None if amount is None else Decimal(amount)}

    unsent = row(1, "__debezium_unavailable_value", "2.00")
    events = [
        event("r", 1, row(1, "é", "1.50")), event("c", 2, row(2, None, None)), event("u", 3, unsent),
        event("d", 4, None, row(2, None, None)), None, event("c", 2, row(2, None, None)),
        event("c", 5, row(3, "c", "-0.01")),
    ]  # fmt: skip
    kafka.send(topics["a"], [Record(each and framed(number, encoded(ENVELOPE, each)), b"k") for each in events])

    def plain(side):
        return side and {**side, "amount": None if side["amount"] is None else float(side["amount"])}

    kafka.send(
        topics["j"],
        [
            Record(each and {**each, "after": plain(each["after"]), "before": plain(each["before"])}, b"k")
            for each in events
        ],
    )
    kafka.send(topics["a"], [framed(number, b"\x00"), framed(number, encoded(ENVELOPE, event("x", 6)))])
    for name in ("ta", "tj"):
        assert lab.refresh(name).error is None

    assert by_id(lab, "ta") == [row(1, "é", "2.00"), row(3, "c", "-0.01")]
    assert by_id(lab, "ta") == by_id(lab, "tj")
    key = lambda each: (each["p"], each["op"])  # noqa: E731
    assert sorted(lab.rows("a"), key=key) == sorted(lab.rows("j"), key=key)
    assert sorted((each["error"], each["schema_id"]) for each in lab.quarantine("a")) == [
        ("NOT_AVRO", number), ("NOT_ENVELOPE", number),
    ]  # fmt: skip


def test_the_key_of_a_message_in_avro_names_the_row_of_an_event(lab, kafka, registry):
    topic, key = kafka.new(), avro_record(id="int", shard="string")
    lab.kafka(
        "s", "id INT, shard STRING, name STRING", servers=kafka.servers, topic=topic, primary_key=("id", "shard"),
        format="debezium-avro", **{"registry.url": registry.url},
    )  # fmt: skip
    lab.declare(f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (id, shard)) {BY_CHANGE} AS SELECT id, shard, name FROM s")
    values, keys = registry.register(ENVELOPE), registry.register(key, "k")

    def record(op, lsn, shard, name):
        row = {"id": 1, "name": name, "amount": None}
        image = {"before": row if op == "d" else None, "after": None if op == "d" else row}
        value = {**image, "op": op, "source": {"connector": "postgresql", "lsn": lsn, "txId": 7}}
        return Record(framed(values, encoded(ENVELOPE, value)), framed(keys, encoded(key, {"id": 1, "shard": shard})))

    kafka.send(topic, [record("c", 1, "a", "x"), record("c", 2, "b", "y"), record("d", 3, "a", "x")])
    assert lab.refresh("t").error is None
    assert lab.rows("t") == [{"id": 1, "shard": "b", "name": "y"}]
    # A key of another converter may begin as one of Avro does.
    kafka.send(topic, [Record(record("c", 4, "a", "x").value, b"\0\0\0\0\x63k")])
    assert lab.refresh("t").error is None
    assert [row["error"] for row in lab.quarantine("s")] == ["NULL_KEY"]


# -- what takes longer


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_random_newest_rows_are_those_of_a_dictionary(lab, kafka, seed):
    chance = random.Random(seed)
    topic = source(
        lab, kafka, "region STRING, id INT, name STRING", format="json", key=("id", "region"), partitions=3,
        **{"key.format": "json", "changes": "upsert"},
    )  # fmt: skip
    lab.declare(
        f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (id, region)) {BY_CHANGE} "
        "AS SELECT region, id, name FROM s WHERE name <> 'hidden' OR name IS NULL"
    )
    rows: dict[tuple[int, str], str | None] = {}
    for _ in range(6):
        records = []
        for _ in range(chance.randrange(1, 40)):
            key = (chance.randrange(6), chance.choice(["eu", "é"]))
            value = chance.choice([None, {"name": chance.choice(["a", "b", "hidden", None])}, {}])
            rows[key] = value.get("name") if value else None
            if value is None:
                del rows[key]
            written = json.dumps({"region": key[1], "id": key[0]}, ensure_ascii=chance.random() < 0.5).encode()
            records.append(Record(value, written, partition=key[0] % 3))
        kafka.send(topic, records)
        if chance.random() < 0.3:
            point = chance.choice(["log-before-commit", "log-after-commit"])
            crash(lab, point, "t")
        assert lab.refresh("t").error is None
        found = {(row["id"], row["region"]): row["name"] for row in lab.rows("t")}
        assert found == {key: name for key, name in rows.items() if name != "hidden"}
    assert lab.verify("t").equal
    assert lab.quarantine("s") == []
