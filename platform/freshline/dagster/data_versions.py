"""The data versions that Dagster gets, so that it says *Unsynced* of a table that is behind, and of no other.

Dagster calls an asset unsynced when its newest event names another data version of an input than the input's own newest
event has. Inputs that the engine keeps have a new version every few seconds, and readers have used it some seconds
later. So no two newest versions would ever agree, although each table keeps its promise. Two rules make them agree, and
say nothing that is not so:

- The data version of a table is the newest that all readers have used which the engine keeps and which are in time.
- Each of these readers names that version as soon as it is reported, where it has used it or a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dagster import AssetKey, DagsterInstance

from freshline.commit.delta_log import Newest, position_at, position_of, read_newest, table_id
from freshline.commit.warehouse import Warehouse
from freshline.dagster.inspection import ProjectInspection
from freshline.dagster.internals import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    NULL_EVENT_POINTER,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)
from freshline.dagster.keys import AssetKeys
from freshline.dagster.partitions import partitions_definition
from freshline.declare.graph import Graph
from freshline.errors import FreshlineError
from freshline.freshness.batch import batch_tables
from freshline.report.notices import Punctuality, TableUpkeep, punctuality, standing
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt
from freshline.values.spec import TableSpec

# Dagster's word for an input of which no event has a version.
UNKNOWN = DEFAULT_DATA_VERSION.value
# No version of an input: the table has used none of the reported ones.
OLDER = "an older one"


@dataclass(frozen=True)
class InputVersion:
    """A table or source that a table reads. One that does not drive it is a dimension: its rows were those of then."""

    name: TableName
    key: AssetKey
    path: Path
    in_place: bool
    drives: bool
    partitioned: bool


@dataclass(frozen=True)
class NewestMaterialization:
    """The newest materialization that Dagster has of an asset; `number` is its place in Dagster's log."""

    version: str
    at: float
    number: int
    tags: Mapping[str, str]


def inputs_of(graph: Graph, name: TableName, keys: AssetKeys, warehouse: Warehouse) -> tuple[InputVersion, ...]:
    """The inputs of a table, as Dagster has them."""
    driving = frozenset(graph.driving(name))
    found = []
    for read in graph.reads(name):
        spec = graph.spec(read)
        in_place = spec.is_read_in_place
        partitioned = partitions_definition(graph, spec) is not None
        found.append(InputVersion(read, keys[read], warehouse.location(spec), in_place, read in driving, partitioned))
    return tuple(found)


def read_events(instance: DagsterInstance, keys: Collection[AssetKey]) -> dict[AssetKey, NewestMaterialization]:
    """The newest materialization of each of these assets that has one."""
    found: dict[AssetKey, NewestMaterialization] = {}
    for record in instance.get_asset_records(list(keys)) if keys else ():
        last = record.asset_entry.last_materialization_record
        if last is None:
            continue
        event = last.event_log_entry.asset_materialization
        tags = {} if event is None else dict(event.tags or {})
        version = tags.get(DATA_VERSION_TAG, UNKNOWN)
        found[record.asset_entry.asset_key] = NewestMaterialization(version, last.timestamp, last.storage_id, tags)
    return found


def same_rows(one: TablePosition, other: TablePosition) -> bool:
    """Whether two positions have the same rows for certain: maintenance makes versions without new ones.

    >>> same_rows(TablePosition("a", 4, seq=2, epoch=1), TablePosition("a", 5, seq=2, epoch=1))
    True
    >>> same_rows(TablePosition("a", 4, seq=2, epoch=1), TablePosition("a", 4, seq=2, epoch=3))
    False
    """
    if one.table_id != other.table_id or one.is_other_writers(other):
        return False
    return one.version == other.version or (one.seq is not None and one.seq == other.seq)


def version_to_tell(newest: TablePosition, used: Iterable[TablePosition], told: TablePosition | None) -> int:
    """The data version of a table: the newest that all have used of which `used` has the positions.

    It is the version that was reported last where that has the same rows.

    >>> newest = TablePosition("a", 9, seq=9)
    >>> version_to_tell(newest, [TablePosition("a", 7, seq=7), TablePosition("a", 8, seq=8)], None)
    7
    >>> version_to_tell(newest, [], TablePosition("a", 8, seq=9))
    8
    """
    behind = [each for each in used if each.table_id == newest.table_id and not same_rows(each, newest)]
    chosen = min(behind, key=lambda each: each.version, default=newest)
    return told.version if told is not None and same_rows(told, chosen) else chosen.version


def version_used(held: TablePosition | None, told: TablePosition, *, or_later: bool) -> str:
    """The version of an input that a table names: `told` where the table has used it, or a later one if wanted.

    >>> told = TablePosition("a", 5, seq=5)
    >>> [version_used(TablePosition("a", n, seq=n), told, or_later=True) for n in (4, 5, 6)]
    ['4', '5', '5']
    >>> version_used(TablePosition("a", 6, seq=6), told, or_later=False)
    '6'
    """
    if held is None or held.table_id != told.table_id:
        return OLDER
    if same_rows(held, told) or (or_later and held.version > told.version):
        return str(told.version)
    return str(held.version)


def input_tags(
    inputs: Iterable[InputVersion],
    receipt: Receipt,
    told: Mapping[AssetKey, NewestMaterialization],
    data_timestamp: datetime | None,
    *,
    or_later: bool,
    before: NewestMaterialization | None = None,
) -> dict[str, str]:
    """The tags of a materialization about the inputs that a table has used, by its newest receipt.

    `told` has the newest events of the inputs, `before` is the table's own. Raises SourceError for a log that cannot be
    read.
    """
    tags: dict[str, str] = {}
    for each in inputs:
        event = told.get(each.key)
        used = _used(each, receipt, event, data_timestamp, or_later=or_later)
        tags[get_input_data_version_tag(each.key)] = used
        tags[get_input_event_pointer_tag(each.key)] = _pointer(each, event, used, before)
    return tags


def _used(
    each: InputVersion,
    receipt: Receipt,
    event: NewestMaterialization | None,
    data_timestamp: datetime | None,
    *,
    or_later: bool,
) -> str:
    held = receipt.table_position(each.name)
    if event is None:
        return UNKNOWN if or_later or each.in_place or held is None else str(held.version)
    if each.in_place:
        # Whoever writes it names versions in words of his own.
        return event.version if data_timestamp is not None and event.at <= data_timestamp.timestamp() else OLDER
    if not (each.drives and event.version.isdecimal()):
        # A dimension changes no rows that are there, and "Report materialization" in the UI names no version.
        return event.version
    return version_used(held, position_of(each.path, int(event.version)), or_later=or_later)


def _pointer(
    each: InputVersion, event: NewestMaterialization | None, used: str, before: NewestMaterialization | None
) -> str:
    """The event of an input after which all are new to the table: Dagster reads it where the input has partitions."""
    if event is None or not each.partitioned or used == event.version:
        return NULL_EVENT_POINTER
    known = None if before is None else before.tags.get(get_input_event_pointer_tag(each.key))
    return str(event.number) if known in (None, NULL_EVENT_POINTER) else str(known)


class VersionReports:
    """The versions that one tick of the supervisor reports. `moving` are the tables whose data version may change."""

    def __init__(
        self, instance: DagsterInstance, look: ProjectInspection, warehouse: Warehouse, moving: Collection[TableName]
    ) -> None:
        self._look = look
        self._warehouse = warehouse
        self._moving = frozenset(moving)
        self._batch = frozenset(batch_tables(look.graph))
        self._newest: dict[TableName, Newest | None] = {}
        self._versions: dict[TableName, int | None] = {}
        readers = {name: self._readers(name) for name in self._moving}
        near = {near for name in moving for near in (name, *look.graph.reads(name), *readers[name])}
        near |= {read for names in readers.values() for name in names for read in look.graph.reads(name)}
        self._events = read_events(instance, {look.keys[name] for name in near})
        self._kept_from = readers

    def also(self) -> tuple[TableName, ...]:
        """The tables to report beside the moving ones: they have used the version of now, and Dagster lacks that."""
        wanted = {
            reader
            for name in self._moving
            for reader in self._kept_from[name]
            if reader not in self._moving and self._is_told_of_older(reader, name)
        }
        return tuple(name for name in self._look.shown if name in wanted)

    def tags(self, name: TableName) -> dict[str, str]:
        """The tags of a materialization of a table. Raises SourceError for the log of an input that cannot be read."""
        spec, newest, version = self._look.graph.spec(name), self._read(name), self._version(name)
        if newest is None or version is None:
            return {}
        tags = {DATA_VERSION_TAG: str(version)}
        receipt = newest.receipt
        if receipt is None or newest.foreign or self._is_partitioned(name):
            return tags
        tags |= self._input_tags(name, receipt)
        tags[CODE_VERSION_TAG] = receipt.fingerprint if isinstance(spec, TableSpec) else spec.fingerprint
        tags[DATA_VERSION_IS_USER_PROVIDED_TAG] = "true"
        return tags

    def _is_told_of_older(self, reader: TableName, name: TableName) -> bool:
        newest, event = self._read(reader), self._events.get(self._look.keys[reader])
        if newest is None or newest.receipt is None or newest.foreign or event is None:
            return False
        tag = get_input_data_version_tag(self._look.keys[name])
        try:
            used = self._input_tags(reader, newest.receipt)[tag]
        except FreshlineError:
            return False  # the log of an input, which its own status reports
        return used == str(self._version(name)) != event.tags.get(tag)

    def _input_tags(self, name: TableName, receipt: Receipt) -> dict[str, str]:
        inputs = inputs_of(self._look.graph, name, self._look.keys, self._warehouse)
        told = dict(self._events)
        for each in inputs:
            if each.name in self._moving and not each.in_place and (version := self._version(each.name)) is not None:
                # Its event of this tick has no number yet, and is newer than the one that was reported before.
                number = told[each.key].number if each.key in told else 0
                told[each.key] = NewestMaterialization(str(version), self._look.now.timestamp(), number, {})
        stamp = self._look.statuses[name].data_timestamp
        before = self._events.get(self._look.keys[name])
        return input_tags(inputs, receipt, told, stamp, or_later=name not in self._batch, before=before)

    def _version(self, name: TableName) -> int | None:
        if name not in self._versions:
            self._versions[name] = self._find_version(name)
        return self._versions[name]

    def _find_version(self, name: TableName) -> int | None:
        newest, event = self._read(name), self._events.get(self._look.keys[name])
        if newest is None:
            return None
        if self._is_partitioned(name):
            return newest.version
        path = self._path(name)
        told = None
        if event is not None and event.version.isdecimal():
            told = position_of(path, int(event.version))
            if name not in self._moving:
                return told.version
        identity = newest.table_id or table_id(path)
        position = position_at(identity, newest.version, None if newest.foreign else newest.receipt)
        driving = self._look.graph.driving
        held = [self._held(reader, name) for reader in self._kept_from.get(name, ()) if name in driving(reader)]
        return version_to_tell(position, [each for each in held if each is not None], told)

    def _held(self, reader: TableName, name: TableName) -> TablePosition | None:
        newest = self._read(reader)
        return None if newest is None or newest.receipt is None else newest.receipt.table_position(name)

    def _readers(self, name: TableName) -> tuple[TableName, ...]:
        """Its readers that the engine keeps, that are in time, and of which Dagster knows no partitions."""
        graph, statuses = self._look.graph, self._look.statuses
        return tuple(
            reader
            for reader in self._look.keys.only(graph.consumers(name))
            if reader not in self._batch
            and not self._is_partitioned(reader)
            and standing(statuses[reader], self._look.left_alone) is TableUpkeep.KEPT
            and punctuality(statuses[reader].lag_seconds, statuses[reader].freshness_seconds) is Punctuality.PASS
        )

    def _is_partitioned(self, name: TableName) -> bool:
        return partitions_definition(self._look.graph, self._look.graph.spec(name)) is not None

    def _path(self, name: TableName) -> Path:
        return self._warehouse.location(self._look.graph.spec(name))

    def _read(self, name: TableName) -> Newest | None:
        if name not in self._newest:
            try:
                self._newest[name] = read_newest(self._path(name))
            except FreshlineError:
                # One log that cannot be read keeps no other table from its report; its status has the reason.
                self._newest[name] = None
        return self._newest[name]
