"""The schemas for editors: valid, complete, right about the examples of the documentation, and strict about names."""

from __future__ import annotations

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from freshline.cli.templates import TEMPLATES, project_files
from freshline.declare.project_settings import KEYS, read_settings
from freshline.declare.schema import settings_schema, yaml_schema
from freshline.declare.yaml_table import COMPONENT, FIELDS, find_tables
from freshline.errors import SettingsError
from freshline.values.alert_settings import ALERT_KEYS, CHANNEL_OPTIONS
from freshline.values.destination_settings import OPENLINEAGE_KEYS, OTEL_KEYS
from freshline.values.options import TABLE_OPTIONS
from freshline.values.registry import merge_options

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "platform" / "docs").glob("*.md"))
SETTINGS = Draft202012Validator(settings_schema())
TABLES = Draft202012Validator(yaml_schema())

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(language: str, marker: str) -> list[str]:
    """The examples of all pages in a language that name something."""
    texts = (page.read_text(encoding="utf-8") for page in DOCS)
    return [code for text in texts for kind, code in FENCE.findall(text) if kind == language and marker in code]


def settings(text: str) -> list[str]:
    """The errors of the schema in the settings of a pyproject.toml."""
    return [error.message for error in SETTINGS.iter_errors(tomllib.loads(text))]


def own(**values: object) -> list[str]:
    return [error.message for error in SETTINGS.iter_errors({"tool": {"freshline": values}})]


def table(**fields: object) -> list[str]:
    entry = {"name": "t", "query": "SELECT 1 AS a", **fields}
    document = {"type": COMPONENT, "attributes": {"tables": [entry]}}
    return [error.message for error in TABLES.iter_errors(document)]


@pytest.mark.parametrize("schema", [settings_schema(), yaml_schema()])
def test_a_schema_is_one(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)


def test_every_setting_is_in_the_schema() -> None:
    found = settings_schema()["properties"]["tool"]["properties"]["freshline"]["properties"]
    inner = found["alerts"]["properties"]
    (channel,) = inner["channels"]["patternProperties"].values()
    channels = {each["if"]["properties"]["type"]["const"]: each["then"]["properties"] for each in channel["allOf"]}

    assert set(found) == {*KEYS, "environments"}
    assert set(inner) == set(ALERT_KEYS)
    assert {kind: set(options) - {"type"} for kind, options in channels.items()} == {
        kind: set(options) for kind, options in CHANNEL_OPTIONS.items()
    }
    assert (set(found["openlineage"]["properties"]), set(found["otel"]["properties"])) == (
        set(OPENLINEAGE_KEYS),
        set(OTEL_KEYS),
    )


def test_every_setting_of_a_catalog_is_in_the_schema_and_others_are_refused() -> None:
    hive = {"type": "hive", "uri": "thrift://metastore:9083"}
    assert own(catalogs={"lake": {**hive, "tls": True, "tls-ca": "ca.pem", "timeout": "5 seconds"}}) == []
    assert own(catalogs={"desk": {"type": "duckdb", "file": "views.sql", "schema": "main"}}) == []
    assert own(catalogs={"other": {"type": "glue", "region": "eu", "retries": 3}}) == []
    assert own(catalogs={"lake": {"type": "hive"}})
    assert own(catalogs={"lake": {**hive, "url": "x"}})
    assert own(catalogs={"a b": hive})


def test_every_field_and_option_of_a_table_is_in_the_schema() -> None:
    tables = yaml_schema()["then"]["properties"]["attributes"]["properties"]["tables"]
    options = tables["items"]["properties"]["options"]["then"]

    assert set(tables["items"]["properties"]) == set(FIELDS)
    assert set(options["properties"]) == {
        *TABLE_OPTIONS,
        *(option.name for option in merge_options() if not option.is_beginning),
    }
    for option in merge_options():
        assert not option.is_beginning or table(options={f"{option.name}x": "y"}) == []


@pytest.mark.parametrize("text", examples("toml", "[tool.freshline"))
def test_the_settings_of_the_documentation_are_accepted(text: str) -> None:
    assert settings(text) == []


def test_the_settings_of_projects_are_accepted() -> None:
    files = [ROOT / "pyproject.toml", *(ROOT / "platform" / "examples").glob("*/pyproject.toml")]
    texts = [file.read_text(encoding="utf-8") for file in files]
    texts += [project_files("shop", template)["pyproject.toml"] for template in TEMPLATES.values()]

    assert len(texts) > len(TEMPLATES) + 3
    assert [settings(text) for text in texts] == [[]] * len(texts)


@pytest.mark.parametrize("text", examples("yaml", COMPONENT))
def test_the_yaml_of_the_documentation_is_accepted(text: str) -> None:
    assert [error.message for error in TABLES.iter_errors(yaml.safe_load(text))] == []


def test_a_misspelt_setting_is_refused_by_the_schema_as_by_the_reader(tmp_path: Path) -> None:
    for key in KEYS:
        wrong = f"{key}s" if f"{key}s" not in KEYS else f"{key}x"
        text = f"[tool.freshline]\n{wrong} = 1\n"
        (tmp_path / "pyproject.toml").write_text(text)

        assert settings(text), wrong
        assert settings(text.replace("]", ".environments.test]")), wrong
        with pytest.raises(SettingsError):
            read_settings(tmp_path, {})


@pytest.mark.parametrize(
    "values",
    [
        {"parallel-refreshes": 0},
        {"parallel-refreshes": True},
        {"dagster-port": 65_536},
        {"dagster-token": "hunter2"},
        {"umask": "777"},
        {"log-format": "xml"},
        {"python-memory": "2 GB"},
        {"declaration-link": "javascript:alert(1)"},
        {"default-freshness": 60},
        {"dagster-read-only": "yes"},
        {"spark-confs": {"spark": {"x": {"y": 1}}}},
        {"environments": {"a b": {}}},
        {"environments": {"test": {"environments": {}}}},
        {"alerts": {"quarantine-share": 0}},
        {"alerts": {"channel": {}}},
        {"alerts": {"channels": {"a": {"type": "pager"}}}},
        {"alerts": {"channels": {"a": {"type": "slack", "urll": "https://example.com/x"}}}},
        {"alerts": {"channels": {"a": {"type": "webhook", "url": "https://example.com/x", "secret": "hunter2"}}}},
        {"otel": {"token": "${env:TOKEN}"}},
        {"openlineage": {"names": "x"}},
    ],
)
def test_a_setting_of_another_form_is_refused(values: dict[str, Any]) -> None:
    assert own(**values)


def test_a_channel_of_a_class_has_options_of_its_own() -> None:
    assert own(alerts={"channels": {"a": {"type": "shop.alerts:Pager", "number": 12}}}) == []


def test_misspelt_names_of_tables_are_refused_by_the_schema_as_by_the_reader() -> None:
    assert table() == []
    for field in FIELDS:
        assert table(**{f"{field}s": "x"}), field
    for option in TABLE_OPTIONS:
        assert table(options={option: "x"}) == []
        assert table(options={f"{option}s": "x"}), option
    assert table(options={"merge": "first_row", "merge.ordr": "at"})
    # A merge of another package has options that only this package knows.
    assert table(options={"merge": "newest", "newest.by": "at"}) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "a.b.c"},
        {"name": "2t"},
        {"query": ""},
        {"mode": "stream"},
        {"primary_key": []},
        {"primary_key": {"a": 1}},
        {"watermark": {"delay": "5 minutes"}},
        {"watermark": {"column": "at", "delays": "5 minutes"}},
        {"constraints": {"a b": "x > 1"}},
        {"constraints": {"a": {"on_violation": "FAIL"}}},
        {"constraints": {"a": {"expect": "x > 1", "on_violation": "CRASH"}}},
        {"options": {"owner": ["a"]}},
        {"options": {"merge": "first_row", "merge.late": "sometimes"}},
    ],
)
def test_a_field_of_another_form_is_refused(fields: dict[str, Any]) -> None:
    assert table(**fields)


def test_a_table_has_a_name_and_a_query() -> None:
    whole = {"type": COMPONENT, "attributes": {"tables": [{"name": "t", "query": "SELECT 1 AS a"}]}}
    for field in ("name", "query"):
        without = copy.deepcopy(whole)
        del without["attributes"]["tables"][0][field]  # type: ignore[index]
        assert list(TABLES.iter_errors(without))


def test_components_of_others_are_theirs() -> None:
    assert list(TABLES.iter_errors({"type": "dagster_dbt.DbtProjectComponent", "attributes": {"tables": 1}})) == []


def test_the_text_that_the_schema_is_asked_about_is_what_the_reader_reads() -> None:
    (text,) = [each for each in examples("yaml", COMPONENT) if "tables:" in each]

    (found,) = find_tables(text, "defs.yaml")
    assert str(found.clauses().name) == yaml.safe_load(text)["attributes"]["tables"][0]["name"]
