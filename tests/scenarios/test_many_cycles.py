"""A process that declares, changes, refreshes and compares again and again keeps nothing of it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from freshline.testing import Lab
from tests.scenarios.tables import declare, fill, follow


@pytest.mark.long
def test_two_hundred_cycles_leave_no_sessions_views_or_files(lab):
    lab.source("s", "id INT, n INT")
    root = lab.runtime.sessions
    for cycle in range(200):
        declare(lab, f"SELECT id, n + {cycle} AS n FROM s", name=f"t{cycle}")
        follow(lab, f"INSERT INTO s VALUES ({cycle}, 1)", name=f"t{cycle}")
    gc.collect()

    (session,) = root._free
    assert [table.name for table in session.catalog.listTables() if table.isTemporary] == []
    cached = session.sparkContext._jsc.sc().getPersistentRDDs()
    assert cached.size() == 0


# Each makes other views and keeps other rows while it is refreshed: stages, changed rows, keys, differences.
BY_KEYS = (
    "SELECT n, count(*) AS c FROM s GROUP BY n",
    "SELECT a.id, b.n FROM s a LEFT JOIN s b ON a.id = b.id + 1",
    "WITH t AS (SELECT n, max(id) AS m FROM s GROUP BY n) SELECT m, count(*) AS c FROM t GROUP BY m",
    "SELECT id FROM s WHERE NOT EXISTS (SELECT 1 FROM s o WHERE o.n = s.id) UNION SELECT n FROM s",
)


@pytest.mark.long
def test_two_hundred_refreshes_by_keys_leave_no_sessions_views_or_rows(lab):
    fill(lab, "s", "id INT, n INT", "(-1, -1)")
    root = lab.runtime.sessions
    for cycle in range(200):
        query = BY_KEYS[cycle % len(BY_KEYS)]
        declare(lab, query, name=f"t{cycle}")
        assert lab.refresh(f"t{cycle}").error is None
        lab.sql(f"INSERT INTO s VALUES ({cycle}, {cycle % 7})")
        if cycle % 3 == 0:
            lab.sql(f"DELETE FROM s WHERE id = {cycle // 2}")
        follow(lab, name=f"t{cycle}", by="keys", strategy="keys")

    (session,) = root._free
    assert [table.name for table in session.catalog.listTables() if table.isTemporary] == []
    assert kept_rows(session) == 0


def kept_rows(session):
    """How many results Spark still keeps, after what nothing refers to was collected."""
    context = session.sparkContext
    for _ in range(50):
        gc.collect()
        context._jvm.System.gc()
        size = context._jsc.sc().getPersistentRDDs().size()
        if size == 0:
            break
    return size


def test_a_closed_lab_leaves_nothing_behind(spark):
    with Lab(spark) as lab:
        fill(lab, "s", "id INT", "(1)")
        declare(lab, "SELECT id FROM s")
        assert lab.refresh("t").state == "SUCCEEDED"
        assert lab.diff("t") == []
        folder = Path(lab.settings.root)
        (used,) = lab.runtime.sessions._free
        assert [table.name for table in used.catalog.listTables()] == []

    assert not folder.exists()
    assert [row.namespace for row in spark.sql("SHOW DATABASES").collect()] == ["default"]
