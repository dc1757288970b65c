"""The lineage events of one refresh, after OpenLineage: what was read, what was written, and by which query.

A refresh is a run of the job that has the table's name. Its two events, START and the end, are made when it ended:
before that nobody knows whether there is anything to do, and a check that found nothing new is no run. Datasets are
named as OpenLineage's rules say: a Delta table is the folder it lies in, with its name as a symlink.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState, set_producer
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    documentation_job,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    ownership_job,
    processing_engine_run,
    schema_dataset,
    sql_job,
    symlinks_dataset,
)
from openlineage.client.serde import Serde
from openlineage.client.uuid import generate_static_uuid

from freshline.commit.columns import column_types
from freshline.commit.delta_log import exists
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.errors import FreshlineError
from freshline.query.resolved import ColumnLineage, find_lineage
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.result import RefreshResult, State
from freshline.values.spec import SourceSpec, TableSpec
from freshline.version import __version__

PRODUCER = f"urn:freshline:{__version__}"
_ENDS = {State.SUCCEEDED: RunState.COMPLETE, State.FAILED: RunState.FAIL, State.CANCELLED: RunState.ABORT}
_LONGEST_TEXT = 100_000


def is_run(result: RefreshResult) -> bool:
    """Whether a result is one of a refresh that did something, or tried to."""
    return result.state in _ENDS and not result.is_check


class LineageEvents:
    """Makes the events of refreshes; column lineage is found once for each declaration.

    `spark_version` is that of the engine's Spark.
    """

    def __init__(self, warehouse: Warehouse, namespace: str, spark_version: str) -> None:
        set_producer(PRODUCER)
        self._warehouse = warehouse
        self._namespace = namespace
        self._spark_version = spark_version
        self._lineages: dict[tuple[str, str], ColumnLineage] = {}

    def events(self, graph: Graph, result: RefreshResult) -> list[str]:
        """The two events as lines of JSON; none for what is no run, and for a table that is not declared any more."""
        if not is_run(result) or result.table not in graph:
            return []
        # The same for the same refresh: an event that is made and sent once more is known by it.
        identity = f"{self._warehouse.root}/{result.table}/{result.at.isoformat()}/{result.seconds}".encode()
        run = Run(str(generate_static_uuid(result.at, identity)), facets=self._run_facets(result))
        job = Job(self._namespace, str(result.table), facets=self._job_facets(graph, result))
        inputs, outputs = self._inputs(graph, result.table), self._outputs(graph, result)
        began = result.at - timedelta(seconds=result.seconds)
        return [
            Serde.to_json(
                RunEvent(eventTime=at.isoformat(), run=run, job=job, eventType=kind, inputs=inputs, outputs=outputs)
            )
            for kind, at in ((RunState.START, began), (_ENDS[result.state], result.at))
        ]

    def _run_facets(self, result: RefreshResult) -> dict[str, RunFacet]:
        facts: dict[str, Any] = {
            "strategy": result.strategy,
            "reason": result.reason[:_LONGEST_TEXT],
            "mode": result.mode,
            "cause": result.cause,
            "rowsIn": result.rows_in,
            "rowsOut": result.rows_out,
            "rejected": result.rejected,
            "seconds": round(result.seconds, 3),
            "cpuSeconds": result.cpu_seconds,
            "lagSeconds": result.lag_seconds,
            "freshnessSeconds": result.freshness_seconds,
            "partitions": list(result.partitions[:1_000]),
        }
        found: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=self._spark_version, name="spark", openlineageAdapterVersion=__version__
            ),
            "freshline_refresh": _with(RunFacet(), facts),
        }
        if result.error is not None:
            found["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=result.reason[:_LONGEST_TEXT], programmingLanguage="PYTHON"
            )
        return found

    def _job_facets(self, graph: Graph, result: RefreshResult) -> dict[str, JobFacet]:
        spec = graph.spec(result.table)
        found: dict[str, JobFacet] = {
            "jobType": job_type_job.JobTypeJobFacet(
                # Each refresh ends, whatever the mode: a run of a streaming job has no end.
                processingType="BATCH",
                integration="FRESHLINE",
                jobType=None if result.mode is None else result.mode.upper(),
            )
        }
        if isinstance(spec, TableSpec) and isinstance(spec.query, SqlQuery):
            found["sql"] = sql_job.SQLJobFacet(query=spec.query.written[:_LONGEST_TEXT], dialect="spark")
        if spec.comment:
            found["documentation"] = documentation_job.DocumentationJobFacet(description=spec.comment)
        if spec.owner:
            found["ownership"] = ownership_job.OwnershipJobFacet(owners=[ownership_job.Owner(name=spec.owner)])
        return found

    def _inputs(self, graph: Graph, name: TableName) -> list[InputDataset]:
        spec = graph.spec(name)
        if isinstance(spec, SourceSpec):
            if not spec.is_log:
                return []
            namespace, outside = spec.connection.dataset
            return [InputDataset(namespace, outside)]
        return [InputDataset(*self._dataset(graph, read), facets=self._symlink(read)) for read in spec.reads]

    def _outputs(self, graph: Graph, result: RefreshResult) -> list[OutputDataset]:
        name = result.table
        facets: dict[str, DatasetFacet] = {**self._symlink(name)}
        path = self._warehouse.location(graph.spec(name))
        # A table whose log cannot be read has failed to refresh, which the event says.
        with suppress(FreshlineError):
            if exists(path):
                facets["schema"] = schema_dataset.SchemaDatasetFacet(
                    fields=[
                        schema_dataset.SchemaDatasetFacetFields(name=column, type=kind, ordinal_position=number)
                        for number, (column, kind) in enumerate(column_types(path).items(), 1)
                    ]
                )
        if result.version is not None:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(result.version))
        lineage = self._lineage(graph, name)
        if lineage:
            facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
                fields={
                    column: column_lineage_dataset.Fields(
                        inputFields=[
                            column_lineage_dataset.InputField(*self._dataset(graph, read), field=field)
                            for read, field in origins
                        ]
                    )
                    for column, origins in lineage.items()
                }
            )
        statistics: dict[str, OutputDatasetFacet] = {}
        if result.committed and result.rows_out is not None:
            statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=result.rows_out
            )
        return [OutputDataset(*self._dataset(graph, name), facets=facets, outputFacets=statistics)]

    def _dataset(self, graph: Graph, name: TableName) -> tuple[str, str]:
        spec = graph.spec(name)
        if isinstance(spec, TableSpec) and spec.sink is not None:
            return spec.sink.dataset
        return "file", str(self._warehouse.location(spec))

    def _symlink(self, name: TableName) -> dict[str, DatasetFacet]:
        identifier = symlinks_dataset.Identifier(namespace=self._namespace, name=str(name), type="TABLE")
        return {"symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[identifier])}

    def _lineage(self, graph: Graph, name: TableName) -> ColumnLineage:
        spec = graph.spec(name)
        if not isinstance(spec, TableSpec):
            return {}
        if spec.sink is not None:
            return {column: ((spec.reads[0], column),) for column in spec.columns or ()}
        columns = {read: known for read in spec.reads if (known := graph.columns(read)) is not None}
        key = (spec.fingerprint, repr(sorted((str(read), known) for read, known in columns.items())))
        if key not in self._lineages:
            self._lineages[key] = find_lineage(spec, columns)
        return self._lineages[key]


def _with(facet: RunFacet, facts: Mapping[str, Any]) -> RunFacet:
    """A facet of our own with these fields, which has the schema of every facet."""
    return facet.with_additional_properties(**facts)  # type: ignore[return-value]


class EventFile:
    """A file with one event a line, for readers of files. It is renamed to `.1` when it has grown to `most_bytes`."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._lock = threading.Lock()

    def append(self, lines: list[str]) -> None:
        """Raises OSError."""
        with self._lock:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size >= self._most_bytes:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))
