"""Union read: a table as it is stored, and what its source has beside that, up to an end that is fixed first.

The token says what was read: the version that is stored, and the positions in the source from and to which the rest
goes. Reading with the same token gives the same rows again. Everything here comes from the arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from freshline.errors import RequestError
from freshline.query.query import read_query
from freshline.query.rules.append import find_branches
from freshline.values.names import TableName
from freshline.values.position import Position, TablePosition, position_from_json
from freshline.values.query import SqlQuery
from freshline.values.reason import Reason
from freshline.values.spec import SourceSpec, Spec

FORMAT = 1


@dataclass(frozen=True)
class UnionToken:
    """The position of a union read.

    `version` is the stored version of `table`, and `log` that of the log table behind it (the same for a log table), of
    which the table has folded all batches up to number `folded`. `start` and `end` are positions in the log's source:
    all before `start` is in the log. `at` is when it was planned.
    """

    table: TableName
    version: TablePosition
    log: TablePosition
    start: Position
    end: Position
    folded: int
    at: datetime

    def as_json(self) -> dict[str, Any]:
        return {
            "freshline_union": FORMAT,
            "table": str(self.table),
            "v": self.version.as_json(),
            "log": self.log.as_json(),
            "from": self.start.as_json(),
            "to": self.end.as_json(),
            "folded": self.folded,
            "at": self.at.isoformat(),
        }

    @classmethod
    def parse(cls, value: str | Mapping[str, Any]) -> UnionToken:
        """The inverse of `as_json`, also of its text. Raises RequestError for what is no token."""
        try:
            found = json.loads(value) if isinstance(value, str) else value
            if int(found["freshline_union"]) > FORMAT:
                raise RequestError("the token of the union read was made by a newer freshline. Use that one.")
            version, log = position_from_json(found["v"]), position_from_json(found["log"])
            if not isinstance(version, TablePosition) or not isinstance(log, TablePosition):
                raise ValueError(value)
            return cls(
                TableName.parse(found["table"]),
                version,
                log,
                position_from_json(found["from"]),
                position_from_json(found["to"]),
                int(found["folded"]),
                datetime.fromisoformat(found["at"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError(
                "this is no token of a union read. Give what an earlier union read returned, as it is."
            ) from error


def log_behind(spec: Spec, specs: Mapping[TableName, Spec]) -> SourceSpec:
    """The log table whose tail makes a table newer: itself, or the one that a table with a merge reads.

    Raises RequestError for every other table.
    """
    if isinstance(spec, SourceSpec):
        if spec.is_log:
            return spec
        raise RequestError(
            f"union_read of {spec.name}: it is read in place, so there is nothing beside it. Read it by its name."
        )
    reads = [specs[name] for name in spec.reads]
    log = reads[0] if len(reads) == 1 else None
    if spec.merge is None or not isinstance(log, SourceSpec) or not log.is_log or not isinstance(spec.query, SqlQuery):
        raise RequestError(
            f"union_read of {spec.name}: only log tables, and tables with a merge over one log table, can be read "
            "together with what has not arrived yet. Read it by its name."
        )
    query = read_query(spec.query)
    branches = find_branches(query)
    if isinstance(branches, Reason):
        why = query.volatile or str(branches)
        raise RequestError(f"union_read of {spec.name}: its query does more than choose rows and columns ({why}).")
    return log
