"""Rows as records of Avro: what other readers decode is what the table has, and it is read back as it was."""

from __future__ import annotations

import datetime as d
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from fastavro import schemaless_reader

from freshline.declare.project import read_declarations
from freshline.declare.project_settings import read_settings
from freshline.errors import DeclarationErrors, SinkError, SinkRefusedError, SinkSchemaError
from freshline.plan.project import check_promises
from freshline.sinks.kafka.avro_rows import RecordDecoder, RowEncoder, broken_rows, decoded_rows, schema_text
from freshline.sinks.kafka.forms import AvroForm
from freshline.sinks.kafka.registered import RegisteredSchemas
from freshline.sources.formats.avro_topics import FramedAvro, FramedReading, FramedSchema
from freshline.sources.formats.fit import Wanted
from freshline.sources.formats.framing import schema_id_of
from freshline.sources.formats.registry import RegistryAddress
from freshline.values.changed_rows import ChangedRows
from tests.registry import running_registry
from tests.sinks.delivering import Host
from tests.sinks.kafka_topic import Shipped, Topic, declared

INNER = pa.struct([("at", pa.timestamp("us", "UTC")), ("m", pa.map_(pa.string(), pa.decimal128(10, 2)))])
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("s", pa.string()),
        ("i", pa.int8()),
        ("l", pa.int64()),
        ("e", pa.decimal128(38, 18)),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("o", pa.bool_()),
        ("a", pa.list_(pa.string())),
        ("r", INNER),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": 1},
    {
        "id": 2,
        "s": "é\0",
        "i": -128,
        "l": 2**63 - 1,
        "e": Decimal("-12345678901234567890.123456789012345678"),
        "f": 1.5,
        "g": 5e-324,
        "b": b"\0\xff",
        "day": d.date(1, 1, 1),
        "t": d.datetime(9999, 12, 31, 23, 59, 59, 999999, d.UTC),
        "n": d.datetime.fromisoformat("1582-10-04T00:00:00.000001"),
        "o": True,
        "a": ["x", None],
        "r": {"at": d.datetime(2026, 1, 2, tzinfo=d.UTC), "m": [("z", Decimal("1.50")), ("a", None)]},
    },
]
# The keys of maps are sorted.
IN_ORDER = [ROWS[0], {**ROWS[1], "r": {**ROWS[1]["r"], "m": sorted(ROWS[1]["r"]["m"])}}]


def batch(rows=ROWS, schema=SCHEMA):
    return pa.RecordBatch.from_pylist(rows, schema)


@pytest.fixture
def registry():
    with running_registry() as running:
        yield running


def form_of(registry, schema=SCHEMA, keys=("id",), *, of_changes=False):
    schemas = RegisteredSchemas(RegistryAddress(registry.url), "orders", "out")
    return AvroForm(schema, keys, "orders", schemas, of_changes=of_changes)


def read(registry, record):
    """A record as another reader has it, by the schema that the registry gives for its number."""
    assert record[:1] == b"\0"
    status, body, _ = registry.answer(f"/schemas/ids/{int.from_bytes(record[1:5], 'big')}", {})
    assert status == 200
    source = io.BytesIO(record[5:])
    found = schemaless_reader(source, json.loads(json.loads(body)["schema"]), None)
    assert source.read() == b""
    return found


def test_other_readers_decode_what_the_table_has(registry):
    form = form_of(registry)
    form.register(has_key=True)
    assert sorted(registry.versions) == [("orders-key", 1), ("orders-value", 1)]
    assert [read(registry, key) for key in form.keys(batch(), ["id"])] == [{"id": 1}, {"id": 2}]
    first, second = (read(registry, value) for value in form.values(batch()))
    assert first == dict.fromkeys(SCHEMA.names) | {"id": 1}
    assert second == {
        **ROWS[1],
        "n": d.datetime.fromisoformat("1582-10-04T00:00:00.000001"),
        "r": {**ROWS[1]["r"], "m": {"a": None, "z": Decimal("1.50")}},
    }


def test_rows_are_read_back_as_they_were_and_equal_ones_have_equal_bytes(registry):
    form = form_of(registry)
    form.register(has_key=True)
    assert form.rows(form.values(batch()), SCHEMA, images=False).to_pylist()[0] == batch().to_pylist()[0]
    other = [{**ROWS[1], "r": {**ROWS[1]["r"], "m": ROWS[1]["r"]["m"][::-1]}}]
    assert form.images(batch(other)) == form.images(batch())[1:]
    # Years that Python has not.
    far = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int32()), pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))], ["id", "t"]
    )
    form = form_of(registry, far.schema)
    form.register(has_key=True)
    assert form.rows(form.values(far), far.schema, images=False).equals(far)


def test_a_column_that_came_later_is_null_in_older_records(registry):
    old = pa.schema([("id", pa.int32())])
    form = form_of(registry, old)
    form.register(has_key=True)
    values = form.values(batch([{"id": 1}], old))
    newer = form_of(registry)
    newer.register(has_key=True)
    assert ("orders-value", 2) in registry.versions
    assert newer.rows(values, SCHEMA, images=False).to_pylist() == batch([{"id": 1}]).to_pylist()


def test_changes_have_both_images_and_are_read_back(registry):
    form = form_of(registry, of_changes=True)
    form.register(has_key=True)
    new, old = batch([{"id": 1, "s": "b"}, {"id": 2}, {"id": 3}]), batch([{"id": 1, "s": "a"}, {"id": 2}, {"id": 3}])
    changes = ChangedRows(old, new, pa.array([True, False, True]), pa.array([True, True, False]))
    records = form.changes(changes)
    found = [read(registry, record) for record in records]
    assert [(row["op"], row["before"] and row["before"]["s"], row["after"] and row["after"]["s"]) for row in found] == [
        ("u", "a", "b"),
        ("c", None, None),
        ("d", None, None),
    ]
    assert (found[1]["before"], found[2]["after"]) == (None, None)
    images = form.images_of(records)
    assert images[0] == (form.images(old)[0], form.images(new)[0])
    assert (images[1][0], images[2][1]) == (None, None)
    assert form.rows([images[1][1]], SCHEMA, images=True).to_pylist() == new.slice(1, 1).to_pylist()
    with pytest.raises(ValueError, match="no frame"):
        form.images_of([b'{"before": null}'])
    with pytest.raises(ValueError, match="no record of its schema"):
        form.images_of([records[0][:-1]])
    with pytest.raises(ValueError, match="no schema of Avro with the number 77"):
        form.images_of([b"\0\0\0\0\x4d" + records[0][5:]])


def test_sources_decode_the_records_as_the_table_has_them(registry):
    form = form_of(registry)
    form.register(has_key=True)
    keys, values = form.keys(batch(IN_ORDER), ["id"]), form.values(batch())
    for records, schema, is_key in ((values, SCHEMA, False), (keys, pa.schema([SCHEMA.field("id")]), True)):
        (schema_id,) = {schema_id_of(record) for record in records}
        text = json.loads(registry.answer(f"/schemas/ids/{schema_id}", {})[1])["schema"]
        reading = FramedReading({schema_id or 0: FramedSchema(text)}, Wanted(schema, 1 << 20), is_key=is_key)
        found = FramedAvro(reading).read(records)
        assert found.codes.to_pylist() == [None, None]
        assert found.parsed.to_pylist() == batch(IN_ORDER, schema).to_pylist()


def test_texts_that_are_no_utf8_are_found_within_others_too():
    bad = pa.array([b"ok", b"\xff", None], pa.binary()).view(pa.string())
    within = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), bad)
    assert broken_rows(pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), within], ["id", "a"])) == [1]
    assert broken_rows(batch()) == []
    # Beside them may stand years that Python has not.
    times = pa.array([2**62, None, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    both = pa.StructArray.from_arrays([bad, times], ["text", "at"])
    assert broken_rows(pa.RecordBatch.from_arrays([both], ["r"])) == [1]


def test_a_registry_that_refuses_is_an_error_of_the_sink(registry):
    form = form_of(registry)
    registry.closed.add("orders-value")
    with pytest.raises(SinkSchemaError, match="does not take the schema of orders-value: .*incompatible"):
        form.register(has_key=True)
    registry.closed.clear()
    registry.authorization = "Bearer x"
    with pytest.raises(SinkRefusedError, match="refuses the request"):
        form.register(has_key=True)
    registry.authorization = None
    registry.fail(503)
    with pytest.raises(SinkError, match="answers 503") as caught:
        form.register(has_key=True)
    assert caught.value.retry_helps
    registry.recover()
    form.register(has_key=True)
    form.register(has_key=True)
    assert sorted(registry.versions) == [("orders-key", 1), ("orders-value", 1)]


def test_records_within_records_have_names_of_their_own():
    twice = pa.struct([("x", pa.struct([("y", pa.int32())]))])
    schema = pa.schema([("a", twice), ("a_x", pa.struct([("y", pa.int32())])), ("l", pa.list_(twice))])
    encoder = RowEncoder(schema, "t")
    rows = pa.RecordBatch.from_pylist([{"a": {"x": {"y": 1}}, "a_x": {"y": 2}, "l": [{"x": None}, None]}], schema)
    decoder = RecordDecoder(schema_text(encoder.schema))
    assert decoded_rows([decoder.decode(each) for each in encoder.encode(rows)], schema).equals(rows)


@pytest.mark.parametrize(
    ("columns", "more", "said"),
    [
        ("id INT, `a-b` INT", "", "a-b is no name of Avro"),
        ("id INT, s STRUCT<`a b`: INT>", "", "is no name of Avro"),
        ("id INT, m MAP<INT, STRING>", "", "maps whose keys are texts"),
        ("id INT", ", 'value.format' = 'json'", "registry.url.*'value.format' = 'avro'"),
        ("id INT", ", 'registry.user' = '${env:U}'", "registry.password"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_by_name(tmp_path, columns, more, said):
    options = "'connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'h:1', 'registry.url' = 'http://r'"
    form = "" if "value.format" in more else ", 'value.format' = 'avro'"
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    texts = {
        "src.sql": f"CREATE SOURCE src ({columns}, PRIMARY KEY (id)) WITH ('connector' = 'delta', 'path' = 'x')",
        "big.sql": "CREATE MATERIALIZED TABLE big (PRIMARY KEY (id)) AS SELECT * FROM src",
        "out.sql": f"CREATE SINK out FROM big WITH ({options}{form}{more})",
    }
    with pytest.raises(DeclarationErrors, match=said):
        check_promises(read_declarations(texts, read_settings(tmp_path, {})))


# -- with a broker


@pytest.fixture
def ship(kafka_broker, registry, settings, tmp_path):
    """Makes a sink of rows in Avro to a topic of a broker."""

    def made(columns="id INT, note STRING", keys="id", schema=NOTES, topic=None, **options):
        topic = topic or Topic(kafka_broker.servers)
        spec = declared(
            settings, topic, columns, keys, value_format="avro", registry_url=registry.url, partitions="2", **options
        )
        return Shipped(topic, Host(tmp_path), spec, schema)

    return made


NOTES = pa.schema([("id", pa.int32()), ("note", pa.string())])


@pytest.mark.seconds
def test_a_topic_has_the_newest_row_of_each_key(ship, registry):
    out = ship()
    topic = out.topic
    assert out.whole(1, (1, "a"), (2, "b"), (3, None)).written == 3
    assert out.changes(2, [(1, "A")], [(2, "b")]).deleted == 1
    newest = dict(topic.records())
    found = {read(registry, key)["id"]: value and read(registry, value)["note"] for key, value in newest.items()}
    assert found == {1: "A", 2: None, 3: None}
    assert [value for key, value in newest.items() if read(registry, key)["id"] == 2] == [None]
    assert sorted((row["id"], row["note"]) for row in out.read()) == [(1, "A"), (3, None)]
    # A row that is there already is not sent again, and one that does not belong there is taken away.
    sent = out.whole(3, (1, "A"), (4, "d"))
    assert (sent.written, sent.deleted) == (1, 1)
    assert sorted(row["id"] for row in out.read()) == [1, 4]
    assert sorted(registry.versions) == [(f"{topic.name}-key", 1), (f"{topic.name}-value", 1)]
    # A column that comes later is a new version of the schema, by which all rows are sent again.
    wider = pa.schema([*NOTES, ("tags", pa.list_(pa.string()))])
    out = ship("id INT, note STRING, tags ARRAY<STRING>", schema=wider, topic=topic)
    assert out.whole(4, (1, "A", ["x", None]), (4, "d", None)).written == 2
    assert sorted((row["id"], row["tags"]) for row in out.read()) == [(1, ["x", None]), (4, None)]
    assert (f"{topic.name}-value", 2) in registry.versions


@pytest.mark.seconds
@pytest.mark.parametrize("keys", ["id", ""])
def test_changes_go_out_with_both_images_and_their_rows_are_read_back(ship, registry, keys):
    out = ship(keys=keys, mode="changes")
    out.whole(1, (1, "a"), (2, "b"))
    pairs = [((1, "a"), (1, "A")), ((2, "b"), None), (None, (3, "c"))]
    if not keys:
        pairs = [((1, "a"), None), (None, (1, "A")), ((2, "b"), None), (None, (3, "c"))]
    out.images(2, *pairs)
    assert sorted((row["id"], row["note"]) for row in out.read()) == [(1, "A"), (3, "c")]
    ops = [read(registry, value)["op"] for _, value in out.topic.records()]
    assert sorted(ops) == sorted("cc" + ("udc" if keys else "dcdc"))
    assert all((key is None) is (not keys) for key, _ in out.topic.records())
    sent = out.whole(3, (1, "A"), (4, "d"))
    assert (sent.written, sent.deleted) == (1, 1)
    assert sorted(row["id"] for row in out.read()) == [1, 4]


@pytest.mark.seconds
def test_a_schema_that_is_not_taken_stops_before_anything_is_written(ship, registry):
    out = ship()
    out.whole(1, (1, "a"))
    registry.closed.add(f"{out.topic.name}-value")
    wider = pa.schema([*NOTES, ("more", pa.int64())])
    other = ship("id INT, note STRING, more BIGINT", schema=wider, topic=out.topic)
    with pytest.raises(SinkSchemaError, match="incompatible"):
        other.whole(2, (1, "a", 5))
    assert len(out.topic.records()) == 1
    assert out.writer().position() == out.at(1)
    # A text that is no UTF-8 within others is set aside.
    registry.closed.clear()
    other = ship("id INT, note STRING", topic=out.topic, on__reject="quarantine")
    other.as_texts, other.schema = True, pa.schema([("id", pa.int32()), ("note", pa.binary())])
    assert other.whole(3, (1, b"a"), (2, b"\xff")).written == 0
    assert [row.code for row in other.rejected] == ["NOT_UTF8"]
