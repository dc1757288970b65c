"""The recording of the demo is an asciicast, and the script that makes such shows what a terminal was sent."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.scripts import load_script

DOCS = Path(__file__).parents[2] / "platform" / "docs"
RECORDINGS = sorted((DOCS / "recordings").glob("*.cast"))


@pytest.fixture(scope="module")
def recording() -> ModuleType:
    return load_script(DOCS / "recording.py")


def read(file: Path) -> tuple[dict[str, Any], list[tuple[float, str, str]]]:
    """The header and the events. Raises ValueError for a line that is no JSON."""
    header, *events = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    return header, [tuple(event) for event in events]


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.name)
def test_a_recording_is_an_asciicast_of_version_2(file: Path) -> None:
    header, events = read(file)

    assert (header["version"], type(header["width"]), type(header["height"])) == (2, int, int)
    assert set(header) <= {"version", "width", "height", "idle_time_limit", "title", "env"}
    times = [at for at, _, _ in events]
    assert times == sorted(times)
    assert {kind for _, kind, _ in events} == {"o"}
    assert file.stat().st_size < 300_000


def test_the_demo_that_is_recorded_ended_well() -> None:
    header, events = read(DOCS / "recordings" / "demo.cast")
    shown = "".join(text for _, _, text in events)

    assert header["title"] == "freshline demo --once"
    assert "portion 10 of 10" in shown
    assert "6 of 6 are equal to their queries" in shown


def test_the_output_of_a_command_is_recorded_with_its_exit_code(recording: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "a.cast"
    program = "import os, sys; print(sys.stdout.isatty(), *os.get_terminal_size(), 'größe \\x1b[1m日本'); sys.exit(3)"

    assert recording.record([sys.executable, "-c", program], file) == 3

    header, events = read(file)
    assert (header["width"], header["height"]) == (100, 30)
    assert "".join(text for _, _, text in events) == "True 100 30 größe \x1b[1m日本\r\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.cast"]


@pytest.mark.seconds
def test_a_line_that_is_drawn_again_as_it_was_is_recorded_once(recording: ModuleType, tmp_path: Path) -> None:
    # With the time that the reader needs between two of them.
    program = "for text in ('a', 'a', 'b'): print(f'\\r\\x1b[2K{text}', end='', flush=True); time.sleep(0.5)"

    assert recording.record([sys.executable, "-c", f"import time\n{program}"], tmp_path / "a.cast") == 0

    assert [text for _, _, text in read(tmp_path / "a.cast")[1]] == ["\r\x1b[2Ka", "\r\x1b[2Kb"]


def test_a_command_that_shows_nothing_has_a_header_alone(recording: ModuleType, tmp_path: Path) -> None:
    assert recording.record(["true"], tmp_path / "a.cast") == 0

    assert read(tmp_path / "a.cast")[1] == []
