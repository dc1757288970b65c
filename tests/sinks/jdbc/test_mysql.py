"""Rows that go out to a table of a real MariaDB: the same promises as in Postgres, and the traps of its own."""

from __future__ import annotations

import random
import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from freshline.errors import (
    DatabaseRefusedError,
    SinkFencedError,
    SinkHistoryError,
    SinkRefusedError,
    SinkRejectedError,
    SinkSchemaError,
)
from freshline.sinks.jdbc.sink import JdbcSink
from freshline.sources.jdbc.connector import Name
from freshline.values.sink import JSON, OnReject
from tests.mariadb import MariadbDatabase
from tests.sinks.delivering import Host, Rows, Sending, position, sink_spec

ORDERS = pa.schema([("id", pa.int32()), ("amount", pa.float64()), ("note", pa.string())])


pytestmark = pytest.mark.seconds


@pytest.fixture
def database(mariadb, monkeypatch):
    made = MariadbDatabase(mariadb)
    monkeypatch.setenv("SHOP_URL", made.url)
    yield made
    made.close()


@pytest.fixture
def send(database, tmp_path):
    """Makes deliveries to the table `orders`."""
    made = []

    def make(*, key=("id",), on_reject=OnReject.FAIL, table="orders"):
        sink = JdbcSink(url="${env:SHOP_URL}", schema=None, table=Name(table, True))
        made.append(Sending(sink_spec(sink, key=key, on_reject=on_reject), Host(tmp_path)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def orders(*rows):
    return pa.Table.from_pylist([dict(zip(ORDERS.names, row, strict=True)) for row in rows], ORDERS)


def there(database, columns="id, amount, note", table="orders", more=""):
    with database.connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table} {more} ORDER BY 1")
        return list(cursor.fetchall())


def test_rows_and_position_come_together_and_changes_follow(send, database):
    out = send()
    assert out.writer.position() is None
    sent = out.whole(orders((1, 10.5, "a"), (2, 5, None)), 1)
    assert (sent.written, sent.deleted) == (2, 0)
    assert out.writer.position() == position(1)
    sent = out.changes(Rows(orders((2, 50, "it's, \"x\"\n\\\0'"), (3, 30, "")), orders((1, 0, None))), 1, 2)
    assert (sent.written, sent.deleted) == (2, 1)
    assert there(database) == [(2, 50.0, "it's, \"x\"\n\\\0'"), (3, 30.0, "")]
    assert out.writer.position() == position(2)
    # All rows: what is equal is not touched, what does not belong goes.
    sent = out.whole(orders((2, 50, "it's, \"x\"\n\\\0'"), (4, 1, "n")), 3)
    assert (sent.written, sent.deleted) == (1, 1)
    assert out.read(ORDERS).to_pylist() == orders((2, 50, "it's, \"x\"\n\\\0'"), (4, 1, "n")).to_pylist()


@pytest.mark.parametrize("point", ["sink-before-commit", "sink-committed"])
def test_a_stop_leaves_all_or_nothing(send, database, point):
    out = send()
    out.whole(orders((1, 10, "a")), 1)
    with out.stopping_at(point):
        out.changes(Rows(orders((2, 20, "b")), orders((1, 10, "a"))), 1, 2)
    done = point == "sink-committed"
    assert out.writer.position() == position(2 if done else 1)
    assert there(database, "id") == ([(2,)] if done else [(1,)])


def test_an_older_version_never_goes_over_a_newer_one(send, database):
    out, zombie = send(), send()
    out.whole(orders((1, 10, "a")), 1)
    zombie.writer.position()
    out.changes(Rows(orders((1, 11, "b"))), 1, 3)
    with pytest.raises(SinkFencedError):
        zombie.changes(Rows(orders((1, 12, "c"))), 1, 2)
    with pytest.raises(SinkHistoryError):
        zombie.whole(orders((1, 12, "c")), 2)
    with pytest.raises(SinkFencedError):
        out.whole(orders((1, 12, "c")), 4, epoch=0)
    with pytest.raises(SinkFencedError):
        out.whole(orders((1, 12, "c")), 4, owner="other 1")
    assert there(database) == [(1, 11.0, "b")]
    # A person takes it over.
    out.whole(orders((9, 12, "c")), 4, owner="other 1", takes_over=True)
    assert there(database) == [(9, 12.0, "c")]


def test_the_position_is_read_again_under_its_lock(send, database):
    """Another writer that wakes up between the look and the transaction finds the newer position."""
    out, zombie = send(), send()
    out.whole(orders((1, 10, "a")), 1)

    class Late(Rows):
        def read_upserts(self):
            yield from super().read_upserts()
            # Staged, and not yet written.
            out.changes(Rows(orders((1, 11, "b"))), 1, 2)

    with pytest.raises(SinkFencedError):
        zombie.changes(Late(orders((1, 66, "late"))), 1, 3)
    assert there(database) == [(1, 11.0, "b")]


def test_texts_of_other_bytes_are_other_keys(send, database):
    schema = pa.schema([("k", pa.string()), ("b", pa.binary()), ("n", pa.int64())])
    keys = ["a", "A", "a ", "\u00e4", "", " ", "a\u0308", "\U0001f600", "x" * 380]
    rows = pa.table([keys, [b""] * len(keys), range(len(keys))], schema=schema)
    out = send(key=("k", "b"))
    assert out.whole(rows, 1).written == len(keys)
    assert sorted(out.read(schema).to_pylist(), key=lambda row: row["n"]) == rows.to_pylist()
    gone = pa.table([["a"], [b""], [0]], schema=schema)
    changed = pa.table([["A", "a"], [b"", b"\0"], [100, 101]], schema=schema)
    sent = out.changes(Rows(changed, gone), 1, 2)
    assert (sent.written, sent.deleted) == (2, 1)
    assert {(row["k"], row["b"], row["n"]) for row in out.read(schema).to_pylist()} == {
        *((key, b"", n) for n, key in enumerate(keys) if key not in ("a", "A")),
        ("A", b"", 100),
        ("a", b"\0", 101),
    }


def test_a_collation_that_takes_other_keys_for_equal_is_refused(send, database):
    database.sql("CREATE TABLE orders (k varchar(20) PRIMARY KEY, n bigint) COLLATE utf8mb4_bin")
    rows = pa.table({"k": ["a", "a "], "n": [1, 2]})
    with pytest.raises(SinkSchemaError, match="utf8mb4_nopad_bin") as failed:
        send(key=("k",)).whole(rows, 1)
    database.sql(str(failed.value).partition("Run there: ")[2].rstrip("."))
    out = send(key=("k",))
    out.whole(rows, 1)
    assert out.read(rows.schema).to_pylist() == rows.to_pylist()


def test_another_unique_than_the_key_changes_no_other_row(send, database):
    database.sql("CREATE TABLE orders (id int PRIMARY KEY, amount double, note varchar(20) UNIQUE)")
    out = send()
    out.whole(orders((1, 1, "a"), (2, 2, "b")), 1)
    with pytest.raises(SinkRejectedError, match="Duplicate entry"):
        out.changes(Rows(orders((3, 3, "a"))), 1, 2)
    assert there(database) == [(1, 1.0, "a"), (2, 2.0, "b")]
    # The rows pass a value on, in whatever order they come.
    out.changes(Rows(orders((1, 1, "b"), (2, 2, "c"), (4, 4, "a"))), 1, 2)
    assert there(database) == [(1, 1.0, "b"), (2, 2.0, "c"), (4, 4.0, "a")]
    aside = send(on_reject=OnReject.QUARANTINE)
    aside.changes(Rows(orders((2, 2, "b"), (5, 5, "n"), (6, 6, "c"))), 2, 3)
    assert there(database) == [(1, 1.0, "b"), (2, 2.0, "c"), (4, 4.0, "a"), (5, 5.0, "n")]
    assert [(each.row, each.code) for each in aside.rejected] == [
        ('{"id": 2, "amount": 2.0, "note": "b"}', "1062"),
        ('{"id": 6, "amount": 6.0, "note": "c"}', "1062"),
    ]


def test_nothing_is_cut_or_rounded_in_silence(send, database):
    database.sql(
        "SET sql_mode = ''",
        "CREATE TABLE orders (id tinyint PRIMARY KEY, amount double CHECK (amount < 100), note varchar(3))",
    )
    rows = orders(
        (1, 1, "abc"), (2, 2, "abcd"), (3, 3, "abc "), (4, 400, "d"), (500, 5, "e"), (6, 6, "\u00e4\u00e4\u00e4")
    )
    with pytest.raises(SinkRejectedError, match="note"):
        send().whole(rows, 1)
    out = send(on_reject=OnReject.QUARANTINE)
    out.whole(rows, 1)
    assert there(database) == [(1, 1.0, "abc"), (6, 6.0, "\u00e4\u00e4\u00e4")]
    assert sorted((each.row.partition(",")[0], each.code) for each in out.rejected) == [
        ('{"id": 2', "1406"),
        ('{"id": 3', "1406"),
        ('{"id": 4', "4025"),
        ('{"id": 500', "1264"),
    ]
    for other, field in (
        ("decimal(10,1)", pa.field("amount", pa.decimal128(10, 2))),
        ("float", pa.field("amount", pa.float64())),
        ("float(7,2)", pa.field("amount", pa.float32())),
        ("datetime", pa.field("amount", pa.timestamp("us"))),
        ("char(10)", pa.field("amount", pa.string())),
        ("timestamp(6) NULL", pa.field("amount", pa.timestamp("us"))),
        ("int", pa.field("amount", pa.string())),
    ):
        database.sql("DROP TABLE IF EXISTS other", f"CREATE TABLE other (id int PRIMARY KEY, amount {other})")
        schema = pa.schema([("id", pa.int32()), field])
        with pytest.raises(SinkSchemaError, match="column amount"):
            send(table="other").whole(schema.empty_table(), 1)


def test_rows_that_are_not_taken_keep_what_the_sink_has_of_their_keys(send, database):
    database.sql("CREATE TABLE orders (id int PRIMARY KEY, amount double, note varchar(3))")
    out = send(on_reject=OnReject.QUARANTINE)
    out.whole(orders((1, 1, "a"), (2, 2, "b"), (3, 3, "c")), 1)
    out.whole(orders((1, 1, "long"), (2, 5, "b")), 2)
    assert there(database) == [(1, 1.0, "a"), (2, 5.0, "b")]
    assert len(out.rejected) == 1


def test_a_row_that_another_table_refers_to_is_not_taken_away(send, database):
    out = send(on_reject=OnReject.QUARANTINE)
    out.whole(orders((1, 1, "a"), (2, 2, "b")), 1)
    database.sql("CREATE TABLE line (id int REFERENCES orders (id))", "INSERT INTO line VALUES (1)")
    sent = out.changes(Rows(orders(), orders((1, 1, "a"), (2, 2, "b"))), 1, 2)
    assert (sent.deleted, there(database, "id")) == (1, [(1,)])
    assert [(each.row, each.code) for each in out.rejected] == [('{"id": 1}', "1451")]


LOCAL = datetime.fromisoformat("2026-03-29 02:30:00.000001")
KINDS = {
    "flag": (pa.bool_(), [True, False, None]),
    "tiny": (pa.int8(), [-128, 127, None]),
    "small": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "whole": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "large": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "real": (pa.float32(), [struct.unpack("f", struct.pack("f", 1.1))[0], 3.4028234663852886e38, None]),
    "double": (pa.float64(), [0.1, 1.7976931348623157e308, 5e-324]),
    "money": (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(-(10**38 - 1)), None]),
    "tenths": (pa.decimal128(38, 38), [Decimal("0." + "9" * 38), Decimal("0E-38"), None]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None],
    ),
    "time": (pa.timestamp("us"), [LOCAL.replace(year=1582), LOCAL, None]),
    "text": (pa.string(), ["\U0001f600'\\%s\n\r\x1a\"", " blanks  ", ""]),
    "bytes": (pa.binary(), [bytes(range(256)), b"", None]),
    "x`\"'; DROP TABLE orders; --%s": (pa.string(), ["a", None, "b"]),
}


def test_names_types_and_values_come_back_as_they_are(send, database):
    schema = pa.schema(
        [
            pa.field("id", pa.int32()),
            *(pa.field(name, kind) for name, (kind, _) in KINDS.items()),
            pa.field("nested", pa.string(), metadata={JSON: b""}),
        ]
    )
    nested = ['{"a": 12345678901234567.891, "b": [null, "\\u00e9"]}', "[]", None]
    rows = pa.table([[1, 2, 3], *(values for _, values in KINDS.values()), nested], schema=schema)
    out = send(table="x`'; -- %s")
    out.whole(rows, 1)
    assert out.read(schema).to_pylist() == rows.to_pylist()
    assert out.whole(rows, 2).written == 0
    kinds = there(database, "COLUMN_NAME, COLUMN_TYPE", "information_schema.COLUMNS", "WHERE TABLE_NAME LIKE 'x%'")
    assert dict(kinds)["moment"] == "datetime(6)"
    assert dict(kinds)["flag"] == "tinyint(1)"
    assert there(database, "JSON_EXTRACT(nested, '$.a')", "`x``'; -- %s`")[-1] == ("12345678901234567.891",)


def test_numbers_of_all_sizes_keep_their_bits(send):
    chance = random.Random(5)
    singles = [struct.unpack("f", chance.randbytes(4))[0] for _ in range(3000)]
    doubles = [struct.unpack("d", chance.randbytes(8))[0] for _ in range(3000)]
    finite = [(s, d) for s, d in zip(singles, doubles, strict=True) if s - s == 0 and d - d == 0]
    schema = pa.schema([("id", pa.int32()), ("s", pa.float32()), ("d", pa.float64())])
    rows = pa.table([range(len(finite)), [s for s, _ in finite], [d for _, d in finite]], schema=schema)
    out = send()
    out.whole(Rows(rows, batch=500), 1)
    assert sorted(out.read(schema).to_pylist(), key=lambda row: row["id"]) == rows.to_pylist()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float64(), float("nan")),
        (pa.float32(), float("inf")),
        (pa.timestamp("us"), 253_402_300_800_000_000),
        (pa.timestamp("us", "UTC"), -62_135_596_800_000_001),
        (pa.date32(), 3_000_000),
        (pa.string(), b"\xff"),
    ],
)
def test_values_that_the_database_has_not_are_rows_that_are_not_taken(send, kind, value):
    values = pa.array([value], pa.binary()).view(pa.string()) if kind == pa.string() else pa.array([value], kind)
    rows = pa.table([pa.array([1]), values], names=["id", "v"])
    with pytest.raises(SinkRejectedError):
        send().whole(rows, 1)
    out = send(on_reject=OnReject.QUARANTINE)
    out.whole(rows, 1)
    assert [each.row.startswith('{"id": 1, "v": ') for each in out.rejected] == [True]
    assert out.read(rows.schema).num_rows == 0


def test_half_a_character_of_utf_16_comes_back_as_it_is(send):
    texts = pa.array([b"a\xed\xa0\x80"], pa.binary())
    rows = pa.table([pa.array([1]), texts.view(pa.string())], names=["id", "v"])
    out = send()
    out.whole(rows, 1)
    found = out.read(rows.schema)["v"].combine_chunks().cast(pa.binary())
    assert found.to_pylist() == texts.to_pylist()


def test_a_row_larger_than_a_packet_is_not_taken_and_others_are(send, database):
    out = send(on_reject=OnReject.QUARANTINE)
    out.whole(orders((1, 1, "x" * 9_000_000), (2, 2, "y" * 17_000_000), (3, 3, "z" * 3_000_000), (4, 4, "z")), 1)
    assert there(database, "id, LENGTH(note)") == [(1, 9_000_000), (3, 3_000_000), (4, 1)]
    assert [each.code for each in out.rejected] == ["1153"]


def test_rows_of_others_other_engines_and_missing_keys_are_refused(send, database):
    database.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, amount double, note text)", "INSERT INTO orders VALUES (7,7,'m')"
    )
    with pytest.raises(SinkSchemaError, match="not written"):
        send().whole(orders((1, 1, "a")), 1)
    assert there(database) == [(7, 7.0, "m")]
    send().whole(orders((1, 1, "a")), 1, takes_over=True)
    assert there(database) == [(1, 1.0, "a")]
    for made, said in (
        ("CREATE TABLE other (id int PRIMARY KEY, amount double, note text) ENGINE = Aria", "InnoDB"),
        ("CREATE VIEW other AS SELECT * FROM orders", "view"),
        ("CREATE TABLE other (id int, amount double, note text)", "PRIMARY KEY or UNIQUE"),
        ("CREATE TABLE other (id int, x int, amount double, note text, PRIMARY KEY (id, x))", "PRIMARY KEY or UNIQUE"),
        ("CREATE TABLE other (id int PRIMARY KEY, amount double, note text, must int NOT NULL)", "column must"),
    ):
        database.sql("DROP TABLE IF EXISTS other", "DROP VIEW IF EXISTS other", made)
        with pytest.raises(SinkSchemaError, match=said):
            send(table="other").whole(orders((1, 1, "a")), 1)


def test_columns_come_and_columns_of_others_stay(send, database):
    database.sql("CREATE TABLE orders (ID int PRIMARY KEY, seen int NOT NULL DEFAULT 5, amount double, note text)")
    out = send()
    out.whole(orders((1, 1, "a")), 1)
    database.sql("UPDATE orders SET seen = 6")
    more = orders((1, 2, "b"), (2, 2, "c")).append_column("more`", pa.array([True, None]))
    out.whole(more, 2)
    assert there(database, "id, amount, note, seen, `more```") == [(1, 2.0, "b", 6, 1), (2, 2.0, "c", 5, None)]
    assert out.read(more.schema).to_pylist() == more.to_pylist()


def test_many_rows_go_in_pieces(send, database):
    number = 250_000
    rows = pa.table({"id": pa.array(range(number), pa.int32()), "v": pa.array(["v"] * number)})
    out = send()
    assert out.whole(rows, 1).written == number
    gone, changed = rows.slice(0, 120_000), rows.slice(120_000).set_column(1, "v", pa.array(["w"] * 130_000))
    sent = out.changes(Rows(changed, gone), 1, 2)
    assert (sent.written, sent.deleted) == (130_000, 120_000)
    assert there(database, "v, COUNT(*)", more="GROUP BY v") == [("w", 130_000)]


def test_a_wrong_password_and_an_address_of_another_kind_are_refused(send, database, monkeypatch):
    out = send()
    monkeypatch.setenv("SHOP_URL", database.url_of("nobody", "hunter2"))
    with pytest.raises(DatabaseRefusedError) as failed:
        out.writer.position()
    assert "hunter2" not in str(failed.value)
    monkeypatch.setenv("SHOP_URL", "oracle://x:hunter2@y/z")
    with pytest.raises(SinkRefusedError, match="mariadb://") as unknown:
        send().writer.position()
    assert "hunter2" not in str(unknown.value)
