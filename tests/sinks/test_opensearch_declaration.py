"""CREATE SINK for a search index: what is refused before anything is asked of the system."""

from __future__ import annotations

import pytest

from freshline.errors import DeclarationErrors
from freshline.sinks.opensearch.sink import ElasticsearchSink, OpenSearchSink
from tests.sinks.delivering import declared_sink

SINK = "'connector' = 'opensearch', 'url' = 'https://a:1, https://b/x', 'index' = 'orders'"


def test_a_declaration_has_hosts_and_secrets_as_references(tmp_path):
    spec = declared_sink(tmp_path, SINK + ", 'username' = 'u', 'password' = '${env:P}'")
    assert isinstance(spec.sink, OpenSearchSink)
    assert (spec.sink.password, spec.primary_key) == ("${env:P}", ("id",))
    assert spec.sink.shown == {"url": "https://a:1, https://b/x", "index": "orders"}
    other = declared_sink(tmp_path, SINK.replace("opensearch", "elasticsearch"))
    assert isinstance(other.sink, ElasticsearchSink)


def test_another_mapping_is_another_sink(tmp_path):
    first = declared_sink(tmp_path, SINK)
    second = declared_sink(tmp_path, SINK + """, 'mapping' = '{"note": {"type": "keyword"}}'""")
    assert first.sink is not None
    assert second.sink is not None
    assert first.sink.meaning != second.sink.meaning


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ("'connector' = 'opensearch', 'index' = 'x'", "OPTION_NEEDS", "'url'"),
        ("'connector' = 'opensearch', 'url' = 'http://a'", "OPTION_NEEDS", "'index'"),
        (SINK.replace("https://b/x", "b:9200"), "OPTION_VALUE", "https://host:9200"),
        (SINK.replace("https://b/x", "https://me:hunter2@b"), "OPTION_VALUE", "it has a user"),
        (SINK.replace("https://b/x", "https://b:port"), "OPTION_VALUE", "https://host:9200"),
        (SINK.replace("'orders'", "'Orders'"), "OPTION_VALUE", "lower case"),
        (SINK.replace("'orders'", "'_orders'"), "OPTION_VALUE", "lower case"),
        (SINK.replace("'orders'", "'a*,b'"), "OPTION_VALUE", "lower case"),
        (SINK + ", 'password' = 'hunter2'", "REFERENCE", "a secret"),
        (SINK + ", 'username' = 'me'", "OPTION_NEEDS", "'password'"),
        (SINK + ", 'api-key' = '${env:K}', 'password' = '${env:P}'", "OPTION_NEEDS", "'api-key'"),
        (SINK + ", 'mapping' = '[]'", "OPTION_VALUE", "JSON object"),
        (SINK + """, 'mapping' = '{"other": {"type": "ip"}}'""", "SINK_SCHEMA", "other, which is no column"),
        (SINK + ", 'table' = 'x'", "OPTION_NEEDS", "'jdbc'"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_a_remedy(tmp_path, options, code, sentence):
    with pytest.raises(DeclarationErrors) as caught:
        declared_sink(tmp_path, options)
    (error,) = caught.value.errors
    assert error.rule == code
    assert sentence in str(error)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("columns", "key", "sentence"),
    [
        ("id INT, _id STRING", "id", "_id is of OpenSearch itself"),
        ("id INT, a STRING, `a.b` STRING", "id", "a.b would be within a"),
        ("id INT, `a..b` STRING", "id", "an empty part"),
    ],
)
def test_columns_that_no_document_can_have_are_refused(tmp_path, columns, key, sentence):
    with pytest.raises(DeclarationErrors, match=sentence):
        declared_sink(tmp_path, SINK, columns, key)


@pytest.mark.parametrize(
    ("kind", "is_key", "is_refused"),
    [
        ("DECIMAL(38,18)", False, False),
        ("MAP<STRING,INT>", False, False),
        ("STRUCT<A:INT>", True, True),
        ("INTERVAL DAY TO SECOND", False, True),
        ("GEOMETRY(4326)", False, True),
    ],
)
def test_types_that_no_field_has_are_refused(kind, is_key, is_refused):
    sink = OpenSearchSink(url="http://a", index="x")
    assert (sink.refuses(kind, is_key=is_key) is not None) == is_refused
