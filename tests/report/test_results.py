"""Answers of the engine as values: every key that is printed has a field, and every field its key."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime

import pytest

from freshline.errors import EngineError, QueryError
from freshline.report.results import RestoreResult, VerifyResult, read_result
from freshline.values.names import TableName
from freshline.values.receipt import Violation
from freshline.values.result import RefreshResult, State

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
RESULT = RefreshResult(
    table=TableName("sales", "orders"), at=AT, state=State.FAILED, strategy="append", reason="2 new files",
    version=7, rows_in=3, rows_out=2, seconds=0.5, rejected=1, mode="continuous", data_timestamp=AT,
    error=QueryError("no column a", where="sales.orders"), problems=(QueryError("b"),), late_rows=4, cpu_seconds=0.25,
    violations={"positive": Violation(2, ('{"id":1}',))}, partitions=("2026-11-01",),
)  # fmt: skip


def over_the_wire(value: dict[str, object]) -> dict[str, object]:
    found: dict[str, object] = json.loads(json.dumps(value))
    return found


def test_a_refresh_comes_back_from_its_json_as_it_was():
    answer = over_the_wire(RESULT.as_json())

    assert {each.name for each in fields(RefreshResult)} == set(answer)
    assert read_result(RefreshResult, answer) == RESULT
    assert RefreshResult.from_json(over_the_wire(RESULT.as_stored())) == RESULT
    assert not RESULT.ok
    with pytest.raises(FrozenInstanceError):
        RESULT.state = State.SUCCEEDED  # type: ignore[misc]


def test_a_field_that_a_newer_engine_adds_is_left_out_and_one_that_is_missing_is_an_error():
    answer = over_the_wire(RESULT.as_json())

    assert read_result(RefreshResult, {**answer, "partition": "2026-11-01"}) == read_result(RefreshResult, answer)
    with pytest.raises(EngineError, match="freshline engine stop"):
        read_result(RefreshResult, {key: value for key, value in answer.items() if key != "table"})


def test_a_restore_names_tables_and_their_new_versions():
    found = read_result(
        RestoreResult,
        {
            "action": "restore", "savepoint": "calm", "created_at": AT.isoformat(), "restored": {"a": 3},
            "unchanged": ["b"], "behind": [], "redeclared": [], "seconds": 1.5,
        },
    )  # fmt: skip

    assert found == RestoreResult("calm", AT, {"a": 3}, ("b",), (), (), 1.5)


def test_every_key_of_a_verification_is_a_field():
    from freshline.run.comparison import Verification

    answer = over_the_wire(Verification(TableName(None, "t"), False, 1, 2, 3, 4, 0.5, (("+", {"a": 1}),)).as_json())

    assert {each.name for each in fields(VerifyResult)} == set(answer)
    assert read_result(VerifyResult, answer).samples == ("+ {'a': 1}",)
