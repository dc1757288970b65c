"""CREATE SINK for ClickHouse: what is refused before anything is asked of the system."""

from __future__ import annotations

import pytest

from freshline.errors import DeclarationErrors
from freshline.sinks.clickhouse.sink import ClickHouseSink
from tests.sinks.delivering import declared_sink

SINK = "'connector' = 'clickhouse', 'url' = 'https://a', 'table' = 'shop.orders'"


def test_a_declaration_has_a_view_and_secrets_as_references(tmp_path):
    spec = declared_sink(tmp_path, SINK + ", 'password' = '${env:P}'")
    assert isinstance(spec.sink, ClickHouseSink)
    assert (spec.sink.password, spec.sink.parts) == ("${env:P}", ("shop", "orders"))
    assert spec.sink.shown == {"url": "https://a", "table": "shop.orders"}
    assert ClickHouseSink(url="http://a", table="orders").parts == ("default", "orders")


@pytest.mark.parametrize(
    ("options", "rule", "sentence"),
    [
        ("'connector' = 'clickhouse', 'table' = 'x'", "OPTION_NEEDS", "'url'"),
        ("'connector' = 'clickhouse', 'url' = 'http://a'", "OPTION_NEEDS", "'table'"),
        (SINK.replace("https://a", "clickhouse:9000"), "OPTION_VALUE", "no address"),
        (SINK.replace("https://a", "https://me:hunter2@a"), "OPTION_VALUE", "it has a user"),
        (SINK.replace("shop.orders", "a.b.c"), "OPTION_VALUE", "'table'"),
        (SINK.replace("shop.orders", "x; DROP TABLE y"), "OPTION_VALUE", "'table'"),
        (SINK + ", 'password' = 'hunter2'", "REFERENCE", "a secret"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_a_remedy(tmp_path, options, rule, sentence):
    with pytest.raises(DeclarationErrors) as caught:
        declared_sink(tmp_path, options)
    (error,) = caught.value.errors
    assert error.rule == rule
    assert sentence in str(error)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("kind", "is_key", "is_refused"),
    [("DECIMAL(38,18)", False, False), ("ARRAY<INT>", True, True), ("INTERVAL DAY TO SECOND", False, True)],
)
def test_types_that_no_column_has_are_refused(kind, is_key, is_refused):
    sink = ClickHouseSink(url="http://a", table="x")
    assert (sink.refuses(kind, is_key=is_key) is not None) == is_refused
