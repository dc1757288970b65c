"""`freshline new`: the declaration of a source or a table, from options or from answers in a terminal.

A declaration is read with all others of the project before its file is written, so a file that is written can be
planned. A file that is there is never changed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from freshline.cli.declared import named_mistakes
from freshline.cli.options import json_option, open_settings, project_option, written_out
from freshline.declare.sample import csv_columns, json_columns
from freshline.errors import RequestError
from freshline.plan.valid_project import judge_change
from freshline.report.table_text import printable
from freshline.sql.drafts import SourceDraft, TableDraft
from freshline.sql.statement import read_columns
from freshline.sql.tokens import Text
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.registry import CONNECTORS, FORMATS, MERGES, ExtensionError, find_connector, find_merge
from freshline.values.settings import Settings
from freshline.values.spec import Column, Downstream

SAMPLES: Mapping[str, Callable[[Any], tuple[Column, ...]]] = {"json": json_columns, "csv": csv_columns}


class Questions:
    """Asks a person for what the command line leaves out. Where nobody can answer, it notes what is missing.

    A command line that has all that is needed asks nothing. One that lacks something is asked for the rest too.
    """

    def __init__(self, *, somebody: bool) -> None:
        self._somebody = somebody
        self._asked = False
        self.missing: list[str] = []

    def need(
        self, given: str | None, option: str, question: str, *, proposed: str | None = None, default: str | None = None
    ) -> str:
        """The value of an option that must have one; empty where it is missing.

        `default` is the value where nobody is asked, `proposed` is one for a person only.
        """
        if given is not None:
            return given
        if default is not None and not (self._somebody and self._asked):
            return default
        if not self._somebody:
            self.missing.append(option)
            return ""
        self._asked = True
        return str(click.prompt(question, default=default or proposed, err=True)).strip()

    def may(self, given: str | None, question: str) -> str | None:
        """The value of an option that may be left out, None where it is. It is asked for after another question."""
        if given is not None or not self._asked:
            return given
        return str(click.prompt(f"{question} (none)", default="", show_default=False, err=True)).strip() or None

    def require(self) -> None:
        """Raises UsageError with all that is missing."""
        if self.missing:
            raise click.UsageError(f"Missing {', '.join(self.missing)}. In a terminal the command asks for this.")


@click.group(epilog="\b\nExample:\n  freshline new table spend")
def command() -> None:
    """Write the declaration of a new source or table. In a terminal it asks for what the options leave out."""


@command.command(
    epilog="\b\nExample:\n  freshline new source orders --connector files --from orders.csv --key order_id"
)
@click.argument("name")
@click.option("--connector", metavar="NAME", help=f"The kind of the system: {', '.join(CONNECTORS)}.")
@click.option("--format", "record_format", metavar="NAME", help=f"How records are written: {', '.join(FORMATS)}.")
@click.option(
    "--columns", metavar="LIST", help="The columns with their types: 'order_id STRING, amount DECIMAL(10,2)'."
)
@click.option(
    "--from",
    "sample",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Read the columns off a sample of the records, a file .json or .csv.",
)
@click.option("--key", metavar="LIST", help="The columns of PRIMARY KEY.")
@click.option("--comment", metavar="TEXT", help="The comment.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option in WITH.")
@project_option
@json_option
def source(
    name: str,
    connector: str | None,
    record_format: str | None,
    columns: str | None,
    sample: Path | None,
    key: str | None,
    comment: str | None,
    options: tuple[str, ...],
    project: Path | None,
    as_json: bool,
) -> None:
    """Write the declaration of a source to a file of its name.

    The connector, its required options, the format and the columns are needed.
    """
    if columns is not None and sample is not None:
        raise click.UsageError("--columns and --from exclude each other. Name one.")
    settings = open_settings(project)
    table, given = _name(name), _pairs(options)
    _refuse_existing(settings, table)
    questions = Questions(somebody=_is_somebody_there())
    kind = questions.need(connector, "--connector", f"Connector ({', '.join(CONNECTORS)})", proposed="files")
    written = {"connector": kind, **_answered(questions, table, kind, record_format, sample, given)}
    found = () if sample is None else _sampled(sample)
    if sample is None:
        text = questions.need(columns, "--columns", "Columns, such as order_id STRING, amount DECIMAL(10,2)")
        found = _columns(text) if text else ()
    names = questions.may(key, "Columns of the primary key")
    said = questions.may(comment, "Comment")
    questions.require()
    _write(settings, table, SourceDraft(table, found, {**written, **given}, _names(names), said).sql(), as_json)


@command.command(
    epilog="\b\nExample:\n  freshline new table spend --freshness 5m --query 'SELECT customer, sum(amount) AS total "
    "FROM orders GROUP BY customer'"
)
@click.argument("name")
@click.option("--query", metavar="SQL", help="The query.")
@click.option("--freshness", metavar="TIME", help="How far it may lag, such as 5m, 6h or DOWNSTREAM.")
@click.option("--key", metavar="LIST", help="The columns of PRIMARY KEY.")
@click.option("--merge", metavar="NAME", help=f"Keep one row for each key: {', '.join(MERGES)}.")
@click.option("--comment", metavar="TEXT", help="The comment.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option in WITH.")
@project_option
@json_option
def table(
    name: str,
    query: str | None,
    freshness: str | None,
    key: str | None,
    merge: str | None,
    comment: str | None,
    options: tuple[str, ...],
    project: Path | None,
    as_json: bool,
) -> None:
    """Write the declaration of a table to a file of its name.

    The query and the freshness are needed.
    """
    settings = open_settings(project)
    named, given = _name(name), _pairs(options)
    _refuse_existing(settings, named)
    questions = Questions(somebody=_is_somebody_there())
    text = questions.need(query, "--query", "Query, such as SELECT customer, count(*) AS orders FROM orders GROUP BY 1")
    lag = questions.need(freshness, "--freshness", "Freshness, such as 30s, 5m, 6h", proposed="1h")
    names = questions.may(key, "Columns of the primary key")
    kind = questions.may(merge, f"Merge, one row for each key ({', '.join(MERGES)})")
    written = {} if kind is None else {"merge": kind, **_folded(questions, kind, given)}
    said = questions.may(comment, "Comment")
    questions.require()
    draft = TableDraft(named, text, _freshness(lag), _names(names), {**written, **given}, said)
    _write(settings, named, draft.sql(), as_json)


# -- answers


def _answered(
    questions: Questions,
    table: TableName,
    kind: str,
    record_format: str | None,
    sample: Path | None,
    given: Mapping[str, str],
) -> dict[str, str]:
    """The format of a source, and the options that its connector must have, as far as they are known."""
    if not kind:
        return {}
    try:
        connector = find_connector(kind)
    except ExtensionError as error:
        raise click.BadParameter(str(error), param_hint="--connector") from error
    found = {}
    if record_format is not None or (connector.is_log and connector.record_format is None):
        suffix = "" if sample is None else _suffix(sample)
        known = record_format or given.get("format") or (suffix if suffix in SAMPLES else None)
        found["format"] = questions.need(known, "--format", f"Format ({', '.join(FORMATS)})", proposed="json")
    for option in connector.options:
        if option.required and not option.is_beginning:
            # Files of this project have a folder of their own. Where other systems keep theirs, nobody can know.
            default = f"landing/{'/'.join(table.parts)}" if connector.has_lines and option.name == "path" else None
            question = f"{option.name}, {option.required}"
            value = given.get(option.name)
            found[option.name] = questions.need(value, f"--option {option.name}=..", question, default=default)
    return found


def _folded(questions: Questions, kind: str, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a merge that a person answers."""
    try:
        merge = find_merge(kind)
    except ExtensionError as error:
        raise click.BadParameter(str(error), param_hint="--merge") from error
    asked = [option for option in merge.options if not option.is_beginning]
    answers = {each.name: questions.may(given.get(each.name), f"{each.name}, {each.help}") for each in asked}
    return {name: answer for name, answer in answers.items() if answer is not None}


def _is_somebody_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _name(text: str) -> TableName:
    try:
        name = TableName.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    if any(part.startswith("_") for part in name.parts):
        # It could be planned as it is checked here, and never again.
        raise click.BadParameter(
            f"{name}: files and folders that begin with an underscore are skipped.", param_hint="NAME"
        )
    return name


def _pairs(options: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in options:
        name, sign, value = each.partition("=")
        if not sign or not name.strip():
            raise click.BadParameter(f"{each!r} is not NAME=VALUE.", param_hint="--option")
        found[name.strip().lower()] = value
    return found


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(name.strip() for name in text.split(","))


def _freshness(text: str) -> Freshness | Downstream:
    if text.strip().upper() == Downstream.DOWNSTREAM.value:
        return Downstream.DOWNSTREAM
    try:
        return Freshness.parse(written_out(text))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--freshness") from error


def _columns(text: str) -> tuple[Column, ...]:
    read = read_columns(Text(text, "--columns"))
    if read.primary_key or read.watermark or read.constraints:
        raise click.BadParameter(
            "these are columns only. Give a key in --key, and write WATERMARK and CONSTRAINT into the file.",
            param_hint="--columns",
        )
    return tuple(column.value for column in read.columns)


def _suffix(file: Path) -> str:
    return file.suffix.lower().removeprefix(".")


def _sampled(file: Path) -> tuple[Column, ...]:
    read = SAMPLES.get(_suffix(file))
    if read is None:
        raise RequestError(f"a sample is a file {' or '.join(f'.{name}' for name in SAMPLES)}.", where=str(file))
    try:
        # As a source reads it: a line ends at a line feed.
        with file.open(encoding="utf-8-sig", newline="\n") as lines:
            return read(lines)
    except UnicodeDecodeError as error:
        raise RequestError("the sample is not UTF-8.", where=str(file)) from error
    except ValueError as error:
        raise RequestError(f"the sample cannot be read: {error}", where=str(file)) from error


# -- the file


def _file(settings: Settings, table: TableName) -> Path:
    return settings.declarations.joinpath(*table.parts).with_suffix(".sql")


def _refuse_existing(settings: Settings, table: TableName) -> None:
    file = _file(settings, table)
    if os.path.lexists(file):
        raise _is_there(file)


def _is_there(file: Path) -> RequestError:
    said = f"there is {file.name} already; nothing was written. Edit it, or take another name."
    return RequestError(said, where=str(file))


def _write(settings: Settings, table: TableName, text: str, as_json: bool) -> None:
    """Write a declaration that can be planned with all others, or else raise DeclarationErrors and write nothing."""
    file = _file(settings, table)
    with named_mistakes():
        judge_change(settings, file, text)
    file.parent.mkdir(parents=True, exist_ok=True)
    # Half of it, or an empty file, would be a declaration with a mistake. No declaration has this ending.
    whole = file.with_name(f".{file.name}.{uuid4().hex}")
    try:
        whole.write_text(text, encoding="utf-8")
        os.link(whole, file)
    except FileExistsError:
        raise _is_there(file) from None
    finally:
        whole.unlink(missing_ok=True)
    if as_json:
        click.echo(json.dumps({"name": str(table), "file": str(file), "text": text}))
        return
    shown = "\n".join(map(printable, text.split("\n")))
    click.echo(f"Wrote {file}:\n\n{shown}\nNext:\n  freshline plan")
