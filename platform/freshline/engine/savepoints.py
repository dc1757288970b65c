"""Savepoints for programs: what `freshline savepoint` does, as functions.

All but reading is done in the engine, which is started where none runs.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from freshline.commit.savepoints import read_savepoints
from freshline.commit.warehouse import Warehouse
from freshline.declare.project_settings import find_project, read_settings
from freshline.engine.client import EngineClient
from freshline.errors import CancelledError, EngineError, error_from_json
from freshline.plan.savepoint import Savepoint
from freshline.report.results import RestoreResult, read_result
from freshline.values.settings import Settings

Project = Settings | Path | str | None


def create_savepoint(name: str, *, tables: Sequence[str] = (), project: Project = None) -> Savepoint:
    """Keep the state of all tables, or of these and of all that they depend on, under a name.

    `project` is a folder of the project (default: the one of the working directory) or its settings. Raises
    SavepointError where the name is in use, and what the engine raises.
    """
    return Savepoint.from_json(_ask(project, action="create", name=name, tables=list(tables)), name)


def restore_savepoint(name: str, *, project: Project = None) -> RestoreResult:
    """Bring the tables of a savepoint back to what they were.

    Raises SavepointError, SavepointGoneError, RestoreBusyError, and what the engine raises.
    """
    return read_result(RestoreResult, _ask(project, action="restore", name=name))


def drop_savepoint(name: str, *, project: Project = None) -> Savepoint:
    """Keep a savepoint no longer; returns it. Raises SavepointError for an unknown one, and what the engine raises."""
    return Savepoint.from_json(_ask(project, action="drop", name=name), name)


def savepoints(*, project: Project = None) -> tuple[Savepoint, ...]:
    """All savepoints, the oldest first; needs no engine."""
    return tuple(read_savepoints(Warehouse(project_settings(project).warehouse)))


def project_settings(project: Project) -> Settings:
    """The settings of a project: of these, of a folder below it, or of the working directory."""
    if isinstance(project, Settings):
        return project
    return read_settings(find_project(Path.cwd() if project is None else Path(project).absolute()), os.environ)


def answers(project: Project, kind: str, told: str, **arguments: Any) -> list[dict[str, Any]]:
    """The events of one type that the engine reports for a request.

    Raises what the request failed with, CancelledError, and EngineError where the engine ended before it had answered.
    """
    client = EngineClient.connect(project_settings(project))
    found: list[dict[str, Any]] = []
    with closing(cast(Generator[dict[str, Any]], client.run(kind, **arguments))) as events:
        for event in events:
            if event["type"] == told:
                found.append(event)
            elif event["type"] == "done" and event.get("error"):
                raise error_from_json(event["error"])
            elif event["type"] == "done" and event["state"] == "CANCELLED":
                raise CancelledError("the request was cancelled")
            elif event["type"] == "done":
                return found
    raise EngineError("the engine ended before it answered. Ask again: what was begun is finished by then.")


def _ask(project: Project, **arguments: Any) -> dict[str, Any]:
    (event,) = answers(project, "savepoint", "savepoint", **arguments)
    found: dict[str, Any] = event["savepoint"]
    return found
