"""The changes of a new reading of a table, net of the rows that a log of its changes has already.

The log has one row for each event, so the stored row of a key is that of its last event, unless that is a delete.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from freshline.compute.inputs import FILE, RECORD, SEQ
from freshline.sources.records import record_schema
from freshline.values.change import DELETE, OP, TRUNCATE
from freshline.values.format import PARSED
from freshline.values.names import quoted
from freshline.values.spec import SourceSpec

# The batch of the stored row that has the key of a row, NULL for a key that has none.
KEPT = "_freshline_kept"


def stored_rows(log: DataFrame, spec: SourceSpec) -> DataFrame:
    """The rows of the table that a log knows, with KEPT: of each key the one that no later event removed."""
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    place = F.struct(SEQ, FILE, RECORD)
    truncated = log.where(F.col(OP) == TRUNCATE).agg(F.max(place).alias("_freshline_truncated"))
    events = log.where(F.col(OP) != TRUNCATE).crossJoin(F.broadcast(truncated))
    events = events.where(F.col("_freshline_truncated").isNull() | (place > F.col("_freshline_truncated")))
    whole = F.struct(*[F.col(quoted(column.name)) for column in spec.record_columns])
    newest = events.groupBy(*keys).agg(
        F.max_by(F.struct(F.col(OP), F.col(SEQ), whole.alias("row")), place).alias("newest")
    )
    return newest.where(F.col(f"newest.{OP}") != DELETE).select("newest.row.*", F.col(f"newest.{SEQ}").alias(KEPT))


def changed_rows(found: DataFrame, stored: DataFrame, spec: SourceSpec, broken: str) -> DataFrame:
    """The rows of a reading that are other than the stored ones, with KEPT.

    A row that could not be read, whose column `broken` is not NULL, is one of them. `found` has PARSED.
    """
    names = [column.name for column in spec.record_columns]
    kinds = {column.name: column.type for column in spec.record_columns}
    f, s = found.alias("f"), stored.alias("s")
    joined = f.join(s, _same_key(spec), "left")
    pairs = [
        (_comparable(F.col(f"f.{PARSED}.{quoted(n)}"), kinds[n]), _comparable(F.col(f"s.{quoted(n)}"), kinds[n]))
        for n in names
    ]
    is_same = reduce(and_, [read.eqNullSafe(kept) for read, kept in pairs])
    is_kept = F.col(f"s.{KEPT}").isNotNull()
    changed = joined.where(F.col(f"f.{broken}").isNotNull() | ~is_kept | ~is_same)
    return changed.select(*[F.col(f"f.{name}") for name in found.columns], F.col(f"s.{KEPT}").alias(KEPT))


def gone_rows(
    found: DataFrame, stored: DataFrame, spec: SourceSpec, first: int, made: Mapping[str, Column]
) -> DataFrame:
    """A delete for each stored row whose key a whole reading has not.

    The deletes are numbered from `first` on. `made` are the values of their other columns; those that are not given
    are NULL. A row that could not be read is known by its key as well, and stays as it was until it can be.
    """
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    gone = stored.alias("s").join(found.alias("f"), _same_key(spec), "left_anti").select(*keys)
    number = F.row_number().over(Window.orderBy(*keys)) + F.lit(first - 1)
    fields = record_schema(spec).fields
    row = F.struct(
        *[
            (F.col(quoted(field.name)) if field.name in spec.primary_key else F.lit(None).cast(field.dataType)).alias(
                field.name
            )
            for field in fields
        ]
    )
    given = {RECORD: number.cast("bigint"), PARSED: row, OP: F.lit(DELETE), **made}
    return gone.select(
        *[given.get(field.name, F.lit(None).cast(field.dataType)).alias(field.name) for field in found.schema.fields]
    )


def _same_key(spec: SourceSpec) -> Column:
    pairs = [(F.col(f"f.{PARSED}.{quoted(key)}"), F.col(f"s.{quoted(key)}")) for key in spec.primary_key]
    return reduce(and_, [read.eqNullSafe(kept) for read, kept in pairs])


def _comparable(value: Column, kind: str) -> Column:
    """A value that distinguishes all that differ: to Spark 0.0 and -0.0 are the same number."""
    return value.cast("string") if "DOUBLE" in kind or "FLOAT" in kind else value
