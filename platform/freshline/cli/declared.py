"""The declarations as commands read them: what is right counts, and what is wrong is named on stderr."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import click

from freshline.cli.failures import name_beside
from freshline.declare.graph import Graph
from freshline.errors import RequestError
from freshline.plan import valid_project
from freshline.report.table_text import printable
from freshline.values.names import TableName
from freshline.values.settings import Settings


def open_declared(settings: Settings, wanted: Collection[str] = ()) -> Graph:
    """The declarations without mistakes.

    Raises DeclarationErrors where one of the `wanted` tables has a mistake or reads one that has, and for mistakes that
    are in no declaration of the folder.
    """
    return valid_project.open_graph(settings, wanted, lambda error: name_beside([error]))


def find_declared(graph: Graph, name: TableName) -> TableName:
    """The name of a table or source as it is declared. Raises RequestError where none has it."""
    return graph.require(name).name


def parse_name(text: str) -> TableName:
    """The name that a person typed. Raises RequestError for what is none."""
    try:
        return TableName.parse(text)
    except ValueError as error:
        raise RequestError(str(error)) from error


@contextmanager
def named_mistakes() -> Iterator[None]:
    """Within it the mistakes that functions of the library log are named on stderr, each on one line."""
    handler = _Named()
    valid_project.LOG.addHandler(handler)
    before, valid_project.LOG.propagate = valid_project.LOG.propagate, False
    try:
        yield
    finally:
        valid_project.LOG.propagate = before
        valid_project.LOG.removeHandler(handler)


class _Named(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(printable(" ".join(record.getMessage().split())), err=True)
