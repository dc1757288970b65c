"""The reader of landing files without Spark: the files that it finds while names move from receipts to the table.

A commit is a position that is kept, as the receipt keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from freshline.compute.cancellation import Cancellation
from freshline.sources.reader import ReadRequest
from freshline.values.names import TableName
from tests.sources.files.test_read_files import note
from tests.sources.reading import Host, open_reader


@dataclass
class Log:
    root: Path
    position: Any = None
    reader: Any = None
    seq: int = 0

    def open(self):
        """Go on as another engine would."""
        given = {"connector": "files", "format": "json", "path": str(self.root / "in"), "settle": "0 seconds"}
        self.reader = open_reader(Host(self.root), "id INT", given, "ev")

    def land(self, *names):
        for name in names:
            (self.root / "in" / name).write_text('{"id": 1}\n', encoding="utf-8")

    def refresh(self):
        """The names that a refresh reads."""
        inspection = self.reader.inspect(self.position, ReadRequest(Cancellation()))
        self.problems = inspection.problems
        found = []
        while (portion := self.reader.cut(inspection, self.position)) is not None:
            found += [mark.path for mark in portion.marks]
            self.position, self.seq = portion.after, self.seq + 1
        return found

    def flush(self):
        """Move the names of the newest receipt into the table, as the next batch does."""
        note(self.reader.host.warehouse.files(TableName.parse("ev")), self.seq, self.position.recent)
        self.position = replace(self.position, flushed_seq=self.seq, recent=())


@pytest.fixture
def log(tmp_path):
    (tmp_path / "in").mkdir()
    made = Log(tmp_path)
    made.open()
    return made


def test_each_file_is_read_once_wherever_its_name_is_noted(log):
    log.land("a", "b")
    assert log.refresh() == ["a", "b"]
    log.flush()
    log.land("c")
    assert log.refresh() == ["c"]
    assert log.refresh() == []
    log.flush()
    log.open()
    assert log.refresh() == []


def test_a_file_that_was_taken_away_is_known_when_it_comes_back_and_when_it_is_another(log):
    log.land("a", "b")
    log.refresh()
    log.flush()
    (log.root / "in" / "a").rename(log.root / "kept")
    assert log.refresh() == []
    (log.root / "kept").rename(log.root / "in" / "a")
    assert (log.refresh(), log.problems) == ([], ())
    (log.root / "in" / "a").write_text('{"id": 2}\n{"id": 3}\n', encoding="utf-8")

    assert log.refresh() == []
    (problem,) = log.problems
    assert problem.code == "FILE_CHANGED"


def test_a_log_that_was_put_back_reads_the_files_of_after_again(log):
    log.land("a")
    log.refresh()
    log.flush()
    before, seq = log.position, log.seq
    log.land("b")
    log.refresh()
    log.flush()
    assert log.refresh() == []
    log.position, log.seq = before, seq

    assert log.refresh() == ["b"]


def test_a_union_read_finds_the_files_that_the_log_has_not(log):
    log.land("a")
    log.refresh()
    log.flush()
    log.land("b")
    _, end = log.reader.find_tail(log.position, log.seq, ReadRequest(Cancellation()))

    assert [mark.path for mark in end.recent] == ["b"]
