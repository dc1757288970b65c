"""Deliveries to a writer of a sink, without Spark: rows, positions, and an engine that stops at a point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshline.compute.outgoing import BATCH_ROWS
from freshline.sinks.writer import Delivered, Delivery, RejectedRow, SinkWriter
from freshline.sql.query_parser import parse_query
from freshline.values.changed_rows import ChangedRows
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.sink import OnReject, Sink
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import Downstream, TableSpec


class Stopped(BaseException):
    """The process ends here."""


@dataclass
class Host:
    """An engine in a folder; it stops at `stops_at`."""

    root: Path
    stops_at: str | None = None
    now: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)
    points: list[str] = field(default_factory=list)

    @property
    def sink_notes(self) -> Path:
        return self.root / "notes"

    def clock(self) -> datetime:
        return self.now

    def failpoint(self, name: str) -> None:
        self.points.append(name)
        if name == self.stops_at:
            raise Stopped(name)


class Rows:
    """Rows on their way out."""

    def __init__(self, upserts: pa.Table, deletes: pa.Table | None = None, *, batch: int = BATCH_ROWS) -> None:
        self.schema = upserts.schema
        self.upserts = upserts.num_rows
        self.deletes = 0 if deletes is None else deletes.num_rows
        self._upserts, self._deletes, self._batch = upserts, deletes, batch

    def read_upserts(self) -> Iterator[pa.RecordBatch]:
        yield from self._upserts.to_batches(max_chunksize=self._batch)

    def read_deletes(self) -> Iterator[pa.RecordBatch]:
        if self._deletes is not None:
            yield from self._deletes.to_batches(max_chunksize=self._batch)

    def read_changes(self) -> Iterator[ChangedRows]:
        raise AssertionError("no sink that is tried with these rows asks for what was before them")


def sink_spec(sink: Sink, *, key: Sequence[str] = ("id",), on_reject: OnReject = OnReject.FAIL) -> TableSpec:
    """The sink `out` of a table `big`."""
    at = Location("out.sql", 1)
    return TableSpec(
        name=TableName.parse("out"),
        query=parse_query("SELECT * FROM big", at.path, at.line),
        written_at=at,
        freshness=Downstream.DOWNSTREAM,
        primary_key=tuple(key),
        sink=sink,
        on_reject=on_reject,
    )


def position(version: int, *, seq: int | None = None, epoch: int = 1, owner: str = "out 1") -> SinkPosition:
    """The position of a version of the table `big`."""
    return SinkPosition(owner, TablePosition("big", version, version, 1), version if seq is None else seq, epoch)


@dataclass
class Sending:
    """Deliveries by one writer after the other, as the engine makes them."""

    spec: TableSpec
    host: Host
    rejected: list[RejectedRow] = field(default_factory=list)
    _writers: list[SinkWriter] = field(default_factory=list)

    @property
    def writer(self) -> SinkWriter:
        if not self._writers:
            self._writers.append(self.open())
        return self._writers[-1]

    def open(self) -> SinkWriter:
        """Another writer, of another process."""
        assert self.spec.sink is not None
        made: SinkWriter = self.spec.sink.open(self.spec, self.host)
        return made

    def close(self) -> None:
        while self._writers:
            self._writers.pop().close()

    def whole(self, rows: Rows | pa.Table, version: int, *, takes_over: bool = False, **other: Any) -> Delivered:
        """Send all rows as this version."""
        sent = Rows(rows) if isinstance(rows, pa.Table) else rows
        delivery = Delivery(None, position(version, **other), takes_over)
        return self.writer.compare(sent, delivery, self.rejected.extend)

    def changes(self, rows: Rows, before: int, version: int, **other: Any) -> Delivered:
        """Send changes from one version to another."""
        delivery = Delivery(position(before), position(version, **other))
        return self.writer.apply(rows, delivery, self.rejected.extend)

    @contextmanager
    def stopping_at(self, point: str) -> Iterator[None]:
        """The process ends at a point, and another one begins."""
        self.host.stops_at = point
        try:
            yield
        except Stopped:
            pass
        else:
            raise AssertionError(f"{point} was not reached, but {self.host.points}")
        finally:
            self.host.stops_at = None
            self.close()

    def read(self, schema: pa.Schema) -> pa.Table:
        """The rows as the sink has them."""
        return pa.Table.from_batches(list(self.writer.read(schema)), schema)
