"""Tables written in Python: their functions run in a process of their own, never in the engine's.

The worker is a Spark Connect client of the engine's JVM. What a function returns is a plan; it becomes a global
temporary view, which the engine's own sessions read and write from, so the commit stays the engine's. The process is
replaced when the code of a table changes, after a failure of the process itself, and it ends with the engine.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from freshline.declare.query import PythonQuery
from freshline.declare.settings import Settings
from freshline.declare.spec import SourceSpec
from freshline.errors import CancelledError, QueryError
from freshline.refresh.cancellation import Cancellation
from freshline.refresh.inputs import SEQ, Pinned

LOG = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_INTERRUPTED_SECONDS = 5.0
_END_SECONDS = 5.0


class PythonTables:
    """Runs the functions of tables written in Python. One at a time: they build plans, Spark does the work later."""

    def __init__(
        self, settings: Settings, *, connect_port: int, token: str, drop_view: Callable[[str], object]
    ) -> None:
        """`drop_view` drops a global temporary view; the worker that made it may be gone by then."""
        self._settings = settings
        self._drop_view = drop_view
        self._connect_port = connect_port
        self._token = token
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._codes: dict[str, str] = {}

    def compute(self, query: PythonQuery, inputs: Sequence[Pinned], cancellation: Cancellation) -> str:
        """Call the function on its inputs at their positions; returns the name of a global temporary view.

        Raises QueryError, with file and line, for what the function raised, and CancelledError.
        """
        by_name = {pinned.name: pinned for pinned in inputs}
        request = {
            "do": "compute",
            "path": query.path,
            "function": query.function,
            "code_hash": query.code_hash,
            "view": f"freshline_python_{uuid4().hex}",
            "inputs": [_input(item.parameter, by_name[item.name]) for item in query.inputs],
        }
        while not self._lock.acquire(timeout=_LOOK_SECONDS):
            cancellation.check()
        try:
            return self._compute(query, request, cancellation)
        finally:
            self._lock.release()

    def drop(self, view: str) -> None:
        """Let go of a result; one that is gone already is no mistake."""
        self._drop_view(view)
        with self._lock:
            worker = self._worker
            if worker is not None and worker.alive:
                worker.send({"do": "drop", "view": view})

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            self._end()

    def _compute(self, query: PythonQuery, request: Mapping[str, Any], cancellation: Cancellation) -> str:
        if self._worker is not None and (
            not self._worker.alive or self._codes.get(query.path, query.code_hash) != query.code_hash
        ):
            # Modules that were imported stay as they were; only a new process has the new code.
            self._end()
        if self._worker is None:
            self._worker = _Worker(self._settings, self._connect_port, self._token)
        worker = self._worker
        self._codes[query.path] = query.code_hash
        worker.send(request)
        interrupted = 0.0
        while True:
            answer = worker.receive(_LOOK_SECONDS)
            if answer is not None:
                break
            if not worker.alive:
                code = worker.code
                self._end()
                raise QueryError(
                    f"the process that runs {query.function} ended (code {code}). What it printed is in {worker.log}.",
                    where=query.path,
                )
            if cancellation.cancelled:
                if interrupted == 0.0:
                    worker.send({"do": "interrupt"})
                interrupted += _LOOK_SECONDS
                if interrupted > _INTERRUPTED_SECONDS:
                    self._end()
                    raise CancelledError("the request was cancelled; nothing of it was committed")
        cancellation.check()
        if "error" in answer:
            raise QueryError(str(answer["error"]), where=answer.get("where") or query.path)
        return str(answer["view"])

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None
        self._codes.clear()


class _Worker:
    """The process, and what it says."""

    def __init__(self, settings: Settings, connect_port: int, token: str) -> None:
        self.log = settings.state / "logs" / "worker.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "freshline.engine.worker", str(settings.root)],
                cwd=settings.root,
                # The token by environment, because everybody can read a command line.
                env={
                    **os.environ,
                    "SPARK_REMOTE": f"sc://localhost:{connect_port}",
                    "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
                    # So that pyspark.sql.functions makes columns for Connect.
                    "SPARK_CONNECT_MODE_ENABLED": "1",
                    "PYTHONUNBUFFERED": "1",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
            )
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._write_lock = threading.Lock()
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), name="worker-answers", daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            with self._write_lock:
                self._process.stdin.write(json.dumps(message).encode() + b"\n")
                self._process.stdin.flush()
        except OSError as error:
            LOG.warning("the worker takes no more messages: %s", error)

    def receive(self, seconds: float) -> dict[str, Any] | None:
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            return None

    def end(self) -> None:
        assert self._process.stdin is not None
        # It ends at the end of its input; what runs in it is given up.
        try:
            self._process.stdin.close()
        except OSError as error:
            LOG.debug("the worker had closed its input: %s", error)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._answers.put(json.loads(line))


def _input(parameter: str, pinned: Pinned) -> dict[str, Any]:
    """An input as the worker reads it; `columns` are pairs of stored and declared name, None for all but ours."""
    spec = pinned.spec
    columns = None
    if isinstance(spec, SourceSpec):
        columns = [[spec.stored_column(column.name), column.name] for column in spec.columns]
    return {
        "parameter": parameter,
        "path": str(Path(pinned.path)),
        "version": None if pinned.is_log else pinned.position.version,
        # A log table is read by batch number from its newest snapshot, as the engine does.
        "up_to": [SEQ, pinned.position.seq or 0] if pinned.is_log else None,
        "columns": columns,
    }
