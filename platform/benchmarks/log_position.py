"""Readers of sources without Spark, for what the reading alone costs."""

from __future__ import annotations

from typing import Any

from freshline.compute.cancellation import Cancellation
from freshline.run import Runtime
from freshline.sources.reader import ReadRequest
from freshline.values.names import TableName


class LogPosition:
    """The use that a log table makes of a reader, without the table: it keeps the position of the last commit."""

    def __init__(self, runtime: Runtime, source: str) -> None:
        self.reader: Any = runtime.reader(runtime.graph.source(TableName.parse(source)))
        self.position: Any = None

    def read(self) -> int:
        """Read all that is new; how many records it was."""
        records = 0
        inspection = self.reader.inspect(self.position, ReadRequest(Cancellation()))
        while (portion := self.reader.cut(inspection, self.position)) is not None:
            portion = self.reader.prepare(None, portion, None, Cancellation())
            records += portion.most_records
            self.position = portion.after
            self.reader.finish(None)
            self.reader.release(portion, seconds=1.0, rejected=0)
        return records
