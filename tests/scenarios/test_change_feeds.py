"""Change data capture through a real broker: events of Debezium become log tables, and tables that follow them."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from freshline.errors import ChangeOrderError, MessageKeyError, TimeUnitError
from freshline.testing import Crash
from tests.changes import MARKER, Change, Database, Topic, shuffled
from tests.crashes import refresh_through_crash
from tests.delta_log import without_rows
from tests.kafka import Record
from tests.lanes import few_or_many

COLUMNS = "id INT, name STRING, bio STRING"
FACTS = (
    "op STRING METADATA FROM 'op', at STRING METADATA FROM 'position', changed TIMESTAMP METADATA FROM 'changed_at', "
    "tx STRING METADATA FROM 'transaction', unsent ARRAY<STRING> METADATA FROM 'unsent'"
)


def feed(lab, kafka, columns=COLUMNS, *, partitions=1, name="feed", **options):
    topic = kafka.new(partitions=partitions)
    lab.kafka(name, columns, servers=kafka.servers, topic=topic, primary_key=("id",), format="debezium-json", **options)
    return topic


def event(op, at, after=None, before=None, **source):
    """A record of Postgres at a position; its key is that of the row."""
    row = before if after is None else after
    value = {
        "before": before,
        "after": after,
        "source": {"connector": "postgresql", "lsn": at, "txId": at // 10, "ts_ms": 1_700_000_000_000 + at, **source},
        "op": op,
        "ts_ms": 1_800_000_000_000,
    }
    key = None if row is None else json.dumps({"id": row.get("id")}).encode()
    return Record(value, key)


def insert(at, **row):
    return event("c", at, row)


def update(at, **row):
    return event("u", at, row)


def delete(at, key):
    return event("d", at, None, {"id": key, "name": None, "bio": None})


def tombstone(key):
    return Record(None, json.dumps({"id": key}).encode())


def without(rows, *names):
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


# -- the log table


def test_each_event_is_a_row_with_its_facts(lab, kafka):
    topic = feed(lab, kafka, f"{COLUMNS}, {FACTS}")
    kafka.send(
        topic,
        [
            event("r", 5, {"id": 9, "name": "old", "bio": None}),
            insert(10, id=1, name="a", bio="x"),
            update(20, id=1, name="b", bio="x"),
            event("d", 30, None, {"id": 1, "name": "b", "bio": "x"}),
            tombstone(1),
        ],
    )
    outcome = lab.refresh("feed")

    assert (outcome.error, outcome.rows_in, outcome.rows_out, outcome.rejected) == (None, 5, 4, 0)
    rows = sorted(lab.rows("feed"), key=lambda row: row["at"])
    assert without(rows, "changed", "tx", "unsent") == [
        {"id": 9, "name": "old", "bio": None, "op": "r", "at": "postgresql:00000000/00000005"},
        {"id": 1, "name": "a", "bio": "x", "op": "c", "at": "postgresql:00000000/0000000A"},
        {"id": 1, "name": "b", "bio": "x", "op": "u", "at": "postgresql:00000000/00000014"},
        {"id": 1, "name": None, "bio": None, "op": "d", "at": "postgresql:00000000/0000001E"},
    ]
    assert [row["tx"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["unsent"] for row in rows] == [[], [], [], []]
    start = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert [(row["changed"] - start).microseconds for row in rows] == [5_000, 10_000, 20_000, 30_000]


def test_a_value_that_is_no_event_is_in_quarantine_and_stops_nothing(lab, kafka):
    topic = feed(lab, kafka, f"{COLUMNS}, o BIGINT METADATA FROM 'offset'", max_record_bytes="300")
    bad = [b"not JSON", b"\xff\xfe", {"id": 1}, event("c", 1, {"id": None}).value, event("c", 2, {"id": 2**40}).value]
    bad.append(event("c", 3, {"id": 3, "name": "x" * 300}).value)
    kafka.send(topic, [insert(1, id=1), *[Record(value, b"k") for value in bad], insert(2, id=2)])
    outcome = lab.refresh("feed")

    assert (outcome.error, outcome.rows_out, outcome.rejected) == (None, 2, 6)
    assert [(row["id"], row["o"]) for row in lab.rows("feed")] == [(1, 0), (2, 7)]
    rejected = sorted(lab.quarantine("feed"), key=lambda row: row["offset"])
    assert [(row["offset"], row["error"]) for row in rejected] == [
        (1, "NOT_ENVELOPE"),
        (2, "NOT_UTF8"),
        (3, "NOT_ENVELOPE"),
        (4, "NULL_KEY"),
        (5, "VALUE_CHANGED(id)"),
        (6, "TOO_LARGE"),
    ]
    assert (rejected[0]["raw"], rejected[0]["key"], rejected[1]["raw"]) == (b"not JSON", b"k", b"\xff\xfe")
    assert all(row["message"] for row in rejected)


def test_values_of_every_kind_are_stored_by_their_declared_types(lab, kafka):
    columns = (
        "id BIGINT, n DECIMAL(10,2), d DATE, t TIMESTAMP, l TIMESTAMP_NTZ, b BINARY, f FLOAT, ok BOOLEAN, "
        "s STRUCT<x: DECIMAL(5,1), t: TIMESTAMP>, a ARRAY<DATE>, m MAP<STRING, BIGINT>"
    )
    topic = feed(lab, kafka, columns, **{"change.time_unit": "milliseconds"})
    row = {
        "id": 2**53 + 1, "n": {"scale": 1, "value": "AXs="}, "d": -25_567, "t": -1, "l": "1969-12-31T23:59:59.5",
        "b": "AAE=", "f": 0.5, "ok": 1, "s": {"x": 1.5, "t": 0}, "a": [0, None], "m": {"k": -1},
    }  # fmt: skip
    kafka.send(topic, [event("c", 1, row), event("c", 2, {"id": 1})])
    assert lab.refresh("feed").error is None
    empty, full = sorted(lab.rows("feed"), key=lambda row: row["id"])

    assert full == {
        "id": 2**53 + 1, "n": Decimal("37.90"), "d": date(1900, 1, 1),
        "t": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
        "l": datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC).replace(tzinfo=None),
        "b": b"\x00\x01", "f": 0.5, "ok": True, "s": {"x": Decimal("1.5"), "t": datetime(1970, 1, 1, tzinfo=UTC)},
        "a": [date(1970, 1, 1), None], "m": {"k": -1},
    }  # fmt: skip
    assert {value for name, value in empty.items() if name != "id"} == {None}


@pytest.mark.long
def test_a_number_for_a_time_stops_the_source_until_its_unit_is_known(lab, kafka):
    topic = feed(lab, kafka, "id INT, t TIMESTAMP")
    kafka.send(topic, [event("c", 1, {"id": 1, "t": 1_700_000_000_000})])
    outcome = lab.refresh("feed")
    assert isinstance(outcome.error, TimeUnitError), outcome.error
    assert "'change.time-unit'" in outcome.error.message
    lab.kafka(
        "feed", "id INT, t TIMESTAMP", servers=kafka.servers, topic=topic, primary_key=("id",),
        format="debezium-json", **{"change.time_unit": "milliseconds"},
    )  # fmt: skip
    assert lab.refresh("feed").error is None

    assert lab.rows("feed") == [{"id": 1, "t": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)}]


def test_an_event_that_is_delivered_again_is_dropped(lab, kafka):
    topic = feed(lab, kafka, f"{COLUMNS}, op STRING METADATA FROM 'op'")
    first = [insert(10, id=1, name="a"), update(20, id=1, name="b"), delete(30, 1), insert(30, id=2, name="a")]
    kafka.send(topic, [*first, first[0]])
    outcome = lab.refresh("feed")
    assert (outcome.error, outcome.rows_in, outcome.rows_out, outcome.rejected) == (None, 5, 4, 0)

    # Facts of Debezium itself, as `ts_ms`, make no other event of one of the database.
    again = [Record({**each.value, "ts_ms": 5}, each.key) for each in first]
    without_position = event("u", 40, {"id": 2, "name": "c"}, connector=None)
    kafka.send(topic, [*again, update(20, id=2, name="other key"), without_position, without_position])
    outcome = lab.refresh("feed")

    assert (outcome.error, outcome.rows_in, outcome.rows_out, outcome.rejected) == (None, 7, 3, 0)
    assert len(lab.rows("feed")) == 7


def test_events_are_looked_for_in_the_log_only_if_they_may_be_there(lab, kafka):
    topic = feed(lab, kafka)

    def counts(*events):
        kafka.send(topic, list(events))
        outcome = lab.refresh("feed")
        assert outcome.error is None, outcome.error
        return outcome.rows_out, outcome.rows_in - outcome.rows_out - outcome.rejected, outcome.rejected

    assert counts(insert(10, id=1, name="a"), insert(20, id=2, name="a")) == (2, 0, 0)
    with without_rows(lab.path("feed")):
        assert counts(update(30, id=1, name="b"), insert(10, id=3, name="a"), insert(10, id=3, name="a")) == (2, 1, 0)
    assert counts(insert(10, id=3, name="a"), update(30, id=1, name="b"), update(40, id=1, name="c")) == (1, 2, 0)
    lab.restart()
    # Another engine knows no event yet.
    assert counts(update(40, id=1, name="c"), delete(50, 1)) == (1, 1, 0)
    with without_rows(lab.path("feed")):
        assert counts(insert(60, id=1, name="d"), event("t", 70), event("t", 70)) == (2, 1, 0)
        kafka.send(topic, [update(80, id=1, name="e")])
        with pytest.raises(Crash), lab.crash_at("log-before-commit"):
            lab.refresh("feed")
        # The batch was not committed, so its events are new.
        assert counts(update(90, id=1, name="f")) == (2, 0, 0)
    assert counts(update(80, id=1, name="e"), event("t", 70), insert(60, id=1, name="d")) == (0, 3, 0)


def test_rows_of_sharded_tables_are_named_by_the_key_of_the_message(lab, kafka):
    """Debezium's router of sharded tables puts the shard into the key of the message, and nowhere else."""
    shard = "__dbz__physicalTableIdentifier"

    def sent(record, of, key):
        return Record(record.value, json.dumps({"id": key, shard: of}).encode())

    records = [
        sent(insert(10, id=1, name="a"), "s1", 1), sent(insert(11, id=1, name="b"), "s2", 1),
        sent(insert(12, id=2, name="c"), "s2", 2), sent(delete(13, 1), "s1", 1), Record(None, b"{}"),
        sent(update(14, id=2, name="d" * 400), "s2", 2), sent(update(15, id=2, name="e", bio=MARKER), "s2", 2),
    ]  # fmt: skip
    topic = feed(lab, kafka, name="narrow")
    kafka.send(topic, records)
    outcome = lab.refresh("narrow")
    assert isinstance(outcome.error, MessageKeyError), outcome.error
    assert f"their key is id, {shard}; PRIMARY KEY is id" in outcome.error.message
    assert not outcome.error.retry_helps
    lab.kafka(
        "feed", f"{COLUMNS}, {shard} STRING", servers=kafka.servers, topic=topic, primary_key=("id", shard),
        format="debezium-json", max_record_bytes="500",
    )  # fmt: skip
    follow(lab, f"SELECT id, {shard} AS shard, name FROM feed", key="id, shard")
    assert lab.refresh("customer").error is None
    assert by_id(lab) == [
        {"id": 1, "shard": "s2", "name": "b"}, {"id": 2, "shard": "s2", "name": "c"},
    ]  # fmt: skip
    # A record that is too large is of the row that the key names as well.
    assert sorted(row["error"] for row in lab.quarantine("feed")) == ["TOO_LARGE", "VALUE_UNKNOWN"]


# -- tables that follow the changes


def follow(lab, query="SELECT id, name, bio FROM feed", *, name="customer", options="", key="id"):
    lab.declare(
        f"CREATE MATERIALIZED TABLE {name} (PRIMARY KEY ({key})) "
        f"WITH ('merge' = 'last_row', 'merge.sequence' = 'change'{options}) "
        f"FRESHNESS = INTERVAL '10' SECOND AS {query}"
    )


def by_id(lab, name="customer"):
    return sorted(lab.rows(name), key=lambda row: row["id"])


def test_a_table_has_the_rows_of_the_database(lab, kafka):
    topic = feed(lab, kafka)
    follow(lab)
    kafka.send(topic, [event("r", 1, {"id": 1, "name": "a"}), insert(2, id=2, name="b"), insert(3, id=3, name="c")])
    assert lab.refresh("customer").error is None
    kafka.send(
        topic,
        [
            update(4, id=1, name="a2"),
            delete(5, 2), tombstone(2),
            # A key that changes, and one that comes back.
            delete(6, 3), tombstone(3), insert(6, id=4, name="c"),
            delete(7, 1), tombstone(1), insert(8, id=1, name="again", bio="x"),
            insert(9, id=5, name="short"), delete(10, 5), tombstone(5),
        ],
    )  # fmt: skip
    outcome = lab.refresh("customer")

    assert (outcome.error, outcome.strategy) == (None, "merge")
    expected = [{"id": 1, "name": "again", "bio": "x"}, {"id": 4, "name": "c", "bio": None}]
    assert by_id(lab) == expected
    assert lab.verify("customer").equal
    # Delivered again, and then something new.
    kafka.send(topic, [insert(3, id=3, name="c"), delete(6, 3), tombstone(3), insert(6, id=4, name="c")])
    assert (lab.refresh("customer").error, by_id(lab)) == (None, expected)
    kafka.send(topic, [delete(11, 4)])
    assert lab.union("customer")[0] == expected[:1]
    lab.refresh("customer")
    assert by_id(lab) == expected[:1]
    assert lab.refresh("customer", full=True).error is None
    assert by_id(lab) == expected[:1]


@pytest.mark.long
def test_a_row_that_leaves_the_condition_leaves_the_table(lab, kafka):
    topic = feed(lab, kafka, "id INT, name STRING, score INT")
    follow(
        lab,
        "SELECT name, f.id AS customer_id, upper(f.name) AS loud FROM feed AS f "
        "WHERE (score > 0 OR name = 'where') AND f.name IS NOT NULL -- the good ones",
        key="customer_id",
    )
    kafka.send(topic, [insert(n, id=n, name="a", score=n - 2) for n in range(1, 5)])
    lab.refresh("customer")
    assert sorted(row["customer_id"] for row in lab.rows("customer")) == [3, 4]
    kafka.send(
        topic,
        [
            update(5, id=3, name="a", score=0),
            update(6, id=1, name="where", score=0),
            update(7, id=4, name=None, score=9),
        ],
    )
    outcome = lab.refresh("customer")

    assert (outcome.error, outcome.strategy) == (None, "merge")
    assert lab.rows("customer") == [{"name": "where", "customer_id": 1, "loud": "WHERE"}]
    assert lab.verify("customer").equal
    kafka.send(topic, [update(8, id=3, name="back", score=1)])
    lab.refresh("customer")
    assert sorted(row["customer_id"] for row in lab.rows("customer")) == [1, 3]


def test_a_value_that_was_not_sent_is_the_last_known_one(lab, kafka):
    topic = feed(lab, kafka, f"{COLUMNS}, unsent ARRAY<STRING> METADATA FROM 'unsent', o BIGINT METADATA FROM 'offset'")
    follow(lab)
    kafka.send(
        topic,
        [
            # In one batch: of the insert, of an update, NULL, and nothing behind a delete.
            insert(1, id=1, name="a", bio="one"), update(2, id=1, name="b", bio=MARKER),
            update(3, id=1, name=MARKER, bio="two"), update(4, id=1, name="c", bio=MARKER),
            insert(5, id=2, name="a", bio=None), update(6, id=2, name="b", bio=MARKER),
            insert(7, id=3, name="a", bio="lost"), delete(8, 3), update(9, id=3, name="b", bio=MARKER),
            update(10, id=4, name="b", bio=MARKER), update(11, id=4, name="c", bio="half"),
            update(12, id=4, name=MARKER, bio="all"), event("r", 13, {"id": 4, "name": "d", "bio": MARKER}),
            insert(14, id=5, name="a", bio="x"), insert(15, id=6, name="a", bio="gone"), delete(16, 6),
            event("c", 17, {"id": 7, "name": "a", "bio": MARKER}),
        ],
    )  # fmt: skip
    outcome = lab.refresh("customer")

    assert outcome.error is None
    assert [(row["offset"], row["error"]) for row in sorted(lab.quarantine("feed"), key=lambda row: row["offset"])] == [
        (8, "VALUE_UNKNOWN"), (9, "VALUE_UNKNOWN"), (16, "VALUE_UNKNOWN"),
    ]  # fmt: skip
    found = {row["o"]: row for row in lab.rows("feed")}
    assert [(found[at]["name"], found[at]["bio"], found[at]["unsent"]) for at in (1, 2, 3, 5)] == [
        ("b", "one", ["bio"]), ("b", "two", ["name"]), ("c", "two", ["bio"]), ("b", None, ["bio"]),
    ]  # fmt: skip
    assert (found[11]["name"], found[12]["bio"]) == ("c", MARKER)
    assert by_id(lab) == [
        {"id": 1, "name": "c", "bio": "two"}, {"id": 2, "name": "b", "bio": None},
        {"id": 4, "name": "d", "bio": MARKER}, {"id": 5, "name": "a", "bio": "x"},
    ]  # fmt: skip
    # In other batches: of the log, and nothing behind a delete that is in it.
    kafka.send(
        topic,
        [update(20, id=5, name="b", bio=MARKER), update(21, id=6, name="b", bio=MARKER), update(22, id=1, bio=MARKER)],
    )
    rows, _ = lab.union("customer")
    outcome = lab.refresh("customer")

    assert (outcome.error, rows) == (None, by_id(lab))
    assert by_id(lab)[0] == {"id": 1, "name": None, "bio": "two"}
    assert by_id(lab)[-1] == {"id": 5, "name": "b", "bio": "x"}
    assert [row["offset"] for row in lab.quarantine("feed")].count(18) == 1
    assert lab.verify("customer").equal


def test_a_value_that_was_not_sent_is_unknown_behind_what_ends_its_row(lab, kafka):
    """An insert, a TRUNCATE and a rejected event end what is known: the older value is that of another row, or gone."""
    topic = feed(lab, kafka, f"{COLUMNS}, o BIGINT METADATA FROM 'offset'", max_record_bytes="400")
    follow(lab)
    large = "x" * 400

    def send(*records):
        kafka.send(topic, list(records))
        outcome = lab.refresh("customer")
        assert outcome.error is None, outcome.error

    send(
        # In one batch: the key of another row, behind a TRUNCATE and without one, and behind a value that is too large.
        insert(1, id=5, name="a", bio="OLD"), event("t", 2), insert(3, id=7, name="a", bio="NEW"),
        delete(4, 7), insert(4, id=5, name="a", bio=MARKER),
        insert(5, id=1, name="a", bio="OLD"), delete(6, 1), insert(6, id=1, name="b", bio=MARKER),
        insert(7, id=2, name="a", bio="OLD"), update(8, id=2, name="b", bio=large),
        update(9, id=2, name="c", bio=MARKER),
        insert(10, id=3, name="a", bio="OLD"), update(11, id=3, name="b", bio=large),
        update(12, id=3, name="c", bio="good"), update(13, id=3, name="d", bio=MARKER),
        insert(14, id=4, name="a", bio="OLD"), insert(15, id=6, name="a", bio="OLD"),
        insert(16, id=8, name="a", bio="x"),
    )  # fmt: skip
    assert [(row["offset"], row["error"]) for row in sorted(lab.quarantine("feed"), key=lambda row: row["offset"])] == [
        (4, "VALUE_UNKNOWN"), (7, "VALUE_UNKNOWN"), (9, "TOO_LARGE"), (10, "VALUE_UNKNOWN"), (12, "TOO_LARGE"),
    ]  # fmt: skip
    assert {row["id"]: row["bio"] for row in lab.rows("customer")} == {
        2: "OLD", 3: "good", 4: "OLD", 6: "OLD", 8: "x",
    }  # fmt: skip
    # In others: the value is in quarantine, the key is that of another row, all rows were removed.
    send(update(20, id=4, name="b", bio=large), delete(21, 6), insert(21, id=6, name="b", bio=MARKER))
    send(update(22, id=4, name="c", bio=MARKER), update(23, id=2, name="d", bio=MARKER), update(24, id=6, bio=MARKER))
    assert [row["error"] for row in lab.quarantine("feed")].count("VALUE_UNKNOWN") == 7
    send(update(25, id=4, name="d", bio="whole"))
    send(update(26, id=4, name="e", bio=MARKER))
    assert {row["id"]: (row["name"], row["bio"]) for row in lab.rows("customer")}[4] == ("e", "whole")
    send(event("t", 30))
    send(insert(31, id=8, name="b", bio=MARKER), update(32, id=3, name="e", bio=MARKER))

    assert lab.rows("customer") == []
    assert [row["error"] for row in lab.quarantine("feed")].count("VALUE_UNKNOWN") == 9
    assert lab.verify("customer").equal


def moved(at, before, key):
    """A row that gets another key, with its old image, as Debezium sends it of a table with REPLICA IDENTITY FULL."""
    after = {**before, "id": key}
    return [event("d", at, None, before), tombstone(before["id"]), event("c", at, after)]


def image(key, name):
    return {"id": key, "name": name, "bio": None}


def names(lab):
    return {row["id"]: row["name"] for row in lab.rows("customer")}


@pytest.mark.long  # tests/scenarios/test_postgres_source.py has it without a broker
def test_keys_that_change_places_in_a_transaction_lose_no_row(lab, kafka):
    """With a deferrable key: UPDATE t SET id = id + 1 gives a row the key of another one, which leaves it then."""
    topic = feed(lab, kafka, f"{COLUMNS}, {FACTS}")
    follow(lab)

    def send(*records):
        kafka.send(topic, list(records))
        outcome = lab.refresh("customer")
        assert (outcome.error, outcome.rejected) == (None, 0)

    send(*[event("r", 1, image(key, name)) for key, name in enumerate("abc", 1)])
    up = [*moved(10, image(1, "a"), 2), *moved(11, image(2, "b"), 3), *moved(12, image(3, "c"), 4)]
    send(*up)
    assert names(lab) == {2: "a", 3: "b", 4: "c"}
    # All came again.
    send(*up)
    assert names(lab) == {2: "a", 3: "b", 4: "c"}
    assert sorted((row["id"], row["op"], row["name"]) for row in lab.rows("feed") if row["at"][-1] in "BC") == [
        (2, "k", "a"), (3, "c", "b"), (3, "k", "b"), (4, "c", "c"),
    ]  # fmt: skip

    # A transaction in several batches, of which another engine reads the last ones; its first events come again.
    down = [*moved(20, image(4, "c"), 3), *moved(21, image(3, "b"), 2), *moved(22, image(2, "a"), 1)]
    send(*down[:4])
    assert names(lab)[3] in ("b", "c")
    lab.restart()
    send(*down[2:5])
    send(*down[5:])
    assert names(lab) == {1: "a", 2: "b", 3: "c"}

    # A row passes: behind it the older one has its key again, in one batch and in two.
    send(*moved(30, image(1, "a"), 2), *moved(31, image(2, "a"), 1))
    send(*moved(40, image(1, "a"), 3))
    send(*moved(41, image(3, "a"), 1), event("u", 42, image(3, "c2"), image(3, "c")))
    assert names(lab) == {1: "a", 2: "b", 3: "c2"}
    # The old row is changed and removed beside the new one, and rows are equal but for their keys.
    send(
        insert(50, **image(2, "n")), event("u", 51, image(2, "b2"), image(2, "b")),
        event("d", 52, None, image(2, "b2")),
        event("u", 53, image(3, "a"), image(3, "c2")), *moved(54, image(1, "a"), 3), *moved(55, image(3, "a"), 1),
    )  # fmt: skip
    assert names(lab) == {1: "a", 2: "n", 3: "a"}
    # Behind a TRUNCATE, and by an insert and a delete of one transaction as every table has them.
    send(event("t", 60), insert(61, **image(1, "x")), insert(62, **image(1, "y")), event("d", 63, None, image(1, "x")))
    send(insert(70, **image(5, "a")), delete(71, 5), insert(72, **image(6, "a")), event("d", 73, None, image(6, "a")))
    assert names(lab) == {1: "y"}
    assert lab.verify("customer").equal
    assert lab.refresh("customer", full=True).error is None
    assert names(lab) == {1: "y"}


def test_a_row_whose_key_another_one_has_for_a_moment_may_be_in_quarantine(lab, kafka):
    topic = feed(lab, kafka, max_record_bytes="500")
    follow(lab)
    kafka.send(topic, [event("r", 1, image(key, name)) for key, name in enumerate("abc", 1)])
    large = image(1, "x" * 500)
    kafka.send(
        topic,
        [
            # The large row passes the key 2, and the row that is there stays.
            event("u", 10, large, image(1, "a")), *moved(11, large, 2), *moved(12, image(2, "x" * 500), 7),
            # The large row takes the key 3.
            *moved(20, image(3, "c"), 4), event("c", 21, image(3, "x" * 500)),
            # The row of an event that nobody can read is known, and its kind is not.
            insert(30, id=8, name="h", bio=None),
            Record(b"?", b'{"id": 8}'), event("d", 41, None, image(8, "z")),
        ],
    )  # fmt: skip
    assert lab.refresh("customer").error is None
    assert names(lab) == {1: "a", 2: "b", 4: "c", 8: "h"}
    codes = sorted(row["error"] for row in lab.quarantine("feed"))
    assert codes == ["NOT_ENVELOPE", *["TOO_LARGE"] * 6, "VALUE_UNKNOWN"]


@pytest.mark.long
def test_a_truncate_removes_the_keys_with_earlier_events(lab, kafka):
    topic = feed(lab, kafka, partitions=2)
    follow(lab)

    def at(partition, record):
        return Record(record.value, record.key, partition)

    kafka.send(topic, [at(0, insert(10, id=1)), at(0, insert(20, id=2)), at(1, insert(15, id=3))])
    lab.refresh("customer")
    truncate = at(1, event("t", 30))
    kafka.send(topic, [truncate, at(1, insert(40, id=4))])
    assert [row["id"] for row in lab.union("customer")[0]] == [4]
    outcome = lab.refresh("customer")

    assert (outcome.error, outcome.strategy, outcome.reason.split(":")[0]) == (None, "full", "TRUNCATED(feed)")
    assert [row["id"] for row in by_id(lab)] == [4]
    # Another partition has an event that is earlier in the database and arrives later, and a later one. A TRUNCATE that
    # comes again is none.
    kafka.send(topic, [at(0, insert(25, id=5)), at(0, insert(35, id=6)), truncate, at(1, insert(50, id=7))])
    outcome = lab.refresh("customer")

    assert (outcome.error, outcome.strategy) == (None, "merge")
    assert [row["id"] for row in by_id(lab)] == [4, 6, 7]
    assert lab.verify("customer").equal
    assert (lab.quarantine("feed"), len(lab.rows("feed"))) == ([], 8)


# -- in the order of the database

SOURCE_ORDER = {"change.order": "source"}


def at(partition, record):
    return Record(record.value, record.key, partition)


@pytest.mark.long
def test_changes_of_a_key_in_two_partitions_are_in_the_order_of_the_database(lab, kafka):
    topic = feed(lab, kafka, partitions=2, **SOURCE_ORDER)
    follow(lab)
    kafka.send(
        topic,
        [
            # The later one of a key is in the partition that is read first.
            at(0, update(30, id=1, name="new")), at(1, insert(10, id=1, name="old")),
            at(0, delete(40, 2)), at(1, insert(20, id=2, name="gone")),
            at(0, insert(50, id=3, name="c")),
        ],
    )  # fmt: skip
    assert lab.refresh("customer").error is None
    assert [(row["id"], row["name"]) for row in by_id(lab)] == [(1, "new"), (3, "c")]
    # In other refreshes: earlier than what is stored, than a delete, and between two of them.
    kafka.send(
        topic,
        [
            at(1, update(25, id=1, name="between")), at(1, update(25, id=2, name="before the delete")),
            at(1, delete(45, 3)), at(1, insert(60, id=4, name="d")), at(1, delete(28, 1)),
        ],
    )  # fmt: skip
    expected = [(1, "new"), (3, "c"), (4, "d")]
    assert [(row["id"], row["name"]) for row in lab.union("customer")[0]] == expected
    outcome = lab.refresh("customer")

    assert (outcome.error, outcome.strategy) == (None, "merge")
    assert [(row["id"], row["name"]) for row in by_id(lab)] == expected
    kafka.send(topic, [at(0, delete(55, 3)), at(1, event("t", 58)), at(0, insert(57, id=5)), at(0, update(59, id=1))])
    assert lab.refresh("customer").error is None
    assert [row["id"] for row in by_id(lab)] == [1, 4]
    # An event that is earlier than a TRUNCATE that was read before.
    kafka.send(topic, [at(0, update(57, id=6))])
    outcome = lab.refresh("customer")
    assert (outcome.error, [row["id"] for row in by_id(lab)]) == (None, [1, 4])
    assert lab.verify("customer").equal
    assert lab.refresh("customer", full=True).error is None
    assert [row["id"] for row in by_id(lab)] == [1, 4]


@pytest.mark.long
def test_positions_without_a_common_order_stop_a_source_in_the_order_of_the_database(lab, kafka):
    mysql: dict[str, Any] = {"connector": "mysql", "lsn": None, "file": "a.b.000009", "pos": 4, "row": 0}
    others: tuple[tuple[dict[str, Any], str], ...] = (
        ({**mysql, "file": "a.c.000010"}, "mysql:a.c, beside mysql:a.b"),
        ({**mysql, "connector": "mariadb"}, "mariadb:a.b, beside mysql:a.b"),
        ({"connector": "postgresql", "lsn": 7}, "postgresql, beside mysql:a.b"),
        ({"connector": "oracle", "lsn": None, "scn": "12"}, "no order is known of oracle:"),
        ({"connector": None}, "one has no position, beside mysql:a.b"),
    )
    for number, (found, said) in enumerate(others):
        topic = feed(lab, kafka, name=f"feed{number}", **SOURCE_ORDER)
        first = event("c", 0, {"id": 1, "name": "a"}, **mysql)
        second = event("u", 0, {"id": 1, "name": "b"}, **{**mysql, "file": "a.b.1000000", "pos": 1})
        # In the batch of the first ones, and behind them.
        together = [] if number else [event("u", 0, {"id": 2}, **found)]
        kafka.send(topic, [second, first, *together])
        if not together:
            assert lab.refresh(f"feed{number}").error is None
            kafka.send(topic, [event("u", 0, {"id": 1, "name": "c"}, **found)])
        outcome = lab.refresh(f"feed{number}")

        assert isinstance(outcome.error, ChangeOrderError), (found, outcome.error)
        assert said in outcome.error.message
        assert not outcome.error.retry_helps
        assert len(lab.rows(f"feed{number}") if number else []) == (2 if number else 0)
    with pytest.raises(ChangeOrderError):
        lab.union("feed4")
    # In order of arrival all of them are read.
    declared = {"servers": kafka.servers, "topic": topic, "primary_key": ("id",), "format": "debezium-json"}
    lab.kafka("feed4", COLUMNS, **declared)
    assert lab.refresh("feed4").error is None
    assert len(lab.rows("feed4")) == 3


@pytest.mark.long
def test_a_value_that_was_not_sent_is_unknown_in_the_order_of_the_database(lab, kafka):
    topic = feed(lab, kafka, **SOURCE_ORDER)
    follow(lab)
    kafka.send(topic, [insert(1, id=1, name="a", bio="x"), update(2, id=1, name="b", bio=MARKER)])
    outcome = lab.refresh("customer")

    assert (outcome.error, by_id(lab)) == (None, [{"id": 1, "name": "a", "bio": "x"}])
    assert [(row["offset"], row["error"]) for row in lab.quarantine("feed")] == [(1, "VALUE_UNKNOWN")]


@pytest.mark.long
def test_an_event_of_the_quarantine_has_its_place_in_the_order_of_the_database(lab, kafka):
    def declare(most):
        lab.kafka(
            "feed", COLUMNS, servers=kafka.servers, topic=topic, primary_key=("id",), format="debezium-json",
            max_record_bytes=str(most), **SOURCE_ORDER,
        )  # fmt: skip

    topic = kafka.new()
    declare(400)
    follow(lab)
    large = [update(20, id=1, name="b" * 300), update(40, id=2, name="b" * 300)]
    kafka.send(topic, [insert(10, id=1, name="a"), insert(11, id=2, name="a"), *large, update(30, id=1, name="c")])
    lab.refresh("customer")
    assert {row["error"] for row in lab.quarantine("feed")} == {"TOO_LARGE"}
    declare(4000)
    outcome = lab.retry_quarantine("feed")
    assert (outcome.error, outcome.rows_out) == (None, 2)
    lab.refresh("customer")

    assert [(row["id"], row["name"][:1], len(row["name"])) for row in by_id(lab)] == [(1, "c", 1), (2, "b", 300)]
    assert lab.verify("customer").equal


POINTS = ("log-before-commit", "log-after-commit", "table-pinned", "table-before-commit", "table-after-commit")


def refresh_and_be_killed(lab, chance, seed):
    """Refresh both tables of a seed, sometimes again after a kill."""
    for table in (f"whole{seed}", f"some{seed}"):
        refresh_through_crash(lab, table, chance, POINTS, share=0.4, case=seed, full=chance.random() < 0.1)


def offsets_of(lab, name):
    (position,) = lab.receipt(name).positions.values()
    return position.offsets


def require_rows(lab, seed, expected):
    assert {row.pop("id"): row for row in lab.rows(f"whole{seed}")} == expected, seed
    some = {key: {"twice": row["score"] * 2} for key, row in expected.items() if row["score"] >= 0}
    assert {row.pop("id"): row for row in lab.rows(f"some{seed}")} == some, seed


@pytest.mark.parametrize("seeds", few_or_many(range(1), range(1, 30)))
def test_random_changes_in_any_partition_give_the_rows_of_the_database(lab, kafka, seeds):
    for seed in seeds:
        chance = random.Random(seed)
        database = Database(chance, partitions=3, truncates=chance.random() < 0.5, moves=True)
        sent, name = Topic(), f"feed{seed}"
        topic = feed(lab, kafka, "id INT, name STRING, score INT, bio STRING", partitions=3, name=name, **SOURCE_ORDER)
        follow(lab, f"SELECT id, name, score, bio FROM {name}", name=f"whole{seed}")
        follow(lab, f"SELECT id, score * 2 AS twice FROM {name} WHERE score >= 0", name=f"some{seed}")
        held: list[Change] = []
        for _ in range(4):
            changes = [*held, *database.transactions(chance.randint(1, 6))]
            if chance.random() < 0.4:
                changes += database.again()
            # Some come with a later batch only.
            chance.shuffle(changes)
            cut = chance.randint(0, len(changes) // 3)
            held, changes = changes[:cut], changes[cut:]
            kafka.send(topic, sent.send(changes))
            refresh_and_be_killed(lab, chance, seed)
            require_rows(lab, seed, sent.rows_by_position(offsets_of(lab, name)))
        assert lab.verify(f"whole{seed}").equal
        assert lab.verify(f"some{seed}").equal


@pytest.mark.parametrize("seeds", few_or_many(range(1), range(1, 60)))
def test_random_changes_give_the_rows_of_the_database_at_the_positions_in_the_receipt(lab, kafka, seeds):
    for seed in seeds:
        chance = random.Random(seed)
        partitions, with_schema, truncates = chance.randint(1, 3), chance.random() < 0.3, chance.random() < 0.5
        database = Database(chance, partitions, unsent=True, with_schema=with_schema, truncates=truncates)
        sent, name = Topic(), f"feed{seed}"
        topic = feed(
            lab, kafka, "id INT, name STRING, score INT, bio STRING", partitions=database.partitions, name=name
        )
        follow(lab, f"SELECT id, name, score, bio FROM {name}", name=f"whole{seed}")
        follow(lab, f"SELECT id, score * 2 AS twice FROM {name} WHERE score >= 0", name=f"some{seed}")
        for _ in range(3):
            changes = database.transactions(chance.randint(1, 6))
            if chance.random() < 0.4:
                changes += database.again()
            if chance.random() < 0.2:
                changes += database.snapshot()
            kafka.send(topic, sent.send(shuffled(chance, changes)))
            refresh_and_be_killed(lab, chance, seed)
            require_rows(lab, seed, sent.rows(offsets_of(lab, name)))
            assert lab.quarantine(name) == []
        assert lab.verify(f"whole{seed}").equal
        assert lab.verify(f"some{seed}").equal
