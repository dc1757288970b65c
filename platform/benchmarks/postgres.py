"""Changes of a table of Postgres, read directly, and by Debezium's engine, a topic of Kafka and the same log table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kafka import running_broker
from measure import Comparison, Cost, comparison
from postgres_reading import (
    COLUMNS,
    DIRECT,
    ROUNDS,
    TABLE,
    change,
    changing_table,
    idle_looks,
    running_debezium,
)
from project import Project, refresh, same
from pyspark.sql import SparkSession

from freshline.engine.java import find_java
from freshline.ingest.batch import newest_batch
from freshline.values.change import OP
from freshline.values.names import TableName

NAMES = ("id", "name", "score", "bio", OP)


def postgres_feed(spark: SparkSession, folder: Path, changes: int) -> Iterator[Comparison | str]:
    """So many changes a round, half inserts, then updates and a tenth deletes; and checks that find nothing new."""
    with running_broker(spark, folder) as broker, changing_table() as changing:
        sent = (
            f"CREATE SOURCE sent ({COLUMNS}) WITH ('connector' = 'kafka', 'format' = 'debezium-json', "
            f"'topic' = '{TABLE}', 'bootstrap.servers' = '{broker.servers}')"
        )
        runtime = Project(folder / "project", {"direct": DIRECT, "sent": sent}).open(spark)
        # The slot is made now, so that the changes are not in its snapshot.
        refresh(runtime, "direct")
        with running_debezium(folder, changing, broker.servers, find_java(runtime.settings).home) as debezium:
            costs: dict[str, list[Cost]] = {"A": [], "B": []}

            def directly() -> None:
                refresh(runtime, "direct")

            def by_debezium() -> None:
                debezium.send(changes)
                refresh(runtime, "sent")

            for number, order in enumerate(ROUNDS):
                change(changing.database.url, number * changes, changes)
                for letter in order:
                    cost = changing.cost_of(directly if letter == "A" else by_debezium)
                    if number > 0:
                        costs[letter].append(cost)
                paths = [str(runtime.warehouse.path(TableName.parse(name))) for name in ("direct", "sent")]
                same(*[spark.read.format("delta").load(path).select(*NAMES) for path in paths])
            yield comparison("postgres_feed", costs, 0.7, "by Debezium")
        refresh(runtime, "direct")
        spec = runtime.graph.source(TableName.parse("direct"))
        receipt = newest_batch(spec, runtime.warehouse.path(spec.name))
        assert receipt is not None
        yield idle_looks(changing, runtime.reader(spec), receipt.positions[spec.name])
        runtime.close_readers()
