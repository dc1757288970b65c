"""Rows that came and went, less those that did both."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.query.rules.algebra import SIGN
from freshline.refresh.literal import quoted

_NET = "_freshline_net"
# Values of these types that Spark takes for equal may differ: zeros of either sign, and texts of a collation that
# differ in letter case. What is made of them is not the same.
LOOSELY_EQUAL = ("double", "float", "collate")
# Types whose values cannot be compared, alone or inside of others.
NOT_COMPARED = ("map<", "variant", "geometry", "geography")


def net(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The columns of the rows whose SIGN does not add up to nothing, each once.

    All rows where values cannot be compared, as maps: then more is computed again than need be, never less.
    """
    kinds = {field.name.lower(): field.dataType.simpleString() for field in rows.schema.fields}
    wanted = [F.col(quoted(column)) for column in columns]
    if any(part in kinds[column.lower()] for column in columns for part in NOT_COMPARED):
        return rows.select(*wanted)
    texts = [
        F.col(quoted(column)).cast("string").alias(f"_freshline_text{number}")
        for number, column in enumerate(columns)
        if any(part in kinds[column.lower()] for part in LOOSELY_EQUAL)
    ]
    grouped = rows.groupBy(*wanted, *texts).agg(F.sum(SIGN).alias(_NET))
    return grouped.where(F.col(_NET) != 0).select(*wanted)
