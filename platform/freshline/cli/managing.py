"""Statements that manage tables, as `freshline sql` takes them: each does what a command does.

Nothing here asks the engine but REFRESH, VERIFY, and CREATE, RESTORE and DROP SAVEPOINT.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

import click

from freshline.cli.apply import take_up
from freshline.cli.ask import ask, ask_on, connect
from freshline.cli.backfill import show_backfill
from freshline.cli.declared import find_declared, named_mistakes, open_declared
from freshline.cli.describe import describe
from freshline.cli.explain import explain, explain_promises
from freshline.cli.progress import Progress
from freshline.cli.refresh import exit_code, show_outcomes
from freshline.cli.refreshes import read_refreshes, refreshes_text
from freshline.cli.savepoint import read_savepoints, savepoint_text, savepoints_text
from freshline.cli.status import open_status, status_text
from freshline.cli.verify import show_verifications
from freshline.engine.client import EngineClient
from freshline.sql.managing import (
    AlterQuery,
    Create,
    CreateSavepoint,
    Describe,
    Drop,
    DropSavepoint,
    Explain,
    ExplainFreshness,
    Managing,
    Refresh,
    ResetFreshness,
    RestoreSavepoint,
    Resume,
    SetFreshness,
    ShowCreate,
    ShowRefreshes,
    ShowSavepoints,
    ShowTables,
    Suspend,
    Verify,
)
from freshline.values.settings import Settings

if TYPE_CHECKING:
    pass

Answer = Callable[[object, str], None]


def answer_managing(
    settings: Settings, client: EngineClient | None, statement: Managing, limit: int, as_json: bool
) -> int:
    """Do what the statement says, print the result and return the exit code."""

    def report(value: object, text: str) -> int:
        click.echo(json.dumps(value, indent=2) if as_json else text)
        return 0

    match statement:
        case Refresh() if statement.ranges or statement.cascade:
            return _backfill(settings, client, statement, as_json)
        case Refresh() | Verify() | AlterQuery() | Drop(purge=True):
            return _ask_engine(settings, client, statement, as_json)
        case SetFreshness() | ResetFreshness() | Suspend() | Resume() | Create() | Drop():
            with named_mistakes():
                changed = _change(settings, statement)
            return report(changed.as_json(), "\n".join([changed.sentence, *getattr(changed, "warnings", ())]))
        case CreateSavepoint() | RestoreSavepoint() | DropSavepoint() | ShowSavepoints():
            return report(*_savepoint(settings, client, statement))
        case ShowTables():
            with open_status(settings, open_declared(settings)) as read:
                statuses, now = read()
            return report([status.as_json() for status in statuses], status_text(statuses, now))
        case ShowRefreshes(wanted):
            records = read_refreshes(settings, None if wanted is None else str(wanted), limit or 1000)
            return report([record.as_json() for record in records], refreshes_text(records))
        case ShowCreate(table):
            from freshline.manage.declaration import declaration_text

            graph = open_declared(settings, [str(table)])
            text = declaration_text(settings, graph, find_declared(graph, table))
            return report({"table": str(table), "statement": text}, text)
        case Describe(table, extended):
            graph = open_declared(settings, [str(table)])
            value, text = describe(settings, graph, find_declared(graph, table), extended=extended)
            return report(value, text)
        case Explain(table):
            text, found = explain(settings, [str(table)])[0]
            return report([found], text)
        case ExplainFreshness(table):
            text, found = explain_promises(settings, [str(table)])[0]
            return report([found], text)
        case other:
            assert_never(other)


def _ask_engine(
    settings: Settings,
    client: EngineClient | None,
    statement: Refresh | Verify | AlterQuery | Drop,
    as_json: bool,
) -> int:
    """The statements that are worked on in the engine, which alone writes tables."""
    match statement:
        case Refresh(table, full, partitions):
            named = [[list(pair) for pair in partition] for partition in partitions]
            with Progress() as progress:
                engine = client or connect(settings, progress, [str(table)])
                # As `freshline refresh` does: exactly the named partitions, at positions that the table has.
                arguments = {"tables": [str(table)], "full": full, "partitions": named, "upstreams": not named}
                return show_outcomes(ask(engine, "refresh", progress, **arguments), progress, as_json)
        case Verify(table, partitions):
            named = [[list(pair) for pair in partition] for partition in partitions]
            with Progress() as progress:
                engine = client or connect(settings, progress, [str(table)])
                events = ask(engine, "verify", progress, tables=[str(table)], partitions=named)
                return show_verifications(events, progress, as_json)
        case AlterQuery():
            return _alter_query(settings, client, statement, as_json)
        case Drop():
            return _purge(settings, client, statement, as_json)
        case other:
            assert_never(other)


def _alter_query(settings: Settings, client: EngineClient | None, statement: AlterQuery, as_json: bool) -> int:
    """Write the query, and have it taken up from where the statement says."""
    from freshline.manage.declaration import alter_query

    with named_mistakes():
        changed, asked = alter_query(statement, settings)
    outcomes: list[dict[str, Any]] = []
    with Progress() as progress:
        if not as_json:
            progress.print(changed.sentence)
        if asked is not None:
            outcomes = take_up(
                client or connect(settings, progress, [str(changed.table)]),
                {changed.table: asked},
                progress,
                quiet=as_json,
            )
    if as_json:
        click.echo(json.dumps({**changed.as_json(), "outcomes": outcomes}, indent=2))
    return exit_code(outcomes)


def _purge(settings: Settings, client: EngineClient | None, statement: Drop, as_json: bool) -> int:
    """Declare a table no more, and have its data deleted."""
    from freshline.manage.declaration import drop

    dropped = drop(statement.table, settings, if_exists=statement.if_exists, purge=True)
    folders: list[str] = []
    with Progress() as progress:
        if dropped.changed:
            engine = client or connect(settings, progress)
            for event in ask(engine, "purge", progress, table=str(dropped.table)):
                folders += event["folders"] if event["type"] == "purged" else []
        if not as_json:
            told = f" Deleted: {', '.join(folders)}." if folders else ""
            progress.print(f"{dropped.sentence}{told}")
    if as_json:
        click.echo(json.dumps({**dropped.as_json(), "deleted": folders}, indent=2))
    return 0


def _backfill(settings: Settings, client: EngineClient | None, statement: Refresh, as_json: bool) -> int:
    """Ranges of partitions, and what reads the table: planned, shown, and then done."""
    arguments = {
        "tables": [str(statement.table)],
        "full": statement.full,
        "partitions": [[list(pair) for pair in partition] for partition in statement.partitions],
        "ranges": [[item.column, item.first, item.last] for item in statement.ranges],
        "cascade": statement.cascade,
        # Named partitions are replaced, whether or not they are done.
        "again": True,
    }
    connected = [client] if client is not None else []
    with Progress() as progress:
        events = ask_on(
            lambda: connected.pop() if connected else connect(settings, progress, [str(statement.table)]),
            "backfill",
            progress,
            **arguments,
        )
        return show_backfill(events, progress, as_json)


def _savepoint(
    settings: Settings,
    client: EngineClient | None,
    statement: CreateSavepoint | RestoreSavepoint | DropSavepoint | ShowSavepoints,
) -> tuple[object, str]:
    """The result of a statement about savepoints, as JSON and as text."""
    arguments: dict[str, Any]
    match statement:
        case ShowSavepoints():
            savepoints = read_savepoints(settings)
            return savepoints, savepoints_text(savepoints)
        case CreateSavepoint(name, tables):
            arguments = {"action": "create", "name": name, "tables": [str(table) for table in tables]}
        case RestoreSavepoint(name):
            arguments = {"action": "restore", "name": name}
        case DropSavepoint(name):
            arguments = {"action": "drop", "name": name}
        case other:
            assert_never(other)
    with Progress() as progress:
        (done,) = ask(client or connect(settings, progress), "savepoint", progress, **arguments)
    return done["savepoint"], savepoint_text(done["savepoint"])


def _change(settings: Settings, statement: SetFreshness | ResetFreshness | Suspend | Resume | Create | Drop) -> Any:
    """The change that was made, with `as_json` and `sentence`."""
    # SQLAlchemy is imported when it is used, like all that is heavy.
    from freshline.manage import declaration, freshness, suspension

    match statement:
        case SetFreshness(table, wanted, lasts, cascade):
            return freshness.set_freshness(
                str(table), wanted.allowed_lag, for_=_duration(lasts), cascade=cascade, project=settings
            )
        case ResetFreshness(table, cascade):
            return freshness.reset_freshness(str(table), cascade=cascade, project=settings)
        case Suspend(table, lasts, because):
            return suspension.suspend(str(table), for_=_duration(lasts), because=because, project=settings)
        case Resume(table):
            return suspension.resume(str(table), project=settings)
        case Create():
            return declaration.create(statement, settings)
        case Drop(table, if_exists):
            return declaration.drop(table, settings, if_exists=if_exists)
        case other:
            assert_never(other)


def _duration(seconds: int | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
