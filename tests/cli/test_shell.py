"""The shell cuts at the semicolons that end statements, and at no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshline.cli.failures import CommandError
from freshline.cli.shell import converse, is_blank, one_statement, read_terminal, split_statements
from freshline.errors import EngineError, RequestError


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT ';'",
        'SELECT ";"',
        "SELECT `a;b` FROM t",
        "SELECT 'it''s; here'",
        r"SELECT 'a\';b'",
        "SELECT 1 -- one; two\n, 2",
        "SELECT 1 /* ; */ + 1",
        "SELECT 1 - 1, 4 / 2",
    ],
)
def test_a_semicolon_in_a_text_a_name_or_a_comment_ends_nothing(statement: str) -> None:
    assert split_statements(f"{statement}; SELECT 2") == ([statement], " SELECT 2")


@pytest.mark.parametrize("text", ["SELECT 'open;", 'SELECT "open;', "SELECT `open;", "SELECT /* open;"])
def test_a_statement_that_is_still_open_waits_for_more(text: str) -> None:
    assert split_statements(text) == ([], text)


@given(st.text(alphabet="ab';\"`-/*\\ \n", max_size=40))
def test_no_character_is_lost(text: str) -> None:
    statements, rest = split_statements(text)

    position = 0
    for statement in statements:
        position = text.index(statement, position) + len(statement)
    assert text.endswith(rest)
    assert position <= len(text) - len(rest)


def test_comments_are_no_statement() -> None:
    assert is_blank(" -- later\n /* or never */ ")
    assert not is_blank("-- now\nSELECT 1")


def test_one_statement_may_end_with_a_semicolon() -> None:
    assert one_statement("SELECT 1;") == "SELECT 1"
    assert one_statement("SELECT 1 -- one") == "SELECT 1 -- one"


@pytest.mark.parametrize("text", ["SELECT 1; SELECT 2", "", ";", "SELECT 'open"])
def test_several_statements_or_none_are_refused(text: str) -> None:
    with pytest.raises(RequestError):
        one_statement(text)


def test_a_mistake_ends_the_statement_and_not_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    def answer(statement: str) -> None:
        asked.append(statement)
        if statement == "failure":
            raise CommandError({"code": "QUERY", "message": "there is no such column"})
        if statement == "error":
            raise EngineError("the engine does not answer")
        if statement == "interrupt":
            raise KeyboardInterrupt

    converse(iter(["failure", "error", "interrupt", "last"]), answer)

    assert asked == ["failure", "error", "interrupt", "last"]
    assert capsys.readouterr().err.splitlines() == [
        "QUERY there is no such column",
        "ENGINE the engine does not answer",
        "CANCELLED cancelled.",
    ]


def test_a_statement_may_take_several_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines: Iterator[str | BaseException] = iter(
        ["SELECT 1", ", 2;", "SELECT", KeyboardInterrupt(), "SELECT 3; SELECT 4;", "\\q", "never"]
    )

    def typed(prompt: str) -> str:
        line = next(lines)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("builtins.input", typed)
    history = tmp_path / "state" / "sql_history"

    assert list(read_terminal(history)) == ["SELECT 1\n, 2", "SELECT 3", "SELECT 4"]
    assert history.stat().st_mode & 0o077 == 0
