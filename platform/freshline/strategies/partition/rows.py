"""The common parts of steps that replace partitions: which rows of an input they need, and which keys may come."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructType

from freshline.commit.delta_log import exists
from freshline.compute.read_only import read_expression
from freshline.query.rules.partition import Origin
from freshline.refresh.attempt import Attempt
from freshline.refresh.computed_rows import check_key, check_key_against, is_unique_by_query
from freshline.values.spec import TableSpec


def stored_expressions(spec: TableSpec, schema: StructType, origin: Origin) -> list[str]:
    """The partition's values from the input's columns, as the table keeps them (see `as_stored`)."""
    kinds = [schema[column].dataType for column in spec.partitioned_by]
    for text in origin.expressions:
        # They are put into conditions as they were cut out of the query.
        read_expression(text)
    return [
        f"nullif({text}, '')" if isinstance(kind, StringType) else f"CAST(({text}) AS {kind.simpleString()})"
        for text, kind in zip(origin.expressions, kinds, strict=True)
    ]


def is_apart(spec: TableSpec) -> bool:
    """Whether rows of two partitions never have one primary key."""
    return {column.lower() for column in spec.partitioned_by} <= {key.lower() for key in spec.primary_key}


def with_good_keys(attempt: Attempt, rows: DataFrame, predicate: str) -> DataFrame:
    """The new rows of the partitions that `predicate` names.

    Raises DuplicateKeyError where two share a primary key, or one has a key that stands in another partition already.
    """
    spec = attempt.spec
    if not spec.primary_key or is_unique_by_query(spec):
        return rows
    rows = attempt.hold(rows)
    check_key(rows, spec)
    if not is_apart(spec) and exists(attempt.path):
        check_key_against(rows, attempt.stored().where(f"NOT coalesce(({predicate}), false)"), spec)
    return rows
