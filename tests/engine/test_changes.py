"""Tables are followed by HTTP: every change once, from exactly where the client was, by those who have the token."""

from __future__ import annotations

import json
import math
import random
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from freshline.engine import changes as following
from freshline.engine.changes import FollowLimits
from freshline.engine.reading import consumers, open_reader
from freshline.reads.parts import Limits, change_parts
from freshline.values.settings import Settings
from tests.engine.following import TOKEN, Event, Row, Stream, Tables, applied, folder_of, open_tables, row

# A server is started.
pytestmark = pytest.mark.seconds

SMALL = Limits(rows_of_part=3, rows_in_memory=5)


@pytest.fixture
def followed(settings: Settings) -> Settings:
    return replace(settings, changes_token="${env:FOLLOW}")


@pytest.fixture
def tables(followed: Settings) -> Iterator[Tables]:
    with open_tables(followed) as opened:
        opened.create()
        opened.create("plain")
        yield opened


def wait_until(holds, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


# -- the events


def test_each_version_is_an_event_with_the_rows_of_its_keys_before_and_after(tables: Tables):
    with tables.follow() as stream:
        tables.add(row(1), row(2))
        tables.update("id = 2", n="5")
        tables.delete("id = 1")
        first, second, third = stream.take(3)

    assert (first.kind, first.data["version"]) == ("changes", 1)
    assert first.data == {
        "table": "keyed", "version": 1, "part": 0, "last": True,
        "inserts": [row(1), row(2)], "updates": [], "deletes": [],
    }  # fmt: skip
    assert (second.data["inserts"], second.data["deletes"]) == ([], [])
    assert second.data["updates"] == [{"before": row(2), "after": row(2, n=5)}]
    assert third.data["deletes"] == [row(1)]
    assert len({first.id, second.id, third.id}) == 3


def test_without_a_key_rows_come_and_go(tables: Tables):
    tables.add(row(1), row(1), table="plain")
    with tables.follow("plain") as stream:
        tables.update("id = 1", table="plain", n="5")
        (event,) = stream.take(1)

    assert event.data["updates"] == []
    assert (event.data["deletes"], event.data["inserts"]) == ([row(1), row(1)], [row(1, n=5), row(1, n=5)])


def test_a_rewrite_that_changes_one_row_is_one_update_and_one_that_changes_none_is_no_event(tables: Tables):
    tables.add(row(1), row(2), row(3))
    with tables.follow() as stream:
        tables.add(row(3), row(2, n=7), row(1), mode="overwrite")
        tables.add(row(1), row(2, n=7), row(3), mode="overwrite")
        DeltaTable(tables.path()).optimize.compact()
        tables.delete("id = 3")
        first, second = stream.take(2)

    assert first.data["updates"] == [{"before": row(2), "after": row(2, n=7)}]
    assert (first.data["inserts"], first.data["deletes"]) == ([], [])
    assert (second.data["deletes"], second.data["inserts"], second.data["updates"]) == ([row(3)], [], [])


def test_from_the_beginning_the_rows_come_first_after_a_reset(tables: Tables):
    tables.add(row(1), row(2))
    tables.delete("id = 1")
    with tables.follow(from_="beginning") as stream:
        reset, rows = stream.take(2)
        tables.add(row(3))
        (later,) = stream.take(1)

    assert (reset.kind, reset.data) == ("reset", {"table": "keyed", "version": 2})
    assert applied([reset, rows, later]) == tables.rows() == [row(2), row(3)]


def test_an_empty_table_has_an_event_too_from_which_one_goes_on(tables: Tables):
    with tables.follow(from_="beginning") as stream:
        events = stream.take(2)
    tables.add(row(1))
    with tables.follow(last=events[-1].id) as stream:
        assert applied(stream.take(1)) == [row(1)]


def test_columns_are_those_that_are_asked_for_with_the_key_and_other_changes_are_none(tables: Tables):
    tables.add(row(1, "x", 1))
    with tables.follow(columns="A") as stream:
        tables.update("id = 1", n="2")
        tables.update("id = 1", a="'y'")
        (event,) = stream.take(1)

    assert event.data["updates"] == [{"before": {"id": 1, "a": "x"}, "after": {"id": 1, "a": "y"}}]
    status, error = tables.ask(columns="a,nothing")
    assert (status, error["code"]) == (400, "READ")
    assert "nothing" in error["message"]


def test_a_masked_column_is_not_sent_and_not_to_be_asked_for(followed: Settings):
    with open_tables(replace(followed, masked_columns=("keyed.a",))) as tables:
        tables.create()
        with tables.follow() as stream:
            tables.add(row(1, "secret"))
            assert stream.take(1)[0].data["inserts"] == [{"id": 1, "n": 0}]
        assert tables.ask(columns="a")[0] == 400


EVERY = pa.schema(
    [
        ("id", pa.int64()),
        ("decimal", pa.decimal128(20, 3)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("bytes", pa.binary()),
        ("flag", pa.bool_()),
        ("double", pa.float64()),
        ("list", pa.list_(pa.decimal128(5, 1))),
        ("struct", pa.struct([("day", pa.date32()), ("text", pa.string())])),
        ("map", pa.map_(pa.int32(), pa.binary())),
    ]
)
NULLS = dict.fromkeys(EVERY.names)


def of_every_type(key: int) -> dict[str, object]:
    return {
        "id": key,
        "decimal": Decimal("12345678901234567.890"),
        "day": date(2026, 11, 29),
        "at": datetime(2026, 11, 29, 12, 30, 0, 5, tzinfo=UTC),
        "local": datetime.fromisoformat("2026-11-29T12:30:00"),
        "bytes": b"\x00\xff",
        "flag": True,
        "double": [1.5, math.nan, math.inf, -math.inf][key % 4],
        "list": [Decimal("0.5"), None],
        "struct": {"day": date(2026, 1, 2), "text": "x\u2028\n"},
        "map": [(1, b"a"), (2, None)],
    }


@pytest.mark.parametrize("limits", [Limits(), SMALL], ids=["in memory", "in files"])
@pytest.mark.parametrize("table", ["keyed", "plain"])
def test_values_of_every_type_are_json_without_loss(followed: Settings, table: str, limits: Limits):
    with open_tables(followed, limits=FollowLimits(poll=0.02, parts=limits)) as tables:
        tables.create(table, EVERY)
        tables.add(*(of_every_type(key) for key in range(12)), NULLS, table=table)
        # A rewrite that changes one row, in another order.
        rows = [of_every_type(key) | ({"flag": None} if key == 5 else {}) for key in reversed(range(12))]
        tables.add(NULLS, *rows, table=table, mode="overwrite")
        with tables.follow(table, from_="0") as stream:
            events = stream.take(1)
            while events[-1].data["version"] < 2 or not events[-1].data["last"]:
                events += stream.take(1)

    shown = applied([event for event in events if event.data["version"] == 1])
    assert NULLS in shown
    found = {row["id"]: row for row in shown}
    assert found[1] == {
        "id": 1, "decimal": "12345678901234567.890", "day": "2026-11-29", "at": "2026-11-29T12:30:00.000005Z",
        "local": "2026-11-29T12:30:00", "bytes": "AP8=", "flag": True, "double": "NaN", "list": ["0.5", None],
        "struct": {"day": "2026-01-02", "text": "x\u2028\n"},
        "map": [{"key": 1, "value": "YQ=="}, {"key": 2, "value": None}],
    }  # fmt: skip
    assert [found[key]["double"] for key in (0, 2, 3)] == [1.5, "Infinity", "-Infinity"]
    parts = [event.data for event in events if event.data["version"] == 2]
    later = {name: [each for part in parts for each in part[name]] for name in ("inserts", "updates", "deletes")}
    before, after = found[5], found[5] | {"flag": None}
    if table == "keyed":
        assert later["updates"] == [{"before": before, "after": after}]
    else:
        assert (later["deletes"], later["inserts"]) == ([before], [after])


# -- places


def test_a_client_that_comes_back_with_the_last_id_gets_what_is_behind_it_once(tables: Tables):
    with tables.follow() as stream:
        for number in range(5):
            tables.add(row(number))
        events = stream.take(5)

    for at, event in enumerate(events):
        tables.add(row(100 + at))
        with tables.follow(last=event.id, from_="beginning") as stream:
            found = stream.take(5)
        assert [each.data["version"] for each in found] == list(range(at + 2, at + 7))


def test_the_id_moves_over_versions_that_change_nothing(tables: Tables):
    tables.add(row(1))
    with tables.follow() as stream:
        tables.add(row(1), mode="overwrite")
        lines = stream._lines()
        while not next(lines).startswith("id: 2-"):
            pass


def test_the_number_of_a_version_is_a_place(tables: Tables):
    tables.add(row(1))
    tables.add(row(2))
    with tables.follow(from_="1") as stream:
        assert stream.take(1)[0].data["inserts"] == [row(2)]
    with tables.follow(from_="0") as stream:
        assert [event.data["version"] for event in stream.take(2)] == [1, 2]


@pytest.mark.parametrize("table", ["keyed", "plain"])
def test_a_large_version_comes_in_parts_and_after_each_of_them_one_goes_on(followed: Settings, table: str):
    limits = FollowLimits(poll=0.02, parts=SMALL)
    with open_tables(followed, limits=limits) as tables:
        tables.create(table)
        tables.add(*(row(key, "x" * key) for key in range(40)), table=table)
        before = tables.rows(table)
        # All files are written anew: most rows stay as they were.
        changed = [row(key, "x" * key, n=key % 3) for key in range(2, 45)]
        tables.add(*random.Random(1).sample(changed, len(changed)), table=table, mode="overwrite")
        with tables.follow(table, from_="1") as stream:
            whole: list[Event] = []
            while not whole or not whole[-1].data["last"]:
                whole += stream.take(1)
        assert len(whole) > 5
        assert [event.data["part"] for event in whole] == list(range(len(whole)))
        assert all(len(event.data["inserts"]) <= 3 for event in whole)
        assert applied(whole, list(before)) == tables.rows(table)
        if table == "keyed":
            # Keys 0 and 1 went, 40 to 44 came, and of the others two of three have another number.
            assert sum(len(event.data["updates"]) for event in whole) == sum(key % 3 > 0 for key in range(2, 40))
            assert sum(len(event.data["deletes"]) for event in whole) == 2

        for at, event in enumerate(whole):
            with tables.follow(table, last=event.id) as stream:
                rest = stream.take(len(whole) - at - 1)
                assert [each.data for each in rest] == [each.data for each in whole[at + 1 :]]
        assert list(folder_of(followed).iterdir()) == []


def test_rows_come_in_parts_and_after_each_of_them_one_goes_on(followed: Settings):
    with open_tables(followed, limits=FollowLimits(poll=0.02, parts=SMALL)) as tables:
        tables.create()
        for start in range(0, 20, 5):
            tables.add(*(row(key) for key in range(start, start + 5)))
        with tables.follow(from_="beginning") as stream:
            reset, *parts = stream.take(8)
        assert parts[-1].data["last"]
        assert applied([reset, *parts]) == tables.rows()
        for at, event in enumerate(parts):
            tables.update("id = 3", n=str(at + 100))
            with tables.follow(last=event.id) as stream:
                rest = stream.take(len(parts) - at)
            assert [each.data for each in rest[:-1]] == [each.data for each in parts[at + 1 :]]
            # And behind the rows the changes since.
            assert rest[-1].data["version"] == 5


def test_a_place_in_the_middle_is_one_of_its_columns(followed: Settings):
    with open_tables(followed, limits=FollowLimits(poll=0.02, parts=SMALL)) as tables:
        tables.create()
        tables.add(*(row(key) for key in range(20)))
        with tables.follow(from_="0") as stream:
            (part,) = stream.take(1)
        status, error = tables.ask(last=part.id, columns="a")
    assert (status, error["code"]) == (410, "READ")
    assert "other columns" in error["message"]
    # And of an engine that cuts versions in the same way.
    with open_tables(followed, limits=FollowLimits(poll=0.02, parts=replace(SMALL, rows_of_part=4))) as tables:
        assert tables.ask(last=part.id) == (status, error)


def test_random_histories_are_followed_exactly_however_often_a_client_comes_back(followed: Settings):
    chance = random.Random(7)
    limits = FollowLimits(poll=0.01, parts=SMALL)
    with open_tables(followed, limits=limits) as tables:
        tables.create()
        state: list[Row] = []
        last = ""
        for _ in range(12):
            for _ in range(chance.randint(1, 3)):
                there = {each["id"]: each for each in tables.rows()}
                some = {
                    key: row(key, chance.choice("ab"), chance.randint(0, 2))
                    for key in range(12)
                    if chance.random() < 0.6
                }
                kind = chance.choice(["overwrite", "update", "delete", "append"])
                if kind == "overwrite":
                    tables.add(*some.values(), mode="overwrite")
                elif kind == "update" and there:
                    tables.update(f"id % 2 = {chance.randint(0, 1)}", n=str(chance.randint(0, 3)))
                elif kind == "delete" and there:
                    tables.delete(f"id = {chance.choice(sorted(there))}")
                else:
                    tables.add(*(each for key, each in some.items() if key not in there))
            newest = DeltaTable(tables.path()).version()
            # It takes some events, is cut off, and comes back, until it has all.
            while True:
                with tables.follow(last=last, from_="beginning") as stream:
                    for _ in range(chance.randint(1, 4)):
                        if stream.last_id.startswith(f"{newest}-") and stream.last_id.count("-") == 2:
                            break
                        lines = _next_or_id(stream, newest)
                        state = applied(lines, state)
                    last = stream.last_id
                if last.startswith(f"{newest}-") and last.count("-") == 2:
                    break
            assert state == tables.rows()


def _next_or_id(stream: Stream, newest: int) -> list[Event]:
    """The next event; none where the id alone has moved to the newest version."""
    kind = ""
    for line in stream._lines():
        name, _, value = line.partition(": ")
        if name == "id":
            stream.last_id = value
        elif name == "event":
            kind = value
        elif name == "data":
            found = [Event(kind, stream.last_id, json.loads(value))]
            stream.response.readline()
            return found
        elif not line and stream.last_id.startswith(f"{newest}-") and stream.last_id.count("-") == 2:
            return []
    raise AssertionError("the answer ended")


# -- what is gone


def test_changes_that_are_gone_are_410_with_a_sentence(tables: Tables):
    for number in range(4):
        tables.add(row(number))
    with tables.follow(from_="1") as stream:
        events = stream.take(3)
    log = Path(tables.path()) / "_delta_log"
    DeltaTable(tables.path()).create_checkpoint()
    for version in range(3):
        (log / f"{version:020d}.json").unlink()

    status, error = tables.ask(from_="0")
    assert (status, error["code"]) == (410, "READ")
    assert "no longer in the log" in error["message"]
    with tables.follow(last=events[0].id) as stream:
        assert stream.take(2) == events[1:]
    with tables.follow(from_="beginning") as stream:
        assert applied(stream.take(2)) == tables.rows()


def test_a_file_that_is_gone_ends_the_answer_with_the_reason(tables: Tables):
    tables.add(row(1))
    for file in Path(tables.path()).glob("*.parquet"):
        file.unlink()
    with tables.follow(from_="0") as stream:
        (event,) = stream.events()

    assert (event.kind, event.data["error"]["code"]) == ("gone", "READ")
    assert "version 1" in event.data["error"]["message"]


def test_a_table_that_was_made_anew_is_another_one(tables: Tables):
    tables.add(row(1))
    with tables.follow() as stream:
        tables.add(row(2))
        (event,) = stream.take(1)
        shutil.rmtree(tables.path())
        tables.create()
        tables.add(row(1))
        tables.add(row(5))
        (gone,) = stream.events()

    assert gone.kind == "gone"
    status, error = tables.ask(last=event.id)
    assert (status, error["code"]) == (410, "READ")
    assert "another table" in error["message"]


def test_a_log_that_lost_its_newest_commit_is_noticed(tables: Tables):
    tables.add(row(1))
    tables.add(row(2))
    with tables.follow(from_="0") as stream:
        events = stream.take(2)
    (Path(tables.path()) / "_delta_log" / f"{2:020d}.json").unlink()
    assert tables.ask(last=events[1].id)[0] == 410
    tables.add(row(3))
    status, error = tables.ask(last=events[1].id)
    assert status == 410
    assert "lost its newest commits" in error["message"]
    with tables.follow(last=events[0].id) as stream:
        assert stream.take(1)[0].data["inserts"] == [row(3)]


@pytest.mark.parametrize("text", ["soon", "-1", "1-2", "1-xyz", "9" * 30])
def test_a_text_that_is_no_place_is_400(tables: Tables, text: str):
    assert tables.ask(from_=text)[0] == 400
    assert tables.ask(last=text)[0] == 400


def test_a_version_that_is_not_there_yet_is_410(tables: Tables):
    status, error = tables.ask(from_="7")
    assert status == 410
    assert "there is no version 7" in error["message"]


def test_a_table_without_a_version_and_one_that_is_not_declared_are_404(tables: Tables):
    assert tables.ask("shop.order")[0] == 404
    assert tables.ask("nothing")[1]["code"] == "CHANGES"
    assert tables.ask("a%20b/../c")[0] == 404
    assert tables.ask(other="1")[0] == 400


# -- consumers


def test_a_consumer_goes_on_where_it_said_that_it_was_and_keeps_what_is_behind(tables: Tables, followed: Settings):
    tables.add(row(1))
    with tables.follow(consumer="page", from_="beginning") as stream:
        events = stream.take(2)
        assert [(each.version, each.rows_first) for each in consumers(project=followed)] == [(1, True)]
        tables.add(row(2))
        events += stream.take(1)
    tables.add(row(3))

    # Nobody knows yet whether the events were handled.
    with tables.follow(consumer="page", from_="now") as stream:
        assert stream.take(3) == events
    with tables.follow(consumer="page", from_="now", last=events[-1].id) as stream:
        assert stream.take(1)[0].data["inserts"] == [row(3)]
    (consumer,) = consumers(project=followed)
    assert (consumer.version, consumer.rows_first) == (2, False)


def test_a_consumer_in_the_middle_of_a_version_keeps_that_version(followed: Settings):
    with open_tables(followed, limits=FollowLimits(poll=0.02, parts=SMALL)) as tables:
        tables.create()
        tables.add(*(row(key) for key in range(20)))
        with tables.follow(consumer="page", from_="0") as stream:
            first, second = stream.take(2)
        with tables.follow(consumer="page", last=first.id) as stream:
            assert stream.take(1) == [second]
        assert [each.version for each in consumers(project=followed)] == [0]


def test_a_consumer_of_another_table_is_409(tables: Tables):
    with tables.follow(consumer="page"):
        pass
    status, error = tables.ask("plain", consumer="page")
    assert (status, error["code"]) == (409, "CONSUMER")
    assert tables.ask(consumer="no name/")[0] == 409


def test_a_reader_of_python_goes_on_where_a_consumer_is(tables: Tables, followed: Settings):
    tables.add(row(1))
    with tables.follow(consumer="page", from_="0") as stream:
        (event,) = stream.take(1)
    with tables.follow(consumer="page", last=event.id):
        tables.add(row(2))
    (followed.declarations).mkdir(parents=True, exist_ok=True)
    for name, text in following_declared().items():
        file = followed.declarations / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    portion = open_reader("keyed", consumer_id="page", project=followed).next()
    assert portion is not None
    assert portion.data["id"].to_pylist() == [2]


def following_declared() -> dict[str, str]:
    from tests.engine.following import DECLARED

    return DECLARED


# -- connections


def test_while_nothing_comes_there_are_comments(followed: Settings):
    with open_tables(followed, limits=FollowLimits(poll=0.02, heartbeat=0.01)) as tables:
        tables.create()
        with tables.follow() as stream:
            lines = stream._lines()
            while next(lines) != ": waiting":
                pass


def test_a_connection_ends_between_two_versions_and_one_comes_back(followed: Settings):
    with open_tables(followed, limits=FollowLimits(poll=0.02, connection=0.3)) as tables:
        tables.create()
        with tables.follow(from_="0") as stream:
            tables.add(row(1))
            events = list(stream.events())
        assert [event.data["inserts"] for event in events] == [[row(1)]]
        tables.add(row(2))
        with tables.follow(last=stream.last_id) as stream:
            assert [event.data["inserts"] for event in stream.events()] == [[row(2)]]


def test_many_clients_of_one_table_read_it_once(tables: Tables, monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    own = change_parts

    def counted(*arguments):
        # At the first step, and so not for those who found the event.
        read.append(arguments[2])
        yield from own(*arguments)

    monkeypatch.setattr(following, "change_parts", counted)
    streams = []
    try:
        for _ in range(20):
            opened = tables.follow()
            streams.append((opened, opened.__enter__()))
        tables.add(row(1))
        found = [stream.take(1) for _, stream in streams]
        assert found == [found[0]] * 20
        assert read == [1]
    finally:
        for opened, _ in streams:
            opened.__exit__(None, None, None)


def test_too_many_clients_are_told_to_come_later(followed: Settings):
    with open_tables(followed, limits=FollowLimits(poll=0.02, followers=1)) as tables:
        tables.create()
        with tables.follow():
            status, error = tables.ask()
            assert (status, error["code"], error["retry_helps"]) == (429, "CHANGES_BUSY", True)
        assert tables.changes is not None
        changes = tables.changes
        tables.add(row(1))
        wait_until(lambda: changes.followers == 0)
        with tables.follow(from_="0") as stream:
            stream.take(1)


@contextmanager
def silent_client(tables: Tables) -> Iterator[socket.socket]:
    """A client that asks and takes nothing of the answer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", tables.port))
    request = (
        f"GET /changes/keyed?from=0 HTTP/1.1\r\nHost: 127.0.0.1:{tables.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    )
    client.sendall(request.encode())
    with closing(client):
        yield client


def test_a_client_that_takes_nothing_is_cut_off_and_holds_nobody(followed: Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("freshline.engine.connections.SEND_SECONDS", 0.3)
    monkeypatch.setattr("freshline.engine.server.bounded", _bounded_shortly)
    limits = FollowLimits(poll=0.02, parts=Limits(rows_of_part=2_000, rows_in_memory=5_000))
    with open_tables(followed, limits=limits) as tables:
        tables.create()
        tables.add(*(row(key, "x" * 500) for key in range(20_000)))
        assert tables.changes is not None
        changes = tables.changes
        with silent_client(tables):
            wait_until(lambda: changes.followers == 1)
            with tables.follow(from_="0") as stream:
                assert stream.take(1)[0].data["part"] == 0
            wait_until(lambda: changes.followers == 0)
        wait_until(lambda: list(folder_of(followed).iterdir()) == [])


def _bounded_shortly(**given):
    from freshline.engine.connections import bounded

    return bounded(**given, send_seconds=0.3)


def test_the_engine_ends_while_clients_follow(followed: Settings):
    with open_tables(followed) as tables:
        tables.create()
        with tables.follow() as stream:
            assert tables.changes is not None
            tables.changes.close()
            assert list(stream.events()) == []


# -- who may follow


@pytest.mark.security
@pytest.mark.parametrize("token", [None, "", "wrong-token-of-changes", f"{TOKEN}x", "the-token-of-the-engine"])
@pytest.mark.parametrize("table", ["keyed", "nothing"])
def test_who_does_not_have_the_token_learns_nothing(tables: Tables, table: str, token: str | None):
    status, error = tables.ask(table, token=token)
    assert (status, error["code"]) == (401, "CHANGES")
    assert "no table" not in error["message"]


@pytest.mark.security
def test_without_the_setting_nobody_follows(settings: Settings):
    with open_tables(settings) as tables:
        tables.create()
        assert tables.ask()[0] == 401


@pytest.mark.security
def test_a_token_that_cannot_be_read_opens_nothing_and_is_not_shown(tables: Tables, caplog: pytest.LogCaptureFixture):
    tables.environ["FOLLOW"] = "short"
    assert tables.ask(token="short")[0] == 401
    assert "changes-token" in caplog.text
    assert "short" not in caplog.text
    tables.environ["FOLLOW"] = "another-token-of-changes"
    assert tables.ask()[0] == 401
    tables.environ["FOLLOW"] = TOKEN
    with tables.follow():
        pass


@pytest.mark.security
def test_a_page_of_another_host_and_another_method_are_refused(tables: Tables):
    for head, status in (
        ("GET /changes/keyed HTTP/1.1\r\nHost: evil.example", b"403"),
        (f"POST /changes/keyed HTTP/1.1\r\nContent-Length: 0\r\nHost: 127.0.0.1:{tables.port}", b"405"),
    ):
        with closing(socket.create_connection(("127.0.0.1", tables.port), 10)) as client:
            client.sendall(f"{head}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            assert client.makefile("rb").readline().split()[1] == status


@pytest.mark.security
def test_the_token_of_changes_opens_nothing_else(tables: Tables):
    with closing(socket.create_connection(("127.0.0.1", tables.port), 10)) as client:
        client.sendall(
            f"GET /status HTTP/1.1\r\nHost: 127.0.0.1:{tables.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        assert client.makefile("rb").readline().split()[1] == b"401"
