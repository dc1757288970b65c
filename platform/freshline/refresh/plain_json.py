"""The short way for JSON lines that leave no doubt.

Spark's own JSON reader is twice as fast as parsing lines of text, but it keeps no raw bytes, and of a line it reads the
first value and forgets the rest. So the lines are looked at as text first. Where the first closing brace of a line is
its last character, nothing can stand behind the record. Then the reader's own verdict is enough: a record that it
cannot read stops the batch, which is read the long way instead (`ingest.read_records`). Both ways give the same rows.

Only for sources without a key, whose records need neither their raw bytes nor a comparison with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from freshline.declare.spec import SourceSpec
from freshline.plan.position import FileMark
from freshline.refresh.ingest import ERROR, SINGLE_FILE_TASKS, file_place, open_files, record_schema
from freshline.refresh.inputs import FILE, RECORD
from freshline.refresh.literal import quoted

CORRUPT = "_freshline_corrupt"
STOPPED = "FRESHLINE_RECORD_IN_DOUBT"


def may_be_plain(spec: SourceSpec, marks: Sequence[FileMark]) -> bool:
    """Whether the short way is open: flat JSON records, no key, no constraints, few files, none empty or packed."""
    nested = any(isinstance(field.dataType, ArrayType | MapType | StructType) for field in record_schema(spec).fields)
    packed = any(mark.path.endswith(".gz") or mark.size == 0 for mark in marks)
    few = len(marks) <= SINGLE_FILE_TASKS
    return spec.format == "json" and not spec.primary_key and not spec.constraints and not nested and not packed and few


def count_plain_lines(spark: SparkSession, spec: SourceSpec, root: Path, marks: Sequence[FileMark]) -> int | None:
    """The number of lines, None where one of them is in doubt. Reads the files once, as text."""
    lines = open_files(spark, marks).text([str(root / mark.path) for mark in marks])
    # Exactly one closing brace, and it is the last character. Bytes that are no UTF-8 are the reader's to find: it
    # decodes what it keeps. Splitting is the cheapest of Spark's ways to count a character (a quarter of `instr`).
    plain = (
        F.startswith("value", F.lit("{"))
        & (F.endswith("value", F.lit("}")) | F.endswith("value", F.lit("}\r")))
        & (F.size(F.split("value", "}", -1)) == 2)
        & (F.octet_length("value") <= spec.max_record_bytes)
    )
    counted = lines.agg(F.count(F.lit(1)).alias("lines"), F.count_if(~plain).alias("doubtful")).collect()[0]
    return None if counted["doubtful"] else int(counted["lines"])


def read_plain(spark: SparkSession, spec: SourceSpec, root: Path, marks: Sequence[FileMark]) -> DataFrame:
    """The records with FILE, RECORD and ERROR (always NULL); computing them fails with STOPPED at one that is
    broken.
    """
    schema = StructType([*record_schema(spec).fields, StructField(CORRUPT, StringType())])
    rows = (
        open_files(spark, marks)
        .schema(schema)
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", CORRUPT)
        .json([str(root / mark.path) for mark in marks])
    )
    file, record, _ = file_place(root, marks)
    names = [F.col(quoted(field.name)) for field in record_schema(spec).fields]
    read = rows.select(file, record, F.col(CORRUPT), *names)
    certain = read.where(F.assert_true(F.col(CORRUPT).isNull(), F.lit(STOPPED)).isNull())
    return certain.select(FILE, RECORD, F.lit(None).cast("string").alias(ERROR), *names)
