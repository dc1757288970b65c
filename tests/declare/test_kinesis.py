"""Sources of Kinesis as they are declared."""

from __future__ import annotations

import subprocess
import sys

import pytest

from freshline.sources.kinesis.connector import Kinesis
from freshline.sources.kinesis.position import KinesisPosition, ShardPosition
from freshline.values.names import TableName
from freshline.values.position import position_from_json
from freshline.values.spec import SourceSpec

STREAM = "'connector' = 'kinesis', 'format' = 'json', 'stream' = 'orders'"
KEYS = "'access-key-id' = '${env:KEY}', 'secret-access-key' = '${file:secrets/key}'"
IDENTITY = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders@2026-01-01T00:00:00.250Z"


def declare(project, options, columns="id INT"):
    project.declare("s.sql", f"CREATE SOURCE s (\n{columns}\n)\nWITH ({options})")


def read(project):
    source = project.read().spec(TableName(None, "s"))
    assert isinstance(source, SourceSpec)
    assert isinstance(source.connection, Kinesis)
    return source, source.connection


def test_a_stream_has_its_defaults(project):
    declare(project, STREAM)
    source, kinesis = read(project)

    assert kinesis == Kinesis("orders")
    assert kinesis.shown == {"stream": "orders"}
    # It is the same when it is read from the cache of declarations.
    assert read(project)[0] == source


def test_every_option(project):
    declare(
        project,
        f"{STREAM}, {KEYS}, 'session-token' = '${{env:TOKEN}}', 'region' = 'eu-west-1', 'endpoint' = "
        "'https://localhost:4566', 'starting' = '2026-11-01 02:00:00+02:00', 'user-records' = 'all', 'accept-gap' = "
        f"'shardId-000000000000:0, shardId-000000000001:{'9' * 129}', 'accept-stream' = '{IDENTITY}', 'tls.ca' = "
        "'ca.pem', 'tls.certificate' = '/c.pem', 'tls.key' = '/k.pem'",
    )
    _, kinesis = read(project)

    assert (kinesis.starting, kinesis.user_records) == ("2026-11-01T00:00:00+00:00", "all")
    assert kinesis.accepted_gaps == (("shardId-000000000000", "0"), ("shardId-000000000001", "9" * 129))
    assert kinesis.accepted_stream == IDENTITY
    assert (kinesis.access_key_id, kinesis.secret_access_key) == ("${env:KEY}", "${file:secrets/key}")
    assert kinesis.shown == {"stream": "orders", "region": "eu-west-1", "endpoint": "https://localhost:4566"}
    assert str(kinesis.tls_ca).endswith("/ca.pem")


def test_every_fact_of_a_record(project):
    names = ("shard STRING", "number BIGINT", "sequence_number STRING", "sub_sequence_number BIGINT")
    more = ("partition_key STRING", "timestamp TIMESTAMP", "ingested_at TIMESTAMP")
    columns = [f"m_{each} METADATA FROM '{each.split()[0]}'" for each in (*names, *more)]
    declare(project, STREAM, ", ".join(["id INT", *columns]))

    assert len(read(project)[0].columns) == 8


@pytest.mark.parametrize(
    ("options", "rule", "said"),
    [
        (STREAM.replace(", 'stream' = 'orders'", ""), "OPTION_NEEDS", "the stream's name"),
        (STREAM.replace("orders", "or/ders"), "OPTION_VALUE", "up to 128 letters"),
        (STREAM.replace("orders", "o" * 129), "OPTION_VALUE", "up to 128 letters"),
        (f"{STREAM}, 'region' = 'eu west'", "OPTION_VALUE", "such as eu-west-1"),
        (f"{STREAM}, 'endpoint' = 'localhost:4566'", "OPTION_VALUE", "an address"),
        (f"{STREAM}, 'endpoint' = 'http://key:secret@localhost'", "OPTION_VALUE", "without a name"),
        (f"{STREAM}, 'endpoint' = 'http://[::1'", "OPTION_VALUE", "an address"),
        (f"{STREAM}, 'access-key-id' = '${{env:KEY}}'", "OPTION_NEEDS", "'secret-access-key'"),
        (f"{STREAM}, 'secret-access-key' = '${{env:KEY}}'", "OPTION_NEEDS", "'access-key-id'"),
        (f"{STREAM}, 'session-token' = '${{env:KEY}}'", "OPTION_NEEDS", "'access-key-id'"),
        (f"{STREAM}, {KEYS}".replace("${env:KEY}", "AKIAKEY"), "REFERENCE", "is a secret"),
        (f"{STREAM}, 'endpoint' = 'http://h', 'tls.ca' = 'ca.pem'", "OPTION_NEEDS", "begins with https://"),
        (f"{STREAM}, 'tls.key' = 'key.pem'", "OPTION_NEEDS", "'tls.certificate'"),
        (f"{STREAM}, 'starting' = 'now'", "OPTION_VALUE", "earliest, latest or a time"),
        (f"{STREAM}, 'starting' = '1969-01-01'", "OPTION_VALUE", "earliest, latest or a time"),
        (f"{STREAM}, 'user-records' = 'none'", "OPTION_VALUE", "of-shard or all"),
        (f"{STREAM}, 'accept-gap' = '0:5-9'", "OPTION_VALUE", "shard:number"),
        (f"{STREAM}, 'accept-gap' = 'shardId-000000000000:x'", "OPTION_VALUE", "shard:number"),
        (f"{STREAM}, 'accept-stream' = 'orders'", "OPTION_VALUE", "what STREAM_REPLACED shows"),
        (STREAM.replace("'json'", "'parquet'"), "NOT_BUILT", "is of files"),
        (STREAM.replace("'json'", "'debezium-json'"), "CHANGE_KEY", "PRIMARY KEY"),
        (f"{STREAM}, 'topic' = 't'", "OPTION_NEEDS", "needs connector = kafka"),
        (f"{STREAM}, 'key.format' = 'json'", "OPTION_NEEDS", "key"),
    ],
)
def test_a_wrong_declaration_is_refused(project, options, rule, said):
    declare(project, options)
    found = project.errors()

    assert [(each[0], said in each[2]) for each in found if each[0] == rule][:1] == [(rule, True)]


def test_a_secret_is_in_no_message(project):
    declare(project, f"{STREAM}, 'access-key-id' = 'AKIASECRET', 'secret-access-key' = 'hunter2'")

    assert not any("hunter2" in each[2] or "AKIASECRET" in each[2] for each in project.errors())


def test_positions_are_read_as_they_were_written():
    shards = {
        "shardId-000000000001": ShardPosition("49" * 28, 2**62, 1, 2),
        "shardId-000000000000": ShardPosition(is_closed=True),
    }
    position = KinesisPosition("arn:größe", 5, "2026-11-01T00:00:00+00:00", 7, shards, ("a",))

    assert position_from_json(position.as_json()) == position


def test_declaring_loads_neither_the_client_nor_spark():
    code = (
        "import sys; from freshline.values.registry import find_connector; find_connector('kinesis'); "
        "assert not {'boto3', 'botocore', 'pyspark', 'pyarrow', 'ssl'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
