"""Rows whose lookup has no answer are in quarantine until there is one: none is lost, and none is there twice."""

from __future__ import annotations

import pytest

from freshline.report.quarantine import read_rejected
from freshline.testing import Crash
from freshline.values.names import TableName
from tests.lanes import long_but
from tests.scenarios.tables import declare, fill
from tests.scenarios.test_asked_lookups import QUERY, customer, names, refreshed
from tests.services import running_service

POINTS = ("table-before-quarantine", "table-after-quarantine", "table-before-commit", "table-after-commit")
UNFIT = b'{"name": 7}'


@pytest.fixture
def service():
    with running_service(rows={"1": {"name": "A", "score": 1.5}, "2": {"name": "B", "score": 2}}) as running:
        yield running


@pytest.fixture
def orders(lab, service):
    service.bodies = {"2": UNFIT}
    fill(lab, "o", "id INT, customer INT", "(1, 1), (2, 2), (3, 1), (4, 9), (5, NULL)")
    customer(lab, service, lookup__on_error="quarantine")
    return lab


def rejected(lab, name="t"):
    return read_rejected(lab.runtime.warehouse.quarantine(TableName.parse(name)), None)


def kept(lab, name="t"):
    return sorted(record.content for record in rejected(lab, name))


def test_a_row_without_an_answer_is_in_quarantine_until_there_is_one(orders, service):
    declare(orders, QUERY)
    outcome = refreshed(orders)

    assert (outcome.strategy, outcome.rejected) == ("full", 1)
    assert names(orders) == [(1, "A"), (3, "A"), (4, None), (5, None)]
    (record,) = rejected(orders)
    assert (record.code, record.content) == ("NO_ANSWER(customer)", '{"id":2,"customer":2}')
    assert record.reason.startswith('customer has no answer to {"id":2}: column name is string')
    assert orders.verify("t").equal
    # Nothing is asked for again at once, nor by a full refresh.
    asked = service.requests
    assert refreshed(orders).strategy == "noop"
    assert refreshed(orders, full=True).strategy == "full"
    assert (names(orders), service.requests) == ([(1, "A"), (3, "A"), (4, None), (5, None)], asked)
    # The second failure doubles the pause, and the row is in quarantine once.
    orders.clock.advance(seconds=61)
    assert refreshed(orders).reason.startswith("PARKED_ROWS")
    assert service.requests == asked + 1
    orders.clock.advance(seconds=61)
    assert refreshed(orders).strategy == "noop"
    assert len(rejected(orders)) == 1
    service.bodies = {}
    orders.clock.advance(seconds=61)
    outcome = refreshed(orders)
    assert (outcome.strategy, outcome.rows_out, outcome.rejected) == ("append", 1, 0)
    assert names(orders) == [(1, "A"), (2, "B"), (3, "A"), (4, None), (5, None)]
    assert rejected(orders) == []
    assert orders.verify("t").equal
    before = orders.rows("t")
    refreshed(orders, full=True)
    assert orders.rows("t") == before
    assert service.asked == {"1": 1, "2": 3, "9": 1}


@pytest.mark.parametrize("point", long_but(["table-after-quarantine"], POINTS))
def test_a_stop_at_each_point_loses_no_row_and_keeps_none_twice(orders, service, point):
    declare(orders, QUERY)
    with pytest.raises(Crash), orders.crash_at(point):
        orders.refresh("t")
    orders.restart()
    refreshed(orders)
    assert names(orders) == [(1, "A"), (3, "A"), (4, None), (5, None)]
    assert kept(orders) == ['{"id":2,"customer":2}']
    service.bodies = {"8": UNFIT}
    orders.sql("INSERT INTO o VALUES (8, 8)")
    with pytest.raises(Crash), orders.crash_at(point):
        orders.retry_quarantine("t")
    orders.restart()
    if point != "table-after-commit":
        # The refresh did not happen: its row waits on, and is in quarantine.
        assert names(orders) == [(1, "A"), (3, "A"), (4, None), (5, None)]
        assert orders.verify("t").equal
    orders.retry_quarantine("t")

    assert names(orders) == [(1, "A"), (2, "B"), (3, "A"), (4, None), (5, None)]
    assert kept(orders) == ['{"id":8,"customer":8}']
    assert orders.verify("t").equal


@pytest.mark.long
def test_rows_that_wait_follow_their_input_and_leave_with_it(orders, service):
    declare(orders, QUERY)
    service.bodies["7"] = UNFIT
    orders.sql("INSERT INTO o VALUES (6, 2), (7, 7)")
    refreshed(orders)
    assert kept(orders) == ['{"id":2,"customer":2}', '{"id":6,"customer":2}', '{"id":7,"customer":7}']
    orders.sql("DELETE FROM o WHERE id = 2")
    orders.sql("UPDATE o SET customer = 1 WHERE id = 7")
    orders.sql("UPDATE o SET customer = 7 WHERE id = 3")

    assert refreshed(orders).strategy == "keys"
    assert names(orders) == [(1, "A"), (4, None), (5, None), (7, "A")]
    assert kept(orders) == ['{"id":3,"customer":7}', '{"id":6,"customer":2}']
    assert orders.verify("t").equal
    service.bodies, service.rows["7"] = {}, {"name": "seven", "score": 7}
    assert orders.retry_quarantine("t").error is None
    assert names(orders) == [(1, "A"), (3, "seven"), (4, None), (5, None), (6, "B"), (7, "A")]
    assert rejected(orders) == []
    assert orders.verify("t").equal
    before = orders.rows("t")
    refreshed(orders, full=True)
    assert orders.rows("t") == before


def test_conditions_and_inner_joins_drop_no_row_that_has_no_answer_yet(orders, service):
    orders.sql("INSERT INTO o VALUES (6, 2)")
    inner = QUERY.replace("LEFT ", "") + " WHERE c.score < 10 AND o.id < 6"
    declare(orders, inner)
    refreshed(orders)

    assert names(orders) == [(1, "A"), (3, "A")]
    # The row that WHERE leaves out anyway is nobody's matter.
    assert kept(orders) == ['{"id":2,"customer":2}']
    service.bodies = {}
    orders.retry_quarantine("t")
    assert names(orders) == [(1, "A"), (2, "B"), (3, "A")]
    assert rejected(orders) == []
    assert orders.verify("t").equal


@pytest.mark.long
def test_a_service_that_is_away_fails_no_refresh_and_another_declaration_lets_the_rows_go(orders, service):
    service.always, service.bodies = (503, {"Retry-After": "600"}), {}
    customer(orders, service, lookup__on_error="quarantine", lookup__concurrency="1")
    declare(orders, QUERY, "WITH ('lookup.retry-on-miss.attempts' = '2', 'lookup.retry-on-miss.delay' = '1 minute')")
    refreshed(orders)
    assert names(orders) == [(5, None)]
    assert len(rejected(orders)) == 4
    service.always = None
    orders.retry_quarantine("t")
    # The row that found nothing waits as others do, and is no longer in quarantine.
    assert names(orders) == [(1, "A"), (2, "B"), (3, "A"), (5, None)]
    assert rejected(orders) == []
    service.bodies = {"9": UNFIT, "8": UNFIT}
    orders.sql("INSERT INTO o VALUES (8, 8)")
    orders.clock.advance(minutes=2)
    refreshed(orders)
    assert kept(orders) == ['{"id":4,"customer":9}', '{"id":8,"customer":8}']
    customer(orders, service, lookup__on_error="null")
    orders.clock.advance(minutes=2)
    refreshed(orders)
    # The first has a try left, by the other option.
    assert names(orders) == [(1, "A"), (2, "B"), (3, "A"), (5, None)]
    assert rejected(orders) == []
    orders.clock.advance(minutes=2)
    refreshed(orders)
    orders.clock.advance(minutes=2)
    refreshed(orders)
    assert names(orders) == [(1, "A"), (2, "B"), (3, "A"), (4, None), (5, None), (8, None)]
    assert orders.verify("t").equal


def test_a_savepoint_brings_rows_back_that_waited(orders, service):
    declare(orders, QUERY)
    refreshed(orders)
    orders.create_savepoint("before")
    service.bodies = {}
    orders.retry_quarantine("t")
    assert (len(names(orders)), rejected(orders)) == (5, [])
    orders.restore_savepoint("before")
    assert names(orders) == [(1, "A"), (3, "A"), (4, None), (5, None)]
    service.bodies = {"2": UNFIT}
    orders.retry_quarantine("t")
    assert kept(orders) == ['{"id":2,"customer":2}']
    assert orders.verify("t").equal
    service.bodies = {}
    orders.retry_quarantine("t")
    assert (len(names(orders)), rejected(orders)) == (5, [])
    assert orders.verify("t").equal


def test_constraints_and_lookups_share_the_quarantine(orders, service):
    orders.declare(
        "CREATE MATERIALIZED TABLE t (CONSTRAINT named EXPECT (name IS NOT NULL) ON VIOLATION QUARANTINE) "
        f"FRESHNESS = INTERVAL '1' HOUR AS {QUERY}"
    )
    assert refreshed(orders).rejected == 3
    assert names(orders) == [(1, "A"), (3, "A")]
    assert sorted(record.code for record in rejected(orders)) == [
        "CONSTRAINT(named)",
        "CONSTRAINT(named)",
        "NO_ANSWER(customer)",
    ]
    service.bodies = {}
    orders.retry_quarantine("t")
    assert names(orders) == [(1, "A"), (2, "B"), (3, "A")]
    assert {record.code for record in rejected(orders)} == {"CONSTRAINT(named)"}
    orders.sql("INSERT INTO o VALUES (6, NULL)")
    refreshed(orders)
    assert len(rejected(orders)) == 3
    assert orders.verify("t").equal
