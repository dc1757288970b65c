"""The states of the partitions of a table, by its newest receipt and the logs of its inputs. It only reads.

The receipt alone says which are missing or of another declaration. Of a table with positions a partition, those are
stale too whose rows changed in an input since: Spark reads the changed rows, and only where there are any.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, TimestampType

from freshline.commit.delta_log import classify, newest_version, position_of, read_newest, read_receipts
from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import Pinned, read_net_images
from freshline.compute.keys import comes_back
from freshline.compute.literal import EPOCH, for_literal
from freshline.compute.read_only import read_expression
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.request import BACKFILL
from freshline.query.rules.partition import Origin, origin_of
from freshline.refresh.runtime import Runtime
from freshline.refresh.time_partitions import partitions_of
from freshline.values.names import TableName
from freshline.values.partition import Interval, PartitionSpan, PartitionState, state_of
from freshline.values.position import Position, TablePosition
from freshline.values.receipt import Receipt
from freshline.values.spec import Mode, SourceSpec, TableSpec
from freshline.values.time_partition import TimePartition, TimePartitions

# Of more, all count as changed.
MOST_VALUES = 5_000


def read_states(
    runtime: Runtime, spec: TableSpec, partitions: Iterable[TimePartition], cancellation: Cancellation
) -> dict[str, PartitionState]:
    """The state of each of these partitions by its key."""
    newest = read_newest(runtime.warehouse.path(spec.name))
    receipt = None if newest is None else newest.receipt
    if receipt is None or receipt.spans is None:
        state = PartitionState.MISSING if receipt is None else PartitionState.STALE
        return {item.key: state for item in partitions}
    changed: list[Interval] = []
    if runtime.graph.mode(spec.name) is Mode.BATCH:
        # In other modes what changed since is on its way by the change sets, to all partitions at once.
        changed = list(_changed(runtime, spec, receipt.spans, receipt.positions, cancellation))
    return {item.key: state_of(item, receipt.spans, spec.fingerprint, changed=changed) for item in partitions}


def read_state_of_values(runtime: Runtime, spec: TableSpec) -> PartitionState:
    """The state that all partitions of a table without time have: it is refreshed as a whole."""
    newest = read_newest(runtime.warehouse.path(spec.name))
    receipt = None if newest is None else newest.receipt
    if receipt is None:
        return PartitionState.MISSING
    return PartitionState.DONE if receipt.fingerprint == spec.fingerprint else PartitionState.STALE


def committed_keys(runtime: Runtime, name: TableName, backfill: str) -> frozenset[str]:
    """The partitions that a backfill has committed already, as far as the table's log goes back."""
    return frozenset(
        key for receipt in _in_force(runtime, name) if receipt.backfill == backfill for key in receipt.replaced
    )


def _in_force(runtime: Runtime, name: TableName) -> Iterator[Receipt]:
    """The receipts of what the table's rows come from, newest first: not of what a restore has undone."""
    undone_above: int | None = None
    for _, receipt in read_receipts(runtime.warehouse.path(name)):
        if undone_above is not None and receipt.seq > undone_above:
            continue
        yield receipt
        if receipt.restored is not None:
            undone_above = receipt.restored


def has_refreshed_whole(runtime: Runtime, name: TableName, backfill: str) -> bool:
    """Whether a backfill has brought in all partitions at once, as far as the table's log goes back."""
    return any(receipt.backfill == backfill and not receipt.replaced for receipt in _in_force(runtime, name))


def _changed(
    runtime: Runtime,
    spec: TableSpec,
    spans: Sequence[PartitionSpan],
    positions: Mapping[TableName, Position],
    cancellation: Cancellation,
) -> Iterator[Interval]:
    """The stretches of time whose rows changed in an input since they were computed."""
    partitions = partitions_of(spec)
    origin = origin_of(spec)
    alike: dict[str, tuple[Mapping[TableName, Position], list[Interval]]] = {}
    for span in spans:
        at = positions if span.positions is None else span.positions
        key = json.dumps({str(name): position.as_json() for name, position in at.items()}, sort_keys=True)
        alike.setdefault(key, (at, []))[1].append(span.interval)
    for at, intervals in alike.values():
        found = [item for item in _changes(runtime, spec, at) if item[1].kind is not ChangeKind.NOTHING]
        if not found:
            continue
        readable = (ChangeKind.APPEND, ChangeKind.MUTATE, ChangeKind.REPLACE)
        pinned, changes = found[0]
        told = len(found) == 1 and changes.kind in readable and changes.before is not None
        told = told and (changes.log or changes.change_feed)
        if not told or origin is None or changes.name != origin.input:
            yield from intervals
            continue
        with runtime.working(cancellation, pool=BACKFILL, what=f"partitions of {spec.name}") as spark:
            moments = _moments(spark, partitions, origin, pinned, changes)
        if moments is None:
            yield from intervals
            continue
        for partition in sorted({there for moment in moments if (there := _partition_at(partitions, moment))}):
            if any(start < partition.end and end > partition.start for start, end in intervals):
                yield partition.start, partition.end


def _changes(
    runtime: Runtime, spec: TableSpec, positions: Mapping[TableName, Position]
) -> Iterator[tuple[Pinned, Changes]]:
    """The changes of each input since these positions."""
    for name in spec.reads:
        upstream = runtime.graph.spec(name)
        path = runtime.warehouse.location(upstream)
        version = newest_version(path)
        if version is None:
            continue
        before = positions.get(name)
        log = isinstance(upstream, SourceSpec) and upstream.is_log
        after = position_of(path, version)
        base = before if isinstance(before, TablePosition) else None
        yield Pinned(upstream, path, after), classify(name, path, base, after, log=log)


def _moments(
    spark: SparkSession, partitions: TimePartitions, origin: Origin, pinned: Pinned, changes: Changes
) -> list[datetime] | None:
    """The times of changed rows; None where these are too many, or no times."""
    images = read_net_images(spark, pinned, changes)
    value = read_expression(origin.expressions[0])
    kind: DataType = images.select(value.alias("v")).schema["v"].dataType
    # A value that is no time in Python has no partition that has begun.
    there = F.when(comes_back(value, kind), for_literal(value, kind))
    rows = images.select(there.alias("v")).distinct().limit(MOST_VALUES + 1).collect()
    if len(rows) > MOST_VALUES:
        return None
    if any(isinstance(row["v"], str) and not _is_date(row["v"]) for row in rows):
        # Texts are compared as they are, so such a row is in a partition too; which one is not known here.
        return None
    found = [_moment(partitions, row["v"], kind) for row in rows if row["v"] is not None]
    return [moment for moment in found if moment is not None]


def _partition_at(partitions: TimePartitions, moment: datetime) -> TimePartition | None:
    try:
        return partitions.at(moment)
    except (ValueError, OverflowError):
        # It would end after, or begin before, all times that there are.
        return None


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2026-11-01")


def _moment(partitions: TimePartitions, value: object, kind: DataType) -> datetime | None:
    """The moment that a value of the partition column is; None for a text that is none."""
    if isinstance(kind, TimestampType) and isinstance(value, int):
        return EPOCH + timedelta(microseconds=value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    try:
        return partitions.beginning_of(value if isinstance(value, date) else date.fromisoformat(str(value)))
    except (ValueError, OverflowError):
        return None
