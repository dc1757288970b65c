"""Topics of Debezium and of Avro, beside Structured Streaming as one would write it by hand."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from kafka import COLUMNS, NAMES, running_broker
from measure import Comparison, compare
from project import Project, refresh, same
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from spark_avro import provide_spark_avro

from freshline.run import Runtime
from freshline.values.names import TableName
from tests.registry import running_registry

RUNS = 10
_KINDS = "element_at(array('view', 'click', 'order'), CAST(id % 3 + 1 AS INT))"


def debezium_feed(spark: SparkSession, folder: Path, events: int) -> Comparison:
    """Changes of rows, a tenth of them deletes, into a table of the rows as they are."""
    with running_broker(spark, folder) as broker:
        _send_changes(spark, broker.servers, events)
        declared = {
            "feed": "CREATE SOURCE feed (id BIGINT, name STRING, score DOUBLE, bio STRING, PRIMARY KEY (id)) WITH "
            "('connector' = 'kafka', 'format' = 'debezium-json', 'topic' = 'customer', "
            f"'bootstrap.servers' = '{broker.servers}')",
            "customer": "CREATE MATERIALIZED TABLE customer (PRIMARY KEY (id)) WITH ('merge' = 'last_row', "
            "'merge.sequence' = 'change') FRESHNESS = INTERVAL '10' SECOND AS SELECT id, name, score, bio FROM feed",
        }
        runtimes = {number: Project(folder / f"p{number}", declared).open(spark) for number in range(RUNS)}

        def ours(number: int) -> None:
            refresh(runtimes[number], "feed")
            refresh(runtimes[number], "customer")

        def theirs(number: int) -> None:
            _follow_by_hand(spark, broker.servers, folder / f"p{number}")

        def check() -> None:
            same(_table(spark, runtimes[0], "customer"), spark.read.format("delta").load(str(folder / "p1" / "table")))

        return compare("debezium_feed", ours, theirs, goal=1.3, check=check)


def _send_changes(spark: SparkSession, servers: str, events: int) -> None:
    """A quarter inserts its keys; each key then has two updates, and of ten keys four are deleted at the end."""
    keys = events // 4
    # In one task, because the events of a key have an order.
    rows = spark.range(0, 4 * keys, 1, 1).selectExpr(
        "id",
        f"id % {keys} AS key",
        f"CASE WHEN id < {keys} THEN 'c' WHEN id >= {3 * keys} AND id % 10 < 4 THEN 'd' ELSE 'u' END AS op",
        "named_struct('name', concat('name-', id), 'score', id / 8.0D, 'bio', repeat('x', 60)) AS new",
    )
    image = "named_struct('id', key, 'name', new.name, 'score', new.score, 'bio', new.bio)"
    source = (
        "named_struct('version', '3.6.3.Final', 'connector', 'postgresql', 'name', 'shop', 'ts_ms', "
        "1780000000000 + id, 'snapshot', 'false', 'db', 'shop', 'schema', 'public', "
        "'table', 'customer', 'txId', id, 'lsn', 1000 + id)"
    )
    messages = rows.selectExpr(
        "CAST(to_json(named_struct('id', key)) AS BINARY) AS key",
        "CAST(to_json(named_struct("
        f"'before', CASE WHEN op = 'd' THEN {image} END, 'after', CASE WHEN op <> 'd' THEN {image} END, "
        f"'source', {source}, 'op', op, 'ts_ms', 1780000000000 + id"
        "), map('ignoreNullFields', 'false')) AS BINARY) AS value",
    )
    messages.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "customer").save()


def _follow_by_hand(spark: SparkSession, servers: str, place: Path) -> None:
    image = "struct<id: bigint, name: string, score: double, bio: string>"
    target = str(place / "table")
    spark.sql(f"CREATE TABLE delta.`{target}` (id BIGINT, name STRING, score DOUBLE, bio STRING) USING delta")

    def merge(batch: DataFrame, number: int) -> None:
        del number
        events = batch.select(
            F.from_json(F.col("value").cast("string"), f"op string, before {image}, after {image}").alias("e"), "offset"
        ).where("e.op IS NOT NULL")
        rows = events.selectExpr("coalesce(e.after.id, e.before.id) AS id", "e.op AS op", "e.after AS row", "offset")
        # The events of a key are in one partition, where the offset is their order.
        newest = rows.groupBy("id").agg(F.max_by(F.struct("op", "row"), "offset").alias("l"))
        newest.selectExpr("id", "l.op AS op", "l.row.name", "l.row.score", "l.row.bio").createOrReplaceTempView(
            "newest"
        )
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{target}` t USING newest s ON t.id = s.id "
            "WHEN MATCHED AND s.op = 'd' THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET t.name = s.name, t.score = s.score, t.bio = s.bio "
            "WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT (id, name, score, bio) VALUES (s.id, s.name, s.score, s.bio)"
        )

    records = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    stream = records.option("subscribe", "customer").option("startingOffsets", "earliest").load().writeStream
    stream = stream.foreachBatch(merge).trigger(availableNow=True)
    stream.option("checkpointLocation", str(place / "checkpoint")).start().awaitTermination()


def avro_ingest(spark: SparkSession, folder: Path, events: int) -> Comparison:
    """Records of Avro behind the frame of a schema registry into a log table, and by `from_avro` into a Delta table."""
    fields = [
        {"name": "event_id", "type": "string"},
        {"name": "customer_id", "type": "string"},
        {"name": "kind", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": "string"},
    ]
    provide_spark_avro(spark, folder / "jars")
    with running_broker(spark, folder) as broker, running_registry() as registry:
        schema = json.dumps({"type": "record", "name": "event", "fields": fields})
        schema_id = registry.register(schema, "event-value")
        rows = spark.range(0, events, 1, 2).selectExpr(
            "concat('e', id) AS event_id",
            "concat('customer-', id % 50000) AS customer_id",
            f"{_KINDS} AS kind",
            "id / 7.0D AS amount",
            "TIMESTAMP'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id) AS at",
            "repeat('x', 60) AS note",
        )
        frame = F.unhex(F.lit(f"00{schema_id:08x}"))
        rows.select(
            F.col("customer_id").cast("binary").alias("key"),
            F.concat(frame, to_avro(F.struct(*NAMES), schema)).alias("value"),
        ).write.format("kafka").option("kafka.bootstrap.servers", broker.servers).option("topic", "event").save()
        declared = (
            f"CREATE SOURCE event ({COLUMNS}) WITH ('connector' = 'kafka', 'format' = 'avro', 'topic' = 'event', "
            f"'bootstrap.servers' = '{broker.servers}', 'registry.url' = '{registry.url}')"
        )
        runtimes = {n: Project(folder / f"p{n}", {"event": declared}).open(spark) for n in range(RUNS)}

        def ours(number: int) -> None:
            refresh(runtimes[number], "event")

        def theirs(number: int) -> None:
            place = folder / f"p{number}"
            with urllib.request.urlopen(f"{registry.url}/schemas/ids/{schema_id}") as answer:
                written = json.load(answer)["schema"]
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
                from_avro(F.expr("substring(value, 6)"), written).alias("r"),
                *("topic", "partition", "offset", "timestamp", "key", "headers"),
            ).select("r.*", "topic", "partition", "offset", "timestamp", "key", "headers")
            stream = parsed.writeStream.format("delta").trigger(availableNow=True)
            stream = stream.option("checkpointLocation", str(place / "checkpoint"))
            stream.start(str(place / "by_hand")).awaitTermination()

        def check() -> None:
            by_hand = spark.read.format("delta").load(str(folder / "p1" / "by_hand"))
            same(_table(spark, runtimes[0], "event").select(*NAMES), by_hand.select(*NAMES))

        return compare("avro_ingest", ours, theirs, goal=1.2, check=check)


def _table(spark: SparkSession, runtime: Runtime, name: str) -> DataFrame:
    return spark.read.format("delta").load(str(runtime.warehouse.path(TableName.parse(name))))
