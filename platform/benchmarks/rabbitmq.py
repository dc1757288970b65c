"""Streams and queues of RabbitMQ: messages a CPU-second, from the broker to the commit of a log table.

Run alone it measures the reading without Spark: what is left of the CPU-second is for decoding and the commit.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
import psutil
from log_position import LogPosition
from measure import NotInstalledError, tree_cpu_seconds
from project import Project, refresh
from pyspark.sql import SparkSession

from freshline.values.names import TableName
from tests.rabbitmq import RabbitServer, find_server, running_rabbitmq

COLUMNS = "id BIGINT, customer STRING, amount DOUBLE, note STRING"
GOAL = 10_000


@dataclass(frozen=True)
class Throughput:
    """How many messages freshline reads a CPU-second, and how many with what the broker costs.

    The goal is that of a whole ingest, None for the reading alone.
    """

    name: str
    ratio: float
    least: float
    most: float
    with_broker: float
    goal: int | None = GOAL

    def line(self) -> str:
        verdict = "" if self.goal is None else f"   goal {GOAL:,} {'met' if self.ratio >= GOAL else 'MISSED'}"
        return (
            f"{self.name:<26} {self.ratio:8,.0f} messages a CPU-second ({self.least:,.0f} to {self.most:,.0f}), "
            f"{self.with_broker:8,.0f} with those of the broker{verdict}"
        )


def rabbitmq_ingest(spark: SparkSession, folder: Path, messages: int) -> Iterator[Throughput]:
    """Messages of a classic queue, a quorum queue and a stream into a log table: the middle of three, after one."""
    program = find_server()
    if program is None:
        raise NotInstalledError("RabbitMQ is not installed (on Debian: apt-get install rabbitmq-server)")
    with running_rabbitmq(program) as server:
        os.environ["BENCHMARK_BROKER"] = server.url
        assert server.process is not None
        broker = psutil.Process(server.process.pid)
        for kind in ("classic", "quorum", "stream"):
            found = []
            for number in range(4):
                name = f"{kind}-{number}"
                server.declare(name, kind)
                send(server, name, messages)
                runtime = Project(folder / name, {"message": _declared(kind, name)}).open(spark)
                whole, of_broker = tree_cpu_seconds(), tree_cpu_seconds(broker)
                refresh(runtime, "message")
                whole, of_broker = tree_cpu_seconds() - whole, tree_cpu_seconds(broker) - of_broker
                found.append((messages / (whole - of_broker), messages / whole))
                log = spark.read.format("delta").load(str(runtime.warehouse.path(TableName.parse("message"))))
                counts = log.selectExpr("count(*)", "count(DISTINCT id)", "max(id)").collect()[0]
                if counts != (messages, messages, messages - 1):
                    raise SystemExit(f"{name}: the log table has other rows than were sent")
                runtime.close_readers()
                server.delete(name)
            (least, _), (ours, both), (most, _) = sorted(found[1:])
            yield Throughput(f"rabbitmq {kind}", ours, least, most, both)


def send(server: RabbitServer, name: str, messages: int) -> None:
    """Publish the messages, and wait until the broker has all of them."""
    properties = [pika.BasicProperties(message_id=str(number), delivery_mode=2) for number in range(messages)]
    with pika.BlockingConnection(server.parameters) as connection:
        channel = connection.channel()
        for number in range(messages):
            if number == messages - 1:
                # The confirmation of the last one comes after all before.
                channel.confirm_delivery()
            body = f'{{"id": {number}, "customer": "c{number % 5000}", "amount": {number / 7}, "note": "{"x" * 60}"}}'
            channel.basic_publish("", name, body.encode(), properties[number])


def _declared(kind: str, name: str) -> str:
    option = "stream" if kind == "stream" else "queue"
    identity = "" if kind == "stream" else ", 'identity' = 'message-id'"
    return (
        f"CREATE SOURCE message ({COLUMNS}) WITH ('connector' = 'rabbitmq', 'format' = 'json', "
        f"'url' = '${{env:BENCHMARK_BROKER}}', '{option}' = '{name}'{identity})"
    )


def reading(folder: Path, messages: int) -> Iterator[Throughput]:
    """The reading alone: the middle of three, after one."""
    program = find_server()
    if program is None:
        raise NotInstalledError("RabbitMQ is not installed (on Debian: apt-get install rabbitmq-server)")
    with running_rabbitmq(program) as server:
        os.environ["BENCHMARK_BROKER"] = server.url
        assert server.process is not None
        broker = psutil.Process(server.process.pid)
        for kind in ("classic", "quorum", "stream"):
            found = []
            for number in range(4):
                name = f"{kind}-{number}"
                server.declare(name, kind)
                send(server, name, messages)
                project = Project(folder / name, {"message": _declared(kind, name)})
                log = LogPosition(project.open(None), "message")  # type: ignore[arg-type]
                whole, of_broker = tree_cpu_seconds(), tree_cpu_seconds(broker)
                if (read := log.read()) != messages:
                    raise SystemExit(f"{name}: {read} messages were read of {messages}")
                whole, of_broker = tree_cpu_seconds() - whole, tree_cpu_seconds(broker) - of_broker
                found.append((messages / (whole - of_broker), messages / whole))
                log.reader.close()
                server.delete(name)
            (least, _), (ours, both), (most, _) = sorted(found[1:])
            yield Throughput(f"rabbitmq {kind}, the reading", ours, least, most, both, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="messages; default %(default)s")
    with tempfile.TemporaryDirectory(prefix="freshline-benchmark-") as folder:
        for figure in reading(Path(folder), parser.parse_args().rows):
            print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
