"""A process is told from another one that got its number later, and ended for good."""

from __future__ import annotations

import subprocess
import sys
import time

from freshline.engine.process import ProcessId


def start(code: str) -> tuple[subprocess.Popen[str], ProcessId]:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    process = ProcessId.of(child.pid)
    assert process is not None
    return child, process


def test_a_number_that_belongs_to_another_process_by_now_is_not_alive():
    own = ProcessId.own()

    assert own.alive
    assert not ProcessId(own.pid, own.started - 3600).alive


def test_a_clock_that_is_set_makes_no_other_process_of_it():
    own = ProcessId.own()

    # What psutil tells of the start moves with the clock; what the kernel counts since its boot does not.
    assert ProcessId(own.pid, own.started - 3600, own.mark).alive
    assert not ProcessId(own.pid, own.started, own.mark + "1").alive


def test_what_a_process_leaves_behind_is_not_alive():
    child, process = start("print()")

    assert process.wait(10)
    assert not process.alive  # a zombie until somebody asks for its code
    child.wait()


def test_a_process_that_does_not_want_to_end_is_killed():
    child, process = start(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    )
    began = time.monotonic()

    assert process.end(grace_seconds=0.2)
    assert not process.alive
    assert time.monotonic() - began < 10
    assert not process.end(grace_seconds=0.2)
    child.wait()
