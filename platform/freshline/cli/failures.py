"""How a mistake reaches a person and a program: one line on stderr, or one JSON object on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import click

from freshline.errors import DeclarationErrors, FreshlineError
from freshline.report.table_text import printable

FAILED = 1
MISUSED = 2  # a command line that cannot be read, as of most programs
CANCELLED = 130  # what a shell gives a command that Ctrl-C ended


class CommandError(Exception):
    """An error as its JSON object, whoever raised it: this process, or the engine that reported it."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.error = dict(error)
        super().__init__(str(error.get("message")))

    @classmethod
    def of(cls, error: FreshlineError) -> CommandError:
        """The failure of a command by an error of this process."""
        value = error.as_json()
        if isinstance(error, DeclarationErrors):
            value["message"] = f"{len(error.errors)} declarations are wrong"
        return cls(value)

    @classmethod
    def system(cls, error: OSError) -> CommandError:
        """The refusal of the operating system, in its own words."""
        return cls({"code": "SYSTEM", "message": f"{error.strerror or error}.", "where": error.filename})

    def lines(self) -> list[str]:
        """One line an error: the code, the place and the sentence."""
        return [line_of(error) for error in self.error.get("errors") or [self.error]]


def line_of(error: Mapping[str, Any]) -> str:
    """`CODE place: sentence` on one line; the rule stands beside the code of a declaration error."""
    code = f"{error.get('code', 'FRESHLINE')}/{error['rule']}" if error.get("rule") else error.get("code", "FRESHLINE")
    where = f" {error['where']}:" if error.get("where") else ""
    sentence = " ".join(str(error.get("message", "")).split())
    # Names, places and samples come from declarations and data: they must not be able to move the cursor.
    return printable(f"{code}{where} {sentence}")


def usage_failure(error: click.ClickException) -> CommandError:
    """A command line that cannot be read, with the way to its help."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context is not None else "freshline"
    return CommandError({"code": "USAGE", "message": f"{error.format_message()} See {path} --help.", "where": None})


def report(failure: CommandError, as_json: bool, exit_code: int) -> int:
    """Print the failure and return the exit code."""
    if as_json:
        click.echo(json.dumps({"error": failure.error}, default=str))
    else:
        for line in failure.lines():
            click.echo(line, err=True)
    return exit_code


def name_beside(errors: Iterable[FreshlineError]) -> None:
    """Print what is wrong beside what a command does, on stderr: what it does must be right all the same."""
    for error in errors:
        for line in CommandError.of(error).lines():
            click.echo(line, err=True)
