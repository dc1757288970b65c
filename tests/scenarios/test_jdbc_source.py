"""Tables of a real Postgres, read by queries: what their log tables have, and the tables that follow them."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime

import pytest

from tests.crashes import crash, refresh_through_crash
from tests.databases import ChangingTable, Shop
from tests.lanes import few_or_many
from tests.mariadb import MariadbDatabase

COLUMNS = "id INT, name STRING"
FACTS = "op STRING METADATA FROM 'op', at TIMESTAMP METADATA FROM 'changed_at'"
POINTS = ("log-before-commit", "log-after-commit")


@pytest.fixture
def shop(lab, postgres, monkeypatch):
    made = Shop(lab, postgres)
    monkeypatch.setenv("SHOP_URL", made.url)
    yield made
    made.close()


def declare(lab, table="t", columns=f"{COLUMNS}, {FACTS}", *, name="feed", key="id", **options):
    given = {"url": "${env:SHOP_URL}", "table": table, "read": "snapshot", **options}
    pairs = ", ".join(f"'{option.replace('_', '-')}' = '{value}'" for option, value in given.items())
    lab.declare(f"CREATE SOURCE {name} ({columns}, PRIMARY KEY ({key})) WITH ('connector' = 'jdbc', {pairs})")


def follow(lab, query="SELECT id, name FROM feed", name="whole"):
    lab.declare(
        f"CREATE MATERIALIZED TABLE {name} (PRIMARY KEY (id)) WITH ('merge' = 'last_row', 'merge.sequence' = 'change') "
        f"FRESHNESS = INTERVAL '1' HOUR AS {query}"
    )


def refreshed(lab, name="feed"):
    outcome = lab.refresh(name)
    assert outcome.error is None, outcome.error
    assert outcome.problems == ()
    return outcome


def new_events(lab, seen):
    """The events behind the first ones, without their order within a batch."""
    rows = [(row["op"], row["id"], row["name"]) for row in lab.rows("feed")]
    for event in seen:
        rows.remove(event)
    seen += rows
    return sorted(rows, key=str)


@pytest.mark.long
def test_a_whole_table_becomes_net_changes(lab, shop):
    shop.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT, n INT)")
    shop.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    declare(lab)
    follow(lab)
    seen: list[tuple[object, ...]] = []
    first = refreshed(lab, "whole")
    assert (first.rows_out, new_events(lab, seen)) == (3, [("r", 1, "a"), ("r", 2, "b"), ("r", 3, None)])
    assert refreshed(lab).strategy == "noop"
    shop.sql("UPDATE t SET name = 'x' WHERE id = 2; UPDATE t SET name = 'b' WHERE id = 2; UPDATE t SET n = 1")
    assert refreshed(lab).strategy == "noop"
    shop.sql("INSERT INTO t VALUES (4, 'd'), (5, 'e'); UPDATE t SET name = 'c' WHERE id = 3")
    shop.sql("DELETE FROM t WHERE id IN (1, 5)")
    outcome = refreshed(lab, "whole")

    assert outcome.strategy == "merge"
    assert new_events(lab, seen) == [("c", 4, "d"), ("d", 1, None), ("u", 3, "c")]
    assert all(row["at"] is not None for row in lab.rows("feed"))
    assert [tuple(row.values()) for row in lab.rows("whole")] == [(2, "b"), (3, "c"), (4, "d")]
    # A key that comes back is an insert again, and a table that is emptied is no longer there.
    shop.sql("TRUNCATE t; INSERT INTO t VALUES (1, 'a')")
    refreshed(lab, "whole")
    assert new_events(lab, seen) == [("c", 1, "a"), ("d", 2, None), ("d", 3, None), ("d", 4, None)]
    assert [tuple(row.values()) for row in lab.rows("whole")] == [(1, "a")]
    assert lab.verify("whole").equal


@pytest.mark.long
def test_changes_that_incremental_reading_does_not_see_are_found_when_it_is_reconciled(lab, shop):
    shop.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT, at TIMESTAMPTZ)")
    declare(lab, read="incremental", column="at", overlap="1 minute", reconcile="1 day")
    follow(lab)
    shop.sql("INSERT INTO t VALUES (1, 'a', now()), (2, 'b', now() - interval '1 hour')")
    refreshed(lab, "whole")
    seen: list[tuple[object, ...]] = []
    new_events(lab, seen)
    # Of these only the first one is seen.
    shop.sql("INSERT INTO t VALUES (3, 'c', now()); DELETE FROM t WHERE id = 2")
    shop.sql("INSERT INTO t VALUES (4, 'd', now() - interval '1 hour')")
    refreshed(lab, "whole")
    assert new_events(lab, seen) == [("c", 3, "c")]
    assert refreshed(lab).strategy == "noop"
    lab.clock.advance(days=1)
    refreshed(lab, "whole")

    assert new_events(lab, seen) == [("c", 4, "d"), ("d", 2, None)]
    assert [row["id"] for row in lab.rows("whole")] == [1, 3, 4]
    assert lab.receipt("feed").positions[lab.receipt("feed").table].reconciled_at == lab.clock().isoformat()
    assert refreshed(lab).strategy == "noop"


@pytest.mark.long
def test_stopped_at_each_point_it_loses_and_repeats_nothing(lab, shop):
    shop.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT); INSERT INTO t VALUES (99999999999, 'far')")
    declare(lab)
    for number, point in enumerate(("log-before-quarantine", "log-after-quarantine", *POINTS, *POINTS)):
        shop.sql(f"INSERT INTO t VALUES ({number}, 'a'); DELETE FROM t WHERE id = {number - 2}")
        if number > 3:
            shop.sql("UPDATE t SET name = name || '.' WHERE id > 100")
        crash(lab, point, "feed", lose_control_store=number % 2 == 1)
    follow(lab)
    refreshed(lab, "whole")

    assert [row["id"] for row in lab.rows("whole")] == [4, 5]
    assert refreshed(lab).strategy == "noop"
    # A row that cannot be read is in quarantine once for each form in which a commit found it.
    names = [json.loads(bytes(row["raw"]))["row"]["name"] for row in lab.quarantine("feed")]
    assert sorted(names) == ["far", "far.."]


@pytest.mark.long
def test_a_row_that_cannot_be_read_is_rejected_once_and_stays_as_it_was(lab, shop):
    shop.sql("CREATE TABLE t (id INT, name TEXT, amount NUMERIC); INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 'NaN')")
    shop.sql("INSERT INTO t VALUES (NULL, 'none', 0), (NULL, 'none', 0)")
    declare(lab, columns=f"{COLUMNS}, amount DECIMAL(10,2), {FACTS}")
    assert (refreshed(lab).rejected, len(lab.rows("feed"))) == (3, 1)
    codes = sorted(row["error"] for row in lab.quarantine("feed"))
    assert codes == ["NULL_KEY", "NULL_KEY", "VALUE_CHANGED(amount)"]

    def change(amount):
        shop.sql(f"UPDATE t SET amount = '{amount}' WHERE id = 1")
        outcome = refreshed(lab)
        return outcome.rejected, sorted((row["op"], str(row["amount"])) for row in lab.rows("feed"))[1:]

    assert change("NaN") == (1, [])
    assert change("2") == (0, [("u", "2.00")])
    # The same again, and it is another time that the stored row is behind.
    assert change("NaN") == (1, [("u", "2.00")])
    shop.sql("UPDATE t SET name = 'c' WHERE id = 2")
    assert refreshed(lab).rejected == 1
    shop.sql("DELETE FROM t WHERE id = 1")
    assert (refreshed(lab).rejected, {row["op"] for row in lab.rows("feed")}) == (0, {"r", "u", "d"})


@pytest.mark.long
def test_numbers_that_compare_as_equal_are_other_values(lab, shop):
    shop.sql("CREATE TABLE t (id INT PRIMARY KEY, name FLOAT8); INSERT INTO t VALUES (1, 0), (2, 'NaN'), (3, 1)")
    declare(lab, columns=f"id INT, name DOUBLE, {FACTS}")
    refreshed(lab)
    assert refreshed(lab).strategy == "noop"
    shop.sql("UPDATE t SET name = '-0' WHERE id = 1; UPDATE t SET name = 'NaN' WHERE id = 3")
    assert refreshed(lab).rows_out == 2
    newest = {row["id"]: row["name"] for row in lab.rows("feed") if row["op"] == "u"}

    assert (math.copysign(1, newest[1]), math.isnan(newest[3]), sorted(newest)) == (-1.0, True, [1, 3])


@pytest.mark.long
def test_a_key_that_names_several_rows_is_an_error(lab, shop):
    shop.sql("CREATE TABLE t (id INT, name TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (2, 'c')")
    declare(lab)
    error = lab.refresh("feed").error

    assert (error.code, error.retry_helps) == ("SOURCE_KEY", False)
    assert "PRIMARY KEY (id) names several rows of public.t, such as those of id = 2" in str(error)
    shop.sql("DELETE FROM t WHERE name = 'c'")
    assert refreshed(lab).rows_out == 2


@pytest.mark.long
def test_more_rows_than_memory_takes_go_by_way_of_the_disk(lab, shop, monkeypatch):
    monkeypatch.setattr("freshline.sources.spill.MOST_ROWS", 50)
    shop.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)")
    shop.sql("INSERT INTO t SELECT n, 'a' FROM generate_series(1, 120) AS n")
    declare(lab)
    assert refreshed(lab).rows_out == 120
    shop.sql("UPDATE t SET name = 'b' WHERE id <= 10; DELETE FROM t WHERE id > 60")
    assert refreshed(lab).rows_out == 70

    assert not (lab.runtime.warehouse.notes / "reading" / "feed").exists()


@pytest.mark.long
def test_another_database_is_read_when_it_is_accepted_and_replaces_what_was_stored(lab, shop, postgres, monkeypatch):
    shop.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    declare(lab)
    follow(lab)
    refreshed(lab, "whole")
    other = Shop(lab, postgres)
    other.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT); INSERT INTO t VALUES (2, 'B'), (3, 'c')")
    monkeypatch.setenv("SHOP_URL", other.url)
    error = lab.refresh("feed").error
    assert (error.code, error.retry_helps, len(lab.rows("feed"))) == ("DATABASE_REPLACED", False, 2)
    clause = str(error).partition("'accept-database' = '")[2].partition("'")[0]
    declare(lab, accept_database=clause)
    refreshed(lab, "whole")

    assert [tuple(row.values()) for row in lab.rows("whole")] == [(2, "B"), (3, "c")]
    assert refreshed(lab).strategy == "noop"
    other.close()


@pytest.mark.long
def test_a_declared_column_that_is_added_is_filled(lab, shop):
    shop.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT, n INT); INSERT INTO t VALUES (1, 'a', 5), (2, 'b', NULL)")
    declare(lab, read="incremental", column="id", overlap="0")
    refreshed(lab)
    declare(lab, columns=f"{COLUMNS}, n INT, {FACTS}", read="incremental", column="id", overlap="0")
    refreshed(lab)

    assert sorted((row["op"], row["id"], row["n"]) for row in lab.rows("feed") if row["op"] != "r") == [("u", 1, 5)]


@pytest.mark.parametrize("seeds", few_or_many(range(1), range(1, 40)))
def test_random_changes_give_the_rows_of_the_database(lab, shop, seeds, monkeypatch):
    for seed in seeds:
        chance = random.Random(seed)
        monkeypatch.setattr("freshline.sources.spill.MOST_ROWS", chance.choice([2, 20_000]))
        by_xmin = chance.random() < 0.5
        how = {"read": "incremental", "column": "xmin", "reconcile": "1 hour"} if by_xmin else {}
        table, name = ChangingTable(chance, shop.url, f"thing_{seed}"), f"feed{seed}"
        declare(lab, f"thing_{seed}", "id INT, name STRING, score DECIMAL(8,2), bio STRING", name=name, **how)
        follow(lab, f"SELECT id, name, score, bio FROM {name}", f"whole{seed}")
        try:
            for round_ in range(4):
                table.transactions(chance.randint(1, 6))
                is_whole = not by_xmin or round_ == 0 or chance.random() < 0.3
                lab.clock.advance(minutes=61 if is_whole else 1)
                points = (*POINTS, "table-before-commit")
                refresh_through_crash(lab, f"whole{seed}", chance, points, share=0.5, case=(seed, round_))
                found = {row.pop("id"): tuple(row.values()) for row in lab.rows(f"whole{seed}")}
                wanted = {row[0]: tuple(row[1:]) for row in shop.ask(f"SELECT id, name, score, bio FROM thing_{seed}")}
                # Rows that are gone are not seen by xmin.
                compared = found if is_whole else {key: found.get(key) for key in wanted}
                assert compared == wanted, (seed, round_, is_whole)
            assert lab.verify(f"whole{seed}").equal
            assert lab.quarantine(name) == []
        finally:
            table.settle()
            table.close()


@pytest.mark.long
def test_changed_at_is_the_time_of_reading_by_the_database(lab, shop):
    shop.sql("CREATE TABLE t (id INT PRIMARY KEY, name TEXT); INSERT INTO t VALUES (1, 'a')")
    declare(lab)
    before = datetime.now(UTC)
    refreshed(lab)
    (row,) = lab.rows("feed")

    assert before <= row["at"] <= datetime.now(UTC)


def test_a_table_of_mariadb_is_followed_with_kills(lab, mariadb, monkeypatch):
    shop = MariadbDatabase(mariadb)
    monkeypatch.setenv("SHOP_URL", shop.url)
    shop.sql("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, name TEXT, amount DECIMAL(65,30), n INT)")
    columns = f"id DECIMAL(20,0), name STRING, amount DECIMAL(38,4), {FACTS}"
    declare(lab, columns=columns, read="incremental", column="n", overlap="5", reconcile="1 hour")
    follow(lab, "SELECT id, name, amount FROM feed")
    shop.sql("INSERT INTO t VALUES (18446744073709551615, 'ü', '0.5', 1), (2, NULL, '0.00005', 2), (3, 'c', NULL, 3)")
    for number, point in enumerate(POINTS):
        shop.sql(f"INSERT INTO t VALUES ({10 + number}, 'late', 1, {4 + number})", "DELETE FROM t WHERE id = 3")
        crash(lab, point, "feed", lose_control_store=True)
    refreshed(lab, "whole")
    assert refreshed(lab).strategy == "noop"
    assert sorted(int(row["id"]) for row in lab.rows("whole")) == [10, 11, 18446744073709551615]
    shop.sql("UPDATE t SET amount = 7, n = 9 WHERE id = 2", "DELETE FROM t WHERE id = 10")
    refreshed(lab, "whole")
    assert sorted(int(row["id"]) for row in lab.rows("whole")) == [2, 10, 11, 18446744073709551615]
    lab.clock.advance(hours=1)
    refreshed(lab, "whole")

    rows = sorted(tuple(row.values()) for row in lab.rows("whole"))
    assert [(int(key), name, str(amount)) for key, name, amount in rows] == [
        (2, None, "7.0000"), (11, "late", "1.0000"), (18446744073709551615, "ü", "0.5000"),
    ]  # fmt: skip
    assert [row["error"] for row in lab.quarantine("feed")] == ["VALUE_CHANGED(amount)"]
    assert lab.verify("whole").equal
    shop.close()
