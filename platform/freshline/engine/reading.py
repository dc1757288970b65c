"""Reading tables from Python: rows of a version, changes, and both one after the other, as Arrow tables.

Nothing here needs an engine, nor Spark but for a table whose log asks for what only Spark has. A consumer is a name
under which somebody's position is kept beside the data, so that maintenance keeps what it has not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from freshline.commit.consumers import forget_consumer, keep_consumer, read_consumer, read_consumers
from freshline.commit.control_reading import open_for_a_look
from freshline.commit.delta_log import commit_digest, exists, newest_version, receipt_at, table_id
from freshline.commit.savepoints import read_savepoint
from freshline.commit.snapshot import Snapshot, newest_snapshot
from freshline.commit.warehouse import Warehouse
from freshline.engine.savepoints import Project, project_settings
from freshline.errors import ConsumerError, ConsumerExpiredError, ReadError, RequestError, SavepointError
from freshline.plan.read import DEFAULT_EXPIRY_DAYS, Consumer, Read, ReadMode, plan_read
from freshline.plan.savepoint import LOST, require_name
from freshline.plan.valid_project import open_graph, open_valid_project
from freshline.reads.rows import net_changes, read_history
from freshline.reads.rows import read_changes as changes_at
from freshline.reads.rows import read_rows as rows_at
from freshline.values.freshness import parse_seconds
from freshline.values.names import TableName
from freshline.values.settings import Settings
from freshline.values.spec import Spec

Place = int | datetime | str
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class ReadStep:
    """The result of one step of a reader: the rows of version `to`, or the changes after `after` up to `to`."""

    data: pa.Table
    after: int | None
    to: int

    @property
    def is_changes(self) -> bool:
        """Whether these are changes, with `_change_type` and `_commit_version`, and not rows."""
        return self.after is not None


@dataclass(frozen=True)
class StoredTable:
    """A declared table or source, and the Delta table that has its rows."""

    name: TableName
    path: Path
    settings: Settings

    @classmethod
    def of(cls, spec: Spec, settings: Settings) -> StoredTable:
        """The table of a declaration."""
        return cls(spec.name, Warehouse(settings.warehouse).location(spec), settings)

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.settings.warehouse)

    def rows(self, version: int, columns: list[str] | None = None) -> pa.Table:
        found = rows_at(self.path, str(self.name), version, columns)
        if found is not None:
            return found
        # Spark is loaded for such tables alone.
        from freshline.engine.spark_reading import rows_in_spark

        return rows_in_spark(self.settings, self.path, str(self.name), version, columns)

    def changes(self, after: int, to: int) -> pa.Table:
        found = changes_at(self.path, str(self.name), after, to)
        if found is not None:
            return found
        from freshline.engine.spark_reading import changes_in_spark

        return changes_in_spark(self.settings, self.path, str(self.name), after, to)


def read_rows(
    table: str, *, as_of: Place | None = None, columns: list[str] | None = None, project: Project = None
) -> pa.Table:
    """The rows of a table or source: the newest, or those of a version, a time or a savepoint.

    A text is the name of a savepoint. Raises ReadError for what is not there or no longer.
    """
    found = _find(table, project)
    version = _place(found, as_of)
    return found.rows(version, columns)


def read_changes(
    table: str, after: Place, to: Place | None = None, *, net: bool = False, project: Project = None
) -> pa.Table:
    """The changes of a table after one version, time or savepoint up to another (default: the newest version).

    Each row has `_change_type` (insert, delete, update_preimage, update_postimage), `_commit_version` and
    `_commit_timestamp`. With `net` what undoes each other is taken out: rows have `_change_type` insert or delete, and
    those that were there before and after in the same number are left out. Raises ReadError where changes are gone.
    """
    found = _find(table, project)
    history = read_history(found.path, str(found.name))
    start, end = _place(found, after), _place(found, to)
    plan = plan_read(ReadMode.INCREMENTAL_BETWEEN, history, version=start, to=end)
    assert plan.after is not None
    assert plan.to is not None
    changes = found.changes(plan.after, plan.to)
    return net_changes(changes) if net else changes


def read_snapshot(*, project: Project = None) -> Snapshot:
    """The newest versions of all tables that agree on what they saw of their sources. Raises ReadError for none."""
    settings = project_settings(project)
    control = open_for_a_look(settings.control_store, settings.umask)
    try:
        return newest_snapshot(open_graph(settings), Warehouse(settings.warehouse), control.checks())
    finally:
        control.close()


class TableReader:
    """Reads a table from a place on, portion by portion; made by `open_reader`.

    `next()` hands out what is new since the last portion, None where nothing is. With a consumer, `commit()` keeps the
    position: after a restart reading goes on behind the last portion that was committed.
    """

    def __init__(self, found: StoredTable, begin: Read, consumer: Consumer | None, clock: Clock) -> None:
        self._found = found
        self._begin: Read | None = begin
        self._then = begin.then
        self._consumer = consumer
        self._clock = clock
        self._read: int | None = None

    @property
    def position(self) -> int | None:
        """The version up to which everything was handed out, None before the first portion."""
        return self._read

    def next(self) -> ReadStep | None:
        """The next portion; None where nothing is new, or the read has an end and came to it. Raises ReadError."""
        table = str(self._found.name)
        begin = self._begin
        # The place moves when the portion is there: a read that failed is tried again from the same one.
        if begin is not None and begin.rows is not None:
            portion = ReadStep(self._found.rows(begin.rows), None, begin.rows)
            self._begin = None if begin.after is None else Read(None, begin.after, begin.to, begin.then)
            self._read = begin.rows
            return portion
        if begin is not None and begin.after is not None and begin.to is not None:
            after, to = begin.after, begin.to
        elif self._then is not None:
            after, to = self._then, _newest(self._found)
        else:
            self._begin = None
            return None
        found = None
        if to > after:
            read_history(self._found.path, table).require_changes(after, to)
            found = ReadStep(self._found.changes(after, to), after, to)
        self._begin = None
        if self._then is not None:
            self._then = max(to, self._then)
        self._read = to
        return found

    def __iter__(self) -> Iterator[ReadStep]:
        """The rows or changes that are there now, portion by portion."""
        while (portion := self.next()) is not None:
            yield portion

    def commit(self) -> None:
        """Keep the position: everything that was handed out is done with. Raises ConsumerError without a consumer."""
        if self._consumer is None:
            raise ConsumerError("this reader has no consumer: open it with `consumer_id`.", where=str(self._found.name))
        if self._read is None:
            return
        _require_in_force(self._found.warehouse, self._consumer.name, self._clock())
        moved = keep_consumer(
            self._found.warehouse,
            name=self._consumer.name,
            table=str(self._found.name),
            table_id=self._consumer.table_id,
            version=self._read,
            commit=commit_digest(self._found.path, self._read),
            expiry_seconds=self._consumer.expiry_seconds,
            now=self._clock(),
        )
        assert moved is not None
        self._consumer = moved


def open_reader(
    table: str,
    mode: str = ReadMode.LATEST_FULL,
    *,
    version: int | None = None,
    to: int | None = None,
    timestamp: datetime | None = None,
    savepoint: str | None = None,
    consumer_id: str | None = None,
    expires_after: str | timedelta = timedelta(days=DEFAULT_EXPIRY_DAYS),
    project: Project = None,
    clock: Clock = utc_now,
) -> TableReader:
    """A reader of a table, in a mode: latest-full, latest, as-of, from-timestamp, from-version, from-version-full,
    incremental-between.

    With `consumer_id` it goes on where that consumer stopped; one that is new is registered, and what it has yet to
    read is kept until it did not come for `expires_after`. Raises ReadError, ConsumerError and ConsumerExpiredError.
    """
    found = _find(table, project)
    history = read_history(found.path, str(found.name))
    if mode not in tuple(ReadMode):
        raise ReadError(f"there is no mode {mode!r}. There are {', '.join(ReadMode)}.", where=str(found.name))
    known = None if consumer_id is None else read_consumer(found.warehouse, require_consumer_name(consumer_id))
    if known is not None:
        require_known(found, known, clock())
        history.require_changes(known.version, history.newest)
        first = history.require_rows(known.version) if known.rows_first else None
        begin = Read(first, known.version, history.newest, history.newest)
        return TableReader(found, begin, known, clock)
    if savepoint is not None:
        version = _place(found, savepoint)
    begin = plan_read(ReadMode(mode), history, version=version, to=to, moment=timestamp)
    consumer = None
    if consumer_id is not None:
        start = begin.after if begin.after is not None else begin.then if begin.rows is None else begin.rows
        if begin.then is None or start is None:
            raise ConsumerError(f"a consumer reads on, and `{mode}` has an end.", where=str(found.name))
        consumer = register_consumer(
            consumer_id,
            table,
            version=start,
            rows_first=begin.rows is not None,
            expires_after=expires_after,
            project=project,
            clock=clock,
        )
    return TableReader(found, begin, consumer, clock)


def register_consumer(
    name: str,
    table: str,
    *,
    version: int | None = None,
    rows_first: bool = False,
    expires_after: str | timedelta = timedelta(days=DEFAULT_EXPIRY_DAYS),
    project: Project = None,
    clock: Clock = utc_now,
) -> Consumer:
    """Keep what comes after a version (default: the newest) for a consumer, until it did not come for so long.

    With `rows_first` it begins with the rows of the version. Raises ConsumerError where the name is in use, and
    ReadError where changes after the version are gone.
    """
    found = _find(table, project)
    require_consumer_name(name)
    history = read_history(found.path, str(found.name))
    at = history.newest if version is None else version
    return register_on(found, name, at, rows_first, _seconds(expires_after), clock())


def register_on(
    found: StoredTable, name: str, at: int, rows_first: bool, expiry_seconds: int, now: datetime
) -> Consumer:
    """As `register_consumer`, on a table that was found, behind version `at`."""
    consumer = keep_consumer(
        found.warehouse,
        name=name,
        table=str(found.name),
        table_id=table_id(found.path),
        version=at,
        commit=commit_digest(found.path, at),
        expiry_seconds=expiry_seconds,
        now=now,
        rows_first=rows_first,
        new=True,
    )
    if consumer is None:
        raise ConsumerError(f"there is a consumer {name} already. Drop it first, or take another name.", where=name)
    try:
        # Checked once more now that its position is kept: versions may have been removed meanwhile.
        if at >= 0:
            rows_there = read_history(found.path, str(found.name))
            rows_there.require_rows(at)
            rows_there.require_changes(at, rows_there.newest)
    except ReadError:
        forget_consumer(found.warehouse, name)
        raise
    return consumer


def drop_consumer(name: str, *, project: Project = None) -> None:
    """Keep nothing for a consumer any more. Raises ConsumerError for one that is not there."""
    warehouse = Warehouse(project_settings(project).warehouse)
    if not forget_consumer(warehouse, require_consumer_name(name)):
        known = ", ".join(consumer.name for consumer in read_consumers(warehouse)) or "none"
        raise ConsumerError(f"there is no consumer {name}. There are: {known}.")


def consumers(*, project: Project = None) -> list[Consumer]:
    """All registered consumers, by name, expired ones too."""
    return read_consumers(Warehouse(project_settings(project).warehouse))


def require_consumer_name(name: str) -> str:
    """The name of a consumer. Raises ConsumerError for one that is no name."""
    try:
        return require_name(name)
    except SavepointError as error:
        raise ConsumerError(error.message) from error


def require_known(found: StoredTable, known: Consumer, now: datetime) -> None:
    """A consumer may go on: it is in force, and read this very table. Raises ConsumerError, ConsumerExpiredError."""
    _require_in_force(found.warehouse, known.name, now)
    if known.table_id != table_id(found.path):
        raise ConsumerError(
            f"consumer {known.name} read {known.table}, which is another table than {found.name} is now. "
            f"Drop it with `freshline consumers drop {known.name}`.",
            where=str(found.name),
        )
    there = commit_digest(found.path, known.version)
    if known.commit is not None and there is not None and known.commit != there:
        raise ConsumerError(
            f"consumer {known.name} read version {known.version} of {found.name}, and another commit has this "
            "number now: the log of the table had lost its newest commits. Drop it with "
            f"`freshline consumers drop {known.name}`, register it anew and read the newest rows.",
            where=str(found.name),
        )


def _require_in_force(warehouse: Warehouse, name: str, now: datetime) -> None:
    known = read_consumer(warehouse, name)
    if known is None:
        raise ConsumerError(f"consumer {name} was dropped. Register it anew, and read the newest rows.", where=name)
    if known.is_expired(now):
        raise ConsumerExpiredError(
            f"consumer {name} did not come since {known.moved_at.isoformat(timespec='seconds')} and expired at "
            f"{known.expires_at.isoformat(timespec='seconds')}: changes that it has not read may be gone. Drop it with "
            f"`freshline consumers drop {name}`, register it anew and read the newest rows.",
            where=known.table,
        )


def _find(table: str, project: Project) -> StoredTable:
    settings = project_settings(project)
    try:
        name = TableName.parse(table)
    except ValueError as error:
        raise RequestError(str(error)) from error
    standing = open_valid_project(settings)
    graph, warehouse = standing.graph, Warehouse(settings.warehouse)
    if name in standing.left_out and exists(warehouse.path(name)):
        # Stored rows stay readable, whatever mistakes the declaration has.
        return StoredTable(name, warehouse.path(name), settings)
    standing.require([name])
    spec = graph.require_rows(name)
    return StoredTable(spec.name, warehouse.location(spec), settings)


def _place(found: StoredTable, place: Place | None) -> int:
    """The version that a place means. Raises ReadError."""
    table = str(found.name)
    history = read_history(found.path, table)
    if place is None:
        return history.newest
    if isinstance(place, str):
        savepoint = read_savepoint(found.warehouse, require_name(place))
        saved = None if savepoint is None else savepoint.saved(found.name)
        if saved is None:
            raise ReadError(f"there is no savepoint {place} with this table.", where=table)
        if saved.version.is_another(receipt_at(found.path, saved.version.version)):
            raise ReadError(LOST.format(name=place), where=table)
        return history.require_rows(saved.version.version)
    if isinstance(place, datetime):
        moment = place if place.tzinfo is not None else place.replace(tzinfo=UTC)
        return history.require_rows(history.version_at(moment))
    return history.require_rows(place)


def _newest(found: StoredTable) -> int:
    version = newest_version(found.path)
    if version is None:
        raise ReadError("the table is gone.", where=str(found.name))
    return version


def _seconds(duration: str | timedelta) -> int:
    if isinstance(duration, timedelta):
        return max(1, int(duration.total_seconds()))
    try:
        return parse_seconds(duration, "duration")
    except ValueError as error:
        raise RequestError(str(error)) from error
