"""Declarations as values.

SQL files and Python decorators end here: one frozen `TableSpec` or `SourceSpec`, which knows where it was
written. Everything later reads these and nothing else of the declaration.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from freshline.values.as_of_joins import Versions
from freshline.values.change import CHANGE_METADATA, Tombstones
from freshline.values.clock import as_microseconds
from freshline.values.closing import Closing, Final
from freshline.values.connector import OF_EVERY_LOG, WITH_WATERMARK, Connector, Metadata
from freshline.values.format import Format
from freshline.values.freshness import Freshness
from freshline.values.location import Location, Written
from freshline.values.merge import Merge
from freshline.values.names import TableName
from freshline.values.query import PythonQuery, SqlQuery
from freshline.values.sink import OnReject, Sink
from freshline.values.time_partition import TimePartitions


class Mode(StrEnum):
    """The way in which a table is kept fresh: what starts its refreshes."""

    CONTINUOUS = "continuous"
    INCREMENTAL = "incremental"
    BATCH = "batch"


class DeltaJoin(StrEnum):
    """Whether a join is kept up by the keys that changes of its sides affect."""

    AUTO = "auto"
    FORCE = "force"
    NONE = "none"


class Downstream(StrEnum):
    """`FRESHNESS = DOWNSTREAM`: as fresh as the tightest consumer asks for."""

    DOWNSTREAM = "DOWNSTREAM"


@dataclass(frozen=True)
class Column:
    """A declared column of a source.

    `type` is Spark's own spelling in upper case (`DECIMAL(10,2)`, `ARRAY<STRING>`). `metadata` is what
    `METADATA FROM '..'` names (`ingested_at`, `file`, `record`, ..), None for a column of the record.
    """

    name: str
    type: str
    metadata: str | None = None
    comment: str | None = None


@dataclass(frozen=True)
class Watermark:
    """`WATERMARK FOR column AS column - delay`: rows may be this much older than the newest before they are late."""

    column: str
    delay_seconds: int = 0


class OnViolation(StrEnum):
    """The treatment of a row that violates a constraint."""

    WARN = "WARN"  # it is written and counted
    DROP_ROW = "DROP ROW"  # it is left out and counted
    QUARANTINE = "QUARANTINE"  # it is left out, kept in the quarantine table, and counted
    FAIL = "FAIL"  # the refresh fails

    @property
    def leaves_out(self) -> bool:
        """Whether the table goes without such a row."""
        return self in (OnViolation.DROP_ROW, OnViolation.QUARANTINE)


@dataclass(frozen=True)
class Constraint:
    """`CONSTRAINT name EXPECT (condition)`: a row passes it where the condition is true, neither false nor NULL.

    The condition is Spark SQL over the columns of the table, or of the source's record.
    """

    name: str
    condition: str
    on_violation: OnViolation = OnViolation.WARN

    @property
    def clause(self) -> str:
        """As it is declared."""
        return f"CONSTRAINT {self.name} EXPECT ({self.condition}) ON VIOLATION {self.on_violation}"


@dataclass(frozen=True)
class SideOutput:
    """A side output as it was written: its table, and the condition of the rows that it takes, in SQL."""

    name: TableName
    condition: Written[str]


@dataclass(frozen=True)
class RecordKey:
    """The form of the keys of records: their format, and the columns whose values they have."""

    format: Format
    columns: tuple[str, ...]


@dataclass(frozen=True)
class SourceSpec:
    """A system outside, and the columns that queries see of it.

    `connection` is its connector with what is declared of the system. `format` is None where the source is read in
    place; otherwise the rows arrive in the log table of this name. `max_ahead_seconds`, `idle_seconds` and
    `follows_clock` are of its watermark (see `freshline.values.watermark`). `options` are the texts of WITH as written
    (defaults not filled in), the typed ones stand beside them. `warn_after_seconds` and `fail_after_seconds` are the
    lags above which there is an alert, None for those of its freshness. `watermark_after_seconds` is how long its
    watermark may stand still, and `late_share` the share of late rows, above which there is one, None for never.
    `versions` say how as-of joins read its rows, None without a watermark. `key` says how keys of records are
    read, None where they are not. With `upserts` each record is the newest state of the row that its key names.
    `tombstones` is what a record without a value is, None for what is usual.
    """

    name: TableName
    connection: Connector
    columns: tuple[Column, ...]
    written_at: Location
    format: Format | None = None
    key: RecordKey | None = None
    upserts: bool = False
    tombstones: Tombstones | None = None
    primary_key: tuple[str, ...] = ()
    freshness: Freshness | None = None
    comment: str | None = None
    watermark: Watermark | None = None
    constraints: tuple[Constraint, ...] = ()
    deduplicate_seconds: float | None = 7 * 86400.0  # None: for ever
    max_record_bytes: int = 4 * 1024 * 1024
    max_ahead_seconds: float = 86_400.0
    idle_seconds: float = 60.0
    follows_clock: bool = False
    history_seconds: int | None = None
    warn_after_seconds: int | None = None
    fail_after_seconds: int | None = None
    watermark_after_seconds: int | None = None
    late_share: float | None = None
    versions: Versions | None = None
    owner: str | None = None
    group: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def connector(self) -> str:
        """The name of the connector."""
        return self.connection.name

    @property
    def is_log(self) -> bool:
        """Whether rows arrive in a log table of ours (else the source is read in place)."""
        return self.connection.is_log

    @property
    def is_lookup(self) -> bool:
        """Whether rows are asked for by their key, for lookup joins alone."""
        return self.connection.is_lookup

    @property
    def is_read_in_place(self) -> bool:
        """Whether its rows stay where they are: nothing of it is ingested."""
        return not self.is_log

    def stored_column(self, name: str) -> str:
        """The name of a declared column in the log table."""
        metadata = next((one.metadata for one in self.columns if one.name.lower() == name.lower()), None)
        if metadata is None or not self.is_log:
            return name
        return {**WITH_WATERMARK, **self.metadata}[metadata].stored

    @property
    def metadata(self) -> Mapping[str, Metadata]:
        """The facts known of a record beside its values, for METADATA FROM: of the connector and of the format."""
        return {**self.connection.metadata, **self.facts}

    @property
    def facts(self) -> Mapping[str, Metadata]:
        """The facts that decoding finds of a record beside its values."""
        of_format = {} if self.format is None else self.format.metadata_with(type(self.connection))
        return {**of_format, **(CHANGE_METADATA if self.upserts else {})}

    @property
    def quarantined_metadata(self) -> Mapping[str, Metadata]:
        """The metadata that the quarantine table has, in their order."""
        return {name: each for name, each in self.metadata.items() if each.quarantined}

    @property
    def stored_metadata(self) -> Mapping[str, Metadata]:
        """The metadata that have a column of their own in the log table, in their order."""
        return {name: each for name, each in self.metadata.items() if each.stored not in OF_EVERY_LOG}

    @property
    def is_change_feed(self) -> bool:
        """Whether records are changes of rows, each of which PRIMARY KEY names."""
        return self.upserts or (self.format is not None and self.format.is_change_feed)

    @property
    def recognizes_events(self) -> bool:
        """Whether an event of a change feed may come again and is known by its position, which upserts have not."""
        return self.connection.delivers_again and not self.upserts

    @property
    def unique_key(self) -> tuple[str, ...]:
        """The columns that no two rows share: PRIMARY KEY, but in a change feed, which has rows for every change."""
        return () if self.is_change_feed else self.primary_key

    @property
    def record_columns(self) -> tuple[Column, ...]:
        """The columns that a record carries, without METADATA ones."""
        return tuple(column for column in self.columns if column.metadata is None)

    @property
    def formats(self) -> tuple[Format, ...]:
        """The formats of its records, and of their keys."""
        of_key = () if self.key is None else (self.key.format,)
        return (*(() if self.format is None else (self.format,)), *of_key)

    def of_keys(self) -> SourceSpec:
        """The part that is in the keys of records."""
        keys = () if self.key is None else self.key.columns
        return replace(self, columns=tuple(each for each in self.record_columns if each.name in keys))

    def of_values(self) -> SourceSpec:
        """The part that is in the values of records."""
        if self.key is None:
            return self
        keys = self.key.columns
        return replace(self, columns=tuple(each for each in self.record_columns if each.name not in keys))

    @property
    def fingerprint(self) -> str:
        """Changes when, and only when, the meaning of the declaration changes (rule 14 of docs/rules.md)."""
        return _fingerprint(
            "source",
            str(self.name).lower(),
            self.connector,
            # A source that is read in place has no format, and counts as one of JSON.
            "json" if self.format is None else self.format.name,
            [(c.name.lower(), c.type, c.metadata) for c in self.columns],
            [c.lower() for c in self.primary_key],
            self.deduplicate_seconds,
            *((True, None) if self.format is None else self.format.meaning),
            *self.connection.meaning,
            # A part that older declarations could not have changes nothing where it is missing.
            *(() if self.key is None else (self.key.format.name, *self.key.format.meaning, *self.key.columns)),
            *(("upsert",) if self.upserts else ()),
            *(() if self.without_value is self._usual_tombstones else (str(self.without_value),)),
        )

    @property
    def without_value(self) -> Tombstones:
        """The meaning of a record without a value."""
        return self.tombstones or self._usual_tombstones

    @property
    def _usual_tombstones(self) -> Tombstones:
        if self.upserts:
            return Tombstones.DELETE
        skips = self.format is not None and self.format.takes_tombstones
        return Tombstones.SKIP if skips else Tombstones.QUARANTINE


@dataclass(frozen=True)
class TableSpec:
    """A materialized table: a query and how fresh its rows must be.

    `columns` are the names of the query's columns in order, where they are known without Spark (always for
    SQL, None for a table written in Python). `lookup_attempts` is how often a row that found no dimension is retried,
    0 for never, and `quarantined_lookups` are the sources without whose answer a row goes to quarantine and waits.
    `left_cache_rows` and `right_cache_rows` are how many rows of the first and of every other
    input may be kept in the engine between refreshes. `warn_after_seconds` and `fail_after_seconds` are the lags above
    which there is an alert, None for those of its freshness. `python_seconds` is what its function may take, None
    for the project's limit. `partition_values` are the partitions that
    can be asked for by name, in their order; the table may have rows of others. Freshness None never occurs for a
    declared table: the default of the project is filled in. `versions` say how as-of joins read its rows, None
    without a watermark. `final` says that rows are written once, None for EMIT CHANGES. `late_rows_of` is the table
    with EMIT FINAL whose late rows these are, and `side_output_of` that of whose query this has some rows; None for
    others. `sink` is the system that has the rows of CREATE SINK: its own table has receipts alone, and its query reads
    all columns of one table, whose key it has. `on_reject` is of a sink.
    """

    name: TableName
    query: SqlQuery | PythonQuery
    written_at: Location
    freshness: Freshness | Downstream
    refresh_mode: Mode | None = None  # None: AUTO
    columns: tuple[str, ...] | None = None
    primary_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    time_partitions: TimePartitions | None = None
    partition_values: tuple[str, ...] = ()
    comment: str | None = None
    merge: Merge | None = None
    watermark: Watermark | None = None
    constraints: tuple[Constraint, ...] = ()
    incremental_strict: bool = False
    strategies: tuple[str, ...] = ()
    non_driving: tuple[TableName, ...] = ()
    requires_history: tuple[TableName, ...] = ()
    lookup_on_duplicate: str = "error"
    lookup_attempts: int = 0
    lookup_delay_seconds: int = 0
    quarantined_lookups: tuple[TableName, ...] = ()
    delta_join: DeltaJoin = DeltaJoin.AUTO
    left_cache_rows: int = 10_000
    right_cache_rows: int = 10_000
    history_seconds: int | None = None
    warn_after_seconds: int | None = None
    fail_after_seconds: int | None = None
    python_seconds: int | None = None
    versions: Versions | None = None
    final: Final | None = None
    late_rows_of: TableName | None = None
    side_output_of: TableName | None = None
    sink: Sink | None = None
    on_reject: OnReject = OnReject.FAIL
    owner: str | None = None
    group: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def declared_with(self) -> TableName | None:
        """The table whose declaration makes this one too; None for one with a declaration of its own."""
        return self.late_rows_of or self.side_output_of

    @property
    def is_read_in_place(self) -> bool:
        """As of a source: a table is ours."""
        return False

    @property
    def sql(self) -> SqlQuery:
        """The query, of a table in SQL. Raises TypeError for a function in Python, which has none."""
        if not isinstance(self.query, SqlQuery):
            raise TypeError(f"{self.name} is no query in SQL")
        return self.query

    @property
    def closes_windows(self) -> bool:
        """Whether its rows are those of windows that the watermark has closed."""
        return self.final is not None and self.query.arrived

    @property
    def is_triggered(self) -> bool:
        """Whether its rows are written when the condition of EMIT FINAL .. WHEN is true for the first time."""
        return self.final is not None and self.final.condition is not None

    @property
    def has_timers(self) -> bool:
        """Whether its rows depend on the watermark, by timers of its class."""
        process = self.query.process if isinstance(self.query, PythonQuery) else None
        return process is not None and process.has_timer

    @property
    def follows_watermark(self) -> bool:
        """Whether a watermark that moves may give it other rows."""
        return self.closes_windows or self.is_triggered or self.has_timers

    def at_closing(self, closing: Closing | None) -> TableSpec:
        """The same table with the windows between two watermarks, or with what there is up to the second."""
        if closing is None:
            return self
        if isinstance(self.query, SqlQuery):
            return replace(self, query=replace(self.query, closing=closing))
        process = self.query.process
        assert process is not None
        return replace(self, query=replace(self.query, process=replace(process, until=closing.until)))

    @property
    def is_temporal(self) -> bool:
        """Whether its rows follow from the time too: its query has temporal filters."""
        return bool(self.query.clock_calls)

    def at_clock(self, clock: datetime | None) -> TableSpec:
        """The same table with a query for which it is one time; of a table without temporal filters, itself."""
        if clock is None or not self.is_temporal or not isinstance(self.query, SqlQuery):
            return self
        return replace(self, query=replace(self.query, clock=as_microseconds(clock)))

    @property
    def reads(self) -> tuple[TableName, ...]:
        """Every table and source that the query reads, each once, in the order of the query."""
        return self.query.reads

    @property
    def unique_key(self) -> tuple[str, ...]:
        """The columns that no two rows share."""
        return self.primary_key

    @property
    def lookups(self) -> frozenset[TableName]:
        """The inputs that rows are joined with as dimensions of a lookup join: pinned, never driving."""
        return self.query.lookups

    @property
    def may_wait(self) -> bool:
        """Whether rows may wait beside the table for a dimension, or for the answer of a lookup."""
        return bool(self.lookup_attempts or self.quarantined_lookups)

    @property
    def driving(self) -> tuple[TableName, ...]:
        """The inputs whose changes bring new rows: all but the dimensions of lookup joins."""
        return tuple(name for name in self.reads if name not in self.lookups)

    @property
    def fingerprint(self) -> str:
        """Changes when, and only when, the meaning of the declaration changes (rule 14 of docs/rules.md)."""
        merge, times = self.merge, self.time_partitions
        return _fingerprint(
            "table",
            str(self.name).lower(),
            self.query.meaning,
            [c.lower() for c in self.primary_key],
            [c.lower() for c in self.partitioned_by],
            None if merge is None else merge.meaning,
            self.lookup_on_duplicate,
            # Which rows there are follows from those only that leave rows out.
            *[c.condition for c in self.constraints if c.on_violation.leaves_out],
            # Where the first partition begins decides what is missing, not what the rows of one are.
            *([] if times is None else [(times.unit, times.time_zone)]),
            *([] if self.final is None else [("final", self.final.lateness_seconds)]),
            *self._model_meaning,
            *([] if self.sink is None else [("sink", self.sink.name, *self.sink.meaning)]),
        )

    @property
    def _model_meaning(self) -> list[object]:
        """The models of the query: their files, but for those of which rows keep the prediction."""
        models = self.query.models
        facts = sorted([str(m.name).lower(), "" if m.keeps_rows else m.sha256] for m in models)
        return [("models", facts)] if facts else []


Spec = SourceSpec | TableSpec


def _fingerprint(*meaning: object) -> str:
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
