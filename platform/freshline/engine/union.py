"""Union read for programs: the engine reads, because it knows the sources and has their clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from freshline.engine.client import EngineClient
from freshline.engine.savepoints import Project, project_settings
from freshline.errors import CancelledError, error_from_json
from freshline.plan.union import UnionToken

_ALL_ROWS = 2**31 - 2  # the most that Spark can be asked for


@dataclass(frozen=True)
class UnionRows:
    """The result of a union read. `columns` are pairs of name and Spark type, `rows` have values as JSON has them."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[Mapping[str, Any], ...]
    token: Mapping[str, Any]


def read_union(
    name: str,
    *,
    token: Mapping[str, Any] | str | None = None,
    columns: str = "*",
    where: str | None = None,
    project: Project = None,
) -> UnionRows:
    """Read a log table, or a table with a merge over one, with what its source has beyond it.

    With the `token` of an earlier read the same rows again. `columns` and `where` are Spark SQL over the columns of the
    table; `project` is its settings or a folder in it, by default the current one. The engine is started where none
    runs. Raises RequestError for a table that cannot be read so, and the errors of the source and the engine.
    """
    texts = [name] if token is None else [name, json.dumps(UnionToken.parse(token).as_json())]
    statement = f"SELECT {columns} FROM union_read({', '.join(_literal(text) for text in texts)})"
    if where is not None:
        statement = f"{statement} WHERE {where}"
    client = EngineClient.connect(project_settings(project))
    found: UnionRows | None = None
    for event in client.run("sql", statement=statement, limit=_ALL_ROWS):
        if event["type"] == "rows":
            found = UnionRows(
                tuple((str(column), str(kind)) for column, kind in event["columns"]),
                tuple(json.loads(row, parse_float=Decimal) for row in event["rows"]),
                event["tokens"][0],
            )
        elif event["type"] == "done" and event.get("error"):
            raise error_from_json(event["error"])
    if found is None:
        raise CancelledError("the read was cancelled by somebody else")
    return found


def _literal(text: str) -> str:
    """A text of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
