"""Topics: a log table beside a hand-written streaming query, and union reads beside a plain scan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import Comparison, compare
from project import Project, refresh, same
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from freshline.engine.connector_jars import provide_connector_jars
from freshline.reads.sql import query
from freshline.run import Runtime
from freshline.values.names import TableName
from resources.broker import Broker, new_broker

EVENTS = 1_000_000
COLUMNS = "event_id STRING, customer_id STRING, kind STRING, amount DOUBLE, at TIMESTAMP, note STRING"
NAMES = ("event_id", "customer_id", "kind", "amount", "at", "note")


@contextmanager
def running_broker(spark: SparkSession, folder: Path) -> Iterator[Broker]:
    """A broker, and Kafka's classes in the session. The cost of the broker is counted on both sides."""
    settings = Project(folder / "broker_project", {}).settings
    provide_connector_jars("kafka", settings, spark)
    broker = new_broker(settings, folder / "broker", more={"auto.create.topics.enable": "true", "num.partitions": "2"})
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def send(spark: SparkSession, broker: Broker, topic: str, start: int, count: int) -> None:
    rows = spark.range(start, start + count, 1, 2).selectExpr(
        "CAST(concat('customer-', id % 50000) AS BINARY) AS key",
        "to_json(named_struct('event_id', concat('e', id), 'customer_id', concat('customer-', id % 50000), "
        "'kind', element_at(array('view', 'click', 'order'), CAST(id % 3 + 1 AS INT)), 'amount', id / 7.0D, "
        "'at', TIMESTAMP'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id), 'note', repeat('x', 60))) AS value",
    )
    rows.write.format("kafka").option("kafka.bootstrap.servers", broker.servers).option("topic", topic).save()


def declared(broker: Broker, topic: str) -> str:
    return (
        f"CREATE SOURCE event ({COLUMNS}) WITH ('connector' = 'kafka', 'format' = 'json', 'topic' = '{topic}', "
        f"'bootstrap.servers' = '{broker.servers}')"
    )


def kafka_ingest(spark: SparkSession, folder: Path) -> Comparison:
    """A million events of a topic into a log table, and by a streaming query into a Delta table."""
    with running_broker(spark, folder) as broker:
        send(spark, broker, "event", 0, EVENTS)
        runtimes: dict[int, Runtime] = {}
        for number in range(10):
            runtimes[number] = Project(folder / f"p{number}", {"event": declared(broker, "event")}).open(spark)

        def ours(number: int) -> None:
            refresh(runtimes[number], "event")

        def theirs(number: int) -> None:
            records = (
                spark.readStream.format("kafka")
                .option("kafka.bootstrap.servers", broker.servers)
                .option("subscribe", "event")
                .option("startingOffsets", "earliest")
                .option("includeHeaders", "true")
                .load()
            )
            # The same sink: what Kafka knows of a record is kept beside its values.
            parsed = records.select(
                F.from_json(F.col("value").cast("string"), COLUMNS).alias("r"),
                *("topic", "partition", "offset", "timestamp", "key", "headers"),
            ).select("r.*", "topic", "partition", "offset", "timestamp", "key", "headers")
            place = folder / f"p{number}"
            stream = parsed.writeStream.format("delta").trigger(availableNow=True)
            stream.option("checkpointLocation", str(place / "checkpoint")).start(
                str(place / "by_hand")
            ).awaitTermination()

        found = compare("kafka_ingest", ours, theirs, goal=1.1)
        path = runtimes[0].warehouse.path(TableName.parse("event"))
        same(
            spark.read.format("delta").load(str(path)).select(*NAMES),
            spark.read.format("delta").load(str(folder / "p1" / "by_hand")).select(*NAMES),
        )
        return found


def union_read(spark: SparkSession, folder: Path) -> Iterator[Comparison]:
    """An aggregate over a million events, of which a share is still in the topic, and over as many in a log table."""
    with running_broker(spark, folder) as broker:
        for share in (0.0, 0.01, 0.1):
            topic, tail = f"event{int(share * 100)}", int(EVENTS * share)
            send(spark, broker, topic, 0, EVENTS - tail)
            part = Project(folder / f"part{topic}", {"event": declared(broker, topic)}).open(spark)
            refresh(part, "event")
            if tail:
                send(spark, broker, topic, EVENTS - tail, tail)
            whole = Project(folder / f"whole{topic}", {"event": declared(broker, topic)}).open(spark)
            refresh(whole, "event")
            asked = (
                "SELECT kind, count(*) AS n, sum(CAST(amount AS DECIMAL(20,4))) AS s FROM {} GROUP BY kind ORDER BY 1"
            )

            def ours(_: int, runtime: Runtime = part, text: str = asked) -> object:
                return query(runtime, text.format("union_read('event')")).rows

            def theirs(_: int, runtime: Runtime = whole, text: str = asked) -> object:
                return query(runtime, text.format("event")).rows

            if ours(0) != theirs(0):
                raise SystemExit("the two ways gave different rows")
            yield compare(f"union_read {share:.0%} tail", ours, theirs, goal=1.1)
