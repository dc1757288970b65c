"""The project as Dagster loads it: one graph of assets.

Loaded by every code server, run and `dagster` command, so it starts nothing, writes nothing and needs no Spark.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetsDefinition,
    AssetSpec,
    Definitions,
    SensorDefinition,
    TableColumnLineage,
    in_process_executor,
)

from freshline.commit.warehouse import Warehouse
from freshline.dagster.asset import asset_spec
from freshline.dagster.checks import check_specs, evaluate_checks
from freshline.dagster.columns import KnownColumns
from freshline.dagster.executable import executable_asset, executable_checks
from freshline.dagster.lineage import lineage_metadata, read_lineages
from freshline.dagster.look import opened
from freshline.dagster.materialize import Materialization, Requests
from freshline.dagster.partitions import read_partitioned
from freshline.dagster.sensors import batch_sensor, janitor_sensor, supervisor_sensor, verify_sensor
from freshline.declare.graph import Graph
from freshline.declare.names import TableName
from freshline.declare.project import find_project, read_settings
from freshline.declare.settings import Settings
from freshline.declare.spec import SourceSpec
from freshline.engine.client import EngineClient
from freshline.errors import DeclarationError, DeclarationErrors, FreshlineError
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
    lineages = read_lineages(graph, settings)
    return Definitions(
        assets=assets(graph, settings, lineages),
        asset_checks=checks(graph, settings),
        sensors=sensors(graph, settings, lineages),
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


def assets(
    graph: Graph, settings: Settings, lineages: Mapping[TableName, TableColumnLineage]
) -> list[AssetsDefinition | AssetSpec]:
    """The assets in the order of the graph; a source that is read in place is external."""
    specs: dict[TableName, AssetSpec] = {}
    errors: list[DeclarationError] = []
    known = KnownColumns(settings)
    for name in graph.order:
        try:
            specs[name] = asset_spec(graph, name, settings, known).merge_attributes(
                metadata=lineage_metadata(lineages, name)
            )
        except DeclarationError as error:
            errors.append(error)
    if errors:
        raise DeclarationErrors(errors)
    known.save()
    warehouse = Warehouse(settings.warehouse)
    connect = partial(_connect, settings)
    return [
        spec
        if _in_place(graph, name)
        else executable_asset(
            spec,
            Materialization(
                graph.spec(name), warehouse, lineages.get(name), read_partitioned(graph, name), graph.order.index(name)
            ),
            connect,
        )
        for name, spec in specs.items()
    ]


def checks(graph: Graph, settings: Settings) -> list[AssetChecksDefinition]:
    """The checks of each table and log table, in one step."""
    specs = check_specs(graph)
    if not specs:
        return []
    connect = partial(_connect, settings)

    def evaluate(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        return evaluate_checks(settings, graph, connect, context, datetime.now(UTC))

    return [executable_checks(specs, "freshline_checks", "Judges tables as they stand", evaluate)]


def sensors(
    graph: Graph, settings: Settings, lineages: Mapping[TableName, TableColumnLineage]
) -> list[SensorDefinition]:
    """What keeps the tables; none in a project that has none yet."""
    if not graph.kept:
        return []
    found = [
        supervisor_sensor(settings, graph, lineages=lineages),
        batch_sensor(settings, graph),
        janitor_sensor(graph),
    ]
    return [*found, verify_sensor(settings, graph)] if graph.tables else found


def _connect(settings: Settings, progress: Callable[[str], None]) -> Requests:
    """The engine of the project, started if none runs."""
    return EngineClient.connect(settings, start=True, progress=progress)


def _in_place(graph: Graph, name: TableName) -> bool:
    spec = graph.spec(name)
    return isinstance(spec, SourceSpec) and not spec.is_log
