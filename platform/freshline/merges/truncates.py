"""TRUNCATE in a change feed: it takes every key away whose newest event is an earlier one.

Where changes are in the order of their positions, these decide alone. Else an event of its own partition that arrived
before is earlier. A TRUNCATE has no key, so it may be in another partition than the events of a key, where nobody
promises an order: there the positions in the database decide. Where these have no order, arrival decides.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.compute.inputs import read_whole
from freshline.merges.last_row import EVENT
from freshline.merges.one_row import ORDER
from freshline.values.change import IN_ORDER, OP, POSITION, TRUNCATE
from freshline.values.connector import FILE, RECORD, SEQ
from freshline.values.merge import DELETE

_TRUNCATES = "_freshline_truncates"


def without_truncated(rows: DataFrame, *, by_position: bool) -> DataFrame:
    """The events of rows, with the delete mark where a TRUNCATE among them is later."""
    is_truncate = F.coalesce(F.col(f"{EVENT}.op") == TRUNCATE, F.lit(False))
    truncates = rows.where(is_truncate).select(F.col(ORDER).alias("o"), F.col(f"{EVENT}.at"), F.col(f"{EVENT}.part"))
    return _marked(rows.where(~is_truncate), truncates, by_position)


def removed_before(spark: SparkSession, winners: DataFrame, before: Any, *, by_position: bool) -> DataFrame:
    """New winners, with the delete mark where a TRUNCATE that was read `before` is later: in another partition."""
    events = read_whole(spark, before, arrival=True).where(F.col(OP) == TRUNCATE)
    order = (*((POSITION,) if by_position else ()), SEQ, FILE, RECORD)
    truncates = events.select(F.struct(*order).alias("o"), F.col(POSITION).alias("at"), F.col(FILE).alias("part"))
    return _marked(winners, truncates, by_position).drop(EVENT)


def _marked(rows: DataFrame, truncates: DataFrame, by_position: bool) -> DataFrame:
    listed = truncates.agg(F.collect_list(F.struct("o", "at", "part")).alias(_TRUNCATES))
    joined = rows.crossJoin(F.broadcast(listed))
    gone = F.exists(_TRUNCATES, _is_after if by_position else _is_later)
    return joined.withColumn(DELETE, F.col(DELETE) | gone).select(*rows.columns)


def _is_after(truncate: Column) -> Column:
    """Whether a TRUNCATE is later than the event of the row by the one order that both have."""
    return F.col(ORDER) < truncate.getField("o")


def _is_later(truncate: Column) -> Column:
    """Whether a TRUNCATE is later than the event of the row, where each partition has an order of its own."""
    at, own = truncate.getField("at"), F.col(f"{EVENT}.at")
    database = F.substring_index(own, ":", 1)
    in_order = database.isin(*IN_ORDER) & (F.substring_index(at, ":", 1) == database)
    by_position = (truncate.getField("part") != F.col(f"{EVENT}.part")) & F.coalesce(in_order, F.lit(False))
    return F.when(by_position, own < at).otherwise(_is_after(truncate))
