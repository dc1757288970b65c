"""Searches for affected keys: those that can find one, over the times in which a row can match a changed one.

Conditions with literals make scans skip files, and give no other keys: see `freshline.query.rules.literal_bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from freshline.compute.covering_ranges import time_condition
from freshline.compute.read_only import read_only
from freshline.query.rules.literal_bounds import OPEN, find_bounds, with_conditions
from freshline.query.rules.repeats import without_repeats
from freshline.query.tree import RelationState, relations_read
from freshline.values.names import quoted

# Up to this many changed rows are asked for their times one by one, of more it is the least and the greatest.
FEW_TIMES = 1_000


def is_in_utc(spark: SparkSession) -> bool:
    """Whether days and literals of a session are those of UTC; a session of somebody else may have another zone."""
    return spark.conf.get("spark.sql.session.timeZone") == "UTC"


class Searches:
    """Searches for affected keys, each over only the rows that can match a changed one.

    The views that they read must be there. Bounds of one refresh are computed once. Relations that are `unchanged` are
    known to have no changed row, those that have `grown` to have lost none.
    """

    def __init__(self, spark: SparkSession, unchanged: Iterable[str], grown: Iterable[str] = ()) -> None:
        self._spark = spark
        self._unchanged = set(unchanged)
        self._grown = frozenset(grown)
        self._asked: dict[str, list[tuple[float, float]]] = {}
        self._in_utc = is_in_utc(spark)

    def note_unchanged(self, relation: str) -> None:
        """Take note that the rows of a relation that might have changed are the same as before."""
        self._unchanged.add(relation)

    def that_find(self, queries: Iterable[str]) -> list[str]:
        """The searches that may find a key.

        Left out are those for the changes of relations that have not changed, and those that find nothing that another
        one does not. A search asks for the effect of the changes of one relation. A search for the effect of time, or
        of the value of a whole subquery, reads no changed rows and always stays.
        """
        found = []
        for query in queries:
            of = relations_read(query, RelationState.CHANGED) if self._unchanged else frozenset()
            if not of or not of <= self._unchanged:
                found.append(query)
        return without_repeats(tuple(found), self._grown) if self._grown else found

    def read(self, query: str) -> DataFrame:
        """The rows of a search, or more than these by rows that match no changed one."""
        conditions: dict[int, str] = {}
        for bounds in find_bounds(query) if self._in_utc else ():
            if bounds.table in conditions:
                continue
            field = timestamp_field(self._spark.table(bounds.view), bounds.column)
            if field is not None:
                conditions[bounds.table] = time_condition(quoted(field), self._stretches(bounds.asked))
        return read_only(self._spark, with_conditions(query, conditions) if conditions else query)

    def _stretches(self, asked: str) -> list[tuple[float, float]]:
        if asked not in self._asked:
            rows = read_only(self._spark, asked)
            found = rows.limit(FEW_TIMES + 1).collect()
            if len(found) > FEW_TIMES:
                found = rows.agg(F.min("least"), F.max("greatest")).collect()
            self._asked[asked] = [
                (-float("inf") if least <= -OPEN else least, float("inf") if greatest >= OPEN else greatest)
                for least, greatest in found
                if least <= greatest
            ]
        return self._asked[asked]


def timestamp_field(rows: DataFrame, column: str) -> str | None:
    """The name of a column as the rows have it, None where it has no timestamps."""
    for field in rows.schema.fields:
        if field.name.lower() == column and isinstance(field.dataType, TimestampType):
            return field.name
    return None
