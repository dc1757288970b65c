"""The SQL shell: statements from a terminal or a pipe, cut at semicolons.

Lines are read until a `;` that ends a statement: one in a text, a quoted name or a comment does not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from freshline.cli.failures import CommandError, line_of
from freshline.errors import CancelledError, FreshlineError, RequestError

PROMPT = "freshline> "
MORE = "        -> "
QUIT = ("\\q", "quit", "exit")

# A semicolon may hide in texts with either quote and Spark's backslash escapes, in quoted names and in comments.
_PIECE = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*(?:\n|\Z)|/\*.*?\*/|;|[^'"`;/-]+|.""", re.DOTALL
)


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements that a `;` ends, and what follows them.

    >>> split_statements("SELECT ';' AS a; SELECT 2; SELECT")
    (["SELECT ';' AS a", 'SELECT 2'], ' SELECT')
    >>> split_statements("SELECT 1 -- not; yet")
    ([], 'SELECT 1 -- not; yet')
    >>> split_statements("SELECT 'open; ")
    ([], "SELECT 'open; ")
    """
    statements: list[str] = []
    start = 0
    position = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        assert match is not None  # the last alternative takes any character
        piece = match.group()
        if piece in ("'", '"', "`") or (piece == "/" and text.startswith("/*", position)):
            break  # opened and not closed yet: the rest belongs to it
        if piece == ";":
            statement = text[start:position].strip()
            if statement:
                statements.append(statement)
            start = match.end()
        position = match.end()
    return statements, text[start:]


def one_statement(text: str) -> str:
    """The one statement in the text, without its semicolon. Raises RequestError for none or several."""
    statements, rest = split_statements(f"{text}\n;")
    if len(statements) != 1 or rest.strip():
        raise RequestError(f"one statement at a time: this is {len(statements) or 'none'}.")
    return statements[0]


def is_blank(text: str) -> bool:
    """Whether the text has nothing but spaces and comments.

    >>> is_blank(" -- a word"), is_blank("SELECT")
    (True, False)
    """
    pieces = (match.group() for match in _PIECE.finditer(text))
    return all(piece.isspace() or piece.startswith(("--", "/*")) for piece in pieces)


def read_terminal(history: Path) -> Iterator[str]:
    """Statements typed at a prompt, until `\\q` or the end of input; Ctrl-C forgets what was typed."""
    import readline

    if history.is_file():
        readline.read_history_file(history)
    readline.set_history_length(1000)
    text = ""
    try:
        while True:
            try:
                line = input(MORE if text.strip() else PROMPT)
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                click.echo()
                text = ""
                continue
            if not text.strip() and line.strip().rstrip(";").lower() in QUIT:
                return
            statements, text = split_statements(f"{text}{line}\n")
            yield from statements
    finally:
        history.parent.mkdir(parents=True, exist_ok=True)
        history.touch(mode=0o600)
        readline.write_history_file(history)


def read_pipe() -> Iterator[str]:
    """Statements of the standard input; the last one needs no semicolon."""
    statements, rest = split_statements(sys.stdin.read())
    yield from statements
    if not is_blank(rest):
        yield rest.strip()


def converse(statements: Iterator[str], answer: Callable[[str], object]) -> None:
    """Answer each statement; a mistake or Ctrl-C ends that statement, not the shell."""
    for statement in statements:
        try:
            answer(statement)
        except KeyboardInterrupt:
            click.echo(line_of(CancelledError("cancelled.").as_json()), err=True)
        except FreshlineError as error:
            click.echo("\n".join(CommandError.of(error).lines()), err=True)
        except CommandError as failure:
            click.echo("\n".join(failure.lines()), err=True)
