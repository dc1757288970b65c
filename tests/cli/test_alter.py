"""Promises are changed from the command line, and every command that shows tables says so."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from freshline.cli.main import run
from freshline.commit.control_store import ControlStore
from freshline.declare.project import read_settings
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    return captured.out or captured.err


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    return json.loads(said(capsys, *arguments, "--json", code=code))


def shown(capsys: pytest.CaptureFixture[str], command: str) -> dict[str, Any]:
    return {line["table"]: line for line in told(capsys, command)}


def test_a_freshness_is_altered_shown_and_reset(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declared = shown(capsys, "plan")["spend"]["freshness_seconds"]

    answer = told(capsys, "alter", "SPEND", "--freshness", "5s", "--for", "48h")

    assert (answer["table"], answer["changed"], answer["changes"][0]["mode"]) == ("spend", True, "continuous")
    for command in ("plan", "status"):
        spend = shown(capsys, command)["spend"]
        assert (spend["freshness_seconds"], spend["mode"]) == (5, "continuous")
        assert spend["declared_freshness_seconds"] == declared
        assert spend["override"]["freshness_seconds"] == 5
        assert "spend: freshness 5 seconds in place of the declared" in said(capsys, command)
    assert shown(capsys, "status")["orders"]["freshness_seconds"] == 5

    said(capsys, "alter", "spend", "--reset")
    spend = shown(capsys, "status")["spend"]
    assert (spend["freshness_seconds"], spend["override"]) == (declared, None)
    assert "is the declared one" in said(capsys, "alter", "spend", "--reset")


def test_a_suspension_is_shown_until_it_is_resumed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "suspend", "spend", "--for", "2h", "--because", "wrong prices").startswith("suspended: spend")
    assert said(capsys, "suspend", "spend").startswith("already suspended: spend")
    for command in ("plan", "status"):
        assert shown(capsys, command)["spend"]["suspended"]["reason"] == "wrong prices"
        assert "spend: suspended by" in said(capsys, command)
    assert shown(capsys, "status")["spend"]["state"] == "SUSPENDED"

    assert told(capsys, "resume", "spend")["changed"]
    assert not told(capsys, "resume", "spend")["changed"]
    assert shown(capsys, "status")["spend"]["suspended"] is None


def test_every_decision_is_among_the_refreshes(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "refreshes") == "nothing was refreshed or decided yet\n"
    assert not (shop / ".freshline" / "local" / "control.db").exists()
    said(capsys, "alter", "spend", "--freshness", "5s")
    said(capsys, "suspend", "spend")
    said(capsys, "resume", "spend")

    assert [record["state"] for record in told(capsys, "refreshes", "spend")] == ["RESUMED", "SUSPENDED", "ALTERED"]
    assert [record["state"] for record in told(capsys, "refreshes", "--limit", "1")] == ["RESUMED"]
    assert told(capsys, "refreshes", "orders") == []
    assert "freshness 5 seconds, was" in said(capsys, "refreshes")


def test_checks_that_found_nothing_can_be_left_out(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ControlStore.open(read_settings(shop, os.environ).control_store)
    for number in range(30):
        store.record_refresh(
            RefreshResult(
                table=TableName.parse("orders"),
                at=datetime.now(UTC),
                state=State.SUCCEEDED,
                strategy="append" if number == 0 else "noop",
                reason="",
                seconds=1.0,
                version=0,
                fingerprint="f",
                committed=number == 0,
            )
        )
    store.close()

    assert len(told(capsys, "refreshes")) == 20
    assert [record["strategy"] for record in told(capsys, "refreshes", "--changes")] == ["append"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("alter", "spent", "--freshness", "5s"), "there is no table spent. Did you mean spend?"),
        (("alter", "orders", "--freshness", "5s"), "orders is a source"),
        (("alter", "spend", "--freshness", "0s"), "0 seconds is not a freshness"),
        (("alter", "spend", "--freshness", "5s", "--for", "-1h"), "-1h is not a duration"),
        (("alter", "spend"), "either --freshness, or --reset"),
        (("alter", "spend", "--freshness", "5s", "--reset"), "either --freshness, or --reset"),
        (("alter", "spend", "--reset", "--for", "1h"), "leave out --for"),
        (("suspend", "nothere"), "there is no table nothere"),
        (("resume", "nothere"), "there is no table nothere"),
        (("refreshes", "spent"), "there is no table or source spent. Did you mean spend?"),
    ],
)
def test_a_mistake_is_one_line(
    shop: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    line = said(capsys, *arguments, code=1)

    assert line.startswith("REQUEST")
    assert sentence in line
    assert len(line.splitlines()) == 1


def test_a_freshness_below_what_drives_it_names_that_and_changes_nothing(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "assets" / "top.sql").write_text(
        "CREATE MATERIALIZED TABLE top FRESHNESS = INTERVAL '3' DAY AS SELECT customer FROM spend"
    )

    error = told(capsys, "alter", "top", "--freshness", "1s", code=1)["error"]

    assert (error["code"], error["where"], list(error["inputs"])) == ("FRESHNESS", "top", ["spend"])
    assert shown(capsys, "status")["top"]["override"] is None
    assert len(told(capsys, "alter", "top", "--freshness", "1s", "--cascade")["changes"]) == 2
