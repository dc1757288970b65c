"""Sources that are posted to, as they are declared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from freshline.errors import DeclarationErrors, RequestError
from freshline.freshness.alter import find_table
from freshline.sources.files.position import FileMark, FilesPosition
from freshline.sources.http.connector import Http
from freshline.sources.http.position import HttpPosition
from freshline.values.names import TableName
from freshline.values.position import position_from_json
from freshline.values.spec import SourceSpec

POSTED = "'connector' = 'http', 'format' = 'json', 'path' = 'posts', 'token' = '${env:TOKEN}'"


def declare(project, options, columns="id INT"):
    project.declare("s.sql", f"CREATE SOURCE s (\n{columns}\n)\nWITH ({options})")


def read(project):
    source = project.read().spec(TableName(None, "s"))
    assert isinstance(source, SourceSpec)
    assert isinstance(source.connection, Http)
    return source, source.connection


def test_it_has_a_folder_of_its_own_below_its_path(project):
    declare(project, POSTED)
    source, http = read(project)

    assert http == Http(str(project.root / "posts"), token="${env:TOKEN}")
    assert (http.settle_seconds, http.follow_links) == (0.0, False)
    assert http.folder_of(TableName("Shop", "Order")) == Path(project.root / "posts" / "shop.order")
    assert http.shown == {"path": str(project.root / "posts")}
    # It is the same when it is read from the cache of declarations.
    assert read(project)[0] == source


def test_a_token_is_no_part_of_its_meaning_and_stays_a_reference(project):
    declare(project, POSTED)
    before, _ = read(project)
    declare(project, POSTED.replace("${env:TOKEN}", "${file:secrets/token}"))
    after, http = read(project)

    assert http.token == "${file:secrets/token}"
    assert after.fingerprint == before.fingerprint


def test_it_says_what_is_left_behind(project):
    declare(project, POSTED)
    with pytest.raises(RequestError, match="its posts stay in"):
        find_table(project.read(), "s")


@pytest.mark.parametrize("name", ["json", "csv", "text"])
def test_formats_of_lines_are_built(project, name):
    declare(project, POSTED.replace("'json'", f"'{name}'"), "text STRING")
    assert read(project)[0].format.name == name


@pytest.mark.parametrize(
    ("options", "rule", "sentence"),
    [
        (POSTED.replace("'token' = '${env:TOKEN}'", "'token' = 'the-token-itself'"), "REFERENCE", "is a secret"),
        (POSTED.replace("'token' = '${env:TOKEN}'", "'token' = 'x${env:TOKEN}'"), "REFERENCE", "is a secret"),
        (POSTED.partition(", 'token'")[0], "OPTION_NEEDS", "needs the option 'token'"),
        (POSTED.replace("'path' = 'posts', ", ""), "OPTION_NEEDS", "needs the option 'path'"),
        (POSTED.replace("'format' = 'json', ", ""), "OPTION_NEEDS", "needs the option 'format'"),
        (POSTED.replace("'json'", "'parquet'"), "NOT_BUILT", "Built is json, csv or text"),
        (POSTED.replace("'json'", "'debezium-json'"), "NOT_BUILT", "is of topics"),
        (POSTED + ", 'settle' = '1 second'", "OPTION_NEEDS", "option 'settle' needs connector = files"),
        (POSTED + ", 'topic' = 't'", "OPTION_NEEDS", "option 'topic' needs connector = kafka"),
        (POSTED.replace("'posts'", "''"), "OPTION_VALUE", "path"),
        (POSTED.replace("'posts'", "'s3://bucket/posts'"), "OPTION_VALUE", "begins with s3:"),
        (POSTED.replace("'http'", "'files'"), "OPTION_NEEDS", "option 'token' needs connector = http"),
    ],
)
def test_a_wrong_option_is_refused_with_its_rule(project, options, rule, sentence):
    declare(project, options)
    with pytest.raises(DeclarationErrors) as refused:
        project.read()

    found = [error for error in refused.value.errors if error.rule == rule and sentence in str(error)]
    assert found, refused.value.errors
    assert "s.sql:" in str(found[0])


def test_posts_do_not_land_in_the_warehouse(project):
    declare(project, POSTED.replace("'posts'", "'.freshline/local/warehouse/posts'"))
    with pytest.raises(DeclarationErrors, match="is in the warehouse"):
        project.read()


def test_its_position_is_another_than_that_of_files():
    position = HttpPosition(3, (FileMark("key-a.json", 5, 7),), ("b",))

    assert position_from_json(position.as_json()) == position
    assert position.as_json()["kind"] == "http"
    assert position != FilesPosition(3, (FileMark("key-a.json", 5, 7),), ("b",))


def test_a_declaration_loads_nothing_heavy():
    code = (
        "import sys, freshline.sources.http.connector, freshline.sources.http.landing, freshline.sources.http.body\n"
        "print([name for name in ('pyspark', 'pyarrow', 'dagster', 'uvicorn', 'starlette') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "[]"
