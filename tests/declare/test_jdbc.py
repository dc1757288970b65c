"""Sources of tables that are read by queries, as they are declared."""

from __future__ import annotations

import subprocess
import sys

import pytest

from freshline.sources.databases.format import QueryRows
from freshline.sources.jdbc.connector import Jdbc, Name, Overlap
from freshline.values.names import TableName
from freshline.values.spec import SourceSpec

URL = "'connector' = 'jdbc', 'url' = '${file:secrets/shop}'"
SNAPSHOT = f"{URL}, 'table' = 'public.orders', 'read' = 'snapshot'"
INCREMENTAL = f"{URL}, 'table' = 'orders', 'read' = 'incremental', 'column' = 'at', 'overlap' = '10 minutes'"


def declare(project, options=SNAPSHOT, columns="id INT, v INT, PRIMARY KEY (id)"):
    project.declare("feed.sql", f"CREATE SOURCE feed (\n{columns}\n)\nWITH ({options})")


def read(project):
    source = project.read().spec(TableName(None, "feed"))
    assert isinstance(source, SourceSpec)
    assert isinstance(source.connection, Jdbc)
    return source, source.connection


def test_a_source_has_its_defaults_and_is_a_change_feed(project):
    declare(project)
    source, jdbc = read(project)

    assert jdbc == Jdbc("${file:secrets/shop}", Name("public", False), Name("orders", False), "snapshot")
    assert (source.format, source.is_change_feed, source.unique_key) == (QueryRows(), True, ())
    assert jdbc.shown == {"table": "public.orders", "read": "snapshot"}
    # It is the same when it is read from the cache of declarations.
    assert read(project)[0] == source


def test_every_option_and_every_fact(project):
    declare(
        project,
        f"{URL}, 'table' = '\"Shop\".`Order \"\"Lines``\"`', 'read' = 'incremental', 'column' = '\"At\"', "
        "'overlap' = '1 hour', 'reconcile' = '1 day', 'where' = 'v > 0 AND t <> ''x''', 'accept-database' = "
        "'2026-11-26T12:00:00.000000Z', 'tls.ca' = 'ca.pem', 'tls.certificate' = '/c.pem', 'tls.key' = '/k.pem'",
        "id INT, i TIMESTAMP METADATA FROM 'ingested_at', op STRING METADATA FROM 'op', PRIMARY KEY (id)",
    )
    _, jdbc = read(project)

    assert (jdbc.schema, jdbc.table) == (Name("Shop", True), Name('Order ""Lines`"', True))
    assert (jdbc.column, jdbc.overlap, jdbc.reconcile) == (Name("At", True), Overlap(3600, None), 86_400)
    assert jdbc.where == "v > 0 AND t <> 'x'"
    assert jdbc.accepted_loss == "2026-11-26T12:00:00.000000Z"
    assert jdbc.tls_ca is not None
    assert jdbc.tls_ca.endswith("/ca.pem")


@pytest.mark.parametrize(
    ("written", "overlap"),
    [
        ("0", Overlap(0, 0)),
        ("1000", Overlap(None, 1000)),
        ("0 seconds", Overlap(0, 0)),
        ("1 day", Overlap(86_400, None)),
    ],
)
def test_an_overlap_is_a_number_or_a_length_of_time(project, written, overlap):
    declare(project, INCREMENTAL.replace("10 minutes", written))

    assert read(project)[1].overlap == overlap


def test_by_xmin_there_is_no_overlap(project):
    declare(project, f"{URL}, 'table' = 'orders', 'read' = 'incremental', 'column' = 'xmin'")
    assert read(project)[1].column == Name("xmin", False)
    # A column that is called so is one.
    declare(project, f"{URL}, 'table' = 'orders', 'read' = 'incremental', 'column' = '\"xmin\"', 'overlap' = '0'")
    assert read(project)[1].column == Name("xmin", True)


@pytest.mark.parametrize(
    ("options", "rule", "said"),
    [
        (URL, "OPTION_NEEDS", "needs the option 'table'"),
        (f"{URL}, 'table' = 't'", "OPTION_NEEDS", "needs the option 'read'"),
        (SNAPSHOT.replace("${file:secrets/shop}", "postgresql://u:p@h/d"), "REFERENCE", "is a secret"),
        (SNAPSHOT.replace("'snapshot'", "'all'"), "OPTION_VALUE", "snapshot or incremental"),
        (SNAPSHOT.replace("public.orders", "a.b.c"), "OPTION_VALUE", "schema.table"),
        (SNAPSHOT.replace("public.orders", "orders; DROP TABLE x"), "OPTION_VALUE", "schema.table"),
        (SNAPSHOT + ", 'column' = 'at'", "OPTION_NEEDS", "needs 'read' = 'incremental'"),
        (SNAPSHOT + ", 'reconcile' = '1 day'", "OPTION_NEEDS", "needs 'read' = 'incremental'"),
        (f"{URL}, 'table' = 't', 'read' = 'incremental'", "OPTION_NEEDS", "needs the option 'column'"),
        (INCREMENTAL.replace(", 'overlap' = '10 minutes'", ""), "OPTION_NEEDS", "needs the option 'overlap'"),
        (INCREMENTAL.replace("10 minutes", "much"), "OPTION_VALUE", "not an interval"),
        (INCREMENTAL.replace("10 minutes", "-1"), "OPTION_VALUE", "has no unit"),
        (INCREMENTAL.replace("'at'", "'a, b'"), "OPTION_VALUE", "the name of one column"),
        (INCREMENTAL.replace("'at'", "'xmin'"), "OPTION_NEEDS", "by xmin no row is late"),
        (INCREMENTAL + ", 'reconcile' = '5 seconds'", "OPTION_VALUE", "below 60 seconds"),
        (SNAPSHOT + ", 'accept-database' = 'yes'", "OPTION_VALUE", "what DATABASE_REPLACED shows"),
        (SNAPSHOT + ", 'format' = 'json'", "OPTION_NEEDS", "needs connector = files or kafka"),
        (SNAPSHOT + ", 'deduplicate' = '1 day'", "OPTION_NEEDS", "may send an event again"),
        (SNAPSHOT + ", 'slot' = 's'", "OPTION_NEEDS", "needs connector = postgres"),
    ],
)
def test_a_wrong_declaration_is_refused(project, options, rule, said):
    declare(project, options)
    found = project.errors()

    assert (rule, True) in [(each[0], said in each[2]) for each in found], found


def test_a_key_is_needed_and_constraints_are_of_tables(project):
    declare(project, columns="id INT, CONSTRAINT c EXPECT (id > 0)")

    assert sorted(found for found, _, _ in project.errors()) == ["CHANGE_KEY", "CONSTRAINT"]


def test_declaring_loads_neither_a_driver_nor_spark():
    code = (
        "import sys; from freshline.values.registry import find_connector, find_format; find_connector('jdbc'); "
        "find_format('rows'); assert not {'psycopg', 'pymysql', 'pyspark', 'pyarrow'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
