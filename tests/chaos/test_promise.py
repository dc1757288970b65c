"""Only rows that were sent while something else was attacked are measured, each portion once."""

from __future__ import annotations

from tests.chaos.faults import FAULTS
from tests.chaos.promise import BESIDE, Promise, is_beside, summary


def test_a_portion_has_arrived_with_the_first_version_that_has_all_of_it():
    promise = Promise()
    for at, rows in ((10.0, 12), (20.0, 24), (30.0, 36)):
        promise.sent(at, rows)
    for at, rows in ((11.0, 5), (13.0, 12), (14.0, 3), (29.0, 30), (40.0, 36)):
        promise.arrived("plain", at, rows)
    promise.attacked(5.0, 5.0)
    promise.attacked(25.0, 26.0)

    assert promise.lags() == {"plain": [3.0, 10.0], "found": []}
    assert summary(promise.lags()["plain"]) == {"portions": 2, "median": 10.0, "95 of 100": 10.0, "most": 10.0}
    assert summary([]) == {}


def test_faults_beside_are_faults_and_leave_the_measured_tables_alone():
    assert set(FAULTS) >= BESIDE
    assert is_beside("kill-daemon", {})
    assert is_beside("log-short", {"table": "daily", "newest": False})
    assert not is_beside("log-short", {"table": "event", "newest": False})
    assert not is_beside("read-only-tables", {"tables": ["daily", "found", "latest"]})
    assert not is_beside("kill-engine", {})
