"""Tables in a real Hive metastore: entered, changed, renamed and dropped, beside entries that are somebody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from freshline.catalogs.hive.thrift_calls import Calls, Database
from freshline.catalogs.sync import host_of, open_registrar
from freshline.engine.jars import jar_cache, read_lock
from freshline.errors import CatalogError
from tests.catalogs.shop import ODD, ORDERS

pytestmark = pytest.mark.slow

QUERIES = Path(__file__).parent / "spark_that_knows_nothing.py"


@pytest.fixture
def lake(shop, metastore):
    """A project that is entered in a database of its own."""
    shop.database = metastore.new_name()
    shop.settings(settings(metastore.uri, shop.database))
    return shop


def settings(uri, database, more=""):
    return (
        f'[tool.freshline.catalogs.it]\ntype = "hive"\nuri = "{uri}"\ndatabase = "{database}"\n'
        f'database-prefix = "{database}_"\n{more}'
    )


def test_a_table_is_external_and_has_path_columns_and_comments(lake, metastore):
    lake.add(
        "Orders", columns="id BIGINT COMMENT 'it''s', customer STRING, amount DOUBLE", more="COMMENT 'a \"table\"'"
    )

    assert lake.changes() == [f"create {lake.database}.orders"]

    (entry,) = lake.wanted()
    table = metastore.table(lake.database, "orders")
    location = f"file:{entry.path}"
    assert "it's a shop" in location
    assert (table.type, table.storage.location) == ("EXTERNAL_TABLE", location)
    assert table.storage.serde.parameters == {"path": location, "serialization.format": "1"}
    assert {key: table.parameters.get(key) for key in ("EXTERNAL", "spark.sql.sources.provider", "comment")} == {
        "EXTERNAL": "TRUE",
        "spark.sql.sources.provider": "delta",
        "comment": 'a "table"',
    }
    assert table.parameters["freshline_warehouse"] == lake.warehouse_id
    assert table.parameters["freshline_table"] == entry.table_id
    columns = [(column.name, column.type, column.comment) for column in table.storage.columns]
    assert columns == [("id", "bigint", "it's"), ("customer", "string", ""), ("amount", "double", "")]
    assert lake.changes() == []


def test_namespaces_are_databases_and_odd_names_are_names(lake, metastore):
    lake.source("Sales.EU_Orders", columns="k INT")
    nested = pa.array([{"A-b": 1, "c": [2]}], pa.struct([("A-b", pa.int32()), ("c", pa.list_(pa.int64()))]))
    lake.fill(
        "Sales.EU_Orders", pa.table({ODD: nested, "\u00e9.\u00df": ["x"], "d": pa.array([None], pa.decimal128(9, 2))})
    )

    assert lake.changes() == [f"create {lake.database}_sales.eu_orders"]

    columns = metastore.table(f"{lake.database}_sales", "eu_orders").storage.columns
    assert [(column.name, column.type) for column in columns] == [
        (ODD.lower(), "struct<a_b:int,c:array<bigint>>"),
        ("\u00e9.\u00df", "string"),
        ("d", "decimal(9,2)"),
    ]
    assert lake.changes() == []


def test_columns_that_change_their_types_and_order_follow(lake, metastore):
    lake.add("orders")
    lake.sync()
    lake.fill("orders", {"amount": ["a lot"], "id": [{"x": 1}]})

    assert lake.changes() == [f"change {lake.database}.orders"]

    columns = metastore.table(lake.database, "orders").storage.columns
    assert [(column.name, column.type) for column in columns] == [("amount", "string"), ("id", "struct<x:bigint>")]
    assert lake.changes() == []


def test_properties_that_others_gave_to_an_entry_stay_when_it_changes_or_is_renamed(lake, metastore):
    lake.add("orders")
    lake.sync()
    with metastore.client() as calls:
        table = metastore.table(lake.database, "orders")
        table.owner = "ada"
        table.parameters["reviewed"] = "yes"
        calls.alter_table(lake.database, "orders", table)
    lake.fill("orders", {**ORDERS, "more": [1, 2]})
    lake.sync()
    lake.undeclare("orders")
    lake.source("bookings")
    lake.warehouse.root.joinpath("orders").rename(lake.warehouse.root / "bookings")

    assert lake.changes() == [f"rename {lake.database}.orders to {lake.database}.bookings"]

    table = metastore.table(lake.database, "bookings")
    assert (table.owner, table.parameters["reviewed"]) == ("ada", "yes")
    assert table.storage.location.endswith("/bookings")
    assert metastore.tables(lake.database) == ["bookings"]
    assert (lake.warehouse.root / "bookings" / "_delta_log").is_dir()


def test_a_table_that_moves_to_another_namespace_follows(lake, metastore):
    lake.add("orders")
    lake.sync()
    lake.undeclare("orders")
    lake.source("sales.orders")
    (lake.warehouse.root / "sales").mkdir()
    lake.warehouse.root.joinpath("orders").rename(lake.warehouse.root / "sales" / "orders")

    assert lake.changes() == [f"rename {lake.database}.orders to {lake.database}_sales.orders"]

    assert metastore.tables(lake.database) == []
    assert metastore.tables(f"{lake.database}_sales") == ["orders"]
    assert lake.changes() == []


def test_a_dropped_table_leaves_and_its_data_stay(lake, metastore):
    lake.add("orders")
    lake.sync()
    lake.undeclare("orders")

    assert lake.changes() == [f"drop {lake.database}.orders"]

    assert metastore.tables(lake.database) == []
    assert (lake.warehouse.root / "orders" / "_delta_log").is_dir()


def test_entries_of_others_are_never_touched(lake, metastore):
    lake.add("orders")
    lake.add("spend")
    lake.sync()
    with metastore.client() as calls:
        theirs = metastore.table(lake.database, "orders")
        theirs.name, theirs.parameters = "bookings", {"EXTERNAL": "TRUE", "of": "somebody else"}
        calls.create_table(theirs)
        stolen = metastore.table(lake.database, "spend")
        stolen.parameters["freshline_warehouse"] = "another warehouse"
        calls.alter_table(lake.database, "spend", stolen)
    before = [vars(metastore.table(lake.database, name)) for name in ("bookings", "spend")]
    lake.add("bookings")
    lake.fill("spend", {"id": [1]})
    lake.undeclare("orders")

    done = lake.sync()

    assert [str(change) for change in done.changes] == [
        f"drop {lake.database}.orders",
        f"conflict {lake.database}.bookings: somebody else's entry is here",
        f"conflict {lake.database}.spend: somebody else's entry is here",
    ]
    assert not done.ok
    assert str([vars(metastore.table(lake.database, name)) for name in ("bookings", "spend")]) == str(before)
    assert metastore.tables(lake.database) == ["bookings", "spend"]


def test_an_entry_whose_place_somebody_changed_is_set_right(lake, metastore):
    lake.add("orders")
    lake.sync()
    with metastore.client() as calls:
        table = metastore.table(lake.database, "orders")
        table.storage.serde.parameters = {"path": "file:/elsewhere"}
        table.parameters["spark.sql.sources.provider"] = "parquet"
        calls.alter_table(lake.database, "orders", table)

    assert lake.changes() == [f"change {lake.database}.orders"]
    assert lake.changes() == []


def test_a_database_that_is_there_is_used_as_it_is(lake, metastore):
    with metastore.client() as calls:
        calls.create_database(Database(name=lake.database, description="theirs", parameters={"a": "b"}))
    lake.add("orders")

    assert lake.changes() == [f"create {lake.database}.orders"]


def test_entries_for_hive_name_the_handler_of_delta(lake, metastore):
    lake.settings(settings(metastore.uri, lake.database, "hive-handler = true"))
    lake.add("orders")
    lake.sync()

    table = metastore.table(lake.database, "orders")
    assert table.parameters["storage_handler"] == "io.delta.hive.DeltaStorageHandler"
    assert table.storage.serde.library.endswith("ParquetHiveSerDe")
    lake.settings(settings(metastore.uri, lake.database))
    assert lake.changes() == [f"change {lake.database}.orders"]
    assert "storage_handler" not in metastore.table(lake.database, "orders").parameters


def test_hundreds_of_tables_take_one_sync_and_their_check_a_second(lake, metastore):
    path = lake.fill("orders")
    for number in range(250):
        lake.source(f"t{number}")
        target = lake.warehouse.root / f"t{number}" / "_delta_log"
        target.mkdir(parents=True)
        (target / "00000000000000000000.json").write_bytes(
            (path / "_delta_log" / "00000000000000000000.json").read_bytes()
        )

    assert len(lake.changes()) == 250
    wanted = lake.wanted()
    began = time.monotonic()
    assert lake.changes() == []
    assert len(wanted) == 250
    assert time.monotonic() - began < 15


def test_two_syncs_at_once_leave_one_entry_and_no_refusal(lake, metastore):
    lake.add("orders")
    lake.add("gone")
    settings = lake.read_settings()
    registrar = open_registrar(settings.catalogs[0], settings)
    (orders,) = (entry for entry in lake.wanted() if str(entry.name) == "orders")
    with registrar.open(host_of(settings)) as late:
        assert list(late.find(lake.warehouse_id, [registrar.place(orders.name)])) == []
        assert len(lake.changes()) == 2
        # The other sync was first. It is tried again, and the comparison is right then.
        with pytest.raises(CatalogError, match=r"somebody entered .*\.orders in the same moment") as raised:
            late.write(orders, None)
        assert not raised.value.refused
        (gone,) = (each for each in late.find(lake.warehouse_id, []) if each.place.endswith(".gone"))
        lake.undeclare("gone")
        assert lake.changes() == [f"drop {lake.database}.gone"]
        late.drop(gone)

    assert lake.changes() == []
    assert metastore.tables(lake.database) == ["orders"]


# -- a metastore that is away


def test_a_metastore_that_hangs_is_away_after_the_timeout(lake, metastore):
    lake.settings(settings(metastore.uri, lake.database, 'timeout = "1 second"'))
    lake.add("orders")
    began = time.monotonic()

    with metastore.hanging():
        error = lake.sync().error

    assert isinstance(error, CatalogError)
    assert not error.refused
    assert "the metastore does not answer" in str(error)
    assert time.monotonic() - began < 10
    assert lake.changes() == [f"create {lake.database}.orders"]


def test_nobody_at_the_address_is_an_error_that_names_it(lake):
    lake.settings(settings("thrift://127.0.0.1:1", lake.database))
    lake.add("orders")

    error = lake.sync().error

    assert isinstance(error, CatalogError)
    assert "thrift://127.0.0.1:1" in str(error)
    assert "[tool.freshline.catalogs.it]" in str(error)


def test_an_address_behind_a_reference_is_not_shown(lake, monkeypatch):
    monkeypatch.setenv("METASTORE", "thrift://127.0.0.1:1")
    lake.settings(settings("${env:METASTORE}", lake.database))
    lake.add("orders")

    error = lake.sync().error

    assert "the metastore cannot be reached: ${env:METASTORE}: Connection refused." in str(error)


def test_the_second_address_is_taken_where_the_first_is_away(lake, metastore):
    lake.settings(settings(f"thrift://127.0.0.1:1, {metastore.uri}", lake.database))
    lake.add("orders")

    assert lake.changes() == [f"create {lake.database}.orders"]


def test_a_metastore_that_was_killed_has_what_was_entered_and_takes_more(lake, metastore):
    lake.add("orders")
    lake.sync()
    metastore.kill()
    lake.add("spend")
    assert isinstance(lake.sync().error, CatalogError)

    metastore.start()

    assert lake.changes() == [f"create {lake.database}.spend"]
    assert metastore.tables(lake.database) == ["orders", "spend"]


@pytest.mark.parametrize("calls_done", [1, 2, 3])
def test_stopped_between_two_entries_the_next_sync_does_the_rest(lake, metastore, monkeypatch, calls_done):
    for name in ("a", "b", "gone"):
        lake.add(name)
    lake.sync()
    lake.undeclare("gone")
    lake.add("c")
    lake.fill("a", {"id": [{"x": 1}]})
    left = [calls_done]
    whole = Calls._call

    def stopping(self, name, arguments, answer=None):
        if answer is None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
        return whole(self, name, arguments, answer)

    monkeypatch.setattr(Calls, "_call", stopping)
    with pytest.raises(KeyboardInterrupt):
        lake.sync()
    monkeypatch.undo()

    assert lake.sync().ok
    assert lake.changes() == []
    assert metastore.tables(lake.database) == ["a", "b", "c"]


def test_killed_in_the_middle_of_a_sync_the_next_one_does_the_rest(lake, metastore):
    for number in range(40):
        lake.add(f"t{number}")
    database = lake.database
    with metastore.client() as calls:
        calls.create_database(Database(name=database))
    command = [sys.executable, "-m", "freshline.cli.main", "catalog", "sync", "--project", str(lake.root)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    while not metastore.tables(database) and started.poll() is None:
        assert time.monotonic() < deadline
    started.kill()
    started.communicate()
    entered = len(metastore.tables(database))
    assert entered > 0

    left = lake.changes()

    # The metastore may still carry out the call that was under way.
    assert len(left) in (40 - entered, 40 - entered - 1)
    assert len(metastore.tables(database)) == 40
    assert lake.changes() == []


# -- read by others


@pytest.mark.long  # tests/docs/test_catalogs.py does so too
def test_a_spark_that_knows_nothing_of_freshline_reads_tables_by_name(lake, metastore, tmp_path):
    lake.add("Orders")
    lake.add("Sales.Spend", {"k": [1], ODD: ["v"]})
    lake.sync()
    jars = [str(jar_cache() / jar.file_name) for jar in read_lock()]
    queries = [
        f"SELECT * FROM {lake.database}.orders ORDER BY id",
        f"SELECT * FROM {lake.database}_sales.spend",
        f"SHOW TABLES IN {lake.database}",
    ]

    said = subprocess.run(
        [sys.executable, "-I", str(QUERIES), metastore.uri, ",".join(jars), *queries],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if not key.startswith("FRESHLINE")},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert said.returncode == 0, said.stderr[-3000:]
    assert said.stdout.split("\n")[:3] == [
        "[[1, 'ada', 1.5], [2, 'alan', 2.5]]",
        "[[1, 'v']]",
        f"[['{lake.database}', 'orders', False]]",
    ]
