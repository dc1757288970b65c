"""The receipt: what a refresh writes into its own Delta commit.

A table's own log is the only truth about what the table contains. The receipt says it in words: the positions of
every input, how and why they were brought in, and how many rows moved. Recovery is reading the newest one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from freshline.errors import UNREADABLE, FormatError, shown_problem
from freshline.values.json import from_json, to_compact_json
from freshline.values.names import TableName
from freshline.values.partition import PartitionSpan
from freshline.values.position import Position, TablePosition
from freshline.values.spec import Spec
from freshline.values.watermark import EventTime

# The format that is written. 1 and 2 are read: a warehouse of the commits before has them.
FORMAT = 3


@dataclass(frozen=True)
class Violation:
    """The number of a refresh's computed rows that violate a constraint, and some of them as JSON texts."""

    rows: int
    samples: tuple[str, ...] = ()


def added_up(some: Mapping[str, Violation], more: Mapping[str, Violation]) -> dict[str, Violation]:
    """The violations of several batches or refreshes together, with the samples of the first that has any."""
    found = dict(some)
    for name, violation in more.items():
        before = found.get(name, Violation(0))
        found[name] = Violation(before.rows + violation.rows, before.samples or violation.samples)
    return found


@dataclass(frozen=True)
class Receipt:
    """One committed refresh.

    `seq` counts the refreshes of this table from 1; `epoch` is the engine's. `data_timestamp` is the time up to
    which everything that the driving roots had is in this version. `positions` are the inputs' by name;
    `partitions` are the positions of partitions that were refreshed by themselves, by their text. `cut` is
    the set of root positions behind it, by the roots' names: all rows have seen that much. `cut_ahead` are the roots of
    which some rows have seen more, with the most: of partitions refreshed by themselves, or of inputs that did not
    agree. `data_timestamp_before` is the time up to which the version before this one had everything, by checks that
    found nothing new: what still reads that version is no older. None where that is not known. `replayed_from` is the
    seq of the last full refresh: what came after it, came by change sets. `maintenance` marks a commit that carries a
    receipt on without new rows. `rows_out` is None where only the commit's own metrics know it. `pending_lookups` is
    the version of the rows that wait for their dimension, None where none ever did. `valid_from_seq` is the seq of the
    refresh from which on a
    changed declaration applies: rows from before it may follow the one before; None where all rows follow this one.
    `violations` are those of each constraint that was violated. `spans` are the stretches of time that a table with
    time partitions has (see `freshline.values.partition`), None for any other table. `replaced` are the keys of the
    partitions that this commit replaced because they were named, `backfill` is the backfill that it belongs to.
    `restored` is the seq whose rows a restore brought back; None in all other receipts. `inputs_with_lost_rows` are the
    inputs that have deleted rows which the table keeps. `planned` is the version of the table that the refresh stands
    on, None where that says nothing; `foreign`: the table has rows that others wrote. `event_time` is what a log table
    with a watermark knows of its events after this batch. `watermark` is read only: earlier commits wrote the watermark
    before the batch there, by the column that it is of. `closed_until` is the watermark up to which a table with EMIT
    FINAL has the rows of windows, and with WHEN that of the refresh, None where it has none or no windows. `promise` is
    the promise of a function in Python that was tried on its rows, empty for none. `timers_until` is the watermark up
    to which a class of `freshline.process` has had its timers, None where it has none or there was no watermark.
    `models` are the files of models that rows may follow, by SHA-256, the newest last. `clock` is the time
    that was compared with rows in the temporal filters of the query, None for a query without such.
    """

    table: TableName
    fingerprint: str
    epoch: int
    seq: int
    mode: str
    strategy: str
    reason: str
    data_timestamp: datetime | None
    positions: Mapping[TableName, Position]
    rows_in: int
    rows_out: int | None
    attempt: str
    cut: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cut_ahead: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    data_timestamp_before: datetime | None = None
    partitions: Mapping[str, Mapping[TableName, Position]] = field(default_factory=dict)
    replayed_from: int = 0
    rejected: int = 0
    seconds: float = 0.0
    maintenance: bool = False
    pending_lookups: int | None = None
    valid_from_seq: int | None = None
    violations: Mapping[str, Violation] = field(default_factory=dict)
    spans: tuple[PartitionSpan, ...] | None = None
    replaced: tuple[str, ...] = ()
    backfill: str | None = None
    restored: int | None = None
    inputs_with_lost_rows: frozenset[TableName] = frozenset()
    planned: int | None = None
    foreign: bool = False
    watermark: Mapping[str, datetime] = field(default_factory=dict)
    event_time: EventTime | None = None
    closed_until: datetime | None = None
    promise: str = ""
    timers_until: datetime | None = None
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clock: datetime | None = None

    @property
    def watermark_read(self) -> datetime | None:
        """The watermark that the rows follow from, of windows or of timers."""
        return self.closed_until or self.timers_until

    @property
    def has_partition_positions(self) -> bool:
        """Whether partitions have rows of other positions than the receipt's."""
        return bool(self.partitions) or any(span.positions is not None for span in self.spans or ())

    @property
    def is_partial(self) -> bool:
        """Whether the table only has partitions that were named: then it is of no version of what it reads yet."""
        return self.spans is not None and self.data_timestamp is None

    @property
    def identity(self) -> str:
        """The text that distinguishes this refresh from every other one of its table; maintenance carries it on.

        The number alone does not: where a log lost its newest commits, it is given a second time.
        """
        at = "" if self.data_timestamp is None else self.data_timestamp.isoformat()
        return f"{self.epoch}/{self.seq}/{at}"

    @property
    def transaction_version(self) -> int:
        """The version of the Delta transaction: the fence is closed for everything that is not above it."""
        return transaction_version(self.epoch, self.seq)

    def table_position(self, name: TableName) -> TablePosition | None:
        """The position of an input that is a Delta table, None where the receipt has none."""
        position = self.positions.get(name)
        return position if isinstance(position, TablePosition) else None

    def carried(self, attempt: str) -> Receipt:
        """The same receipt for a commit that moves no rows."""
        return replace(self, maintenance=True, attempt=attempt, replaced=(), backfill=None, restored=None, planned=None)

    def to_json(self) -> str:
        """One line of JSON, for `userMetadata`: without fields that have their default."""
        return json.dumps({"freshline": FORMAT, **to_compact_json(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> Receipt | None:
        """Read `userMetadata`; None for a commit that is not freshline's.

        Raises FormatError for a newer format, and for a receipt that somebody changed so that it cannot be read.
        """
        if not text or '"freshline"' not in text:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        found = value.get("freshline") if isinstance(value, dict) else None
        # Any writer of the table may write such a word. freshline has only ever written the number of a format there.
        if type(found) is not int or found < 1:
            return None
        if found > FORMAT:
            raise FormatError(
                f"the newest receipt has format {found}, this freshline reads up to {FORMAT}. "
                "Use the freshline that wrote it, or a newer one.",
                where=str(value.get("table")),
            )
        try:
            receipt: Receipt = from_json(value if found == FORMAT else _flat(value), cls)
        except UNREADABLE as error:
            raise FormatError(
                f"a receipt is damaged ({shown_problem(error)}). Somebody changed it: bring the version of the table "
                "before it back with a savepoint, or move the table's folder away and compute it again.",
                where=str(value.get("table")),
            ) from error
        return receipt


# The names in formats 1 and 2 of fields that have another name now.
RENAMED = {
    "time": "spans",
    "parked": "pending_lookups",
    "kept_before": "valid_from_seq",
    "short_of_rows": "inputs_with_lost_rows",
}


def _flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """A receipt of format 1 or 2 as one of format 3, whose keys are the names of the fields."""
    rows = value["rows"]
    counts = {"rows_in": rows["in"], "rows_out": rows["out"], "rejected": rows.get("rejected", 0)}
    return {**{RENAMED.get(key, key): each for key, each in value.items()}, **counts}


def side_receipt(spec: Spec, epoch: int, seq: int, mode: str, reason: str, stamp: datetime) -> Receipt:
    """The receipt of a commit to a table that stands beside another: its rows are counted, and no input has moved."""
    return Receipt(
        table=spec.name,
        fingerprint=spec.fingerprint,
        epoch=epoch,
        seq=seq,
        mode=mode,
        strategy="append",
        reason=reason,
        data_timestamp=stamp,
        positions={},
        rows_in=0,
        rows_out=None,
        attempt=uuid4().hex,
    )


def transaction_version(epoch: int, seq: int) -> int:
    """`epoch << 32 | seq`: grows with every refresh, and with every engine."""
    return (epoch << 32) | seq


def epoch_of(transaction: int) -> int:
    """The epoch of the engine that a version of the Delta transaction stands for."""
    return transaction >> 32


def seq_of(transaction: int) -> int:
    """The number of the refresh that a version of the Delta transaction stands for."""
    return transaction & 0xFFFF_FFFF
