"""Rows that are computed once and used more than once."""

from __future__ import annotations

from pyspark.sql import DataFrame

# Up to this many rows are kept in the driver.
FEW_ROWS = 5_000
# So many changed rows often make more than FEW_ROWS of what is computed from them.
LIKELY_MANY = 1_000


def few_rows(rows: DataFrame, most: int = FEW_ROWS) -> tuple[DataFrame, int] | None:
    """The rows as a relation of the driver, and how many; None where there are more than `most`.

    What joins with such a relation, or sends it to tasks, needs no job for it.
    """
    spark = rows.sparkSession
    found = rows.limit(most + 1)._jdf.collectAsList()
    if found.size() > most:
        return None
    return DataFrame(spark._jsparkSession.createDataFrame(found, rows._jdf.schema()), spark), found.size()


def settle(rows: DataFrame, *, expected: int = 0) -> tuple[DataFrame, int]:
    """Compute rows once, and how many there are: few in the driver, more where they were computed.

    To try whether they are few costs nothing where they are, and all of their computation where they are not: more than
    LIKELY_MANY `expected` rows are not tried.
    """
    few = few_rows(rows) if expected <= LIKELY_MANY else None
    if few is not None:
        return few
    kept = rows.localCheckpoint(eager=True)
    return kept, kept.count()
