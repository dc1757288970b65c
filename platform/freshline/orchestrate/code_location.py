"""The project as Dagster loads it: one graph of assets.

Loaded by every code server, run and `dagster` command, so it starts nothing, writes nothing and needs no Spark.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetsDefinition,
    AssetSpec,
    DagsterInstance,
    Definitions,
    SensorDefinition,
    in_process_executor,
)

from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.declare.names import TableName
from freshline.declare.project import find_project, read_settings
from freshline.declare.settings import Settings
from freshline.declare.spec import SourceSpec
from freshline.engine.client import EngineClient
from freshline.errors import DeclarationError, DeclarationErrors, FreshlineError
from freshline.orchestrate.asset import asset_spec
from freshline.orchestrate.executable import executable_asset, executable_checks
from freshline.orchestrate.freshness import DESCRIPTION, check_now, check_spec
from freshline.orchestrate.look import opened
from freshline.orchestrate.materialize import Materialization, Requests
from freshline.orchestrate.partitions import read_partitioned
from freshline.orchestrate.sensors import batch_sensor, supervisor_sensor
from freshline.plan.intentions import apply_overrides
from freshline.plan.project import open_project

LOG = logging.getLogger(__name__)


def definitions(project: Path | str | None = None) -> Definitions:
    """Every table and source of a project as an asset.

    `project` is its folder or one below it (default: the current folder). Raises DeclarationErrors with every
    mistake, each with file and line, and SettingsError where there is no project.
    """
    settings = read_settings(find_project(None if project is None else Path(project)), os.environ)
    graph = _in_force(open_project(settings), settings)
    return Definitions(
        assets=assets(graph, settings),
        asset_checks=checks(graph, settings),
        sensors=sensors(graph, settings),
        # A refresh runs in the engine: a process for each step would only cost its start.
        executor=in_process_executor,
    )


def _in_force(graph: Graph, settings: Settings) -> Graph:
    """The graph with the overrides of this moment: assets show the freshness and mode that hold."""
    if not settings.has_control_store:
        return graph
    try:
        with opened(settings) as control:
            return apply_overrides(graph, control.intentions.read().at(datetime.now(UTC)))
    except FreshlineError as error:
        # What is declared is shown then; a database that is away must not take the assets out of the UI.
        LOG.warning("overrides are not shown: %s", error)
        return graph


def assets(graph: Graph, settings: Settings) -> list[AssetsDefinition | AssetSpec]:
    """The assets in the order of the graph; a source that is read in place is external."""
    specs: dict[TableName, AssetSpec] = {}
    errors: list[DeclarationError] = []
    for name in graph.order:
        try:
            specs[name] = asset_spec(graph, name, settings)
        except DeclarationError as error:
            errors.append(error)
    if errors:
        raise DeclarationErrors(errors)
    warehouse = Warehouse(settings.warehouse)
    connect = partial(_connect, settings)
    return [
        spec
        if _in_place(graph, name)
        else executable_asset(
            spec, Materialization(graph.spec(name), warehouse, read_partitioned(graph, name)), connect
        )
        for name, spec in specs.items()
    ]


def checks(graph: Graph, settings: Settings) -> list[AssetChecksDefinition]:
    """The check `freshness` of each table and log table."""
    specs = [check_spec(name) for name in graph.kept]
    if not specs:
        return []

    def evaluate(asked: Collection[AssetCheckKey], instance: DagsterInstance) -> Iterator[AssetCheckResult]:
        return check_now(settings, graph, asked, instance, datetime.now(UTC))

    return [executable_checks(specs, "freshline_freshness", DESCRIPTION, evaluate)]


def sensors(graph: Graph, settings: Settings) -> list[SensorDefinition]:
    """What keeps the tables; none in a project that has none yet."""
    return [supervisor_sensor(settings, graph), batch_sensor(settings, graph)] if graph.kept else []


def _connect(settings: Settings, progress: Callable[[str], None]) -> Requests:
    """The engine of the project, started if none runs."""
    return EngineClient.connect(settings, start=True, progress=progress)


def _in_place(graph: Graph, name: TableName) -> bool:
    spec = graph.spec(name)
    return isinstance(spec, SourceSpec) and not spec.is_log
