"""Time partitions as conditions over rows: which rows of a query belong to which stretches of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime

from pyspark.sql.types import DataType, DateType, StringType, StructType, TimestampNTZType, TimestampType

from freshline.compute.literal import sql_literal
from freshline.errors import PartitionError
from freshline.refresh.partitions import partition_column
from freshline.refresh.runtime import Runtime
from freshline.values.names import quoted
from freshline.values.partition import Interval, wanted_until
from freshline.values.spec import Mode, TableSpec
from freshline.values.time_partition import PartitionUnit, TimePartition, TimePartitions

NOTHING = "false"


def partitions_of(spec: TableSpec) -> TimePartitions:
    """The time partitions of a table that has them. Raises PartitionError for another."""
    if spec.time_partitions is None:
        raise PartitionError(
            "the table has no partitions in time. Declare 'partition.unit' and 'partition.start', or "
            "'partition.values', or name partitions by their values.",
            where=str(spec.name),
        )
    return spec.time_partitions


def wanted_end(runtime: Runtime, spec: TableSpec) -> datetime:
    """The end of the partitions that a refresh fills now, with the open one if freshness asks for it.

    See rule 5 of docs/rules.md.
    """
    partitions = partitions_of(spec)
    shorter = runtime.graph.freshness(spec.name).seconds < partitions.unit.seconds
    live = runtime.graph.mode(spec.name) is not Mode.BATCH
    return wanted_until(partitions, runtime.clock(), open_too=live or shorter)


def within(spec: TableSpec, schema: StructType, intervals: Iterable[Interval]) -> str:
    """The condition over the table's own column that is true for exactly the rows of these intervals."""
    (column,) = spec.partitioned_by
    kind = next(field.dataType for field in schema.fields if field.name.lower() == column.lower())
    return interval_condition(spec, quoted(column), kind, intervals)


def interval_condition(spec: TableSpec, expression: str, kind: DataType, intervals: Iterable[Interval]) -> str:
    """The condition over an expression of the partition column's type; NULL is in no interval.

    Raises PartitionError for a type that is no time, or none as short as the unit.
    """
    partitions = partitions_of(spec)
    parts = []
    for start, end in _joined(intervals):
        least = sql_literal(_bound(spec, partitions, kind, start))
        beyond = sql_literal(_bound(spec, partitions, kind, end))
        parts.append(f"({expression} >= {least} AND {expression} < {beyond})")
    return " OR ".join(parts) or NOTHING


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _bound(spec: TableSpec, partitions: TimePartitions, kind: DataType, moment: datetime) -> object:
    if isinstance(kind, TimestampType):
        return moment.astimezone(UTC)
    if isinstance(kind, TimestampNTZType):
        # A time without a zone is UTC, as everywhere.
        return moment.astimezone(UTC).replace(tzinfo=None)
    if isinstance(kind, DateType | StringType) and partitions.unit is not PartitionUnit.HOUR:
        day = partitions.local_date(moment)
        return day if isinstance(kind, DateType) else day.isoformat()
    (column,) = spec.partitioned_by
    raise PartitionError(
        f"'partition.unit' = '{partitions.unit}' needs {_accepted(partitions)} in PARTITIONED BY, and {column} is "
        f"{kind.simpleString().upper()}. Let the query yield that, or remove the options that begin with 'partition.'.",
        where=str(spec.name),
    )


def _accepted(partitions: TimePartitions) -> str:
    if partitions.unit is PartitionUnit.HOUR:
        return "a TIMESTAMP"
    return "a DATE, a TIMESTAMP or a text such as 2026-11-01"


def read_time_partition(spec: TableSpec, partition: Sequence[tuple[str, str]], now: datetime) -> TimePartition:
    """The partition that a person names as one column and its key. Raises PartitionError, before any work."""
    partitions = partitions_of(spec)
    (column,) = spec.partitioned_by
    if not partition:
        raise PartitionError("no partition is named", where=str(spec.name))
    for name, _ in partition:
        partition_column(spec, name)
    if len(partition) > 1:
        raise PartitionError(f"{column} is named twice", where=str(spec.name))
    ((_, key),) = partition
    try:
        return partitions.named(key, now)
    except ValueError as error:
        raise PartitionError(f"{error}.", where=f"{spec.name} partition ({column} = {key!r})") from None


def written_partitions(
    spec: TableSpec, actions: Iterable[Mapping[str, object]], intervals: Iterable[Interval] = ()
) -> tuple[str, ...]:
    """The keys of the partitions that a commit wrote or emptied, by the values that its files were written under.

    `intervals` were brought in as a whole, whether or not they have rows.
    """
    partitions = partitions_of(spec)
    (column,) = spec.partitioned_by
    found: dict[datetime, str] = {}
    for start, end in intervals:
        for partition in partitions.inside(start, end):
            found[partition.start] = partition.key
    for action in actions:
        for kind in ("add", "remove"):
            changed = action.get(kind)
            if not isinstance(changed, Mapping):
                continue
            values = changed.get("partitionValues") or {}
            value = next((text for name, text in values.items() if name.lower() == column.lower()), None)
            moment = None if value is None else _moment(partitions, str(value))
            if moment is not None and moment >= partitions.first.start:
                partition = partitions.at(moment)
                found[partition.start] = partition.key
    return tuple(found[start] for start in sorted(found))


def _moment(partitions: TimePartitions, text: str) -> datetime | None:
    """The moment of a partition value as Delta writes it: a date, or a time in UTC."""
    try:
        if len(text) == 10:
            return partitions.beginning_of(date.fromisoformat(text))
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
