"""The options that every command has, and the project that they lead to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from freshline.declare.project_settings import find_project, read_settings
from freshline.values.settings import Settings

_SHORT = re.compile(r"\s*(\d+)\s*(s|min|m|h|d)\s*", re.IGNORECASE)
_UNITS = {"s": "seconds", "min": "minutes", "m": "minutes", "h": "hours", "d": "days"}

Function = TypeVar("Function", bound=Callable[..., Any])


def project_option(function: Function) -> Function:
    """`--project DIR`, handed on as `project`."""
    return click.option(
        "--project",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="DIR",
        help="The project, or a folder below it.  [default: the current folder]",
    )(function)


def json_option(function: Function) -> Function:
    """`--json`, handed on as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


def open_settings(project: Path | None, environment: str | None = None) -> Settings:
    """The settings of the project that the folder is in, or the current folder. Raises SettingsError.

    `environment` in place of the one that FRESHLINE_ENV names.
    """
    chosen = {} if environment is None else {"FRESHLINE_ENV": environment}
    return read_settings(find_project(project), {**os.environ, **chosen})


def written_out(duration: str) -> str:
    """A duration as it is typed, with its unit written out; another text stays as it is.

    >>> written_out("48h"), written_out("5 min"), written_out("PT5S")
    ('48 hours', '5 minutes', 'PT5S')
    """
    short = _SHORT.fullmatch(duration)
    return duration if short is None else f"{short[1]} {_UNITS[short[2].lower()]}"
