"""Landing files and records of a topic become typed rows; what cannot be a row is kept with its raw bytes.

Each record is a line of text (`refresh/lines.py`) and is parsed once. A record that is not UTF-8, not of the declared
types, too large, without its key or at odds with an earlier record of the same key is rejected, with a code that says
why; the rest goes on. Nothing is written here.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
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
from freshline.errors import FilesMisreadError
from freshline.refresh import lines as lines_module
from freshline.refresh.constraints import VIOLATED, first_violated, violated
from freshline.refresh.exact import Record, has_half_character, is_changed, is_lost, is_whole, read_as, stored
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
from freshline.refresh.lines import (
    LINES_DDL,
    LINES_SCHEMA,
    MOST_FIELDS,
    NUMBER,
    PLACE,
    VALUE,
    VERDICT,
    Inspected,
    Piece,
    Reading,
    pieces_of,
    read_pieces,
)
from freshline.refresh.literal import quoted

RAW = "_freshline_raw"
ERROR = "_freshline_error"
LINE = "_freshline_line"
PARSED = "_freshline_parsed"

REJECTIONS: dict[str, str] = {
    "UNREADABLE": "the file cannot be read",
    "NOT_UTF8": "the record is not valid UTF-8, or escapes half of a character",
    "TOO_LARGE": "the record is larger than max-record-bytes",
    "NOT_JSON": "the line is not one JSON object with values of the declared types",
    "NOT_CSV": "the line does not have the declared number of columns, or a value is not of its declared type",
    "EMPTY_FILE": "the file is empty",
    "HEADER_MISMATCH": "the first line of the file does not name the declared columns",
    "VALUE_CHANGED": "a value of this column would be another one in the declared type",
    "NULL_VALUE": "the record of the topic has no value (a tombstone)",
    "NULL_KEY": "a column of the primary key is NULL",
    "KEY_CONFLICT": "another record with this primary key and other values arrived before",
}

VALUE_CHANGED = "VALUE_CHANGED"
# What is left out and counted, and not kept in quarantine.
REDELIVERED = "REDELIVERED"
DROPPED = "DROPPED"
LEFT_OUT = (REDELIVERED, DROPPED)
# The error of a record that violates a constraint, before its name.
CONSTRAINT = "CONSTRAINT("

# Files of up to this many bytes in all are read here, without a task of Spark's.
SMALL_BYTES = 4 << 20
CHANGED = "the file changed while it was read."
# Of CSV files with more columns than this only the declared ones reach the parser.
WIDE = 1_000
# A task of Spark's reads at least this much.
LEAST_TASK_BYTES = 1 << 20
CORRUPT = "_freshline_corrupt"
BYTE_ORDER_MARK = "\ufeff"
# What Spark's JSON takes beyond JSON.
STRICT_JSON = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}

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
    constraints are declared also VIOLATED, the names of those that a record violates. `counts` are how many rows there
    must be of each file.
    """

    rows: DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)


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


def reading_of(spec: SourceSpec) -> Reading:
    """How the lines of a source's files are read."""
    return Reading(spec.format, spec.max_record_bytes, spec.follow_links)


def read_records(spark: SparkSession, spec: SourceSpec, root: Path, files: Sequence[Inspected]) -> Records:
    """Read and parse files that were inspected. Raises FilesMisreadError where one has changed since it was listed."""
    changed = [file.mark.path for file in files if file.changed]
    if changed:
        raise FilesMisreadError(CHANGED, str(root / changed[0]))
    without = [file for file in files if file.error is not None]
    readable = [file for file in files if file.error is None]
    counts = {file.mark.path: 1 for file in without}
    frames: list[DataFrame] = []
    if without:
        frames.append(_rejected_files(spark, spec, without))
    for header, group in _by_header(spec, readable).items():
        skip = 0 if header is None or not (spec.format == "csv" and spec.header) else 1
        reading = replace(reading_of(spec), skip=skip, fields=max(MOST_FIELDS, len(header or ())))
        if skip and header is not None and len(header) > WIDE:
            # To set its parser up Spark compares each column with each other one.
            columns = _columns(header, spec)
            reading = replace(reading, fields=len(header), columns=columns)
            header = tuple(header[column] for column in columns)
        counts |= {file.mark.path: file.records(skip) for file in group}
        rows = _lines(spark, root, group, reading)
        if header is None:
            frames.append(_finished(rows, F.lit("HEADER_MISMATCH"), None, spec))
        elif spec.format == "csv":
            frames.append(_parse_csv(rows, spec, header))
        else:
            frames.append(_parse_json(rows, spec))
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    return Records(rows, counts)


def check_read(counts: Mapping[str, int], found: Mapping[str, int], root: Path, files: Sequence[Inspected]) -> None:
    """Compare the rows that were read of each file with those that it has, before they are committed.

    Raises FilesMisreadError where they differ: a file was read twice, not at all or not to its end. So it does where a
    file was changed meanwhile; one that was taken away after it was read is no matter.
    """
    for path in counts.keys() | found.keys():
        if found.get(path, 0) != counts.get(path, 0):
            raise FilesMisreadError(
                f"the file has {counts.get(path, 0)} records, and {found.get(path, 0)} were read.", str(root / path)
            )
    for mark in [file.mark for file in files if file.error is None]:
        try:
            status = (root / mark.path).stat()
        except OSError:
            continue
        if (status.st_size, status.st_mtime_ns) != (mark.size, mark.modified_ns):
            raise FilesMisreadError(CHANGED, str(root / mark.path))


def _by_header(spec: SourceSpec, files: Sequence[Inspected]) -> dict[tuple[str, ...] | None, list[Inspected]]:
    """The files by the names of their columns; those without the declared ones under None."""
    declared = tuple(column.name for column in spec.record_columns)
    found: dict[tuple[str, ...] | None, list[Inspected]] = {}
    for file in files:
        header = _header(file.first, spec) if spec.format == "csv" and spec.header else declared
        found.setdefault(header, []).append(file)
    return found


def _columns(header: tuple[str, ...], spec: SourceSpec) -> tuple[int, ...]:
    """The places of the declared columns, two at least: a line of one that is empty would be no line."""
    declared = {column.name.lower() for column in spec.record_columns}
    found = tuple(place for place, name in enumerate(header) if name.lower() in declared)
    return found if len(found) > 1 else (*found, 0 if found != (0,) else 1)


def _rejected_files(spark: SparkSession, spec: SourceSpec, files: Sequence[Inspected]) -> DataFrame:
    found = [(file.mark.path, 0, None, file.reason, file.error) for file in files]
    schema = f"{FILE} STRING, {RECORD} BIGINT, {LINE} BIGINT, value STRING, {VERDICT} STRING"
    return _finished(spark.createDataFrame(found, schema), F.lit(None), None, spec)


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


def _lines(spark: SparkSession, root: Path, files: Sequence[Inspected], reading: Reading) -> DataFrame:
    """The records of files with their places: columns value, FILE, RECORD, LINE, VERDICT."""
    names = [file.mark.path for file in files]
    pieces = pieces_of(root, files, range(len(files)))
    total = sum(file.size for file in files)
    if total <= SMALL_BYTES:
        read = spark.createDataFrame(pa.Table.from_batches(read_pieces(pieces, reading), LINES_SCHEMA))
    else:
        tasks = _tasks(pieces, [file.size for file in files], spark.sparkContext.defaultParallelism)
        read = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_reader(tasks, reading), LINES_DDL)
    # One text with all names: thousands of literals would take Spark seconds to receive. A name has no NUL in it.
    name = F.get(F.split(F.lit("\0".join(names)), "\0", -1), F.col(NUMBER))
    place = F.col(PLACE)
    return read.select(
        F.col(VALUE).cast("string").alias("value"), name.alias(FILE), place.alias(RECORD), place.alias(LINE), VERDICT
    )


def _tasks(pieces: Sequence[Piece], sizes: Sequence[int], cores: int) -> list[list[Piece]]:
    """The parts of files in portions of about the same size, in their order."""
    weights = [
        (piece.end - piece.start) if piece.end is not None else max(1, sizes[piece.number] - piece.start)
        for piece in pieces
    ]
    most = max(LEAST_TASK_BYTES, sum(weights) // (2 * cores))
    tasks: list[list[Piece]] = [[]]
    size = 0
    for piece, weight in zip(pieces, weights, strict=True):
        if tasks[-1] and size + weight > most:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += weight
    return tasks


def _reader(
    tasks: Sequence[Sequence[Piece]], reading: Reading
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # What tasks are sent holds the code itself: the machines of a cluster need pyarrow, and not freshline.
    cloudpickle.register_pickle_by_value(lines_module)  # type: ignore[no-untyped-call]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read_pieces(tasks[task], reading)

    return read


def _header(first: bytes | None, spec: SourceSpec) -> tuple[str, ...] | None:
    """The column names in the first line, None where they do not hold every declared column."""
    if first is None:
        return None
    try:
        text = first.decode()
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
    # By itself Spark's parser reads the first value of a line and forgets the rest, so what is behind it is checked.
    record = Record(raw=F.col("value"))
    fields = [StructField(field.name, read_as(field.dataType, record)) for field in record_schema(spec).fields]
    schema = StructType([*fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **STRICT_JSON}
    marked = F.startswith("value", F.lit(BYTE_ORDER_MARK))
    body = F.when(marked, F.substring("value", 2, spec.max_record_bytes)).otherwise(F.col("value"))
    parsed = lines.withColumn(PARSED, F.from_json(body, schema, options))
    broken = F.col(PARSED).isNull() | F.col(f"{PARSED}.{CORRUPT}").isNotNull() | ~is_whole(body)
    error = F.when(has_half_character(F.col("value")), F.lit("NOT_UTF8")).when(broken, F.lit("NOT_JSON"))
    return _finished(parsed, error, record, spec)


def _parse_csv(lines: DataFrame, spec: SourceSpec, header: tuple[str, ...]) -> DataFrame:
    record = Record(csv=True)
    types = {field.name.lower(): read_as(field.dataType, record) for field in record_schema(spec).fields}
    fields = [StructField(f"v{number}", types.get(name.lower(), StringType())) for number, name in enumerate(header)]
    schema = StructType([*fields, StructField("c", StringType())])
    # Quotes are doubled inside quotes (RFC 4180); Spark's own default is a backslash.
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": "c",
        "escape": '"',
        "maxColumns": str(max(MOST_FIELDS, len(header))),
    }
    if spec.null_value is not None:
        options["nullValue"] = spec.null_value
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    parsed = lines.withColumn(PARSED, F.from_csv("value", ddl, options))
    place = {name.lower(): number for number, name in enumerate(header)}
    values = F.struct(*[F.col(f"{PARSED}.v{place[c.name.lower()]}").alias(c.name) for c in spec.record_columns])
    # A quoted value that the line does not end goes on in the next one: neither is a record.
    quotes = F.length("value") - F.length(F.replace("value", F.lit('"')))
    open_quote = (quotes % 2 == 1) & F.col("value").rlike('(^|,)"')
    broken = F.col(f"{PARSED}.c").isNotNull() | F.col(PARSED).isNull() | open_quote
    marked = parsed.withColumn(ERROR, F.when(broken, F.lit("NOT_CSV"))).withColumn(PARSED, values)
    return _finished(marked, F.col(ERROR), record, spec)


def _finished(rows: DataFrame, error: Column, record: Record | None, spec: SourceSpec) -> DataFrame:
    """The columns of `Records`, with the checks that every format shares.

    `record` says what the values in PARSED were parsed from; None where nothing was.
    """
    fields = record_schema(spec).fields
    columns = [
        F.lit(None).cast(field.dataType).alias(field.name)
        if record is None
        else stored(F.col(f"{PARSED}.{quoted(field.name)}"), field.dataType, record, field.name).alias(field.name)
        for field in fields
    ]
    parsed = [] if record is None else [PARSED]
    checked = (
        F.when(_verdict(rows).isNotNull(), _verdict(rows))
        .when(F.col("value").isNull(), F.lit("NULL_VALUE"))
        .when(~F.is_valid_utf8("value"), F.lit("NOT_UTF8"))
        .when(F.octet_length("value") > spec.max_record_bytes, F.lit("TOO_LARGE"))
        .otherwise(error)
    )
    queue = OF_QUEUE if spec.kafka is not None else ()
    typed = rows.select(FILE, RECORD, LINE, *queue, F.col("value"), checked.alias(ERROR), *parsed, *columns)
    null_key = F.lit(False)
    for key in spec.primary_key:
        null_key = null_key | F.col(quoted(key)).isNull()
    lost = [] if record is None else [each for field in fields if (each := _lost(field, record)) is not None]
    broken = F.coalesce(F.col(ERROR), *lost, F.when(null_key, F.lit("NULL_KEY")))
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


def _verdict(rows: DataFrame) -> Column:
    """What was known of a line before it was parsed; nothing is known of a topic's records."""
    return F.col(VERDICT) if VERDICT in rows.columns else F.lit(None).cast("string")


def _lost(field: StructField, record: Record) -> Column | None:
    """The code of a record whose value of a column is not stored as it is; None where each value is."""
    parsed = F.col(f"{PARSED}.{quoted(field.name)}")
    lost = is_lost(parsed, field.dataType, record, field.name)
    if lost is None:
        return None
    if not isinstance(field.dataType, ArrayType | MapType | StructType):
        # The value is there already.
        lost = parsed.isNotNull() & F.col(quoted(field.name)).isNull()
    other = F.lit("NOT_CSV" if record.csv else "NOT_JSON")
    changed = F.lit(value_changed(field.name))
    return F.when(lost, F.when(is_changed(parsed, field.dataType, record), changed).otherwise(other))


def value_changed(name: str) -> str:
    """The code of a record whose value of this column would be stored as another one."""
    return f"{VALUE_CHANGED}({name})"


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
    for column in spec.record_columns:
        said[value_changed(column.name)] = (
            f"a value of column {column.name} cannot be stored as {column.type} without becoming another one"
        )
    message = F.element_at(F.create_map(*[F.lit(x) for pair in said.items() for x in pair]), F.col(ERROR))
    # The bytes of a file that cannot be read are the reason why.
    unreadable = F.col(ERROR) == "UNREADABLE"
    message = F.when(unreadable, F.concat(message, F.lit(": "), F.col(RAW).cast("string"))).otherwise(message)
    raw = F.when(~unreadable, F.col(RAW)).otherwise(F.lit(b""))
    return rows.where(F.col(ERROR).isNotNull() & ~F.col(ERROR).isin(*LEFT_OUT)).select(
        F.lit(seq).cast("bigint").alias(SEQ),
        *place,
        raw.alias("raw"),
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
