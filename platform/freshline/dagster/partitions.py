"""Partitions as Dagster sees them: their definition, what a run asks for, and events that make the bar true.

They are in time, or the values that a declaration lists. A run asks the engine for a backfill, in the words of the
command line. Dagster hears of each partition when it is done, and not when the run is: a run that fails or is killed
leaves the bar as it should be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

from dagster import (
    AllPartitionMapping,
    AssetDep,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    StaticPartitionsDefinition,
    TimeWindowPartitionsDefinition,
)

from freshline.commit.delta_log import read_newest
from freshline.commit.warehouse import Warehouse
from freshline.dagster.internals import DATA_VERSION_TAG
from freshline.declare.graph import Graph
from freshline.values.names import TableName
from freshline.values.partition import find_gaps
from freshline.values.spec import Mode, Spec, TableSpec
from freshline.values.time_partition import PartitionUnit

# The tag of a run that names its backfill, which a run that is tried again goes on with.
BACKFILL_RUN = "freshline/backfill"
# More are reported at the next ticks: an event takes two kilobytes of Dagster's storage.
TOLD_AT_ONCE = 200

_CRON = {
    PartitionUnit.HOUR: "0 * * * *",
    PartitionUnit.DAY: "0 0 * * *",
    PartitionUnit.WEEK: "0 0 * * 1",
    PartitionUnit.MONTH: "0 0 1 * *",
}
_MOMENT = timedelta(microseconds=1)


def partitions_definition(
    graph: Graph, spec: Spec
) -> TimeWindowPartitionsDefinition | StaticPartitionsDefinition | None:
    """The partitions of a table, the open one among them where a refresh brings it in; None for one without."""
    if not isinstance(spec, TableSpec):
        return None
    if spec.partition_values:
        return StaticPartitionsDefinition(list(spec.partition_values))
    if spec.time_partitions is None:
        return None
    partitions = spec.time_partitions
    open_too = graph.mode(spec.name) is not Mode.BATCH or graph.freshness(spec.name).seconds < partitions.unit.seconds
    return TimeWindowPartitionsDefinition(
        start=partitions.start,
        fmt="%Y-%m-%d-%H:%M" if partitions.unit is PartitionUnit.HOUR else "%Y-%m-%d",
        cron_schedule=_CRON[partitions.unit],
        timezone=partitions.time_zone,
        end_offset=1 if open_too else 0,
    )


def dependency(spec: Spec, upstream: Spec, key: AssetKey) -> AssetDep:
    """A table on one that it reads: partition on partition where Dagster can map them, else on all of it.

    It can where both are in time and of one time zone, and where both have the same values.
    """
    own, above = _partitioning(spec), _partitioning(upstream)
    if own is not None and above is not None and own != above:
        return AssetDep(key, partition_mapping=AllPartitionMapping())
    return AssetDep(key)


def read_partitioned(graph: Graph, name: TableName) -> tuple[TableName, ...]:
    """The partitioned tables that a partitioned table reads; none for one without partitions."""
    if _partitioning(graph.spec(name)) is None:
        return ()
    upstreams = [graph.spec(read) for read in graph.reads(name)]
    return tuple(upstream.name for upstream in upstreams if _partitioning(upstream) is not None)


def values_of(spec: Spec) -> tuple[str, ...]:
    """The partitions that a declaration lists; none for partitions in time, and for a table without."""
    return spec.partition_values if isinstance(spec, TableSpec) else ()


def _partitioning(spec: Spec) -> str | tuple[str, ...] | None:
    """The time zone, or all values, which two tables must share so that partitions map; None for a table without."""
    if not isinstance(spec, TableSpec):
        return None
    return spec.partition_values or (None if spec.time_partitions is None else spec.time_partitions.time_zone)


@dataclass(frozen=True)
class AskedPartitions:
    """The partitions that a run asks for, as the arguments of the engine's request; `single` for exactly one."""

    arguments: Mapping[str, Any]
    single: bool


def asked_partitions(context: AssetExecutionContext, spec: Spec) -> AskedPartitions | None:
    """The partitions that a run asks for; None for a run without partitions, or on a table without."""
    if not isinstance(spec, TableSpec) or not (context.has_partition_key or context.has_partition_key_range):
        return None
    if spec.partition_values:
        (column,) = spec.partitioned_by
        keys = list(context.partition_keys)
        return AskedPartitions({"partitions": [[[column, key]] for key in keys]}, single=len(keys) == 1)
    if spec.time_partitions is None:
        return None
    window = context.partition_time_window
    first = spec.time_partitions.at(window.start.astimezone(UTC)).key
    last = spec.time_partitions.at(window.end.astimezone(UTC) - _MOMENT).key
    return AskedPartitions({"ranges": [[None, first, last]]}, single=first == last)


def backfill_of(run: DagsterRun, instance: DagsterInstance) -> tuple[str, bool]:
    """The name of a run's backfill, and whether an earlier run began it and did not end it."""
    parent = None if run.parent_run_id is None else instance.get_run_by_id(run.parent_run_id)
    unfinished = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
    if parent is not None and parent.status in unfinished and BACKFILL_RUN in parent.tags:
        return parent.tags[BACKFILL_RUN], True
    return run.run_id, False


def partition_event(
    key: AssetKey, partition: str, metadata: Mapping[str, Any], version: int | None
) -> AssetMaterialization:
    """The materialization of one partition."""
    tags = {} if version is None else {DATA_VERSION_TAG: str(version)}
    return AssetMaterialization(asset_key=key, partition=partition, metadata=dict(metadata), tags=tags)


def newest_event(instance: DagsterInstance, key: AssetKey) -> int:
    """The number of the newest materialization of an asset, 0 before the first."""
    records = instance.fetch_materializations(key, limit=1).records
    return records[0].storage_id if records else 0


def unknown(instance: DagsterInstance, key: AssetKey, partitions: Sequence[str]) -> tuple[str, ...]:
    """The first of these partitions, at most TOLD_AT_ONCE, that Dagster has no materialization of."""
    known = instance.get_materialized_partitions(key) if partitions else set()
    return tuple(each for each in partitions if each not in known)[:TOLD_AT_ONCE]


def unreported(instance: DagsterInstance, key: AssetKey, partitions: Sequence[str], since: int) -> tuple[str, ...]:
    """The newest of these partitions, at most TOLD_AT_ONCE, of which Dagster heard nothing since an event.

    While a run waits, the sensor reports the partitions that it sees: a long first refresh would be reported twice.
    """
    newest = partitions[-TOLD_AT_ONCE:]
    if not newest:
        return ()
    events = instance.event_log_storage.get_latest_storage_id_by_partition(
        key, DagsterEventType.ASSET_MATERIALIZATION, set(newest)
    )
    return tuple(each for each in newest if events.get(each, 0) <= since)


def done_partitions(spec: TableSpec, warehouse: Warehouse) -> tuple[tuple[str, ...], int | None]:
    """The partitions that the table has as they are declared now, and its version; only its newest receipt is read."""
    newest = read_newest(warehouse.path(spec.name))
    receipt = None if newest is None else newest.receipt
    if newest is None or receipt is None:
        return (), None
    if spec.time_partitions is None:
        # Refreshed as a whole, it has all of them.
        return (spec.partition_values if receipt.fingerprint == spec.fingerprint else ()), newest.version
    found: dict[str, None] = {}
    for span in receipt.spans or ():
        if span.fingerprint != spec.fingerprint:
            continue
        for item in spec.time_partitions.inside(span.start, span.end):
            whole = span.start <= item.start and item.end <= span.end
            if whole or not find_gaps(receipt.spans or (), spec.fingerprint, item.start, item.end):
                found[item.key] = None
    return tuple(found), newest.version


class PartitionBars:
    """Reports to Dagster the partitions that are done and that it does not know of, whoever did them."""

    def __init__(self) -> None:
        self._summary: dict[Path, int] = {}

    def events(
        self,
        graph: Graph,
        key_of: Mapping[TableName, AssetKey],
        warehouse: Warehouse,
        instance: DagsterInstance,
    ) -> Iterator[AssetMaterialization]:
        """Materializations without a run, at most TOLD_AT_ONCE. A version of a table is checked only once."""
        left = TOLD_AT_ONCE
        for spec in graph.tables:
            if _partitioning(spec) is None or spec.name not in key_of or left <= 0:
                continue
            key, path = key_of[spec.name], warehouse.path(spec.name)
            done, version = done_partitions(spec, warehouse)
            if version is None or self._summary.get(path) == version:
                continue
            known = instance.get_materialized_partitions(key)
            missing = [partition for partition in done if partition not in known]
            for partition in missing[:left]:
                yield partition_event(key, partition, {"version": version}, version)
            if len(missing) <= left:
                self._summary[path] = version
            left -= len(missing)


def newest_done(spec: Spec, warehouse: Warehouse) -> str | None:
    """The newest partition in time that is done: the one that an event about the table as a whole names."""
    if not isinstance(spec, TableSpec) or spec.time_partitions is None:
        return None
    newest = read_newest(warehouse.path(spec.name))
    receipt = None if newest is None else newest.receipt
    last = max((span.end for span in (receipt.spans if receipt is not None else None) or ()), default=None)
    return None if last is None else spec.time_partitions.at(last - _MOMENT).key
