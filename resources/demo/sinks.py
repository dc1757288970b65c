"""`freshline demo --sinks`: tables that are sent to a Postgres and an OpenSearch while all of them are killed.

Events of the reference deployment arrive all the time. Two of its tables are sent to a database and to a search engine
of the demo's own by the sinks of `resources/sinks/`. Every so often one of them or the engine is ended by kill -9, at a
moment that nobody chose. At the end `freshline verify --sinks` compares all rows, and the orders are counted in their
files, in the database and in the index, by nothing of freshline.
"""

from __future__ import annotations

import importlib
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Protocol

import click

from freshline.cli.failures import FAILED
from freshline.cli.progress import Progress
from freshline.cli.status import open_status, status_text
from freshline.cli.supervisor import undisturbed
from freshline.cli.terminal import terminal_width
from freshline.cli.verify import verification_lines
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
from resources.demo.sale_weekend import BY, SALE_FRESHNESS, SOURCE, TABLE

SEARCH_ADDRESS = "FRESHLINE_DEMO_SEARCH"
DATABASE, SEARCH = "database", "search engine"
# Both ends of each wire, the JVM between them, and an engine together with each of the systems.
VICTIMS = ((ENGINE,), (DATABASE,), (SEARCH,), (JVM,), (ENGINE, DATABASE), (ENGINE, SEARCH))
EVENTS_A_SECOND = 40.0
_PAUSE_SECONDS = (2.0, 12.0)
_AWAY_SECONDS = (0.5, 4.0)
_CAUGHT_UP_SECONDS = 300.0
_LOOK_SECONDS = 0.5


class Events(Protocol):
    """The part of the generator that is needed here."""

    def prepare(self) -> None: ...

    def landed(self, kind: str) -> int: ...

    def run(self, until: threading.Event, rate: float) -> object: ...


class Systems:
    """The database and the search engine; others that are named are not theirs."""

    def __init__(self, database: Any, search: Any) -> None:
        self.database = database
        self.search = search

    def start(self, names: Collection[str]) -> None:
        if DATABASE in names:
            self.database.start()
        if SEARCH in names:
            self.search.start()

    def kill(self, names: Collection[str]) -> None:
        if DATABASE in names:
            self.database.kill()
        if SEARCH in names:
            self.search.kill()

    def orders(self) -> dict[str, int]:
        """How many orders each of them has, an order that is there twice counted twice."""
        with self.database.connect() as connection:
            ((rows,),) = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall()
        # A search sees documents some time after they are written, unless it is asked to.
        self.search.ask("POST", f"/{TABLE}/_refresh")
        status, found = self.search.ask("GET", f"/{TABLE}/_count")
        if status != 200:
            raise EngineError(f"the search engine does not count the orders: {found}")
        return {DATABASE: int(rows), SEARCH: int(found["count"])}


@contextmanager
def systems_environment(settings: Settings, progress: Progress) -> Iterator[tuple[Settings, Systems]]:
    """Both systems, started, which end with it, and the settings with sinks beside the tables of the deployment.

    Raises SettingsError where this is not the repository, or Postgres, its driver, or the jars of the search engine
    cannot be had.
    """
    sinks = settings.root / "resources" / "sinks"
    if not sinks.is_dir():
        raise SettingsError(
            "there is no folder resources/sinks here: the demo is the reference deployment of freshline's repository. "
            "Clone that, or try `freshline init`.",
            where=str(settings.root),
        )
    declarations = settings.state / "assets"
    shutil.rmtree(declarations, ignore_errors=True)
    declarations.mkdir(parents=True)
    for file in sorted(Path(file) for folder in (settings.declarations, sinks) for file in folder.glob("*.sql")):
        shutil.copy(file, declarations)
    database = new_postgres()
    with ExitStack() as held:
        held.callback(_remove, database)
        progress("starting Postgres")
        database.start()
        progress("starting OpenSearch")
        search = importlib.import_module("resources.search_node").new_search_node(settings, progress=progress)
        held.callback(_remove, search)
        search.start()
        given = {DECLARATIONS: str(declarations), ADDRESS: database.url, SEARCH_ADDRESS: search.url}
        with environment(given):
            yield replace(settings, declarations=declarations), Systems(database, search)


def _remove(system: Any) -> None:
    with undisturbed():
        system.remove()


def run_sinks(settings: Settings, events: Events, as_json: bool, seed: int) -> int:
    """Kill engine and systems while sinks send to them, then compare all rows; the exit code.

    `seed` decides when parts are killed. 0 if all sinks are equal to their tables, and each order that landed is once
    in each system.
    """
    started = time.monotonic()
    with ExitStack() as held:
        progress = held.enter_context(Progress())

        def say(text: str) -> None:
            if not as_json:
                progress.print(text)

        settings, systems = held.enter_context(systems_environment(settings, progress))
        say(f"seed {seed}")
        events.prepare()
        engine = DemoEngine(settings, progress)
        held.callback(engine.stop)
        # SQLAlchemy is imported when it is used, like all that is heavy.
        from freshline.manage.freshness import set_freshness

        # Sinks are as fresh as their tables, so all of them send all the time.
        set_freshness(str(TABLE), str(SALE_FRESHNESS), cascade=True, by=BY, project=settings)
        engine.refresh(say)
        over = threading.Event()
        threads = held.enter_context(ThreadPoolExecutor(1))
        arriving = threads.submit(events.run, over, EVENTS_A_SECOND)
        held.callback(over.set)
        _wait_for_orders(events, systems, engine, arriving)
        say(f"the sinks send after {duration_text(time.monotonic() - started)}")
        chance = Random(seed)
        kills: Counter[str] = Counter()
        for number in range(KILLS):
            require_going_on(arriving, chance.uniform(*_PAUSE_SECONDS))
            victims = VICTIMS[number % len(VICTIMS)]
            kills.update(victims)
            systems.kill(victims)
            engine.kill_all(victims)
            if {DATABASE, SEARCH} & set(victims):
                # The sinks meet a system that is away.
                require_going_on(arriving, chance.uniform(*_AWAY_SECONDS))
                systems.start(victims)
            seconds = _wait_for_orders(events, systems, engine, arriving)
            killed = " and ".join(victims)
            say(f"kill {number + 1} of {KILLS}, {killed}: the sinks went on after {duration_text(seconds)}")
        over.set()
        arriving.result()
        engine.refresh(say)
        with open_status(settings, open_project(settings)) as read:
            say(f"\n{status_text(*read(), terminal_width())}\n")
        verifications = [
            event["verification"]
            for event in engine.ask("verify", tables=[], sinks=True)
            if event["type"] == "verification"
        ]
        landed, counted = events.landed(SOURCE), systems.orders()
    equal = sum(bool(verification["equal"]) for verification in verifications)
    if as_json:
        answer = {
            "seed": seed,
            "kills": dict(kills),
            "verify": verifications,
            "orders": {"landed": landed, **counted},
            "seconds": round(time.monotonic() - started, 1),
        }
        click.echo(json.dumps(answer, indent=2))
    else:
        for verification in verifications:
            click.echo("\n".join(verification_lines(verification)))
        click.echo(f"killed: {', '.join(f'{name} {number} times' for name, number in kills.items())}")
        there = ", ".join(f"the {system} has {number}" for system, number in counted.items())
        click.echo(f"{landed} orders landed; {there}")
        passed = duration_text(time.monotonic() - started)
        click.echo(f"{equal} of {len(verifications)} sinks are equal to their tables; {passed} in all")
    # An empty list would be equal throughout.
    well = bool(verifications) and equal == len(verifications)
    return 0 if well and landed and set(counted.values()) == {landed} else FAILED


def _wait_for_orders(events: Events, systems: Systems, engine: DemoEngine, arriving: Future[Any]) -> float:
    """Wait until both systems have as many orders as landed before this moment; returns the seconds.

    An engine whose JVM was killed ends by itself, and is started again.

    Raises EngineError when they do not get there.
    """
    began = time.monotonic()
    # None at all would be there at once.
    landed = max(1, events.landed(SOURCE))
    while min(systems.orders().values()) < landed:
        if time.monotonic() - began > _CAUGHT_UP_SECONDS:
            raise EngineError("the sinks do not follow their tables any more; `freshline status` says why.")
        engine.start_again()
        require_going_on(arriving, _LOOK_SECONDS)
    return time.monotonic() - began
