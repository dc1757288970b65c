"""The project as Dagster loads it: one graph of assets, with its checks and sensors.

Loaded by every code server, run and `dagster` command, so it starts nothing, writes nothing and needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetsDefinition,
    AssetSpec,
    Definitions,
    SensorDefinition,
    in_process_executor,
)

from freshline.commit.warehouse import Warehouse
from freshline.dagster.asset import asset_spec
from freshline.dagster.checks import check_specs, evaluate_checks
from freshline.dagster.columns import KnownColumns
from freshline.dagster.data_versions import inputs_of
from freshline.dagster.executable import executable_asset, executable_checks
from freshline.dagster.jobs import freshness_job
from freshline.dagster.lineage import lineage_metadata, shown_lineages
from freshline.dagster.materialize import Materialization
from freshline.dagster.mistaken import mistaken_specs
from freshline.dagster.partitions import read_partitioned
from freshline.dagster.project import FreshlineProject
from freshline.dagster.selection import ALL, Selection
from freshline.dagster.sensors import batch_sensor, janitor_sensor, supervisor_sensor, verify_sensor
from freshline.dagster.translator import FreshlineTranslator
from freshline.errors import DeclarationError, DeclarationErrors
from freshline.plan.valid_project import Mistaken
from freshline.report.descriptions import describe_columns
from freshline.report.samples import find_masks
from freshline.values.names import TableName


def build_definitions(
    project: FreshlineProject,
    *,
    select: Selection = ALL,
    exclude: Selection = (),
    translator: FreshlineTranslator | None = None,
    checks: bool = True,
    sensors: bool = True,
    strict: bool = False,
) -> Definitions:
    """Assets, checks and sensors of a project at once; `checks` and `sensors` may be left out.

    With the sensors, which a code location has once, comes the job `freshline_set_freshness`. It changes the freshness
    of any table of the project.

    Merge it with definitions of your own: `Definitions.merge(build_definitions(project), Definitions(..))`. Mistakes in
    declarations, and `strict`, are as in `build_assets`.
    """
    return Definitions(
        assets=build_assets(project, select=select, exclude=exclude, translator=translator, strict=strict),
        asset_checks=build_checks(project, select=select, exclude=exclude, translator=translator) if checks else [],
        sensors=build_sensors(project, select=select, exclude=exclude, translator=translator) if sensors else [],
        jobs=[freshness_job(project)] if sensors else [],
        # A refresh runs in the engine: a process for each step would only cost its start.
        executor=in_process_executor,
    )


def build_assets(
    project: FreshlineProject,
    *,
    select: Selection = ALL,
    exclude: Selection = (),
    translator: FreshlineTranslator | None = None,
    strict: bool = False,
) -> Sequence[AssetsDefinition | AssetSpec]:
    """The selected tables and sources as assets, in the order of the graph.

    A table or log table can be materialized, by a step of its own. A source that is read in place is an external asset.
    So is a declaration with a mistake, which its description shows, and one that reads such. With `strict`, and where a
    selection leaves out something, mistakes raise DeclarationErrors instead, with file and line. Raises SettingsError
    where there is no project and for what is no selection.
    """
    is_whole = select == ALL and not exclude
    if strict or not is_whole:
        # Whether a selection has a table is not known where there is no declaration.
        _ = project.declared_graph
    graph, settings = project.graph, project.settings
    keys = project.keys(translator, select, exclude)
    translator = translator or FreshlineTranslator()
    lineages = shown_lineages(project.lineages, keys)
    descriptions = describe_columns(graph, project.lineages)
    specs: dict[TableName, AssetSpec] = {}
    errors: dict[TableName, DeclarationError] = {}
    known = KnownColumns(settings)
    for name in keys.only(graph.order):
        try:
            specs[name] = asset_spec(
                graph, name, settings, keys, translator, known, descriptions[name]
            ).merge_attributes(metadata=lineage_metadata(lineages, name))
        except DeclarationError as error:
            errors[name] = error
    if errors and (strict or not is_whole):
        raise DeclarationErrors(list(errors.values()))
    known.save()
    warehouse = Warehouse(settings.warehouse)
    masks = find_masks(graph, settings.masked_columns)
    mistaken = [
        *project.standing.mistaken,
        *(Mistaken(name, settings.root / graph.spec(name).written_at.path, (error,)) for name, error in errors.items()),
    ]
    shown: list[AssetsDefinition | AssetSpec] = [
        spec
        if graph.spec(name).is_read_in_place
        else executable_asset(
            spec,
            Materialization(
                graph.spec(name),
                keys[name],
                warehouse,
                lineages.get(name),
                {read: keys[read] for read in read_partitioned(graph, name)},
                graph.order.index(name),
                graph.specs,
                settings.sample_rows,
                masks[name],
                descriptions[name],
                inputs_of(graph, name, keys, warehouse),
                spec.partitions_def is not None,
            ),
            project.connect,
        )
        for name, spec in specs.items()
    ]
    taken = {spec.key for spec in specs.values()}
    return [*shown, *(mistaken_specs(mistaken, taken, keys.keys, translator) if is_whole else ())]


def build_checks(
    project: FreshlineProject,
    *,
    select: Selection = ALL,
    exclude: Selection = (),
    translator: FreshlineTranslator | None = None,
    name: str = "freshline_checks",
) -> Sequence[AssetChecksDefinition]:
    """The checks of the selected tables and log tables, in one step called `name`; none where there are none.

    A code location that calls it twice, for two selections, gives each step a name of its own.
    """
    graph, keys = project.graph, project.keys(translator, select, exclude)
    specs = check_specs(graph, keys)
    if not specs:
        return []

    def evaluate(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        return evaluate_checks(project.settings, graph, keys, project.connect, context, datetime.now(UTC))

    return [executable_checks(specs, name, "Judges tables as they stand", evaluate)]


def build_sensors(
    project: FreshlineProject,
    *,
    select: Selection = ALL,
    exclude: Selection = (),
    translator: FreshlineTranslator | None = None,
) -> Sequence[SensorDefinition]:
    """The sensors that keep and report the selected tables; none in a project that has none yet.

    `freshline_supervisor`, `freshline_batch`, `freshline_verify` and `freshline_janitor`. One code location has each of
    them once, so call this once, with a selection that covers all that the location has. Without them nothing requests
    runs of batch tables, and nothing reports what the engine refreshed by itself.
    """
    graph, settings = project.graph, project.settings
    keys = project.keys(translator, select, exclude)
    if not keys.only(graph.kept):
        return []
    found = [
        supervisor_sensor(
            settings,
            graph,
            keys,
            lineages=shown_lineages(project.lineages, keys),
            descriptions=describe_columns(graph, project.lineages),
        ),
        batch_sensor(settings, graph, keys),
        janitor_sensor(graph, keys),
    ]
    tables = keys.only(table.name for table in graph.verified)
    return [*found, verify_sensor(settings, graph, keys)] if tables else found
