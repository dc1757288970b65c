"""Spark's own Avro for the side by hand: freshline has no need of it, so no lock of the product has its jar."""

from __future__ import annotations

from pathlib import Path

from project import Project
from pyspark.sql import SparkSession

from freshline.engine.jars import Jar, provide_jars

_JAR = Jar(
    "org.apache.spark:spark-avro_2.13:4.2.0",
    92_286,
    "4c186cedc03cbe4ee356a94b32232b347ef48611c3209400b3a77e4fe4abff4f",
)


def provide_spark_avro(spark: SparkSession, folder: Path) -> None:
    """Make `format("avro")`, `from_avro` and `to_avro` known to a session on this machine."""
    jvm = spark._jvm
    assert jvm is not None
    for jar in provide_jars(Project(folder, {}).settings, lock=[_JAR]):
        jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(jvm.java.io.File(str(jar)).toURI().toURL())
