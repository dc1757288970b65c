"""Rows that are computed once and used more than once."""

from __future__ import annotations

from pyspark.sql import DataFrame

# Up to this many rows are kept in the driver.
FEW_ROWS = 5_000


def few_rows(rows: DataFrame, most: int = FEW_ROWS) -> tuple[DataFrame, int] | None:
    """The rows as a relation of the driver, and how many; None where there are more than `most`.

    What joins with such a relation, or sends it to tasks, needs no job for it.
    """
    spark = rows.sparkSession
    found = rows.limit(most + 1)._jdf.collectAsList()
    if found.size() > most:
        return None
    return DataFrame(spark._jsparkSession.createDataFrame(found, rows._jdf.schema()), spark), found.size()


def settle(rows: DataFrame) -> tuple[DataFrame, int]:
    """Compute rows once, and how many there are: few in the driver, more where they were computed."""
    few = few_rows(rows)
    if few is not None:
        return few
    kept = rows.localCheckpoint(eager=True)
    return kept, kept.count()
