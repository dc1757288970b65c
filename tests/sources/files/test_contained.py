"""Files of containers are opened and counted as files of lines are."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import os

import pyarrow as pa
import pytest

from freshline.sources.files import contained
from freshline.sources.files.contained import inspect_contained, read_contained, schema_of
from freshline.sources.files.lines import ENDED, LineReading, PassingError, Piece, pieces_of
from freshline.sources.files.position import FileMark
from freshline.sources.formats import avro_files
from freshline.sources.formats.avro_files import AvroRecords
from freshline.sources.formats.csv_files import QuotedRecords
from freshline.sources.formats.fit import Wanted
from freshline.sources.formats.orc_files import OrcRows
from freshline.sources.formats.parquet_files import ParquetRows
from freshline.sources.formats.text_files import WholeFile
from freshline.sources.formats.xml_files import Elements
from tests.typed_rows import avro_file, avro_record, orc_file, parquet_file

WANTED = Wanted(pa.schema([("id", pa.int64())]), 1_000)


def inspected(file, container, *, follow=False):
    status = file.lstat() if file.is_symlink() and not follow else file.stat()
    mark = FileMark(file.name, status.st_size, status.st_mtime_ns)
    (found,) = inspect_contained(file.parent, [mark], container, reading(file, follow=follow))
    return found


def reading(file, *, follow=False):
    return LineReading("text", 1_000, follow, os.fsencode(file.parent))


def read(file, container, pieces):
    batches = list(read_contained(pieces, container, reading(file)))
    assert all(batch.schema == schema_of(container) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def test_parts_of_a_file_have_its_records_once_with_the_number_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(avro_files, "PART_BYTES", 1)
    file, container = tmp_path / "a.avro", AvroRecords(WANTED)
    file.write_bytes(avro_file(avro_record(id="long"), [{"id": n} for n in range(100)], sync_interval=16))
    found = inspected(file, container)
    pieces = pieces_of(tmp_path, [found], [7])
    rows = read(file, container, pieces)

    assert (found.lines, found.fields, len(pieces) > 3) == (100, (), True)
    assert [row["_freshline_parsed"]["id"] for row in rows] == list(range(100))
    assert [row["_freshline_record"] for row in rows] == list(range(1, 101))
    assert {row["_freshline_number"] for row in rows} == {7}


@pytest.mark.parametrize(
    ("name", "content", "error", "reason"),
    [
        ("a", b"", "EMPTY_FILE", ""),
        ("a", b"text", "NOT_PARQUET", "it does not begin with PAR1"),
        ("a.gz", gzip.compress(b"PAR1", mtime=0), "NOT_PARQUET", "it does not begin with PAR1"),
        ("a", b"PAR1" * 9, "UNREADABLE", "Parquet"),
        ("a", parquet_file(pa.table({"id": [1]}))[:-1], "UNREADABLE", "Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_known_with_its_reason(tmp_path, name, content, error, reason):
    file = tmp_path / name
    file.write_bytes(content)
    found = inspected(file, ParquetRows(WANTED))

    assert found.error == error
    assert reason in found.reason


def test_a_link_a_file_that_is_gone_and_one_that_changed_are_not_read(tmp_path):
    file, container = tmp_path / "a", ParquetRows(WANTED)
    file.write_bytes(parquet_file(pa.table({"id": [1]})))
    (tmp_path / "link").symlink_to(file)
    assert inspected(tmp_path / "link", container).error == "UNREADABLE"
    assert inspected(tmp_path / "link", container, follow=True).lines == 1

    mark = FileMark("a", 1, 1)
    assert inspect_contained(tmp_path, [mark], container, reading(file))[0].changed
    file.unlink()
    (gone,) = inspect_contained(tmp_path, [mark], container, reading(file))
    assert (gone.error, gone.changed) == (None, True)
    with pytest.raises(OSError, match=rf"{ENDED} \(No such file or directory\) of "):
        read(file, container, [Piece(0, os.fsencode(file))])


@pytest.mark.parametrize("container", [WholeFile(100), QuotedRecords(100), Elements(WANTED, "row")])
def test_a_packed_file_of_no_byte_is_empty_in_every_format(tmp_path, container):
    for name, content in {
        "a.gz": gzip.compress(b"", mtime=0), "a.bz2": bz2.compress(b""),
        "a.zst": pa.compress(b"", "zstd", asbytes=True), "a": b"",
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(content)
        assert inspected(tmp_path / name, container).error == "EMPTY_FILE", name


def test_only_texts_are_unpacked_by_the_ending_of_the_name(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"text"))
    (tmp_path / "a.zip").write_bytes(b"text")

    (row,) = read(tmp_path / "a.gz", WholeFile(100), [Piece(0, os.fsencode(tmp_path / "a.gz"))])
    assert row["value"] == b"text"
    assert "are not unpacked" in inspected(tmp_path / "a.zip", WholeFile(100)).reason
    assert inspected(tmp_path / "a.gz", ParquetRows(WANTED)).error == "NOT_PARQUET"


class Failing(io.BufferedReader):
    """A file of a disk that fails after so many reads."""

    def __init__(self, path, good):
        super().__init__(io.FileIO(os.fsdecode(path)))
        self.good = good

    def read(self, *size):
        self.good -= 1
        if self.good < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(*size)


@pytest.mark.parametrize(
    ("container", "content"),
    [
        (ParquetRows(WANTED), parquet_file(pa.table({"id": [1, 2, 3]}))),
        (OrcRows(WANTED), orc_file(pa.table({"id": [1, 2, 3]}))),
        (AvroRecords(WANTED), avro_file(avro_record(id="long"), [{"id": 1}])),
        (QuotedRecords(100), b"id\n1\n"),
        (Elements(WANTED, "row"), b"<a><row><id>1</id></row></a>"),
    ],
    ids=["parquet", "orc", "avro", "csv", "xml"],
)
def test_a_disk_that_fails_at_any_read_is_never_the_fault_of_the_file(tmp_path, monkeypatch, container, content):
    file = tmp_path / "a"
    file.write_bytes(content)
    assert inspected(file, container).error is None
    stopped: list[PassingError] = []
    for good in range(20):
        monkeypatch.setattr(contained, "open_file", lambda path, _, good=good: Failing(path, good))
        try:
            assert inspected(file, container).error is None
        except PassingError as error:
            stopped.append(error)
    assert 0 < len(stopped) < 20
    assert {(error.path, error.reason) for error in stopped} == {(str(file), os.strerror(errno.EIO))}
