"""Landing files become typed rows; what cannot be a row is kept with its raw bytes.

Each record is read as a line of text and parsed once. A record that is not UTF-8, not of the declared types, too large,
without its key or at odds with an earlier record of the same key is rejected, with a code that says why; the rest
goes on. Nothing is written here.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType
from pyspark.sql.window import Window

from freshline.declare.spec import SourceSpec
from freshline.plan.position import FileMark
from freshline.refresh.inputs import FILE, HASH, INGESTED_AT, RECORD, SEQ
from freshline.refresh.literal import quoted

RAW = "_freshline_raw"
ERROR = "_freshline_error"
LINE = "_freshline_line"
PARSED = "_freshline_parsed"

REJECTIONS: dict[str, str] = {
    "NOT_UTF8": "the record is not valid UTF-8",
    "TOO_LARGE": "the record is larger than max-record-bytes",
    "NOT_JSON": "the line is not one JSON object with values of the declared types",
    "NOT_CSV": "the line does not have the declared number of columns, or a value is not of its declared type",
    "EMPTY_FILE": "the file is empty",
    "HEADER_MISMATCH": "the first line of the file does not name the declared columns",
    "NULL_KEY": "a column of the primary key is NULL",
    "KEY_CONFLICT": "another record with this primary key and other values arrived before",
}

# The header of a CSV file longer than this is no header.
HEADER_BYTES = 1 << 20
# Up to this many files each is read by a task of its own, so that the place of a row in its task is its line.
SINGLE_FILE_TASKS = 64

QUARANTINE_SCHEMA = StructType(
    [
        StructField(SEQ, LongType()),
        StructField("file", StringType()),
        StructField("line", LongType()),
        StructField("raw", BinaryType()),
        StructField("error", StringType()),
        StructField("message", StringType()),
        StructField("quarantined_at", TimestampType()),
    ]
)
FILES_SCHEMA = StructType(
    [
        StructField(SEQ, LongType()),
        StructField("path", StringType()),
        StructField("size", LongType()),
        StructField("modified_ns", LongType()),
    ]
)


@dataclass(frozen=True)
class Records:
    """Parsed records of some files.

    `rows` has the columns FILE, RECORD, LINE (NULL where only the order is known), RAW (NULL for good records of a source
    without a key), ERROR (NULL for good records) and one column for each declared record column.
    """

    rows: DataFrame


def log_schema(spec: SourceSpec) -> StructType:
    """The stored columns of a log table: arrival first, so that Delta keeps statistics on them, then the record's."""
    stored = [
        StructField(SEQ, LongType()),
        StructField(INGESTED_AT, TimestampType()),
        StructField(FILE, StringType()),
        StructField(RECORD, LongType()),
    ]
    key = [StructField(HASH, LongType())] if spec.primary_key else []
    return StructType(stored + key + record_schema(spec).fields)


def record_schema(spec: SourceSpec) -> StructType:
    """The declared columns that a record carries."""
    schema = StructType.fromDDL(", ".join(f"{quoted(c.name)} {c.type}" for c in spec.record_columns))
    assert isinstance(schema, StructType)
    return schema


def read_records(spark: SparkSession, spec: SourceSpec, root: Path, marks: Sequence[FileMark]) -> Records:
    """Read and parse complete files."""
    empty = [mark for mark in marks if mark.size == 0]
    full = [mark for mark in marks if mark.size > 0]
    frames: list[DataFrame] = []
    if spec.format == "csv" and spec.header:
        by_header: dict[tuple[str, ...] | None, list[FileMark]] = {}
        for mark in full:
            by_header.setdefault(_header(root / mark.path, spec), []).append(mark)
        for header, files in by_header.items():
            lines = _lines(spark, root, files)
            if header is None:
                frames.append(_rejected_whole(lines, spec))
            else:
                frames.append(_parse_csv(lines.where(F.col(RECORD) > 1), spec, header))
    elif full:
        lines = _lines(spark, root, full)
        if spec.format == "csv":
            frames.append(_parse_csv(lines, spec, tuple(column.name for column in spec.record_columns)))
        else:
            frames.append(_parse_json(lines, spec))
    if empty:
        rows = spark.createDataFrame([(mark.path, 0) for mark in empty], f"{FILE} STRING, {RECORD} BIGINT")
        rows = rows.withColumn(LINE, F.lit(None).cast("bigint")).withColumn("value", F.lit(""))
        frames.append(_finished(rows, F.lit("EMPTY_FILE"), None, spec))
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    return Records(rows)


def _lines(spark: SparkSession, root: Path, marks: Sequence[FileMark]) -> DataFrame:
    """Each line of the files with its place: columns value, FILE, RECORD, LINE."""
    single = len(marks) <= SINGLE_FILE_TASKS
    # A cost of opening as large as a task makes Spark put every file into a task of its own.
    spark.conf.set("spark.sql.files.openCostInBytes", str(128 << 20) if single else str(1 << 20))
    lines = (
        spark.read.option("lineSep", "\n")
        .option("__globPaths__", "false")
        .text([str(root / mark.path) for mark in marks])
    )
    # Hadoop writes a local path as file:/path or file:///path, percent-encoded.
    place = F.expr("regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/')")
    # The lower 33 bits count the rows of a task. A task reads the lines of a block in their order, and no block has more
    # lines than bytes, so block start + count grows with the place in the file.
    count = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    start = F.col("_metadata.file_block_start")
    value = F.expr(r"rtrim('\r', if(startswith(value, '\uFEFF'), substring(value, 2), value))")
    rows = lines.select(
        value.alias("value"),
        F.substr(place, F.lit(len(str(root)) + 2)).alias(FILE),
        (start + count + 1).alias(RECORD),
        start.alias("_freshline_block"),
    )
    if single:
        line = F.when(F.col("_freshline_block") == 0, F.col(RECORD))
        return rows.select("value", FILE, RECORD, line.alias(LINE))
    first = rows.groupBy(FILE).agg(F.min(RECORD).alias("_freshline_first"))
    joined = rows.join(F.broadcast(first), FILE)
    number = F.col(RECORD) - F.col("_freshline_first") + 1
    line = F.when(F.col("_freshline_block") == 0, number)
    return joined.select("value", FILE, number.alias(RECORD), line.alias(LINE))


def _header(path: Path, spec: SourceSpec) -> tuple[str, ...] | None:
    """The column names in the first line, None where they do not hold every declared column."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        first = file.readline(HEADER_BYTES)
    try:
        text = first.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        return None
    names = tuple(name.strip() for name in next(csv.reader([text]), []))
    folded = [name.lower() for name in names]
    declared = [column.name.lower() for column in spec.record_columns]
    if len(set(folded)) != len(folded) or any(name not in folded for name in declared):
        return None
    return names


def _parse_json(lines: DataFrame, spec: SourceSpec) -> DataFrame:
    # Inside an object of ours a second value on the line, or words behind the first, make the whole malformed;
    # by itself Spark's parser would read the first and forget the rest.
    fields = record_schema(spec)
    wrapped = StructType([StructField("v", fields), StructField("c", StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "c"}
    text = F.concat(F.lit('{"v":'), F.col("value"), F.lit("}"))
    parsed = lines.where(F.trim("value") != "").withColumn(PARSED, F.from_json(text, wrapped, options))
    broken = F.col(f"{PARSED}.c").isNotNull() | F.col(f"{PARSED}.v").isNull()
    return _finished(parsed, F.when(broken, F.lit("NOT_JSON")), f"{PARSED}.v", spec)


def _parse_csv(lines: DataFrame, spec: SourceSpec, header: tuple[str, ...]) -> DataFrame:
    types = {field.name.lower(): field for field in record_schema(spec).fields}
    fields = [
        StructField(f"v{number}", types[name.lower()].dataType if name.lower() in types else StringType())
        for number, name in enumerate(header)
    ]
    schema = StructType([*fields, StructField("c", StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "c"}
    if spec.null_value is not None:
        options["nullValue"] = spec.null_value
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    parsed = lines.where(F.col("value") != "").withColumn(PARSED, F.from_csv("value", ddl, options))
    place = {name.lower(): number for number, name in enumerate(header)}
    record = F.struct(
        *[F.col(f"{PARSED}.v{place[c.name.lower()]}").alias(c.name) for c in spec.record_columns]
    ).alias(PARSED)
    broken = F.col(f"{PARSED}.c").isNotNull() | F.col(PARSED).isNull()
    marked = parsed.withColumn(ERROR, F.when(broken, F.lit("NOT_CSV"))).withColumn(PARSED, record)
    return _finished(marked, F.col(ERROR), PARSED, spec)


def _rejected_whole(lines: DataFrame, spec: SourceSpec) -> DataFrame:
    return _finished(lines, F.lit("HEADER_MISMATCH"), None, spec)


def _finished(rows: DataFrame, error: Column, record: str | None, spec: SourceSpec) -> DataFrame:
    """The columns of `Records`, with the checks that every format shares."""
    columns = [
        (F.col(f"{record}.{quoted(field.name)}") if record else F.lit(None)).cast(field.dataType).alias(field.name)
        for field in record_schema(spec).fields
    ]
    checked = (
        F.when(~F.is_valid_utf8("value"), F.lit("NOT_UTF8"))
        .when(F.octet_length("value") > spec.max_record_bytes, F.lit("TOO_LARGE"))
        .otherwise(error)
    )
    typed = rows.select(FILE, RECORD, LINE, F.col("value"), checked.alias(ERROR), *columns)
    null_key = F.lit(False)
    for key in spec.primary_key:
        null_key = null_key | F.col(quoted(key)).isNull()
    final = F.coalesce(F.col(ERROR), F.when(null_key, F.lit("NULL_KEY")))
    # A good record of a source without a key is never needed raw again.
    raw = F.col("value") if spec.primary_key else F.when(final.isNotNull(), F.col("value"))
    names = [F.col(quoted(field.name)) for field in record_schema(spec).fields]
    return typed.select(FILE, RECORD, LINE, raw.cast("binary").alias(RAW), final.alias(ERROR), *names)


def record_hash(spec: SourceSpec) -> Column:
    """64 bits over all values of a record: tells a redelivery from another record with the same key."""
    return F.xxhash64(*[_hashable(field) for field in record_schema(spec).fields])


def _hashable(field: StructField) -> Column:
    column = F.col(quoted(field.name))
    return F.to_json(F.struct(column)) if "map<" in field.dataType.simpleString() else column


def mark_duplicates(rows: DataFrame, spec: SourceSpec) -> DataFrame:
    """Within one batch the first record of a key stays; the same again is redelivered, another is a conflict.

    Redelivered rows get the ERROR `REDELIVERED`, which is dropped and counted, not quarantined.
    """
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    good = Window.partitionBy(*keys, F.col(ERROR).isNull()).orderBy(FILE, RECORD)
    place = rows.withColumn("_freshline_place", F.row_number().over(good)).withColumn(
        "_freshline_first", F.first(HASH).over(good)
    )
    again = F.when(F.col("_freshline_first") == F.col(HASH), F.lit("REDELIVERED")).otherwise(F.lit("KEY_CONFLICT"))
    error = F.when(F.col(ERROR).isNotNull(), F.col(ERROR)).when(F.col("_freshline_place") > 1, again)
    return place.withColumn(ERROR, error).drop("_freshline_place", "_freshline_first")


def mark_known(rows: DataFrame, known: DataFrame, spec: SourceSpec) -> DataFrame:
    """Records whose key is in the log already: the same again is redelivered, another is a conflict.

    `known` has the key columns and `_freshline_known`, the hash of the stored record.
    """
    joined = rows.join(F.broadcast(known), list(spec.primary_key), "left")
    again = F.when(F.col("_freshline_known") == F.col(HASH), F.lit("REDELIVERED")).otherwise(F.lit("KEY_CONFLICT"))
    found = F.col(ERROR).isNull() & F.col("_freshline_known").isNotNull()
    return joined.withColumn(ERROR, F.when(found, again).otherwise(F.col(ERROR))).drop("_freshline_known")


def quarantined(rows: DataFrame, seq: int, now: datetime) -> DataFrame:
    """The rejected records as rows of the quarantine table."""
    message = F.element_at(F.create_map(*[F.lit(x) for pair in REJECTIONS.items() for x in pair]), F.col(ERROR))
    return rows.where(F.col(ERROR).isNotNull() & (F.col(ERROR) != "REDELIVERED")).select(
        F.lit(seq).cast("bigint").alias(SEQ),
        F.col(FILE).alias("file"),
        F.col(LINE).alias("line"),
        F.col(RAW).alias("raw"),
        F.col(ERROR).alias("error"),
        message.alias("message"),
        F.lit(now).alias("quarantined_at"),
    )


def accepted(rows: DataFrame, spec: SourceSpec, seq: int, now: datetime) -> DataFrame:
    """The good records as rows of the log table."""
    key = [F.col(HASH)] if spec.primary_key else []
    names = [F.col(quoted(column.name)) for column in spec.record_columns]
    return rows.where(F.col(ERROR).isNull()).select(
        F.lit(seq).cast("bigint").alias(SEQ), F.lit(now).alias(INGESTED_AT), FILE, RECORD, *key, *names
    )
