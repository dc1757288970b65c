"""Records that have values with types: the declared types as Arrow has them, and nothing left to decode."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from freshline.sources.formats.fit import Wanted
from freshline.sources.records import record_schema
from freshline.values.format import Decoded
from freshline.values.spec import SourceSpec


def wanted(spec: SourceSpec) -> Wanted:
    """The types and the size that the records of a source must have. Needs a session of Spark."""
    return Wanted(to_arrow_schema(record_schema(spec), timezone="UTC"), spec.max_record_bytes)


def decode_typed(records: DataFrame) -> Decoded:
    """The records as they are: their container has read the values, and given a code to those that it could not."""
    return Decoded(records, F.lit(None).cast("string"))
