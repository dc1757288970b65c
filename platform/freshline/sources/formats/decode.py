"""From the text of records to values, for the formats that come with freshline; loads Spark.

Each record is parsed once, to types that take every written value (`exact.py`), so that it is known whether the
declared types can have it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from freshline.compute.shared_columns import shared_column
from freshline.sources.formats.csv_fields import Dialect
from freshline.sources.formats.exact import RecordOrigin, has_half_character, is_whole, read_as
from freshline.sources.formats.framing import FRAME_BYTES
from freshline.sources.formats.registry import SCHEMA_ID
from freshline.sources.formats.xml_files import JSON
from freshline.sources.records import record_schema
from freshline.values.format import PARSED, VALUE, Decoded
from freshline.values.spec import SourceSpec

BROKEN = "_freshline_broken"
FRAMED = "_freshline_framed"
CORRUPT = "_freshline_corrupt"
FIELDS = "_freshline_fields"
BYTE_ORDER_MARK = "\ufeff"
# Spark's JSON takes these beyond JSON, unless they are off.
STRICT_JSON = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


def decode_json(records: DataFrame, spec: SourceSpec, text: str = VALUE, code: str = "NOT_JSON") -> Decoded:
    """Each record as one JSON object, which is in the column `text`; `code` is that of one that is none."""
    written = RecordOrigin(raw=text)
    fields = [StructField(field.name, read_as(field.dataType, written)) for field in record_schema(spec).fields]
    schema = StructType([*fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **STRICT_JSON}
    parsed = records.withColumn(PARSED, F.from_json(_body(text, spec.max_record_bytes), schema, options))
    return Decoded(parsed, _json_error(text, spec.max_record_bytes, code), written)


def _body(text: str, most: int) -> Column:
    """A text of at most so many bytes without a byte order mark."""
    marked = F.startswith(text, F.lit(BYTE_ORDER_MARK))
    return F.when(marked, F.substring(text, 2, most)).otherwise(F.col(text))


@shared_column
def _json_error(text: str, most: int, code: str) -> Column:
    """The code of a text that is no object of JSON, beside what PARSED says; NULL for one that is."""
    # By itself Spark's parser reads the first value of a line and forgets the rest, so what is behind it is checked.
    broken = F.col(PARSED).isNull() | F.col(f"{PARSED}.{CORRUPT}").isNotNull() | ~is_whole(_body(text, most))
    return F.when(has_half_character(F.col(text)), F.lit("NOT_UTF8")).when(broken, F.lit(code))


def decode_framed_json(records: DataFrame, spec: SourceSpec) -> Decoded:
    """Each record as JSON behind the frame of a schema registry, whose number of the schema is kept."""
    value = F.col(VALUE).cast("binary")
    # The first bit of a number is damage, as in `framing`.
    is_framed = F.hex(F.substring(value, 1, 2)).rlike("^00[0-7]") & (F.octet_length(value) >= FRAME_BYTES)
    number = F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).try_cast("int")
    framed = records.withColumns(
        {
            FRAMED: F.when(is_framed, F.substring(value, FRAME_BYTES + 1, 2**31 - 1).cast("string")),
            SCHEMA_ID: F.when(is_framed, number),
        }
    )
    decoded = decode_json(framed, spec, FRAMED)
    error = (
        F.when(F.col(FRAMED).isNull(), F.lit("NOT_JSON"))
        .when(~F.is_valid_utf8(FRAMED), F.lit("NOT_UTF8"))
        .otherwise(decoded.error)
    )
    return replace(decoded, error=error, needed=(FRAMED,))


def decode_xml(records: DataFrame, spec: SourceSpec) -> Decoded:
    """Each record as an element, whose container has made an object of JSON of it."""
    return replace(decode_json(records, spec, JSON, "NOT_XML"), needed=(JSON,))


def decode_text(records: DataFrame, spec: SourceSpec) -> Decoded:
    """Each record as the value of the one declared column, without a byte order mark."""
    (column,) = spec.record_columns
    text = _body(VALUE, spec.max_record_bytes)
    return Decoded(records.withColumn(PARSED, F.struct(text.alias(column.name))), F.lit(None).cast("string"))


def decode_csv(
    records: DataFrame, spec: SourceSpec, header: Sequence[str], dialect: Dialect, null_value: str | None
) -> Decoded:
    """Each record as one line of fields, which `header` names.

    Spark's own parser takes a quote that is none for a part of the value, and an empty text for NULL.
    """
    # Most records have no quote, and are cut without a pattern for one.
    has_quote = F.contains(VALUE, F.lit('"'))
    marked = F.concat(F.lit(dialect.separator), F.col(VALUE))
    cut = F.regexp_extract_all(marked, F.lit(dialect.behind_separator), F.lit(1))
    fields = F.when(has_quote, cut).otherwise(F.split(VALUE, dialect.between, -1))
    is_whole_record = ~has_quote | marked.rlike(dialect.record)
    broken = ~F.coalesce(is_whole_record & (F.size(fields) == len(header)), F.lit(False))
    parsed = records.withColumns({FIELDS: fields, BROKEN: F.when(broken, F.lit("NOT_CSV"))})
    place = {name.lower(): number for number, name in enumerate(header)}
    values = [
        _field(F.get(FIELDS, F.lit(place[c.name.lower()])), dialect, null_value).alias(c.name)
        for c in spec.record_columns
    ]
    return Decoded(parsed.withColumn(PARSED, F.struct(*values)), F.col(BROKEN), RecordOrigin(csv=True))


def _field(written: Column, dialect: Dialect, null_value: str | None) -> Column:
    """The text of a field; NULL of one that is empty without quotes, and of the text that stands for it."""
    inner = F.substring(written, 2, F.length(written) - 2)
    if dialect.escaped is None:
        text = F.replace(inner, F.lit('""'), F.lit('"'))
    else:
        text = F.regexp_replace(inner, F.lit(dialect.escaped), F.lit("$1"))
    value = F.when(F.startswith(written, F.lit('"')), text).when(written != "", written)
    return value if null_value is None else F.nullif(value, F.lit(null_value))
