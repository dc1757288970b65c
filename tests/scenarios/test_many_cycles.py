"""A process that declares, changes, refreshes and compares again and again keeps nothing of it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from freshline.testing import Lab

HOURLY = "FRESHNESS = INTERVAL '1' HOUR"


@pytest.mark.long
def test_two_hundred_cycles_leave_no_sessions_views_or_files(lab):
    lab.source("s", "id INT, n INT")
    root = lab.runtime.sessions
    for cycle in range(200):
        lab.declare(f"CREATE MATERIALIZED TABLE t{cycle} {HOURLY} AS SELECT id, n + {cycle} AS n FROM s")
        lab.sql(f"INSERT INTO s VALUES ({cycle}, 1)")
        assert lab.refresh(f"t{cycle}").error is None
        assert lab.diff(f"t{cycle}") == []
    gc.collect()

    (session,) = root._free
    assert [table.name for table in session.catalog.listTables() if table.isTemporary] == []
    cached = session.sparkContext._jsc.sc().getPersistentRDDs()
    assert cached.size() == 0


def test_a_closed_lab_leaves_nothing_behind(spark):
    with Lab(spark) as lab:
        lab.source("s", "id INT")
        lab.sql("INSERT INTO s VALUES (1)")
        lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS SELECT id FROM s")
        assert lab.refresh("t").state == "SUCCEEDED"
        assert lab.diff("t") == []
        folder = Path(lab.settings.root)
        (used,) = lab.runtime.sessions._free
        assert [table.name for table in used.catalog.listTables()] == []

    assert not folder.exists()
    assert [row.namespace for row in spark.sql("SHOW DATABASES").collect()] == ["default"]
