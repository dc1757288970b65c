"""Events of a change feed that arrive again: recognized by the row's key, the position in the database and the kind.

An event without a position cannot be recognized, and is kept: events that are delivered again come in their order, so
that the last state of a row is the same.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from freshline.declare.change import OP, POSITION
from freshline.declare.spec import SourceSpec
from freshline.refresh.inputs import FILE, RECORD
from freshline.refresh.literal import quoted
from freshline.sources.records import ERROR, REDELIVERED


def mark_events(rows: DataFrame, stored: DataFrame, spec: SourceSpec) -> DataFrame:
    """Judged records, of which those that came before get the ERROR `REDELIVERED`.

    `stored` are the rows of the log table among which they are looked for.
    """
    identity = [*[F.col(quoted(key)) for key in spec.primary_key], F.col(POSITION), F.col(OP)]
    known_by = F.col(ERROR).isNull() & F.col(POSITION).isNotNull()
    events = Window.partitionBy(*identity, known_by).orderBy(FILE, RECORD)
    marked = rows.withColumn("_freshline_place", F.row_number().over(events))
    names = [*spec.primary_key, POSITION, OP]
    wanted = F.broadcast(rows.where(known_by).select(*identity).distinct())
    hits = stored.join(wanted, names, "left_semi").select(*identity, F.lit(True).alias("_freshline_known"))
    joined = marked.join(F.broadcast(hits.distinct()), names, "left")
    again: Column = known_by & ((F.col("_freshline_place") > 1) | F.col("_freshline_known").isNotNull())
    error = F.when(again, F.lit(REDELIVERED)).otherwise(F.col(ERROR))
    return joined.withColumn(ERROR, error).select(*[F.col(quoted(name)) for name in rows.columns])
