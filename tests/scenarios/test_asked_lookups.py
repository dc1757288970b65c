"""Sources that are asked by key: each key once, answers kept, and the same rows whenever they are computed again."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from freshline.errors import LookupAnswerError, LookupAwayError
from freshline.refresh.answers import store_of
from freshline.run import maintain_table
from freshline.testing import Crash
from freshline.values.names import TableName
from tests.crashes import refresh_by
from tests.databases import Database
from tests.scenarios.shop import wait_until
from tests.scenarios.tables import declare, fill
from tests.services import running_service

LOOKUP = "FOR SYSTEM_TIME AS OF PROCTIME()"
QUERY = f"SELECT o.id, o.customer, c.name, c.score FROM o LEFT JOIN customer {LOOKUP} AS c ON o.customer = c.id"


@pytest.fixture
def service():
    with running_service(rows={"1": {"name": "A", "score": 1.5}, "2": {"name": "B", "score": 2}}) as running:
        yield running


def customer(lab, service, columns="id INT, name STRING, score DECIMAL(10,2)", **options):
    given = {"connector": "http", "lookup": "true", "url": f"{service.url}/customers/{{id}}"}
    given |= {name.replace("_", "-").replace("--", "."): text for name, text in options.items()}
    pairs = ", ".join(f"'{name}' = '{text}'" for name, text in given.items())
    lab.declare(f"CREATE SOURCE customer ({columns}, PRIMARY KEY (id)) WITH ({pairs})")


@pytest.fixture
def orders(lab, service):
    fill(lab, "o", "id INT, customer INT", "(1, 1), (2, 2), (3, 1), (4, 9), (5, NULL)")
    customer(lab, service)
    return lab


def refreshed(lab, name="t", **asked):
    outcome = lab.refresh(name, **asked)
    assert outcome.error is None, outcome.error
    return outcome


def names(lab, name="t"):
    return [(row["id"], row["name"]) for row in lab.rows(name)]


def answers(lab):
    path = lab.runtime.warehouse.answers(next(n for n in lab.runtime.graph.order if str(n) == "customer"))
    return lab.runtime.spark.read.format("delta").load(str(path)).collect()


def test_each_key_is_asked_once_and_null_is_not_asked(orders, service):
    declare(orders, QUERY)

    assert refreshed(orders).strategy == "full"
    assert names(orders) == [(1, "A"), (2, "B"), (3, "A"), (4, None), (5, None)]
    assert service.asked == {"1": 1, "2": 1, "9": 1}
    assert orders.verify("t").equal
    assert refreshed(orders).strategy == "noop"
    assert service.requests == 3
    assert sorted((row["id"], row["found"]) for row in answers(orders)) == [(1, True), (2, True), (9, False)]


def test_new_rows_ask_anew_and_what_is_stored_keeps_its_answer(orders, service):
    declare(orders, QUERY)
    refreshed(orders)
    service.rows["1"] = {"name": "new", "score": 3}
    orders.sql("INSERT INTO o VALUES (6, 1)")

    assert refreshed(orders).strategy == "append"
    assert names(orders)[0] == (1, "A")
    assert names(orders)[-1] == (6, "new")
    assert service.asked["1"] == 2
    assert orders.verify("t").equal
    assert service.requests == 4


def test_full_and_verify_give_each_row_the_answer_that_it_had_and_ask_nobody(orders, service):
    declare(orders, QUERY)
    refreshed(orders)
    service.rows["1"] = {"name": "new", "score": 3}
    orders.sql("INSERT INTO o VALUES (6, 1)")
    refreshed(orders)
    service.rows |= {"1": {"name": "newer", "score": 4}, "7": {"name": "seven", "score": 7}}
    before, asked = orders.rows("t"), service.requests

    assert refreshed(orders, full=True).strategy == "full"
    assert orders.rows("t") == before
    assert service.requests == asked
    assert orders.verify("t").equal
    # A full refresh brings in what is new too, and asks for that alone.
    orders.sql("INSERT INTO o VALUES (7, 7)")
    assert refreshed(orders, full=True).strategy == "full"
    assert names(orders)[:7] == [*((row["id"], row["name"]) for row in before), (7, "seven")]
    assert service.requests == asked + 1
    assert orders.verify("t").equal
    refreshed(orders, full=True)
    assert orders.verify("t").equal
    assert service.requests == asked + 1


def test_updated_rows_are_asked_for_anew_and_all_others_are_not(orders, service):
    declare(orders, QUERY)
    refreshed(orders)
    service.rows["1"] = {"name": "new", "score": 3}
    orders.sql("UPDATE o SET customer = 1 WHERE id = 2")
    orders.sql("DELETE FROM o WHERE id = 4")

    assert refreshed(orders).strategy == "keys"
    assert names(orders) == [(1, "A"), (2, "new"), (3, "A"), (5, None)]
    assert service.asked == {"1": 2, "2": 1, "9": 1}
    assert orders.verify("t").equal
    before = orders.rows("t")
    refreshed(orders, full=True)
    assert orders.rows("t") == before
    assert service.requests == 4


def test_an_answer_serves_new_rows_of_all_tables_for_as_long_as_declared(orders, service):
    customer(orders, service, lookup__cache_ttl="10 minutes")
    declare(orders, QUERY)
    declare(orders, QUERY.replace("LEFT ", ""), name="u")
    refreshed(orders)
    refreshed(orders, "u")
    orders.sql("INSERT INTO o VALUES (6, 1), (7, 9)")
    service.rows |= {"1": {"name": "new", "score": 3}, "9": {"name": "nine", "score": 9}}

    refreshed(orders)
    assert names(orders)[5:] == [(6, "A"), (7, None)]
    assert service.requests == 3
    orders.clock.advance(minutes=11)
    orders.sql("INSERT INTO o VALUES (8, 1)")
    refreshed(orders)
    assert names(orders)[5:] == [(6, "A"), (7, None), (8, "new")]
    # The second table lags, and has the answers of now for all that is new to it.
    refreshed(orders, "u")
    assert names(orders, "u") == [(1, "A"), (2, "B"), (3, "A"), (6, "new"), (7, "nine"), (8, "new")]
    assert service.asked == {"1": 2, "2": 1, "9": 2}
    assert orders.verify("t").equal
    assert orders.verify("u").equal


@pytest.mark.parametrize("point", ["lookup-answered", "lookup-before-commit", "lookup-after-commit", "lookup-arrived"])
def test_a_refresh_that_was_stopped_finds_the_answers_that_had_arrived(orders, service, point):
    declare(orders, QUERY)
    with pytest.raises(Crash), orders.crash_at(point):
        orders.refresh("t")
    asked = service.asked.copy()
    orders.restart()
    refreshed(orders)

    assert names(orders) == [(1, "A"), (2, "B"), (3, "A"), (4, None), (5, None)]
    assert max(asked.values()) == max(service.asked.values()) == 1
    assert len(answers(orders)) == 3
    assert orders.verify("t").equal


def test_a_table_of_a_database_is_asked_in_batches_and_joined(lab, postgres, monkeypatch):
    shop = Database(postgres)
    shop.sql("CREATE TABLE c AS SELECT n AS id, 'name ' || n AS name FROM generate_series(1, 1000) AS n")
    monkeypatch.setenv("SHOP_URL", shop.url)
    lab.declare(
        "CREATE SOURCE c (id INT, name STRING, PRIMARY KEY (id)) WITH ('connector' = 'jdbc', 'lookup' = 'true', "
        "'url' = '${env:SHOP_URL}', 'table' = 'c')"
    )
    fill(lab, "o", "id INT, customer INT", "SELECT id, CAST(id + 500 AS INT) FROM range(1000)")
    declare(lab, f"SELECT o.id, c.name FROM o LEFT JOIN c {LOOKUP} AS c ON c.id = o.customer")
    refreshed(lab)
    shop.sql("DROP TABLE c")
    rows = names(lab)

    assert rows[0] == (0, "name 500")
    assert [name for _, name in rows].count(None) == 499
    assert lab.verify("t").equal
    assert refreshed(lab, full=True).strategy == "full"
    assert names(lab) == rows
    shop.close()


def test_a_service_that_stays_away_fails_the_refresh_and_keeps_the_answers_that_came(orders, service):
    service.bodies = {"2": b'{"name": 7}'}
    customer(orders, service, lookup__concurrency="1")
    declare(orders, QUERY)
    error = orders.refresh("t").error

    assert isinstance(error, LookupAnswerError)
    assert error.key == {"id": 2}
    assert "assets/" in str(error)
    service.bodies, service.always = {}, (503, {})
    asked = service.asked.copy()
    failed = orders.refresh("t").error
    assert isinstance(failed, LookupAwayError)
    assert failed.retry_helps
    service.always = None
    refreshed(orders)
    # Whatever had an answer was asked for once.
    assert all(service.asked[key] == 1 for key in asked if key != "2" and service.asked[key] < 5)
    assert orders.verify("t").equal


def test_with_null_a_row_without_an_answer_is_joined_with_nothing_until_it_is_retried(orders, service):
    service.bodies = {"2": b'{"name": 7}'}
    customer(orders, service, lookup__on_error="null")
    declare(orders, QUERY)
    declare(
        orders,
        QUERY,
        "WITH ('lookup.retry-on-miss.attempts' = '3', 'lookup.retry-on-miss.delay' = '1 minute')",
        name="r",
    )
    refreshed(orders)
    refreshed(orders, "r")

    assert names(orders) == [(1, "A"), (2, None), (3, "A"), (4, None), (5, None)]
    assert names(orders, "r") == [(1, "A"), (3, "A"), (5, None)]
    service.bodies, service.rows["9"] = {}, {"name": "nine"}
    orders.clock.advance(minutes=2)
    refreshed(orders, "r")
    assert names(orders, "r") == [(1, "A"), (2, "B"), (3, "A"), (4, "nine"), (5, None)]
    assert service.asked["1"] == 2
    # The first table keeps what it found, when it is computed again too.
    refreshed(orders, full=True)
    assert names(orders) == [(1, "A"), (2, None), (3, "A"), (4, None), (5, None)]
    assert orders.verify("t").equal
    assert orders.verify("r").equal


def test_two_tables_that_are_refreshed_at_once_ask_for_a_key_once(orders, service):
    service.seconds = 0.3
    customer(orders, service, lookup__cache_ttl="1 hour")
    tables = ("t", "u")
    for name in tables:
        declare(orders, QUERY, name=name)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda name: refresh_by(orders.runtime, name), tables))

    assert [outcome.error for outcome in outcomes] == [None, None]
    assert names(orders) == names(orders, "u") == [(1, "A"), (2, "B"), (3, "A"), (4, None), (5, None)]
    assert service.asked == {"1": 1, "2": 1, "9": 1}


def test_threads_that_come_first_at_once_have_one_store_of_a_source(orders, service):
    runtime = orders.runtime
    source = runtime.graph.spec(TableName.parse("customer"))
    before, threads = sys.getswitchinterval(), 16
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            for number in range(200):
                spec, together = replace(source, name=TableName.parse(f"c{number}")), Barrier(threads)

                def found(spec=spec, together=together):
                    together.wait(10)
                    return store_of(runtime, spec)

                assert len(set(map(id, [each.result() for each in [pool.submit(found) for _ in range(threads)]]))) == 1
    finally:
        sys.setswitchinterval(before)


def test_a_source_that_is_declared_anew_while_it_is_asked_has_the_answers_of_both(orders, service):
    service.seconds = 0.5
    customer(orders, service, lookup__cache_ttl="1 hour")
    declare(orders, QUERY)
    declare(orders, QUERY, name="u")
    runtime = orders.runtime
    old = runtime.graph.spec(TableName.parse("customer"))
    new = replace(old, connection=replace(old.connection, lookup_concurrency=2))
    assert store_of(runtime, old).position().seq == 1
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(refresh_by, runtime, "t")
        wait_until(lambda: service.requests > 0, "the service is asked", 60)
        # The store of the new declaration has nothing to do before the old one has committed.
        assert store_of(runtime, new).position().seq == 2
        assert first.result().error is None
    assert names(orders) == [(1, "A"), (2, "B"), (3, "A"), (4, None), (5, None)]
    assert service.asked == {"1": 1, "2": 1, "9": 1}


def test_a_lookup_may_decide_the_key_of_the_next(orders, service):
    service.rows |= {"1": {"name": "A", "score": 1, "boss": 2}, "2": {"name": "B", "score": 2, "boss": 3}}
    service.rows["3"] = {"name": "C", "score": 3}
    customer(orders, service, "id INT, name STRING, boss INT")
    declare(
        orders,
        f"SELECT o.id, c.name AS own, d.name FROM o LEFT JOIN customer {LOOKUP} AS c ON o.customer = c.id "
        f"LEFT JOIN customer {LOOKUP} AS d ON d.id = c.boss",
    )
    refreshed(orders)

    assert names(orders) == [(1, "B"), (2, "C"), (3, "B"), (4, None), (5, None)]
    assert set(service.asked.values()) == {1}
    assert orders.verify("t").equal


def test_a_changed_declaration_asks_anew_and_stored_rows_keep_their_answer(orders, service):
    customer(orders, service, lookup__cache_ttl="1 hour")
    declare(orders, QUERY)
    refreshed(orders)
    customer(orders, service, "id INT, name STRING, score DECIMAL(10,2), city STRING", lookup__cache_ttl="1 hour")
    service.rows["1"] = {"name": "new", "score": 1, "city": "Ulm"}
    declare(orders, QUERY.replace("c.score", "c.city"), name="u")
    orders.sql("INSERT INTO o VALUES (6, 1)")
    refreshed(orders)
    refreshed(orders, "u")

    assert names(orders) == [(1, "A"), (2, "B"), (3, "A"), (4, None), (5, None), (6, "new")]
    assert [row["city"] for row in orders.rows("u")] == ["Ulm", None, "Ulm", None, None, "Ulm"]
    assert orders.verify("t").equal
    assert orders.verify("u").equal
    customer(orders, service, "id INT, name STRING, score STRING, city STRING")
    assert "Give the column another name" in str(orders.refresh("customer").error)


def test_a_restored_table_keeps_its_answers_and_asks_for_what_is_new(orders, service):
    declare(orders, QUERY)
    refreshed(orders)
    orders.create_savepoint("before")
    service.rows["1"] = {"name": "new", "score": 3}
    orders.sql("INSERT INTO o VALUES (6, 1)")
    refreshed(orders)
    orders.restore_savepoint("before")

    assert names(orders) == [(1, "A"), (2, "B"), (3, "A"), (4, None), (5, None)]
    assert orders.verify("t").equal
    refreshed(orders)
    assert names(orders)[5:] == [(6, "new")]
    assert orders.verify("t").equal


@pytest.mark.long
def test_answers_are_put_together_and_none_is_lost_to_retention(orders, service):
    declare(orders, QUERY)
    for number in range(10, 36):
        orders.sql(f"INSERT INTO o VALUES ({number}, 1)")
        service.rows["1"] = {"name": f"n{number}", "score": number}
        refreshed(orders)
    before = orders.rows("t")
    orders.clock.advance(days=30)
    (done,) = maintain_table(orders.runtime, TableName.parse("customer"), eager=True)

    assert done.files_after < done.files_before
    maintain_table(orders.runtime, TableName.parse("customer"), eager=True)
    assert orders.rows("t") == before
    assert orders.verify("t").equal
    refreshed(orders, full=True)
    assert orders.rows("t") == before
