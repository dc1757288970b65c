"""Tables of the project from assets of your own: refresh them, verify them, read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from dagster import ConfigurableResource

from freshline.dagster.project import FreshlineProject
from freshline.engine.savepoints import answers
from freshline.engine.tables import refresh_tables, verify_tables
from freshline.errors import RequestError
from freshline.report.results import ResultRows, VerifyResult
from freshline.values.result import RefreshResult
from freshline.values.settings import Settings

MOST_ROWS = 1_000


class FreshlineResource(ConfigurableResource[Any]):
    """The engine of a project, for assets of your own; it is started if none runs.

    `project` is the folder of the project or one below it (default: the working directory), `environment` one of its
    environments (default: that of FRESHLINE_ENV). A run that is cancelled takes its request back. Raises what the
    request failed with, and EngineError where the engine cannot be reached.
    """

    project: str | None = None
    environment: str | None = None

    def refresh(self, *tables: str, full: bool = False) -> tuple[RefreshResult, ...]:
        """Refresh these tables and what they read, or all that is due; `full` computes these from the beginning.

        A refresh that failed is a result with state FAILED and an `error`, and raises nothing. Raises RequestError for
        a table that is not there.
        """
        return refresh_tables(*tables, full=full, project=self._settings())

    def verify(self, *tables: str, partitions: Sequence[Mapping[str, object]] = ()) -> tuple[VerifyResult, ...]:
        """Compare these tables, or all, with a recompute of their query.

        `partitions` restricts it to partitions of the one named table, each a value by column.
        """
        return verify_tables(*tables, partitions=partitions, project=self._settings())

    def sql(self, statement: str, *, limit: int = MOST_ROWS) -> ResultRows:
        """The rows of a SELECT over tables and sources of the project, at most `limit`.

        Raises RequestError for a statement that returns no rows, and QueryError or EngineError as Spark fails.
        """
        found = answers(self._settings(), "sql", "rows", statement=statement, limit=limit)
        if not found:
            raise RequestError("the statement returned no rows: sql takes a SELECT.")
        return ResultRows(
            tuple((str(name), str(kind)) for name, kind in found[-1]["columns"]),
            tuple(json.loads(row, parse_float=Decimal) for row in found[-1]["rows"]),
            bool(found[-1]["truncated"]),
        )

    def _settings(self) -> Settings:
        return FreshlineProject(self.project, self.environment).settings
