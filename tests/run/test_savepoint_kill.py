"""A process that restores is killed at moments that nobody chose: whoever comes next finishes it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from freshline.commit.savepoints import read_restoration
from freshline.run import create_savepoint, finish_restore, restore_savepoint
from tests.conftest import settings_in
from tests.run.small_tables import SmallTables

ROOT = Path(__file__).parents[2]
TABLES = 12
RESTORE = """
import sys
from pathlib import Path
from freshline.commit.control_store import ControlStore
from freshline.plan.project import open_project
from freshline.run import open_runtime, restore_savepoint
from tests.conftest import settings_in
settings = settings_in(Path(sys.argv[1]))
runtime = open_runtime(settings, open_project(settings), None, ControlStore.open(settings.control_store))
print("ready", flush=True)
restore_savepoint(runtime, "calm")
print("done", flush=True)
"""


@pytest.mark.long
def test_kills_at_any_moment_of_a_restore(tmp_path):
    names = [f"t{number}" for number in range(TABLES)]
    source = "CREATE SOURCE s (id INT, n INT) WITH ('connector' = 'delta', 'path' = 'elsewhere')"
    queries = {
        name: f"CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM s" for name in names
    }
    tables = SmallTables(settings_in(tmp_path), {"s": source, **queries})
    for name in names:
        tables.commit(name, [1])
    create_savepoint(tables.runtime, "calm")
    chance, interrupted, whole = random.Random(5), 0, 0.0
    for number in range(9):
        for name in names:
            tables.commit(name, [number + 2])
        child = subprocess.Popen(
            [sys.executable, "-c", RESTORE, str(tmp_path)],
            env={"PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"},
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        if number == 0:
            # The first one ends unharmed, and shows how long there is something to kill.
            began = time.monotonic()
            assert child.stdout.readline() == b"done\n"
            whole = time.monotonic() - began
        time.sleep(chance.uniform(0.0, whole))  # the moment of the kill is what varies
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=60)
        child.stdout.close()

        begun = read_restoration(tables.runtime.warehouse) is not None
        interrupted += begun
        finish_restore(tables.open())

        held = {tuple(tables.ids(name)) for name in names}
        # All of them or none, never some.
        assert held in ({(1,)}, {(1, number + 2)}) or (not begun and len(held) == 1), number
        assert not begun or held == {(1,)}
        assert read_restoration(tables.runtime.warehouse) is None
        if held != {(1,)}:
            restore_savepoint(tables.runtime, "calm")
        assert {tuple(tables.ids(name)) for name in names} == {(1,)}
    assert interrupted >= 1
