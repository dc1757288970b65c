"""Topics as they are declared: registries, keys with columns, newest rows, and records without a value."""

from __future__ import annotations

import pytest

from freshline.sources.formats.avro import Avro
from freshline.sources.formats.debezium_avro import DebeziumAvro
from freshline.sources.formats.json import Json
from freshline.sources.formats.registry import Registry
from freshline.values.change import Tombstones
from freshline.values.names import TableName
from freshline.values.spec import SourceSpec

URL = ", 'registry.url' = 'https://r:8081'"
KEYED = "id INT, PRIMARY KEY (id)"
UPSERT = ", 'changes' = 'upsert', 'key.format' = 'json'"


def declare(project, options="", columns="id INT, v STRING, PRIMARY KEY (id)", format="json"):  # noqa: A002
    project.declare(
        "s.sql",
        f"CREATE SOURCE s (\n{columns}\n)\nWITH ('connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'h:1', "
        f"'format' = '{format}'{options})",
    )


def declared(project) -> SourceSpec:
    source = project.read().spec(TableName(None, "s"))
    assert isinstance(source, SourceSpec)
    return source


def test_a_topic_of_avro_has_a_registry_and_the_ids_of_schemas(project):
    declare(project, URL, "id INT, n INT METADATA FROM 'schema_id'", "avro")
    source = declared(project)

    assert source.format == Avro(registry=Registry("https://r:8081"))
    assert source.stored_column("n") == "_freshline_schema_id"
    assert list(source.quarantined_metadata) == ["topic", "partition", "offset", "key", "schema_id"]
    # A second reading takes it from what was kept of the first.
    assert declared(project) == source


def test_every_option_of_a_registry(project):
    options = (
        ", 'registry.url' = '${env:R}', 'registry.user' = 'u', 'registry.password' = '${env:P}', "
        "'registry.tls.ca' = 'ca.pem', 'registry.tls.certificate' = 'c.pem', 'registry.tls.key' = 'k.pem', "
        "'registry.unknown-id' = 'quarantine'"
    )
    declare(project, options, format="debezium-avro")
    of = declared(project).format

    assert isinstance(of, DebeziumAvro)
    assert of.registry == Registry("${env:R}", "u", "${env:P}", None, "ca.pem", "c.pem", "k.pem", "quarantine")


def test_keys_and_newest_rows(project):
    declare(
        project, f"{UPSERT}, 'key.columns' = 'ID'", "id INT, v STRING, op STRING METADATA FROM 'op', PRIMARY KEY (id)"
    )
    source = declared(project)

    assert source.key is not None
    assert (source.key.format, source.key.columns) == (Json(), ("id",))
    assert (source.is_change_feed, source.unique_key, source.recognizes_events) == (True, (), False)
    assert source.without_value is Tombstones.DELETE
    assert [column.name for column in source.of_values().columns if column.metadata is None] == ["v"]
    assert declared(project) == source


def test_the_key_of_a_source_need_not_be_a_primary_key(project):
    declare(project, f"{URL}, 'key.format' = 'avro', 'key.columns' = 'v,`id`'", "id INT, v STRING, w INT")
    source = declared(project)

    assert source.key is not None
    assert source.key.format == Avro(registry=Registry("https://r:8081"), is_key=True)
    assert (source.key.columns, source.without_value) == (("v", "id"), Tombstones.QUARANTINE)


def test_an_option_that_is_not_said_changes_no_fingerprint_and_one_that_is_said_does(project):
    found = []
    for options in ("", ", 'tombstones' = 'quarantine'", ", 'tombstones' = 'skip'", ", 'key.format' = 'json'", UPSERT):
        declare(project, options)
        found.append(declared(project).fingerprint)

    assert found[0] == found[1]
    assert len(set(found)) == 4


@pytest.mark.parametrize(
    ("options", "columns", "format", "rule", "said"),
    [
        ("", "id INT", "avro", "OPTION_NEEDS", "needs the option 'registry.url'"),
        ("", "id INT", "protobuf", "OPTION_NEEDS", "needs the option 'registry.url'"),
        ("", KEYED, "debezium-avro", "OPTION_NEEDS", "needs the option 'registry.url'"),
        (URL, "id INT", "json", "OPTION_NEEDS", "needs format = avro or protobuf or debezium-avro"),
        (", 'registry.url' = 'r:8081'", "id INT", "avro", "OPTION_VALUE", "http:// or https:// with a host"),
        (", 'registry.url' = 'https://u:p@r'", "id INT", "avro", "OPTION_VALUE", "without a user"),
        (", 'registry.url' = 'https://${env:R}'", "id INT", "avro", "REFERENCE", "a reference is the whole value"),
        (f"{URL}, 'registry.token' = 'geheim'", "id INT", "avro", "REFERENCE", "is a secret"),
        (f"{URL}, 'registry.user' = 'u'", "id INT", "avro", "OPTION_NEEDS", "needs 'registry.password'"),
        (f"{URL}, 'registry.password' = '${{env:P}}'", "id INT", "avro", "OPTION_NEEDS", "needs 'registry.user'"),
        (f"{URL}, 'registry.tls.key' = 'k'", "id INT", "avro", "OPTION_NEEDS", "needs 'registry.tls.certificate'"),
        (
            f"{URL}, 'registry.user' = 'u', 'registry.password' = '${{env:P}}', 'registry.token' = '${{env:T}}'",
            "id INT", "avro", "OPTION_NEEDS", "the only one of a token and a user",
        ),
        (f"{URL}, 'registry.unknown-id' = 'skip'", "id INT", "avro", "OPTION_VALUE", "fail or quarantine"),
        (f"{URL}, 'change.decimals' = 'text'", KEYED, "debezium-avro", "OPTION_NEEDS", "debezium-json"),
        (", 'key.format' = 'csv'", KEYED, "json", "OPTION_VALUE", "avro, text, protobuf or json-schema"),
        (", 'key.format' = 'json'", "id INT", "json", "OPTION_NEEDS", "'key.columns' or a PRIMARY KEY"),
        (", 'key.format' = 'text'", KEYED, "json", "OPTION_NEEDS", "the key: "),
        (", 'key.format' = 'json'", KEYED, "json", "OPTION_NEEDS", "needs a column that is in the values"),
        (", 'key.columns' = 'id'", "id INT", "json", "OPTION_NEEDS", "needs a 'key.format'"),
        (", 'key.format' = 'json', 'key.columns' = 'x'", "id INT", "json", "OPTION_VALUE", "columns of the record"),
        (", 'key.format' = 'json', 'key.columns' = 'id, ID'", "id INT", "json", "OPTION_VALUE", "each once"),
        (", 'changes' = 'upsert'", KEYED, "json", "OPTION_NEEDS", "has a key alone"),
        (", 'changes' = 'append'", "id INT", "json", "OPTION_VALUE", "Accepted is upsert"),
        (f"{UPSERT}, 'key.columns' = 'id'", "id INT", "json", "CHANGE_KEY", "needs PRIMARY KEY"),
        (f"{UPSERT}, 'key.columns' = 'v'", "id INT, v INT, PRIMARY KEY (id)", "json", "CHANGE_KEY", "is not the key"),
        (UPSERT, "id INT, PRIMARY KEY (id), CONSTRAINT c EXPECT (id > 0)", "json", "CONSTRAINT", "table that reads"),
        (f"{UPSERT}, 'deduplicate' = '1 day'", KEYED, "json", "OPTION_NEEDS", "may send an event again"),
        (UPSERT, KEYED, "debezium-json", "OPTION_NEEDS", "records that are rows"),
        (", 'tombstones' = 'delete'", "id INT", "json", "OPTION_NEEDS", "needs 'changes' = 'upsert'"),
        (", 'tombstones' = 'ignore'", "id INT", "json", "OPTION_VALUE", "quarantine, skip or delete"),
        ("", "id INT, n INT METADATA FROM 'schema_id'", "json", "METADATA", "no METADATA 'schema_id'"),
        ("", "id INT, o STRING METADATA FROM 'op'", "json", "METADATA", "no METADATA 'op'"),
    ],
)  # fmt: skip
def test_an_option_that_does_not_fit_is_refused(project, options, columns, format, rule, said):  # noqa: A002
    declare(project, options, columns, format)
    found = project.errors()

    assert [each for each in found if each[0] == rule and said in each[2]], found


@pytest.mark.parametrize("option", ["'key.format' = 'json'", "'changes' = 'upsert'", "'tombstones' = 'skip'"])
def test_keys_are_of_connectors_that_have_some(project, option):
    project.declare(
        "s.sql",
        "CREATE SOURCE s (id INT, PRIMARY KEY (id)) "
        f"WITH ('connector' = 'files', 'path' = 'l', 'format' = 'json', {option})",
    )

    assert any("whose records have keys" in sentence for _, _, sentence in project.errors())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("'format' = 'avro', 'registry.url' = 'https://r'", "needs records of topics"),
        ("'format' = 'json-schema'", "'format' = 'json-schema' is of topics"),
    ],
)
def test_a_registry_is_of_topics(project, options, said):
    project.declare("s.sql", f"CREATE SOURCE s (id INT) WITH ('connector' = 'files', 'path' = 'l', {options})")

    assert said in project.error()[2]


def test_metadata_of_avro_files_have_no_schema_id(project):
    project.declare(
        "s.sql",
        "CREATE SOURCE s (id INT, n INT METADATA FROM 'schema_id') "
        "WITH ('connector' = 'files', 'path' = 'l', 'format' = 'avro')",
    )

    assert project.error()[0] == "METADATA"
