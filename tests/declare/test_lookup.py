"""Sources that are asked by key: their options, and what is refused of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from freshline.errors import DeclarationErrors
from freshline.values.names import TableName

GIVEN = "'connector' = 'http', 'lookup' = 'true', 'url' = 'http://h/{id}'"


def declare(project, options=GIVEN, columns="id INT, name STRING, PRIMARY KEY (id)"):
    project.write("assets/s.sql", f"CREATE SOURCE s ({columns}) WITH ({options});")


def read(project):
    return project.read().spec(TableName.parse("s"))


def test_the_declared_options_stand_in_the_connection(project):
    project.environ["HOST"] = "service:8443"
    declare(
        project,
        "'connector' = 'http', 'lookup' = 'true', 'url' = 'https://${env:HOST}/a/{ID}?full=1', 'row' = '/data/0', "
        "'header.X-Api-Key' = '${file:key}', 'header.Accept-Language' = 'en', 'lookup.concurrency' = '64', "
        "'lookup.timeout' = '3 seconds', 'lookup.rate-limit' = '100', 'lookup.cache-ttl' = '1 hour', "
        "'lookup.on-error' = 'null'",
    )
    spec = read(project)
    asked = spec.connection

    assert spec.is_lookup
    assert not spec.is_log
    assert asked.url == "https://service:8443/a/{ID}?full=1"
    assert asked.headers == {"x-api-key": "${file:key}", "accept-language": "en"}
    assert (asked.lookup_concurrency, asked.lookup_timeout, asked.lookup_rate_limit) == (64, 3, 100)
    assert (asked.lookup_cache_ttl, asked.lookup_on_error, asked.row) == (3600, "null", "/data/0")


@pytest.mark.parametrize(
    ("options", "columns", "rule", "sentence"),
    [
        (GIVEN, "id INT, name STRING", "OPTION_NEEDS", "needs a PRIMARY KEY"),
        (GIVEN, "id DOUBLE, name STRING, PRIMARY KEY (id)", "COLUMN_TYPE", "by which nothing is asked"),
        (GIVEN, "id INT, asked_at TIMESTAMP, PRIMARY KEY (id)", "RESERVED_NAME", "column asked_at"),
        (GIVEN.replace("/{id}", ""), None, "OPTION_NEEDS", "needs {id}"),
        (GIVEN.replace("{id}", "{id}/{other}"), None, "OPTION_VALUE", "{other} is no column"),
        (GIVEN.replace("http://", "ftp://"), None, "OPTION_VALUE", "no address"),
        (GIVEN.replace("h/", "u:p@h/"), None, "OPTION_VALUE", "a user, a password"),
        (GIVEN + ", 'header.Authorization' = 'Bearer abc'", None, "REFERENCE", "is a secret"),
        (GIVEN + ", 'header.X Y' = 'z'", None, "OPTION_VALUE", "the name of a header"),
        (GIVEN + ", 'row' = 'data'", None, "OPTION_VALUE", "a JSON pointer"),
        (GIVEN + ", 'lookup.on-error' = 'ignore'", None, "OPTION_VALUE", "Accepted is fail, null or quarantine"),
        (GIVEN + ", 'format' = 'json'", None, "OPTION_NEEDS", "option 'format' needs connector"),
        (GIVEN + ", 'token' = '${env:T}'", None, "OPTION_NEEDS", "option 'token' needs connector = http"),
        (GIVEN.replace("'true'", "'false'"), None, "OPTION_NEEDS", "'url' needs connector"),
        (GIVEN.replace("'true'", "'yes'"), None, "OPTION_VALUE", "option 'lookup' is 'yes'"),
        (GIVEN.replace("'http',", "'files',"), None, "EXTENSION", "lookup 'files' does not come with freshline"),
        (GIVEN, "id INT, t TIMESTAMP, WATERMARK FOR t AS t, PRIMARY KEY (id)", "WATERMARK", "Remove WATERMARK FOR"),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_rule(project, options, columns, rule, sentence):
    declare(project, options, columns or "id INT, name STRING, PRIMARY KEY (id)")
    with pytest.raises(DeclarationErrors) as refused:
        project.read()

    found = [error for error in refused.value.errors if error.rule == rule and sentence in str(error)]
    assert found, refused.value.errors
    assert "s.sql:" in str(found[0])
    assert "abc" not in str(refused.value.errors)


def test_a_table_where_answers_are_kept_is_refused(project):
    declare(project)
    project.write("assets/s__answer.sql", "CREATE SOURCE s__answer (a INT) WITH ('connector' = 'delta', 'path' = 'x');")
    with pytest.raises(DeclarationErrors, match="would lie where freshline keeps"):
        project.read()


def test_a_declaration_loads_nothing_heavy():
    code = (
        "import sys; from freshline.values.registry import find_lookup; find_lookup('http'); "
        "print([m for m in ('pyspark', 'pyarrow', 'ssl', 'http.client', 'deltalake') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
