"""A log table of a stream or a queue, as far as it matters without Spark: what each commit has, and the position."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from freshline.compute.cancellation import Cancellation
from freshline.sources.reader import ReadRequest
from freshline.values.connector import RECORD
from freshline.values.format import VALUE
from tests.rabbitmq import RabbitServer
from tests.sources.reading import Host, open_reader, table_of


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
        given = {"connector": "rabbitmq", "url": "${env:BROKER}", "format": "json", **self.options}
        self.reader = open_reader(self.host, self.columns, given)
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


def records(rows: Any) -> list[tuple[int, bytes]]:
    table = table_of(rows)
    return list(zip(table[RECORD].to_pylist(), table[VALUE].to_pylist(), strict=True))
