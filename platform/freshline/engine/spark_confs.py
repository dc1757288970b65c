"""The configuration of a Spark session: what freshline sets, with its reasons, and what the settings add."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from freshline.engine.session_folders import SessionFolders
from freshline.errors import SettingsError
from freshline.plan.maintenance import FULL_FILE_BYTES
from freshline.values.secret import REFERENCE, resolve_reference
from freshline.values.settings import Settings


def resolve_confs(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings' own confs, with their references replaced. Raises SettingsError, which names no secret value."""
    found: dict[str, str] = {}
    for name, value in settings.spark_confs.items():
        if REFERENCE.match(value):
            if name.endswith("JavaOptions"):
                raise SettingsError(
                    f"spark-confs: {name} stands in a command line, which everybody on the machine can read. Give the "
                    "secret to a setting of Spark or Hadoop itself."
                )
            try:
                value = resolve_reference(value, settings.root, environ)
            except ValueError as error:
                raise SettingsError(f"spark-confs: {name}: {error}") from error
        found[name] = value
    return found


def referenced_values(settings: Settings, resolved: Mapping[str, str]) -> tuple[str, ...]:
    """The values of resolved confs that come from references, and so may be secrets; the longest first."""
    found = {resolved[name] for name, value in settings.spark_confs.items() if REFERENCE.match(value)}
    return tuple(sorted(found - {""}, key=len, reverse=True))


def hide_values(text: str, values: Iterable[str]) -> str:
    """A text without these values, which Spark repeats where it refuses one.

    >>> hide_values('For input string: "s3cret"', ["s3cret"])
    'For input string: "***"'
    """
    for value in values:
        text = text.replace(value, "***")
    return text


def session_confs(
    settings: Settings, *, app_name: str, jars: tuple[Path, ...], connect_port: int | None, folders: SessionFolders
) -> dict[str, str]:
    """All confs of Spark, except for the options of its JVM. The settings' own confs win."""
    confs = {
        "spark.app.name": app_name,
        "spark.master": settings.spark_master,
        # As URIs, because a path may have a comma or a space.
        "spark.jars": ",".join(jar.as_uri() for jar in jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Derby would write its own files and lock them. Tables are found by path; names live as long as the session.
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": f"file:{folders.unnamed_tables}",
        "spark.local.dir": str(folders.scratch),
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # SPARK-58241: in 4.2.0 a Python function over columnar input, such as a Delta scan, hangs for ever.
        "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
        # Sessions of Connect clients must not see each other's Python modules.
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
        "spark.scheduler.mode": "FAIR",
        # Not as_uri(): Hadoop reads this one, and takes %20 literally.
        "spark.scheduler.allocation.file": f"file:{folders.pools}",
        # The versions that may be read are those that maintenance has kept for readers, savepoints and positions, for
        # as long as they need it. Delta would refuse them by the table's property alone, files present or not.
        "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
        # The default of 50 costs 3 to 4.5 CPU-seconds a commit on the small logs of most tables.
        "spark.databricks.delta.snapshotPartitions": "1",
        # Off by default; without it a writer that lost the answer to its commit cannot recognise it as its own.
        "spark.databricks.delta.commit.idempotencyCheck.enabled": "true",
        # Rows pass through the driver with their dates: the older classes lack ten days of October 1582.
        "spark.sql.datetime.java8API.enabled": "true",
        # Spark's default, INT96, has no statistics in Parquet, so scans could not skip the pages of other times.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Whoever changes a row writes its file again. Without a limit a full refresh of ten million rows on two cores
        # makes two files, and each later change of a thousand rows costs half of that again.
        "spark.sql.files.maxRecordsPerFile": "1000000",
        # So compaction makes no larger ones, whoever does it.
        "spark.databricks.delta.optimize.maxFileSize": str(FULL_FILE_BYTES),
        "spark.databricks.delta.optimize.minFileSize": str(FULL_FILE_BYTES),
        # A LIMIT reads one partition first, then more, each time by a job. Small results come with one.
        "spark.sql.limit.initialNumPartitions": "16",
        # A refresh by keys compiles some sixty pieces of code, and Spark keeps the last hundred of all tables: two of
        # them put each other's out, and each refresh compiled all of its code again. A piece takes some 20 KB.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Rows that are kept within a step are read two or three times, and more of them than fit go to the disk. To try
        # encodings for each column was a third of what the tasks of an ingest of files cost.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # Our sources are deterministic, they are pinned versions; materializing them would cost a third of a MERGE.
        "spark.databricks.delta.merge.materializeSource": "none",
        # Hadoop's own way keeps a checksum file beside each local file, and starts a process (chmod, readlink) for
        # each step of writing one: two thirds of the 24 that a commit started, and a tenth of what a small refresh
        # costs. Parquet has checksums of its own, and delta-rs writes no such files either.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        # Hadoop sets the permissions of what it makes by a mask of its own, not by that of the process.
        "spark.hadoop.fs.permissions.umask-mode": f"{settings.umask:03o}",
    }
    if is_local(settings.spark_master):
        # Spark listens on all interfaces unless a conf names one. On a cluster the executors must reach the driver,
        # so there the address is the deployment's to choose.
        confs["spark.driver.bindAddress"] = "127.0.0.1"
        confs["spark.driver.host"] = "127.0.0.1"
        if not settings.spark_master.startswith("local-cluster["):
            # The driver and the block manager read what anybody on the machine sends them as Java objects, which can
            # run code. Spark makes a secret for these masters at each start, elsewhere the deployment chooses one.
            confs["spark.authenticate"] = "true"
        # Spark's default of 200 is ruinous on few cores. Adaptive execution makes a job of every stage, Delta's own
        # bookkeeping included: without it ten portions of the reference deployment took a sixth less CPU. Refreshes
        # that touch many rows turn it on for themselves (`refresh.execution`), for what it does about skew.
        confs["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
        confs["spark.sql.adaptive.enabled"] = "false"
        # From 32 files on Spark lists them by a job of its own, which costs an engine on one machine a CPU-second each
        # time (`refresh.small_tables`).
        confs["spark.sql.sources.parallelPartitionDiscovery.threshold"] = "1000"
    if settings.spark_confs.get("spark.ui.enabled", "false") == "false":
        confs.update(_UNSEEN)
    if connect_port is not None:
        confs["spark.plugins"] = "org.apache.spark.sql.connect.SparkConnectPlugin"
        confs["spark.connect.grpc.binding.address"] = "127.0.0.1"
        confs["spark.connect.grpc.binding.port"] = str(connect_port)
    for name, value in settings.spark_confs.items():
        # Lists are added to: a user's plugin or jar must not push out ours.
        if name in _LISTS and name in confs and value:
            value = f"{confs[name]},{value}"
        confs[name] = value
    return confs


# While its UI is off, Spark still writes the plan of each query as a text for it, and keeps the texts and metrics of a
# thousand queries. These are its shortest texts. They are not cut, which would cut the plans that clients ask for too.
# Jobs and stages are kept longer than queries: the limits on CPU-seconds read them (`attempt.cpu`).
_UNSEEN = {
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
}
_LISTS = frozenset({"spark.jars", "spark.plugins", "spark.sql.extensions"})


def is_local(master: str) -> bool:
    return master == "local" or master.startswith(("local[", "local-cluster["))


def properties(values: Mapping[str, str]) -> str:
    """A file of java.util.Properties, as `--properties-file` reads it.

    >>> print(properties({"spark.a": "x = \\\\ é"}), end="")
    spark.a=x = \\\\ é
    """
    return "".join(f"{_escaped(name, ' :=')}={_escaped(value)}\n" for name, value in values.items())


def _escaped(text: str, more: str = "") -> str:
    signs = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", **{sign: f"\\{sign}" for sign in more}}
    written = "".join(signs.get(sign, sign) for sign in text)
    # Blanks at the beginning belong to the value only behind a backslash; so do the signs of a comment in a name.
    return f"\\{written}" if written[:1] in (" ", "#", "!") else written
