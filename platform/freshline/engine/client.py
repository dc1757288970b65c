"""Ask the engine of a project, and start it where none runs.

Every command goes through here, so nothing heavy is imported: no Spark, no Dagster. The engine is a process of its own
that outlives the command; where it is stands in the state file, which is believed only after the process it names was
seen and has answered.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol, cast
from uuid import uuid4

from freshline.engine.down_mark import read_down_mark, require_not_down
from freshline.engine.lock import find_holder
from freshline.engine.state_file import EngineState, read_state, remove_state
from freshline.engine.up_record import engine_environ
from freshline.errors import EngineError, EngineHeldError, RequestError, StorageError, error_from_json
from freshline.values.settings import Settings, as_private, provide_state

Progress = Callable[[str], None]

_START_SECONDS = 240.0  # jars over a slow line, then a JVM on a busy machine
_ANSWER_SECONDS = 30.0
_POLL_SECONDS = 10.0
_MOST_IN_VAIN = 3
_STEP_SECONDS = 0.1


class Asks(Protocol):
    """The part of an engine's client that is needed: the events of one request. Closing them early cancels it."""

    def run(self, kind: str, **arguments: Any) -> Iterator[dict[str, Any]]: ...


class EngineClient:
    """A running engine."""

    def __init__(self, settings: Settings, engine: EngineState) -> None:
        self._settings = settings
        self._engine = engine

    @classmethod
    def connect(
        cls,
        settings: Settings,
        *,
        start: bool = True,
        loops: bool = False,
        progress: Progress = lambda message: None,
    ) -> EngineClient:
        """The engine of the project, started if none runs and `start` says so.

        With `loops` it keeps the tables by their modes from now on. Raises EngineError where none answers or it cannot
        be started, or `freshline down` was called meanwhile, EngineHeldError where another project's engine has the
        warehouse, and errors of the project.
        """
        began = time.monotonic()
        mark = read_down_mark(settings.state)
        while True:
            client = cls._running(settings, progress, began if start else None)
            if client is not None:
                if loops:
                    client.set_loops(True)
                return client
            if not start:
                raise EngineError("no engine is running. Start it with `freshline engine start`.")
            require_not_down(settings.state, mark)
            _start(settings, loops, progress, began, mark)

    @classmethod
    def _running(cls, settings: Settings, progress: Progress, began: float | None) -> EngineClient | None:
        """The engine that runs; None where there is none, after what a dead one left was removed.

        With `began`, one that does not answer, or is about to end, is waited for.
        """
        told = ""
        while True:
            engine = read_state(settings.state)
            if engine is not None and not engine.alive:
                remove_state(settings.state, engine)
                engine = None
            if engine is None:
                return None
            client = cls(settings, engine)
            try:
                health = client.health()
                if not health.get("stopping"):
                    return client
                message = "waiting for the engine before this one to end"
            except EngineError as error:
                message = error.message
            if began is None and engine.alive:
                raise EngineError(f"the engine (process {engine.process.pid}) cannot be asked: {message}")
            if began is not None and time.monotonic() - began > _START_SECONDS:
                raise EngineError(
                    f"process {engine.process.pid} is there and cannot be asked ({message}). End it with "
                    f"`kill {engine.process.pid}` and try again."
                )
            if message != told:
                progress(message)
                told = message
            engine.process.wait(_STEP_SECONDS)

    @property
    def state(self) -> EngineState:
        """The process, the ports and the token."""
        return self._engine

    @property
    def connect_address(self) -> str:
        """The address of the engine for Spark Connect clients; they need the token too."""
        return f"sc://localhost:{self._engine.connect_port}"

    def health(self) -> dict[str, Any]:
        """Version, process, warehouse, and whether the loops run. Raises EngineError where it does not answer."""
        found: dict[str, Any] = self._ask("GET", "/health", seconds=5.0)
        return found

    def status(self) -> list[dict[str, Any]]:
        """The status of each table, with the refresh that runs."""
        found: list[dict[str, Any]] = self._ask("GET", "/status")
        return found

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics as JSON objects, as `Family.as_json` has them."""
        found: list[dict[str, Any]] = self._ask("GET", "/metrics", accept="application/json")
        return found

    def submit(self, kind: str, **arguments: Any) -> str:
        """Make a request; returns its id. Its events must be polled, or it is cancelled."""
        return str(self._ask("POST", "/requests", {"kind": kind, "arguments": arguments, "asker": os.getpid()})["id"])

    def events(self, request_id: str) -> Iterator[dict[str, Any]]:
        """The events of a request as they come, `done` last. Raises EngineError when the engine ends before."""
        after = 0
        while True:
            answer = self._ask("GET", f"/requests/{request_id}/events?after={after}&wait={_POLL_SECONDS:g}")
            yield from answer["events"]
            after = answer["next"]
            if answer["done"]:
                return

    def run(self, kind: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Make a request and yield its events; leaving them before `done`, Ctrl-C included, cancels it."""
        request_id = self.submit(kind, **arguments)
        done = False
        try:
            for event in self.events(request_id):
                done = event["type"] == "done"
                yield event
        finally:
            if not done:
                with suppress(EngineError, RequestError):
                    self.cancel(request_id)

    def cancel(self, request_id: str) -> None:
        """Cancel a request; it has ended when its `done` says so."""
        self._ask("POST", f"/requests/{request_id}/cancel", {})

    def set_loops(self, on: bool) -> None:
        """Let the engine keep the tables by their modes, or serve requests only."""
        self._ask("POST", "/loops", {"on": on})

    def stop(self, timeout: float = 60) -> None:
        """Stop the engine and wait until it has ended; running work goes on for at most `timeout` seconds.

        Raises EngineError if it does not end.
        """
        process = self._engine.process
        with suppress(EngineError):
            self._ask("POST", "/stop", {"seconds": timeout})
        # Work that was cancelled at the end of that time needs some more to let go, and so does the JVM.
        if not process.wait(timeout + _ANSWER_SECONDS):
            raise EngineError(
                f"the engine (process {process.pid}) has not ended after {timeout + _ANSWER_SECONDS:.0f} s. "
                f"Its log is {self._settings.state / 'logs' / 'engine.log'}; `kill -9 {process.pid}` ends it, the next "
                "start takes over."
            )
        if not self._engine.jvm.wait(_ANSWER_SECONDS):
            raise EngineError(f"the engine has ended, its JVM (process {self._engine.jvm.pid}) has not. End it.")

    def _ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        seconds: float = _ANSWER_SECONDS,
        accept: str = "*/*",
    ) -> Any:
        headers = {"Authorization": f"Bearer {self._engine.token}", "Accept": accept}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            with closing(
                http.client.HTTPConnection("127.0.0.1", self._engine.http_port, timeout=seconds)
            ) as connection:
                connection.request(method, path, data, headers)
                response = connection.getresponse()
                value = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            gone = not self._engine.alive
            raise EngineError(
                "the engine ended before it had answered. Committed rows stay. Try again."
                if gone
                else f"the engine (process {self._engine.process.pid}) does not answer: {type(error).__name__} {error}."
            ) from error
        if response.status >= 400:
            reported = value.get("error") if isinstance(value, dict) else None
            raise error_from_json(reported or {"code": EngineError.code, "message": "the engine gave no reason."})
        return value


def run_resumed(
    connect: Callable[[Progress], Asks], kind: str, progress: Progress, **arguments: Any
) -> Iterator[dict[str, Any]]:
    """The events of a request that the next engine goes on with when one ends in between.

    It has the same `id` there, by which what was committed is not done again. Raises EngineError when engines end
    again and again without getting further. Leaving the events before `done` cancels the request.
    """
    arguments = {"id": uuid4().hex, **arguments}
    vain = 0
    while True:
        asked = cast(Generator[dict[str, Any]], connect(progress).run(kind, **arguments))
        try:
            with closing(asked) as events:
                for event in events:
                    if event["type"] == "outcome":
                        vain = 0
                    yield event
            return
        except EngineError:
            vain += 1
            if vain > _MOST_IN_VAIN:
                raise
            progress("the engine ended; the next one goes on where it stopped")
            arguments["resume"] = True


# -- starting


def _start(settings: Settings, loops: bool, progress: Progress, began: float, mark: str) -> None:
    """Start an engine and return when it is ready, or when another one that is being started has become ready."""
    holder = find_holder(settings.warehouse)
    if holder is not None and holder.process.alive and holder.state == str(settings.state):
        _wait_for_other(settings, progress, began)
        return
    progress("starting the engine")
    logs = settings.state / "logs"
    try:
        provide_state(settings)
        with as_private(settings.umask):
            logs.mkdir(exist_ok=True)
            output = (logs / "engine.out").open("ab")
    except OSError as error:
        raise StorageError(
            f"the state directory cannot be written: {error.strerror or error}. Make it writable for this user.",
            where=str(settings.state),
        ) from error
    with output:
        read, write = os.pipe()
        try:
            process = subprocess.Popen(
                _command(settings, loops, write, mark),
                cwd=settings.root,
                env={**engine_environ(os.environ), "FRESHLINE_ENV": settings.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(write,),
                # A session of its own: Ctrl-C and a closed terminal are the command's, not the engine's.
                start_new_session=True,
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
    with open(read, "rb", buffering=0) as reports:  # noqa: PTH123 - a pipe, not a path
        _follow(process, reports.fileno(), settings, progress, began)


def _command(settings: Settings, loops: bool, report: int, mark: str) -> list[str]:
    command = [sys.executable, "-m", "freshline.engine.main", "--project", str(settings.root), "--down-mark", mark]
    return [*command, "--report", str(report), *(["--loops"] if loops else [])]


def _follow(
    process: subprocess.Popen[bytes], reports: int, settings: Settings, progress: Progress, began: float
) -> None:
    """Read what the engine reports of its start until it is ready."""
    buffered = b""
    message = "starting the engine"
    while True:
        waited = time.monotonic() - began
        if waited > _START_SECONDS:
            process.terminate()
            raise EngineError(f"the engine was not ready after {waited:.0f} s ({message}). {_see_log(settings)}")
        if not select.select([reports], [], [], 1.0)[0]:
            progress(f"{message} ({waited:.0f} s)")
            continue
        piece = os.read(reports, 65536)
        if not piece:
            code = process.wait()
            raise EngineError(f"the engine ended while it started (code {code}). {_see_log(settings)}")
        buffered += piece
        *lines, buffered = buffered.split(b"\n")
        for line in lines:
            report = json.loads(line)
            if report["type"] == "ready":
                return
            if report["type"] == "error":
                process.wait()
                error = error_from_json(report["error"])
                holder = find_holder(settings.warehouse)
                if isinstance(error, EngineHeldError) and holder is not None and holder.state == str(settings.state):
                    _wait_for_other(settings, progress, began)
                    return
                raise error
            message = str(report["message"])
            progress(message)


def _wait_for_other(settings: Settings, progress: Progress, began: float) -> None:
    """Wait until the engine that somebody else is starting, or stopping, has become ready or has ended."""
    progress("waiting for the engine that another command has started")
    while time.monotonic() - began < _START_SECONDS:
        holder = find_holder(settings.warehouse)
        state = read_state(settings.state)
        if holder is None or holder.process.wait(_STEP_SECONDS):
            return
        if state is not None and state.process == holder.process:
            return
    raise EngineError(f"the engine that another command has started is not ready. {_see_log(settings)}")


def _see_log(settings: Settings) -> str:
    return f"Its log is {_log(settings)}."


def _log(settings: Settings) -> Path:
    return settings.state / "logs" / "engine.log"
