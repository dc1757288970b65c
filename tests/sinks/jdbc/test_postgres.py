"""The work that a real Postgres has with a delivery, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.databases import Database
from tests.sinks.delivering import Host, declared_sink, position, rows_in, send

ROWS = 20_000


@pytest.fixture
def database(postgres, monkeypatch):
    made = Database(postgres)
    monkeypatch.setenv("SHOP_URL", made.url)
    yield made
    made.close()


@pytest.mark.parametrize("on_reject", ["fail", "quarantine"])
def test_few_deleted_rows_are_found_without_reading_the_table(database, tmp_path, on_reject):
    host = Host(tmp_path)
    options = f"'connector' = 'jdbc', 'url' = '${{env:SHOP_URL}}', 'table' = 'orders', 'on-reject' = '{on_reject}'"
    spec = declared_sink(tmp_path, options)
    assert spec.sink is not None
    writer = spec.sink.open(spec, host)
    rows = pa.table({"id": pa.array(range(ROWS), pa.int32()), "note": ["a"] * ROWS})
    send(writer, rows, position(1), whole=True)
    database.sql("ANALYZE orders")
    read = []

    def look():
        asked = "SELECT pg_stat_get_xact_tuples_returned('public.orders'::regclass)"
        read.extend(writer._connection._connection.execute(asked).fetchone())

    host.once["sink-before-commit"] = look
    send(writer, rows.slice(0, 5), position(2), deletes=rows.slice(100, 10))
    (scanned,) = read
    assert scanned < ROWS
    left = rows_in(writer, rows.schema)
    assert len(left) == ROWS - 10
    assert not {row["id"] for row in left} & set(range(100, 110))
    writer.close()
