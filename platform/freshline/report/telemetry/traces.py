"""The trace of one refresh, in OpenTelemetry's Protobuf: a span for the request, and one for each stage within it.

Spans are made when the refresh ended, from the times of its stages: only then is it known whether it did anything. No
context of OpenTelemetry is open while it runs, so it costs a refresh two readings of a clock for each stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import Span as AnySpan
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from freshline.report.telemetry.refresh_trace import RefreshTrace
from freshline.values.result import State
from freshline.version import __version__

_LONGEST_TEXT = 10_000


class Traces:
    """Makes traces of refreshes of one project and environment."""

    def __init__(self, project: str, environment: str) -> None:
        self._resource = Resource(
            {
                "service.name": "freshline",
                "service.version": __version__,
                "freshline.project": _text(project),
                "deployment.environment.name": environment,
            }
        )

    def encode(self, trace: RefreshTrace) -> bytes:
        """A request of OTLP with the spans of one trace."""
        collected = _Collected()
        provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        provider.add_span_processor(collected)
        tracer = provider.get_tracer("freshline", __version__)
        table = {"freshline.table": str(trace.result.table)}
        request = tracer.start_span(
            "request", kind=SpanKind.INTERNAL, attributes=_attributes(trace), start_time=trace.asked
        )
        spans: list[AnySpan] = []
        for stage in trace.stages:
            around = request if stage.within is None else spans[stage.within]
            span = tracer.start_span(
                stage.name, context=set_span_in_context(around), attributes=table, start_time=stage.began
            )
            if stage.failed:
                span.set_status(Status(StatusCode.ERROR))
            spans.append(span)
        for span, stage in zip(spans, trace.stages, strict=True):
            span.end(stage.ended)
        if trace.result.state == State.FAILED:
            request.set_status(Status(StatusCode.ERROR, _text(trace.result.reason)))
        request.end(trace.ended)
        encoded: bytes = encode_spans(collected.spans).SerializeToString()
        return encoded


class _Collected(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: object = None) -> None:
        """Only ends are collected."""

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def _attributes(trace: RefreshTrace) -> Mapping[str, str | int | float | bool | Sequence[str]]:
    result = trace.result
    facts: dict[str, str | int | float | bool | None] = {
        "table": str(result.table),
        "state": str(result.state),
        "strategy": result.strategy,
        "reason": result.reason,
        "mode": result.mode,
        "cause": result.cause,
        "version": result.version,
        "committed": result.committed,
        "rows_in": result.rows_in,
        "rows_out": result.rows_out,
        "rejected": result.rejected,
        "lag_seconds": result.lag_seconds,
        "cpu_seconds": result.cpu_seconds,
        "waited_seconds": round(trace.waited_seconds, 3),
        "error": None if result.error is None else result.error.code,
    }
    return {
        f"freshline.{name}": _text(value) if isinstance(value, str) else value
        for name, value in facts.items()
        if value is not None
    }


def _text(text: str) -> str:
    """A text that Protobuf takes: half a character is none."""
    return text[:_LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8")
