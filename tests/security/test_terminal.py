"""No text of a declaration, of data or of a log moves the cursor of a terminal, or names its window."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from freshline.cli.backfill import chunk_lines, plan_lines, result_lines
from freshline.cli.failures import CommandError, line_of
from freshline.cli.logs import Line, _show
from freshline.cli.main import run
from freshline.cli.progress import Progress
from freshline.cli.refresh import outcome_lines
from freshline.cli.refreshes import refreshes_text
from freshline.cli.status import status_text
from freshline.cli.verify import verification_lines
from freshline.errors import RefreshError
from freshline.report.rows_text import rows_text
from freshline.report.status import TableStatus
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State

pytestmark = pytest.mark.security

# Clears the screen, names the window, answers with what was typed, writes backwards, overwrites the line.
ODD = "a\x1b[2J b\x1b]0;owned\x07 c\x9b6n d\u202ee\u2066 f\rg\x08 h\x7f"
PARTITION = {"table": "t", "strategy": None, "state": "FAILED", "version": 1, "rows_in": 1, "rows_out": 1} | {
    "seconds": 1.0, "reason": ODD, "error": {"message": ODD}, "problems": [],
}  # fmt: skip
SHOWN: dict[str, Callable[[], str]] = {
    "an error": lambda: "\n".join(CommandError.of(RefreshError(ODD, where=ODD)).lines()),
    "an error of the engine": lambda: line_of({"code": ODD, "message": ODD, "where": ODD, "rule": ODD}),
    "an outcome": lambda: "\n".join(
        outcome_lines(
            {
                "table": ODD,
                "strategy": None,
                "state": "FAILED",
                "version": 1,
                "rows_in": 1,
                "rows_out": 1,
                "seconds": 1.0,
            }
            | {"reason": ODD, "error": {"message": ODD}, "problems": [{"message": ODD}]}
        )
    ),
    "rows": lambda: rows_text([("a", "string"), ("b", "string")], [f'{{"a":{as_json()},"b":[{as_json()}]}}']),
    "names of columns": lambda: rows_text([(ODD, "string")], [f'{{{as_json()}:"1"}}']),
    "the plan of a backfill": lambda: "\n".join(
        plan_lines([{"table": "t", "partition": ODD, "action": "compute", "why": ODD}], whole=True)
    ),
    "a partition of a backfill": lambda: "\n".join(chunk_lines({**PARTITION, "partition": ODD})),
    "the end of a backfill": lambda: "\n".join(
        result_lines(
            {
                "done": [],
                "left": [],
                "stale": [],
                "failed": [{"table": "t", "partition": ODD, "error": {"message": ODD}}],
            }
        )
    ),
    "a verification": lambda: "\n".join(
        verification_lines(
            {
                "table": "t",
                "equal": False,
                "missing": 1,
                "extra": 0,
                "error": ODD,
                "detail": ODD,
                "samples": [ODD, {ODD: ODD}],
            }
        )
    ),
    "records of refreshes": lambda: refreshes_text([recorded()]),
    "how tables stand": lambda: status_text([standing()], datetime(2026, 1, 1, tzinfo=UTC)),
}


def recorded() -> RefreshResult:
    """A refresh that failed for an odd reason."""
    return RefreshResult(
        table=TableName.parse("t"), at=datetime(2026, 1, 1, tzinfo=UTC), state=State.FAILED, strategy=ODD, reason=ODD,
        version=None, rows_in=0, rows_out=0, seconds=1.0,
    )  # fmt: skip


def standing() -> TableStatus:
    """A table of which everything that others may have written is odd."""
    return TableStatus(
        table=TableName.parse("orders"),
        kind="log",
        mode="incremental",
        mode_reason=ODD,
        freshness_seconds=60,
        data_timestamp=None,
        lag_seconds=None,
        state="FAILED",
        version=None,
        rows=None,
        quarantined=None,
        last_refresh=None,
        error={"code": "STORAGE", "message": ODD, "where": ODD},
        problems=(ODD,),
        paused=ODD,
        feasible=False,
        feasible_reason=ODD,
        watermark=datetime(2026, 1, 1, tzinfo=UTC),
        watermark_held_by=(ODD,),
    )


def as_json() -> str:
    return json.dumps(ODD)


@pytest.mark.parametrize("what", SHOWN)
def test_shown_text_is_printable(what: str) -> None:
    assert_harmless(SHOWN[what]())


def assert_harmless(text: str) -> None:
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines), [line for line in lines if not line.isprintable()]
    assert "owned" in text


def test_a_line_of_a_log_is_printable(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.utils, "should_strip_ansi", lambda *_: False)
    line = Line("engine", None, f"\tat {ODD}")
    _show(line, ("engine",), as_json=False)
    _show(line, ("engine", "watch"), as_json=False)

    assert_harmless(capsys.readouterr().out)


def test_a_message_of_progress_is_printable() -> None:
    stream = io.StringIO()
    with Progress(stream, patience_seconds=0.0) as progress:
        progress(ODD)

    assert_harmless(stream.getvalue())


def test_a_declaration_with_odd_signs_is_refused_in_a_harmless_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(click.utils, "should_strip_ansi", lambda *_: False)
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    (tmp_path / "assets").mkdir()
    text = f"CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '{ODD}' HOUR AS SELECT 1 AS a"
    (tmp_path / "assets" / "t.sql").write_text(text, encoding="utf-8", newline="")

    assert run(["plan", "--project", str(tmp_path)]) == 1
    assert_harmless(capsys.readouterr().err)
