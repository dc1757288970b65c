"""Sources of RabbitMQ as they are declared."""

from __future__ import annotations

import subprocess
import sys

import pytest

from freshline.errors import RequestError
from freshline.freshness.alter import find_table
from freshline.sources.rabbitmq.connector import RabbitMq
from freshline.sources.rabbitmq.position import QueuePosition, StreamPosition
from freshline.values.names import TableName
from freshline.values.position import position_from_json
from freshline.values.spec import SourceSpec

BROKER = "'connector' = 'rabbitmq', 'format' = 'json', 'url' = '${file:secrets/broker}'"
STREAM = f"{BROKER}, 'stream' = 'readings'"
QUEUE = f"{BROKER}, 'queue' = 'orders'"
KEY = "id INT, PRIMARY KEY (id)"


def declare(project, options, columns="id INT"):
    project.declare("s.sql", f"CREATE SOURCE s (\n{columns}\n)\nWITH ({options})")


def read(project):
    source = project.read().spec(TableName(None, "s"))
    assert isinstance(source, SourceSpec)
    assert isinstance(source.connection, RabbitMq)
    return source, source.connection


def test_a_stream_has_its_defaults(project):
    declare(project, STREAM)
    source, rabbit = read(project)

    assert rabbit == RabbitMq("${file:secrets/broker}", stream="readings")
    assert (rabbit.shown, rabbit.left_behind) == ({"stream": "readings"}, "")
    # It is the same when it is read from the cache of declarations.
    assert read(project)[0] == source


def test_a_queue_says_what_is_left_behind(project):
    declare(project, QUEUE, KEY)

    assert read(project)[1].shown == {"queue": "orders", "delivery": "exactly-once"}
    with pytest.raises(RequestError, match="the queue orders stays at the broker"):
        find_table(project.read(), "s")


def test_every_option_of_a_stream(project):
    declare(
        project,
        STREAM + ", 'starting' = '2026-11-01 02:00:00+02:00', 'accept-gap' = '5-9', 'accept-stream' = 'readings@12-0', "
        "'tls.ca' = 'ca.pem', 'tls.certificate' = '/c.pem', 'tls.key' = '/k.pem'",
    )
    _, rabbit = read(project)

    assert (rabbit.starting, rabbit.accepted_gap) == ("2026-11-01T00:00:00+00:00", (5, 9))
    assert rabbit.accepted_stream == StreamPosition("readings", 0, 12, "").loss
    assert str(rabbit.tls_ca).endswith("/ca.pem")


def test_every_option_of_a_queue(project):
    declare(
        project,
        QUEUE
        + ", 'identity' = 'message-id', 'accept-queue' = 'former', 'alert.deliveries-above' = '3', 'accept-gap' = "
        "'1-2'",
    )
    _, rabbit = read(project)

    assert (rabbit.identity, rabbit.accepted_queue, rabbit.most_deliveries) == ("message-id", "former", 3)
    assert rabbit.accepted_gap == (1, 2)


def test_every_fact_of_a_message(project):
    names = ("offset BIGINT", "exchange STRING", "routing_key STRING", "message_id STRING", "app_id STRING")
    more = ("timestamp TIMESTAMP", "redelivered BOOLEAN", "digest BINARY", "ingested_at TIMESTAMP")
    columns = [f"m_{each} METADATA FROM '{each.split()[0]}'" for each in (*names, *more)]
    columns.append("h ARRAY<STRUCT<key: STRING, value: BINARY>> METADATA FROM 'headers'")
    declare(project, STREAM, ", ".join(["id INT", *columns]))

    assert len(read(project)[0].columns) == 11


@pytest.mark.parametrize(
    ("options", "rule", "said"),
    [
        (BROKER, "OPTION_NEEDS", "one of the options 'stream' and 'queue'"),
        (f"{QUEUE}, 'stream' = 'readings'", "OPTION_NEEDS", "one of the options 'stream' and 'queue'"),
        (QUEUE, "DELIVERY", "'identity' = 'message-id'"),
        (f"{QUEUE}, 'delivery' = 'exactly-once'", "DELIVERY", "'delivery' = 'at-least-once'"),
        (f"{QUEUE}, 'delivery' = 'at-least-once', 'identity' = 'message-id'", "OPTION_NEEDS", "'exactly-once'"),
        (f"{QUEUE}, 'delivery' = 'at-most-once'", "OPTION_VALUE", "exactly-once or at-least-once"),
        (f"{QUEUE}, 'identity' = 'hash'", "OPTION_VALUE", "message-id"),
        (f"{STREAM}, 'delivery' = 'at-least-once'", "OPTION_NEEDS", "needs the option 'queue'"),
        (f"{QUEUE}, 'starting' = 'latest'", "OPTION_NEEDS", "needs the option 'stream'"),
        (f"{STREAM}, 'starting' = 'now'", "OPTION_VALUE", "earliest, latest or a time"),
        (f"{STREAM}, 'starting' = '1969-01-01'", "OPTION_VALUE", "earliest, latest or a time"),
        (f"{STREAM}, 'accept-gap' = '0:5-9'", "OPTION_VALUE", "from-to"),
        (f"{STREAM}, 'accept-gap' = '9-5'", "OPTION_VALUE", "from-to"),
        (f"{STREAM}, 'accept-stream' = 'readings'", "OPTION_VALUE", "what QUEUE_REPLACED shows"),
        (f"{BROKER}, 'stream' = ''", "OPTION_VALUE", "up to 255 bytes"),
        (f"{BROKER}, 'stream' = '{'é' * 128}'", "OPTION_VALUE", "up to 255 bytes"),
        (f"{BROKER}, 'stream' = 'a\nb'", "OPTION_VALUE", "in one line"),
        (STREAM.replace("${file:secrets/broker}", "amqp://u:p@h"), "REFERENCE", "is a secret"),
        (STREAM.replace("'json'", "'parquet'"), "NOT_BUILT", "is of files"),
        (STREAM.replace("'json'", "'debezium-json'"), "CHANGE_KEY", "PRIMARY KEY"),
        (f"{STREAM}, 'topic' = 't'", "OPTION_NEEDS", "needs connector = kafka"),
    ],
)
def test_a_wrong_declaration_is_refused(project, options, rule, said):
    declare(project, options)
    found = project.errors()

    assert [(each[0], said in each[2]) for each in found if each[0] == rule][:1] == [(rule, True)]


@pytest.mark.parametrize("columns", [KEY, "id INT"])
def test_a_queue_is_declared_with_what_distinguishes_messages(project, columns):
    declare(project, QUEUE if "PRIMARY" in columns else f"{QUEUE}, 'delivery' = 'at-least-once'", columns)

    assert project.errors() == []


def test_positions_are_read_as_they_were_written():
    for position in (StreamPosition("größe", 2, 2**62, "0f"), QueuePosition("q", 5)):
        assert position_from_json(position.as_json()) == position


def test_declaring_loads_neither_the_driver_nor_spark():
    code = (
        "import sys; from freshline.values.registry import find_connector; find_connector('rabbitmq'); "
        "assert not {'pika', 'pyspark', 'pyarrow', 'ssl'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
