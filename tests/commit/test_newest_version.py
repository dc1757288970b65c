"""The newest version of a table is found without a list of its log, and with one where nothing else shows it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from freshline.commit.delta_log import LAST_CHECKPOINT, newest_version

ROW = pa.table({"id": pa.array([1], pa.int32())})


@pytest.fixture
def log(tmp_path):
    """The log of a table with a checkpoint at version 3 and two commits beyond it."""
    for _ in range(4):
        write_deltalake(str(tmp_path / "t"), ROW, mode="append")
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    for _ in range(2):
        write_deltalake(str(tmp_path / "t"), ROW, mode="append")
    return tmp_path / "t" / "_delta_log"


@pytest.fixture
def lists(monkeypatch):
    """The folders that were listed."""
    found: list[Path] = []
    listed = Path.iterdir

    def noted(folder):
        found.append(folder)
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", noted)
    return found


def test_commits_after_the_checkpoint_are_asked_for_one_by_one(log, lists):
    assert newest_version(log.parent) == 5
    assert not lists


@pytest.mark.parametrize(
    "named", [None, "", "{", "[]", '{"version": null}', '{"version": 99}', '{"size": 3}', '{"version": "x"}']
)
def test_a_log_without_a_checkpoint_that_can_be_used_is_listed(log, lists, named):
    (log / LAST_CHECKPOINT).unlink()
    if named is not None:
        (log / LAST_CHECKPOINT).write_text(named)

    assert newest_version(log.parent) == 5
    assert lists == [log]


def test_a_log_cleaned_up_to_its_checkpoint_or_far_beyond_it_has_the_same_newest(log, lists):
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    assert newest_version(log.parent) == 5
    assert not lists
    for version in range(6, 600):
        (log / f"{version:020d}.json").write_text("{}")

    assert newest_version(log.parent) == 599
    assert lists == [log]


def test_there_is_no_version_where_there_is_no_table(tmp_path):
    assert newest_version(tmp_path) is None
    (tmp_path / "_delta_log").mkdir()
    assert newest_version(tmp_path) is None
