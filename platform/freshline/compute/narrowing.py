"""Reading only the span of time that the rows of affected keys follow from: conditions by which scans skip files.

The rows of the keys are the same without them: see `freshline.query.rules.time_distance`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import DateType, TimestampType

from freshline.compute.covering_ranges import near_values, time_condition
from freshline.compute.keys import Keys
from freshline.compute.materialize import has_rows
from freshline.compute.searches import timestamp_field
from freshline.query.rules.time_distance import TimeDistance
from freshline.values.names import quoted


def narrow(keys: Keys, reaches: Sequence[TimeDistance], inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The inputs of which less is needed for the rows of some keys, by relation in lower case."""
    found: dict[str, DataFrame] = {}
    for columns in _choices(keys, reaches):
        for relation, rows in inputs.items():
            if relation not in found and (condition := _condition(keys, columns, reaches, relation, rows)) is not None:
                found[relation] = rows.where(condition)
    return found


def _choices(keys: Keys, reaches: Sequence[TimeDistance]) -> Iterable[tuple[str, ...]]:
    """Columns of times, of which each key has one that is not NULL, or whose NULL comes from rows without a time."""
    times = [
        column
        for column in dict.fromkeys(reach.key for reach in reaches)
        if (span := keys.spans.get(_named(keys, column))) is not None
        and (span.values or span.null)
        and isinstance(keys.rows.schema[_named(keys, column)].dataType, TimestampType | DateType)
    ]
    nullable = []
    for column in times:
        span = keys.spans[_named(keys, column)]
        assert span is not None
        if not span.null or all(reach.null_keys for reach in reaches if reach.key == column):
            yield (column,)
        else:
            nullable.append(column)
    if len(nullable) > 1:
        # Below a FULL JOIN each row has the time of one side at least.
        without = " AND ".join(f"{quoted(_named(keys, column))} IS NULL" for column in nullable)
        if not has_rows(keys.rows.where(without)):
            yield tuple(nullable)


def _named(keys: Keys, column: str) -> str:
    return next((name for name in keys.columns if name.lower() == column), column)


def _condition(
    keys: Keys, columns: Sequence[str], reaches: Sequence[TimeDistance], relation: str, rows: DataFrame
) -> str | None:
    """The condition on an input; None where more of it is needed, for one of the columns or one of its readings."""
    parts = []
    for column in columns:
        span = keys.spans[_named(keys, column)]
        readings = [reach for reach in reaches if (reach.key, reach.relation) == (column, relation)]
        if not readings or span is None:
            return None
        for reach in readings:
            name = timestamp_field(rows, reach.column)
            if name is None:
                return None
            near = near_values(span.values, reach.least, reach.greatest, whole=span.whole)
            parts.append(time_condition(quoted(name), near, nulls=reach.nulls or (span.null and len(columns) == 1)))
    return " OR ".join(parts)
