"""Sessions of one JVM, and the clock of the wall that Delta goes by."""

from __future__ import annotations

from typing import Any

import pytest

from freshline.attempt.runtime import Sessions


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
