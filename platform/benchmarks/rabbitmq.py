"""Streams and queues of RabbitMQ: messages a CPU-second, from the broker to the commit of a log table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
import psutil
from measure import tree_cpu_seconds
from project import Project, refresh
from pyspark.sql import SparkSession

from freshline.declare.names import TableName
from tests.rabbitmq import RabbitServer, find_server, running_rabbitmq

MESSAGES = 200_000
COLUMNS = "id BIGINT, customer STRING, amount DOUBLE, note STRING"
GOAL = 10_000


@dataclass(frozen=True)
class Throughput:
    """How many messages freshline reads a CPU-second, and how many with what the broker costs."""

    name: str
    ratio: float
    with_broker: float

    def line(self) -> str:
        verdict = "met" if self.ratio >= GOAL else "MISSED"
        return (
            f"{self.name:<26} {self.ratio:8,.0f} messages a CPU-second, {self.with_broker:8,.0f} with those of the "
            f"broker   goal {GOAL:,} {verdict}"
        )


def rabbitmq_ingest(spark: SparkSession, folder: Path) -> Iterator[Throughput]:
    """Messages of a classic queue, a quorum queue and a stream into a log table: the middle of three, after one."""
    program = find_server()
    if program is None:
        raise SystemExit("RabbitMQ is not installed (on Debian: apt-get install rabbitmq-server)")
    with running_rabbitmq(program) as server:
        os.environ["BENCHMARK_BROKER"] = server.url
        assert server.process is not None
        broker = psutil.Process(server.process.pid)
        for kind in ("classic", "quorum", "stream"):
            found = []
            for number in range(4):
                name = f"{kind}-{number}"
                server.declare(name, kind)
                send(server, name)
                option = "stream" if kind == "stream" else "queue"
                identity = "" if kind == "stream" else ", 'identity' = 'message-id'"
                runtime = Project(
                    folder / name,
                    {
                        "message": f"CREATE SOURCE message ({COLUMNS}) WITH ('connector' = 'rabbitmq', 'format' = "
                        f"'json', 'url' = '${{env:BENCHMARK_BROKER}}', '{option}' = '{name}'{identity})"
                    },
                ).open(spark)
                whole, of_broker = tree_cpu_seconds(), tree_cpu_seconds(broker)
                refresh(runtime, "message")
                whole, of_broker = tree_cpu_seconds() - whole, tree_cpu_seconds(broker) - of_broker
                found.append((MESSAGES / (whole - of_broker), MESSAGES / whole))
                log = spark.read.format("delta").load(str(runtime.warehouse.path(TableName.parse("message"))))
                if log.selectExpr("count(*)", "count(DISTINCT id)", "max(id)").collect()[0] != (
                    MESSAGES,
                    MESSAGES,
                    MESSAGES - 1,
                ):
                    raise SystemExit(f"{name}: the log table has other rows than were sent")
                runtime.close_readers()
                server.delete(name)
            ours, both = sorted(found[1:])[1]
            yield Throughput(f"rabbitmq {kind}", ours, both)


def send(server: RabbitServer, name: str) -> None:
    """Publish the messages, and wait until the broker has all of them."""
    properties = [pika.BasicProperties(message_id=str(number), delivery_mode=2) for number in range(MESSAGES)]
    with pika.BlockingConnection(server.parameters) as connection:
        channel = connection.channel()
        for number in range(MESSAGES):
            if number == MESSAGES - 1:
                # The confirmation of the last one comes after all before.
                channel.confirm_delivery()
            body = f'{{"id": {number}, "customer": "c{number % 5000}", "amount": {number / 7}, "note": "{"x" * 60}"}}'
            channel.basic_publish("", name, body.encode(), properties[number])
