"""A log table of a stream, as far as it matters without Spark: what each commit has, and the position."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from freshline.compute.cancellation import Cancellation
from freshline.sources.kinesis.connector import SEQUENCE, SHARD, SUB_SEQUENCE
from freshline.sources.reader import VERDICT, ReadRequest
from freshline.values.connector import RECORD
from freshline.values.format import VALUE
from freshline.values.position import position_from_json
from tests.kinesis import REGION, KinesisServer
from tests.sources.reading import Host, open_reader, table_of


@dataclass
class Log:
    """The batches of one source, and the position of the last one. A row is a dict of its columns."""

    host: Host
    server: KinesisServer
    stream: str
    options: dict[str, str] = field(default_factory=dict)
    columns: str = "id INT"
    position: Any = None
    commits: list[list[dict[str, Any]]] = field(default_factory=list)
    reader: Any = None

    def open(self) -> Any:
        """Go on as another engine would: with what the receipt has of the position, and nothing more."""
        self.close()
        if self.position is not None:
            self.position = position_from_json(self.position.as_json())
        given = {
            "connector": "kinesis", "stream": self.stream, "region": REGION, "endpoint": self.server.url,
            "format": "json", **self.options,
        }  # fmt: skip
        self.reader = open_reader(self.host, self.columns, given)
        return self.reader

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def inspect(self, cancellation: Cancellation | None = None) -> Any:
        reader = self.reader or self.open()
        return reader.inspect(self.position, ReadRequest(cancellation or Cancellation()))

    def refresh(self, *, most: int | None = None) -> list[bytes]:
        """Read all that is there, in at most so many commits; the data of the new records."""
        inspection = self.inspect()
        done = len(self.commits)
        while (portion := self.reader.cut(inspection, self.position)) is not None:
            if self.commit(portion) is None or len(self.commits) - done == most:
                break
        return [row[VALUE] for commit in self.commits[done:] for row in commit]

    def commit(self, portion: Any) -> Any:
        """One portion; None where nothing of it is new."""
        spark: Any = None
        portion = self.reader.prepare(spark, portion, None, Cancellation())
        try:
            if portion.after == portion.before:
                return None
            rows = rows_of(portion)
            self.reader.confirm(portion, None)
            self.commits.append(rows)
            self.position = portion.after
        finally:
            self.reader.finish(spark)
        self.reader.release(portion, seconds=1.0, rejected=0)
        return portion

    @property
    def data(self) -> list[bytes]:
        return [row[VALUE] for commit in self.commits for row in commit]

    @property
    def places(self) -> list[tuple[str, int]]:
        return [(row[SHARD], row[RECORD]) for commit in self.commits for row in commit]


def rows_of(portion: Any) -> list[dict[str, Any]]:
    """The records of a portion that is prepared, in the order in which a log has them."""
    found: list[dict[str, Any]] = table_of(portion.rows).to_pylist()
    return sorted(found, key=lambda row: (row[SHARD], row[RECORD]))


def verdicts(log: Log) -> list[tuple[bytes, int | None, str | None]]:
    return [(row[VALUE], row[SUB_SEQUENCE], row[VERDICT]) for commit in log.commits for row in commit]


def sequences(log: Log) -> list[str]:
    return [row[SEQUENCE] for commit in log.commits for row in commit]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]
