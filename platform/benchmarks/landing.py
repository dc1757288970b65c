"""Files of Parquet and Avro into a log table, beside `spark.read` and an append to a Delta table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from measure import Comparison, compare
from project import Project, refresh, same
from pyspark.sql import SparkSession
from spark_avro import provide_spark_avro

from freshline.run import Runtime
from freshline.values.names import TableName

COLUMNS = "event_id STRING, customer_id STRING, kind STRING, amount DOUBLE, at TIMESTAMP, note STRING"
NAMES = ("event_id", "customer_id", "kind", "amount", "at", "note")
FILES = 10


def landing(spark: SparkSession, folder: Path, rows: int) -> Iterator[Comparison]:
    """So many rows in ten files of each format."""
    provide_spark_avro(spark, folder / "jars")
    made = spark.range(rows).selectExpr(
        "concat('e', id) AS event_id",
        "concat('customer-', id % 50000) AS customer_id",
        "element_at(array('view', 'click', 'order'), CAST(id % 3 + 1 AS INT)) AS kind",
        "id / 7.0D AS amount",
        "TIMESTAMP'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id) AS at",
        "concat(repeat('x', 40), hex(xxhash64(id))) AS note",
    )
    for record_format in ("parquet", "avro"):
        made.repartition(FILES).write.format(record_format).save(str(folder / record_format))
        yield _landing(spark, folder, record_format)


def _landing(spark: SparkSession, folder: Path, record_format: str) -> Comparison:
    declared = (
        f"CREATE SOURCE event ({COLUMNS}) WITH ('connector' = 'files', 'format' = '{record_format}', 'path' = 'in', "
        "'settle' = '0 seconds');"
    )
    projects: dict[int, tuple[Runtime, Path]] = {}
    for number in range(10):
        project = Project(folder / f"{record_format}{number}", {"event": declared})
        ignored = shutil.ignore_patterns("_*", ".*")
        shutil.copytree(folder / record_format, project.folder / "in", ignore=ignored)
        projects[number] = (project.open(spark), project.folder)

    def ours(number: int) -> None:
        refresh(projects[number][0], "event")

    def theirs(number: int) -> None:
        read = spark.read.format(record_format).schema(COLUMNS).load(str(projects[number][1] / "in"))
        read.write.format("delta").mode("append").save(str(projects[number][1] / "by_hand"))

    def check() -> None:
        log = spark.read.format("delta").load(str(projects[0][0].warehouse.path(TableName.parse("event"))))
        same(log.select(*NAMES), spark.read.format("delta").load(str(projects[1][1] / "by_hand")).select(*NAMES))

    return compare(f"landing {record_format}", ours, theirs, goal=1.2, check=check)
