"""A Spark with Delta and a Hive catalog, as anybody has one: `URI JARS QUERY..` prints the rows of each query.

Nothing of freshline is imported here.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

uri, jars, *queries = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.jars": jars,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalogImplementation": "hive",
    "spark.hadoop.hive.metastore.uris": uri,
    "spark.sql.shuffle.partitions": "1",
}
builder = SparkSession.builder.master("local[1]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
for query in queries:
    print([list(row) for row in spark.sql(query).collect()])
spark.stop()
