"""Landing files and records of a topic become typed rows; what cannot be a row is kept with its raw bytes.

Each record is read as a line of text and parsed once. A record that is not UTF-8, not of the declared types, too large,
without its key or at odds with an earlier record of the same key is rejected, with a code that says why; the rest
goes on. Nothing is written here.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from pyspark.sql.window import Window

from freshline.declare.spec import OnViolation, SourceSpec
from freshline.plan.position import FileMark
from freshline.refresh.constraints import VIOLATED, first_violated, violated
from freshline.refresh.inputs import (
    FILE,
    HASH,
    HEADERS,
    INGESTED_AT,
    KEY,
    OF_QUEUE,
    PARTITION,
    RECORD,
    SEQ,
    TIMESTAMP,
    TOPIC,
)
from freshline.refresh.literal import quoted

RAW = "_freshline_raw"
ERROR = "_freshline_error"
LINE = "_freshline_line"
PARSED = "_freshline_parsed"

REJECTIONS: dict[str, str] = {
    "NOT_GZIP": "the file ends in .gz and is not a complete gzip file",
    "NOT_UTF8": "the record is not valid UTF-8",
    "TOO_LARGE": "the record is larger than max-record-bytes",
    "NOT_JSON": "the line is not one JSON object with values of the declared types",
    "NOT_CSV": "the line does not have the declared number of columns, or a value is not of its declared type",
    "EMPTY_FILE": "the file is empty",
    "HEADER_MISMATCH": "the first line of the file does not name the declared columns",
    "NULL_VALUE": "the record of the topic has no value (a tombstone)",
    "NULL_KEY": "a column of the primary key is NULL",
    "KEY_CONFLICT": "another record with this primary key and other values arrived before",
}

# What is left out and counted, and not kept in quarantine.
REDELIVERED = "REDELIVERED"
DROPPED = "DROPPED"
LEFT_OUT = (REDELIVERED, DROPPED)
# The error of a record that violates a constraint, before its name.
CONSTRAINT = "CONSTRAINT("

# The header of a CSV file longer than this is no header.
HEADER_BYTES = 1 << 20
# Up to this many files each is read by a task of its own, so that the place of a row in its task is its line.
SINGLE_FILE_TASKS = 64
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=-]+")
OPEN_COST = "spark.sql.files.openCostInBytes"
# Stands behind each record while it is parsed; what is not read up to here has a second value or words behind the
# first.
END = "_freshline_end"

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
# Records of a queue have their own place in it.
QUEUE_QUARANTINE_SCHEMA = StructType(
    [
        *QUARANTINE_SCHEMA.fields,
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("key", BinaryType()),
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


HEADER_TYPE = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
QUEUE_FIELDS = [
    StructField(TOPIC, StringType()),
    StructField(PARTITION, IntegerType()),
    StructField(TIMESTAMP, TimestampType()),
    StructField(KEY, BinaryType()),
    StructField(HEADERS, ArrayType(HEADER_TYPE)),
]


@dataclass(frozen=True)
class Records:
    """Parsed records of some files.

    `rows` has the columns FILE, RECORD, LINE (NULL where only the order is known), RAW (NULL for good records of a
    source without a key), ERROR (NULL for good records) and one column for each declared record column; where
    constraints are declared also VIOLATED, the names of those that a record violates.
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
    queue = QUEUE_FIELDS if spec.kafka is not None else []
    return StructType(stored + queue + key + record_schema(spec).fields)


def statistics_columns(spec: SourceSpec) -> tuple[str, ...]:
    """The columns of a log table that Delta keeps least and greatest values of.

    Batches are found by number and time, users look for times, dates and numbers. Texts and places of records arrive
    in no order, so their bounds skip nothing; keeping them was a sixth of what an append costs.
    """
    ordered = (DateType, TimestampType, TimestampNTZType, NumericType)
    queue = (RECORD, PARTITION, TIMESTAMP) if spec.kafka is not None else ()
    return (SEQ, INGESTED_AT, *queue, *(f.name for f in record_schema(spec).fields if isinstance(f.dataType, ordered)))


def record_schema(spec: SourceSpec) -> StructType:
    """The declared columns that a record carries."""
    schema = StructType.fromDDL(", ".join(f"{quoted(c.name)} {c.type}" for c in spec.record_columns))
    assert isinstance(schema, StructType)
    return schema


def read_records(spark: SparkSession, spec: SourceSpec, root: Path, marks: Sequence[FileMark]) -> Records:
    """Read and parse complete files."""
    empty = [mark for mark in marks if mark.size == 0]
    damaged = [mark for mark in marks if mark.size > 0 and mark.path.endswith(".gz") and not _is_gzip(root / mark.path)]
    full = [mark for mark in marks if mark.size > 0 and mark not in damaged]
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
            frames.append(_parse_json(lines.where(F.trim("value") != ""), spec))
    for files, error in ((empty, "EMPTY_FILE"), (damaged, "NOT_GZIP")):
        if files:
            rows = spark.createDataFrame([(mark.path, 0) for mark in files], f"{FILE} STRING, {RECORD} BIGINT")
            rows = rows.withColumn(LINE, F.lit(None).cast("bigint")).withColumn("value", F.lit(""))
            frames.append(_finished(rows, F.lit(error), None, spec))
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    return Records(rows)


def parse_records(records: DataFrame, spec: SourceSpec) -> Records:
    """Parse records of a topic, which have Kafka's own columns."""
    rows = records.select(
        F.col("value").cast("string").alias("value"),
        F.concat_ws("-", "topic", "partition").alias(FILE),
        F.col("offset").alias(RECORD),
        F.lit(None).cast("bigint").alias(LINE),
        F.col("topic").alias(TOPIC),
        F.col("partition").alias(PARTITION),
        F.col("timestamp").alias(TIMESTAMP),
        F.col("key").alias(KEY),
        F.col("headers").alias(HEADERS),
    )
    return Records(_parse_json(rows, spec))


def _is_gzip(path: Path) -> bool:
    """Whether the file can be read to its end: one that cannot would fail every batch that it is in."""
    try:
        with gzip.open(path, "rb") as file:
            while file.read(1 << 20):
                pass
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False
    return True


def end_reading(spark: SparkSession) -> None:
    """Give the session back its own way of reading files, once the records of `read_records` are computed."""
    spark.conf.unset(OPEN_COST)


def open_files(spark: SparkSession, marks: Sequence[FileMark]) -> DataFrameReader:
    """A reader of lines for exactly these files, each in a task of its own where they are few."""
    single = len(marks) <= SINGLE_FILE_TASKS
    # A cost of opening as large as a task makes Spark put every file into a task of its own.
    spark.conf.set(OPEN_COST, str(128 << 20) if single else str(1 << 20))
    return (
        spark.read.option("lineSep", "\n")
        .option("__globPaths__", "false")
        # Hadoop's own way looks for a checksum file beside each file, and fails at a name with a colon in it.
        .option("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        .option("fs.file.impl.disable.cache", "true")
    )


def file_place(root: Path, marks: Sequence[FileMark]) -> tuple[Column, Column, Column]:
    """FILE, RECORD and the start of the block, for rows that come straight from `open_files`."""
    # Hadoop writes a local path as file:/path or file:///path, percent-encoded. Decoding each row's costs a tenth of
    # reading it, so plain names are cut out as they are.
    if all(PLAIN_PATH.fullmatch(str(root / mark.path)) for mark in marks):
        uri = F.col("_metadata.file_path")
        short, long = len("file:") + len(str(root)) + 2, len("file://") + len(str(root)) + 2
        name = F.when(F.startswith(uri, F.lit("file://")), F.substr(uri, F.lit(long))).otherwise(
            F.substr(uri, F.lit(short))
        )
    else:
        place = F.expr("regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/')")
        name = F.substr(place, F.lit(len(str(root)) + 2))
    # The lower 33 bits count the rows of a task. A task reads the lines of a block in their order, and no block has
    # more lines than bytes, so block start + count grows with the place in the file.
    count = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    start = F.col("_metadata.file_block_start")
    return (
        name.alias(FILE),
        (start + count + 1).alias(RECORD),
        start.alias("_freshline_block"),
    )


def _lines(spark: SparkSession, root: Path, marks: Sequence[FileMark]) -> DataFrame:
    """Each line of the files with its place: columns value, FILE, RECORD, LINE."""
    lines = open_files(spark, marks).text([str(root / mark.path) for mark in marks])
    value = F.expr(r"rtrim('\r', if(startswith(value, '\uFEFF'), substring(value, 2), value))")
    rows = lines.select(value.alias("value"), *file_place(root, marks))
    if len(marks) <= SINGLE_FILE_TASKS:
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
    try:
        names = tuple(name.strip() for name in next(csv.reader([text]), []))
    except csv.Error:
        return None  # a line of another kind: too long a field, or line ends of its own
    folded = [name.lower() for name in names]
    declared = [column.name.lower() for column in spec.record_columns]
    if len(set(folded)) != len(folded) or any(name not in folded for name in declared):
        return None
    return names


def _parse_json(lines: DataFrame, spec: SourceSpec) -> DataFrame:
    # By itself Spark's parser reads the first value of a line and forgets the rest. So each line is read as the first
    # of two elements of an array of ours: whatever stands behind the record makes it another array, or none.
    fields = StructType([*record_schema(spec).fields, StructField(END, BooleanType())])
    wrapped = StructType([StructField("v", ArrayType(fields)), StructField("c", StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "c"}
    text = F.concat(F.lit('{"v":['), F.col("value"), F.lit(f',{{"{END}":true}}]}}'))
    read = lines.withColumn(PARSED, F.from_json(text, wrapped, options))
    whole = F.col(f"{PARSED}.c").isNull() & (F.size(f"{PARSED}.v") == 2) & F.get(f"{PARSED}.v", F.lit(1))[END]
    parsed = read.withColumn("_freshline_whole", F.coalesce(whole, F.lit(False))).withColumn(
        PARSED, F.get(f"{PARSED}.v", F.lit(0))
    )
    broken = ~F.col("_freshline_whole") | F.col(PARSED).isNull()
    return _finished(parsed, F.when(broken, F.lit("NOT_JSON")), PARSED, spec)


def _parse_csv(lines: DataFrame, spec: SourceSpec, header: tuple[str, ...]) -> DataFrame:
    types = {field.name.lower(): field for field in record_schema(spec).fields}
    fields = [
        StructField(f"v{number}", types[name.lower()].dataType if name.lower() in types else StringType())
        for number, name in enumerate(header)
    ]
    schema = StructType([*fields, StructField("c", StringType())])
    # Quotes are doubled inside quotes (RFC 4180); Spark's own default is a backslash.
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "c", "escape": '"'}
    if spec.null_value is not None:
        options["nullValue"] = spec.null_value
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    parsed = lines.where(F.col("value") != "").withColumn(PARSED, F.from_csv("value", ddl, options))
    place = {name.lower(): number for number, name in enumerate(header)}
    record = F.struct(*[F.col(f"{PARSED}.v{place[c.name.lower()]}").alias(c.name) for c in spec.record_columns]).alias(
        PARSED
    )
    # A quoted value that the line does not end goes on in the next one: neither is a record.
    quotes = F.length("value") - F.length(F.replace("value", F.lit('"')))
    open_quote = (quotes % 2 == 1) & F.col("value").rlike('(^|,)"')
    broken = F.col(f"{PARSED}.c").isNotNull() | F.col(PARSED).isNull() | open_quote
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
        F.when(F.col("value").isNull(), F.lit("NULL_VALUE"))
        .when(~F.is_valid_utf8("value"), F.lit("NOT_UTF8"))
        .when(F.octet_length("value") > spec.max_record_bytes, F.lit("TOO_LARGE"))
        .otherwise(error)
    )
    queue = OF_QUEUE if spec.kafka is not None else ()
    typed = rows.select(FILE, RECORD, LINE, *queue, F.col("value"), checked.alias(ERROR), *columns)
    null_key = F.lit(False)
    for key in spec.primary_key:
        null_key = null_key | F.col(quoted(key)).isNull()
    broken = F.coalesce(F.col(ERROR), F.when(null_key, F.lit("NULL_KEY")))
    final = broken
    marked: list[Column] = []
    if spec.constraints:
        # What is no record, or has no key, has nothing that a constraint could be about.
        nothing = F.array().cast("array<string>")
        typed = typed.withColumn(VIOLATED, F.when(broken.isNull(), violated(spec.constraints)).otherwise(nothing))
        dropped = first_violated(spec.constraints, OnViolation.DROP_ROW)
        quarantine = first_violated(spec.constraints, OnViolation.QUARANTINE)
        rejected = F.concat(F.lit(CONSTRAINT), quarantine, F.lit(")"))
        final = F.coalesce(broken, rejected, F.when(dropped.isNotNull(), F.lit(DROPPED)))
        marked = [F.col(VIOLATED)]
    # Spark pushes a filter on the verdict below the parser, and then parses each record again for every mention of it:
    # five times instead of once. What differs each time it leaves in place; a number is never below zero.
    verdict = F.when(F.monotonically_increasing_id() >= 0, final).alias(ERROR)
    # A good record of a source without a key is never needed raw again.
    raw = F.col("value") if spec.primary_key else F.when(final.isNotNull(), F.col("value"))
    names = [F.col(quoted(field.name)) for field in record_schema(spec).fields]
    return typed.select(FILE, RECORD, LINE, *queue, raw.cast("binary").alias(RAW), verdict, *marked, *names)


def record_hash(spec: SourceSpec) -> Column:
    """64 bits over all values of a record: tells a redelivery from another record with the same key."""
    # The hash passes over NULLs, so a value would look the same in another column: NULLs are hashed as such.
    parts = [part for field in record_schema(spec).fields for part in _hashable(field)]
    return F.xxhash64(*parts)


def _hashable(field: StructField) -> tuple[Column, Column]:
    column = F.col(quoted(field.name))
    nested = isinstance(field.dataType, ArrayType | MapType | StructType)
    return (F.to_json(F.struct(column)) if nested else column), column.isNull()


def mark_duplicates(rows: DataFrame, spec: SourceSpec) -> DataFrame:
    """Within one batch the first record of a key stays; the same again is redelivered, another is a conflict.

    Redelivered rows get the ERROR `REDELIVERED`, which is dropped and counted, not quarantined.
    """
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    good = Window.partitionBy(*keys, F.col(ERROR).isNull()).orderBy(FILE, RECORD)
    place = rows.withColumn("_freshline_place", F.row_number().over(good)).withColumn(
        "_freshline_first", F.first(HASH).over(good)
    )
    again = F.when(F.col("_freshline_first") == F.col(HASH), F.lit(REDELIVERED)).otherwise(F.lit("KEY_CONFLICT"))
    error = F.when(F.col(ERROR).isNotNull(), F.col(ERROR)).when(F.col("_freshline_place") > 1, again)
    return place.withColumn(ERROR, error).drop("_freshline_place", "_freshline_first")


def mark_known(rows: DataFrame, known: DataFrame, spec: SourceSpec) -> DataFrame:
    """Records whose key is in the log already: the same again is redelivered, another is a conflict.

    `known` has the key columns and `_freshline_known`, the hash of the stored record.
    """
    joined = rows.join(F.broadcast(known), list(spec.primary_key), "left")
    again = F.when(F.col("_freshline_known") == F.col(HASH), F.lit(REDELIVERED)).otherwise(F.lit("KEY_CONFLICT"))
    found = F.col(ERROR).isNull() & F.col("_freshline_known").isNotNull()
    return joined.withColumn(ERROR, F.when(found, again).otherwise(F.col(ERROR))).drop("_freshline_known")


def quarantined(rows: DataFrame, spec: SourceSpec, seq: int, now: datetime) -> DataFrame:
    """The rejected records as rows of the quarantine table."""
    queue = TOPIC in rows.columns
    none = F.lit(None)
    place = [
        (none.cast("string") if queue else F.col(FILE)).alias("file"),
        (none.cast("bigint") if queue else F.col(LINE)).alias("line"),
    ]
    more = [
        F.col(TOPIC).alias("topic"),
        F.col(PARTITION).alias("partition"),
        F.col(RECORD).alias("offset"),
        F.col(KEY).alias("key"),
    ]
    said = REJECTIONS | {
        f"{CONSTRAINT}{each.name})": f"EXPECT ({each.condition}) is not met" for each in spec.constraints
    }
    message = F.element_at(F.create_map(*[F.lit(x) for pair in said.items() for x in pair]), F.col(ERROR))
    return rows.where(F.col(ERROR).isNotNull() & ~F.col(ERROR).isin(*LEFT_OUT)).select(
        F.lit(seq).cast("bigint").alias(SEQ),
        *place,
        F.col(RAW).alias("raw"),
        F.col(ERROR).alias("error"),
        message.alias("message"),
        F.lit(now).alias("quarantined_at"),
        *(more if queue else []),
    )


def accepted(rows: DataFrame, spec: SourceSpec, seq: int, now: datetime) -> DataFrame:
    """The good records as rows of the log table."""
    key = [F.col(HASH)] if spec.primary_key else []
    queue = OF_QUEUE if spec.kafka is not None else ()
    names = [F.col(quoted(column.name)) for column in spec.record_columns]
    return rows.where(F.col(ERROR).isNull()).select(
        F.lit(seq).cast("bigint").alias(SEQ), F.lit(now).alias(INGESTED_AT), FILE, RECORD, *queue, *key, *names
    )
