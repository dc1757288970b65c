"""Rows, positions and a host for tests of writers, which need neither Spark nor a warehouse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshline.compute.outgoing import Outgoing
from freshline.declare.project import read_declarations
from freshline.declare.project_settings import read_settings
from freshline.query.rules.algebra import SIGN
from freshline.sinks.writer import Delivered, Delivery, RejectedRow, SinkWriter
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec


class Stopped(Exception):
    """The end of a process at a failpoint."""


@dataclass
class Host:
    """The part of an engine that a writer uses.

    `stop_at` is the failpoint at which it ends. `meanwhile` is done at each one.
    """

    root: Path
    stop_at: str = ""
    meanwhile: Callable[[str], None] | None = None

    @property
    def clock(self) -> Callable[[], datetime]:
        return lambda: datetime.now(UTC)

    def failpoint(self, point: str) -> None:
        if self.meanwhile is not None:
            self.meanwhile(point)
        if point == self.stop_at:
            raise Stopped(point)


def declared_sink(root: Path, options: str, columns: str = "id INT, note STRING", key: str = "id") -> TableSpec:
    """The sink `out` of a table with these columns."""
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


def position(
    version: int,
    *,
    epoch: int = 1,
    owner: str = "out 1",
    began: int | None = None,
    table: str = "t",
) -> SinkPosition:
    """A position at a version, by the refresh of that number."""
    unfinished = None if began is None else TablePosition(table, began, began)
    return SinkPosition(owner, TablePosition(table, version, version), version, epoch, unfinished)


def outgoing(upserts: pa.Table, deletes: pa.Table | None = None, *, batch_rows: int = 1_000) -> Outgoing:
    """Rows on their way; those of `deletes` went away."""
    schema = upserts.schema

    def signed(table: pa.Table, sign: int) -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=batch_rows):
            signs = pa.array([sign] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_arrays([*batch.columns, signs], names=[*schema.names, SIGN])

    def read() -> Iterator[pa.RecordBatch]:
        yield from signed(upserts, 1)
        if deletes is not None:
            yield from signed(deletes, -1)

    return Outgoing(schema, upserts.num_rows, 0 if deletes is None else deletes.num_rows, read)


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
    rows = outgoing(upserts, deletes)
    if whole:
        return Sent(writer.compare(rows, Delivery(None, after, takes_over), kept.extend), kept)
    held = before or writer.position()
    return Sent(writer.apply(rows, Delivery(held, after, takes_over), kept.extend), kept)


def rows_in(writer: SinkWriter, schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows of the sink in the order of their first column."""
    found = [row for batch in writer.read(schema) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: str(row[schema.names[0]]))


@contextmanager
def stopping_at(host: Host, point: str) -> Iterator[None]:
    """Whatever is done ends at a failpoint."""
    host.stop_at = point
    try:
        yield
    except Stopped:
        return
    finally:
        host.stop_at = ""
    raise AssertionError(f"it did not come to {point}")
