"""A broker ends with whoever started it, however that ended, and leaves nothing behind when it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from resources.broker import new_broker
from tests.conftest import settings_in
from tests.lanes import long_but

STARTS = """
import json, os, sys
from pathlib import Path
import psutil
from resources.broker import new_broker
from tests.conftest import settings_in
folder = Path(sys.argv[1])
broker = new_broker(settings_in(folder), folder / "broker")
broker.start()
print(json.dumps([process.pid for process in psutil.Process().children(recursive=True)]), flush=True)
sys.stdin.read()
"""
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", long_but([signal.SIGKILL], [signal.SIGKILL, signal.SIGTERM]))
def test_a_broker_does_not_outlive_who_started_it(tmp_path, how):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert starter.stdout is not None
    processes = [psutil.Process(pid) for pid in json.loads(starter.stdout.readline())]
    assert any(process.name() == "java" for process in processes)

    starter.send_signal(how)
    starter.wait(timeout=30)

    assert psutil.wait_procs(processes, timeout=30)[1] == []


@pytest.mark.long
def test_a_broker_that_is_killed_or_stopped_leaves_nothing_and_starts_again_on_its_data(tmp_path):
    broker = new_broker(settings_in(tmp_path), tmp_path / "broker")
    for end in (broker.kill, broker.stop):
        broker.start()
        processes = psutil.Process().children(recursive=True)
        ours = [process for process in processes if str(tmp_path) in " ".join(process.cmdline())]
        assert any(process.name() == "java" for process in ours)

        end()

        assert not broker.running
        assert psutil.wait_procs(ours, timeout=5)[1] == []
