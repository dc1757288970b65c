"""refresh, tick, verify and sql: what they ask of the engine, and how they show its answers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from freshline.cli.main import run
from tests.cli.conftest import FakeEngine

OUTCOME = {
    "table": "spend", "kind": "table", "state": "SUCCEEDED", "mode": "incremental", "strategy": "full",
    "reason": "NO_KEY", "version": 3, "rows_in": 1200, "rows_out": 3, "rejected": 0,
    "seconds": 1.25, "data_timestamp": None, "error": None, "problems": [],
}  # fmt: skip
EQUAL = {"table": "spend", "equal": True, "missing": 0, "extra": 0, "unverified": 0, "version": 3, "seconds": 0.5}


def outcome(**changes: Any) -> dict[str, Any]:
    return {"type": "outcome", "outcome": {**OUTCOME, **changes}}


def verification(**changes: Any) -> dict[str, Any]:
    return {"type": "verification", "verification": {**EQUAL, "samples": [], **changes}}


def rows(columns: list[list[str]], *texts: str) -> dict[str, Any]:
    return {"type": "rows", "columns": columns, "rows": list(texts)}


def done(state: str, error: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "done", "state": state, "error": error}


def test_refresh_asks_for_everything_and_prints_a_line_a_table(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    log = outcome(table="orders", strategy="append", reason="4 new rows", rejected=2, rows_in=6, rows_out=4, version=0)
    fake_engine.answers["refresh"] = [{"type": "progress", "table": "orders", "message": "reading"}, log, outcome()]

    assert run(["refresh"]) == 0

    assert fake_engine.asked == [("refresh", {"tables": [], "full": False, "partitions": [], "upstreams": True})]
    assert capsys.readouterr().out.splitlines() == [
        "orders                    append      6 in, 4 out, 2 rejected   version 0      1.2 s  4 new rows",
        "spend                     full        1,200 in, 3 out           version 3      1.2 s  NO_KEY",
    ]
    assert fake_engine.cancelled == 0


def test_refresh_as_json_is_one_list(shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    fake_engine.answers["refresh"] = [outcome(), outcome(table="other")]

    assert run(["refresh", "--json"]) == 0
    assert [o["table"] for o in json.loads(capsys.readouterr().out)] == ["spend", "other"]


def test_partitions_are_handed_on_and_upstreams_left_alone(shop: Path, fake_engine: FakeEngine) -> None:
    run(["refresh", "spend", "--partition", "ds=2026-11-01", "--partition", "ds=2026-11-02,region=a,b"])

    assert fake_engine.asked[0][1] == {
        "tables": ["spend"],
        "full": False,
        "partitions": [[["ds", "2026-11-01"]], [["ds", "2026-11-02"], ["region", "a,b"]]],
        "upstreams": False,
    }


def test_full_and_only_are_handed_on(shop: Path, fake_engine: FakeEngine) -> None:
    run(["refresh", "spend", "orders", "--full", "--only"])

    assert fake_engine.asked[0][1] == {
        "tables": ["spend", "orders"],
        "full": True,
        "partitions": [],
        "upstreams": False,
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--partition", "ds=1"], "name that table"),
        (["a", "b", "--partition", "ds=1"], "name that table"),
        (["a", "--partition", "ds"], "is not a partition"),
        (["a", "--partition", "=1"], "is not a partition"),
        (["a", "--partition", "ds=1", "--full"], "leave out"),
        (["--full"], "name them"),
    ],
)
def test_a_request_that_makes_no_sense_starts_no_engine(
    arguments: list[str], sentence: str, shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["refresh", *arguments]) == 1
    assert sentence in capsys.readouterr().err
    assert not fake_engine.running


def test_a_table_that_somebody_suspended_is_no_failure(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.answers["refresh"] = [
        outcome(state="SKIPPED", reason="SKIPPED(suspended)"),
        outcome(table="other", state="BLOCKED", reason="BLOCKED(spend, suspended)"),
    ]

    assert run(["refresh"]) == 0
    assert "blocked" in capsys.readouterr().out


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "FAILED", "error": {"code": "QUERY", "message": "no column b.", "where": "spend"}},
        {"state": "BLOCKED"},
        {"state": "CANCELLED"},
        {"problems": [{"code": "FILE_CHANGED", "message": "a.csv changed.", "where": "orders"}]},
    ],
)
def test_a_refresh_that_did_not_go_well_is_reported_below_its_line_and_exits_1(
    changes: dict[str, Any], shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.answers["refresh"] = [outcome(**changes), outcome(table="other")]

    assert run(["refresh"]) == 1

    lines = capsys.readouterr().out.splitlines()
    errors = [changes.get("error"), *changes.get("problems", [])]
    told = [f"    {e['code']} {e['where']}: {e['message']}" for e in errors if e]
    assert lines[1 : 1 + len(told)] == told
    assert lines[-1].startswith("other")


def test_an_error_of_the_whole_request_is_one_line(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    error = {"code": "REQUEST", "message": "there is no table spent. Did you mean spend?", "where": None}
    fake_engine.answers["refresh"] = [done("FAILED", error)]

    assert run(["refresh", "spent"]) == 1
    assert capsys.readouterr().err == "REQUEST there is no table spent. Did you mean spend?\n"


def test_ctrl_c_cancels_the_request_and_exits_130(shop: Path, fake_engine: FakeEngine) -> None:
    fake_engine.answers["refresh"] = [outcome(), KeyboardInterrupt()]

    assert run(["refresh"]) == 130
    assert fake_engine.cancelled == 1


def test_a_request_that_somebody_else_cancelled_exits_130(shop: Path, fake_engine: FakeEngine) -> None:
    fake_engine.answers["tick"] = [done("CANCELLED")]

    assert run(["tick"]) == 130


def test_wrong_declarations_are_reported_before_an_engine_is_started(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "assets" / "spend.sql").write_text("CREATE MATERIALIZED TABLE spend AS SELECT 1 AS a FROM nothing;")
    (shop / "assets" / "other.sql").write_text("SELECT")

    assert run(["refresh"]) == 1

    assert not fake_engine.running
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("DECLARATION/SYNTAX assets/other.sql:1: ")
    assert lines[1].startswith("DECLARATION/UNKNOWN_UPSTREAM assets/spend.sql:1: ")


def test_a_tick_with_nothing_due_says_so(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tick"]) == 0
    assert capsys.readouterr().out == "nothing to do\n"
    assert run(["tick", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert fake_engine.asked == [("tick", {}), ("tick", {})]


def test_verify_exits_0_when_all_are_equal(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.answers["verify"] = [verification(), verification(table="other")]

    assert run(["verify"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "spend                     equal         0.5 s",
        "other                     equal         0.5 s",
    ]
    assert fake_engine.asked == [("verify", {"tables": [], "partitions": []})]


def test_verify_of_a_partition_is_of_one_named_table(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.answers["verify"] = [verification()]

    assert run(["verify", "spend", "--partition", "ds=2026-11-01,r=a"]) == 0
    assert run(["verify", "--partition", "ds=2026-11-01"]) == 1

    assert "name that table, and no other" in capsys.readouterr().err
    assert fake_engine.asked == [("verify", {"tables": ["spend"], "partitions": [[["ds", "2026-11-01"], ["r", "a"]]]})]


def test_verify_exits_1_and_shows_samples_when_one_differs(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.answers["verify"] = [
        verification(equal=False, missing=1, extra=2, samples=['extra {"a":1}']),
        verification(),
    ]

    assert run(["verify", "spend"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("1 missing, 2 extra")
    assert lines[1] == '    extra {"a":1}'

    assert run(["verify", "--json"]) == 1
    assert [v["equal"] for v in json.loads(capsys.readouterr().out)] == [False, True]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"unverified": 7, "detail": "some versions are gone"},
            "unverified    0.5 s  7 unverified, some versions are gone",
        ),
        ({"error": "NO_VERSION: no version yet"}, "failed        0.5 s  NO_VERSION: no version yet"),
    ],
)
def test_a_table_that_cannot_be_verified_is_not_equal(
    changes: dict[str, Any],
    words: str,
    shop: Path,
    fake_engine: FakeEngine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake_engine.answers["verify"] = [verification(equal=False, **changes)]

    assert run(["verify"]) == 1
    assert capsys.readouterr().out.split(maxsplit=1) == ["spend", f"{words}\n"]


def test_sql_prints_a_table_or_the_rows_as_json(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = [["customer", "string"], ["total", "decimal(20,2)"]]
    fake_engine.answers["sql"] = [rows(columns, '{"customer":"ada","total":27.250000000000000001}')]

    assert run(["sql", "SELECT * FROM spend;"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "customer                  total",
        "ada       27.250000000000000001",
        "(1 row)",
    ]
    assert fake_engine.asked == [("sql", {"statement": "SELECT * FROM spend", "limit": 2**31 - 2})]

    assert run(["sql", "SELECT * FROM spend", "--json"]) == 0
    assert capsys.readouterr().out == '[{"customer":"ada","total":27.250000000000000001}]\n'


def test_sql_over_versions_that_agree_says_so_to_the_engine(shop: Path, fake_engine: FakeEngine) -> None:
    fake_engine.answers["sql"] = [rows([["n", "int"]], '{"n":1}')]

    assert run(["sql", "--snapshot", "SELECT 1 AS n"]) == 0

    assert fake_engine.asked == [("sql", {"statement": "SELECT 1 AS n", "limit": 2**31 - 2, "snapshot": True})]


def test_a_limit_is_reported_when_there_are_more_rows(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.answers["sql"] = [rows([["a", "int"]], '{"a":1}', '{"a":2}', '{"a":3}')]

    assert run(["sql", "--limit", "2", "SELECT a FROM t"]) == 0

    out, err = capsys.readouterr()
    assert fake_engine.asked[0][1]["limit"] == 3
    assert out.splitlines()[-1] == "(2 rows)"
    assert "more rows" in err


def test_statements_of_a_pipe_run_one_after_the_other_until_a_mistake(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1; -- one\nSELECT 2"))
    assert run(["sql"]) == 0
    assert [arguments["statement"] for _, arguments in fake_engine.asked] == ["SELECT 1", "-- one\nSELECT 2"]

    fake_engine.asked.clear()
    fake_engine.answers["sql"] = [done("FAILED", {"code": "REQUEST", "message": "queries only."})]
    monkeypatch.setattr("sys.stdin", io.StringIO("DROP TABLE a; SELECT 2;"))
    assert run(["sql"]) == 1
    assert len(fake_engine.asked) == 1
    assert capsys.readouterr().err == "REQUEST queries only.\n"


def test_an_engine_that_is_gone_in_the_middle_is_an_error(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(self: FakeEngine, kind: str, **arguments: Any) -> Iterator[Mapping[str, Any]]:
        yield from ()

    monkeypatch.setattr(type(fake_engine), "run", nothing)

    assert run(["tick"]) == 1
    assert capsys.readouterr().err.startswith("ENGINE the engine ended before it answered.")
