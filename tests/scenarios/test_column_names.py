"""Columns may have any name that a person can read: blanks, quotes, semicolons and brackets."""

from __future__ import annotations

import pytest

from freshline.engine.reading import open_reader, read_rows
from freshline.errors import DeclarationErrors
from tests.duckdb_views import ask
from tests.scenarios.tables import declare, declare_merge, fill, follow

HOSTILE = '`x"; DROP TABLE y; --`'
NAME = HOSTILE.strip("`")
# The kinds of a change that have the row before it.
GONE = ("delete", "update_preimage")


@pytest.fixture
def orders(lab):
    fill(
        lab,
        "o",
        "id INT, region STRING, note STRING, amount INT",
        "(1, 'n', 'a', 10), (2, 's', 'b', 20)",
        primary_key=["id"],
    )
    return lab


def test_a_table_follows_changes_and_so_do_those_that_read_it(orders):
    declare(orders, f"SELECT id, note AS {HOSTILE}, amount AS `amount (EUR)` FROM o", "(PRIMARY KEY (id))")
    declare(orders, f"SELECT {HOSTILE}, sum(`amount (EUR)`) AS `sum, EUR` FROM t GROUP BY {HOSTILE}", name="u")
    declare(orders, f"SELECT a.id, b.`sum, EUR` FROM t a JOIN u b ON a.{HOSTILE} = b.{HOSTILE}", name="v")
    for change in (
        "INSERT INTO o VALUES (3, 'n', 'b', 5)",
        "UPDATE o SET note = 'c', amount = 7 WHERE id = 1",
        "DELETE FROM o WHERE id = 2",
    ):
        orders.sql(change)
        for name, by in (("t", ("full", "append", "keys")), ("u", ("full", "keys")), ("v", ("full", "keys"))):
            assert orders.refresh(name).strategy in by
            assert not orders.diff(name)
            assert orders.verify(name).equal
    rows = [{"id": 1, NAME: "c", "amount (EUR)": 7}, {"id": 3, NAME: "b", "amount (EUR)": 5}]
    assert orders.rows("t") == rows
    settings = orders.runtime.settings
    assert read_rows("t", project=settings).sort_by("id").to_pylist() == rows
    reader = open_reader("t", "from-version-full", version=1, project=settings)
    gone = [row for portion in reader for row in portion.data.to_pylist() if row.get("_change_type") in GONE]
    assert [(row["id"], row[NAME], row["amount (EUR)"]) for row in gone] == [(1, "a", 10), (2, "b", 20)]


def test_rows_are_clustered_by_such_a_column(orders):
    declare(
        orders,
        f"SELECT id AS `Order ID`, note AS {HOSTILE}, named_struct('a b', region) AS s FROM o",
        f"(PRIMARY KEY (`Order ID`)) CLUSTER BY ({HOSTILE})",
    )
    declare(orders, f"SELECT {HOSTILE}, max(`Order ID`) AS `greatest ID` FROM t GROUP BY {HOSTILE}", name="u")
    for change in ("INSERT INTO o VALUES (3, 'n', 'b', 5)", "UPDATE o SET note = 'c' WHERE id = 1"):
        orders.sql(change)
        for name in ("t", "u"):
            assert orders.refresh(name).error is None
            assert not orders.diff(name)
            assert orders.verify(name).equal
    # By another column the table is written anew.
    declare(
        orders,
        f"SELECT id AS `Order ID`, note AS {HOSTILE}, named_struct('a b', region) AS s FROM o",
        "(PRIMARY KEY (`Order ID`)) CLUSTER BY (`Order ID`)",
    )
    follow(orders, "DELETE FROM o WHERE id = 2")


def test_other_engines_read_such_columns(orders):
    declare(orders, f"SELECT id, note AS {HOSTILE}, named_struct('a b', amount) AS s FROM o", "(PRIMARY KEY (id))")
    follow(orders)
    follow(orders, "UPDATE o SET note = 'c' WHERE id = 1")
    ((names, rows),) = ask("", f"SELECT * FROM delta_scan('{orders.path('t')}') ORDER BY id")
    assert names == ["id", NAME, "s"]
    assert rows == [[1, "c", {"a b": 10}], [2, "b", {"a b": 20}]]


def test_merges_windows_and_lookups_take_such_columns(lab):
    lab.files("e", "`the id` INT, `at` TIMESTAMP, `v;` INT, WATERMARK FOR at AS at - INTERVAL '1' MINUTE")
    fill(lab, "d", "id INT, name STRING", "(1, 'one'), (2, 'two')", primary_key=["id"])
    declare_merge(
        lab, "SELECT `the id`, at, `v;` FROM e", "`the id`", "last_row", sequence="at", tie_breaker="`v;`", name="last"
    )
    declare(
        lab,
        "SELECT window_start, `the id`, sum(`v;`) AS `sum = 1` FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(at), "
        "INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, `the id`",
        "EMIT FINAL",
        name="windows",
    )
    declare(
        lab,
        "SELECT e.`the id`, d.name AS `its name` FROM e LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS d "
        "ON e.`the id` = d.id",
        name="named",
    )
    for number, lines in enumerate(
        (
            [(1, "2026-03-01T00:00:00Z", 1), (2, "2026-03-01T00:01:00Z", 2), (3, "2026-03-01T00:02:00Z", 3)],
            [(1, "2026-03-01T00:05:00Z", 4), (2, "2026-03-01T00:00:30Z", 5), (1, "2026-03-01T00:30:00Z", 6)],
        )
    ):
        lab.land("e", f"{number}.json", [{"the id": key, "at": at, "v;": value} for key, at, value in lines])
        for name in ("last", "windows", "named"):
            assert lab.refresh(name).error is None
            assert lab.verify(name).equal
    assert [row["v;"] for row in lab.rows("last")] == [6, 2, 3]
    assert [(row["the id"], row["sum = 1"]) for row in lab.rows("windows")] == [(1, 5), (2, 7), (3, 3)]
    assert [row["its name"] for row in lab.rows("named")].count("one") == 3


def test_partitions_are_replaced_beside_such_a_column(orders):
    declare(
        orders,
        f"SELECT region, {HOSTILE}, count(*) AS `n;` FROM (SELECT region, note AS {HOSTILE} FROM o) "
        f"GROUP BY region, {HOSTILE}",
        "PARTITIONED BY (region)",
    )
    orders.refresh("t")
    orders.sql("INSERT INTO o VALUES (3, 'n', 'a', 5)")
    orders.refresh("t", partitions=[{"region": "n"}])
    assert orders.rows("t") == [{"region": "n", NAME: "a", "n;": 2}, {"region": "s", NAME: "b", "n;": 1}]
    follow(orders, "UPDATE o SET region = 's' WHERE id = 1")
    follow(orders, "DELETE FROM o WHERE id = 2")


def test_a_column_of_such_a_name_comes_to_a_table_that_is_there(orders):
    declare(orders, "SELECT id, note FROM o", "(PRIMARY KEY (id))")
    declare(orders, "SELECT * FROM t", name="u")
    declare(orders, "SELECT id, note FROM t", name="w")
    for name in ("t", "u", "w"):
        orders.refresh(name)
    orders.create_savepoint("before")
    declare(orders, f"SELECT id, note, amount AS {HOSTILE} FROM o", "(PRIMARY KEY (id))")
    for change in ("INSERT INTO o VALUES (3, 'n', 'b', 5)", "DELETE FROM o WHERE id = 2"):
        orders.sql(change)
        for name in ("t", "u"):
            assert orders.refresh(name).error is None
            assert not orders.diff(name)
            assert orders.verify(name).equal
    # One that does not read the new column follows: its other columns are the same ones.
    follow(orders, name="w", by=("keys", "append"))
    orders.create_savepoint("after")
    orders.restore_savepoint("before")
    assert [row["id"] for row in orders.rows("t")] == [1, 2]
    for name in ("t", "u"):
        assert orders.refresh(name).error is None
        assert not orders.diff(name)
    orders.restore_savepoint("after")
    for name in ("t", "u"):
        assert orders.refresh(name).error is None
        assert not orders.diff(name)


def test_files_have_such_columns_and_rejected_records_too(lab):
    lab.files(
        "o",
        "`Order ID` INT, `amount (EUR)` DECIMAL(10,2), `n;` STRING",
        format="csv",
        header="true",
        primary_key=["`Order ID`"],
    )
    lab.land("o", "a.csv", "Order ID,amount (EUR),n;\n1,2.50,x\n2,oops,y\n3,4.00,z\n")
    declare(lab, "SELECT `Order ID`, `amount (EUR)` AS amount FROM o", "(PRIMARY KEY (`Order ID`))")
    assert lab.refresh("t").error is None
    assert [row["Order ID"] for row in lab.rows("t")] == [1, 3]
    assert len(lab.quarantine("o")) == 1
    lab.land("o", "b.csv", "Order ID,amount (EUR),n;\n3,5.00,w\n4,1.00,v\n")
    lab.refresh("t")
    assert not lab.diff("t")


def test_a_column_of_partitions_and_one_with_a_line_end_are_refused(orders):
    with pytest.raises(DeclarationErrors, match="column `the region` of PARTITIONED BY"):
        declare(orders, "SELECT id, region AS `the region` FROM o", "PARTITIONED BY (`the region`)")
    with pytest.raises(DeclarationErrors, match="a tab or a line end"):
        declare(orders, "SELECT id, region AS `a\tb` FROM o")
