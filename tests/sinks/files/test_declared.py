"""A sink of files as it is declared: its folder, and declarations that are refused."""

from __future__ import annotations

import pytest

from freshline.sinks.files.sink import FilesSink
from freshline.values.names import TableName
from tests.declared_project import Project


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path / "shop")
    made.settings('warehouse = "store"')
    made.inputs()
    # Without a key: files do without.
    made.declare("t.sql", "CREATE MATERIALIZED TABLE t AS SELECT id, customer, tags FROM orders")
    return made


def declare(project, options, table="t"):
    project.declare("out.sql", f"CREATE SINK out FROM {table} WITH ('connector' = 'files', {options})")


def test_a_folder_is_of_the_project_and_an_address_stays_as_it_is(project):
    for path, meant in (
        ("exports/t", str(project.root / "exports/t")),
        ("/exports/${environment}/t/", "/exports/local/t"),
        ("hdfs://name:8020/exports/a b/", "hdfs://name:8020/exports/a b"),
    ):
        declare(project, f"'path' = '{path}', 'keep' = '7', 'rows-per-file' = '10'")
        sink = project.read().table(TableName.parse("out")).sink
        assert sink == FilesSink(path=meant, keep=7, rows_per_file=10)


@pytest.mark.parametrize(
    ("options", "rule", "said"),
    [
        ("'format' = 'csv'", "OPTION_NEEDS", "'path'"),
        ("'path' = 's3://bucket/t'", "OPTION_VALUE", "hdfs://"),
        ("'path' = 'store/t'", "OPTION_VALUE", "warehouse"),
        ("'path' = 'assets/t.sql'", "OPTION_VALUE", "is a file"),
        ("'path' = 'x', 'format' = 'orc'", "OPTION_VALUE", "format"),
        ("'path' = 'x', 'keep' = '0'", "OPTION_VALUE", "keep"),
        ("'path' = 'x', 'url' = '${env:X}'", "OPTION_NEEDS", "jdbc"),
    ],
)
def test_declarations_without_sense_are_refused(project, options, rule, said):
    declare(project, options)
    found, _, message = project.error()
    assert (found, said in message) == (rule, True), message


def test_one_column_of_csv_is_refused(project):
    project.declare("one.sql", "CREATE MATERIALIZED TABLE one AS SELECT customer FROM orders")
    declare(project, "'path' = 'x', 'format' = 'csv'", "one")
    assert project.error()[0] == "SINK_SCHEMA"
    declare(project, "'path' = 'x'", "one")
    assert project.errors() == []
