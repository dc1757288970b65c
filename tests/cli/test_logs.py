"""`freshline logs`: several logs as one, in the order of time, and followed over a rotation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from freshline.cli.logs import FILES, in_order, read_lines, time_of
from freshline.cli.main import run


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    folder = tmp_path / ".freshline" / "local" / "logs"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-02 03:04:05 +0000 - dagster - x", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.25Z x", datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=UTC)),
        ("2026-01-02 05:04:05,125+02:00 x", datetime(2026, 1, 2, 3, 4, 5, 125_000, tzinfo=UTC)),
        (
            '{"time": "2026-01-02T03:04:05.250000Z", "level": "INFO"}',
            datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=UTC),
        ),
        ('{"event": "x", "timestamp": "2026-01-02T03:04:05Z"}', datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ('{"time": 7}', None),
        ("2026-13-02 03:04:05Z x", None),
        ("Traceback (most recent call last):", None),
        ("", None),
    ],
)
def test_a_line_begins_with_its_time_or_has_none(text, at):
    assert time_of(text) == at


def test_lines_without_a_time_stay_behind_their_own():
    engine = read_lines("engine", ["2026-01-01 00:00:01Z a", "  File x", "2026-01-01 00:00:05Z b"], None)
    daemon = read_lines("daemon", ["2026-01-01 00:00:03Z c"], None)

    assert [line.text.split()[-1] for line in in_order([engine, daemon])] == ["a", "x", "c", "b"]


def test_all_processes_are_one_view_and_one_can_be_chosen(logs, capsys):
    (logs / "engine.log").write_text("2026-01-01 00:00:01Z one\n2026-01-01 00:00:03Z three\n")
    (logs / "dagster-daemon.log").write_text("2026-01-01 00:00:02Z two\nnot ended")
    project = ["--project", str(logs)]

    assert run(["logs", *project]) == 0
    assert [line.split()[0] + line.split()[-1] for line in capsys.readouterr().out.splitlines()] == [
        "engineone",
        "daemontwo",
        "enginethree",
    ]
    assert run(["logs", "engine", "--lines", "1", "--json", *project]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "process": "engine",
        "at": "2026-01-01T00:00:03+00:00",
        "line": "2026-01-01 00:00:03Z three",
    }


def test_another_process_is_a_mistake_that_names_those_there_are(logs, capsys):
    assert run(["logs", "scheduler", "--project", str(logs)]) == 1
    assert ", ".join(FILES) in capsys.readouterr().err


@pytest.mark.seconds
def test_following_goes_on_over_a_log_that_was_moved_away(logs):
    file = logs / "watch.log"
    file.write_text("first\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "freshline.cli.main", "logs", "watch", "-f", "--project", str(logs)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        with file.open("a") as more:
            more.write("second\n")
        assert process.stdout.readline() == "second\n"
        file.rename(logs / "watch.log.1")
        file.write_text("third\n")
        assert process.stdout.readline() == "third\n"
    finally:
        process.terminate()
        process.wait(10)
