"""`freshline backfill`: what it asks of the engine, and how it shows the plan and what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from freshline.cli.main import run
from freshline.errors import EngineError
from tests.cli.conftest import FakeEngine
from tests.cli.test_requests import outcome

ERROR = {"code": "SOURCE", "message": "its history is gone", "where": "spend", "retry_helps": False}


def chunk(key: str, action: str = "replace", why: str = "it is missing", state: str = "missing") -> dict[str, Any]:
    return {"table": "spend", "partition": key, "state": state, "action": action, "why": why}


def planned(*chunks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "plan", "id": "x", "chunks": list(chunks)}


def replaced(key: str, **changes: Any) -> dict[str, Any]:
    found = outcome(strategy="partition", reason="REQUESTED", rows_in=0, version=4, **changes)
    return {**found, "outcome": {**found["outcome"], "partition": key}}


def ended(done: int = 0, failed: list[str] | None = None, stale: list[str] | None = None) -> dict[str, Any]:
    failures = [{"table": "spend", "partition": key, "error": ERROR} for key in failed or []]
    return {"type": "backfill", "done": [{}] * done, "failed": failures, "left": [], "stale": stale or []}


def test_it_asks_for_a_range_and_prints_the_plan_each_partition_and_a_sentence(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.answers["backfill"] = [
        planned(chunk("2026-11-01"), chunk("2026-11-02", "skip", "it is done", "done"), chunk("2026-11-03")),
        replaced("2026-11-01"),
        replaced("2026-11-03", state="FAILED", error=ERROR),
        ended(1, ["2026-11-03"]),
    ]

    assert run(["backfill", "spend", "--from", "2026-11-01", "--to", "2026-11-03"]) == 1

    ((kind, asked),) = fake_engine.asked
    assert len(asked.pop("id")) == 32
    assert (kind, asked) == (
        "backfill",
        {
            "tables": ["spend"],
            "ranges": [[None, "2026-11-01", "2026-11-03"]],
            "cascade": False,
            "again": False,
            "dry_run": False,
        },
    )
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "spend 2026-11-01 replace it is missing",
        "spend 2026-11-03 replace it is missing",
        "1 partitions are done and stay as they are",
        "2026-11-01 spend partition 0 in, 3 out version 4 1.2 s REQUESTED",
        "2026-11-03 spend failed 0 in, 3 out version 4 1.2 s",
        "SOURCE spend: its history is gone",
        "1 done, 1 failed, 0 left",
        "2026-11-03: SOURCE spend: its history is gone",
    ]


def test_a_dry_run_shows_the_whole_plan_and_json_all_of_it(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    chunks = [chunk("2026-11-02", "skip", "it is done", "done"), chunk("2026-11-03")]
    fake_engine.answers["backfill"] = [planned(*chunks)]

    assert run(["backfill", "spend", "--dry-run", "--cascade", "--again"]) == 0
    assert "2026-11-02" in capsys.readouterr().out
    assert run(["backfill", "spend", "--dry-run", "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {
        "plan": chunks, "outcomes": [], "done": [], "failed": [], "left": [], "stale": [],
    }  # fmt: skip
    assert fake_engine.asked[0][1]["ranges"] == [[None, None, None]]
    assert (fake_engine.asked[0][1]["cascade"], fake_engine.asked[0][1]["again"]) == (True, True)


def test_a_named_backfill_goes_on_where_one_of_its_name_stopped(shop: Path, fake_engine: FakeEngine) -> None:
    assert run(["backfill", "spend", "--id", "november"]) == 0

    assert (fake_engine.asked[0][1]["id"], fake_engine.asked[0][1]["resume"]) == ("november", True)


def test_partitions_that_became_stale_meanwhile_are_reported(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.answers["backfill"] = [planned(chunk("2026-11-03")), ended(1, stale=["2026-11-03"])]

    assert run(["backfill", "spend"]) == 0
    assert "1 done, 0 failed, 0 left; 1 of them stale" in capsys.readouterr().out


def test_it_goes_on_with_the_next_engine_and_gives_up_when_engines_end_in_vain(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.answers["backfill"] = [planned(chunk("2026-11-03")), EngineError("the engine ended.")]

    assert run(["backfill", "spend"]) == 1

    assert len(fake_engine.asked) == 4
    assert len({asked["id"] for _, asked in fake_engine.asked}) == 1
    assert [asked.get("resume", False) for _, asked in fake_engine.asked] == [False, True, True, True]
    assert "the engine ended" in capsys.readouterr().err
