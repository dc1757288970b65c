"""Processes of servers that end with the process that started them, also when that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

# A pipe that nobody holds any more is at its end, and the one who reads it ends the server. `read` is the shell's own,
# so nothing of this is left when the server has ended.
_GUARD = """
exec 3<&0
"$@" 3<&- </dev/null &
server=$!
(while read -r _ <&3; do :; done; kill -9 $server) &
guard=$!
trap 'kill $server' TERM
wait $server
code=$?
while kill -0 $server 2>/dev/null; do wait $server; code=$?; done
kill $guard 2>/dev/null
exit $code
"""


class GuardedProcess:
    """A server, and the shell that ends it when nobody holds this object's pipe any more."""

    def __init__(
        self, command: Sequence[str], *, log: Path, user: str | None = None, folder: Path | None = None
    ) -> None:
        """Start it, with its output at the end of `log`, as another user where one is named."""
        with log.open("ab") as output:
            # A group of its own: Ctrl-C in a terminal is for who started it, who ends it in order.
            self._process = subprocess.Popen(
                ["sh", "-c", _GUARD, "guard", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                cwd=folder,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def guarded(self) -> list[psutil.Process]:
        """The server and all that it started, without the shells that guard it."""
        return [each for each in psutil.Process(self._process.pid).children(recursive=True) if each.name() != "sh"]

    def kill(self) -> None:
        """End it, and all that it started, as a power cut would (kill -9)."""
        try:
            guarded = psutil.Process(self._process.pid).children(recursive=True)
            os.killpg(self._process.pid, signal.SIGKILL)
        except (psutil.NoSuchProcess, ProcessLookupError):
            guarded = []
        for process in guarded:
            # Some servers give each of their processes a group of its own.
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait()
        # Its next life needs the lock on its data.
        psutil.wait_procs(guarded)
        self._let_go()

    def stop(self, seconds: float) -> None:
        """End it in order; one that needs longer is killed."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self._let_go()

    def _let_go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
