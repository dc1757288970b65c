"""Rows as documents of a real OpenSearch: each state there once, whoever writes and whatever stops in between."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from types import SimpleNamespace

import pyarrow as pa
import pytest

from freshline.errors import (
    SinkError,
    SinkFencedError,
    SinkRefusedError,
    SinkRejectedError,
    SinkSchemaError,
)
from freshline.sinks.http_client import Patience
from freshline.sinks.opensearch.bulk import Action
from freshline.sinks.opensearch.writer import OpenSearchWriter
from freshline.values.sink import JSON
from tests.lanes import long_but
from tests.report.alerts.servers import make_certificate
from tests.servers.web import Answer, Fault, web_server
from tests.sinks.delivering import SCHEMA, Host, declared_sink, position, rows_in, send, table

pytestmark = pytest.mark.slow

QUICK = Patience(answer=2.0, whole=3.0, first_wait=0.05, longest_wait=0.2)


@pytest.fixture
def sink(opensearch, tmp_path):
    """Makes writers of one index; `rows` are its documents by their ids, as people search them."""
    index, made = opensearch.new_name(), []

    def open_writer(more="", *, url=opensearch.url, patience=QUICK, host=None, **declared):
        options = f"'connector' = 'opensearch', 'url' = '{url}', 'index' = '{index}'{more}"
        writer = OpenSearchWriter(
            declared_sink(tmp_path, options, **declared), host or Host(tmp_path), patience=patience
        )
        made.append(writer)
        return writer

    def behind():
        return set(opensearch.ask("GET", f"/{index}/_alias")[1])

    def indices():
        return {name for name in opensearch.ask("GET", "/_mapping")[1] if name.startswith(f"{index}-")}

    yield SimpleNamespace(
        index=index, open=open_writer, behind=behind, indices=indices, rows=lambda: opensearch.documents(index)
    )
    for writer in made:
        writer.close()


def test_all_rows_make_an_index_and_changes_go_into_it(sink):
    writer = sink.open()
    assert writer.position() is None
    assert send(writer, table((1, "a"), (2, "b"), (3, None)), position(1), whole=True).delivered.written == 3
    assert sink.rows() == {"1": {"id": 1, "note": "a"}, "2": {"id": 2, "note": "b"}, "3": {"id": 3}}
    assert writer.position() == position(1)

    sent = send(writer, table((2, "B"), (4, "d")), position(2), deletes=table((1, "a"), (9, "never there")))
    assert (sent.delivered.written, sent.delivered.deleted, sent.rejected) == (2, 2, [])
    assert rows_in(writer, SCHEMA) == [{"id": 2, "note": "B"}, {"id": 3, "note": None}, {"id": 4, "note": "d"}]
    assert writer.position() == position(2)

    # A new index takes the place of the old one, which is removed.
    send(writer, table((5, "e")), position(3), whole=True)
    assert sink.rows() == {"5": {"id": 5, "note": "e"}}
    assert sink.indices() == sink.behind() == {f"{sink.index}-1-3"}


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
    assert sink.rows() == {"1": {"id": 1, "note": "A"}, "3": {"id": 3, "note": "c"}}
    assert after.position().table.version == 2
    send(after, table((1, "A"), (3, "c")), position(3, epoch=2), whole=True)
    assert sink.indices() == sink.behind() == {f"{sink.index}-2-3"}


def test_an_attempt_of_the_first_refresh_that_was_stopped_is_begun_again(sink, tmp_path):
    host = Host(tmp_path)
    with host.stopping_at("sink-before-commit"):
        send(sink.open(host=host), table((1, "a"), (2, "gone since")), position(1), whole=True)
    writer = sink.open()
    assert writer.position() is None
    send(writer, table((1, "b")), position(2, epoch=2), whole=True)
    assert sink.rows() == {"1": {"id": 1, "note": "b"}}
    assert sink.indices() == {f"{sink.index}-2-2"}


def test_a_writer_that_wakes_up_late_changes_nothing(sink, tmp_path):
    """Its rows are of older versions, also where they were deleted since. Its position and its index are not taken."""
    late_host = Host(tmp_path)
    late = sink.open(host=late_host)
    send(late, table((1, "a"), (2, "b"), (3, "c")), position(1), whole=True)
    before = late.position()

    def newer_changes():
        newer = sink.open()
        held = newer.position()
        assert held.unfinished is not None
        send(newer, table((1, "newer")), position(3, epoch=2), deletes=table((2, "b")), before=held)

    late_host.once["sink-before-commit"] = newer_changes
    with pytest.raises(SinkFencedError, match="another writer"):
        send(late, table((1, "late")), position(2), deletes=table((2, "b")), before=before)
    expected = {"1": {"id": 1, "note": "newer"}, "3": {"id": 3, "note": "c"}}
    assert sink.rows() == expected
    # Whatever it still sends, it is refused document by document.
    bulk = late.bulk(f"{sink.index}-1-1", position(2))
    for key in ("1", "2"):
        with pytest.raises(SinkFencedError, match="newer version"):
            list(bulk.send([Action(key, '{"id":1,"note":"late"}')]))
    with pytest.raises(SinkFencedError, match="epoch 2"):
        send(late, table((1, "late")), position(4), before=position(3))
    # All rows, sent late.
    late_host.once["sink-before-commit"] = lambda: send(sink.open(), table((1, "newest")), position(6, epoch=4))
    with pytest.raises(SinkFencedError, match="another writer"):
        send(late, table((1, "late")), position(5, epoch=3), whole=True)
    assert sink.rows() == {**expected, "1": {"id": 1, "note": "newest"}}
    assert sink.indices() == sink.behind()
    # Rows for an index that is gone do not make it again.
    with pytest.raises(SinkFencedError, match="gone"):
        list(late.bulk(f"{sink.index}-3-5", position(5)).send([Action("1", "{}")]))
    assert sink.indices() == sink.behind()


def test_rows_that_are_not_taken_are_set_aside_and_keep_their_last_state(sink):
    mapping = """, 'mapping' = '{"note": {"type": "ip"}}'"""
    writer = sink.open(mapping)
    with pytest.raises(SinkRejectedError, match="mapper_parsing_exception"):
        send(writer, table((1, "10.0.0.1"), (2, "no address")), position(1), whole=True)
    assert writer.position() is None
    writer = sink.open(f"{mapping}, 'on-reject' = 'quarantine'")
    sent = send(writer, table((1, "10.0.0.1"), (2, "no address"), (3, "::1")), position(1), whole=True)
    assert (sent.delivered.written, [row.code for row in sent.rejected]) == (2, ["mapper_parsing_exception"])
    assert sent.rejected[0].row == '{"id":2,"note":"no address"}'
    assert "'no address' is not an IP string literal" in sent.rejected[0].message
    sent = send(writer, table((1, "none either"), (4, "10.0.0.4")), position(2))
    assert (sent.delivered.written, len(sent.rejected)) == (1, 1)
    expected = {"1": "10.0.0.1", "3": "::1", "4": "10.0.0.4"}
    assert {key: row["note"] for key, row in sink.rows().items()} == expected
    # A new index has the last state of such a row too.
    sent = send(writer, table((1, "none"), (2, "none"), (3, "::1"), (4, "10.0.0.4")), position(3), whole=True)
    assert (sent.delivered.written, len(sent.rejected)) == (2, 2)
    assert {key: row["note"] for key, row in sink.rows().items()} == expected


def test_keys_are_ids_and_those_that_cannot_be_are_rejected(sink):
    schema = pa.schema([("a", pa.string()), ("b", pa.int32())])
    writer = sink.open(", 'on-reject' = 'quarantine'", columns="a STRING, b INT", key="a")
    keys = ["x", "", "[1]", '[""]', 'q"uo\\te', "\u00e9\n\t/?#%", None, "y" * 512, "z" * 513, "\u00e9" * 257]
    broken = pa.array([b"bad\xff", b"bad\xfe"], pa.binary()).view(pa.string())
    rows = pa.table([pa.chunked_array([pa.array(keys, pa.string()), broken]), [0] * 12], schema=schema)
    sent = send(writer, rows, position(1), whole=True)
    assert [row.code for row in sent.rejected] == ["KEY_TOO_LONG", "KEY_TOO_LONG", "NOT_UTF8", "NOT_UTF8"]
    assert sorted(sink.rows()) == sorted(
        ["x", '[""]', '["[1]"]', '["[\\"\\"]"]', 'q"uo\\te', "\u00e9\n\t/?#%", "[null]", "y" * 512]
    )
    assert {str(row["a"]) for row in rows_in(writer, schema)} == {str(key) for key in keys[:8]}
    sent = send(writer, rows.slice(0, 0), position(2), deletes=rows)
    assert (sent.delivered.deleted, rows_in(writer, schema)) == (8, [])


def test_keys_of_several_columns_are_not_confused(sink):
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    writer = sink.open(columns="a STRING, b STRING", key="a, b")
    rows = [("a", "b,c"), ("a,b", "c"), ('a","b', "c"), (None, "null"), ("null", None), ("", "")]
    send(writer, pa.table([[a for a, _ in rows], [b for _, b in rows]], schema=schema), position(1), whole=True)
    assert len(sink.rows()) == len(rows)
    assert '["a","b,c"]' in sink.rows()


def test_values_of_all_types_come_back_as_they_are(sink):
    schema = pa.schema(
        [
            pa.field("k", pa.string()),
            pa.field("x\"'--", pa.int8()),
            pa.field("a.b", pa.int16()),
            pa.field("l", pa.int64()),
            pa.field("s", pa.string()),
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
    columns = "k STRING, `x\"'--` TINYINT, `a.b` SMALLINT, l BIGINT, s STRING, d DECIMAL(38,10), f FLOAT, "
    columns += "g DOUBLE, o BOOLEAN, c BINARY, on DATE, at TIMESTAMP, n TIMESTAMP_NTZ, j ARRAY<STRING>"
    nested = '{"":[1.10,{"a.b":null}],"big":12345678901234567890.123,"t":"\u00e9\\n"}'
    late, early = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), datetime(1, 1, 1, 0, 0, 0, 1, UTC)
    text = "c" * 9_000 + '"\\\n\u0000\U0001f600'
    rows = [
        ("a", -128, -(2**15), -(2**63), text, Decimal("1234567890123456789012345678.0123456789"), 0.1, 0.1, True,
         b"\x00\xff", date(1, 1, 1), late, early.replace(tzinfo=None), nested),
        ("b", 1, 2, 2**63 - 1, "", Decimal("0E-10"), -0.0, 1e300, False, b"", date(9999, 12, 31), early,
         late.replace(tzinfo=None), "null"),
        ("c", *[None] * 13),
    ]  # fmt: skip
    sent = pa.table([pa.array([row[n] for row in rows], field.type) for n, field in enumerate(schema)], schema=schema)
    writer = sink.open(columns=columns, key="k")
    send(writer, sent, position(1), whole=True)
    found = pa.Table.from_batches(list(writer.read(schema)), schema).sort_by("k")
    for name in schema.names:
        assert found[name].to_pylist() == sent[name].to_pylist(), name
    assert str(found["g"][1].as_py()) == "1e+300"
    assert str(found["f"].to_pylist()[1]) == "-0.0"


def test_numbers_that_no_field_has_are_rows_that_are_not_taken(sink):
    schema = pa.schema([("id", pa.int32()), ("g", pa.float64())])
    writer = sink.open(", 'on-reject' = 'quarantine'", columns="id INT, g DOUBLE")
    rows = pa.table([[1, 2, 3], [1.5, float("nan"), float("-inf")]], schema=schema)
    assert len(send(writer, rows, position(1), whole=True).rejected) == 2
    assert rows_in(writer, schema) == [{"id": 1, "g": 1.5}]


def test_many_rows_are_sent_in_bounded_requests_and_read_in_pages(sink, opensearch):
    with web_server(behind=opensearch.port) as front:
        writer = sink.open(url=front.url)
        rows = table(*[(number, "x" * (100_000 if number < 60 else 10)) for number in range(6_000)])
        assert send(writer, rows, position(1), whole=True).delivered.written == 6_000
        sizes = [len(each.body) for each in front.received if "_bulk" in each.path]
        assert len(sizes) == 4
        assert max(sizes) <= 4 << 20
        assert sum(batch.num_rows for batch in writer.read(SCHEMA)) == 6_000


def test_a_request_that_is_too_large_is_halved_down_to_the_row(sink, opensearch):
    with web_server(behind=opensearch.port) as front:
        writer = sink.open(", 'on-reject' = 'quarantine'", url=front.url)
        # The whole, its first half, and the first row of that.
        front.next(Answer(413, b"too large"), path="_bulk", times=3)
        sent = send(writer, table((1, "a"), (2, "b"), (3, "c"), (4, "d")), position(1), whole=True)
        assert [row.code for row in sent.rejected] == ["TOO_LARGE"]
        assert sorted(sink.rows()) == ["2", "3", "4"]


@pytest.mark.parametrize(
    ("path", "fault"),
    long_but(
        [("_bulk", 429), ("freshline_sink", Fault.CUT), ("_aliases", Fault.CUT_IN_ANSWER), ("_bulk", Fault.HANG)],
        product(("_bulk", "freshline_sink", "_aliases", "_refresh"), (429, 503, *Fault)),
    ),
)
def test_a_system_that_is_away_for_a_while_is_asked_again(sink, opensearch, path, fault):
    with web_server(behind=opensearch.port) as front:
        patience = Patience(answer=0.4 if fault is Fault.HANG else 5.0, whole=20.0, first_wait=0.01, longest_wait=0.1)
        writer = sink.open(url=front.url, patience=patience)
        # The request was carried out, and nobody was told.
        front.next(fault, path=path, times=2, then_fail=fault is not Fault.CUT_IN_REQUEST)
        send(writer, table((1, "a")), position(1), whole=True)
        front.next(fault, path="_bulk", then_fail=True)
        front.next(fault, path="_doc", times=2, then_fail=True)
        send(writer, table((2, "b")), position(2))
        assert len(sink.rows()) == 2
        assert writer.position() == position(2)
        assert sink.indices() == {f"{sink.index}-1-1"}


def test_items_of_a_bulk_that_have_to_wait_are_sent_again_and_only_those(sink, opensearch):
    with web_server(behind=opensearch.port) as front:
        writer = sink.open(url=front.url)
        busy = b'{"errors":true,"items":[{"index":{"status":201}},{"index":{"status":429,"error":{"type":"x"}}}]}'
        front.next(Answer(200, busy), path="_bulk")
        assert send(writer, table((1, "a"), (2, "b")), position(1), whole=True).delivered.written == 2
        bodies = [each.body for each in front.received if "_bulk" in each.path]
        assert [body.count(b"\n") for body in bodies] == [4, 2]
        assert b'"_id":"2"' in bodies[1]
        front.next(Answer(200, b'{"errors":false,"items":[{"index":{"status":200}}]}'), path="_bulk")
        with pytest.raises(SinkError, match="what became of each document"):
            send(writer, table((1, "a"), (2, "b")), position(2))
        assert writer.position().table.version == 1


def test_after_a_bounded_time_it_is_an_error_that_a_retry_can_help(sink, opensearch):
    with web_server(behind=opensearch.port) as front:
        writer = sink.open(url=front.url)
        send(writer, table((1, "a")), position(1), whole=True)
        front.next(503, path="_bulk", times=1_000)
        with pytest.raises(SinkError, match="answers 503") as caught:
            send(writer, table((2, "b")), position(2))
        assert (caught.value.code, caught.value.retry_helps) == ("SINK", True)
        assert writer.position() == position(1, began=2)
    with pytest.raises(SinkError, match="refused") as caught:
        writer.position()
    assert caught.value.retry_helps


def test_the_next_host_is_asked_where_one_is_away(sink, opensearch):
    with web_server(behind=opensearch.port) as front:
        writer = sink.open(url=f"http://127.0.0.1:1, {front.url}")
        send(writer, table((1, "a")), position(1), whole=True)
        assert len(front.received) > 3


def test_passwords_and_certificates_are_checked_and_shown_nowhere(sink, opensearch, tmp_path, monkeypatch):
    certificate, key = make_certificate(tmp_path)
    monkeypatch.setenv("SEARCH", "hunter2-secret")
    monkeypatch.setenv("WRONG", "hunter3-secret")
    more = f", 'username' = 'me', 'password' = '${{env:SEARCH}}', 'tls.ca' = '{certificate}'"
    with web_server(
        behind=opensearch.port, credentials=("me", "hunter2-secret"), certificate=(certificate, key)
    ) as front:
        writer = sink.open(more, url=front.url)
        send(writer, table((1, "a")), position(1), whole=True)
        for wrong, sentence in (
            (more.replace("SEARCH", "WRONG"), "refuses the user or its password"),
            (more.replace("'me'", "'you'"), "refuses the user or its password"),
            (f", 'tls.ca' = '{certificate}'", "refuses the user or its password"),
            (more.partition(", 'tls.ca'")[0], "certificate .* is not accepted"),
        ):
            with pytest.raises(SinkRefusedError, match=sentence) as caught:
                sink.open(wrong, url=front.url).position()
            assert "hunter" not in str(caught.value)
            assert not caught.value.retry_helps
    monkeypatch.delenv("SEARCH")
    with pytest.raises(SinkError, match="no environment variable SEARCH"):
        sink.open(more).position()
    assert "hunter" not in repr(writer.spec)


def test_a_password_alone_is_of_the_first_user_and_a_key_is_sent_as_one(sink, tmp_path, monkeypatch):
    monkeypatch.setenv("SEARCH", "secret")
    with web_server(credentials=("admin", "secret")) as front:
        with pytest.raises(SinkRefusedError, match="does not answer as OpenSearch"):
            sink.open(", 'password' = '${env:SEARCH}'", url=front.url).position()
        options = f"'connector' = 'elasticsearch', 'url' = '{front.url}', 'index' = 'x', 'api-key' = '${{env:SEARCH}}'"
        with pytest.raises(SinkRefusedError, match="refuses the user"):
            OpenSearchWriter(declared_sink(tmp_path, options), Host(tmp_path), patience=QUICK).position()
        assert front.received[-1].headers["Authorization"] == "ApiKey secret"


def test_an_index_of_somebody_else_is_not_touched(sink, opensearch):
    opensearch.ask("PUT", f"/{sink.index}/_doc/7?refresh=true", {"mine": True})
    writer = sink.open()
    with pytest.raises(SinkSchemaError, match="not made for this sink"):
        writer.position()
    with pytest.raises(SinkSchemaError, match="not made for this sink"):
        send(writer, table((1, "a")), position(1), whole=True)
    assert sink.rows() == {"7": {"mine": True}}
    send(writer, table((1, "a")), position(2), whole=True, takes_over=True)
    assert list(sink.rows()) == ["1"]
    # Another sink, and an alias that somebody moves.
    other = sink.open()
    with pytest.raises(SinkFencedError, match="belongs to out 1"):
        send(other, table((1, "b")), position(1, owner="other 2"), whole=True)
    theirs = f"theirs-{sink.index}"
    opensearch.ask("PUT", f"/{theirs}/_doc/8?refresh=true", {"mine": True})
    opensearch.ask("POST", "/_aliases", {"actions": [{"add": {"index": theirs, "alias": sink.index}}]})
    with pytest.raises(SinkSchemaError, match=theirs):
        writer.position()
    with pytest.raises(SinkSchemaError, match=theirs):
        send(writer, table((1, "b")), position(3), whole=True)
    send(other, table((1, "b")), position(4, owner="other 2"), whole=True, takes_over=True)
    assert sink.rows() == {"1": {"id": 1, "note": "b"}}
    assert opensearch.documents(theirs) == {"8": {"mine": True}}


def test_an_index_that_somebody_removed_is_made_again(sink, opensearch):
    writer = sink.open()
    send(writer, table((1, "a")), position(1), whole=True)
    opensearch.ask("DELETE", f"/{sink.index}-1-1")
    assert writer.position() is None
    with pytest.raises(SinkFencedError, match="position is gone"):
        send(writer, table((1, "a")), position(2), before=position(1))
    send(writer, table((1, "a")), position(3), whole=True)
    assert writer.position() == position(3)


def test_changes_computed_before_an_attempt_began_are_refused(sink, tmp_path):
    host = Host(tmp_path)
    writer = sink.open(host=host)
    send(writer, table((1, "a")), position(1), whole=True)
    with host.stopping_at("sink-before-commit"):
        send(writer, table((1, "b")), position(2))
    with pytest.raises(SinkFencedError, match="another attempt"):
        send(writer, table((2, "c")), position(3), before=position(1))


def test_two_writers_at_once_do_not_both_win(sink):
    send(sink.open(), table((1, "a")), position(1), whole=True)
    before, outcomes, ready = position(1), [], threading.Barrier(2, timeout=60)

    def write(epoch, writer):
        ready.wait()
        try:
            send(writer, table((1, f"of {epoch}")), position(2, epoch=epoch), before=before)
            outcomes.append(epoch)
        except SinkFencedError:
            outcomes.append(None)

    threads = [threading.Thread(target=write, args=(epoch, sink.open())) for epoch in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [each for each in outcomes if each is not None]
    assert len(winners) <= 1
    if winners:
        assert sink.rows()["1"]["note"] == f"of {winners[0]}"
