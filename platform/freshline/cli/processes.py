"""Processes that outlive a command, and how every one of them is found again.

`freshline up` writes down what it started: process id, start time (an id alone may belong to somebody else by now)
and a mark, a random text that stands in the environment of all of them and of whatever they start themselves. So
`freshline down` finds them and their children also after the process that started them was killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from freshline.engine.process import ProcessId
from freshline.engine.up_record import MARK as MARK
from freshline.engine.up_record import UpRecord as UpRecord
from freshline.errors import EngineError
from freshline.values.settings import as_private

_GRACE_SECONDS = 20.0  # Dagster's daemon finishes an iteration before it ends


def new_mark() -> str:
    """A text that no other process has in its environment."""
    return secrets.token_hex(16)


def start(
    command: Sequence[str], *, log: Path, environ: Mapping[str, str], mark: str, folder: Path, umask: int
) -> tuple[subprocess.Popen[bytes], ProcessId]:
    """Start a process in a group of its own, with its output at the end of a log file.

    The file is open for appending, so it may be shortened meanwhile (see `rotate`).
    """
    with as_private(umask):
        log.parent.mkdir(parents=True, exist_ok=True)
        opened = log.open("ab")
    with opened as output:
        process = subprocess.Popen(
            list(command),
            cwd=folder,
            env={**environ, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            umask=umask,
            # Ctrl-C in the terminal reaches the supervisor only, which then ends the others in order.
            start_new_session=True,
        )
    found = ProcessId.of(process.pid)
    assert found is not None  # ended or not, it stays in the table of processes until it is waited for
    return process, found


def marked(mark: str) -> list[psutil.Process]:
    """Every running process of this user with the mark in its environment, but for the one that asks."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess, OSError):
            continue  # of another user, or gone: not ours in either case
    return found


def end(processes: Iterable[psutil.Process], *, grace_seconds: float = _GRACE_SECONDS) -> int:
    """Ask the processes to end, and kill those that do not; returns how many there were."""
    processes = list(processes)
    for process in processes:
        _signal(process, signal.SIGTERM)
    _, left = psutil.wait_procs(processes, timeout=grace_seconds)
    for process in left:
        _signal(process, signal.SIGKILL)
    _, left = psutil.wait_procs(left, timeout=5.0)
    if left:
        raise EngineError(f"process {left[0].pid} does not end. Look at it with `ps -p {left[0].pid}`, then try again.")
    return len(processes)


def end_marked(mark: str, *, grace_seconds: float = _GRACE_SECONDS) -> int:
    """End all processes with the mark, also those that they start meanwhile; returns how many there were."""
    ended = 0
    deadline = time.monotonic() + 60.0
    while (found := marked(mark)) and time.monotonic() < deadline:
        ended += end(found, grace_seconds=grace_seconds)
    return ended


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    # A process that has ended by itself is what was wanted.
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def rotate(log: Path, most_bytes: int) -> bool:
    """Move what a log has to the same name with `.1` when it has grown large; whether it was moved.

    The process that writes it keeps it open. So it is copied and then emptied, and lines that are written in between
    are lost.
    """
    try:
        if log.stat().st_size <= most_bytes:
            return False
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)
    except OSError:
        # It is gone, or the disk is full: the next call tries again, and the log of `up` must not end `up`.
        return False
    return True
