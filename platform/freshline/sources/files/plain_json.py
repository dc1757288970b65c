"""The short way for JSON lines that leave no doubt.

Spark's own JSON reader is faster than parsing lines of text, but it keeps no raw bytes, and it reads the first value of
a line and forgets the rest. So the lines are inspected first (`lines.py`). Where each is an object that ends with its
only closing brace, nothing can follow the record. Then the reader's own verdict is enough: a record that it cannot read
stops the batch, which is read the long way instead (`FilesReader.read`). Both ways give the same rows.

Only for sources without a key, whose records need neither their raw bytes nor a comparison with others, and for files
whose names Spark takes as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from freshline.compute.inputs import FILE, RECORD
from freshline.sources.files.connector import Files
from freshline.sources.files.lines import Inspected, is_packed
from freshline.sources.files.position import FileMark
from freshline.sources.formats.decode import CORRUPT, STRICT_JSON
from freshline.sources.formats.exact import RecordOrigin, is_in_doubt, loses, read_as, stored
from freshline.sources.formats.json import Json
from freshline.sources.reader import STOPPED
from freshline.sources.records import ERROR, record_schema
from freshline.values.format import PARSED
from freshline.values.names import quoted
from freshline.values.spec import SourceSpec

DOUBT = "_freshline_doubt"
# For fewer bytes the short way is not shorter.
SMALL_BYTES = 4 << 20
# Up to this many files each is read by tasks of its own, so that the place of a row in its task is its line.
MOST_FILES = 64
# Spark takes other names for patterns (`*`, `?`, `[`, `{`, backslash) or escapes.
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=-]+")
# Spark leaves it out whatever is asked for.
HIDDEN = "._COPYING_"
OPEN_COST = "spark.sql.files.openCostInBytes"


def may_be_plain(spec: SourceSpec, root: Path, files: Sequence[Inspected]) -> bool:
    """Whether the short way is open: much flat JSON in few files with plain names and lines; no key, no constraints."""
    nested = any(isinstance(field.dataType, ArrayType | MapType | StructType) for field in record_schema(spec).fields)
    return (
        isinstance(spec.format, Json)
        and not spec.primary_key
        and not spec.constraints
        and isinstance(spec.connection, Files)
        and not spec.connection.follow_links
        and not nested
        and len(files) <= MOST_FILES
        and sum(file.size for file in files) > SMALL_BYTES
        and all(file.plain and _has_plain_name(root, file.mark) for file in files)
    )


def _has_plain_name(root: Path, mark: FileMark) -> bool:
    path = str(root / mark.path)
    return PLAIN_PATH.fullmatch(path) is not None and not path.endswith(HIDDEN) and not is_packed(path)


def count_plain(spark: SparkSession, root: Path, files: Sequence[Inspected]) -> dict[str, int]:
    """The lines that Spark reads of each file, by its path below the root."""
    lines = _open_files(spark).text([str(root / file.mark.path) for file in files])
    found: Counter[str] = Counter()
    for row in lines.select(_file_name(root).alias(FILE)).groupBy(FILE).count().collect():
        found[row[FILE]] += row["count"]
    return found


def end_reading(spark: SparkSession) -> None:
    """Give the session back its own way of reading files, once the records are computed."""
    spark.conf.unset(OPEN_COST)


def _open_files(spark: SparkSession) -> DataFrameReader:
    """A reader of lines, of each file by tasks of its own."""
    # A cost of opening as large as a task makes Spark put every file into a task of its own.
    spark.conf.set(OPEN_COST, str(128 << 20))
    return (
        spark.read.option("lineSep", "\n")
        .option("__globPaths__", "false")
        # Hadoop's own way opens a checksum file beside each file, and fails at a name with a colon in it.
        .option("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        .option("fs.file.impl.disable.cache", "true")
    )


def _file_name(root: Path) -> Column:
    """FILE, for rows that come straight from the reader."""
    # Hadoop writes a local path as file:/path or file:///path. A plain one has nothing that it would encode.
    # These functions say what `_metadata` says, which costs a third of the parsing: it makes a row for each record.
    uri = F.input_file_name()
    short, long = len("file:") + len(str(root)) + 2, len("file://") + len(str(root)) + 2
    return F.when(F.startswith(uri, F.lit("file://")), F.substr(uri, F.lit(long))).otherwise(
        F.substr(uri, F.lit(short))
    )


def _file_place(root: Path) -> tuple[Column, Column]:
    """FILE and RECORD, for rows that come straight from the reader."""
    # The lower 33 bits count the rows of a task. A task reads the lines of a block in their order, and no block has
    # more lines than bytes, so block start + count grows with the place in the file.
    count = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    return _file_name(root).alias(FILE), (F.input_file_block_start() + count + 1).alias(RECORD)


def read_plain(spark: SparkSession, spec: SourceSpec, root: Path, files: Sequence[Inspected]) -> DataFrame:
    """The records with FILE, RECORD and ERROR (always NULL); computing them fails with STOPPED at one in doubt."""
    rows = parse_plain(spark, spec, root, files)
    certain = rows.where(F.assert_true(~F.col(DOUBT), F.lit(STOPPED)).isNull())
    return certain.select(FILE, RECORD, F.lit(None).cast("string").alias(ERROR), *_names(spec))


def parse_plain(spark: SparkSession, spec: SourceSpec, root: Path, files: Sequence[Inspected]) -> DataFrame:
    """Lines as Spark's reader reads them: FILE, RECORD, the declared columns, and DOUBT where it may be mistaken."""
    declared = record_schema(spec).fields
    written = RecordOrigin()
    fields = [StructField(field.name, read_as(field.dataType, written)) for field in declared]
    schema = StructType([*fields, StructField(CORRUPT, StringType())])
    rows = (
        _open_files(spark)
        .schema(schema)
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", CORRUPT)
        .options(**STRICT_JSON)
        .json([str(root / file.mark.path) for file in files])
    )
    file, record = _file_place(root)
    names = _names(spec)
    values = [
        stored(name, field.dataType, written).alias(field.name) for name, field in zip(names, declared, strict=True)
    ]
    parsed = [name.alias(f"{PARSED}{number}") for number, name in enumerate(names)]
    read = rows.select(file, record, F.col(CORRUPT), *parsed, *values)
    doubt = F.col(CORRUPT).isNotNull()
    for number, (name, field) in enumerate(zip(names, declared, strict=True)):
        text = F.col(f"{PARSED}{number}")
        if loses(field.dataType, written):
            doubt = doubt | (text.isNotNull() & name.isNull())
        another = is_in_doubt(text, field.dataType)
        if another is not None:
            doubt = doubt | F.coalesce(another, F.lit(False))
    return read.select(FILE, RECORD, doubt.alias(DOUBT), *names)


def _names(spec: SourceSpec) -> list[Column]:
    return [F.col(quoted(field.name)) for field in record_schema(spec).fields]
