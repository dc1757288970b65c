"""A process of its own for code that a project brings: it may hang, grow, print for ever or end, and only it suffers.

Python cannot be stopped from within: a signal reaches the main thread alone, and no thread while C code runs. So such
code runs in a process that is asked by lines of JSON, and killed when it takes longer or more memory than it may.
Memory is inspected from outside, over the process and what it started, because a limit of the address space would
count what Arrow and gRPC reserve and never use, and would apply to each child anew. Killing ends all that it started,
also what left its session. The promise is for mistakes: code that hides its children on purpose is not found.

Where the one that asks is killed, the process ends too, whatever it is doing: see `_end_with_asker`.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import psutil

LOG = logging.getLogger(__name__)

# By it everything that a process started is found, wherever it went.
MARK = "FRESHLINE_LIMITED_PROCESS"
# The descriptor of a pipe whose other end the one that asks keeps open as long as it lives.
LIFE = "FRESHLINE_LIMITED_PROCESS_LIFE"
# Until a process has loaded what it needs to begin with, on a machine that is busy.
START_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_TREE_SECONDS = 0.5
_KILL_SECONDS = 5.0


@dataclass(frozen=True)
class ProcessLimits:
    """Seconds until the next answer, and bytes of memory of the process with all that it started."""

    seconds: float
    memory: int


class LimitError(Exception):
    """A limit was exceeded, and the process is killed; `sentence` says which one."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


class EndedError(Exception):
    """The process ended without an answer."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"code {code}")


class LimitedProcess:
    """The process from outside. `printed` gets what it prints; messages go in and answers come out as JSON objects."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environ: Mapping[str, str],
        printed: Callable[[bytes], object],
    ) -> None:
        self._mark = uuid4().hex
        life, self._life = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder,
                env={**environ, MARK: self._mark, LIFE: str(life), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(life,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._life)
            raise
        finally:
            os.close(life)
        self._closed = weakref.finalize(self, os.close, self._life)
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._write_lock = threading.Lock()
        self._inspected_at = 0.0
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for read, stream in ((self._read, self._process.stdout), (self._drain, self._process.stderr)):
            threading.Thread(target=read, args=(stream, printed), name="limited-process", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; one that has ended takes none, and says so when it is asked for an answer."""
        assert self._process.stdin is not None
        try:
            with self._write_lock:
                self._process.stdin.write(json.dumps(message).encode() + b"\n")
                self._process.stdin.flush()
        except OSError as error:
            LOG.debug("process %d takes no more messages: %s", self.pid, error)

    def wait_until_ready(self, limits: ProcessLimits, look: Callable[[], None] = lambda: None) -> None:
        """Wait until it takes questions, so that starting does not count as an answer's time. Raises as `answer`."""
        self.answer(ProcessLimits(START_SECONDS, limits.memory), look)

    def answer(self, limits: ProcessLimits, look: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The next answer. `look` is called several times a second and may raise.

        Raises LimitError, and EndedError for a process that ended by itself; it is killed in both cases.
        """
        begun = time.monotonic()
        while True:
            ended = not self.alive
            try:
                return self._answers.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                pass
            if ended:
                self.kill()
                raise EndedError(self._process.returncode)
            look()
            if time.monotonic() - begun > limits.seconds:
                self.kill()
                raise LimitError(f"took longer than {limits.seconds:.0f} seconds")
            self._require_memory(limits.memory)

    def memory(self) -> int:
        """Bytes that the process and what it started take; what they share counts once."""
        return sum(_memory(process, shared=False) for process in self._tree())

    def has_children(self) -> bool:
        """Whether it started processes that are still there."""
        return len(self._tree()) > 1

    def kill(self) -> None:
        """End the process and all that it started, at once."""
        _kill_group(self._process.pid)
        self._process.kill()
        self._process.wait()
        # Until none is found: one may have forked during the search, and a killed one is there for a moment more.
        begun = time.monotonic()
        while left := self._left():
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            if time.monotonic() - begun > _KILL_SECONDS:
                LOG.warning("process %d left %d processes that do not end", self.pid, len(left))
                break
            psutil.wait_procs(left, timeout=_LOOK_SECONDS)
        self._closed()
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError as error:
            LOG.debug("the input of process %d was closed: %s", self.pid, error)

    def _left(self) -> list[psutil.Process]:
        """The processes that this one started, wherever they went; zombies do not count."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self._mark:
                    found.append(process)
            except (psutil.Error, OSError):
                continue  # gone, or somebody else's
        return found

    def _require_memory(self, most: int) -> None:
        if time.monotonic() - self._inspected_at < _TREE_SECONDS:
            processes = [psutil.Process(self.pid)] if psutil.pid_exists(self.pid) else []
        else:
            self._inspected_at = time.monotonic()
            processes = self._tree()
        # Resident memory is known at once and counts shared pages of each; the exact sum takes longer.
        if sum(_memory(process, shared=True) for process in processes) > most and self.memory() > most:
            self.kill()
            raise LimitError(f"took more than {most / 2**20:.0f} MB of memory")

    def _tree(self) -> list[psutil.Process]:
        try:
            process = psutil.Process(self.pid)
            return [process, *process.children(recursive=True)]
        except psutil.Error:
            return []

    def _read(self, stream: IO[bytes], _: object) -> None:
        with stream:
            for line in stream:
                try:
                    answer = json.loads(line)
                except ValueError:
                    LOG.warning("process %d answered what is no JSON", self.pid)
                    continue
                if isinstance(answer, dict):
                    self._answers.put(answer)

    def _drain(self, stream: IO[bytes], printed: Callable[[bytes], object]) -> None:
        with stream:
            while chunk := os.read(stream.fileno(), 65_536):
                try:
                    printed(chunk)
                except OSError as error:
                    LOG.debug("what process %d prints cannot be kept: %s", self.pid, error)


class ProcessChannel:
    """The process from inside: what it is asked and where it answers, with its standard streams out of the way."""

    def __init__(self) -> None:
        _end_with_asker()
        # The protocol keeps the real standard streams; prints of anybody go where errors go.
        self._own = os.getpid()
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.messages = os.fdopen(os.dup(0), "rb")
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)

    def ready(self) -> None:
        """Say that questions may come."""
        self.answer({"ready": True})

    def answer(self, answer: Mapping[str, Any]) -> None:
        """Send an answer; a copy of the process ends instead."""
        self.end_copy()
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def end_copy(self) -> None:
        """End a copy of the process, which its code made and let come here: it has nothing to say."""
        if os.getpid() != self._own:
            os._exit(0)


def _end_with_asker() -> None:
    """Let the system end this process and its group when the one that asks is gone, killed for instance.

    Code that hangs may let no thread run, so it is not a thread that waits: the system sends SIGIO at the end of the
    pipe, which ends a process that does not handle it.
    """
    life = int(os.environ.pop(LIFE))
    os.set_inheritable(life, False)
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    ended = select.poll()
    ended.register(life, select.POLLHUP)
    if ended.poll(0):
        os._exit(0)  # it was gone before


def _memory(process: psutil.Process, *, shared: bool) -> int:
    try:
        if shared:
            return int(process.memory_info().rss)
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.uss))
    except psutil.Error:
        return 0


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError) as error:
        LOG.debug("group %d: %s", group, error)
