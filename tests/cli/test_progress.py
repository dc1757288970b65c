"""Progress is silent for two seconds, then a live line on a terminal and plain lines elsewhere."""

from __future__ import annotations

import io

import pytest

from freshline.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_step_that_is_quick_shows_nothing() -> None:
    for stream in (io.StringIO(), Terminal()):
        with Progress(stream) as progress:
            progress("reading")
        assert stream.getvalue() == ""


def test_a_log_gets_each_message_once_on_a_line_of_its_own() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(stream, clock=clock) as progress:
        progress("reading")
        clock.now = 3.0
        progress("reading")
        progress("reading")
        progress("writing")

    assert stream.getvalue() == "reading\nwriting\n"


def test_seconds_in_a_message_make_no_new_line() -> None:
    stream = io.StringIO()
    with Progress(stream, patience_seconds=0.0) as progress:
        for second in range(3):
            progress(f"starting the engine ({second} s)")

    assert stream.getvalue() == "starting the engine\n"


def test_a_terminal_gets_one_line_that_is_taken_away_at_the_end() -> None:
    stream, clock = Terminal(), Clock()
    with Progress(stream, clock=clock) as progress:
        clock.now = 3.0
        progress("reading")
        shown = stream.getvalue()

    assert shown == "\r\x1b[2Kreading (3 s)"
    assert stream.getvalue().endswith("\r\x1b[2K")
    assert "\n" not in stream.getvalue()


def test_a_message_from_before_is_shown_when_patience_ends() -> None:
    stream = io.StringIO()
    with Progress(stream, patience_seconds=0.0) as progress:
        progress("reading")

    assert stream.getvalue() == "reading\n"


def test_an_answer_does_not_tear_the_live_line(capsys: pytest.CaptureFixture[str]) -> None:
    stream, clock = Terminal(), Clock()
    with Progress(stream, clock=clock) as progress:
        clock.now = 3.0
        progress("reading")
        progress.print("orders  append")
        assert stream.getvalue().endswith("\r\x1b[2K\r\x1b[2Kreading (3 s)")

    assert capsys.readouterr().out == "orders  append\n"


def test_a_line_of_the_answer_is_wrapped_at_words_where_a_terminal_is_narrower(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns, shown in (("18", "one two three four\n  five six\n"), ("0", "one two three four five six\n")):
        monkeypatch.setenv("COLUMNS", columns)
        with Progress(io.StringIO()) as progress:
            progress.print("one two three four five six")

        assert capsys.readouterr().out == shown
