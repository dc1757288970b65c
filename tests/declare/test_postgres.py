"""Sources of Postgres as they are declared."""

from __future__ import annotations

import subprocess
import sys

import pytest

from freshline.errors import RequestError
from freshline.freshness.alter import find_table
from freshline.sources.databases.format import PgOutput
from freshline.sources.postgres.connector import Postgres
from freshline.values.names import TableName
from freshline.values.spec import SourceSpec

URL = "'connector' = 'postgres', 'url' = '${file:secrets/shop}'"
OPTIONS = f"{URL}, 'table' = 'public.orders', 'slot' = 'freshline_orders'"


def declare(project, options=OPTIONS, columns="id INT, v INT, PRIMARY KEY (id)"):
    project.declare("feed.sql", f"CREATE SOURCE feed (\n{columns}\n)\nWITH ({options})")


def read(project):
    source = project.read().spec(TableName(None, "feed"))
    assert isinstance(source, SourceSpec)
    assert isinstance(source.connection, Postgres)
    return source, source.connection


def test_a_source_has_its_defaults_and_is_a_change_feed(project):
    declare(project)
    source, postgres = read(project)

    assert postgres == Postgres(
        "${file:secrets/shop}", "public", "orders", "freshline_orders", "freshline_orders", most_retained=10 * 1024**3
    )
    assert (source.format, source.is_change_feed, source.unique_key) == (PgOutput(), True, ())
    assert postgres.shown == {
        "table": "public.orders", "slot": "freshline_orders", "publication": "freshline_orders",
    }  # fmt: skip
    # It is the same when it is read from the cache of declarations.
    assert read(project)[0] == source


def test_every_option_and_every_fact(project):
    declare(
        project,
        f"{URL}, 'table' = '\"Shop\".\"Order \"\"Lines\"\"\"', 'slot' = 's', 'publication' = 'p', 'accept-slot' = "
        "'s@0/15D7A10', 'alert.retained-above' = '512 MB', 'tls.ca' = 'ca.pem', 'tls.certificate' = '/c.pem', "
        "'tls.key' = '/k.pem', 'max-record-bytes' = '100', 'history' = '1 day'",
        "id INT, r BIGINT METADATA FROM 'record', c STRING METADATA FROM 'commit', op STRING METADATA FROM 'op', "
        "PRIMARY KEY (id)",
    )
    _, postgres = read(project)

    assert (postgres.schema, postgres.table, postgres.full_name) == ("Shop", 'Order "Lines"', 'Shop.Order "Lines"')
    assert (postgres.publication, postgres.accepted_loss) == ("p", "s@0/15D7A10")
    assert postgres.retained_above == 512 * 1024**2
    assert postgres.tls_ca is not None
    assert postgres.tls_ca.endswith("/ca.pem")
    assert postgres.tls_ca.startswith("/")


@pytest.mark.parametrize(("written", "table"), [("Orders", "orders"), ("shop.o$1", "o$1"), ('"A"', "A")])
def test_names_are_folded_as_the_database_does(project, written, table):
    declare(project, OPTIONS.replace("public.orders", written))

    assert read(project)[1].table == table


@pytest.mark.parametrize(
    ("options", "rule", "said"),
    [
        (URL, "OPTION_NEEDS", "needs the option 'table'"),
        (OPTIONS.replace("${file:secrets/shop}", "postgresql://u:p@h/d"), "REFERENCE", "is a secret"),
        (OPTIONS.replace("freshline_orders", "Orders"), "OPTION_VALUE", "lower-case letters"),
        (OPTIONS.replace("public.orders", "a.b.c"), "OPTION_VALUE", "schema.table"),
        (OPTIONS + ", 'publication' = 'a b'", "OPTION_VALUE", "a lower-case name"),
        (OPTIONS + ", 'accept-slot' = 'freshline_orders'", "OPTION_VALUE", "what SLOT_LOST shows"),
        (OPTIONS + ", 'alert.retained-above' = 'much'", "OPTION_VALUE", "10 GB"),
        (OPTIONS + ", 'format' = 'json'", "OPTION_NEEDS", "needs connector = files or kafka or rabbitmq"),
        (OPTIONS + ", 'format' = 'pgoutput'", "EXTENSION", "There are"),
        (OPTIONS + ", 'change.decimals' = 'text'", "OPTION_NEEDS", "needs connector = files or kafka or rabbitmq"),
        (OPTIONS + ", 'deduplicate' = '1 day'", "OPTION_NEEDS", "may send an event again"),
        (OPTIONS + ", 'topic' = 't'", "OPTION_NEEDS", "needs connector = kafka"),
    ],
)
def test_a_wrong_declaration_is_refused(project, options, rule, said):
    declare(project, options)
    found = project.errors()

    assert [(each[0], said in each[2]) for each in found][:1] == [(rule, True)]


def test_a_key_is_needed_and_constraints_are_of_tables(project):
    declare(project, columns="id INT, CONSTRAINT c EXPECT (id > 0)")

    assert sorted(found for found, _, _ in project.errors()) == ["CHANGE_KEY", "CONSTRAINT"]


def test_it_is_said_what_becomes_of_the_slot(project):
    declare(project)

    with pytest.raises(RequestError, match=r"SELECT pg_drop_replication_slot\('freshline_orders'\)"):
        find_table(project.read(), "feed")


def test_declaring_loads_neither_the_driver_nor_spark():
    code = (
        "import sys; from freshline.values.registry import find_connector, find_format; find_connector('postgres'); "
        "find_format('pgoutput'); assert not {'psycopg', 'pyspark', 'pyarrow', 'sqlalchemy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
