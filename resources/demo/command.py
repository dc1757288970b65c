"""`freshline demo`: the reference deployment at work on generated events."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Protocol, cast

import click

from freshline.cli.ask import ask
from freshline.cli.failures import FAILED
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.refresh import FINE, outcome_lines
from freshline.cli.status import drawn_status, open_status, status_text
from freshline.cli.supervisor import Supervisor, end_all, interruptible, undisturbed
from freshline.cli.terminal import tell, terminal_width
from freshline.cli.verify import verification_lines
from freshline.declare.graph import Graph
from freshline.engine.client import EngineClient
from freshline.errors import RequestError, SettingsError
from freshline.plan.project import open_project
from freshline.report.table_text import duration_text
from freshline.values.names import TableName
from freshline.values.settings import Settings
from freshline.values.spec import SourceSpec
from resources.demo import sale_weekend
from resources.demo.databases import run_databases
from resources.demo.kills import DECLARATIONS
from resources.demo.sale_weekend import OrderCount, SaleWeekend, alternate, count_orders, sale_times
from resources.demo.sinks import run_sinks

if TYPE_CHECKING:
    from freshline.report.status import TableStatus

ENVIRONMENT = "demo"
SEED = 7
PORTIONS, TOUCHES, ORDERS, CUSTOMER_CHANGES = 10, 10_000, 3_000, 2_000
TOUCHES_A_SECOND = 40.0
LOOK_SECONDS = 1.0
PLAIN_SECONDS = 15.0  # where nothing can be drawn over, a table this often


class Generator(Protocol):
    """The part of resources/generator.py that the demo needs."""

    def prepare(self) -> None: ...

    def landed(self, kind: str) -> int: ...

    def portion(self, i: int, of: int, touches: int, orders: int, customer_changes: int) -> None: ...

    def run(self, until: threading.Event, rate: float) -> object: ...


@click.command(epilog="\b\nExample:\n  freshline demo --once")
@click.option("--once", is_flag=True, help="Run a fixed amount of events without UI, then verify every table.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="N",
    help="How long events are generated, with 0 until Ctrl-C.",
)
@click.option("--keep", is_flag=True, help="Continue with the tables of the previous demo.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the Dagster UI, 0 for any free one.  [default: the setting dagster-port]",
)
@click.option("--kafka", is_flag=True, help="Send events through Kafka topics, on a broker that the demo starts.")
@click.option(
    "--databases",
    is_flag=True,
    help="Follow a Postgres that the demo starts, kill -9 it and the engine ten times, and compare every commit.",
)
@click.option(
    "--sinks",
    is_flag=True,
    help="Send tables to a Postgres and an OpenSearch that the demo starts, kill -9 them and the engine ten times, and "
    "compare all rows.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="With --databases or --sinks, kill at the moments of the run that printed this number.",
)
@project_option
@json_option
def command(
    once: bool,
    minutes: float,
    keep: bool,
    port: int | None,
    kafka: bool,
    databases: bool,
    sinks: bool,
    seed: int | None,
    project: Path | None,
    as_json: bool,
) -> int:
    """Run the reference deployment on generated events, in its own environment, which is wiped first.

    The demo starts the engine with its loops, events for some minutes, the Dagster UI and a live table. Ctrl-C ends all
    of them. For a while the freshness of enriched_orders is five seconds instead of five minutes. At the end the demo
    counts its orders.
    """
    if kafka and keep:
        raise RequestError("--kafka begins with an empty broker: leave out --keep.")
    if once and keep:
        raise RequestError("--once makes a fixed amount of events from the beginning: leave out --keep.")
    if databases and (once or keep or kafka or port is not None):
        raise RequestError("--databases has its own tables and no UI: leave out --once, --keep, --kafka and --port.")
    if sinks and (once or keep or kafka or databases or port is not None):
        raise RequestError(
            "--sinks runs until the last kill and has no UI: leave out --once, --keep, --kafka, --databases and --port."
        )
    if seed is not None and not (databases or sinks):
        raise RequestError("--seed goes with --databases and --sinks.")
    if as_json and not (once or databases or sinks):
        raise RequestError("--json goes with --once, --databases and --sinks.")
    chosen = SystemRandom().randrange(10_000) if seed is None else seed
    settings = open_settings(project, ENVIRONMENT)
    # For the processes that are started.
    os.environ["FRESHLINE_ENV"] = ENVIRONMENT
    graph = open_project(settings)
    with interruptible(), ExitStack() as held:
        with Progress() as progress:
            progress("ending the demo before")
            end_all(settings, progress)
            if not keep:
                wipe(settings)
        if databases:
            return run_databases(settings, as_json, chosen)
        with Progress() as progress:
            if kafka:
                settings, generator = load_topics(settings, graph, progress, held)
                graph = open_project(settings)
            else:
                generator = load_generator(settings, graph)
        if sinks:
            return run_sinks(settings, generator, as_json, chosen)
        if once:
            return run_once(settings, graph, generator, as_json)
        return run_live(settings, graph, generator, minutes, port)


def wipe(settings: Settings) -> None:
    """Remove what the demo before left. Raises SettingsError rather than remove what may be something else."""
    outside = [path for path in (settings.state, settings.warehouse) if settings.root not in path.parents]
    if outside or settings.environment != ENVIRONMENT or settings.state.name != ENVIRONMENT:
        raise SettingsError(
            "the demo wipes its tables and does so only in the folder of the environment `demo` in the project. "
            "Take the settings for state and warehouse out of pyproject.toml, or use --keep.",
            where=str((outside or [settings.state])[0]),
        )
    if settings.state.exists():
        shutil.rmtree(settings.state)


def load_generator(settings: Settings, graph: Graph) -> Generator:
    """The generator of the reference deployment, for the folders that its sources name."""
    if not (settings.root / "resources" / "generator.py").is_file():
        raise SettingsError(
            "there is no resources/generator.py here: the demo is the reference deployment of freshline's repository. "
            "Clone that, or try `freshline init`.",
            where=str(settings.root),
        )
    if str(settings.root) not in sys.path:
        sys.path.insert(0, str(settings.root))
    module = importlib.import_module("resources.generator")
    touches, campaigns = (graph.specs[TableName.parse(name)] for name in ("touch_event", "campaign_load"))
    assert isinstance(touches, SourceSpec)
    assert isinstance(campaigns, SourceSpec)
    landing, loads = (Path(source.connection.shown["path"]) for source in (touches, campaigns))
    return cast(Generator, module.Generator(landing.parent, loads, SEED))


def load_topics(
    settings: Settings, graph: Graph, progress: Callable[[str], None], held: ExitStack
) -> tuple[Settings, Generator]:
    """The generator over topics of a broker that ends with `held`, and the settings with topics as sources."""
    declarations = settings.state / "assets"
    before = os.environ.get(DECLARATIONS)
    # For the processes that are started; put back for who calls this in a process of its own.
    os.environ[DECLARATIONS] = str(declarations)
    held.callback(lambda: os.environ.pop(DECLARATIONS) if before is None else os.environ.update({DECLARATIONS: before}))
    events = load_generator(settings, graph)
    module = importlib.import_module("resources.topics")
    topics = replace(settings, declarations=declarations)
    generator = module.open_topics(topics, lambda: events, progress)
    held.callback(generator.close)
    return topics, cast(Generator, generator)


def run_once(settings: Settings, graph: Graph, generator: Generator, as_json: bool) -> int:
    """Ten portions with a refresh after each, the status, and the verification of every table."""
    started = time.monotonic()
    outcomes: list[dict[str, Any]] = []
    verifications: list[dict[str, Any]] = []
    with Progress() as progress:

        def say(text: str) -> None:
            if not as_json:
                progress.print(text)

        generator.prepare()
        client = EngineClient.connect(settings, start=True, progress=progress)
        try:
            say(f"the engine runs after {duration_text(time.monotonic() - started)}")
            for portion in range(PORTIONS):
                begun = time.monotonic()
                generator.portion(portion, PORTIONS, TOUCHES, ORDERS, CUSTOMER_CHANGES)
                for sentence in alternate(settings, portion):
                    say(sentence)
                made = [event["outcome"] for event in ask(client, "refresh", progress) if event["type"] == "outcome"]
                outcomes += made
                done = ", ".join(f"{outcome['table']} {outcome['strategy'] or outcome['state']}" for outcome in made)
                say(f"portion {portion + 1} of {PORTIONS}: {duration_text(time.monotonic() - begun)}  {done}")
                for outcome in made:
                    if outcome["state"] not in FINE:
                        say("\n".join(outcome_lines(outcome)))
            with open_status(settings, graph) as read:
                statuses, now = read()
            say(f"\n{status_text(statuses, now, terminal_width())}\n")
            for event in ask(client, "verify", progress, tables=[]):
                if event["type"] == "verification":
                    verifications.append(event["verification"])
                    say("\n".join(verification_lines(event["verification"])))
            counted = count_orders(client, generator.landed(sale_weekend.SOURCE), progress)
        finally:
            with undisturbed():
                client.stop()
        seconds = time.monotonic() - started
        equal = sum(bool(verification["equal"]) for verification in verifications)
        say(f"\n{counted}")
        say(f"{equal} of {len(verifications)} are equal to their queries; {duration_text(seconds)} in all")
    if as_json:
        answer = {
            "refreshes": len(outcomes),
            "seconds": round(seconds, 1),
            "status": [status.as_json() for status in statuses],
            "verify": verifications,
            "orders": counted.as_json(),
        }
        click.echo(json.dumps(answer, indent=2))
    # An empty list would be equal throughout.
    well = bool(verifications) and equal == len(verifications) and counted.exact
    return 0 if well and all(outcome["state"] in FINE for outcome in outcomes) else FAILED


def run_live(settings: Settings, graph: Graph, generator: Generator, minutes: float, port: int | None) -> int:
    """Events, all loops, the UI, the live table and the sale, until the time is up or Ctrl-C; then the count."""
    over = threading.Event()
    generator.prepare()
    told: list[str] = []
    supervisor = Supervisor(settings, told.append, port=port)
    with Progress() as progress:
        supervisor.start(progress)
    threads = ThreadPoolExecutor(2)
    running: list[Future[object]] = []
    counted: OrderCount | None = None
    try:
        running = [threads.submit(generator.run, over, TOUCHES_A_SECOND), threads.submit(supervisor.watch, over)]
        for future in running:
            future.add_done_callback(lambda _: over.set())
        tell(f"Dagster UI: {supervisor.url}, freshness board: {supervisor.url}/freshline/. Ctrl-C ends the demo.")
        seconds = minutes * 60 if minutes else None
        sale = SaleWeekend(settings, sale_times(seconds))
        with open_status(settings, graph) as read:
            try:
                _show_until(read, sale, over, seconds, told)
            except KeyboardInterrupt:
                tell("no more events; the orders are counted. Ctrl-C again ends without that.", err=True)
            over.set()
            wait(running, timeout=30.0)
            counted = count_all(supervisor.engine, generator)
            click.echo(status_text(*read(), terminal_width()))
    except KeyboardInterrupt:
        click.echo("ending", err=True)
    finally:
        over.set()
        with undisturbed():
            wait(running, timeout=30.0)
            supervisor.stop()
            threads.shutdown(wait=all(future.done() for future in running))
    for future in running:
        future.result()  # raises what ended it
    if counted is None:
        return 0
    tell(f"\n{counted}")
    return 0 if counted.exact else FAILED


def count_all(client: EngineClient, generator: Generator) -> OrderCount:
    """Bring in what landed, and count it. Raises CommandError and EngineError."""
    with Progress() as progress:
        for event in ask(client, "refresh", progress, tables=[str(sale_weekend.TABLE)]):
            if event["type"] == "outcome" and event["outcome"]["state"] not in FINE:
                tell("\n".join(outcome_lines(event["outcome"])), err=True)
        return count_orders(client, generator.landed(sale_weekend.SOURCE), progress)


def _show_until(
    look: Callable[[], tuple[list[TableStatus], datetime]],
    sale: SaleWeekend,
    over: threading.Event,
    seconds: float | None,
    told: list[str],
) -> None:
    if not sys.stdout.isatty():
        shown_at = -PLAIN_SECONDS
        for passed, statuses, now in _looks(look, over, seconds):
            for sentence in (*told, *sale.step(passed, statuses)):
                click.echo(f"{sentence}\n")
            told.clear()
            if passed - shown_at >= PLAIN_SECONDS:
                shown_at = passed
                click.echo(f"{status_text(statuses, now)}\n")
        return
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        for passed, statuses, now in _looks(look, over, seconds):
            told += sale.step(passed, statuses)
            live.update(drawn_status(statuses, now, told[-5:], live.console.width), refresh=True)


def _looks(
    look: Callable[[], tuple[list[TableStatus], datetime]], over: threading.Event, seconds: float | None
) -> Iterator[tuple[float, list[TableStatus], datetime]]:
    """The state of the tables, with the seconds since the beginning, about every second until it is over."""
    begun = time.monotonic()
    deadline = None if seconds is None else begun + seconds
    while True:
        yield (time.monotonic() - begun, *look())
        if over.wait(_left(deadline, LOOK_SECONDS)) or (deadline is not None and time.monotonic() >= deadline):
            return


def _left(deadline: float | None, at_most: float) -> float:
    return at_most if deadline is None else max(0.0, min(at_most, deadline - time.monotonic()))
