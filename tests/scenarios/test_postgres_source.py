"""Tables of a real Postgres, read by its log: what their log tables have, and the tables that follow them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import psycopg
import pytest

from freshline.commit.delta_log import open_table
from freshline.sources.postgres import reader as reader_module
from freshline.sources.postgres.position import lsn_text
from tests.crashes import crash, refresh_through_crash
from tests.databases import ChangingTable, Shop
from tests.lanes import few_or_many
from tests.scenarios.tables import declare

COLUMNS = "id INT, name STRING, bio STRING"
FACTS = "op STRING METADATA FROM 'op', tx STRING METADATA FROM 'transaction', n BIGINT METADATA FROM 'record'"


@pytest.fixture
def shop(lab, postgres, monkeypatch):
    made = Shop(lab, postgres)
    monkeypatch.setenv("SHOP_URL", made.url)
    yield made
    made.close()


def customers(shop, *, name="customer", columns=COLUMNS, **options):
    shop.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, name TEXT, bio TEXT)")
    shop.sql(f"ALTER TABLE {name} ALTER COLUMN bio SET STORAGE EXTERNAL")
    shop.declare(name, columns, **options)


def follow(lab, query="SELECT id, name, bio FROM feed", name="whole", key="id"):
    declare(lab, query, f"(PRIMARY KEY ({key})) WITH ('merge' = 'last_row', 'merge.sequence' = 'change')", name=name)


def events(lab):
    """The events in the order in which they arrived, without times."""
    rows = sorted(lab.rows("feed"), key=lambda row: row["n"])
    return [(row["op"], row["id"], row["name"]) for row in rows]


def refreshed(lab, name="feed"):
    outcome = lab.refresh(name)
    assert outcome.error is None, outcome.error
    assert outcome.problems == ()
    return outcome


def position(lab):
    (found,) = lab.receipt("feed").positions.values()
    return found


# -- what arrives


def test_the_table_comes_first_and_then_each_change_of_it(lab, shop):
    customers(shop, columns=f"{COLUMNS}, {FACTS}")
    shop.sql(r"INSERT INTO customer VALUES (1, E'a\tb', NULL), (2, '', 'x')")
    follow(lab)
    refreshed(lab, "whole")
    assert [row[:3] for row in events(lab)] == [("r", 1, "a\tb"), ("r", 2, "")]
    assert refreshed(lab).strategy == "noop"

    shop.sql("INSERT INTO customer VALUES (3, 'c', 'x'); UPDATE customer SET name = 'd' WHERE id = 3")
    shop.sql("UPDATE customer SET id = 4 WHERE id = 1")
    shop.sql("DELETE FROM customer WHERE id = 2")
    outcome = refreshed(lab, "whole")
    assert outcome.strategy == "merge"
    assert events(lab)[2:] == [("c", 3, "c"), ("u", 3, "d"), ("d", 1, None), ("c", 4, "a\tb"), ("d", 2, None)]
    assert [row["id"] for row in lab.rows("whole")] == [3, 4]
    transactions = [row["tx"] for row in sorted(lab.rows("feed"), key=lambda row: row["n"])][2:]
    assert transactions == [transactions[0]] * 2 + [transactions[2]] * 2 + [transactions[4]]

    shop.sql("TRUNCATE customer; INSERT INTO customer VALUES (5, 'e', NULL)")
    assert refreshed(lab, "whole").strategy == "full"
    assert events(lab)[7:] == [("t", None, None), ("c", 5, "e")]
    assert lab.rows("whole") == [{"id": 5, "name": "e", "bio": None}]
    assert lab.verify("whole").equal
    # The database may forget what was read.
    assert shop.confirmed() == lsn_text(position(lab).lsn)


def test_values_are_the_same_in_a_snapshot_and_in_changes(lab, shop):
    shop.sql(
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN price AS NUMERIC(10,2); CREATE TABLE kinds ("
        'id BIGINT PRIMARY KEY, flag BOOL, amount price, ratio FLOAT8, day DATE, at TIMESTAMPTZ, "Local" TIMESTAMP, '
        "raw BYTEA, tags TEXT[], code UUID, doc JSONB, feeling mood, spare INT)"
    )
    columns = (
        "id BIGINT, flag BOOLEAN, amount DECIMAL(12,2), ratio DOUBLE, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, "
        "raw BINARY, tags ARRAY<STRING>, code STRING, doc STRING, feeling STRING"
    )
    shop.declare("kinds", columns)
    values = (
        "true, 12.5, 0.1, '2026-11-26', '2026-11-26 12:00:00.123456+02', '2026-11-26 12:00:00', '\\x00ff', "
        "ARRAY['a', NULL, 'x,\"y\"\\'], 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"b\": 1}', 'glad', 7"
    )
    shop.sql(f"INSERT INTO kinds VALUES (1, {values}), (2{', NULL' * 12})")
    refreshed(lab)
    shop.sql(f"INSERT INTO kinds VALUES (3, {values}), (4{', NULL' * 12})")
    refreshed(lab)
    rows = sorted(lab.rows("feed"), key=lambda row: row["id"])

    expected = {
        "flag": True, "amount": Decimal("12.50"), "ratio": 0.1, "day": date(2026, 11, 26),
        "at": datetime(2026, 11, 26, 10, 0, 0, 123_456, UTC),
        "local": datetime(2026, 11, 26, 12, tzinfo=UTC).replace(tzinfo=None), "raw": b"\x00\xff",
        "tags": ["a", None, 'x,"y"\\'], "code": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "doc": '{"b": 1}',
        "feeling": "glad",
    }  # fmt: skip
    none = dict.fromkeys(expected)
    assert rows == [{"id": 1, **expected}, {"id": 2, **none}, {"id": 3, **expected}, {"id": 4, **none}]


def test_a_value_that_was_not_sent_or_does_not_fit_is_known_or_in_quarantine(lab, shop):
    shop.sql("CREATE TABLE customer (id BIGINT PRIMARY KEY, name TEXT, bio TEXT)")
    shop.sql("ALTER TABLE customer ALTER COLUMN bio SET STORAGE EXTERNAL")
    shop.declare("customer", f"{COLUMNS}, unsent ARRAY<STRING> METADATA FROM 'unsent', {FACTS}")
    follow(lab)
    shop.sql("INSERT INTO customer VALUES (1, 'a', repeat('x', 5000)), (99999999999, 'far', NULL)")
    refreshed(lab, "whole")
    shop.sql("UPDATE customer SET name = 'b' WHERE id = 1")
    shop.sql("UPDATE customer SET name = 'c' WHERE id = 1")
    # The value of another key is not known.
    shop.sql("INSERT INTO customer VALUES (2, 'a', repeat('y', 5000)); UPDATE customer SET id = 3 WHERE id = 2")
    refreshed(lab, "whole")

    newest = [row for row in sorted(lab.rows("feed"), key=lambda row: row["n"]) if row["op"] == "u"]
    assert [(row["name"], row["bio"], row["unsent"]) for row in newest] == [
        ("b", "x" * 5000, ["bio"]), ("c", "x" * 5000, ["bio"]),
    ]  # fmt: skip
    assert lab.rows("whole") == [{"id": 1, "name": "c", "bio": "x" * 5000}]
    rejected = [(row["error"], row["file"], row["line"]) for row in lab.quarantine("feed")]
    assert rejected == [("VALUE_CHANGED(id)", "public.customer", 1), ("VALUE_UNKNOWN", "public.customer", 6)]
    assert b'"name": "far"' in bytes(lab.quarantine("feed")[0]["raw"])


def test_a_value_that_was_not_sent_is_unknown_while_its_newest_one_is_in_quarantine(lab, shop):
    customers(shop, max_record_bytes="4000")
    follow(lab)
    shop.sql("INSERT INTO customer SELECT n, 'a', repeat('o', 3000) FROM generate_series(1, 3) AS n")
    refreshed(lab, "whole")
    shop.sql("UPDATE customer SET bio = repeat('n', 5000) WHERE id IN (1, 2)")
    shop.sql("UPDATE customer SET name = 'b' WHERE id = 1")
    refreshed(lab, "whole")
    shop.sql("UPDATE customer SET name = 'b' WHERE id IN (2, 3)")
    refreshed(lab, "whole")
    assert [row["error"] for row in lab.quarantine("feed")].count("VALUE_UNKNOWN") == 2
    # Before, the rows had values that the database never had together.
    assert {row["id"]: (row["name"], row["bio"][0]) for row in lab.rows("whole")} == {
        1: ("a", "o"), 2: ("a", "o"), 3: ("b", "o"),
    }  # fmt: skip
    shop.sql("UPDATE customer SET bio = repeat('z', 3000) WHERE id = 1; UPDATE customer SET name = 'c' WHERE id = 1")
    # The key of another row, whose large value was sent under the key before.
    shop.sql("TRUNCATE customer; INSERT INTO customer VALUES (7, 'a', repeat('q', 3000))")
    shop.sql("UPDATE customer SET id = 3 WHERE id = 7")
    refreshed(lab, "whole")
    assert [row["error"] for row in lab.quarantine("feed")].count("VALUE_UNKNOWN") == 3
    assert lab.rows("whole") == []
    assert lab.verify("whole").equal


def test_a_transaction_is_in_one_commit_whatever_the_size_of_a_batch(lab, shop, monkeypatch):
    monkeypatch.setattr(reader_module, "BATCH_MESSAGES", 5)
    customers(shop, columns=f"{COLUMNS}, {FACTS}")
    refreshed(lab)
    with psycopg.connect(shop.url) as other:
        other.execute("INSERT INTO customer SELECT n, 'open', NULL FROM generate_series(100, 103) AS n")
        for number in range(3):
            shop.sql(f"INSERT INTO customer SELECT n + {number * 10}, 'a', NULL FROM generate_series(1, 4) AS n")
        outcome = refreshed(lab)
    # Behind the last of them there may be something that is of no table, which is a commit of its own.
    assert (outcome.rows_out, lab.receipt("feed").seq in (4, 5)) == (12, True)
    outcome = refreshed(lab)

    assert outcome.rows_out == 4
    batches: dict[str, list[int]] = {}
    for row in open_table(lab.path("feed")).to_pyarrow_table().to_pylist():
        batches.setdefault(row["_freshline_transaction"], []).append(row["_freshline_seq"])
    assert [(len(set(seqs)), len(seqs)) for seqs in batches.values()] == [(1, 4)] * 4
    assert [name for _, _, name in events(lab)][-4:] == ["open"] * 4


def test_more_rows_than_memory_takes_go_by_way_of_the_disk(lab, shop, monkeypatch):
    monkeypatch.setattr("freshline.sources.spill.MOST_ROWS", 50)
    customers(shop, columns=f"{COLUMNS}, n BIGINT METADATA FROM 'record'")
    shop.sql("INSERT INTO customer SELECT n, 'a', NULL FROM generate_series(1, 120) AS n")
    assert refreshed(lab).rows_out == 120
    shop.sql("UPDATE customer SET name = 'b'; DELETE FROM customer WHERE id > 60")
    assert refreshed(lab).rows_out == 180

    assert sorted(row["n"] for row in lab.rows("feed")) == list(range(300))
    assert not (lab.runtime.warehouse.notes / "reading" / "feed").exists()


def test_keys_that_change_places_in_a_transaction_lose_no_row(lab, shop):
    shop.sql("CREATE TABLE customer (id INT PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, name TEXT, bio TEXT)")
    shop.sql("ALTER TABLE customer REPLICA IDENTITY FULL; ALTER TABLE customer ALTER COLUMN bio SET STORAGE EXTERNAL")
    shop.declare("customer", f"{COLUMNS}, {FACTS}")
    follow(lab)
    shop.sql("INSERT INTO customer SELECT n, chr(96 + n), repeat('x', 3000) FROM generate_series(1, 3) AS n")
    refreshed(lab, "whole")

    def same():
        refreshed(lab, "whole")
        expected = shop.ask("SELECT id, name, bio FROM customer ORDER BY id")
        assert [tuple(row.values()) for row in sorted(lab.rows("whole"), key=lambda row: row["id"])] == expected

    shop.sql("UPDATE customer SET id = id + 1")
    same()
    assert [row[0] for row in events(lab)][3:] == ["d", "c", "k", "c", "k", "c"]
    shop.sql("UPDATE customer SET id = 6 - id; UPDATE customer SET id = id + 1")
    shop.sql("INSERT INTO customer VALUES (3, 'new', NULL); DELETE FROM customer WHERE id = 3 AND name <> 'new'")
    same()
    # Through the key of another row and back, and equal rows.
    shop.sql(
        "UPDATE customer SET name = 'a', bio = NULL; UPDATE customer SET id = id + 1; UPDATE customer SET id = id - 1"
    )
    same()
    shop.sql(
        "TRUNCATE customer; INSERT INTO customer VALUES (1, 'a', NULL), (1, 'b', NULL); "
        "DELETE FROM customer WHERE name = 'a'"
    )
    same()
    assert lab.verify("whole").equal


# -- stops and losses

POINTS = ("slot-before-made", "slot-made", "log-before-commit", "log-after-commit", "slot-before-advanced")


def test_stopped_at_each_point_it_loses_and_repeats_nothing(lab, shop):
    customers(shop)
    shop.sql("INSERT INTO customer VALUES (1, 'a', NULL)")
    for point in POINTS[:3]:
        crash(lab, point, "feed", lose_control_store=point == "slot-made")
        shop.sql(f"INSERT INTO customer VALUES ({10 + POINTS.index(point)}, 'a', NULL)")
    crash(lab, "slot-before-advanced", "feed", lose_control_store=True)
    for number, point in enumerate(POINTS[2:], 20):
        shop.sql(f"INSERT INTO customer VALUES ({number}, 'a', NULL)")
        crash(lab, point, "feed", lose_control_store=number == 21)
    assert refreshed(lab).strategy == "noop"

    assert sorted(row["id"] for row in lab.rows("feed")) == [1, 10, 11, 12, 20, 21, 22]


def test_a_lost_slot_is_an_error_until_it_is_accepted_and_then_the_table_is_as_the_database(lab, shop):
    customers(shop, columns=f"{COLUMNS}, {FACTS}")
    follow(lab)
    shop.sql("INSERT INTO customer VALUES (1, 'same', NULL), (2, 'old', 'x'), (3, 'gone', NULL)")
    refreshed(lab, "whole")
    shop.sql(f"SELECT pg_drop_replication_slot('{shop.slot}')")
    shop.sql("DELETE FROM customer WHERE id = 3; UPDATE customer SET name = 'new' WHERE id = 2")
    shop.sql("INSERT INTO customer VALUES (4, 'late', NULL)")
    error = lab.refresh("feed").error

    assert (error.code, error.retry_helps) == ("SLOT_LOST", False)
    assert "assets/declared.sql:1" in error.where or "feed.sql:1" in error.where
    accepted = f"{shop.slot}@{lsn_text(position(lab).lsn)}"
    assert f"'accept-slot' = '{accepted}'" in str(error)
    assert len(lab.rows("feed")) == 3

    shop.declare("customer", f"{COLUMNS}, {FACTS}", accept_slot=accepted)
    # A new snapshot that is half done is not taken for done.
    crash(lab, "log-before-commit", "feed")
    refreshed(lab, "whole")
    assert events(lab)[3:] == [("r", 2, "new"), ("r", 4, "late"), ("d", 3, None)]
    assert [(row["id"], row["name"]) for row in lab.rows("whole")] == [(1, "same"), (2, "new"), (4, "late")]
    shop.sql("INSERT INTO customer VALUES (5, 'after', NULL)")
    refreshed(lab, "whole")
    assert [row["id"] for row in lab.rows("whole")] == [1, 2, 4, 5]
    # The clause stays in the declaration, and accepts nothing else.
    shop.sql(f"SELECT pg_drop_replication_slot('{shop.slot}')")
    assert lab.refresh("feed").error.code == "SLOT_LOST"


def test_another_table_database_or_reader_is_not_read_on(lab, shop, postgres, monkeypatch):
    customers(shop)
    refreshed(lab)
    shop.sql("INSERT INTO customer VALUES (1, 'a', NULL)")
    shop.sql(f"SELECT count(*) FROM pg_logical_slot_get_binary_changes('{shop.slot}', NULL, NULL, "
             f"'proto_version', '1', 'publication_names', '{shop.slot}')")  # fmt: skip
    assert "somebody else read it" in str(lab.refresh("feed").error)

    other = Shop(lab, postgres)
    other.sql("CREATE TABLE customer (id INT PRIMARY KEY, name TEXT, bio TEXT)")
    monkeypatch.setenv("SHOP_URL", other.url)
    error = lab.refresh("feed").error
    assert (error.code, f"the database is {other.name}, and {shop.name} was read" in str(error)) == ("SLOT_LOST", True)
    monkeypatch.setenv("SHOP_URL", shop.url)
    shop.sql("DROP TABLE customer; CREATE TABLE customer (id INT PRIMARY KEY, name TEXT, bio TEXT)")
    assert "it was made anew" in str(lab.refresh("feed").error)
    other.close()


def test_a_slot_of_somebody_else_is_left_alone(lab, shop):
    customers(shop)
    shop.sql(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')")
    error = lab.refresh("feed").error

    assert (error.code, error.retry_helps) == ("SLOT_FOREIGN", False)
    assert shop.confirmed() is not None
    shop.sql(f"SELECT pg_drop_replication_slot('{shop.slot}')")
    refreshed(lab)


# -- the server


@pytest.mark.security
def test_a_wrong_connection_is_reported_without_its_secret(lab, shop, postgres, monkeypatch):
    customers(shop)
    host = f"host={postgres.folder}"
    wrong = {
        "REFERENCE": None,
        "not a connection": "hunter2 is the secret",
        "no database": f"postgresql://freshline:hunter2@/nothing?{host}",
        "no user": f"postgresql://nobody:hunter2@/{shop.name}?{host}",
    }
    for case, url in wrong.items():
        if url is None:
            monkeypatch.delenv("SHOP_URL")
        else:
            monkeypatch.setenv("SHOP_URL", url)
        error = lab.refresh("feed").error
        assert error.code == ("SOURCE" if url is None else "DATABASE_REFUSED"), case
        assert "hunter2" not in f"{error} {error.as_json()}", case
    monkeypatch.setenv("SHOP_URL", f"postgresql://freshline:hunter2@localhost:1/{shop.name}")
    error = lab.refresh("feed").error
    assert (error.code, error.retry_helps) == ("DATABASE", True)
    assert "hunter2" not in str(error)


@pytest.mark.security
def test_a_password_that_is_wrong_is_not_tried_again(lab, shop, postgres, monkeypatch):
    customers(shop)
    shop.sql("CREATE USER guarded PASSWORD 'right'")
    with postgres.passwords_for("guarded"):
        monkeypatch.setenv("SHOP_URL", f"postgresql://guarded:hunter2@/{shop.name}?host={postgres.folder}")
        error = lab.refresh("feed").error
        assert (error.code, error.retry_helps) == ("DATABASE_REFUSED", False)
        assert "hunter2" not in str(error)
        monkeypatch.setenv("SHOP_URL", f"postgresql://guarded:right@/{shop.name}?host={postgres.folder}")
        assert "GRANT SELECT ON public.customer" in str(lab.refresh("feed").error)
        shop.sql("GRANT SELECT ON customer TO guarded")
        # The user may not make the publication, and then not the slot.
        error = lab.refresh("feed").error
        assert (error.code, "CREATE PUBLICATION" in str(error)) == ("PUBLICATION", True)
        shop.sql(f"CREATE PUBLICATION {shop.slot} FOR TABLE customer")
        assert lab.refresh("feed").error.code == "DATABASE_REFUSED"
        shop.sql("ALTER USER guarded REPLICATION; GRANT CREATE ON SCHEMA public TO guarded")
        refreshed(lab)
        monkeypatch.setenv("SHOP_URL", shop.url)
        assert refreshed(lab).strategy == "noop"


def test_a_server_that_starts_again_is_read_on(lab, shop, postgres):
    customers(shop)
    refreshed(lab)
    shop.sql("INSERT INTO customer VALUES (1, 'a', NULL)")
    postgres.stop()
    error = lab.refresh("feed").error
    assert (error.code, error.retry_helps) == ("DATABASE", True)
    postgres.start()
    shop.forget()

    assert refreshed(lab).rows_out == 1
    shop.sql("INSERT INTO customer VALUES (2, 'a', NULL)")
    assert refreshed(lab).rows_out == 1
    assert [row["id"] for row in lab.rows("feed")] == [1, 2]


def test_changes_of_other_tables_do_not_keep_the_database_from_forgetting(lab, shop, monkeypatch):
    monkeypatch.setattr(reader_module, "IDLE_BYTES", 200_000)
    customers(shop)
    refreshed(lab)
    before = position(lab)
    shop.sql("CREATE TABLE other AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 1000)")
    # Not each check is a commit.
    assert refreshed(lab).strategy == "noop"
    lab.clock.advance(minutes=2)
    outcome = refreshed(lab)

    assert (outcome.strategy, outcome.rows_out) == ("append", 0)
    assert position(lab).lsn >= before.lsn + 200_000
    assert shop.confirmed() == lsn_text(position(lab).lsn)
    shop.sql("INSERT INTO customer VALUES (1, 'a', NULL)")
    assert refreshed(lab).rows_out == 1


def test_partitions_count_as_their_table(lab, shop):
    shop.sql("CREATE TABLE part (id INT PRIMARY KEY, name TEXT, bio TEXT) PARTITION BY RANGE (id)")
    shop.sql("CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (1) TO (10)")
    shop.sql("CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (10) TO (20)")
    shop.sql("INSERT INTO part VALUES (1, 'a', NULL)")
    shop.declare("part", f"{COLUMNS}, {FACTS}")
    refreshed(lab)
    shop.sql("INSERT INTO part VALUES (11, 'b', NULL); UPDATE part SET id = 12 WHERE id = 1")
    refreshed(lab)

    assert events(lab) == [("r", 1, "a"), ("c", 11, "b"), ("d", 1, None), ("c", 12, "a")]


# -- random changes


@pytest.mark.parametrize("seeds", few_or_many(range(1), range(1, 40)))
def test_random_changes_give_the_rows_of_the_database_at_the_position_in_the_receipt(lab, shop, seeds, monkeypatch):
    for seed in seeds:
        chance = random.Random(seed)
        monkeypatch.setattr(reader_module, "BATCH_MESSAGES", chance.choice([3, 10, 1_000]))
        table, name = ChangingTable(chance, shop.url, f"thing_{seed}"), f"feed{seed}"
        shop.declare(
            f"thing_{seed}",
            "id INT, name STRING, score DECIMAL(8,2), bio STRING",
            name=name,
            slot=f"{shop.slot}_{seed}",
        )
        follow(lab, f"SELECT id, name, score, bio FROM {name}", name=f"whole{seed}")
        try:
            table.transactions(chance.randint(0, 5))
            table.settle()
            for round_ in range(4):
                points = (*POINTS, "table-before-commit")
                refresh_through_crash(lab, f"whole{seed}", chance, points, share=0.5, case=(seed, round_))
                (at,) = lab.receipt(name).positions.values()
                found = {row.pop("id"): tuple(row.values()) for row in lab.rows(f"whole{seed}")}
                assert found == table.rows(at.lsn), (seed, round_)
                table.transactions(chance.randint(1, 6))
                lab.clock.advance(minutes=1)
            assert lab.verify(f"whole{seed}").equal
            assert lab.quarantine(name) == []
        finally:
            table.settle()
            table.close()
