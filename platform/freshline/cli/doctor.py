"""`freshline doctor`: check what freshline needs, and say what to do about what is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freshline.cli.ask import running_engine
from freshline.cli.failures import FAILED, CommandError
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.processes import UpRecord
from freshline.cli.progress import Progress
from freshline.cli.supervisor import check_port, end_left, record_file
from freshline.engine.state_file import read_state, remove_state, state_file
from freshline.errors import (
    CatalogError,
    DeliveryError,
    EngineError,
    FreshlineError,
    ModelRuntimeError,
    RefreshError,
    SettingsError,
    StorageError,
)
from freshline.plan.models import SHOWN
from freshline.plan.project import open_project
from freshline.report.table_text import padded
from freshline.values.registry import (
    CONNECTOR_GROUP,
    FORMAT_GROUP,
    MERGE_GROUP,
    REGISTRAR_GROUP,
    STRATEGY_GROUP,
    ExtensionError,
    find_connector,
    find_format,
    find_merge,
    find_registrar,
    find_strategy,
    outside,
)
from freshline.values.secret import read_dagster_token
from freshline.values.settings import Settings, provide_state

if TYPE_CHECKING:
    from freshline.report.status import TableStatus

PYTHONS = ((3, 11), (3, 12), (3, 13))
PACKAGES = ("pyspark", "delta-spark", "dagster", "dagster-webserver", "deltalake")
LEAST_FREE_BYTES = 1_000_000_000


@dataclass(frozen=True)
class DoctorCheck:
    """The thing that was checked, whether it is well, and a sentence: what was found, or what to do."""

    name: str
    ok: bool
    message: str


@click.command(epilog="\b\nExample:\n  freshline doctor --fix")
@click.option("--fix", is_flag=True, help="Clear the remains of a killed engine or a killed `up`.")
@click.option("--rebuild", is_flag=True, help="Fill a lost control store from the logs of the tables.")
@project_option
@json_option
def command(fix: bool, rebuild: bool, project: Path | None, as_json: bool) -> int:
    """Check Python, Java, jars, declarations, disk, engine, control store, tables and ports.

    Each line begins with ok, or with problem and a remedy. Exit code 1 if there is a problem.
    """
    checks = []
    with Progress() as progress:
        for check in examine(project, fix, progress, rebuild=rebuild):
            checks.append(check)
            if not as_json:
                progress.print(f"{'ok     ' if check.ok else 'problem'}  {padded(check.name, 13)}  {check.message}")
    if as_json:
        click.echo(json.dumps([asdict(check) for check in checks], indent=2))
    return 0 if all(check.ok for check in checks) else FAILED


def examine(
    project: Path | None, fix: bool, progress: Callable[[str], None], *, rebuild: bool = False
) -> Iterator[DoctorCheck]:
    """The checks one after the other; those of the project only where there is one with settings that can be read."""
    yield _python()
    yield _packages()
    yield from _extensions()
    try:
        settings = open_settings(project)
    except FreshlineError as error:
        yield DoctorCheck("project", False, _sentences(error))
        return
    yield DoctorCheck("project", True, f"{settings.root}, environment {settings.environment}")
    for name, look in (
        ("java", _java),
        ("jars", _jars),
        ("declarations", _declarations),
        ("state", _state),
        ("disk", _disk),
        ("up", lambda it: _up(it, fix)),
        ("engine", lambda it: _engine(it, fix)),
        ("control store", _rebuild if rebuild else _control_store),
        ("tables", _tables),
        ("alerts", _alerts),
        ("catalogs", _catalogs),
        ("port", _port),
    ):
        progress(f"looking at {name}")
        try:
            yield DoctorCheck(name, True, look(settings))
        except FreshlineError as error:
            yield DoctorCheck(name, False, _sentences(error))
        except OSError as error:
            yield DoctorCheck(name, False, "; ".join(CommandError.system(error).lines()))


def _python() -> DoctorCheck:
    found = ".".join(str(part) for part in sys.version_info[:3])
    ok = sys.version_info[:2] in PYTHONS
    return DoctorCheck("python", ok, found if ok else f"{found} cannot be used. Install Python 3.11, 3.12 or 3.13.")


def _packages() -> DoctorCheck:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return DoctorCheck("packages", False, f"{', '.join(missing)} is missing. Install freshline again.")
    return DoctorCheck("packages", True, ", ".join(found))


def _extensions() -> Iterator[DoctorCheck]:
    """The connectors, formats, merges, strategies and registrars of other packages, where there are some."""
    for kind, group, find in (
        ("connector", CONNECTOR_GROUP, find_connector),
        ("format", FORMAT_GROUP, find_format),
        ("merge", MERGE_GROUP, find_merge),
        ("strategy", STRATEGY_GROUP, find_strategy),
        ("registrar", REGISTRAR_GROUP, find_registrar),
    ):
        for name, package in sorted({each.name: each.package for each in outside(group)}.items()):
            try:
                find(name)
                yield DoctorCheck(kind, True, f"{name}, of {package}")
            except ExtensionError as error:
                yield DoctorCheck(kind, False, str(error))


def _java(settings: Settings) -> str:
    from freshline.engine.java import find_java

    java = find_java(settings)
    return f"Java {java.version_text} by {java.found_by}: {java.home}"


def _jars(settings: Settings) -> str:
    from freshline.engine.jars import jar_cache, provide_jars, read_lock

    if settings.jar_directory is not None:
        return f"{len(provide_jars(settings))} in {settings.jar_directory}, with the right sums"
    cache = settings.jar_cache or jar_cache()
    missing = [jar for jar in read_lock() if not (cache / jar.file_name).is_file()]
    if missing:
        size = sum(jar.size for jar in missing) / 1e6
        return f"{len(missing)} not in {cache} yet; the first start fetches {size:.0f} MB from {settings.maven_mirror}"
    # All are there, so this fetches nothing and checks their sums.
    return f"{len(provide_jars(settings))} in {cache}, with the right sums"


def _declarations(settings: Settings) -> str:
    graph = open_project(settings)
    models = [f"{name} {model.known.sha256[:SHOWN]}" for name, model in sorted(graph.models.items())]
    if models and importlib.util.find_spec("onnxruntime") is None:
        raise ModelRuntimeError(
            f"models are declared ({', '.join(models)}), and ONNX Runtime is not installed. Install the extra: "
            "pip install 'freshline[onnx]'."
        )
    asked = f", models {', '.join(models)}" if models else ""
    return f"{len(graph.order)} in {settings.declarations}{asked}"


def _state(settings: Settings) -> str:
    provide_state(settings)
    settings.warehouse.mkdir(parents=True, exist_ok=True)
    for folder in (settings.state, settings.warehouse):
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"freshline")
                file.flush()
        except OSError as error:
            raise SettingsError(
                f"cannot be written: {error.strerror}. Free some space or make it writable.", where=str(folder)
            ) from error
    return f"{settings.state} can be written"


def _disk(settings: Settings) -> str:
    free = min(shutil.disk_usage(folder).free for folder in (settings.state, settings.warehouse))
    if free < LEAST_FREE_BYTES:
        raise SettingsError(f"{free / 1e9:.1f} GB are free. Free some space: refreshes fail on a full disk.")
    return f"{free / 1e9:.1f} GB free"


def _up(settings: Settings, fix: bool) -> str:
    record = UpRecord.read(record_file(settings))
    if record is None:
        return "not up"
    if record.supervisor.alive:
        return f"up, process {record.supervisor.pid}, {record.url or 'starting'}"
    if fix:
        return f"cleared away what a killed up left ({end_left(settings)} processes)"
    raise EngineError("`freshline up` was killed and may have left processes. Run `freshline down`, or doctor --fix.")


def _engine(settings: Settings, fix: bool) -> str:
    running = running_engine(settings)
    if running is not None:
        health = running.health()
        return f"running, process {health['pid']}{', with loops' if health.get('loops') else ''}"
    file = state_file(settings.state)
    state = read_state(settings.state)
    if state is not None and state.alive:
        raise EngineError(f"process {state.process.pid} does not answer. Wait a moment, or end it: freshline down.")
    if not file.exists():
        return "not running; a command that needs one starts it"
    if fix:
        remove_state(settings.state, state)
        return "removed the state file of an engine that is gone"
    raise EngineError(f"{file} is of an engine that is gone. The next command clears it away, as does doctor --fix.")


def _control_store(settings: Settings) -> str:
    from freshline.commit.control_store import ControlStore
    from freshline.commit.delta_log import read_newest
    from freshline.commit.warehouse import Warehouse

    with closing(ControlStore.open(settings.control_store, settings.umask)) as store:
        known = len(store.last_refreshes())
    tables = () if known else Warehouse(settings.warehouse).tables()
    if any((newest := read_newest(path)) is not None and newest.receipt is not None for path in tables):
        raise StorageError(
            "it knows of no refresh, and the warehouse has tables that were refreshed: it was lost. Run "
            "`freshline doctor --rebuild`.",
        )
    return f"opens, {known} tables in it"


def _tables(settings: Settings) -> str:
    from freshline.commit.control_reading import open_for_a_look
    from freshline.commit.warehouse import Warehouse
    from freshline.plan.valid_project import open_valid_project
    from freshline.report.status import read_status

    try:
        graph = open_valid_project(settings).graph
        control = open_for_a_look(settings.control_store, settings.umask)
    except FreshlineError:
        # The line of the declarations or of the control store says what is wrong.
        return "not known without the declarations and the control store"
    try:
        now = datetime.now(UTC)
        return require_moving(read_status(graph, control, Warehouse(settings.warehouse), now, counted=False))
    finally:
        control.close()


def require_moving(statuses: Sequence[TableStatus]) -> str:
    """How many tables and sources there are, in a sentence.

    Raises RefreshError for tables that stand still: their refreshes end well and leave them late.
    """
    still = [f"{status.table} stands still: {status.stands_still}" for status in statuses if status.stands_still]
    if still:
        raise RefreshError(
            f"{'; '.join(still)}. Refresh the inputs with `freshline refresh`, and then the table. If that does not "
            "help, it is a mistake of freshline: report it with the output of `freshline status --json`."
        )
    late = sum(status.late for status in statuses)
    return f"{len(statuses)} tables and sources, none stands still" + (f", {late} late" if late else "")


def _rebuild(settings: Settings) -> str:
    from freshline.commit.rebuild import rebuild

    running = running_engine(settings)
    found = rebuild(settings, epoch_in_use=0 if running is None else int(running.health()["epoch"]))
    if found.problems:
        raise StorageError(str(found))
    return str(found)


def _alerts(settings: Settings) -> str:
    from freshline.cli.status import untold_alerts
    from freshline.commit.control_reading import open_for_a_look
    from freshline.report.alerts.channels.configured import channel_problems

    wrong = channel_problems(settings)
    if wrong:
        raise SettingsError("; ".join(map(str, wrong)))
    with closing(open_for_a_look(settings.control_store, settings.umask)) as store:
        found = untold_alerts(settings, store, datetime.now(UTC))
    if found:
        raise DeliveryError("; ".join(error.message for error in found))
    return f"channels {', '.join(channel.name for channel in settings.alerts.channels)} can be used"


def _catalogs(settings: Settings) -> str:
    from freshline.cli.catalog import examine_catalogs

    found = examine_catalogs(settings)
    if any(problem for _, problem in found):
        raise CatalogError("; ".join(sentence for sentence, problem in found if problem))
    return "; ".join(sentence for sentence, _ in found) or "none declared"


def _port(settings: Settings) -> str:
    read_dagster_token(settings, os.environ)
    record = UpRecord.read(record_file(settings))
    if record is not None and record.supervisor.alive:
        return f"the Dagster UI has its port: {record.url}"
    if settings.dagster_port:
        check_port(settings.dagster_port)
    return f"{settings.dagster_port or 'any'} is free for the Dagster UI"


def _sentences(error: FreshlineError) -> str:
    return "; ".join(CommandError.of(error).lines())
