"""Ask the engine for something and hand on its answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import click

from freshline.cli.failures import CommandError
from freshline.cli.progress import Progress
from freshline.engine.state_file import read_state
from freshline.errors import CancelledError, EngineError
from freshline.values.settings import Settings

if TYPE_CHECKING:
    from freshline.engine.client import EngineClient


def running_engine(settings: Settings) -> EngineClient | None:
    """The engine that answers now, None where none does; it waits for none that is starting or ending."""
    state = read_state(settings.state)
    if state is None or not state.alive:
        return None
    # HTTP is loaded for an engine that is there.
    from freshline.engine.client import EngineClient

    client = EngineClient(settings, state)
    try:
        return None if client.health().get("stopping") else client
    except EngineError:
        return None


def connect(settings: Settings, progress: Progress, wanted: Collection[str] | None = None) -> EngineClient:
    """The engine of the project, started where none answers.

    Declarations are read here before an engine is started for them: all that is wrong with them is known in a second
    instead of after the start of a JVM. `wanted` are the tables that must have no mistake, None for all of them. Raises
    DeclarationErrors and EngineError.
    """
    if running_engine(settings) is None:
        from freshline.cli.declared import open_declared
        from freshline.plan.project import open_project

        if wanted is None:
            open_project(settings)
        else:
            open_declared(settings, wanted)
    from freshline.engine.client import EngineClient

    return EngineClient.connect(settings, start=True, progress=progress)


def ask(client: EngineClient, kind: str, progress: Progress, **arguments: Any) -> Iterator[dict[str, Any]]:
    """The answers to one request as they come, without its progress, which is shown.

    Leaving the loop early, Ctrl-C included, cancels the request. Raises CommandError with the engine's error,
    CancelledError when somebody else cancelled it, and EngineError when the engine ended before it had answered.
    """
    return _answers(client.run(kind, **arguments), progress)


def ask_on(
    connect_again: Callable[[], EngineClient], kind: str, progress: Progress, **arguments: Any
) -> Iterator[dict[str, Any]]:
    """The same for what the next engine goes on with when one ends in between."""
    from freshline.engine.client import run_resumed

    return _answers(run_resumed(lambda _: connect_again(), kind, progress, **arguments), progress)


def _answers(asked: Iterator[dict[str, Any]], progress: Progress) -> Iterator[dict[str, Any]]:
    with closing(cast(Generator[dict[str, Any]], asked)) as events:
        for event in events:
            if event["type"] == "progress":
                table = event.get("table")
                progress(f"{table}: {event['message']}" if table else str(event["message"]))
            elif event["type"] == "mistakes":
                for line in CommandError(event["error"]).lines():
                    click.echo(line, err=True)
            elif event["type"] == "done":
                if event["state"] == "CANCELLED":
                    raise CancelledError("the request was cancelled; nothing was committed after that.")
                if event.get("error"):
                    raise CommandError(event["error"])
                return
            else:
                yield event
    raise EngineError("the engine ended before it answered. `freshline status` shows what was committed; try again.")
