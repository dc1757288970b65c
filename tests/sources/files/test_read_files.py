"""Which files were read is known of each name, by eight bytes of memory and the table beside the log."""

from __future__ import annotations

import random

import deltalake
import pyarrow as pa
import pytest

from freshline.sources.files import read_files
from freshline.sources.files.position import FileMark, FilesPosition
from freshline.sources.files.read_files import Names, ReadFiles

ODD = ["a\nb", "ü'\"\\", "\u202ex", "x" * 200, " ", "\U0001f600"]


def note(table, seq, marks):
    rows = {
        "_freshline_seq": pa.array([seq] * len(marks), pa.int64()),
        "path": pa.array([mark.path for mark in marks], pa.string()),
        "size": pa.array([mark.size for mark in marks], pa.int64()),
        "modified_ns": pa.array([mark.modified_ns for mark in marks], pa.int64()),
    }
    deltalake.write_deltalake(str(table), pa.table(rows), mode="append")


def marks_of(*names):
    return [FileMark(name, len(name), number) for number, name in enumerate(names)]


def test_a_log_without_a_table_knows_the_files_of_its_receipt(tmp_path):
    (mark,) = marks_of("a")
    read = ReadFiles(tmp_path / "none")

    assert read.find(FilesPosition(0, ()), ["a", "b"]) == {}
    assert read.find(FilesPosition(0, (mark,)), ["a", "b"]) == {"a": mark}
    assert read.find(FilesPosition(0, (mark,)), []) == {}


def test_a_file_that_left_the_folder_is_known_when_it_comes_back(tmp_path):
    marks = marks_of("gone", "there", *ODD)
    note(tmp_path / "t", 3, marks)
    read, position = ReadFiles(tmp_path / "t"), FilesPosition(3, ())
    assert set(read.find(position, ["there", "new", *ODD])) == {"there", *ODD}
    read.forget_but({"there"})

    assert read.find(position, ["gone", "new"]) == {"gone": marks[0]}
    assert read.find(position, ["there"]) == {"there": marks[1]}


def test_names_of_a_log_that_was_put_back_are_not_known(tmp_path):
    for seq, name in ((1, "a"), (2, "b"), (3, "c")):
        note(tmp_path / "t", seq, marks_of(name))
    read, names = ReadFiles(tmp_path / "t"), ["a", "b", "c"]

    assert [set(read.find(FilesPosition(seq, ()), names)) for seq in (3, 1, 0, 2)] == [
        {"a", "b", "c"}, {"a"}, set(), {"a", "b"},
    ]  # fmt: skip


def test_of_names_with_one_number_the_table_knows_which_was_read(tmp_path, monkeypatch):
    monkeypatch.setattr(read_files, "number_of", lambda name: 7)
    note(tmp_path / "t", 1, marks_of("a", "b"))
    read = ReadFiles(tmp_path / "t")

    assert set(read.find(FilesPosition(1, ()), ["a", "c"])) == {"a"}
    assert set(read.find(FilesPosition(1, ()), ["b", "d"])) == {"b"}


@pytest.mark.seconds
@pytest.mark.parametrize("seed", range(3))
def test_random_searches_know_what_a_dictionary_knows(tmp_path, seed):
    chance, table = random.Random(seed), tmp_path / "t"
    read, seq = ReadFiles(table), 0
    stored: dict[str, FileMark] = {}
    recent: dict[str, FileMark] = {}
    for step in range(60):
        action = chance.random()
        if action < 0.5:
            (mark,) = marks_of(f"{chance.choice(ODD)}{step}")
            recent[mark.path] = mark
        elif action < 0.7 and recent:
            seq += 1
            note(table, seq, list(recent.values()))
            stored, recent = stored | recent, {}
        elif action < 0.75:
            read = ReadFiles(table)
        known = stored | recent
        asked = {*chance.sample(sorted(known), min(len(known), 3)), f"new{step}"}
        if chance.random() < 0.5:
            read.forget_but(asked)
        position = FilesPosition(seq, tuple(recent.values()))
        assert read.find(position, asked) == {path: known[path] for path in asked if path in known}


def test_a_name_takes_eight_bytes_in_memory():
    names, count = Names(), 50_000
    for start in range(0, count, 200):
        names.add(f"post-{number}" for number in range(start, start + 200))

    assert names.bytes == 8 * count
    assert all(names.may_have(f"post-{number}") for number in range(0, count, 97))
    assert not any(names.may_have(f"key-{number}") for number in range(1_000))


def test_a_table_that_cannot_be_read_leaves_nothing_half_known(tmp_path, monkeypatch):
    note(tmp_path / "t", 1, marks_of("a", "b"))
    read = ReadFiles(tmp_path / "t")
    with monkeypatch.context() as patched:
        patched.setattr(Names, "add", lambda *_: (_ for _ in ()).throw(OSError("the disk is away")))
        with pytest.raises(OSError, match="away"):
            read.find(FilesPosition(1, ()), ["a"])

    assert set(read.find(FilesPosition(1, ()), ["a", "b", "c"])) == {"a", "b"}
