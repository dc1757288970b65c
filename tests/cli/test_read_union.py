"""`freshline.read_union` asks the engine by a statement, and hands on rows, types and the token."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

import freshline
from freshline.errors import RequestError
from freshline.plan.union import UnionToken
from freshline.reads.sql import resolve_unions
from freshline.sources.kafka.position import TopicPosition
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from tests.cli.conftest import FakeEngine

POSITION = TopicPosition("c", "it's", "id", {0: 4})
VERSION = TablePosition("a", 1, 1)


def token(name: str) -> UnionToken:
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    return UnionToken(TableName.parse(name), VERSION, VERSION, POSITION, POSITION, 1, moment)


def answer(name: str) -> dict[str, object]:
    return {
        "type": "rows",
        "columns": [["id", "int"], ["amount", "decimal(10,2)"]],
        "rows": ['{"id":1,"amount":2.50}'],
        "truncated": False,
        "tokens": [token(name).as_json()],
    }


def test_rows_types_and_the_token_are_handed_on(shop: Path, fake_engine: FakeEngine) -> None:
    fake_engine.answers = {"sql": [answer("orders")]}
    found = freshline.read_union("orders", columns="id, amount", where="id > 0", project=shop)

    assert found.columns == (("id", "int"), ("amount", "decimal(10,2)"))
    assert found.rows == ({"id": 1, "amount": Decimal("2.50")},)
    assert UnionToken.parse(found.token) == token("orders")
    (asked,) = fake_engine.asked
    assert asked[1]["statement"] == "SELECT id, amount FROM union_read('orders') WHERE id > 0"


def test_a_token_reaches_the_engine_as_it_was(shop: Path, fake_engine: FakeEngine) -> None:
    fake_engine.answers = {"sql": [answer("orders")]}
    freshline.read_union("orders", token=token("orders").as_json(), project=shop)

    statement, (call,) = resolve_unions(fake_engine.asked[0][1]["statement"])
    assert statement == "SELECT * FROM `freshline_union_0` AS `orders`"
    assert (call.table, UnionToken.parse(call.token or "")) == ("orders", token("orders"))


def test_a_text_that_is_no_token_is_refused_before_an_engine_is_asked(shop: Path, fake_engine: FakeEngine) -> None:
    with pytest.raises(RequestError, match="no token of a union read"):
        freshline.read_union("orders", token="x", project=shop)
    assert not fake_engine.running


def test_the_engines_error_is_raised_as_it_was(shop: Path, fake_engine: FakeEngine) -> None:
    error = RequestError("it has no tail").as_json()
    fake_engine.answers = {"sql": [{"type": "done", "state": "FAILED", "error": error}]}
    with pytest.raises(RequestError, match="it has no tail"):
        freshline.read_union("orders", project=shop)
