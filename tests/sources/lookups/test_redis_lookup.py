"""Hashes and values of JSON asked for the rows of keys, on a real server of Valkey."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from freshline.errors import LookupRefusedError
from freshline.sources.lookups.client import NO_ROW, Answer, AwayError
from freshline.sources.redis.lookup import RedisLookup
from freshline.sources.redis.lookup_client import RedisLookupClient
from tests.valkey import ValkeyServer, running_valkey

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.decimal128(10, 2))])


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with running_valkey() as server:
        yield server


def client_of(url, monkeypatch, schema=COLUMNS, key="c:{id}", primary_key=("id",), **options) -> RedisLookupClient:
    monkeypatch.setenv("CACHE_URL", url)
    connection = RedisLookup(url="${env:CACHE_URL}", key=key, **options)
    spec: Any = SimpleNamespace(connection=connection, primary_key=primary_key, written_at="s.sql:1")
    return RedisLookupClient(spec, SimpleNamespace(root=Path()), schema)


def test_hashes_are_rows_by_their_fields(valkey, monkeypatch):
    valkey.client.hset("c:1", mapping={"name": "A", "n": "1.5", "more": "x"})
    valkey.client.hset("c:2", mapping={"name": "B"})
    valkey.client.hset("c:3", mapping={"n": "1.555"})
    valkey.client.set("c:4", "no hash")
    first, second, unfit, other, missing = client_of(valkey.url, monkeypatch).ask([(n,) for n in range(1, 6)])

    assert first == Answer({"name": "A", "n": Decimal("1.50")})
    assert second == Answer({"name": "B", "n": None})
    assert unfit.failed == "column n is decimal128(10, 2), and the hash has b'1.555'"
    assert "WRONGTYPE" in other.failed
    assert missing == NO_ROW


def test_values_of_json_are_rows_by_their_members(valkey, monkeypatch):
    valkey.client.set("j:1", '{"name": "A", "n": 2}')
    valkey.client.set("j:2", "[1]")
    valkey.client.set("j:3", "{")
    row, no_object, no_json, missing = client_of(valkey.url, monkeypatch, key="j:{id}", value="json").ask(
        [(n,) for n in range(1, 5)]
    )

    assert row == Answer({"name": "A", "n": Decimal("2.00")})
    assert "no object" in no_object.failed
    assert "no JSON" in no_json.failed
    assert missing == NO_ROW


def test_fields_of_every_type_and_keys_of_several_columns(valkey, monkeypatch):
    kinds = {
        "b": (pa.bool_(), "true", True),
        "i": (pa.int16(), "-7", -7),
        "f": (pa.float64(), "0.1", 0.1),
        "d": (pa.date32(), "2026-01-02", date(2026, 1, 2)),
        "t": (pa.timestamp("us", "UTC"), "2026-01-02 03:04:05+00:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        "x": (pa.binary(), "raw", b"raw"),
    }
    valkey.client.hset("k:a b:2026-01-02", mapping={name: text for name, (_, text, _) in kinds.items()})
    schema = pa.schema(
        [("s", pa.string()), ("day", pa.date32()), *((name, kind) for name, (kind, _, _) in kinds.items())]
    )
    client = client_of(valkey.url, monkeypatch, schema, "k:{s}:{DAY}", ("s", "day"))

    (found,) = client.ask([("a b", date(2026, 1, 2))])
    assert found == Answer({name: value for name, (_, _, value) in kinds.items()})
    assert client.ask([("a b", date(2026, 1, 3))]) == [NO_ROW]


def test_a_wrong_password_or_address_is_refused_and_shown_nowhere(valkey, monkeypatch):
    wrong = valkey.url.replace(valkey.password, "a-wrong-password")
    with pytest.raises(LookupRefusedError, match="refuses the connection") as refused:
        client_of(wrong, monkeypatch).ask([(1,)])
    assert "a-wrong-password" not in str(refused.value)
    for url in ("http://h", "redis://:secret-one@h/x", "rediss://:secret-one@h/0?ssl_cert_reqs=none"):
        with pytest.raises(LookupRefusedError, match="option 'url'") as refused:
            client_of(url, monkeypatch)
        assert "secret-one" not in str(refused.value)
    nested = pa.schema([("id", pa.int64()), ("l", pa.list_(pa.int32()))])
    with pytest.raises(LookupRefusedError, match="'value' = 'json'"):
        client_of(valkey.url, monkeypatch, nested)


def test_a_server_that_hangs_restarts_or_is_gone_is_away(monkeypatch):
    with running_valkey() as server:
        server.client.hset("c:1", mapping={"name": "A"})
        client = client_of(server.url, monkeypatch, lookup_timeout=1)
        assert client.ask([(1,)])[0].row is not None
        server.client.execute_command("CLIENT", "PAUSE", "3000")
        with pytest.raises(AwayError, match="takes longer"):
            client.ask([(1,)])
        server.stop()
        with pytest.raises(AwayError, match="does not answer"):
            client.ask([(1,)])
        server.start()
        server.client.hset("c:1", mapping={"name": "B"})

        assert client.ask([(1,)]) == [Answer({"name": "B", "n": None})]
