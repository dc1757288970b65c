"""Judged records that are in the engine's own process become rows of the log table: as `records`, without Spark."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType, TimestampType

from freshline.compute.arrow_rows import ArrowRows
from freshline.compute.inputs import INGESTED_AT, SEQ, WATERMARK
from freshline.sources.records import ERROR, log_schema
from freshline.values.spec import SourceSpec

_TIMES = pa.timestamp("us", "UTC")


def accepted_here(
    rows: ArrowRows, spec: SourceSpec, seq: int, now: datetime, *, watermark: datetime | None = None
) -> ArrowRows:
    """As `records.accepted`: the good records as rows of the log table, in its order of columns."""
    good = rows.table.filter(pc.is_null(rows.table[ERROR]))
    constants: dict[str, tuple[Any, pa.DataType]] = {SEQ: (seq, pa.int64()), INGESTED_AT: (now, _TIMES)}
    schema = log_schema(spec)
    if spec.watermark is not None or watermark is not None:
        constants[WATERMARK] = watermark, _TIMES
        if WATERMARK not in schema.names:
            # None is declared any more; the log has the column still.
            schema = StructType([*schema.fields, StructField(WATERMARK, TimestampType())])
    columns = [
        pa.repeat(pa.scalar(*constants[name]), good.num_rows) if name in constants else good[name]
        for name in schema.names
    ]
    return ArrowRows(pa.table(columns, names=schema.names), schema, rows.spark)
