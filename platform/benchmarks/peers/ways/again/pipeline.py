"""Everything again, in one warm Spark session: each table is computed from all files, and overwritten."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

EVENT = "event_id STRING, customer_id STRING, kind STRING, amount BIGINT, happened_at TIMESTAMP"
CHANGE = (
    "change_id STRING, customer_id STRING, op STRING, name STRING, segment STRING, country STRING, changed_at TIMESTAMP"
)


def refresh(spark: SparkSession, landing: str, tables: str) -> None:
    def write(name: str, rows: DataFrame) -> None:
        rows.write.format("delta").mode("overwrite").save(f"{tables}/{name}")
        spark.read.format("delta").load(f"{tables}/{name}").createOrReplaceTempView(name)

    spark.read.schema(CHANGE).json(f"{landing}/change").createOrReplaceTempView("customer_change")
    write("event", spark.read.schema(EVENT).json(f"{landing}/event").dropDuplicates(["event_id"]))
    write(
        "first_event",
        spark.sql(
            "SELECT customer_id, r.* FROM (SELECT customer_id, min_by(struct(event_id, kind, amount, happened_at), "
            "struct(happened_at, event_id)) AS r FROM event GROUP BY customer_id)"
        ),
    )
    write(
        "customer",
        spark.sql(
            "SELECT customer_id, r.change_id, r.name, r.segment, r.country, r.changed_at FROM (SELECT customer_id, "
            "max_by(struct(change_id, op, name, segment, country, changed_at), struct(changed_at, change_id)) AS r "
            "FROM customer_change GROUP BY customer_id) WHERE r.op <> 'd'"
        ),
    )
    write(
        "enriched",
        spark.sql(
            "SELECT e.*, c.segment, c.country FROM event e LEFT JOIN customer c ON c.customer_id = e.customer_id"
        ),
    )
    write(
        "revenue",
        spark.sql(
            "SELECT segment, CAST(happened_at AS DATE) AS day, count(*) AS events, sum(amount) AS amount FROM enriched "
            "GROUP BY segment, CAST(happened_at AS DATE)"
        ),
    )
