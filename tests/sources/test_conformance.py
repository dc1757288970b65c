"""Files, Kafka, Postgres, a queue and a format that exist only here, under the same claims."""

from __future__ import annotations

import io
import json
import os
from datetime import UTC, datetime, timedelta

import fastavro
import pyarrow as pa
import pytest

from freshline.engine.ingest import Ingest
from freshline.engine.reading import read_changes, read_rows
from freshline.errors import RequestError
from freshline.sources.files import side_table
from freshline.sources.http.position import HttpPosition
from freshline.testing import Crash
from freshline.testing.connectors import (
    LOG_POINTS,
    SECRET,
    Conformance,
    FormatConformance,
    LandingFolder,
    LogConformance,
    Row,
    SecretClaims,
    SecretConformance,
    System,
    ids,
    receipt_of,
)
from freshline.testing.formats import FormatClaims
from freshline.values.registry import find_connector
from tests.asgi import ask_asgi
from tests.databases import Shop
from tests.delta_log import version_of
from tests.kafka import Record
from tests.kinesis import aggregate
from tests.lanes import long_but
from tests.registry import basic, framed, running_registry
from tests.sources.stranger import stranger
from tests.typed_rows import avro_file, avro_record, orc_file, parquet_file

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class Topic(System):
    """A topic of a real broker."""

    connector = "kafka"
    may_be_null = frozenset({"key", "headers"})
    gone = "TOPIC"
    # A topic of the same name is another one.
    comes_back = False
    secret = "kafka.ssl.key.password"

    def __init__(self, lab, kafka):
        super().__init__(lab)
        self.kafka, self.topic = kafka, kafka.new()

    @property
    def options(self):
        return {"topic": self.topic, "bootstrap.servers": self.kafka.servers}

    def put(self, records):
        self.kafka.send(self.topic, [Record(record) for record in records])

    def take_away(self):
        self.kafka.delete(self.topic)


class AvroTopic(Topic):
    """A topic whose records name schemas of a registry. Its only schema has the number 1."""

    format = "avro"
    rejects_bytes = False
    broken = framed(1, b"\x02")
    code = "NOT_AVRO"
    schema = avro_record(id=["null", "long"], a=["null", "string"])

    def __init__(self, lab, kafka, registry):
        super().__init__(lab, kafka)
        self.registry = registry
        registry.authorization = basic("reader", SECRET)
        assert registry.register(self.schema) == 1

    @property
    def options(self):
        own = {
            "registry.url": self.registry.url,
            "registry.user": "reader",
            "registry.password": "${env:SYSTEM_SECRET}",
        }
        return {**super().options, **own}

    def encode(self, row):
        file = io.BytesIO()
        fastavro.schemaless_writer(file, self.schema, {"id": None, "a": None, **row})
        return framed(1, file.getvalue())


class FramedJsonTopic(Topic):
    """A topic of JSON behind the frame of a registry, which is not asked."""

    format = "json-schema"
    rejects_bytes = False
    broken = framed(1, b'{"id": 1')

    def encode(self, row):
        return framed(200, super().encode(row))


class SpoolFile(System):
    """The queue of the page "Connectors"."""

    connector = "spool"
    secret = "token"

    def __init__(self, lab, folder):
        super().__init__(lab)
        self.file, self.sent = folder / "messages", 0
        self.file.write_text(f"queue-1 {SECRET}\n", encoding="utf-8")

    @property
    def options(self):
        return {"path": str(self.file), "token": "${env:SYSTEM_SECRET}"}

    def put(self, records):
        with self.file.open("ab") as file:
            for record in records:
                self.sent += 1
                sent_at = (MOMENT + timedelta(seconds=self.sent)).isoformat().encode()
                file.write(sent_at + b"\t" + record + b"\n")

    def take_away(self):
        self.file.rename(self.file.with_name("gone"))

    def bring_back(self):
        self.file.with_name("gone").rename(self.file)


class Posts(System):
    """Each sending is a post to the door of an engine."""

    connector = "http"
    secret = "token"

    def __init__(self, lab, folder):
        super().__init__(lab)
        self.folder = folder / "posts"
        self.folder.mkdir()
        self.ingest = Ingest(lambda: lab.runtime.graph, lab.settings.root, os.environ)

    @property
    def options(self):
        return {"path": str(self.folder), "token": "${env:SYSTEM_SECRET}"}

    def post(self, body, **headers):
        """The answer to a post of some bytes."""
        given = {"authorization": f"Bearer {SECRET}", "content-type": "application/x-ndjson"} | headers
        given["content-length"] = str(len(body))
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
        scope = {"type": "http", "method": "POST", "path": "/ingest/s", "headers": pairs}
        status, answer = ask_asgi(self.ingest, scope, body)
        return status, json.loads(answer)

    def put(self, records):
        assert self.post(b"".join(record + b"\n" for record in records))[0] == 202

    def take_away(self):
        self.folder.rename(self.folder.with_name("gone"))

    def bring_back(self):
        self.folder.with_name("gone").rename(self.folder)


class DatabaseTable(System):
    """A table of a real Postgres. A record that is none is a row with a key that does not fit the declared type."""

    connector = "postgres"
    broken = b"too large a key"
    code = "VALUE_CHANGED(id)"
    gone = "DATABASE"
    secret = "url"
    replays = False
    lost = "SLOT_LOST"

    def __init__(self, lab, server, shop):
        super().__init__(lab)
        self.server, self.shop, self.large, self.is_away = server, shop, 10**11, False
        shop.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT)")

    @property
    def options(self):
        return {"url": "${env:SHOP_URL}", "table": "public.t", "slot": self.shop.slot}

    def declare(self, columns="id INT, a STRING", **more):
        key = "" if "PRIMARY KEY" in columns else ", PRIMARY KEY (id)"
        given = ", ".join(f"'{name}' = '{value}'" for name, value in {**self.options, **more}.items())
        self.lab.declare(f"CREATE SOURCE s ({columns}{key}) WITH ('connector' = '{self.connector}', {given})")

    def held(self, secret):
        return self.shop.url.replace("freshline@", f"freshline:{secret}@")

    def put(self, records):
        for record in records:
            self.large += 1
            row = {"id": self.large} if record == self.broken else json.loads(record)
            self.shop.connection.execute("INSERT INTO t VALUES (%s, %s)", (row["id"], row.get("a")))

    def take_away(self):
        self.is_away = True
        self.server.stop()

    def bring_back(self):
        self.server.start()
        self.shop.forget()
        self.is_away = False


class QueriedTable(DatabaseTable):
    """A table of a real Postgres that is read by queries."""

    connector = "jdbc"
    replays = True

    @property
    def options(self):
        return {"url": "${env:SHOP_URL}", "table": "public.t", "read": "snapshot"}


class RabbitStream(System):
    """A stream of a real RabbitMQ."""

    connector = "rabbitmq"
    kind = "stream"
    # No message has these, and a stream needs no digest.
    may_be_null = frozenset({"message_id", "app_id", "timestamp", "headers", "digest"})
    gone = "QUEUE"
    # A stream of the same name is another one.
    comes_back = False
    secret = "url"

    def __init__(self, lab, rabbitmq):
        super().__init__(lab)
        self.rabbitmq, self.sent = rabbitmq, 0
        self.queue = rabbitmq.new_name(self.kind)
        rabbitmq.declare(self.queue, self.kind)

    @property
    def options(self):
        return {"url": "${env:BROKER}", "stream": self.queue}

    def held(self, secret):
        assert secret in self.rabbitmq.url
        return self.rabbitmq.url

    def put(self, records):
        self.rabbitmq.send(self.queue, records)

    def take_away(self):
        self.rabbitmq.delete(self.queue)


class RabbitQueue(RabbitStream):
    """A queue of a real RabbitMQ, whose messages have ids of their own."""

    kind = "classic"
    may_be_null = frozenset({"app_id", "timestamp", "headers"})
    replays = False
    lost = "OFFSETS_LOST"
    has_tail = False

    @property
    def options(self):
        return {"url": "${env:BROKER}", "queue": self.queue, "identity": "message-id"}

    def put(self, records):
        first, self.sent = self.sent, self.sent + len(records)
        self.rabbitmq.send(self.queue, records, ids=[str(number) for number in range(first, self.sent)])


class RabbitQuorumQueue(RabbitQueue):
    kind = "quorum"


class KinesisStream(System):
    """A stream of the Kinesis service, of one shard."""

    connector = "kinesis"
    # Only records of aggregates have it.
    may_be_null = frozenset({"sub_sequence_number"})
    gone = "BROKER"
    secret = "secret-access-key"

    def __init__(self, lab, kinesis):
        super().__init__(lab)
        self.kinesis, self.stream = kinesis, kinesis.create()

    @property
    def options(self):
        return {
            "stream": self.stream,
            "region": "eu-west-1",
            "endpoint": self.kinesis.url,
            "access-key-id": "${env:AWS_ACCESS_KEY_ID}",
            "secret-access-key": "${env:SYSTEM_SECRET}",
        }

    def put(self, records):
        self.kinesis.send(self.stream, records)

    def take_away(self):
        self.kinesis.stop()

    def bring_back(self):
        self.kinesis.start()


class AvroStream(KinesisStream):
    """A stream whose records name schemas of a registry, as those of a topic do."""

    format = "avro"
    rejects_bytes = False
    broken, code, schema = AvroTopic.broken, AvroTopic.code, AvroTopic.schema
    encode = AvroTopic.encode

    def __init__(self, lab, kinesis, registry):
        super().__init__(lab, kinesis)
        self.registry = registry
        assert registry.register(self.schema) == 1

    @property
    def options(self):
        return {**super().options, "registry.url": self.registry.url}


class FramedJsonStream(KinesisStream):
    """A stream of JSON behind the frame of a registry, which is not asked."""

    format = "json-schema"
    rejects_bytes = False
    broken = FramedJsonTopic.broken

    def encode(self, row):
        return framed(200, super().encode(row))


class PairsInFiles(LandingFolder):
    """Files in the format of the page "Connectors"."""

    format = "pairs"
    broken = b"id=one"
    code = "NOT_PAIRS"

    def encode(self, row: Row) -> bytes:
        return "|".join(f"{name}={value}" for name, value in row.items()).encode()


class RowsInFiles(LandingFolder):
    """Files of a format that has no lines. A record in bytes is JSON, or an element."""

    format = "parquet"
    rejects_bytes = False
    broken = b'{"id": 1099511627776, "a": "x"}'
    code = "VALUE_CHANGED(id)"

    @property
    def options(self):
        own = {"xml": {"row-tag": "row"}, "csv": {"multi-line": "true", "header": "false"}}
        return {**super().options, **own.get(self.format, {})}

    def encode(self, row: Row) -> bytes:
        if self.format == "xml":
            members = "".join(f"<{name}>{value}</{name}>" for name, value in row.items())
            return f"<row>{members}</row>".encode()
        if self.format == "csv":
            return ",".join(str(row.get(name, "")) for name in ("id", "a")).encode()
        return super().encode(row)

    def put(self, records):
        if self.format in ("xml", "csv"):
            lines = b"".join(record + b"\n" for record in records)
            data = b"<rows>" + lines + b"</rows>" if self.format == "xml" else lines
        else:
            rows = [{"id": None, "a": None, **json.loads(record)} for record in records]
            table = pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), ("a", pa.string())]))
            schema = avro_record(id=["null", "long"], a=["null", "string"])
            data = {
                "parquet": lambda: parquet_file(table),
                "orc": lambda: orc_file(table),
                "avro": lambda: avro_file(schema, rows),
            }[self.format]()
        self.files += 1
        (self.folder / f"{self.files:03}").write_bytes(data)


class RowsInOrc(RowsInFiles):
    format = "orc"


class RowsInAvro(RowsInFiles):
    format = "avro"


class RowsInXml(RowsInFiles):
    format = "xml"
    broken = b"<row><id>x</id></row>"
    code = "NOT_XML"


class RowsInCsv(RowsInFiles):
    """CSV with line breaks inside quotes."""

    format = "csv"
    broken = b'x,"a\nb"'
    code = "NOT_CSV"


def ordered(rows):
    """Rows in an order that does not depend on how they were read."""
    return sorted(rows, key=repr)


@pytest.fixture
def installed(tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    with stranger(folder):
        yield


class TestFiles(Conformance):
    # In `make test` the stories of files have these.
    in_long_lane = frozenset(
        {
            "test_stopped_at_each_point_it_loses_and_repeats_nothing",
            "test_stopped_again_and_again_before_anything_is_committed",
            "test_a_union_read_has_what_has_not_arrived_and_the_same_again",
        }
    )

    @pytest.fixture
    def system(self, lab, tmp_path):
        return LandingFolder(lab, tmp_path)


class TestHttp(SecretConformance):
    # In `make test` files have these, by the same reader.
    in_long_lane = frozenset(
        {
            "test_stopped_again_and_again_before_anything_is_committed",
            "test_a_union_read_has_what_has_not_arrived_and_the_same_again",
            "test_a_rejected_record_that_is_a_row_later_says_where_it_came_from",
            "test_a_merge_over_it_keeps_rows_without_a_key_in_its_quarantine",
            "test_what_is_no_record_is_in_quarantine_and_the_rest_goes_on",
            "test_an_event_that_arrives_again_is_left_out_and_another_with_its_key_is_not",
            "test_every_metadata_has_its_type_and_a_value",
            "test_a_log_of_another_connector_is_not_written",
        }
    )

    @pytest.fixture
    def system(self, lab, tmp_path, monkeypatch):
        monkeypatch.setenv("SYSTEM_SECRET", SECRET)
        made = Posts(lab, tmp_path)
        yield made
        made.ingest.close()

    def test_names_of_posts_are_noted_beside_the_log_and_removed_posts_are_not_missed(self, lab, system, monkeypatch):
        monkeypatch.setattr(side_table, "RECENT_FILES", 2)
        system.declare()
        for number in range(5):
            assert system.post(b'{"id": %d}' % number, idempotency_key=str(number)) == (
                202,
                {"bytes": 9, "repeated": False},
            )
            assert lab.refresh("s").rows_out == 1
        position = receipt_of(lab).positions[receipt_of(lab).table]
        assert isinstance(position, HttpPosition)
        assert (position.flushed_seq > 0, len(position.recent) < 3) == (True, True)

        lab.restart()
        # Sent again by a client that lost its answers: nothing is new.
        assert all(system.post(b'{"id": %d}' % n, idempotency_key=str(n))[1]["repeated"] for n in range(5))
        assert lab.refresh("s").strategy == "noop"
        for file in (system.folder / "s").iterdir():
            file.unlink()
        assert lab.refresh("s").strategy == "noop"
        system.send({"id": 5})
        assert lab.refresh("s").rows_out == 1
        # A key whose file was removed brings in another file of its name, which is known and reported, and not read.
        assert system.post(b'{"id": 3}', idempotency_key="3") == (202, {"bytes": 9, "repeated": False})
        outcome = lab.refresh("s")
        assert (outcome.strategy, [problem.code for problem in outcome.problems]) == ("noop", ["FILE_CHANGED"])
        assert ids(lab) == [0, 1, 2, 3, 4, 5]

    @pytest.mark.security
    def test_a_token_that_is_none_fails_the_refresh_with_what_to_do(self, lab, system, monkeypatch):
        monkeypatch.setenv("SYSTEM_SECRET", "too short")
        system.declare()
        error = lab.refresh("s").error

        assert (error.code, error.where) == ("SOURCE", "s")
        assert "holds is no token" in str(error)
        assert "too short" not in str(error)


class TestKafka(SecretConformance):
    # In `make test` the stories of Kafka have the one, and files the other.
    in_long_lane = frozenset(
        {
            "test_a_union_read_has_what_has_not_arrived_and_the_same_again",
            "test_a_merge_over_it_keeps_rows_without_a_key_in_its_quarantine",
            "test_stopped_again_and_again_before_anything_is_committed",
        }
    )

    @pytest.fixture
    def system(self, lab, kafka):
        return Topic(lab, kafka)


class TestFramedTopics(FormatConformance):
    """Formats whose records are bytes, over a topic; the stories of these formats are in `make test`."""

    pytestmark = pytest.mark.long

    @pytest.fixture(params=[AvroTopic, FramedJsonTopic])
    def system(self, lab, kafka, request, monkeypatch):
        monkeypatch.setenv("SYSTEM_SECRET", SECRET)
        with running_registry() as registry:
            yield request.param(lab, kafka, registry) if request.param is AvroTopic else request.param(lab, kafka)


class TestSpool(SecretConformance):
    # The behaviour of a log that is stopped is the same for all connectors, and tested with Kafka too.
    in_long_lane = frozenset(
        {
            "test_stopped_at_each_point_it_loses_and_repeats_nothing",
            "test_stopped_again_and_again_before_anything_is_committed",
            "test_a_union_read_has_what_has_not_arrived_and_the_same_again",
            "test_a_merge_over_it_keeps_rows_without_a_key_in_its_quarantine",
        }
    )

    @pytest.fixture
    def system(self, installed, lab, tmp_path, monkeypatch):
        monkeypatch.setenv("SYSTEM_SECRET", SECRET)
        return SpoolFile(lab, tmp_path)

    def test_one_check_is_read_in_several_commits(self, lab, system):
        system.declare(batch="2")
        system.send(*({"id": number, "a": "x"} for number in range(5)))
        outcome = lab.refresh("s")

        assert (outcome.rows_out, outcome.reason.split(":")[0]) == (5, "NEW_RECORDS(5)")
        assert lab.receipt("s").seq == 3
        assert ids(lab) == [0, 1, 2, 3, 4]

    def test_the_queue_hears_what_was_committed(self, lab, system):
        system.declare()
        system.send({"id": 1, "a": "x"}, {"id": 2, "a": "y"})
        lab.refresh("s")

        assert system.file.with_name("messages.read").read_text() == "2"

    def test_a_queue_that_cannot_hear_it_is_a_problem_of_a_refresh_that_succeeded(self, lab, system):
        system.file.with_name("messages.read").mkdir()
        system.declare()
        system.send({"id": 1, "a": "x"})
        outcome = lab.refresh("s")

        assert (outcome.state, outcome.rows_out) == ("SUCCEEDED", 1)
        assert "does not hear what was read" in str(outcome.problems)
        assert lab.refresh("s").strategy == "noop"

    def test_another_queue_in_its_place_is_an_error(self, lab, system):
        system.declare()
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        system.file.write_text(f"queue-2 {SECRET}\n", encoding="utf-8")

        assert "the queue is queue-2, and queue-1 was read" in str(lab.refresh("s").error)


class TestPostgres(SecretClaims, LogConformance):
    table = DatabaseTable
    # In `make test` the stories of Postgres have these.
    in_long_lane = frozenset(
        {
            "test_stopped_at_each_point_it_loses_and_repeats_nothing",
            "test_stopped_again_and_again_before_anything_is_committed",
        }
    )

    @pytest.fixture
    def system(self, lab, postgres, monkeypatch):
        shop = Shop(lab, postgres)
        monkeypatch.setenv("SHOP_URL", shop.url)
        made = self.table(lab, postgres, shop)
        yield made
        if made.is_away:
            made.bring_back()
        shop.close()


class TestJdbc(TestPostgres):
    table = QueriedTable
    # In `make test` the stories of jdbc, and the tests of its reader without Spark, have these.
    in_long_lane = frozenset(
        {
            "test_stopped_at_each_point_it_loses_and_repeats_nothing",
            "test_stopped_again_and_again_before_anything_is_committed",
            "test_an_empty_source_succeeds_and_has_a_version",
            "test_every_metadata_has_its_type_and_a_value",
            "test_a_log_of_another_connector_is_not_written",
            "test_a_system_that_is_gone_is_an_error_with_a_code_and_costs_nothing",
            "test_a_secret_is_written_as_a_reference_and_shown_nowhere",
        }
    )


class TestRabbitStream(SecretConformance):
    # In `make test` other connectors have these, which the log and the format decide.
    in_long_lane = frozenset(
        {
            "test_a_rejected_record_that_is_a_row_later_says_where_it_came_from",
            "test_what_is_no_record_is_in_quarantine_and_the_rest_goes_on",
            "test_a_merge_over_it_keeps_rows_without_a_key_in_its_quarantine",
            "test_stopped_again_and_again_before_anything_is_committed",
            "test_an_event_that_arrives_again_is_left_out_and_another_with_its_key_is_not",
            "test_each_record_is_a_row_once",
            "test_a_log_of_another_connector_is_not_written",
            "test_an_empty_source_succeeds_and_has_a_version",
        }
    )

    @pytest.fixture
    def system(self, lab, rabbitmq, monkeypatch):
        monkeypatch.setenv("BROKER", rabbitmq.url)
        return RabbitStream(lab, rabbitmq)


class TestRabbitQueue(SecretConformance):
    # In `make test` other connectors have these, which the log and the format decide, or the stories of RabbitMQ.
    in_long_lane = frozenset(
        {
            "test_a_rejected_record_that_is_a_row_later_says_where_it_came_from",
            "test_a_merge_over_it_keeps_rows_without_a_key_in_its_quarantine",
            "test_an_event_that_arrives_again_is_left_out_and_another_with_its_key_is_not",
            "test_stopped_at_each_point_it_loses_and_repeats_nothing",
            "test_stopped_again_and_again_before_anything_is_committed",
            "test_each_record_is_a_row_once",
            "test_a_log_of_another_connector_is_not_written",
            "test_a_system_that_is_gone_is_an_error_with_a_code_and_costs_nothing",
        }
    )

    @pytest.fixture(params=long_but([RabbitQueue], [RabbitQueue, RabbitQuorumQueue]))
    def system(self, lab, rabbitmq, monkeypatch, request):
        monkeypatch.setenv("BROKER", rabbitmq.url)
        return request.param(lab, rabbitmq)


class TestKinesis(SecretConformance):
    # In `make test` other connectors have these, which the log and the format decide.
    # The claim about splits, below, is killed at the same points.
    in_long_lane = frozenset(
        {
            "test_a_rejected_record_that_is_a_row_later_says_where_it_came_from",
            "test_what_is_no_record_is_in_quarantine_and_the_rest_goes_on",
            "test_a_merge_over_it_keeps_rows_without_a_key_in_its_quarantine",
            "test_stopped_again_and_again_before_anything_is_committed",
            "test_an_event_that_arrives_again_is_left_out_and_another_with_its_key_is_not",
            "test_each_record_is_a_row_once",
            "test_a_log_of_another_connector_is_not_written",
            "test_an_empty_source_succeeds_and_has_a_version",
            "test_stopped_at_each_point_it_loses_and_repeats_nothing",
        }
    )

    @pytest.fixture
    def system(self, lab, kinesis, monkeypatch):
        monkeypatch.setenv("SYSTEM_SECRET", SECRET)
        return KinesisStream(lab, kinesis)

    @pytest.mark.long
    def test_a_user_record_that_is_a_row_later_says_where_it_came_from(self, lab, system):
        facts = "n BIGINT METADATA FROM 'sub_sequence_number', k STRING METADATA FROM 'partition_key'"
        small = "CONSTRAINT small EXPECT (id < 10) ON VIOLATION QUARANTINE"
        system.declare(f"id INT, {facts}, {small}")
        system.send(aggregate([("one", b'{"id": 1}'), ("two", b'{"id": 20}'), ("one", b"{")]))
        system.send(aggregate([("k", b'{"id": 9}')])[:-1])
        assert lab.refresh("s").rejected == 3
        system.declare(f"id INT, {facts}")

        assert lab.retry_quarantine("s").rows_out == 1
        assert [(row["id"], row["n"], row["k"]) for row in lab.rows("s")] == [(1, 0, "one"), (20, 1, "two")]

    def test_a_split_is_read_in_order_whenever_the_engine_is_killed(self, lab, system):
        """The newest row of each key is the last that was sent, and an aggregate that is damaged is in quarantine."""
        system.declare("id INT, a STRING, n BIGINT METADATA FROM 'number', s STRING METADATA FROM 'shard'")
        lab.declare(
            "CREATE MATERIALIZED TABLE last (PRIMARY KEY (id)) WITH ('merge' = 'partial_update', "
            "'merge.sequence' = 'arrival') FRESHNESS = INTERVAL '1' HOUR AS SELECT id, a FROM s"
        )
        kinesis, damaged = system.kinesis, aggregate([("k", b'{"id": 9}')])[:-1]
        shard = "shardId-000000000000"
        system.send(aggregate([("k", b'{"id": 1, "a": "first"}'), ("k", b'{"id": 1, "a": "second"}')]), damaged)
        for number, point in enumerate(LOG_POINTS):
            kinesis.send(system.stream, [b'{"id": 1, "a": "before %d"}' % number], shard=shard)
            shard = kinesis.split(system.stream, shard)[0]
            kinesis.send(system.stream, [b'{"id": 1, "a": "after %d"}' % number], shard=shard)
            with lab.crash_at(point), pytest.raises(Crash):
                lab.refresh("s")
            lab.restart(lose_control_store=number == 1)
        assert [outcome.error for outcome in lab.refresh_all()] == [None, None]

        rows = [row["a"] for row in lab.sql("SELECT a FROM s ORDER BY s, n")]
        said = [text for number in range(4) for text in (f"before {number}", f"after {number}")]
        assert sorted(rows) == sorted(["first", "second", *said])
        assert lab.rows("last") == [{"id": 1, "a": "after 3"}]
        (rejected,) = lab.quarantine("s")
        assert (rejected["error"], bytes(rejected["raw"]), rejected["number"]) == ("NOT_AGGREGATE", damaged, 2)
        assert (rejected["shard"], rejected["sub_sequence_number"]) == ("shardId-000000000000", None)


class TestFramedStreams(TestFramedTopics):
    """The claims of framed topics: the connector that brings a record does not change it."""

    @pytest.fixture(params=[AvroStream, FramedJsonStream])
    def system(self, lab, kinesis, monkeypatch, request):
        monkeypatch.setenv("SYSTEM_SECRET", SECRET)
        with running_registry() as registry:
            yield AvroStream(lab, kinesis, registry) if request.param is AvroStream else FramedJsonStream(lab, kinesis)


class TestPairs(FormatClaims):
    @pytest.fixture
    def system(self, installed, lab, tmp_path):
        return PairsInFiles(lab, tmp_path)


class TestFormatsOfFiles(FormatConformance):
    """Formats of files. Each of those with types has stories of its own too."""

    @pytest.fixture(params=long_but([RowsInAvro], [RowsInFiles, RowsInOrc, RowsInAvro, RowsInXml, RowsInCsv]))
    def system(self, lab, tmp_path, request):
        return request.param(lab, tmp_path)


@pytest.mark.parametrize("kind", ["files", "kafka"])
def test_a_log_whose_receipts_are_from_before_positions_had_a_kind_goes_on(lab, kafka, tmp_path, monkeypatch, kind):
    system = LandingFolder(lab, tmp_path) if kind == "files" else Topic(lab, kafka)
    system.declare()
    system.send({"id": 1, "a": "x"})
    position = find_connector(kind).position
    assert position is not None
    with monkeypatch.context() as patch:
        as_json = position.as_json
        patch.setattr(
            position, "as_json", lambda self: {name: v for name, v in as_json(self).items() if name != "kind"}
        )
        lab.refresh("s")
        assert "kind" not in json.loads(lab.receipt("s").to_json())["positions"]["s"]
    lab.restart(lose_control_store=True)

    assert lab.refresh("s").strategy == "noop"
    system.send({"id": 2, "a": "y"})
    assert lab.refresh("s").rows_out == 1
    assert ids(lab) == [1, 2]


def test_a_lab_writes_the_format_of_another_package(installed, lab):
    lab.files("s", "id INT, a STRING", format="pairs")
    lab.land("s", "1.txt", [{"id": 1, "a": "x"}])
    lab.refresh("s")

    assert lab.rows("s") == [{"id": 1, "a": "x"}]


def test_a_log_whose_package_is_gone_stays_readable(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("SYSTEM_SECRET", SECRET)
    folder = tmp_path / "site-packages"
    folder.mkdir()
    with stranger(folder):
        system = SpoolFile(lab, tmp_path)
        system.declare()
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        before = lab.receipt("s")

    (position,) = lab.receipt("s").positions.values()
    assert position.as_json() == {"kind": "spool", "queue": "queue-1", "next": 1}
    assert lab.receipt("s").to_json() == before.to_json()


VECTORS = {"delta.enableDeletionVectors": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
NUMBERED = {"delta.columnMapping.mode": "id"}
TRACKED = {"delta.enableRowTracking": "true"}
WIDENED = {"delta.enableTypeWidening": "true"}
CHECKPOINTS = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "3"}
FEATURES = {
    "plain": {},
    "deletion vectors": VECTORS,
    "column mapping by name": MAPPED,
    "column mapping by number": NUMBERED,
    "row tracking": TRACKED,
    "type widening": WIDENED,
    "v2 checkpoints": CHECKPOINTS,
    "vectors, mapped": VECTORS | MAPPED,
    "vectors, numbered": VECTORS | NUMBERED,
    "vectors, tracked, checkpoints": VECTORS | TRACKED | CHECKPOINTS,
    "mapped, widened": MAPPED | WIDENED,
    "all": VECTORS | MAPPED | TRACKED | WIDENED | CHECKPOINTS,
}


MERGE = """
    MERGE INTO s USING (SELECT 2 AS id, 'y' AS g, 3 AS n UNION ALL SELECT 8, 'z', 9) AS m ON s.id = m.id
    WHEN MATCHED THEN UPDATE SET g = m.g, n = m.n
    WHEN NOT MATCHED THEN INSERT (id, g, n, b) VALUES (m.id, m.g, m.n, NULL)
"""


class TestDelta:
    """A table that is read in place has fewer claims: nothing of it is copied."""

    @pytest.mark.parametrize("feature", long_but(["deletion vectors"], FEATURES))
    @pytest.mark.parametrize("partitioned", long_but([False], [False, True]))
    def test_rows_and_changes_are_those_that_spark_has(self, lab, feature, partitioned):
        """After each kind of change every table over it, and every reader of ours, has the rows that Delta has."""
        properties = FEATURES[feature]
        lab.source(
            "s",
            "id INT, g STRING, n INT, b STRUCT<x: INT>",
            primary_key=["id"],
            partitioned_by=["g"] if partitioned else [],
            properties=properties,
        )
        hourly = "FRESHNESS = INTERVAL '1' HOUR AS"
        lab.declare(f"CREATE MATERIALIZED TABLE c (PRIMARY KEY (id)) {hourly} SELECT id, g, n FROM s WHERE n < 90")
        lab.declare(f"CREATE MATERIALIZED TABLE d {hourly} SELECT g, sum(n) AS n, count(*) AS c FROM s GROUP BY g")
        lab.declare(
            "CREATE MATERIALIZED TABLE e (PRIMARY KEY (g)) WITH ('merge' = 'last_row', 'merge.sequence' = 'n', "
            f"'merge.tie-breaker' = 'id') {hourly} SELECT g, id, n FROM s"
        )
        stories = [
            "INSERT INTO s SELECT /*+ COALESCE(1) */ id, if(id < 3, 'x', 'y'), id, named_struct('x', id) FROM range(6)",
            "INSERT INTO s VALUES (6, 'x', 60, NULL), (7, NULL, NULL, named_struct('x', NULL))",
            "DELETE FROM s WHERE id IN (1, 7); UPDATE s SET n = n + 80 WHERE id IN (0, 4, 5)",
            f"OPTIMIZE s; {MERGE}",
            "RESTORE TABLE s TO VERSION AS OF 3; DELETE FROM s WHERE g = 'x'",
        ]
        if "delta.enableTypeWidening" in properties:
            stories.append("ALTER TABLE s ALTER COLUMN n TYPE BIGINT; UPDATE s SET n = 3000000000 WHERE id = 3")
        if "delta.columnMapping.mode" in properties:
            stories.append(
                "ALTER TABLE s RENAME COLUMN b.x TO z; INSERT INTO s VALUES (9, 'r', 1, named_struct('z', 5))"
            )
        began = version_of(lab.path("s"))
        for story in stories:
            for statement in story.split(";"):
                lab.sql(statement)
            if "TYPE BIGINT" in story:
                self.declare_again(lab, "n INT", "n BIGINT")
            if "RENAME" in story:
                self.declare_again(lab, "x: INT", "z: INT")
            self.check(lab, story)
        lab.restart(lose_control_store=True)
        lab.sql("DELETE FROM s WHERE id = 4")
        self.check(lab, "a restart")
        self.check_changes(lab, began)

    def declare_again(self, lab, before, after):
        """The source has another type in its declaration."""
        file = lab.settings.declarations / "s.sql"
        lab.declare(file.read_text().replace(before, after))

    def check(self, lab, story):
        outcomes = lab.refresh_all()
        assert [outcome.error for outcome in outcomes] == [None] * len(outcomes), story
        stored = ordered(lab.sql("SELECT id, g, n, b FROM s"))
        assert ordered(lab.rows("c")) == ordered(lab.sql("SELECT id, g, n FROM s WHERE n < 90")), story
        assert ordered(lab.rows("d")) == ordered(lab.sql("SELECT g, sum(n) AS n, count(*) AS c FROM s GROUP BY g")), (
            story
        )
        newest = (
            "SELECT g, max_by(id, (n, id)) AS id, max(n) AS n FROM s WHERE g IS NOT NULL AND n IS NOT NULL GROUP BY g"
        )
        assert ordered(lab.rows("e")) == ordered(lab.sql(newest)), story
        assert ordered(read_rows("s", project=lab.settings).to_pylist()) == stored, story
        counted = {str(status.table): status.rows for status in lab.status()}["s"]
        assert counted in (len(stored), None), story
        return stored

    def check_changes(self, lab, began):
        """The changes since a version, with its rows, are the rows of the newest one."""
        changes = read_changes("s", began, net=True, project=lab.settings)
        kinds = changes.column("_change_type").to_pylist()
        rows = changes.drop_columns(["_change_type"]).to_pylist()
        assert set(kinds) <= {"insert"}
        assert ordered(rows) == ordered(lab.sql("SELECT id, g, n, b FROM s"))

    @pytest.mark.long
    @pytest.mark.parametrize("feed", [True, False])
    def test_changes_across_new_types_and_names_are_read(self, lab, feed):
        """Deletion vectors beside wider types are Spark's, which reads no feed over such a change."""
        lab.source("s", "id INT, b STRUCT<x: INT>", change_feed=feed, properties=FEATURES["all"])
        lab.sql("INSERT INTO s SELECT /*+ COALESCE(1) */ id, named_struct('x', id) FROM range(3)")
        lab.sql("DELETE FROM s WHERE id = 1")
        lab.sql("ALTER TABLE s ALTER COLUMN id TYPE BIGINT")
        lab.sql("INSERT INTO s VALUES (3000000000, named_struct('x', 9))")
        lab.sql("ALTER TABLE s RENAME COLUMN b.x TO z")
        self.declare_again(lab, "id INT, b STRUCT<x: INT>", "id BIGINT, b STRUCT<z: INT>")
        lab.sql("DELETE FROM s WHERE id = 2")
        changes = read_changes("s", 0, project=lab.settings)

        found = [(row["id"], row["b"], row["_change_type"]) for row in changes.to_pylist()]
        assert sorted(found[:3], key=repr) == [(each, {"z": each}, "insert") for each in range(3)]
        assert found[3:] == [(1, {"z": 1}, "delete"), (3000000000, {"z": 9}, "insert"), (2, {"z": 2}, "delete")]
        assert ordered(read_rows("s", project=lab.settings).to_pylist()) == ordered(lab.sql("SELECT * FROM s"))

    def test_it_is_read_where_it_is(self, lab):
        lab.source("s", "id INT, a STRING")
        lab.sql("INSERT INTO s VALUES (1, 'x')")
        outcome = lab.refresh("s")

        assert (outcome.state, outcome.strategy, outcome.reason.split(":")[0]) == (
            "SUCCEEDED",
            "noop",
            "NOTHING_NEW(read in place)",
        )
        assert ids(lab) == [1]

    def test_there_is_nothing_beside_it(self, lab):
        lab.source("s", "id INT")
        with pytest.raises(RequestError, match="read in place"):
            lab.union("s")

    def test_one_that_is_gone_is_an_error_with_a_code(self, lab, tmp_path):
        lab.declare(f"CREATE SOURCE s (id INT) WITH ('connector' = 'delta', 'path' = '{tmp_path / 'none'}')")
        outcome = lab.refresh("s")

        assert (outcome.state, outcome.error.code) == ("FAILED", "SOURCE")
