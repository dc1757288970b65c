"""Deliveries to a writer of a sink, without Spark: rows, positions, and an engine that stops at a point.

`Sending` makes them with a writer of its own, and `send` with one that a test has made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshline.compute.outgoing import BATCH_ROWS
from freshline.declare.project import read_declarations
from freshline.declare.project_settings import read_settings
from freshline.sinks.writer import Delivered, Delivery, RejectedRow, SinkWriter
from freshline.sql.query_parser import parse_query
from freshline.values.changed_rows import ChangedRows
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.sink import OnReject, Sink
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import Downstream, TableSpec

# The rows of most tests.
SCHEMA = pa.schema([("id", pa.int32()), ("note", pa.string())])


class Stopped(BaseException):
    """The process ends here."""


@dataclass
class Host:
    """An engine in a folder; it stops at `stops_at`. `once` has what is done when it first comes to a point."""

    root: Path
    stops_at: str | None = None
    now: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)
    points: list[str] = field(default_factory=list)
    once: dict[str, Callable[[], object]] = field(default_factory=dict)

    @property
    def sink_notes(self) -> Path:
        return self.root / "notes"

    def clock(self) -> datetime:
        return self.now

    def failpoint(self, name: str) -> None:
        self.points.append(name)
        if name in self.once:
            self.once.pop(name)()
        if name == self.stops_at:
            raise Stopped(name)

    @contextmanager
    def stopping_at(self, point: str) -> Iterator[None]:
        """Whatever is done ends at a point."""
        self.stops_at = point
        try:
            yield
        except Stopped:
            pass
        else:
            raise AssertionError(f"{point} was not reached, but {self.points}")
        finally:
            self.stops_at = None


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


def table(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows of SCHEMA."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def declared_sink(root: Path, options: str, columns: str = "id INT, note STRING", key: str = "id") -> TableSpec:
    """The sink `out` of a table with these columns, as it is declared."""
    (root / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    graph = read_declarations(
        {
            "src.sql": f"CREATE SOURCE src ({columns}, PRIMARY KEY ({key})) WITH ('connector' = 'delta', 'path' = 'x')",
            "big.sql": f"CREATE MATERIALIZED TABLE big (PRIMARY KEY ({key})) AS SELECT * FROM src",
            "out.sql": f"CREATE SINK out FROM big WITH ({options})",
        },
        read_settings(root, {}),
    )
    return graph.table(TableName.parse("out"))


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


def position(
    version: int, *, seq: int | None = None, epoch: int = 1, owner: str = "out 1", began: int | None = None
) -> SinkPosition:
    """The position of a version of the table `big`. An attempt at the version `began` was not finished."""
    unfinished = None if began is None else _version(began)
    return SinkPosition(owner, _version(version), version if seq is None else seq, epoch, unfinished)


def _version(number: int) -> TablePosition:
    return TablePosition("big", number, number, 1)


@dataclass
class Sent:
    """One delivery to a writer: its numbers, and the rows that it did not take."""

    delivered: Delivered
    rejected: list[RejectedRow]


def send(
    writer: SinkWriter,
    upserts: pa.Table,
    after: SinkPosition,
    *,
    deletes: pa.Table | None = None,
    whole: bool = False,
    before: SinkPosition | None = None,
    takes_over: bool = False,
) -> Sent:
    """Send rows as a refresh does: changes on the position that the sink has, or on `before`, or all rows."""
    kept: list[RejectedRow] = []
    rows = Rows(upserts, deletes, batch=1_000)
    if whole:
        return Sent(writer.compare(rows, Delivery(None, after, takes_over), kept.extend), kept)
    held = before or writer.position()
    return Sent(writer.apply(rows, Delivery(held, after, takes_over), kept.extend), kept)


def rows_in(writer: SinkWriter, schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows of the sink in the order of their first column."""
    found = [row for batch in writer.read(schema) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: str(row[schema.names[0]]))


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
        try:
            with self.host.stopping_at(point):
                yield
        finally:
            self.close()

    def read(self, schema: pa.Schema) -> pa.Table:
        """The rows as the sink has them."""
        return pa.Table.from_batches(list(self.writer.read(schema)), schema)
