"""The streaming tables, which read only the files that are new: each event once, and all changes of customers."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
landing = spark.conf.get("landing")


@dp.table
def event() -> DataFrame:
    columns = "event_id STRING, customer_id STRING, kind STRING, amount BIGINT, happened_at TIMESTAMP"
    return spark.readStream.schema(columns).json(f"{landing}/event").dropDuplicates(["event_id"])


@dp.table
def customer_change() -> DataFrame:
    columns = "change_id STRING, customer_id STRING, op STRING, name STRING, segment STRING, country STRING"
    return spark.readStream.schema(f"{columns}, changed_at TIMESTAMP").json(f"{landing}/change")
