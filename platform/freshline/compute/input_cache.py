"""Inputs that did not change, kept in the engine between refreshes (`delta-join.cache-enable`).

Rows of one version never change, so kept rows are right for as long as that version is asked for. They are kept as
the values that Spark's driver has, and given to each session as a relation of its own: joining with it needs neither a
scan nor a job.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from pyspark.sql import DataFrame, SparkSession

from freshline.compute.materialize import MOST_BYTES, CollectedRows, collect_few

# So many inputs are kept; the one that was not asked for the longest goes first.
MOST_INPUTS = 32
# Who lets more rows be kept than by default lets so many bytes be kept for each.
_ROW_BYTES = 1 << 10


class CachedRows:
    """Rows by what they are rows of; shared by all refreshes of an engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, CollectedRows] = OrderedDict()

    def find(self, key: Hashable, spark: SparkSession) -> DataFrame | None:
        """The rows that are kept under a key, in a session; None where there are none."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
        return None if kept is None else kept.rows(spark)

    def keep(self, key: Hashable, rows: DataFrame, most: int) -> DataFrame:
        """Compute rows and keep them, where there are not more than `most`; the rows."""
        kept = collect_few(rows, most, max(MOST_BYTES, most * _ROW_BYTES))
        if kept is None:
            return rows
        with self._lock:
            self._kept[key] = kept
            while len(self._kept) > MOST_INPUTS:
                self._kept.popitem(last=False)
        return kept.rows(rows.sparkSession)
