"""A value is stored as it arrived, or not at all.

Spark's readers round `1.005` to two digits, make infinity of `1e400`, take `12:30` for a time of today and forget the
text behind a date. So a column whose type does not fit every value that a record may have is parsed as text (or as a
wider type), and becomes its type here: `read_as` gives the parsed type, `stored` makes the value, NULL where it would
be another one, and `is_lost` is true there.

A DOUBLE or a FLOAT is meant to be the nearest to a decimal number, so only a number without one is lost. A number
in a STRING column is its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

# A calendar date with its year, month and day; months, days and hours may have one digit. Years are those of Python.
_DAY = "(?!0000)[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_CLOCK = r"[0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]{1,6}0*)?)?"
_ZONE = "(?: ?(?:Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?))?"
DATE_TEXT = rf"^ *{_DAY} *\z"
TIME_TEXT = rf"^ *{_DAY}(?:[T ]{_CLOCK}{_ZONE})? *\z"
LOCAL_TIME_TEXT = rf"^ *{_DAY}(?:[T ]{_CLOCK})? *\z"
# A number with an exponent, of a size that does no harm: `1e400000000` keeps a core busy for minutes.
_EXPONENT = r"^(-?)([0-9]{1,80})(?:\.([0-9]{1,80}))?[eE]([+-]?[0-9]{1,2})\z"
NUMBER_TEXT = r"^-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\z"
_CSV_NUMBER = r"^ *[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? *\z"
# A whole number as JSON has it, and nothing beside it: a code such as 007 is another text than its number.
_CSV_WHOLE = r"^-?(?:0|[1-9][0-9]*)\z"
_CSV_FLAG = r"^(?i:true|false)\z"
# In CSV days have all of their digits, as in ISO 8601.
_CSV_DATE, _CSV_TIME, _CSV_LOCAL = (text.replace("{1,2}", "{2}") for text in (DATE_TEXT, TIME_TEXT, LOCAL_TIME_TEXT))
_CSV_NO_NUMBER = r"^(?:NaN|[+-]?Inf|[+-]?Infinity)\z"
# Spark's parser of a text of JSON hands on a number with a point or an exponent, where a STRING is asked for, by way of
# a DOUBLE. That is the same number up to 15 digits and within a DOUBLE's range. Others are searched where a value of
# JSON begins, so that few texts have any.
_LONG_NUMBER = (
    r"[:,\[][ \t\r\n]*+(-?(?=[0-9]++[.eE])(?:[0-9.]{17}|[0-9.]{16}(?=[eE])|[0-9.]++[eE][+-]?[0-9]{3})[0-9.eE+-]*+)"
)
# So it writes a number beyond the range.
_INFINITIES = ('"Infinity"', '"-Infinity"')
# All that a backslash of JSON may begin, but for half of a character that has two escapes.
_ESCAPE = r"\\(?:[^u]|u(?![dD][89a-fA-F])|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
_ESCAPED_QUOTE = r'\\["\\]'
_TEXT = '"[^"]*+"'
_BLANKS = " \t\r\n"


@dataclass(frozen=True)
class RecordOrigin:
    """The origin of values.

    `raw` is the column with the text of a JSON record, where Spark's parser hands on numbers by way of a DOUBLE; None
    where it hands on their own text. `csv` says that every value is a text of its own.
    """

    raw: str | None = None
    csv: bool = False


def read_as(kind: DataType, record: RecordOrigin) -> DataType:
    """The type to parse a value with, so that nothing is lost yet."""
    match kind:
        case StructType():
            return StructType([StructField(field.name, read_as(field.dataType, record)) for field in kind.fields])
        case ArrayType():
            return ArrayType(read_as(kind.elementType, record))
        case MapType():
            return MapType(kind.keyType, read_as(kind.valueType, record))
        case _ if record.csv:
            return StringType()
        case DecimalType() | DateType() | TimestampType() | TimestampNTZType() | BinaryType():
            return StringType()
        # Spark's parser of JSON takes 200 for -56.
        case ByteType():
            return ShortType()
        case _:
            return kind


def stored(value: Column, kind: DataType, record: RecordOrigin, name: str | None = None) -> Column:
    """The value of a column that was parsed with `read_as`, NULL where it would be another one.

    `name` is that of the member in the record, where it has one.
    """
    match kind:
        case StructType():
            fields = [
                stored(value.getField(field.name), field.dataType, record, field.name).alias(field.name)
                for field in kind.fields
            ]
            return F.when(value.isNotNull(), F.struct(*fields)) if _converts(kind, record) else value
        case ArrayType():
            element = kind.elementType
            return F.transform(value, lambda x: stored(x, element, record)) if _converts(kind, record) else value
        case MapType():
            inner = kind.valueType
            if not _converts(kind, record):
                return value
            return F.transform_values(value, lambda _, x: stored(x, inner, record))
        case _:
            return _stored_single(value, kind, record, name)


def is_lost(value: Column, kind: DataType, record: RecordOrigin, name: str | None = None) -> Column:
    """Whether a value of a type that `loses`, which was parsed with `read_as`, would be another one."""
    match kind:
        case StructType():
            fields = [field for field in kind.fields if loses(field.dataType, record)]
            lost = [is_lost(value.getField(field.name), field.dataType, record, field.name) for field in fields]
            return F.array_contains(F.array(*lost), True)
        case ArrayType():
            return F.exists(value, lambda x: F.coalesce(is_lost(x, kind.elementType, record), F.lit(False)))
        case MapType():
            # A name that stands twice would be two entries of one key.
            names = F.map_keys(value)
            lost_names = F.size(F.array_distinct(names)) != F.size(names)
            if not loses(kind.valueType, record):
                return lost_names
            values = F.map_values(value)
            return lost_names | F.exists(values, lambda x: F.coalesce(is_lost(x, kind.valueType, record), F.lit(False)))
        case _:
            return value.isNotNull() & stored(value, kind, record, name).isNull()


def is_changed(value: Column, kind: DataType, record: RecordOrigin) -> Column:
    """Whether a lost value is one of its type to Spark, which would store another; else it is none of the type."""
    match kind:
        case DecimalType():
            return value.rlike(NUMBER_TEXT) | value.isin(*_INFINITIES)
        case DateType() | TimestampType() | TimestampNTZType():
            return value.try_cast(kind).isNotNull()
        case ByteType():
            return F.lit(False)
        case DoubleType() | FloatType() if record.csv:
            return value.rlike(_CSV_NUMBER)
        case _ if record.csv:
            return F.lit(False)
        case BinaryType():
            return F.try_to_binary(value, F.lit("base64")).isNotNull()
        case _:
            return F.lit(True)


def is_in_doubt(value: Column, kind: DataType) -> Column | None:
    """Whether Spark's parser of a text would hand on another text than its reader of files; None where it does not."""
    if not isinstance(kind, StringType):
        return None
    # Digits, signs and points stand before a colon; few texts begin with one, and the rest is quick.
    number = (value < ":") & value.rlike(NUMBER_TEXT) & (value.rlike("[.eE]") | (value == "-0"))
    another = number & (F.coalesce(value.try_cast("double").cast("string") != value, F.lit(True)))
    return another | F.startswith(value, F.lit("[")) | F.startswith(value, F.lit("{"))


def is_whole(body: Column) -> Column:
    """Whether a text whose first value Spark could parse as an object has nothing but blanks behind it."""
    is_trimmed = _is_in_braces(body)
    # Trimming is dear, and hardly any record has something to trim.
    text = F.when(is_trimmed, body).otherwise(F.btrim(body, F.lit(_BLANKS)))
    ends = is_trimmed | _is_in_braces(text)
    # Splitting is the cheapest of Spark's ways to count a character.
    flat = F.size(F.split(text, "}", -1)) == 2
    # Braces outside of texts. Escaped characters go first, so that each quote that is left begins or ends a text. The
    # first value is whole, so braces pair up as far as it goes.
    bare = F.regexp_replace(F.regexp_replace(text, F.lit(_ESCAPED_QUOTE), F.lit("")), F.lit(_TEXT), F.lit(""))
    braces = F.regexp_replace(bare, F.lit("[^{}]++"), F.lit(""))
    within = F.split(F.substr(braces, F.lit(2), F.length(braces) - 2), "")
    depth = F.aggregate(
        within,
        F.lit(0),
        lambda depth, brace: (
            F.when(depth < 0, depth).when(brace == "{", depth + 1).when(brace == "}", depth - 1).otherwise(depth)
        ),
    )
    return ends & F.when(flat, F.lit(True)).otherwise(depth == 0)


def _is_in_braces(text: Column) -> Column:
    return F.startswith(text, F.lit("{")) & F.endswith(text, F.lit("}"))


def has_half_character(text: Column) -> Column:
    """Whether JSON text has an escape of half a character, such as `\\ud800` alone, which no UTF-8 can have."""
    left = F.regexp_replace(text, F.lit(_ESCAPE), F.lit(""))
    return F.when(F.contains(text, F.lit("\\")), F.contains(left, F.lit("\\"))).otherwise(F.lit(False))


def _stored_single(value: Column, kind: DataType, record: RecordOrigin, name: str | None) -> Column:
    """As `stored`, for a type without values within."""
    match kind:
        case DateType() | TimestampType() | TimestampNTZType():
            return _time(value, kind, record)
        case _ if record.csv:
            return _stored_of_csv(value, kind)
        case StringType() if record.raw is not None:
            return _written(value, F.col(record.raw), name)
        case DecimalType():
            text = value if record.raw is None else _written(value, F.col(record.raw), name)
            return _decimal(text, kind)
        case BinaryType():
            found = F.try_to_binary(value, F.lit("base64"))
            return F.when(F.base64(found) == value, found)
        case DoubleType() | FloatType():
            return F.when(F.abs(value) < float("inf"), value)
        case ByteType():
            return value.try_cast(kind)
        case _:
            return value


def _stored_of_csv(value: Column, kind: DataType) -> Column:
    """`stored` for a text of CSV that is no time."""
    match kind:
        case DecimalType():
            return _decimal(value, kind)
        case DoubleType() | FloatType():
            number = F.when(value.rlike(_CSV_NUMBER), F.trim(value).try_cast(kind))
            return F.when(value.rlike(_CSV_NO_NUMBER), value.try_cast(kind)).when(F.abs(number) < float("inf"), number)
        case ByteType() | ShortType() | IntegerType() | LongType():
            return F.when(value.rlike(_CSV_WHOLE), value.try_cast(kind))
        case BooleanType():
            return F.when(value.rlike(_CSV_FLAG), value.try_cast(kind))
        case BinaryType():
            return value.cast(kind)
        case _:
            return value


def _time(value: Column, kind: DataType, record: RecordOrigin) -> Column:
    """`stored` for a text of a day or a time."""
    if isinstance(kind, DateType):
        return F.when(value.rlike(_CSV_DATE if record.csv else DATE_TEXT), value.try_cast(kind))
    if isinstance(kind, TimestampNTZType):
        return F.when(value.rlike(_CSV_LOCAL if record.csv else LOCAL_TIME_TEXT), value.try_cast(kind))
    form = _CSV_TIME if record.csv else TIME_TEXT
    # A time zone may carry a time into a year that Python does not have, from the first and the last it has.
    time = F.when(value.rlike(form), value.try_cast(kind))
    first, last = (F.lit(text).cast(kind) for text in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"))
    # The text of any other year is checked and read once.
    usual = (value >= "0002") & (value < "9999") & value.rlike(form)
    return F.when(usual, value.try_cast(kind)).when(time.between(first, last), time)


def _converts(kind: DataType, record: RecordOrigin) -> bool:
    """Whether `stored` makes another value, or another type, of what was parsed."""
    match kind:
        case StructType():
            return any(_converts(field.dataType, record) for field in kind.fields)
        case ArrayType():
            return _converts(kind.elementType, record)
        case MapType():
            return _converts(kind.valueType, record)
        case StringType():
            return record.raw is not None
        case _:
            return loses(kind, record)


def loses(kind: DataType, record: RecordOrigin) -> bool:
    """Whether a value that was parsed with `read_as` may become another one in its type."""
    match kind:
        case StructType():
            return any(loses(field.dataType, record) for field in kind.fields)
        case ArrayType():
            return loses(kind.elementType, record)
        case MapType():
            return True
        case StringType():
            return record.raw is not None
        case DoubleType() | FloatType():
            return True
        case _:
            return read_as(kind, record) != kind


def _written(text: Column, raw: Column, name: str | None) -> Column:
    """The text of a STRING as the record has it, where a number was shortened; NULL where that is not known."""
    nested = F.startswith(text, F.lit("[")) | F.startswith(text, F.lit("{"))
    numeric = (text < ":") & text.rlike("[.eEIN]")
    # The record's long numbers as the parser writes them: no other text was shortened.
    long = F.transform(
        F.regexp_extract_all(raw, F.lit(_LONG_NUMBER), F.lit(1)), lambda found: found.try_cast("double").cast("string")
    )
    shortened = (
        (nested | numeric)
        & raw.rlike(_LONG_NUMBER)
        & F.when(nested, F.exists(long, lambda one: F.contains(text, one))).otherwise(
            F.array_contains(long, F.btrim(text, F.lit('"')))
        )
    )
    # A text stands in the record in quotes, but for what is escaped in it.
    found = F.when(F.contains(raw, F.concat(F.lit('"'), text, F.lit('"'))), text)
    if name is not None:
        place = f'"{_escaped_or_not(name)}"[ \\t\\r\\n]*:[ \\t\\r\\n]*'
        number = r"-?[0-9][0-9.eE+-]*+"
        members = F.regexp_extract_all(raw, F.lit(f'{place}({number}|"{number}"|[\\["{{])'), F.lit(1))
        only = F.when(F.size(members) == 1, F.get(members, F.lit(0)))
        found = (
            F.when(only == '"', text)
            .when(only.rlike('^"?-?[0-9]'), F.btrim(only, F.lit('"')))
            .when(only.isNull(), found)
        )
    return F.when(shortened, found).otherwise(text)


def _escaped_or_not(name: str) -> str:
    """A pattern for the name of a member, whose letters beyond ASCII may be written as escapes."""
    parts = []
    for letter in name:
        if letter.isascii():
            parts.append(re.escape(letter))
            continue
        units = letter.encode("utf-16-be")
        codes = "".join(f"\\\\u(?i:{units[at : at + 2].hex()})" for at in range(0, len(units), 2))
        parts.append(f"(?:{letter}|{codes})")
    return "".join(parts)


def _decimal(text: Column, kind: DecimalType) -> Column:
    whole, scale = kind.precision - kind.scale, kind.scale
    # Zeros before the number and behind it are no digits of it.
    plain = rf"^-?(?=[0-9])0*[0-9]{{0,{whole}}}(?:\.(?=[0-9])[0-9]{{0,{scale}}}0*)?\z"
    before, after = F.regexp_extract(text, _EXPONENT, 2), F.regexp_extract(text, _EXPONENT, 3)
    digits = F.rtrim(F.concat(before, after), F.lit("0"))
    exponent = F.regexp_extract(text, _EXPONENT, 4).try_cast("int")
    # Digits behind the point once the exponent is gone.
    behind = F.length(digits) - F.length(before) - exponent
    exact = text.rlike(_EXPONENT) & ((F.length(digits) == 0) | (behind <= scale))
    return F.when(text.rlike(plain), text.try_cast(kind)).when(exact, text.try_cast(kind))
