"""Sessions of one JVM, and the clock of the wall that Delta goes by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.functions import arrow_udf

from freshline.refresh.runtime import Sessions


@pytest.mark.parametrize(("second", "is_kept"), [(100.0, True), (107.0, True), (99.9, False)])
def test_a_clock_that_was_set_back_leaves_no_snapshot_of_before(spark, tmp_path, second, is_kept):
    times = iter([100.0, 100.0, 100.0, second, second])
    sessions = Sessions(spark, wall_clock=lambda: next(times))
    spark.range(3).write.format("delta").save(str(tmp_path / "t"))
    jvm: Any = spark._jvm

    def kept() -> Any:
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(tmp_path / "t"))

    with sessions.take():
        before = kept()
    with sessions.take():
        assert jvm.java.util.Objects.equals(before, kept()) is is_kept


def test_sessions_share_the_processes_of_python(spark):
    def parents(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        import os

        for batch in batches:
            yield pa.array([os.getppid()] * len(batch), pa.int64())

    sessions = Sessions(spark)
    with sessions.take() as first, sessions.take() as second:
        assert first is not second
        parent = arrow_udf(parents, "long")  # type: ignore[call-overload]  # by its hints
        found = [session.range(1).select(parent("id")).collect() for session in (first, second)]

    assert found[0] == found[1]
