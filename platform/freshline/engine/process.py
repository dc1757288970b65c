"""A process of this machine, distinguished from another one that got its number later."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshline.errors import EngineError

if TYPE_CHECKING:
    import psutil

# psutil is loaded by whoever reads a process, not by import: it costs a command line more than all else here.

# The start is counted from a boot time that is rounded to a second, and moves when the clock is set.
_SAME_START_SECONDS = 2.0
_KILLED_SECONDS = 10.0


@dataclass(frozen=True)
class ProcessId:
    """A process: its number, and its start in seconds since 1970.

    The start moves when the clock is set. `mark` does not: it is the boot of the machine and the start since then, as
    the kernel counts it; empty where it is not known.
    """

    pid: int
    started: float
    mark: str = field(default="", compare=False)

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has this number now, None if there is none."""
        process = _look_up(pid)
        return None if process is None else cls(pid, process.create_time(), _mark(pid))

    @classmethod
    def own(cls) -> ProcessId:
        """The process that asks."""
        own = cls.of(os.getpid())
        assert own is not None
        return own

    @classmethod
    def from_json(cls, value: Mapping[str, Any], prefix: str = "") -> ProcessId:
        """The process in a record. Raises KeyError, TypeError or ValueError for a record without one."""
        started, mark = float(value[f"{prefix}start_time"]), str(value.get(f"{prefix}start_mark", ""))
        return cls(int(value[f"{prefix}pid"]), started, mark)

    def as_json(self, prefix: str = "") -> dict[str, object]:
        """The process as records have it, with names that begin with `prefix`."""
        return {f"{prefix}pid": self.pid, f"{prefix}start_time": self.started, f"{prefix}start_mark": self.mark}

    @property
    def alive(self) -> bool:
        """Whether this very process runs: not another with its number, and not its remains."""
        return self._find() is not None

    def end(self, *, grace_seconds: float) -> bool:
        """Ask it to end, kill it when it does not, and return once it is gone; False when it was gone before.

        Raises EngineError for one that cannot be ended.
        """
        import psutil

        process = self._find()
        if process is None:
            return False
        try:
            process.terminate()
            if not self.wait(grace_seconds):
                process.kill()
                if not self.wait(_KILLED_SECONDS):
                    raise EngineError(
                        f"process {self.pid} does not end. Look at it with `ps -p {self.pid}`, then try again."
                    )
        except psutil.AccessDenied as error:
            raise EngineError(
                f"process {self.pid} belongs to another user and cannot be ended by this one. End it, then try again."
            ) from error
        except psutil.NoSuchProcess:
            return True
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until it is gone, at most `seconds`; whether it is."""
        import psutil

        process = self._find()
        if process is not None:
            psutil.wait_procs([process], timeout=seconds)
        return not self.alive

    def _is(self, process: psutil.Process) -> bool:
        mark = _mark(self.pid) if self.mark else ""
        if mark:
            return mark == self.mark
        started: float = process.create_time()
        return abs(started - self.started) < _SAME_START_SECONDS

    def _find(self) -> psutil.Process | None:
        import psutil

        process = _look_up(self.pid)
        try:
            if process is None or not self._is(process):
                return None
            return None if process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            return None


def _mark(pid: int) -> str:
    """The boot of the machine, and when the process was started, in ticks since; empty on other systems than Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # The name of the command is in parentheses and may have any character; the start is the 20th field behind.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return f"{boot}/{int(fields[19])}"
    except (OSError, ValueError, IndexError):
        return ""


def _look_up(pid: int) -> psutil.Process | None:
    import psutil

    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None
