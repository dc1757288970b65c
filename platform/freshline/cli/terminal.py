"""The size of a terminal: how wide it is, and whether a text is too long for it."""

from __future__ import annotations

import shutil
import sys

import click

from freshline.report.table_text import wrapped_lines


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is, or of COLUMNS; None where there is neither: then nothing is fitted.

    A program that reads a pipe gets whole lines.
    """
    return shutil.get_terminal_size((0, 0)).columns or None


def show(text: str) -> None:
    """Print a text; one that is longer than the terminal goes through the pager (PAGER, or less).

    Without a terminal, and with PAGER set to `cat`, it is printed.
    """
    if sys.stdin.isatty() and sys.stdout.isatty() and text.count("\n") + 2 > shutil.get_terminal_size().lines:
        click.echo_via_pager(text)
    else:
        click.echo(text)


def tell(text: str, *, err: bool = False) -> None:
    """Print sentences, wrapped at words where they are longer than the terminal is wide."""
    click.echo(wrapped_lines(text, terminal_width()), err=err)
