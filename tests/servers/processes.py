"""A server of a test in a process of its own, which ends with the process that started it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from resources.guarded import GuardedProcess

_LOOK_SECONDS = 0.05
_LAST_WORDS = 3_000


class ServerProcess:
    """A program that is started again and again on the same folder. Nothing is left of it after `kill`."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.command = list(command)
        self._process: GuardedProcess | None = None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, answers: Callable[[], bool], seconds: float) -> None:
        """Start it, and wait until it answers. Fails with its last words if that takes longer, or it ends."""
        assert self._process is None, f"{self.name} runs already"
        self._process = GuardedProcess(self.command, log=self.log, folder=self.folder)
        deadline = time.monotonic() + seconds
        while not answers():
            if not self._process.running or time.monotonic() > deadline:
                self.kill()
                said = self.log.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:]
                raise AssertionError(f"{self.name} did not start: {said}")
            time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        """End it as a power cut would (kill -9). Ending it again changes nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def stop(self, seconds: float = 20.0) -> None:
        """End it as its administrator would."""
        process, self._process = self._process, None
        if process is not None:
            process.stop(seconds)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It does nothing, and its connections stay."""
        assert self._process is not None
        stopped = self._process.guarded()
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in stopped:
                process.send_signal(signal.SIGCONT)
