"""The trace of a refresh: a span for the request, and the stages within it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from freshline.errors import RefreshError
from freshline.report.telemetry.refresh_trace import RefreshTrace, Timed
from freshline.report.telemetry.traces import Traces
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State
from tests.report.metrics.figures import HOSTILE


def spans_of(body: bytes) -> dict[str, Any]:
    """The spans of a request of OTLP by their names."""
    request = ExportTraceServiceRequest.FromString(body)
    spans = [span for each in request.resource_spans for scope in each.scope_spans for span in scope.spans]
    return {span.name: span for span in spans}


def attributes_of(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def trace(**changes: Any) -> RefreshTrace:
    result = RefreshResult(
        **{
            "table": TableName.parse("shop.spent"), "at": datetime(2026, 11, 1, tzinfo=UTC), "state": State.SUCCEEDED,
            "reason": "NEW_ROWS: 3", "strategy": "merge", "committed": True, "rows_in": 3, "rows_out": 2, "version": 7,
            **changes,
        }
    )  # fmt: skip
    stages = (Timed("pin", 110, 120), Timed("compute", 120, 180), Timed("commit", 150, 170, within=1))
    return RefreshTrace(100, 200, 0.25, stages, result)


def test_the_stages_are_spans_within_the_request():
    spans = spans_of(Traces("shop", "local").encode(trace()))

    request = spans["request"]
    assert set(spans) == {"request", "pin", "compute", "commit"}
    assert (request.start_time_unix_nano, request.end_time_unix_nano) == (100, 200)
    assert request.parent_span_id == b""
    assert {span.trace_id for span in spans.values()} == {request.trace_id}
    assert spans["pin"].parent_span_id == spans["compute"].parent_span_id == request.span_id
    assert spans["commit"].parent_span_id == spans["compute"].span_id
    assert (spans["commit"].start_time_unix_nano, spans["commit"].end_time_unix_nano) == (150, 170)
    assert attributes_of(spans["pin"]) == {"freshline.table": "shop.spent"}


def test_the_request_says_what_happened():
    found = attributes_of(spans_of(Traces("shop", "local").encode(trace()))["request"])

    assert found["freshline.table"] == "shop.spent"
    assert found["freshline.strategy"] == "merge"
    assert found["freshline.reason"] == "NEW_ROWS: 3"
    assert (found["freshline.rows_in"], found["freshline.rows_out"]) == (3, 2)
    assert found["freshline.waited_seconds"] == 0.25


def test_a_failure_is_an_error_with_its_reason():
    failed = trace(state=State.FAILED, reason="REFRESH: full disk", error=RefreshError("full disk"), committed=False)
    request = spans_of(Traces("shop", "local").encode(failed))["request"]

    assert request.status.code == Status.STATUS_CODE_ERROR
    assert request.status.message == "REFRESH: full disk"
    assert attributes_of(request)["freshline.error"] == "REFRESH"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_texts(text):
    found = attributes_of(spans_of(Traces(text, "local").encode(trace(reason=text)))["request"])

    assert found["freshline.reason"] == text[:10_000].encode("utf-8", "replace").decode()
