"""The examples over event time, as a person runs them: a month of real departures, compared with DuckDB's."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tests.scripts import load_script

EXAMPLES = Path(__file__).parents[2] / "platform" / "examples"
# How many tables each compares.
EXAMPLE_TABLES = [("alerting", 3), ("analytics", 5), ("enrichment", 3), ("etl", 5)]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("days", [4, 31])
@pytest.mark.parametrize(("name", "tables"), EXAMPLE_TABLES)
def test_an_example_ends_with_every_table_equal_to_duckdbs(name: str, tables: int, days: int) -> None:
    at_once = str(days // 2 + 1)
    command = [sys.executable, str(EXAMPLES / name / "run.py"), "--days", str(days), "--days-per-refresh", at_once]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum("equal to DuckDB's" in line and "NOT" not in line for line in lines) == tables


@pytest.fixture(scope="module")
def replay() -> ModuleType:
    return load_script(EXAMPLES / "replay.py")


@pytest.mark.seconds
def test_each_record_is_delivered_once_and_some_are_late(replay: ModuleType) -> None:
    records = replay.departures(20)
    deliveries = replay.out_of_order(records, 5)
    assert Counter(row["id"] for one in deliveries for row in one) == Counter(row["id"] for row in records)
    late = sum((int(row["day"][-2:]) - 1) // 5 < number for number, one in enumerate(deliveries) for row in one)
    assert 0.01 < late / len(records) < 0.05
    assert replay.out_of_order(records, 5) == deliveries
    # Scheduled for 18:35 on the clocks of New York, and 853 minutes late: the next morning.
    assert "2013-01-02T13:48:00Z" in {row["left_at"] for row in records if row["delay"] == "853"}
