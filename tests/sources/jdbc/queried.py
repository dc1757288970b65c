"""A log table that is read by queries, as far as it matters without Spark.

A commit is a position that is kept, as the receipt keeps it, and the rows that were read for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from freshline.compute.cancellation import Cancellation
from freshline.sources.jdbc.rows import RowReader
from freshline.sources.reader import ReadRequest
from freshline.values.position import position_from_json
from tests.sources.reading import Host, failure_of, open_reader

COLUMNS = "id INT, name STRING, PRIMARY KEY (id)"
GROWING = {"read": "incremental", "column": "n", "overlap": "0"}


def back_again(server, database):
    """Start a server again that a test stopped."""
    server.start()
    database.forget()


@dataclass
class Queried:
    """The rows of each commit, and the position of the last one."""

    host: Host
    options: dict[str, str] = field(default_factory=dict)
    columns: str = COLUMNS
    position: Any = None
    commits: list[list[tuple[Any, ...]]] = field(default_factory=list)
    step: Any = None
    reader: Any = None

    def open(self, **options):
        """Go on as another engine would, with options of the declaration that are others than before."""
        if self.reader is not None:
            self.reader.close()
        self.options = {**self.options, **options}
        own = {name.replace("_", "-"): value for name, value in self.options.items()}
        given = {"connector": "jdbc", "url": "${env:SHOP_URL}", "table": "t", "read": "snapshot", **own}
        self.reader = open_reader(self.host, self.columns, given, "feed")
        return self.reader

    def refresh(self):
        """The rows that a refresh reads and does not find equal to the last ones, None where it commits nothing."""
        reader = self.reader or self.open()
        inspection = reader.inspect(self.position, ReadRequest(Cancellation()))
        portion = reader.cut(inspection, self.position)
        portion = reader.prepare(None, portion, None, Cancellation())
        self.step = str(portion.step)
        if portion.after == portion.before:
            return None
        rows = [
            tuple(row["_freshline_parsed"].values()) if row["_freshline_broken"] is None else row["_freshline_broken"]
            for row in portion.rows.table.to_pylist()
        ]
        reader.finish(None)
        self.position = position_from_json(portion.after.as_json())
        assert self.position == portion.after
        self.commits.append(rows)
        return sorted(rows, key=str)

    def error(self, code):
        error = failure_of(self.refresh, "feed")
        assert error.code == code, error
        return error

    def dies_in_the_middle(self, server, database, monkeypatch):
        """A refresh of 20,000 rows during which the server dies; it is there again behind. No file is left."""
        monkeypatch.setattr("freshline.sources.spill.MOST_ROWS", 100)
        read, seen = RowReader.read, []

        def dies(rows, fields, size):
            seen.append(fields)
            if len(seen) == 1_000:
                server.stop()
            return read(rows, fields, size)

        monkeypatch.setattr(RowReader, "read", dies)
        try:
            assert self.error("DATABASE").retry_helps
        finally:
            back_again(server, database)
        assert 1_000 <= len(seen) < 20_000
        assert [file for file in self.host.root.rglob("*") if file.is_file()] == []
