"""A log table of a stream or a queue, as far as it matters without Spark: what each commit has, and the position."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from freshline.commit.warehouse import Warehouse
from freshline.compute.cancellation import Cancellation
from freshline.declare.source import declare_source
from freshline.sources.reader import ReadRequest
from freshline.sql.clauses import SourceClauses
from freshline.sql.statement import read_statement
from freshline.sql.tokens import Text
from freshline.testing.clock import LabClock
from freshline.testing.crash import Crash
from freshline.values.connector import RECORD
from freshline.values.format import VALUE
from freshline.values.spec import SourceSpec
from tests.rabbitmq import RabbitServer


@dataclass
class Host:
    """The part of an engine that a reader uses. It stops at the failpoint `stop_at`."""

    root: Path
    stop_at: str = ""
    clock: Any = field(default_factory=LabClock)

    @property
    def warehouse(self):
        return Warehouse(self.root / "warehouse")

    def failpoint(self, name):
        if name == self.stop_at:
            raise Crash(name)

    def require_warehouse(self):
        return


@dataclass
class Log:
    """The batches of one source, and the position of the last one. `url` is what `${env:BROKER}` stands for."""

    host: Host
    server: RabbitServer
    options: dict[str, str]
    columns: str = "id INT"
    position: Any = None
    commits: list[list[tuple[int, bytes]]] = field(default_factory=list)
    reader: Any = None

    def open(self):
        """Go on as another engine would."""
        self.close()
        given = {"url": "${env:BROKER}", "format": "json", **self.options}
        pairs = ", ".join("'{}' = '{}'".format(name, value.replace("'", "''")) for name, value in given.items())
        text = f"CREATE SOURCE s ({self.columns}) WITH ('connector' = 'rabbitmq', {pairs})"
        clauses = read_statement(Text(text, "assets/s.sql"))
        assert isinstance(clauses, SourceClauses)
        spec = declare_source(clauses).spec
        assert isinstance(spec, SourceSpec)
        host: Any = self.host
        self.reader = spec.connection.open(spec, host)
        return self.reader

    def close(self):
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def refresh(self):
        """Read all that is there, in commits; returns the bodies of the new messages."""
        reader = self.reader or self.open()
        spark: Any = None
        inspection = reader.inspect(self.position, ReadRequest(Cancellation()))
        done = len(self.commits)
        while (portion := reader.cut(inspection, self.position)) is not None:
            portion = reader.prepare(spark, portion, None, Cancellation())
            try:
                self.commits.append(records(rows_of(portion)))
                self.position = portion.after
            finally:
                reader.finish(spark)
            reader.release(portion, seconds=1.0, rejected=0)
        return [body for commit in self.commits[done:] for _, body in commit]

    @property
    def bodies(self):
        return [body for commit in self.commits for _, body in commit]


def rows_of(portion: Any) -> Any:
    """The messages of a portion that is prepared."""
    return portion.held.rows if hasattr(portion, "held") else portion.rows


def table_of(rows: Any) -> Any:
    """The messages of a portion."""
    return pa.concat_tables([pq.read_table(file) for file in rows.files]) if rows.is_spilled else rows.table


def records(rows: Any) -> list[tuple[int, bytes]]:
    table = table_of(rows)
    return list(zip(table[RECORD].to_pylist(), table[VALUE].to_pylist(), strict=True))
