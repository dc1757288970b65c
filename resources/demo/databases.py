"""`freshline demo --databases`: tables that follow a Postgres while engine and server are killed.

A server of the demo's own has a shop whose rows change all the time (resources/shop_writer.py). Every so often the
engine or the server is ended by kill -9, at a moment that nobody chose. At the end each commit of each table is
compared with the rows that the database had at the place that the commit's receipt names
(resources/shop_comparison.py).
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import click

from freshline.cli.failures import FAILED
from freshline.cli.progress import Progress
from freshline.cli.status import open_status, status_text
from freshline.cli.supervisor import undisturbed
from freshline.errors import EngineError, SettingsError
from freshline.plan.project import open_project
from freshline.report.table_text import duration_text
from freshline.values.settings import Settings
from resources.demo.kills import (
    ADDRESS,
    DECLARATIONS,
    ENGINE,
    JVM,
    KILLS,
    DemoEngine,
    environment,
    new_postgres,
    require_going_on,
)

SERVER = "server"
# Both ends of the wire more often than the JVM between them, and once together.
VICTIMS = ((ENGINE,), (SERVER,), (JVM,), (SERVER,), (ENGINE, SERVER))
_PAUSE_SECONDS = (2.0, 12.0)
_AWAY_SECONDS = (0.5, 4.0)
_CAUGHT_UP_SECONDS = 300.0
_LOOK_SECONDS = 0.5


@contextmanager
def database_environment(settings: Settings) -> Iterator[tuple[Settings, Any, ModuleType, ModuleType]]:
    """A server that ends with it, the settings with sources over it, and the modules of its writer and comparison.

    Raises SettingsError where this is not the repository, or Postgres or its driver is not installed.
    """
    declarations = settings.root / "resources" / "databases"
    if not declarations.is_dir():
        raise SettingsError(
            "there is no folder resources/databases here: the demo is the reference deployment of freshline's "
            "repository. Clone that, or try `freshline init`.",
            where=str(settings.root),
        )
    if str(settings.root) not in sys.path:
        sys.path.insert(0, str(settings.root))
    server = new_postgres()
    try:
        with environment({DECLARATIONS: str(declarations), ADDRESS: server.url}):
            shop, comparison = (importlib.import_module(f"resources.shop_{name}") for name in ("writer", "comparison"))
            yield replace(settings, declarations=declarations), server, shop, comparison
    finally:
        with undisturbed():
            server.remove()


def run_databases(settings: Settings, as_json: bool, seed: int) -> int:
    """Kill engine and server while tables follow the database, then compare every commit; the exit code.

    `seed` decides what is written and when parts are killed. 0 if each commit has the rows of the database, and the
    newest ones those that the database has at the end.
    """
    started = time.monotonic()
    with ExitStack() as held:
        progress = held.enter_context(Progress())

        def say(text: str) -> None:
            if not as_json:
                progress.print(text)

        progress("starting Postgres")
        settings, server, shop, comparison = held.enter_context(database_environment(settings))
        server.start()
        say(f"seed {seed}")
        writer = shop.ShopWriter(server.connect, seed)
        held.callback(writer.close)
        writer.prepare()
        engine = DemoEngine(settings, progress)
        held.callback(engine.stop)
        engine.refresh(say)
        say(f"the tables have the rows of the database after {duration_text(time.monotonic() - started)}")
        over = threading.Event()
        threads = held.enter_context(ThreadPoolExecutor(1))
        changing = threads.submit(writer.run, over)
        held.callback(over.set)
        chance = Random(seed)
        kills: Counter[str] = Counter()
        for number in range(KILLS):
            require_going_on(changing, chance.uniform(*_PAUSE_SECONDS))
            victims = VICTIMS[number % len(VICTIMS)]
            kills.update(victims)
            _kill(victims, server, engine, chance.uniform(*_AWAY_SECONDS))
            place = shop.place(server.connect)
            seconds = _wait_until_after(place, settings.warehouse, engine, comparison, changing)
            killed = " and ".join(victims)
            say(f"kill {number + 1} of {KILLS}, {killed}: the tables went on after {duration_text(seconds)}")
        over.set()
        transactions = changing.result()
        engine.refresh(say)
        with open_status(settings, open_project(settings)) as read:
            say(f"\n{status_text(*read())}\n")
        progress("comparing every commit with the database")
        compared = comparison.compare_commits(settings.warehouse, writer.transactions)
        stored = {table: dict(comparison.read_rows(settings.warehouse, table)) for table in shop.COLUMNS}
        is_current = stored == writer.stored()
    commits = sum(compared.commits.values())
    if as_json:
        answer = {
            "seed": seed,
            "kills": dict(kills),
            "transactions": transactions,
            "commits": dict(compared.commits),
            "differences": list(compared.differences),
            "current": is_current,
            "seconds": round(time.monotonic() - started, 1),
        }
        click.echo(json.dumps(answer, indent=2))
    else:
        for difference in compared.differences:
            click.echo(difference)
        killed = ", ".join(f"{name} {number} times" for name, number in kills.items())
        click.echo(f"{transactions} transactions; killed: {killed}")
        equal = commits - len(compared.differences)
        last = "are those of the database" if is_current else "are NOT those of the database"
        click.echo(
            f"{equal} of {commits} commits have the rows of the database at their place, and the newest rows {last}; "
            f"{duration_text(time.monotonic() - started)} in all"
        )
    return 0 if compared.equal and is_current else FAILED


def _kill(victims: Sequence[str], server: Any, engine: DemoEngine, away_seconds: float) -> None:
    """End them all, and start them again: the server after a while in which only the engine is there."""
    if SERVER in victims:
        server.kill()
    engine.kill_all(victims)
    if SERVER in victims:
        time.sleep(away_seconds)
        server.start()


def _wait_until_after(
    place: int, warehouse: Path, engine: DemoEngine, comparison: ModuleType, changing: Future[int]
) -> float:
    """Wait until both tables have what was committed before this place; returns the seconds.

    An engine whose JVM was killed ends by itself, and is started again.

    Raises EngineError when they do not get there.
    """
    began = time.monotonic()
    while any(comparison.newest_place(warehouse, table) < place for table in comparison.FEEDS):
        if time.monotonic() - began > _CAUGHT_UP_SECONDS:
            raise EngineError("the tables do not follow the database any more; `freshline status` says why.")
        engine.start_again()
        require_going_on(changing, _LOOK_SECONDS)
    return time.monotonic() - began
