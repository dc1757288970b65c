"""The Lab does what its documentation says."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

import freshline
from freshline.errors import DeclarationError, RequestError


def test_the_snippet_of_the_documentation_works_as_it_is_typed(lab):
    lab.source("orders", "order_id BIGINT, customer STRING, amount DECIMAL(10,2)", primary_key=["order_id"])
    lab.sql("INSERT INTO orders VALUES (1, 'a', 5.00)")
    lab.declare(
        "CREATE MATERIALIZED TABLE spend (PRIMARY KEY (customer)) FRESHNESS = INTERVAL '5' MINUTE "
        "AS SELECT customer, sum(amount) AS s FROM orders GROUP BY customer"
    )
    outcome = lab.refresh("spend")
    assert lab.diff("spend") == []
    assert lab.rows("spend") == [{"customer": "a", "s": Decimal("5.00")}]
    assert (outcome.strategy, outcome.version, outcome.rows_in, outcome.rows_out) == ("full", 1, 1, 1)
    lab.clock.advance(minutes=5)
    assert [outcome.table.name for outcome in lab.tick()] == ["orders", "spend"]


def test_sources_are_written_by_their_names_and_queries_return_rows(lab):
    lab.source("sales.orders", "id INT, n INT")
    lab.sql("INSERT INTO sales.orders VALUES (1, 1), (2, 2), (3, 3)")
    lab.sql("UPDATE sales.orders SET n = 20 WHERE sales.orders.id = 2")
    lab.sql("DELETE FROM sales.orders WHERE id = 1")
    lab.sql(
        "MERGE INTO sales.orders t USING (SELECT 3 AS id, 30 AS n UNION ALL SELECT 4, 40) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT *"
    )

    assert lab.sql("SELECT id, n FROM sales.orders ORDER BY id") == [
        {"id": 2, "n": 20},
        {"id": 3, "n": 30},
        {"id": 4, "n": 40},
    ]


def test_a_difference_comes_with_its_sign(lab):
    lab.source("s", "id INT, n INT")
    lab.sql("INSERT INTO s VALUES (1, 1), (2, 2)")
    lab.declare("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS SELECT id, n FROM s")
    lab.refresh("t")
    lab.runtime.sessions.root.sql(f"UPDATE delta.`{lab.path('t')}` SET n = 9 WHERE id = 2")

    assert lab.diff("t") == [("+", {"id": 2, "n": 9}), ("-", {"id": 2, "n": 2})]


def test_a_declaration_that_is_refused_leaves_the_lab_as_it_was(lab):
    lab.source("s", "id INT")
    lab.declare("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM s")

    with pytest.raises(DeclarationError, match="assets/t.sql"):
        lab.declare("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS SELECT nothing FROM s")

    assert lab.refresh("t").state == "SUCCEEDED"


def test_rows_of_a_table_that_was_never_refreshed_are_an_error(lab):
    lab.source("s", "id INT")
    lab.declare("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM s")

    with pytest.raises(RequestError, match="no version yet"):
        lab.rows("t")


def test_a_check_that_finds_nothing_new_is_handed_on_to_what_reads_the_table(lab):
    lab.source("s", "id INT")
    lab.sql("INSERT INTO s VALUES (1)")
    lab.declare("CREATE MATERIALIZED TABLE a FRESHNESS = INTERVAL '5' MINUTE AS SELECT id FROM s")
    lab.declare("CREATE MATERIALIZED TABLE b FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM a")
    lab.refresh_all()
    now = lab.clock.advance(minutes=10)

    due = lab.tick()

    assert [(outcome.table.name, outcome.strategy) for outcome in due] == [("s", "noop"), ("a", "noop")]
    assert {status.table.name: status.lag_seconds for status in lab.status()} == {"s": 0.0, "a": 0.0, "b": 0.0}
    assert lab.refresh("b").data_timestamp == now
    assert lab.receipt("b").data_timestamp == now - timedelta(minutes=10)


def test_a_tick_follows_freshnesses_and_suspensions_by_the_clock(lab):
    lab.source("s", "id INT")
    lab.sql("INSERT INTO s VALUES (1)")
    lab.declare("CREATE MATERIALIZED TABLE a FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM s")
    lab.refresh_all()
    manage = {"project": lab.settings, "clock": lab.clock}
    freshline.set_freshness("a", "5 minutes", for_="30 minutes", **manage)
    freshline.suspend("a", for_="10 minutes", **manage)

    lab.clock.advance(minutes=8)
    assert [outcome.table.name for outcome in lab.tick()] == ["s"]
    lab.clock.advance(minutes=8)
    assert [outcome.table.name for outcome in lab.tick()] == ["s", "a"]
    lab.clock.advance(minutes=20)
    assert lab.tick() == []
    assert {status.table.name: status.freshness_seconds for status in lab.status()}["a"] == 3600


def test_the_clock_does_not_go_back(lab):
    with pytest.raises(ValueError, match="forward"):
        lab.clock.advance(minutes=-1)
