"""A file of views: DuckDB reads every table by its name, and statements of others stay as they are."""

from __future__ import annotations

import os

import pytest

from freshline.errors import CatalogError
from tests.catalogs.shop import ODD
from tests.duckdb_views import ask

SETTINGS = '[tool.freshline.catalogs.it]\ntype = "duckdb"\nfile = "out/views.sql"\n'


@pytest.fixture
def desk(shop):
    shop.settings(SETTINGS)
    return shop


def text(desk):
    return (desk.root / "out" / "views.sql").read_text(encoding="utf-8")


def rows(desk, query):
    """The rows that DuckDB reads, after it has read the file."""
    ((_, found),) = ask(text(desk), query)
    return found


@pytest.mark.seconds
def test_duckdb_reads_every_table_by_its_name(desk):
    desk.add("orders", more="COMMENT 'it''s \"all\"'")
    desk.add("Sales.Spend", {"k": [1], ODD: ["v"]})

    assert desk.changes() == ["create main.orders", "create sales.spend"]

    orders, spend, comment = ask(
        text(desk),
        "SELECT * FROM orders ORDER BY id",
        "SELECT * FROM sales.spend",
        "SELECT comment FROM duckdb_views() WHERE view_name = 'orders'",
    )
    assert orders[1] == [[1, "ada", 1.5], [2, "alan", 2.5]]
    assert spend == (["k", ODD], [[1, "v"]])
    assert comment[1] == [['it\'s "all"']]


@pytest.mark.seconds
def test_comments_of_columns_are_there_whatever_they_have(desk):
    desk.add("orders", columns="id BIGINT COMMENT 'two\n-- freshline_end\\\\lines''', customer STRING, amount DOUBLE")

    desk.sync()

    said = rows(desk, "SELECT comment FROM duckdb_columns() WHERE column_name = 'id'")
    assert said == [["two\n-- freshline_end\\lines'"]]
    assert desk.changes() == []


def test_a_second_sync_leaves_the_file_alone(desk):
    desk.add("orders")
    desk.sync()
    before = (desk.root / "out" / "views.sql").stat()

    assert desk.changes() == []
    assert (desk.root / "out" / "views.sql").stat() == before


@pytest.mark.seconds
def test_changed_renamed_and_dropped_tables_follow(desk):
    desk.add("orders")
    desk.add("gone")
    desk.sync()
    desk.undeclare("gone")
    desk.undeclare("orders")
    desk.source("bookings")
    desk.warehouse.root.joinpath("orders").rename(desk.warehouse.root / "bookings")

    assert desk.changes() == ["drop main.gone", "rename main.orders to main.bookings"]

    assert rows(desk, "SELECT view_name FROM duckdb_views() WHERE NOT internal") == [["bookings"]]


@pytest.mark.seconds
def test_statements_of_others_stay_byte_for_byte(desk):
    file = desk.root / "out" / "views.sql"
    file.parent.mkdir()
    theirs = 'CREATE VIEW mine AS SELECT 1 AS one;\r\n\n-- a remark \u00e9\nCREATE OR REPLACE TABLE "Spend" (x INT);'
    file.write_bytes(theirs.encode())
    desk.add("orders")
    desk.add("spend")

    done = desk.sync()

    assert [str(each) for each in done.changes] == [
        "create main.orders",
        "conflict main.spend: somebody else's entry is here",
    ]
    assert not done.ok
    assert file.read_bytes().startswith(theirs.encode() + b"\n")
    assert rows(desk, "SELECT one FROM mine, orders") == [[1], [1]]
    desk.undeclare("orders")
    desk.undeclare("spend")
    assert desk.changes() == ["drop main.orders"]
    assert file.read_bytes() == theirs.encode() + b"\n"


def test_two_projects_share_a_file_and_touch_nothing_of_each_other(desk, tmp_path):
    desk.add("orders")
    desk.sync()
    other = type(desk)(tmp_path / "other")
    other.settings(SETTINGS.replace("out/views.sql", str(desk.root / "out" / "views.sql")))
    other.add("orders")
    other.add("spend")

    assert other.changes() == ["create main.spend", "conflict main.orders: somebody else's entry is here"]
    other.undeclare("spend")
    assert other.changes() == ["drop main.spend", "conflict main.orders: somebody else's entry is here"]
    assert desk.changes() == []


def test_a_block_that_somebody_changed_is_written_again(desk):
    desk.add("orders")
    desk.sync()
    before = text(desk)
    (desk.root / "out" / "views.sql").write_text(before.replace("delta_scan", "read_parquet"))

    assert desk.changes() == ["change main.orders"]
    assert text(desk) == before


def test_killed_before_the_file_is_replaced_nothing_has_changed(desk, monkeypatch):
    desk.add("orders")
    desk.sync()
    before = text(desk)
    desk.add("spend")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        desk.sync()
    monkeypatch.undo()

    assert text(desk) == before
    assert [file.name for file in (desk.root / "out").iterdir()] == ["views.sql"]
    assert desk.changes() == ["create main.spend"]


def test_a_link_leads_to_the_file_that_is_replaced_and_its_mode_stays(desk, tmp_path):
    real = tmp_path / "real.sql"
    real.write_text("SELECT 1;\n")
    real.chmod(0o640)
    (desk.root / "out").mkdir()
    (desk.root / "out" / "views.sql").symlink_to(real)
    desk.add("orders")

    desk.sync()

    assert (desk.root / "out" / "views.sql").is_symlink()
    assert "orders" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"-- freshline_warehouse=w freshline_table=t place=main.x\nSELECT", "a block without its last line"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused_and_kept(desk, content, said):
    file = desk.root / "out" / "views.sql"
    file.parent.mkdir()
    file.write_bytes(content)
    desk.add("orders")

    error = desk.sync().error

    assert isinstance(error, CatalogError)
    assert error.refused
    assert said in str(error)
    assert "[tool.freshline.catalogs.it]" in str(error)
    assert file.read_bytes() == content


def test_a_file_that_cannot_be_written_is_an_error_with_its_path(desk):
    (desk.root / "out").write_text("no folder")
    desk.add("orders")

    error = desk.sync().error

    assert isinstance(error, CatalogError)
    assert "the views file out/views.sql cannot be written: " in str(error)


def test_a_dry_run_writes_nothing(desk):
    desk.add("orders")

    assert desk.changes(dry=True) == ["create main.orders"]
    assert not (desk.root / "out" / "views.sql").exists()
