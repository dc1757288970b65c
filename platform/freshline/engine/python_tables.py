"""Tables written in Python: their functions run in processes of their own, never in the engine's.

A worker is a Spark Connect client of the engine's JVM. A function returns a plan. It becomes a global temporary view,
which the engine's own sessions read and write from, so the commit stays the engine's. A function has limits of
time and memory: whoever exceeds them is killed with all that it started, and only its own table fails. While a function
runs or waits for a worker, its refresh gives its place to others. Functions rarely take long, so they share a worker;
one that waits for longer than a moment gets another. A worker is replaced when the code of a table changes, when the
process fails, and when a function leaves threads or processes behind. All end with the engine.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from pyspark.sql.types import StructType

from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import SEQ, Pinned
from freshline.declare.limited_process import EndedError, LimitedProcess, LimitError, ProcessLimits
from freshline.errors import CancelledError, PythonLimitError, QueryError
from freshline.values.names import TableName, quoted
from freshline.values.process import Process
from freshline.values.query import PythonQuery
from freshline.values.settings import Settings
from freshline.values.spec import SourceSpec, TableSpec

LOG = logging.getLogger(__name__)

NO_VIEWS: Mapping[TableName, str] = MappingProxyType({})
_LOOK_SECONDS = 0.1
_INTERRUPTED_SECONDS = 5.0
# A worker is a process of 150 MB: another one is started for a function that waits for longer than this.
_PATIENCE_SECONDS = 2.0
_LOG_BYTES = 10_000_000


class PythonTables:
    """Runs the functions of tables written in Python: they build plans, Spark does the work later."""

    def __init__(
        self, settings: Settings, *, connect_port: int, token: str, drop_view: Callable[[str], object]
    ) -> None:
        """`drop_view` drops a global temporary view; the worker that made it may be gone by then."""
        self._settings = settings
        self._drop_view = drop_view
        self._connect_port = connect_port
        self._token = token
        self._most = max(2, settings.parallel_refreshes)
        self._changed = threading.Condition()
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._starting = 0
        self._closed = False
        self._makers: dict[str, _Worker] = {}
        self._log = _BoundedLog(settings.state / "logs" / "worker.log")
        self._aside: Callable[[], AbstractContextManager[None]] = nullcontext

    def give_way(self, aside: Callable[[], AbstractContextManager[None]]) -> None:
        """Enter `aside()` for as long as a function runs or waits, so that its refresh delays no other."""
        self._aside = aside

    def compute(
        self,
        spec: TableSpec,
        inputs: Sequence[Pinned],
        cancellation: Cancellation,
        views: Mapping[TableName, str] = NO_VIEWS,
    ) -> str:
        """Call the function of a table on its inputs at their positions; the name of a global temporary view.

        For inputs in `views`, the function gets the rows of a global temporary view in place of all rows.

        Raises QueryError, with file and line, for what the function raised, PythonLimitError, and CancelledError.
        """
        query = spec.query
        assert isinstance(query, PythonQuery)
        by_name = {pinned.name: pinned for pinned in inputs}
        request = {
            "do": "compute",
            "path": query.path,
            "function": query.function,
            "code_hash": query.code_hash,
            "view": f"freshline_python_{uuid4().hex}",
            "inputs": [
                {"parameter": item.parameter, "rows": views[item.name]}
                if item.name in views
                else _input(item.parameter, by_name[item.name])
                for item in query.inputs
            ],
            **({} if query.process is None else {"process": self._process(spec, query.process)}),
        }
        with self._aside(), self._worker(query, cancellation) as worker:
            return self._compute(worker, spec, query, request, cancellation)

    def _process(self, spec: TableSpec, process: Process) -> dict[str, Any]:
        """The way in which a class makes the rows of a table, as the worker receives it."""
        columns = StructType.fromDDL(", ".join(f"{quoted(name)} {kind}" for name, kind in process.columns))
        return {
            "keys": process.keys,
            "order": process.order,
            "columns": columns.jsonValue(),
            "output": process.output,
            "outputs": process.outputs,
            "has_timer": process.has_timer,
            "until": process.until,
            "keeps_state": process.keeps_state,
            "state": process.state,
            "knows_all": process.knows_all,
            "seconds": self._seconds(spec),
            "memory": self._settings.python_memory,
        }

    def _seconds(self, spec: TableSpec) -> float:
        return self._settings.python_seconds if spec.python_seconds is None else float(spec.python_seconds)

    def drop(self, view: str) -> None:
        """Let go of a result; one that is gone already is no mistake."""
        self._drop_view(view)
        with self._changed:
            worker = self._makers.pop(view, None)
        if worker is not None:
            worker.process.send({"do": "drop", "view": view})

    def close(self) -> None:
        """End the workers."""
        with self._changed:
            workers = [*self._idle, *self._busy]
            self._idle, self._busy = [], []
            self._closed = True
        for worker in workers:
            worker.process.kill()

    # -- workers

    @contextmanager
    def _worker(self, query: PythonQuery, cancellation: Cancellation) -> Iterator[_Worker]:
        """A worker for one function; it is there for others afterwards, unless it is spent."""
        worker = self._take(query, cancellation)
        try:
            yield worker
        except BaseException:
            # Whatever became of the function, the next one must not run beside it.
            worker.spent = worker.spent or not worker.answered
            raise
        finally:
            self._let_go(worker)

    def _take(self, query: PythonQuery, cancellation: Cancellation) -> _Worker:
        begun = time.monotonic()
        with self._changed:
            while True:
                cancellation.check()
                for worker in [one for one in self._idle if not one.fits(query)]:
                    # Modules that were imported stay as they were; only a new process has the new code.
                    self._idle.remove(worker)
                    worker.process.kill()
                if self._idle:
                    worker = self._idle.pop()
                    self._busy.append(worker)
                    worker.codes[query.path] = query.code_hash
                    return worker
                count = len(self._busy) + self._starting
                if count < self._most and (count == 0 or time.monotonic() - begun >= _PATIENCE_SECONDS):
                    self._starting += 1
                    break
                self._changed.wait(_LOOK_SECONDS)
        try:
            worker = self._start(cancellation)
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()
        worker.codes[query.path] = query.code_hash
        with self._changed:
            if not self._closed:
                self._busy.append(worker)
                return worker
        worker.process.kill()
        raise CancelledError("the engine has ended")

    def _start(self, cancellation: Cancellation) -> _Worker:
        process = LimitedProcess(
            ["-m", "freshline.engine.worker", str(self._settings.root)],
            folder=self._settings.root,
            # The token by environment, because everybody can read a command line.
            environ={
                **os.environ,
                "SPARK_REMOTE": f"sc://localhost:{self._connect_port}",
                "SPARK_CONNECT_AUTHENTICATE_TOKEN": self._token,
                # So that pyspark.sql.functions makes columns for Connect.
                "SPARK_CONNECT_MODE_ENABLED": "1",
                # gRPC's own work around a fork waits for its threads, in one of fifty forks for ever. The worker itself
                # keeps a copy away from the connection.
                "GRPC_ENABLE_FORK_SUPPORT": "0",
            },
            printed=self._log.write,
        )
        try:
            process.wait_until_ready(
                ProcessLimits(self._settings.python_seconds, self._settings.python_memory), cancellation.check
            )
        except (LimitError, EndedError) as error:
            raise QueryError(
                f"the process for functions in Python did not start ({error}). Its output is in {self._log.path}."
            ) from error
        except CancelledError:
            process.kill()
            raise
        return _Worker(process)

    def _let_go(self, worker: _Worker) -> None:
        with self._changed:
            if worker in self._busy:
                self._busy.remove(worker)
                if not worker.spent:
                    self._idle.append(worker)
            self._changed.notify_all()
        if worker.spent:
            worker.process.kill()

    # -- one function

    def _compute(
        self,
        worker: _Worker,
        spec: TableSpec,
        query: PythonQuery,
        request: Mapping[str, Any],
        cancellation: Cancellation,
    ) -> str:
        seconds = self._seconds(spec)
        look = _Interruption(worker.process, cancellation)
        worker.answered = False
        worker.process.send(request)
        try:
            answer = worker.process.answer(ProcessLimits(seconds, self._settings.python_memory), look)
            while answer.get("view") != request["view"]:
                # From a copy of the process that a function made.
                answer = worker.process.answer(ProcessLimits(seconds, self._settings.python_memory), look)
        except LimitError as error:
            raise PythonLimitError(str(spec.name), query.function, error.sentence, where=query.path) from error
        except EndedError as error:
            cancellation.check()
            raise QueryError(
                f"the process that runs {query.function} ended ({error}). Its output is in {self._log.path}.",
                where=query.path,
            ) from error
        worker.answered = True
        worker.spent = bool(answer["left"]) or worker.process.has_children()
        cancellation.check()
        if "error" in answer:
            raise QueryError(str(answer["error"]), where=answer.get("where") or query.path)
        view = str(answer["view"])
        if not worker.spent:
            with self._changed:
                self._makers[view] = worker
        return view


class _Worker:
    """A process, the code that it has loaded, and whether the next function may run in it."""

    def __init__(self, process: LimitedProcess) -> None:
        self.process = process
        self.codes: dict[str, str] = {}
        self.answered = True
        self.spent = False

    def fits(self, query: PythonQuery) -> bool:
        return self.process.alive and self.codes.get(query.path, query.code_hash) == query.code_hash


class _Interruption:
    """Interrupts a function whose request is cancelled, and gives it up when that does not help."""

    def __init__(self, process: LimitedProcess, cancellation: Cancellation) -> None:
        self._process = process
        self._cancellation = cancellation
        self._since: float | None = None

    def __call__(self) -> None:
        if not self._cancellation.cancelled:
            return
        if self._since is None:
            self._since = time.monotonic()
            self._process.send({"do": "interrupt"})
        if time.monotonic() - self._since > _INTERRUPTED_SECONDS:
            raise CancelledError("the request was cancelled; nothing of it was committed")


class _BoundedLog:
    """A file of what functions print: the newest ten megabytes or so, and as much before them in a second file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def write(self, printed: bytes) -> None:
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size > _LOG_BYTES:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            with self.path.open("ab") as file:
                file.write(printed)


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
