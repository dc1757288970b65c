"""A warehouse that is moved while a write runs: a commit at the old path is not believed, and nothing builds on it."""

from __future__ import annotations

import shutil

import pytest

from freshline.commit.write import append_rows, apply_changes, create_table, overwrite_table, write_and_read_back
from freshline.engine.lock import LOCK, WarehouseLock
from freshline.errors import StorageError
from tests.commit.test_write import receipt
from tests.delta_log import version_of
from tests.lanes import long_but

COLUMNS = "op STRING, k INT, v INT"


def _append(spark, rows, path, of, count):
    append_rows(rows.drop("op"), path, of, count=count)


def _overwrite(spark, rows, path, of, count):
    overwrite_table(rows.drop("op"), path, of, few=count is not None)


def _change(spark, rows, path, of, count):
    apply_changes(spark, rows, path, of, op="op", keys=["k"], unique=True, near=None, count=count)


@pytest.fixture
def held(spark, tmp_path):
    """A warehouse that is locked, with one empty table."""
    warehouse = tmp_path / "warehouse"
    lock = WarehouseLock.acquire(warehouse, project=tmp_path, state=tmp_path)
    create_table(spark, warehouse / "t", spark.createDataFrame([], "k INT, v INT").schema, history_seconds=86400)
    yield lock
    lock.release()


def rows(spark):
    return spark.createDataFrame([("I", 1, 1), ("I", 2, 1)], COLUMNS)


def put_back(warehouse, away):
    shutil.rmtree(warehouse, ignore_errors=True)
    away.rename(warehouse)


def require_usual_commits(spark, held, path, write, count):
    """The table goes on as if nothing had been written."""
    assert version_of(path) == 0
    for number in (1, 2):
        of = receipt(number + 1)
        committed = write_and_read_back(
            lambda: write(spark, rows(spark), path, of, count),  # noqa: B023 - called at once
            path,
            of,
            held.require_in_place,
        )
        assert committed is not None
        assert committed.version == version_of(path) == number
    stored = spark.read.format("delta").load(str(path))
    assert stored.count() == (4 if write is _append else 2)


@pytest.mark.parametrize(
    ("write", "count"),
    long_but([(_change, None)], [(write, count) for write in (_append, _overwrite, _change) for count in (None, 2)]),
)
def test_a_move_while_rows_are_computed_fails_the_write(spark, held, tmp_path, write, count):
    warehouse, away, path = tmp_path / "warehouse", tmp_path / "away", tmp_path / "warehouse" / "t"

    def move(batches):
        for batch in batches:
            if warehouse.exists() and not away.exists():
                warehouse.rename(away)
            yield batch

    found = rows(spark)
    moving = found.repartition(1).mapInArrow(move, found.schema)
    of = receipt(1)

    with pytest.raises(StorageError, match="not at its path any more"):
        write_and_read_back(lambda: write(spark, moving, path, of, count), path, of, held.require_in_place)

    assert (away / "t" / "_delta_log").exists()
    assert not list(warehouse.rglob("*.json"))
    put_back(warehouse, away)
    require_usual_commits(spark, held, path, write, count)


@pytest.mark.parametrize(
    ("write", "count"),
    long_but([(_append, 2)], [(write, count) for write in (_append, _overwrite, _change) for count in (None, 2)]),
)
def test_a_commit_that_was_on_its_way_is_not_believed(spark, held, tmp_path, write, count):
    # delta-rs makes missing folders, so a move between its last check and its commit leaves the commit alone at the old
    # path. That instant is short, so here the rest of the table is removed after the commit instead.
    warehouse, away, path = tmp_path / "warehouse", tmp_path / "away", tmp_path / "warehouse" / "t"
    of = receipt(1)

    def write_alone():
        warehouse.rename(away)
        shutil.copytree(away, warehouse, ignore=shutil.ignore_patterns(LOCK))
        write(spark, rows(spark), path, of, count)
        (path / "_delta_log" / f"{0:020}.json").unlink()

    with pytest.raises(StorageError, match="not at its path any more"):
        write_and_read_back(write_alone, path, of, held.require_in_place)

    assert (path / "_delta_log" / f"{1:020}.json").exists()
    put_back(warehouse, away)
    require_usual_commits(spark, held, path, write, count)
