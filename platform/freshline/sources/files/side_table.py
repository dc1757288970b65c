"""The table `<log>__file`: the names of files that were read, when there are too many of them for a receipt."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from freshline.commit.delta_log import exists, last_seq
from freshline.commit.write import append_rows, create_table, fenced_session, write_and_read_back
from freshline.compute.inputs import SEQ
from freshline.errors import FencedError
from freshline.plan.disk import HISTORY_SECONDS
from freshline.sources.files.position import FilesPosition
from freshline.sources.reader import Host
from freshline.values.names import quoted
from freshline.values.receipt import Receipt, side_receipt
from freshline.values.spec import SourceSpec

# Receipts carry the files read since the last flush; this many make a commit file of some tens of kilobytes.
RECENT_FILES = 200
SCHEMA = StructType(
    [
        StructField(SEQ, LongType()),
        StructField("path", StringType()),
        StructField("size", LongType()),
        StructField("modified_ns", LongType()),
    ]
)


def flush_names(
    host: Host, spark: SparkSession, spec: SourceSpec, position: FilesPosition, previous: Receipt | None
) -> FilesPosition:
    """Move the file names of a long receipt into the table beside the log, once for each number.

    Killed in between, the receipt still has them, and they are moved again.
    """
    if previous is None or len(position.recent) < RECENT_FILES:
        return position
    path = host.warehouse.files(spec.name)
    if not exists(path):
        host.require_warehouse()
        create_table(spark, path, SCHEMA, history_seconds=HISTORY_SECONDS)
    top = last_seq(path)
    number = previous.seq
    flushed = type(position)(previous.seq, ())
    if top >= previous.seq:
        # Noted before a batch that then was not committed; or the log was put back, and what follows is of others.
        stored = spark.read.format("delta").load(str(path)).where(F.col(SEQ) > position.flushed_seq)
        noted = {(row[SEQ], row["path"]) for row in stored.select(SEQ, "path").collect()}
        if noted == {(previous.seq, mark.path) for mark in position.recent}:
            return flushed
        number = top + 2
        back = side_receipt(spec, host.epoch, top + 1, previous.mode, "the log was put back", host.clock())
        with fenced_session(spark, path, back):
            spark.sql(f"DELETE FROM delta.{quoted(str(path))} WHERE {SEQ} > {position.flushed_seq}")
    rows = spark.createDataFrame(
        [(previous.seq, mark.path, mark.size, mark.modified_ns) for mark in position.recent], SCHEMA
    )
    receipt = side_receipt(spec, host.epoch, number, previous.mode, "files read", host.clock())

    def write() -> None:
        append_rows(rows, path, receipt, count=len(position.recent))

    if write_and_read_back(write, path, receipt, host.require_warehouse) is None:
        raise FencedError("another batch noted its files meanwhile. Ask again.", where=str(spec.name))
    host.failpoint("log-after-flush")
    return flushed
