"""Tables for programs: what `freshline refresh`, `verify` and the statements CREATE, ALTER and DROP do, as functions.

The work is done in the engine, which is started where none runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from freshline.engine.savepoints import Project, answers, project_settings
from freshline.errors import RequestError
from freshline.manage.declaration import DeclarationChange
from freshline.report.results import VerifyResult, read_result
from freshline.sql.managing import AlterQuery, Create, read_managing, read_start
from freshline.values.names import TableName
from freshline.values.partition import partition_texts
from freshline.values.result import RefreshResult


@dataclass(frozen=True)
class QueryChange(DeclarationChange):
    """A declaration with another query, and the refreshes that took it up."""

    refreshes: tuple[RefreshResult, ...] = ()


@dataclass(frozen=True)
class TableDrop(DeclarationChange):
    """A declaration that was moved away, and the folders of data that were deleted with it."""

    deleted: tuple[str, ...] = ()


def refresh_tables(*tables: str, full: bool = False, project: Project = None) -> tuple[RefreshResult, ...]:
    """Refresh these tables and what they read, or all that is due; `full` computes these from the beginning.

    Returns a result for each refreshed table, in the order of refreshing. A failed refresh is such a result and raises
    nothing. `project` is a folder of the project (default: the one of
    the working directory) or its settings. Raises RequestError for a table that is not there, CancelledError, and what
    the engine raises.
    """
    return _refreshes(answers(project, "refresh", "outcome", tables=list(tables), full=full))


def verify_tables(
    *tables: str, partitions: Sequence[Mapping[str, object]] = (), project: Project = None
) -> tuple[VerifyResult, ...]:
    """Compare these tables, or all, with a recompute of their query at the positions in their receipts.

    `partitions` restricts it to partitions of the one named table, each a value by column. Returns a result for each
    table. Raises PartitionError for what is no partition, and as `refresh_tables`.
    """
    named = [[list(pair) for pair in partition_texts(partition)] for partition in partitions]
    found = answers(project, "verify", "verification", tables=list(tables), partitions=named)
    return tuple(read_result(VerifyResult, event["verification"]) for event in found)


def create_table(statement: str, *, project: Project = None) -> DeclarationChange:
    """Declare a table or source: CREATE [OR ALTER] MATERIALIZED TABLE or SOURCE is written to its file.

    Returns what became of the declaration. Raises RequestError for another statement and for what is declared
    already without OR ALTER, and DeclarationErrors with everything that would be wrong; nothing is written then.
    """
    from freshline.manage.declaration import create

    managing = read_managing(statement)
    if not isinstance(managing, Create):
        raise RequestError("this is no CREATE MATERIALIZED TABLE and no CREATE SOURCE.")
    return create(managing, project_settings(project))


def alter_query(
    table: str, query: str, *, start: str | date | None = None, force: bool = False, project: Project = None
) -> QueryChange:
    """Give a table another query, as ALTER MATERIALIZED TABLE .. AS SELECT .. FROM .. does, and have it taken up.

    `start` says from when on the query is effective: `now`, `beginning` or a date; new columns need none. `force` with
    `beginning` also replaces rows that would go away. Returns the changed declaration, with the refreshes that took it
    up, none where the table has no version yet. Raises RequestError where a start has to be stated
    and is not, DeclarationErrors, and as `refresh_tables`.
    """
    from freshline.manage.declaration import alter_query as write_query

    settings = project_settings(project)
    since = start.isoformat() if isinstance(start, date) else start
    statement = AlterQuery(_name(table), query, read_start(since))
    changed, asked = write_query(statement, settings, force=force)
    events = [] if asked is None else answers(settings, "refresh", "outcome", tables=[str(changed.table)], **asked)
    return QueryChange(changed.table, changed.file, changed.changed, changed.sentence, _refreshes(events))


def drop_table(table: str, *, if_exists: bool = False, purge: bool = False, project: Project = None) -> TableDrop:
    """Declare a table no more; its data stays, unless it is to be purged.

    Returns what became of the declaration, with the file that it was moved to and the deleted folders. Raises
    RequestError for a table that is not there (unless `if_exists`), is a source, or is read by others, and what the
    engine raises.
    """
    from freshline.manage.declaration import drop

    settings = project_settings(project)
    dropped = drop(_name(table), settings, if_exists=if_exists, purge=purge)
    deleted: list[str] = []
    if purge and dropped.changed:
        for event in answers(settings, "purge", "purged", table=str(dropped.table)):
            deleted += event["folders"]
    return TableDrop(dropped.table, dropped.file, dropped.changed, dropped.sentence, tuple(deleted))


def _refreshes(events: Iterable[Mapping[str, Any]]) -> tuple[RefreshResult, ...]:
    return tuple(read_result(RefreshResult, event["outcome"]) for event in events)


def _name(text: str) -> TableName:
    try:
        return TableName.parse(text)
    except ValueError as error:
        raise RequestError(str(error)) from error
