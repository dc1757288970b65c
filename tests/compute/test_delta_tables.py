"""A version of a table is read once, and again where its commit is another one."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from freshline.compute import delta_tables as module
from freshline.compute.delta_tables import MOST_KEPT, shared_table


def write(path, *numbers):
    for number in numbers:
        write_deltalake(str(path), pa.table({"n": [number]}), mode="append")


def numbers(table):
    return sorted(table.to_pyarrow_table()["n"].to_pylist())


def test_a_version_is_read_once_and_each_version_is_itself(tmp_path):
    write(tmp_path / "t", 1, 2, 3)

    assert shared_table(tmp_path / "t", 2) is shared_table(tmp_path / "t", 2)
    assert [numbers(shared_table(tmp_path / "t", version)) for version in (0, 1, 2)] == [[1], [1, 2], [1, 2, 3]]


def test_a_commit_that_was_written_anew_is_read_anew(tmp_path):
    path = tmp_path / "t"
    write(path, 1, 2)
    assert numbers(shared_table(path, 1)) == [1, 2]
    (path / "_delta_log" / f"{1:020d}.json").unlink()
    write(path, 7)

    assert numbers(shared_table(path, 1)) == [1, 7]
    shutil.rmtree(path)
    write(path, 8, 9)
    assert numbers(shared_table(path, 1)) == [8, 9]


def test_a_version_whose_commit_is_gone_is_read_from_its_checkpoint(tmp_path):
    path = tmp_path / "t"
    write(path, 1, 2)
    DeltaTable(str(path)).create_checkpoint()
    (path / "_delta_log" / f"{1:020d}.json").unlink()

    assert numbers(shared_table(path, 1)) == [1, 2]
    with pytest.raises(DeltaError):
        shared_table(path, 5)


@pytest.mark.seconds
def test_no_more_are_kept_than_a_few_and_threads_may_share_them(tmp_path):
    write(tmp_path / "t", *range(MOST_KEPT + 8))
    wanted = [version for version in range(MOST_KEPT + 8) for _ in range(3)]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda version: len(numbers(shared_table(tmp_path / "t", version))), wanted))

    assert found == [version + 1 for version in wanted]
    assert len(module._kept) <= MOST_KEPT
