"""The seam of writers: the half of a sink that talks to its system.

A refresh of a sink asks for the position that the sink itself has. Then it gives the writer the changes since then, or,
for the first refresh, `--full` and a history that is gone, all rows. The writer puts rows and position there together,
as well as its system can, and refuses a position that is not the one on which the changes stand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Protocol

import pyarrow as pa

from freshline.errors import SinkFencedError, SinkHistoryError, SinkRefusedError
from freshline.values.changed_rows import ChangedRows
from freshline.values.outside_half import OutsideHalf
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec


class SinkHost(Protocol):
    """The part of the engine that a writer may use."""

    @property
    def root(self) -> Path:
        """The folder of the project."""

    @property
    def clock(self) -> Callable[[], datetime]:
        """The time now, in UTC."""

    @property
    def failpoint(self) -> Callable[[str], None]:
        """Called with the name of a point at which a test may want to stop the process."""


@dataclass(frozen=True)
class Delivery:
    """One state of a table on its way out.

    `before` is the position on which the changes stand; None where all rows are compared. `after` is the position with
    them. Where `before.unfinished` is set, the changes have the state of every key that changed in between, also of one
    that changed back. With `takes_over` a person asked for all of it, so a position of another owner is replaced.
    `was_written` says that there is a receipt of an earlier delivery: rows that are there are this sink's, also where
    the system has forgotten the position.
    """

    before: SinkPosition | None
    after: SinkPosition
    takes_over: bool = False
    was_written: bool = False


@dataclass(frozen=True)
class RejectedRow:
    """A row that the system does not take: its values as a JSON text, a code, and the sentence of the system."""

    row: str
    code: str
    message: str


@dataclass(frozen=True)
class LeftRejected:
    """Rows that the system did not take of deliveries that were stopped, and the number of the newest of these."""

    rows: tuple[RejectedRow, ...]
    seq: int


@dataclass(frozen=True)
class Delivered:
    """The numbers of rows that were inserted or updated, and deleted."""

    written: int
    deleted: int


class OutgoingRows(Protocol):
    """Rows on their way out, in batches of Arrow, read as often as they are asked for.

    Values that hold others come as JSON texts, but for a sink with `takes_nested`.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table; fields of JSON texts have JSON (`freshline.values.sink`) in their metadata."""

    @property
    def upserts(self) -> int:
        """The number of rows that are there now."""

    @property
    def deletes(self) -> int:
        """The number of keys that went away; 0 where all rows are compared."""

    def read_upserts(self) -> Iterator[pa.RecordBatch]:
        """The rows that are there now, each key once."""

    def read_deletes(self) -> Iterator[pa.RecordBatch]:
        """The rows whose keys went away, as they were."""

    def read_changes(self) -> Iterator[ChangedRows]:
        """All of both, with the rows as they were before; for a sink with `needs_before`.

        Each key comes once. A row of a table without a key came or went, each by itself.
        """


KeepRejected = Callable[[Sequence[RejectedRow]], None]


class SinkWriter(OutsideHalf, ABC):
    """Writes one sink. It is used by one refresh at a time, and kept between them."""

    failure: ClassVar[type[SinkRefusedError]] = SinkRefusedError
    spec: TableSpec
    host: SinkHost

    def __init__(self, spec: TableSpec, host: SinkHost) -> None:
        self.spec = spec
        self.host = host

    @abstractmethod
    def position(self) -> SinkPosition | None:
        """The position as the sink has it; None before the first write. Raises the errors of sinks.

        A writer without transactions notes an attempt before its first row, and gives it as `unfinished`.
        """

    @abstractmethod
    def apply(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        """Write changes and the position after them.

        `keep_rejected` is given the rows that the system does not take, all at once, before the position is written.
        Raises the errors of sinks: SinkFencedError where the position is not `delivery.before`, or of a newer engine.
        """

    @abstractmethod
    def compare(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        """Write all rows, take away those that the table has not, and write the position. As `apply`."""

    @abstractmethod
    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows as the sink has them, in the columns and types of `schema`. In batches, whose memory is bounded."""

    def left_rejected(self) -> LeftRejected | None:
        """The rows that were not taken of a delivery that was stopped, and that `position` has ended since.

        Only a writer that ends deliveries by itself has such. They are in the quarantine already, or not yet.
        """
        return None

    def forget_left(self) -> None:
        """Forget `left_rejected`, which are in the quarantine."""

    def close(self) -> None:
        """Let go of connections."""

    def require_position(self, held: SinkPosition | None, delivery: Delivery) -> None:
        """Refuse to write over a position that is not the one that was expected.

        Raises SinkFencedError and SinkHistoryError.
        """
        if held is None:
            if delivery.before is not None:
                raise SinkFencedError(
                    "what the sink has is not what these changes stand on: its position is gone. Run `freshline "
                    f"refresh {self.spec.name} --full`.",
                    where=self.where,
                )
            return
        after = delivery.after
        if held.owner != after.owner:
            if delivery.takes_over:
                return
            raise SinkFencedError(
                f"the sink belongs to {held.owner}, and this is {after.owner}. If the other is gone, take it over with "
                f"`freshline refresh {self.spec.name} --full`, which removes rows that are not of this table.",
                where=self.where,
            )
        if held.epoch > after.epoch:
            raise SinkFencedError(
                f"a newer engine (epoch {held.epoch}, this one has {after.epoch}) writes the sink now. Nothing was "
                "written.",
                where=self.where,
            )
        if delivery.before is not None and not held.has_state_of(delivery.before):
            raise SinkFencedError(
                f"the sink has version {held.table.version} now, and these changes stand on version "
                f"{delivery.before.table.version}. Ask again.",
                where=self.where,
            )
        if delivery.before is not None and held.unfinished != delivery.before.unfinished:
            raise SinkFencedError(
                "another attempt has begun to write since the changes were computed. Nothing was written. Ask again.",
                where=self.where,
            )
        is_older = held.table.table_id == after.table.table_id and held.table.version > after.table.version
        if is_older and not delivery.takes_over:
            raise SinkHistoryError(
                f"the sink has version {held.table.version} of the table, and this is {after.table.version}. Where "
                f"the warehouse was put back on purpose, run `freshline refresh {self.spec.name} --full`.",
                where=self.where,
            )
