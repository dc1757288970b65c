"""Structured Streaming by hand: each batch of new files is merged into the tables, by foreachBatch and MERGE.

Deleted customers stay in `customer_state` with their last change, since a change that is out of date may come later.
`revenue` is kept up by the differences that the change data feed of `enriched` has.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

EVENT = "event_id STRING, customer_id STRING, kind STRING, amount BIGINT, happened_at TIMESTAMP"
CHANGE = (
    "change_id STRING, customer_id STRING, op STRING, name STRING, segment STRING, country STRING, changed_at TIMESTAMP"
)
TABLES = {
    "event": EVENT,
    "first_event": "customer_id STRING, event_id STRING, kind STRING, amount BIGINT, happened_at TIMESTAMP",
    "customer_state": CHANGE,
    "enriched": f"{EVENT}, segment STRING, country STRING",
    "revenue": "segment STRING, day DATE, events BIGINT, amount BIGINT",
}


class Pipeline:
    def __init__(self, spark: SparkSession, landing: str, tables: str) -> None:
        self.spark, self.landing, self.tables = spark, landing, tables
        for name, columns in TABLES.items():
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS delta.`{tables}/{name}` ({columns}) USING delta "
                "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
            )
            spark.read.format("delta").load(f"{tables}/{name}").createOrReplaceTempView(name)

    def refresh(self) -> None:
        """All that has landed since, customers first."""
        before = self.version("enriched")
        self.stream("change", CHANGE, self.merge_changes)
        self.stream("event", EVENT, self.merge_events)
        if self.version("enriched") > before:
            self.merge_revenue(before + 1)

    def version(self, table: str) -> int:
        history = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.tables}/{table}` LIMIT 1")
        return int(history.collect()[0]["version"])

    def stream(self, name: str, columns: str, merge) -> None:  # type: ignore[no-untyped-def]
        rows = self.spark.readStream.schema(columns).json(f"{self.landing}/{name}")
        query = (
            rows.writeStream.foreachBatch(merge)
            .option("checkpointLocation", f"{self.tables}/_checkpoint_{name}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def merge_changes(self, batch: DataFrame, number: int) -> None:
        batch.createOrReplaceTempView("new_changes")
        spark = batch.sparkSession
        newest = spark.sql(
            "SELECT r.* FROM (SELECT max_by(struct(change_id, customer_id, op, name, segment, country, changed_at), "
            "struct(changed_at, change_id)) AS r FROM new_changes GROUP BY customer_id)"
        ).localCheckpoint()
        newest.createOrReplaceTempView("newest")
        spark.sql(
            f"MERGE INTO delta.`{self.tables}/customer_state` t USING newest s ON t.customer_id = s.customer_id "
            "WHEN MATCHED AND struct(s.changed_at, s.change_id) > struct(t.changed_at, t.change_id) "
            "THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        spark.sql(
            f"MERGE INTO delta.`{self.tables}/enriched` t USING "
            "(SELECT customer_id, if(op = 'd', NULL, segment) AS segment, if(op = 'd', NULL, country) AS country "
            f"FROM delta.`{self.tables}/customer_state` WHERE customer_id IN (SELECT customer_id FROM newest)) s "
            "ON t.customer_id = s.customer_id "
            "WHEN MATCHED AND NOT (t.segment <=> s.segment AND t.country <=> s.country) "
            "THEN UPDATE SET t.segment = s.segment, t.country = s.country"
        )

    def merge_events(self, batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        batch.dropDuplicates(["event_id"]).createOrReplaceTempView("arrived")
        # Those that arrived earlier are in the table.
        new = spark.sql(
            f"SELECT a.* FROM arrived a LEFT ANTI JOIN delta.`{self.tables}/event` e ON e.event_id = a.event_id"
        ).localCheckpoint()
        new.createOrReplaceTempView("new_events")
        new.write.format("delta").mode("append").save(f"{self.tables}/event")
        spark.sql(
            f"MERGE INTO delta.`{self.tables}/first_event` t USING (SELECT r.* FROM "
            "(SELECT min_by(struct(customer_id, event_id, kind, amount, happened_at), "
            "struct(happened_at, event_id)) AS r "
            "FROM new_events GROUP BY customer_id)) s ON t.customer_id = s.customer_id "
            "WHEN MATCHED AND struct(s.happened_at, s.event_id) < struct(t.happened_at, t.event_id) THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *"
        )
        spark.sql(
            f"SELECT e.*, c.segment, c.country FROM new_events e LEFT JOIN delta.`{self.tables}/customer_state` c "
            "ON c.customer_id = e.customer_id AND c.op <> 'd'"
        ).write.format("delta").mode("append").save(f"{self.tables}/enriched")

    def merge_revenue(self, first: int) -> None:
        self.spark.sql(
            f"MERGE INTO delta.`{self.tables}/revenue` t USING ("
            "SELECT segment, CAST(happened_at AS DATE) AS day, sum(sign) AS events, sum(sign * amount) AS amount FROM ("
            "SELECT *, if(_change_type IN ('insert', 'update_postimage'), 1L, -1L) AS sign "
            f"FROM table_changes_by_path('{self.tables}/enriched', {first})) "
            "GROUP BY segment, CAST(happened_at AS DATE)) s ON t.segment <=> s.segment AND t.day = s.day "
            "WHEN MATCHED AND t.events + s.events = 0 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET t.events = t.events + s.events, t.amount = t.amount + s.amount "
            "WHEN NOT MATCHED THEN INSERT *"
        )
