"""Columns and settings of a version are those of that version, whether or not the table is opened for them."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from freshline.commit.delta_log import describe_table, newest_version, read_commit
from freshline.compute import delta_tables as module
from freshline.compute.delta_tables import describe


def write(path, *numbers, **columns):
    for number in numbers:
        write_deltalake(path, pa.table({"n": [number], **columns}), mode="append", schema_mode="merge")


def names(path, version):
    return [field.name for field in describe(path, version).schema.fields]


@pytest.fixture
def opened(monkeypatch):
    """The versions that were opened."""
    found = []

    def noting(place, version):
        found.append(version)
        return DeltaTable(place, version=version)

    monkeypatch.setattr(module, "DeltaTable", noting)
    return found


def test_the_next_versions_are_described_without_opening_them(tmp_path, opened):
    write(tmp_path / "t", 1)
    first = describe(tmp_path / "t", 0)
    write(tmp_path / "t", 2, 3)
    assert describe(tmp_path / "t", 2) is first
    assert describe(tmp_path / "t", 1) is first
    assert opened == [0]


def test_a_version_with_other_columns_or_settings_is_opened(tmp_path):
    path = tmp_path / "t"
    write(path, 1, 2)
    assert names(path, 1) == ["n"]
    write(path, 3, more=["x"])
    write(path, 4)
    assert names(path, 3) == ["n", "more"]
    assert [names(path, version) for version in (0, 1, 2, 3)] == [["n"], ["n"], ["n", "more"], ["n", "more"]]
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    settings = [describe(path, version).metadata.configuration for version in (3, 4)]
    assert settings == [{}, {"delta.enableChangeDataFeed": "true"}]
    assert describe(path, 4).protocol.min_writer_version > describe(path, 3).protocol.min_writer_version


def test_a_table_that_was_made_anew_is_described_anew(tmp_path):
    path = tmp_path / "t"
    write(path, 1, 2)
    old = describe_table(path).metadata.id
    shutil.rmtree(path)
    write_deltalake(path, pa.table({"other": [1]}))
    write_deltalake(path, pa.table({"other": [2]}), mode="append")
    assert [names(path, version) for version in (0, 1)] == [["other"], ["other"]]
    assert describe_table(path).metadata.id != old


def test_a_version_that_is_not_there_is_an_error(tmp_path):
    write(tmp_path / "t", 1)
    describe(tmp_path / "t", 0)
    with pytest.raises(DeltaError):
        describe(tmp_path / "t", 3)


def test_the_newest_version_is_found_after_commits_are_added_lost_and_written_anew(tmp_path):
    path = tmp_path / "t"
    assert newest_version(path) is None
    write(path, 0, 1, 2)
    assert newest_version(path) == 2
    write(path, 3, 4)
    assert newest_version(path) == 4
    for version in (3, 4):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    assert newest_version(path) == 2
    write(path, 5)
    DeltaTable(path).create_checkpoint()
    assert newest_version(path) == 3
    write(path, 6)
    assert newest_version(path) == 4
    shutil.rmtree(path)
    assert newest_version(path) is None
    write(path, 7)
    assert newest_version(path) == 0


def test_a_commit_that_was_written_anew_is_read_anew(tmp_path):
    path = tmp_path / "t"
    write(path, 1, 2)
    before = read_commit(path, 1)
    assert before is not None
    assert read_commit(path, 1) is before
    (path / "_delta_log" / f"{1:020d}.json").unlink()
    assert read_commit(path, 1) is None
    write(path, 3)
    after = read_commit(path, 1)
    assert after is not None
    assert after.data_actions("add") != before.data_actions("add")
