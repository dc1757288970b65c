"""Tables are checked after so many commits, one at a time, and a failure stops nothing."""

from __future__ import annotations

import threading

from freshline.engine.maintenance import COMMITS_BETWEEN_LOOKS, Maintenance
from freshline.values.names import TableName

A, B = TableName(None, "a"), TableName(None, "b")


def test_a_table_is_checked_after_so_many_commits():
    looked: list[TableName] = []
    done = threading.Semaphore(0)

    def maintain(name):
        looked.append(name)
        done.release()
        if name == B:
            raise ValueError("a mistake")

    maintenance = Maintenance(maintain)
    for version in range(1, 2 * COMMITS_BETWEEN_LOOKS + 2):
        maintenance.committed(A, version)
        if version % COMMITS_BETWEEN_LOOKS == 1:
            assert done.acquire(timeout=10)
    maintenance.committed(B, 5)
    assert done.acquire(timeout=10)
    maintenance.committed(A, 3 * COMMITS_BETWEEN_LOOKS + 1)
    assert done.acquire(timeout=10)
    maintenance.committed(A, None)

    assert maintenance.stop(10.0)
    assert looked == [A, A, A, B, A]
    maintenance.committed(A, 1000)
    assert looked == [A, A, A, B, A]
