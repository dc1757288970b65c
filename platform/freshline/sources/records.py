"""Records become the rows of a log table; a record that cannot be a row is kept with its raw bytes.

A record that is not UTF-8, not of the declared types, too large, without its key or at odds with an earlier record of
the same key is rejected, with a code that says why; the rest goes on. The same applies to every connector and format.
Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
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

from freshline.compute.constraints import VIOLATED, first_violated, violated
from freshline.compute.inputs import FILE, HASH, INGESTED_AT, RECORD, SEQ, WATERMARK
from freshline.compute.literal import literal
from freshline.compute.shared_columns import shared_column
from freshline.sources.formats.exact import RecordOrigin, is_changed, is_lost, loses, stored
from freshline.sources.reader import LINE, VERDICT, Group
from freshline.values.change import (
    BEFORE,
    CHANGED_AT,
    DELETE,
    OP,
    REMOVED,
    TRUNCATE,
    UNFIT,
    UNSENT,
    UPDATE,
    Tombstones,
)
from freshline.values.clock import as_microseconds, from_microseconds
from freshline.values.connector import RETRIED_IN
from freshline.values.extension import given
from freshline.values.format import PARSED, VALUE, Decoded
from freshline.values.names import quoted
from freshline.values.spec import OnViolation, RecordKey, SourceSpec
from freshline.values.watermark import (
    FIRST_MICROSECOND,
    WHOLE_SOURCE,
    SeenTimes,
    last_microsecond,
    rules_of,
)

RAW = "_freshline_raw"
ERROR = "_freshline_error"
# For the keys of records: their values, and the reason why one is none.
KEYED, KEY_ERROR = "_freshline_keyed", "_freshline_key_error"
_HELD = "_freshline_held"
# Whether a record can be decoded again from its own bytes, and the names of its fields where its file has its own.
AGAIN = "_freshline_again"
FIELDS = "_freshline_fields"

# In the quarantine of a change feed: the bits of a key of which a newer event than all good ones was rejected.
UNKNOWN_KEY = "_freshline_unknown_key"

REJECTIONS: dict[str, str] = {
    "UNREADABLE": "the file cannot be read",
    "NOT_UTF8": "the record is not valid UTF-8, or escapes half of a character",
    "TOO_LARGE": "the record is larger than max-record-bytes",
    "EMPTY_FILE": "the file is empty",
    "HEADER_MISMATCH": "the first line of the file does not name each declared column once",
    "VALUE_CHANGED": "a value of this column would be another one in the declared type",
    "NULL_VALUE": "the record of the topic has no value (a tombstone)",
    "NOT_PROPERTIES": "the properties of the message cannot be read",
    "NO_MESSAGE_ID": "the message has no message id, by which it would be recognized",
    "NOT_AGGREGATE": "the record begins as an aggregate of the Kinesis Producer Library does, and is none",
    "OTHER_SHARD": "the user record is of another shard, to which its producer sends it again",
    "NOT_KEY": "the key of the record is none of 'key.format' with values of the declared types",
    "NULL_KEY": "a column of the primary key is NULL",
    "KEY_CONFLICT": "another record with this primary key and other values arrived before",
}

VALUE_CHANGED = "VALUE_CHANGED"
# Records with these codes are left out and counted, and not kept in quarantine.
REDELIVERED = "REDELIVERED"
DROPPED = "DROPPED"
LEFT_OUT = (REDELIVERED, DROPPED)
# The error of a record that violates a constraint, before its name.
CONSTRAINT = "CONSTRAINT("

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


_TEXTS = ArrayType(StringType())


def log_schema(spec: SourceSpec) -> StructType:
    """The stored columns of a log table: arrival first, so that Delta keeps statistics on them, then the record's."""
    arrival = [
        StructField(SEQ, LongType()),
        StructField(INGESTED_AT, TimestampType()),
        StructField(FILE, StringType()),
        StructField(RECORD, LongType()),
    ]
    known = _fields([(each.stored, each.type) for each in spec.stored_metadata.values()])
    key = [StructField(HASH, LongType())] if spec.unique_key else []
    watermark = [StructField(WATERMARK, TimestampType())] if spec.watermark is not None else []
    return StructType(arrival + watermark + known + key + record_schema(spec).fields)


def quarantine_schema(spec: SourceSpec) -> StructType:
    """The columns of a log table's quarantine table; the connector may have a place of its own for its records."""
    own = _fields([(name, each.type) for name, each in spec.quarantined_metadata.items()])
    of_key = [StructField(UNKNOWN_KEY, LongType())] if spec.is_change_feed else []
    return StructType(
        [*QUARANTINE_SCHEMA.fields, StructField(RETRIED_IN, LongType()), *of_key, *own, *_again_fields(spec)]
    )


def again_columns(spec: SourceSpec) -> list[str]:
    """The facts of a record before it is decoded, beside its bytes; with them the record can be decoded again."""
    return [field.name for field in _again_fields(spec)]


def _again_fields(spec: SourceSpec) -> list[StructField]:
    decoded = {each.stored for each in spec.facts.values()}
    known = [(each.stored, each.type) for each in spec.stored_metadata.values() if each.stored not in decoded]
    places = [StructField(FILE, StringType()), StructField(RECORD, LongType()), StructField(FIELDS, _TEXTS)]
    return places + _fields(known)


def statistics_columns(spec: SourceSpec) -> tuple[str, ...]:
    """The columns of a log table that Delta keeps least and greatest values of.

    Batches are found by number and time, users select by times, dates and numbers. Texts and places of records arrive
    in no order, so their bounds skip nothing; keeping them was a sixth of the cost of an append.
    """
    ordered = (DateType, TimestampType, TimestampNTZType, NumericType)
    known = [each.stored for each in spec.metadata.values() if each.ordered]
    return (SEQ, INGESTED_AT, *known, *(f.name for f in record_schema(spec).fields if isinstance(f.dataType, ordered)))


def record_schema(spec: SourceSpec) -> StructType:
    """The declared columns that a record carries."""
    return StructType(_fields([(column.name, column.type) for column in spec.record_columns]))


def _fields(columns: Sequence[tuple[str, str]]) -> list[StructField]:
    schema = StructType.fromDDL(", ".join(f"{quoted(name)} {kind}" for name, kind in columns))
    assert isinstance(schema, StructType)
    return schema.fields


def judge_records(groups: Sequence[Group], spec: SourceSpec) -> DataFrame:
    """Decode records and judge them, one by one.

    The columns are FILE, RECORD, LINE (NULL where only the order is known), FIELDS, those that a group keeps, the
    metadata that are stored, AGAIN, RAW (NULL for good records of a source without a key), ERROR (NULL for good
    records) and one for each declared column of the record; where constraints are declared also VIOLATED, the names of
    those that a record violates.
    """
    return reduce(DataFrame.unionByName, [_judged(group, spec) for group in groups])


def _judged(group: Group, spec: SourceSpec) -> DataFrame:
    rows = group.rows.withColumn(VALUE, F.col(VALUE).cast("string"))
    if LINE not in rows.columns:
        rows = rows.withColumn(LINE, F.col(RECORD))
    assert spec.format is not None
    named = spec.format.has_header and group.columns
    fields = F.array(*[F.lit(name) for name in group.columns]) if named else F.lit(None)
    rows = rows.withColumn(FIELDS, fields.cast(_TEXTS))
    if group.error is not None:
        return _finished(rows, F.lit(group.error), None, spec, group.kept)
    if spec.key is not None:
        rows = _with_key(rows, spec, spec.key)
    of_values = spec.of_values()
    columns = group.columns or tuple(column.name for column in of_values.record_columns)
    decoded = given(spec.format.decode(rows, of_values, columns), Decoded, type(spec.format), "decode", spec)
    return _finished(decoded.rows, decoded.error, decoded, spec, group.kept)


def _with_key(rows: DataFrame, spec: SourceSpec, key: RecordKey) -> DataFrame:
    """The rows with KEYED, a struct of the columns that are in the keys of records, and KEY_ERROR.

    A record without a key has NULL in them.
    """
    column = spec.connection.record_key
    assert column is not None
    of_keys = spec.of_keys()
    held = rows.withColumn(_HELD, F.col(VALUE)).withColumn(VALUE, F.col(column).cast("string"))
    decoded = key.format.decode(held, of_keys, key.columns)
    fields = record_schema(of_keys).fields
    typed = decoded.rows.withColumn(KEYED, F.struct(*[_value(field, decoded).alias(field.name) for field in fields]))
    broken = F.coalesce(decoded.error, *_lost_values(fields, decoded.written, "NOT_KEY", f"{KEYED}."))
    # An error that says more than that the key is none stays.
    says_more = broken.startswith(VALUE_CHANGED) | (broken == "UNKNOWN_SCHEMA")
    error = F.when(says_more, broken).when(broken.isNotNull(), "NOT_KEY")
    if key.format.has_text:
        error = F.when(~F.is_valid_utf8(VALUE), "NOT_KEY").otherwise(error)
    others = [F.col(quoted(name)) for name in rows.columns if name != VALUE]
    return typed.select(
        *others,
        F.col(_HELD).alias(VALUE),
        KEYED,
        F.when(F.col(column).isNotNull(), error).alias(KEY_ERROR),
    )


def _lost_values(
    fields: Sequence[StructField], written: RecordOrigin | None, broken: str, within: str = ""
) -> list[Column]:
    """The codes of values that are not stored as they are. The stored ones are columns, with `within` before them."""
    if written is None:
        return []
    return [each for field in fields if (each := _lost(field, written, broken, within)) is not None]


def _finished(
    rows: DataFrame, error: Column, decoded: Decoded | None, spec: SourceSpec, shared_column: Sequence[str]
) -> DataFrame:
    """The columns of `judge_records`, with the checks that every format shares; nothing may have been decoded."""
    fields = record_schema(spec.of_values()).fields
    written: RecordOrigin | None = None if decoded is None else decoded.written
    columns = _columns(decoded, spec)
    parsed = [] if decoded is None else [PARSED, *decoded.needed]
    assert spec.format is not None
    if spec.upserts:
        rows = rows.withColumns(_upsert_facts(spec))
    there = set(rows.columns)
    # A record that was not decoded has no facts of its format.
    missing = {each.stored: F.lit(None).cast(each.type) for each in spec.facts.values()}
    rows = rows.withColumns({name: none for name, none in missing.items() if name not in there})
    checked = _checked(rows, spec).otherwise(error)
    # Values that a container made of a file, or facts of the whole file, are not in the bytes of the record.
    by_itself = decoded is not None and (spec.format.has_bytes or (spec.format.has_text and not decoded.needed))
    again = (_verdict(rows).isNull() if by_itself else F.lit(False)).alias(AGAIN)
    known = [FIELDS, *shared_column, *_known(spec)]
    typed = rows.select(FILE, RECORD, LINE, *known, again, F.col(VALUE), checked.alias(ERROR), *parsed, *columns)
    null_key = F.lit(False)
    for key in spec.primary_key:
        null_key = null_key | F.col(quoted(key)).isNull()
    if spec.is_change_feed:
        # A TRUNCATE is of no one row.
        null_key = null_key & F.coalesce(F.col(OP) != TRUNCATE, F.lit(True))
    lost = _lost_values(fields, written, spec.format.rejection())
    broken = F.coalesce(F.col(ERROR), *lost, F.when(null_key, F.lit("NULL_KEY")))
    final = broken
    marked: list[Column] = []
    if spec.constraints:
        # Bytes that are no record, or have no key, have no value that a constraint could be about.
        nothing = F.array().cast("array<string>")
        typed = typed.withColumn(VIOLATED, F.when(broken.isNull(), violated(spec.constraints)).otherwise(nothing))
        dropped = first_violated(spec.constraints, OnViolation.DROP_ROW)
        quarantine = first_violated(spec.constraints, OnViolation.QUARANTINE)
        rejected = F.concat(F.lit(CONSTRAINT), quarantine, F.lit(")"))
        final = F.coalesce(broken, rejected, F.when(dropped.isNotNull(), F.lit(DROPPED)))
        marked = [F.col(VIOLATED)]
    # Spark pushes a filter on the verdict below the parser, and then parses each record again for every mention of it:
    # five times instead of once. It leaves an expression in place that differs each time. A number is never below zero.
    verdict = F.when(F.monotonically_increasing_id() >= 0, final).alias(ERROR)
    # A good record of a source without a key is never needed raw again.
    raw = F.col(VALUE) if spec.primary_key else F.when(final.isNotNull(), F.col(VALUE))
    names = [F.col(quoted(field.name)) for field in record_schema(spec).fields]
    raw = raw.cast("binary").alias(RAW)
    return typed.select(FILE, RECORD, LINE, *known, AGAIN, raw, verdict, *marked, *names)


def _columns(decoded: Decoded | None, spec: SourceSpec) -> list[Column]:
    """The values of the declared columns, in their order, of keys and of values."""
    of_keys = () if spec.key is None else spec.key.columns
    found = []
    for field in record_schema(spec).fields:
        is_keyed = field.name in of_keys and decoded is not None
        value = F.col(f"{KEYED}.{quoted(field.name)}") if is_keyed else _value(field, decoded)
        found.append(value.alias(field.name))
    return found


def _upsert_facts(spec: SourceSpec) -> dict[str, Column]:
    """The facts of a record that is the newest state of a row, as of a change of one. It has no position."""
    time = spec.connection.record_time
    return {
        OP: F.when(F.col(VALUE).isNull(), DELETE).otherwise(UPDATE),
        CHANGED_AT: F.lit(None).cast("timestamp") if time is None else F.col(time),
        UNSENT: F.array().cast("array<string>"),
    }


def _checked(rows: DataFrame, spec: SourceSpec) -> Column:
    """The code of a record that is rejected before its values are read, to be completed by `otherwise`."""
    assert spec.format is not None
    checked = F.when(_verdict(rows).isNotNull(), _verdict(rows))
    if not (spec.format.has_text or spec.format.has_bytes):
        return checked
    has_none = F.col(VALUE).isNull()
    if spec.without_value is not Tombstones.DELETE:
        code = DROPPED if spec.without_value is Tombstones.SKIP else "NULL_VALUE"
        checked = checked.when(has_none, F.lit(code))
    if spec.format.has_text:
        checked = checked.when(~F.is_valid_utf8(VALUE), F.lit("NOT_UTF8"))
    checked = checked.when(F.octet_length(VALUE) > spec.max_record_bytes, F.lit("TOO_LARGE"))
    if KEY_ERROR in rows.columns:
        checked = checked.when(F.col(KEY_ERROR).isNotNull(), F.col(KEY_ERROR))
    # A record without a value is a delete now.
    return checked.when(has_none, F.lit(None).cast("string"))


def _known(spec: SourceSpec) -> list[str]:
    """The columns of what is known of a record beside its values, but for its place."""
    return [each.stored for each in spec.stored_metadata.values()]


def _value(field: StructField, decoded: Decoded | None) -> Column:
    if decoded is None:
        return F.lit(None).cast(field.dataType)
    return _stored(field, decoded.written)


@shared_column
def _stored(field: StructField, record: RecordOrigin | None) -> Column:
    parsed = F.col(f"{PARSED}.{quoted(field.name)}")
    return parsed if record is None else stored(parsed, field.dataType, record, field.name)


def _verdict(rows: DataFrame) -> Column:
    """The code that was known of a record before it was decoded."""
    return F.col(VERDICT) if VERDICT in rows.columns else F.lit(None).cast("string")


@shared_column
def _lost(field: StructField, record: RecordOrigin, broken: str, within: str) -> Column | None:
    """The code of a record whose value of a column is not stored as it is; None where each value is."""
    parsed = F.col(f"{PARSED}.{quoted(field.name)}")
    if not loses(field.dataType, record):
        return None
    if isinstance(field.dataType, ArrayType | MapType | StructType):
        lost = is_lost(parsed, field.dataType, record, field.name)
    else:
        # The value is there already.
        lost = parsed.isNotNull() & F.col(f"{within}{quoted(field.name)}").isNull()
    changed = F.lit(value_changed(field.name))
    return F.when(lost, F.when(is_changed(parsed, field.dataType, record), changed).otherwise(F.lit(broken)))


def value_changed(name: str) -> str:
    """The code of a record whose value of this column would be stored as another one."""
    return f"{VALUE_CHANGED}({name})"


def record_hash(spec: SourceSpec) -> Column:
    """64 bits over all values of a record, which distinguish a redelivery from another record with the same key."""
    return _hash_of(tuple(record_schema(spec).fields))


def with_removed(rows: DataFrame, spec: SourceSpec) -> DataFrame:
    """The rows with REMOVED in the place of BEFORE: bits of the row that an event changed, NULL where it was not sent.

    They are those that `record_hash` gives for that row, and 0 for one that does not fit and so is not stored.
    """
    bits = _hash_of(tuple(record_schema(spec).fields), f"{BEFORE}.")
    removed = F.when(F.col(BEFORE).isNotNull(), F.when(F.col(f"{BEFORE}.{UNFIT}"), F.lit(0)).otherwise(bits))
    return rows.withColumn(REMOVED, removed.cast("bigint")).drop(BEFORE)


def before_schema(spec: SourceSpec) -> StructType:
    """The schema of BEFORE: the declared columns, and UNFIT alone for a row that does not fit them."""
    return StructType([*record_schema(spec).fields, StructField(UNFIT, BooleanType())])


@shared_column
def _hash_of(fields: tuple[StructField, ...], within: str = "") -> Column:
    # The hash passes over NULLs, so a value would give the same bits in another column: NULLs are hashed as such.
    parts = [part for field in fields for part in _hashable(field, within)]
    return F.xxhash64(*parts)


def _hashable(field: StructField, within: str) -> tuple[Column, Column]:
    column = F.col(f"{within}{quoted(field.name)}")
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
    own = spec.quarantined_metadata
    none = F.lit(None)
    has_place = bool(spec.connection.quarantined_metadata())
    place = [
        (none.cast("string") if has_place else F.col(FILE)).alias("file"),
        (none.cast("bigint") if has_place else F.col(LINE)).alias("line"),
    ]
    assert spec.format is not None
    said = {
        **REJECTIONS,
        **{code: sentence for each in spec.formats for code, sentence in each.rejections.items()},
        **{f"{CONSTRAINT}{each.name})": f"EXPECT ({each.condition}) is not met" for each in spec.constraints},
    }
    for column in spec.record_columns:
        said[value_changed(column.name)] = (
            f"a value of column {column.name} cannot be stored as {column.type} without becoming another one"
        )
    message = F.element_at(F.create_map(*[F.lit(x) for pair in said.items() for x in pair]), F.col(ERROR))
    # A format of another package may give a code that it does not declare.
    message = F.coalesce(message, F.lit("the format gives this code, and has no sentence for it in `rejections`"))
    # The bytes of a file that cannot be read are the reason why.
    unreadable = F.col(ERROR) == "UNREADABLE"
    if spec.connection.has_lines:
        of_whole_file = F.col(LINE).isNull() & (F.col(RECORD) == 0) & (F.length(RAW) > 0)
        unreadable = unreadable | F.coalesce(of_whole_file, F.lit(False))
    message = F.when(unreadable, F.concat(message, F.lit(": "), F.col(RAW).cast("string"))).otherwise(message)
    found = F.col(RAW)
    if not (spec.format.has_text or spec.format.has_bytes):
        # A record that was good by itself has no bytes but its values.
        names = [F.col(quoted(column.name)) for column in spec.record_columns]
        found = F.coalesce(found, F.to_json(F.struct(*names), {"ignoreNullFields": "false"}).cast("binary"))
    raw = F.when(~unreadable, found).otherwise(F.lit(b""))
    unknown_key = F.col(UNKNOWN_KEY) if UNKNOWN_KEY in rows.columns else none.cast("bigint")
    return rows.where(F.col(ERROR).isNotNull() & ~F.col(ERROR).isin(*LEFT_OUT)).select(
        F.lit(seq).cast("bigint").alias(SEQ),
        *place,
        raw.alias("raw"),
        F.col(ERROR).alias("error"),
        message.alias("message"),
        F.lit(now).alias("quarantined_at"),
        none.cast("bigint").alias(RETRIED_IN),
        *([unknown_key.alias(UNKNOWN_KEY)] if spec.is_change_feed else []),
        *[F.col(each.stored).alias(name) for name, each in own.items()],
        *[F.when(F.col(AGAIN), F.col(name)).alias(name) for name in again_columns(spec)],
    )


def unreadable_of(rows: DataFrame, spec: SourceSpec) -> list[str]:
    """One error of judged records that cannot be read because the declaration lacks something; none where all can."""
    codes = () if spec.format is None else spec.format.stopping
    if not codes:
        return []
    found = rows.where(F.substring_index(ERROR, "(", 1).isin(*codes)).select(ERROR).limit(1).collect()
    return [row[0] for row in found]


def require_readable(spec: SourceSpec, errors: Iterable[str | None]) -> None:
    """Raise the error of a record that cannot be read because the declaration lacks something."""
    assert spec.format is not None
    for error in errors:
        code, _, about = (error or "").partition("(")
        if code in spec.format.stopping:
            facts = {"about": about.removesuffix(")")} if about else {}
            raise spec.format.stopping[code](where=str(spec.written_at), **facts)


def accepted(
    rows: DataFrame,
    spec: SourceSpec,
    seq: int,
    now: datetime,
    *,
    watermark: datetime | None = None,
    constant: Callable[[object, str], Column] = literal,
) -> DataFrame:
    """The good records as rows of the log table; `watermark` is the one before their batch, None for none.

    `constant` makes a column of a value and its type.

    A log of which no watermark is declared any more has the column still, and a watermark that stands.
    """
    key = [F.col(HASH)] if spec.unique_key else []
    stamped = spec.watermark is not None or watermark is not None
    before = [constant(watermark, "timestamp").alias(WATERMARK)] if stamped else []
    names = [F.col(quoted(column.name)) for column in spec.record_columns]
    return rows.where(F.col(ERROR).isNull()).select(
        constant(seq, "bigint").alias(SEQ),
        constant(now, "timestamp").alias(INGESTED_AT),
        FILE,
        RECORD,
        *before,
        *_known(spec),
        *key,
        *names,
    )


def event_columns(spec: SourceSpec, now: datetime) -> tuple[Column, Column]:
    """The source partition of a judged or accepted record, and the time of its event, in microseconds since 1970.

    `now` is when the records arrive.
    """
    assert spec.watermark is not None
    stored = spec.stored_column(spec.watermark.column)
    time = F.lit(now) if stored == INGESTED_AT else F.col(quoted(stored))
    partition = spec.connection.partition
    part = F.lit(WHOLE_SOURCE) if partition is None else F.col(partition).cast("string")
    # The zone of sessions is UTC, so that a TIMESTAMP_NTZ is taken as UTC, as everywhere here.
    return part.alias("partition"), F.unix_micros(time.cast("timestamp")).alias("time")


def seen_times(rows: DataFrame, spec: SourceSpec, now: datetime, watermark: datetime | None) -> SeenTimes:
    """The times of accepted rows, which are computed for it; few of them better go to `count_times`."""
    rules = rules_of(spec)
    part, time = F.col("partition"), F.col("time")
    counts = time.between(FIRST_MICROSECOND, last_microsecond(now, rules))
    late = F.lit(False) if watermark is None else time < as_microseconds(watermark)
    found = (
        rows.select(*event_columns(spec, now))
        .groupBy(part)
        .agg(
            F.max(F.when(counts, time)),
            F.count_if(late),
            F.count_if(time > last_microsecond(now, rules)),
            F.min(F.when(late, time)),
        )
        .collect()
    )
    greatest = {row[0]: from_microseconds(row[1]) for row in found if row[1] is not None}
    earliest = min((row[4] for row in found if row[4] is not None), default=None)
    late_by = 0 if earliest is None or watermark is None else as_microseconds(watermark) - earliest
    return SeenTimes(greatest, sum(row[2] for row in found), sum(row[3] for row in found), late_by / 1_000_000)
