"""The messages that leave the engine after each refresh, by the settings: lineage events and traces.

The libraries of the extras are imported here, when a setting asks for them and not before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.errors import DeliveryError, SettingsError
from freshline.refresh.stages import Stage, StageRecorder
from freshline.report.telemetry.destination import poster
from freshline.report.telemetry.outbox import Outbox
from freshline.report.telemetry.refresh_trace import RefreshTrace, Timed
from freshline.values.result import RefreshResult
from freshline.values.settings import Settings

if TYPE_CHECKING:
    from freshline.report.telemetry.lineage import EventFile, LineageEvents
    from freshline.report.telemetry.traces import Traces

FILE_BYTES = 10_000_000


class Lineage:
    """Sends the lineage events of refreshes where the settings say."""

    def __init__(
        self,
        events: LineageEvents,
        graph: Callable[[], Graph],
        send: Callable[[bytes], None] | None,
        file: EventFile | None,
    ) -> None:
        self._events = events
        self._graph = graph
        # Two, so that a file goes on while the address is away.
        self._outboxes: list[Outbox] = []
        if send is not None:
            self._outboxes.append(Outbox("openlineage", lambda lines: _send_each(send, lines)))
        if file is not None:
            self._outboxes.append(Outbox("openlineage file", lambda lines: _append(file, lines)))

    def on_outcome(self, result: RefreshResult | None) -> None:
        """Let the events of a refresh leave; returns at once."""
        if result is not None and not result.is_check:
            graph = self._graph()
            for outbox in self._outboxes:
                outbox.put(lambda: self._events.events(graph, result))

    def close(self, seconds: float) -> None:
        """Send what waits, at most so long."""
        for outbox in self._outboxes:
            outbox.close(seconds)


class Tracing:
    """Records the stages of refreshes, and sends the trace of each that did something."""

    def __init__(self, traces: Traces, send: Callable[[bytes], None]) -> None:
        self.recorder = StageRecorder()
        self._traces = traces
        self._outbox = Outbox("otel", send)

    def refresh(self, asked_at: float, do: Callable[[], RefreshResult]) -> RefreshResult:
        """Do a refresh that was asked for at `asked_at`, in seconds of the monotonic clock."""
        began = time.monotonic()
        with self.recorder.recording() as stages:
            result = do()
        if not result.is_check:
            # The monotonic clock orders the spans, whatever the clock of the wall did meanwhile.
            ended, wall = time.monotonic(), time.time()
            trace = RefreshTrace(
                asked=_nanoseconds(asked_at, ended, wall),
                ended=_nanoseconds(ended, ended, wall),
                waited_seconds=began - asked_at,
                stages=tuple(_timed(stage, ended, wall) for stage in stages),
                result=result,
            )
            # A trace that is sent once more has the same ids.
            self._outbox.put(cache(lambda: self._traces.encode(trace)))
        return result

    def close(self, seconds: float) -> None:
        """Send what waits, at most so long."""
        self._outbox.close(seconds)


def _timed(stage: Stage, ended: float, wall: float) -> Timed:
    return Timed(
        stage.name,
        _nanoseconds(stage.began, ended, wall),
        _nanoseconds(stage.ended, ended, wall),
        stage.within,
        stage.failed,
    )


def _nanoseconds(at: float, ended: float, wall: float) -> int:
    return int((wall - (ended - at)) * 1e9)


def open_tracing(settings: Settings, environ: Mapping[str, str]) -> Tracing | None:
    """The sender of traces, None where no setting asks for it. Raises SettingsError without the extra."""
    if settings.otel is None:
        return None
    try:
        from freshline.report.telemetry.traces import Traces
    except ModuleNotFoundError as error:
        raise SettingsError(
            "OpenTelemetry is not installed, by which traces are made. Run: pip install 'freshline[otel]', or remove "
            "[tool.freshline.otel].",
            where=str(settings.root),
        ) from error
    send = poster(settings.otel, settings, environ, "application/x-protobuf")
    return Tracing(Traces(settings.root.name, settings.environment), send)


def open_lineage(
    settings: Settings, environ: Mapping[str, str], graph: Callable[[], Graph], spark_version: str
) -> Lineage | None:
    """The sender of lineage events, None where no setting asks for it. Raises SettingsError without the extra."""
    chosen = settings.openlineage
    if chosen is None:
        return None
    try:
        from freshline.report.telemetry.lineage import EventFile, LineageEvents
    except ModuleNotFoundError as error:
        raise SettingsError(
            "openlineage-python is not installed, by which lineage events are made. Run: "
            "pip install 'freshline[openlineage]', or remove [tool.freshline.openlineage].",
            where=str(settings.root),
        ) from error
    send = None
    if chosen.destination is not None:
        send = poster(chosen.destination, settings, environ, "application/json")
    return Lineage(
        LineageEvents(Warehouse(settings.warehouse), chosen.namespace, spark_version),
        graph,
        send,
        None if chosen.file is None else EventFile(chosen.file, FILE_BYTES),
    )


def _send_each(send: Callable[[bytes], None], lines: list[str]) -> None:
    # One that arrived already arrives once more when the next one fails; its run has the same id.
    for line in lines:
        send(line.encode())


def _append(file: EventFile, lines: list[str]) -> None:
    try:
        file.append(lines)
    except OSError as error:
        raise DeliveryError(f"the file cannot be written: {error.strerror or error}.") from error
