"""The data of a dropped table goes as a whole, whoever is stopped in between, and nobody else's with it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from freshline.commit.purge import FOLDER, finish_purges, purge_table
from freshline.commit.warehouse import Warehouse
from freshline.errors import RequestError, StorageError
from freshline.sources.files.position import FilesPosition
from freshline.testing import Crash
from freshline.values.names import TableName
from freshline.values.receipt import Receipt

SPEND, OTHER = TableName.parse("sales.spend"), TableName.parse("sales.spend__parked")


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def fill(path: Path, name: TableName, **positions: FilesPosition) -> None:
    receipt = Receipt(
        table=name, fingerprint="f", epoch=1, seq=1, mode="batch", strategy="full", reason="", data_timestamp=None,
        positions={TableName.parse(key): position for key, position in positions.items()}, rows_in=1, rows_out=1,
        attempt=datetime.now(UTC).isoformat(),
    )  # fmt: skip
    write_deltalake(
        path,
        pa.table({"k": ["a"]}),
        commit_properties=CommitProperties(custom_metadata={"userMetadata": receipt.to_json()}),
    )


def test_a_table_goes_with_the_rows_that_wait_and_its_neighbours_stay(warehouse):
    for path in (warehouse.path(SPEND), warehouse.pending_lookups(SPEND)):
        fill(path, SPEND)
    fill(warehouse.root / "orders", TableName.parse("orders"))

    found = purge_table(warehouse, SPEND, [])

    assert found == [warehouse.path(SPEND), warehouse.pending_lookups(SPEND)]
    assert sorted(path.name for path in warehouse.root.iterdir()) == [FOLDER, "orders"]
    assert list((warehouse.root / FOLDER).iterdir()) == []


def test_a_declared_table_of_the_name_of_what_stands_beside_it_stays(warehouse):
    fill(warehouse.path(SPEND), SPEND)
    fill(warehouse.path(OTHER), OTHER)

    assert purge_table(warehouse, SPEND, [OTHER]) == [warehouse.path(SPEND)]
    assert warehouse.path(OTHER).is_dir()


@pytest.mark.parametrize("point", ["purge-marked", "purge-moved"])
def test_a_purge_that_was_begun_is_finished_by_the_next_engine_and_not_where_it_is_declared_again(warehouse, point):
    for path in (warehouse.path(SPEND), warehouse.pending_lookups(SPEND)):
        fill(path, SPEND)

    def crash(reached: str) -> None:
        if reached == point:
            raise Crash(point)

    with pytest.raises(Crash):
        purge_table(warehouse, SPEND, [], crash)

    assert finish_purges(warehouse, []) == [SPEND]
    assert list(warehouse.tables()) == []
    fill(warehouse.path(SPEND), SPEND)
    (warehouse.root / FOLDER / f"{SPEND}.purge").touch()
    assert finish_purges(warehouse, [SPEND]) == []
    assert list(warehouse.tables()) == [warehouse.path(SPEND)]
    assert finish_purges(warehouse, []) == []


def test_a_log_table_and_what_is_no_table_of_ours_are_refused(warehouse):
    fill(warehouse.path(SPEND), SPEND, orders=FilesPosition(0, ()))
    foreign = TableName.parse("foreign")
    write_deltalake(warehouse.path(foreign), pa.table({"k": ["a"]}))
    fill(warehouse.path(OTHER), SPEND)

    for name in (SPEND, foreign, OTHER):
        with pytest.raises(RequestError, match="no table that was computed"):
            purge_table(warehouse, name, [])
    assert len(list(warehouse.tables())) == 3


def test_a_warehouse_that_cannot_be_written_is_reported(warehouse):
    fill(warehouse.path(SPEND), SPEND)
    (warehouse.root / FOLDER).write_text("a file in its place")

    with pytest.raises(StorageError, match="cannot be deleted"):
        purge_table(warehouse, SPEND, [])
    assert warehouse.path(SPEND).is_dir()
