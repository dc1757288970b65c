"""Rows in ClickHouse's engine: each state there once, whoever writes and whatever stops in between."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest

from freshline.errors import SinkError, SinkFencedError, SinkRefusedError, SinkRejectedError, SinkSchemaError
from freshline.sinks.clickhouse.writer import ClickHouseWriter
from freshline.sinks.http_client import Patience
from freshline.values.sink import JSON
from tests.lanes import long_but
from tests.servers.clickhouse import PASSWORD
from tests.servers.web import Fault, web_server
from tests.sinks.delivering import SCHEMA, Host, declared_sink, position, rows_in, send, table

pytestmark = pytest.mark.slow

QUICK = Patience(answer=5.0, whole=5.0, first_wait=0.01, longest_wait=0.1)


@pytest.fixture
def sink(clickhouse, tmp_path, monkeypatch):
    """Makes writers of one table; `rows` are those of its view."""
    monkeypatch.setenv("CLICK", PASSWORD)
    database, made = clickhouse.new_database(), []

    def open_writer(more="", *, url=clickhouse.url, patience=QUICK, host=None, password="CLICK", **declared):
        options = f"'connector' = 'clickhouse', 'url' = '{url}', 'table' = '{database}.orders', 'username' = 'default'"
        options += f", 'password' = '${{env:{password}}}'{more}"
        writer = ClickHouseWriter(
            declared_sink(tmp_path, options, **declared), host or Host(tmp_path), patience=patience
        )
        made.append(writer)
        return writer

    def asked(query):
        return [json.loads(line) for line in clickhouse.ask(query, database=database).splitlines()]

    def rows():
        return {row["id"]: row["note"] for row in asked("SELECT id, note FROM orders")}

    def tables():
        return {row["name"] for row in asked(f"SELECT name FROM system.tables WHERE database = '{database}'")}

    yield SimpleNamespace(open=open_writer, ask=asked, rows=rows, tables=tables, database=database)
    for writer in made:
        writer.close()


def test_all_rows_make_a_table_and_changes_go_into_it(sink):
    writer = sink.open()
    assert writer.position() is None
    assert send(writer, table((1, "a"), (2, "b"), (3, None)), position(1), whole=True).delivered.written == 3
    assert sink.rows() == {1: "a", 2: "b", 3: None}
    assert writer.position() == position(1)
    sent = send(writer, table((2, "B"), (4, "d")), position(2), deletes=table((1, "a"), (9, "never there")))
    assert (sent.delivered.written, sent.delivered.deleted) == (2, 2)
    assert rows_in(writer, SCHEMA) == [{"id": 2, "note": "B"}, {"id": 3, "note": None}, {"id": 4, "note": "d"}]
    assert writer.position() == position(2)
    send(writer, table((5, "e")), position(3), whole=True)
    assert sink.rows() == {5: "e"}
    assert sink.tables() == {"orders", "orders__rows_1_3", "freshline_sink"}
    assert writer.position() == position(3)


@pytest.mark.parametrize("point", ["sink-before-commit", "sink-committed"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_stop_around_the_commit_repeats_without_effect(sink, tmp_path, point, whole):
    host = Host(tmp_path)
    writer = sink.open(host=host)
    send(writer, table((1, "a"), (2, "b")), position(1), whole=True)
    with host.stopping_at(point):
        send(writer, table((1, "A"), (3, "c")), position(2), deletes=table((2, "b")), whole=whole)
    after = sink.open()
    finished = point == "sink-committed"
    assert after.position() == (position(2) if finished else position(1, began=None if whole else 2))
    if not finished:
        send(after, table((1, "A"), (3, "c")), position(2, epoch=2), deletes=table((2, "b")))
    assert sink.rows() == {1: "A", 3: "c"}
    assert after.position().table.version == 2
    send(after, table((1, "A"), (3, "c")), position(3, epoch=2), whole=True)
    assert sink.tables() == {"orders", "orders__rows_2_3", "freshline_sink"}


def test_a_writer_that_wakes_up_late_changes_nothing(sink, tmp_path):
    host = Host(tmp_path)
    late = sink.open(host=host)
    send(late, table((1, "a"), (2, "b"), (3, "c")), position(1), whole=True)
    before = late.position()

    def newer_changes():
        newer = sink.open()
        held = newer.position()
        assert held.unfinished is not None
        send(newer, table((1, "newer")), position(3, epoch=2), deletes=table((2, "b")), before=held)

    host.once["sink-before-commit"] = newer_changes
    send(late, table((1, "late"), (2, "late")), position(2), before=before)
    assert sink.rows() == {1: "newer", 3: "c"}
    assert sink.open().position() == position(3, epoch=2)
    with pytest.raises(SinkFencedError, match="epoch 2"):
        send(late, table((1, "late")), position(4), before=position(3))
    host.once["sink-before-commit"] = lambda: send(sink.open(), table((1, "newest")), position(6, epoch=4))
    with pytest.raises(SinkFencedError, match="removed the table"):
        send(late, table((1, "late")), position(5, epoch=3), whole=True)
    assert sink.rows() == {1: "newest", 3: "c"}
    assert sink.tables() == {"orders", "orders__rows_1_1", "freshline_sink"}


def test_values_of_all_types_come_back_as_they_are(sink):
    schema = pa.schema(
        [
            pa.field("k", pa.string()),
            pa.field("x\"'`\\--", pa.int8()),
            pa.field("a.b", pa.int16()),
            pa.field("l", pa.int64()),
            pa.field("d", pa.decimal128(38, 10)),
            pa.field("f", pa.float32()),
            pa.field("g", pa.float64()),
            pa.field("o", pa.bool_()),
            pa.field("c", pa.binary()),
            pa.field("on", pa.date32()),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("n", pa.timestamp("us")),
            pa.field("j", pa.string(), metadata={JSON: b""}),
        ]
    )
    late, early = datetime(2299, 12, 31, 23, 59, 59, 999999, UTC), datetime(1900, 1, 1, 0, 0, 0, 1, UTC)
    rows = [
        ("a", -128, -(2**15), -(2**63), Decimal("1234567890123456789012345678.0123456789"), 0.1, 0.1, True,
         b"\x00\xff", date(1900, 1, 1), late, early.replace(tzinfo=None), '{"a":[1.10,null]}'),
        ("", 1, 2, 2**63 - 1, Decimal("0E-10"), -0.0, float("inf"), False, b"", date(2299, 12, 31), early,
         late.replace(tzinfo=None), "null"),
        (None, *[None] * 12),
    ]  # fmt: skip
    sent = pa.table([pa.array([row[n] for row in rows], field.type) for n, field in enumerate(schema)], schema=schema)
    writer = sink.open(columns="k STRING, note INT", key="k")
    send(writer, sent, position(1), whole=True)
    found = pa.Table.from_batches(list(writer.read(schema)), schema).sort_by("k")
    sent = sent.sort_by("k")
    for name in schema.names:
        assert found[name].to_pylist() == sent[name].to_pylist(), name
    send(writer, sent.slice(0, 0), position(2), deletes=sent)
    assert list(writer.read(schema)) == []


def test_texts_may_be_any_bytes_and_times_outside_are_rows_that_are_not_taken(sink):
    schema = pa.schema([("k", pa.string()), ("on", pa.date32()), ("at", pa.timestamp("us", tz="UTC"))])
    keys = pa.array([b"a\xff", b"b", b"c"], pa.binary()).view(pa.string())
    times = [datetime(2026, 1, 1, tzinfo=UTC), datetime(1899, 12, 31, tzinfo=UTC), None]
    rows = pa.table([keys, [date(2026, 1, 1), None, date(2300, 1, 1)], times], schema=schema)
    writer = sink.open(columns="k STRING, note INT", key="k")
    with pytest.raises(SinkRejectedError, match="OUT_OF_RANGE"):
        send(writer, rows, position(1), whole=True)
    writer = sink.open(", 'on-reject' = 'quarantine'", columns="k STRING, note INT", key="k")
    sent = send(writer, rows, position(1), whole=True)
    assert [json.loads(row.row)["k"] for row in sent.rejected] == ["b", "c"]
    (batch,) = writer.read(schema)
    assert batch["k"].cast(pa.binary()).to_pylist() == [b"a\xff"]
    # A row that was taken before keeps its last state, also among all rows.
    fitting = pa.table([["b", None], [None, None], [times[0], times[0]]], schema=schema)
    send(writer, fitting, position(2))
    worse = pa.table([["b", None, "d"], [None, None, None], [times[1], times[1], None]], schema=schema)
    assert len(send(writer, worse, position(3), whole=True).rejected) == 2
    found = {row["k"]: row["at"] for row in rows_in(writer, schema)}
    assert found == {"b": times[0], None: times[0], "d": None}
    assert sink.tables() == {"orders", "orders__rows_1_3", "freshline_sink"}


@pytest.mark.parametrize("fault", long_but([503, Fault.CUT], [429, 503, *(each for each in Fault if each != "hang")]))
def test_a_server_that_is_away_for_a_while_is_asked_again(sink, clickhouse, fault):
    with web_server(behind=clickhouse.port) as front:
        writer = sink.open(url=front.url)
        # Each request is carried out, and nobody is told.
        front.next(fault, times=1, then_fail=fault is not Fault.CUT_IN_REQUEST)
        front.next(fault, path="INSERT", times=2, then_fail=fault is not Fault.CUT_IN_REQUEST)
        send(writer, table((1, "a")), position(1), whole=True)
        front.next(fault, path="INSERT", times=2, then_fail=fault is not Fault.CUT_IN_REQUEST)
        send(writer, table((2, "b")), position(2))
        assert (sink.rows(), writer.position()) == ({1: "a", 2: "b"}, position(2))
        front.next(503, times=10_000)
        with pytest.raises(SinkError, match="answers 503") as caught:
            writer.position()
        assert caught.value.retry_helps


def test_a_wrong_password_is_refused_and_shown_nowhere(sink, monkeypatch):
    monkeypatch.setenv("WRONG", "hunter3-wrong")
    with pytest.raises(SinkRefusedError, match="Authentication failed") as caught:
        sink.open(password="WRONG").position()
    assert "hunter" not in str(caught.value)
    assert not caught.value.retry_helps


def test_tables_of_others_are_not_touched_and_other_sinks_refused(sink, clickhouse):
    sink.ask("CREATE TABLE orders (id Int32) ENGINE = MergeTree ORDER BY id")
    writer = sink.open()
    for takes_over in (False, True):
        with pytest.raises(SinkSchemaError, match="not of freshline"):
            send(writer, table((1, "a")), position(1), whole=True, takes_over=takes_over)
    sink.ask("DROP TABLE orders")
    send(writer, table((1, "a")), position(9, epoch=7), whole=True)
    with pytest.raises(SinkFencedError, match="belongs to out 1"):
        send(writer, table((1, "b")), position(1, owner="other 2"), whole=True)
    send(writer, table((2, "b")), position(1, owner="other 2"), whole=True, takes_over=True)
    assert (sink.rows(), writer.position()) == ({2: "b"}, position(1, owner="other 2"))
    assert sink.tables() == {"orders", "orders__rows_1_1", "freshline_sink"}


def test_a_table_that_somebody_removed_is_made_again(sink):
    writer = sink.open()
    send(writer, table((1, "a")), position(1), whole=True)
    sink.ask("DROP TABLE orders__rows_1_1")
    assert writer.position() is None
    with pytest.raises(SinkFencedError, match="position is gone"):
        send(writer, table((1, "a")), position(2), before=position(1))
    send(writer, table((1, "a")), position(3), whole=True)
    assert (sink.rows(), writer.position()) == ({1: "a"}, position(3))


def test_two_writers_that_begin_at_once_do_not_both_write(sink):
    first, second = sink.open(), sink.open()
    send(first, table((1, "a")), position(1), whole=True)
    known = first._look()
    second._begin(second._look().notes[0].__class__("changes", position(2, epoch=2), known.shown), second._look())
    note = known.notes[0].__class__("changes", position(2, epoch=3), known.shown)
    with pytest.raises(SinkFencedError, match="at the same time"):
        first._begin(note, known)


def test_many_rows_are_read_in_parts(sink, monkeypatch):
    monkeypatch.setattr("freshline.sinks.clickhouse.writer._READ_ROWS", 1_000)
    writer = sink.open()
    send(writer, table(*[(number, "x") for number in range(5_000)]), position(1), whole=True)
    sizes = [batch.num_rows for batch in writer.read(SCHEMA)]
    assert sum(sizes) == 5_000
    assert max(sizes) < 2_000
