"""The answers of a source that is asked by key, as a query sees them at a position.

The table of answers only grows. Each answer has the number of the commit that brought it, so the answers at a position
are those up to its number, and of each key the newest of these: neither compaction nor retention can change them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.compute.small_tables import read_small
from freshline.values.connector import SEQ
from freshline.values.lookup import ASKED_AT, ASKED_FOR, ASKED_OF, FAILED, FOUND
from freshline.values.names import quoted
from freshline.values.spec import SourceSpec


def newest_answers(spark: SparkSession, path: Path, spec: SourceSpec, seq: int | None) -> DataFrame:
    """Of each key the newest answer up to a number (None: of all): the declared columns, and those of every answer."""
    small = read_small(spark, path, None)
    rows = spark.read.format("delta").load(str(path)) if small is None else small
    rows = rows if seq is None else rows.where(F.col(SEQ) <= seq)
    keys = [quoted(name) for name in spec.primary_key]
    there = {name.lower() for name in rows.columns}
    # A column that was declared later is missing in the answers from before.
    others = [column for column in spec.columns if column.name.lower() not in {k.lower() for k in spec.primary_key}]
    values = [
        (F.col(quoted(each.name)) if each.name.lower() in there else F.lit(None).cast(each.type)).alias(each.name)
        for each in others
    ]
    facts = [F.col(name) for name in (ASKED_AT, FOUND, FAILED, ASKED_FOR, ASKED_OF)]
    answer = F.struct(*values, *facts)
    newest = rows.groupBy(*keys).agg(F.max_by(answer, F.col(SEQ)).alias("_freshline_answer"))
    return newest.select(*keys, "_freshline_answer.*")


def found_rows(answers: DataFrame, spec: SourceSpec) -> DataFrame:
    """The rows that lookup joins meet: the declared columns of the keys that have a row."""
    return answers.where(F.col(FOUND)).select(*columns_of(spec))


def columns_of(spec: SourceSpec) -> Sequence[str]:
    """The declared columns, in backquotes."""
    return [quoted(column.name) for column in spec.columns]
