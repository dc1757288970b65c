"""The work of a refresh is explained before anything has changed, by the same choice that a refresh makes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from freshline.errors import DeclarationErrors
from freshline.plan.explain import NO_TYPES, explain_table
from freshline.plan.price import BUDGET_SECONDS, Price, budget_of, counts, price_of
from freshline.plan.project import open_project
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State

SOURCES = {
    "orders": "CREATE SOURCE orders (id INT, cid INT, amount INT) WITH ('connector' = 'delta', 'path' = 'orders');",
    "customer": "CREATE SOURCE customer (cid INT, country STRING) WITH ('connector' = 'delta', 'path' = 'customer');",
    "visits": "CREATE SOURCE visits (id INT, ts TIMESTAMP, amount INT) WITH ('connector' = 'delta', 'path' = 'v');",
}


@pytest.fixture
def declared(settings):
    """Declare a query over two sources and give back its table, as a project reads it."""
    settings.declarations.mkdir(parents=True)
    for name, text in SOURCES.items():
        (settings.declarations / f"{name}.sql").write_text(text)

    def declare(query: str, header: str = "", types=NO_TYPES):
        text = f"CREATE MATERIALIZED TABLE t {header} FRESHNESS = INTERVAL '1' HOUR AS {query};"
        Path(settings.declarations / "t.sql").write_text(text)
        graph = open_project(settings)
        spec = graph.table(TableName.parse("t"))
        return explain_table(spec, {name: graph.columns(name) or () for name in spec.reads}, frozenset(), types)

    return declare


def test_the_span_of_time_that_is_read_is_shown(declared):
    types = {TableName.parse("visits"): {"id": "INT", "ts": "TIMESTAMP", "amount": "INT"}}
    frame = "OVER (PARTITION BY id ORDER BY ts RANGE BETWEEN INTERVAL '90' MINUTES PRECEDING AND CURRENT ROW)"
    found = declared(f"SELECT id, ts, sum(amount) {frame} AS s FROM visits", types=types)

    assert found.cases[0].keys == ("id", "ts")
    assert "    reads: visits.ts from 1 hour 30 minutes before ts to ts of affected keys\n" in str(found)
    assert found.as_json()["cases"][0]["reads"] == [
        {"input": "visits", "column": "ts", "key": "ts", "before_seconds": 5400.0, "after_seconds": 0.0}
    ]
    by_interval = "v.ts BETWEEN w.ts - INTERVAL '1' HOUR AND w.ts + INTERVAL '1' HOUR"
    found = declared(f"SELECT w.id, w.ts FROM visits v JOIN visits w ON v.id = w.id AND {by_interval}", types=types)
    assert "reads: visits.ts within 1 hour of ts of affected keys" in str(found)
    assert declared("SELECT id, count(*) AS n FROM visits GROUP BY id", types=types).cases[0].reads == ()


def test_each_kind_of_change_has_its_strategy_and_the_rest_its_reason(declared):
    found = declared("SELECT o.id, c.country FROM orders o LEFT JOIN customer c ON c.cid = o.cid")

    assert {case.change: case.strategy for case in found.cases} == {
        "rows added to orders": "append",
        "any change of orders": "keys",
        "rows added to customer": "keys",
        "any change of customer": "keys",
        "any change of all inputs": "keys",
    }
    first = found.cases[0]
    assert (first.others, first.keys) == (("keys", "full"), ("id",))
    assert "not partition: UNSUPPORTED(the table has no partitions)" in str(found)
    assert found.as_json()["cases"][2]["refused"]["append"].startswith("UNSUPPORTED(customer changed inside a join")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT window(ts, '1 hour').start AS s, count(*) AS n FROM visits GROUP BY window(ts, '1 hour')",
        "SELECT Session_Window (ts, '1 hour') AS w, amount FROM visits",
        "SELECT id, sum(amount) OVER (PARTITION BY window(ts, '1 hour')) AS s FROM visits",
        "SELECT id, rank() OVER (ORDER BY window(ts, '1 hour')) AS r FROM visits",
        "SELECT id FROM visits WHERE window(ts, '1 hour').start = (SELECT max(window(ts, '1 day').start) FROM visits)",
        "SELECT id FROM visits LIMIT hash(window(ts, '1 hour'))",
    ],
)
def test_a_time_window_is_shown_as_the_function_that_the_query_calls(declared, query):
    header = "PARTITIONED BY (s)" if " AS s" in query else ""

    shown = str(declared(query, header))

    assert "wind0w" not in shown.lower()
    assert "window(ts, '1 " in shown.lower()


def test_a_query_that_cannot_be_followed_is_full_with_its_reason(declared):
    found = declared("SELECT max(amount) - min(amount) AS m FROM orders")

    assert {case.strategy for case in found.cases} == {"full"}
    assert found.cases[0].reason.code == "HIDDEN_AGGREGATE"


def test_a_forced_delta_join_that_cannot_be_followed_is_refused_with_its_line(declared):
    query = "SELECT o.id, c.country FROM orders o LEFT JOIN customer c ON c.cid = o.cid"
    assert declared(query, "WITH ('delta-join.strategy' = 'FORCE')").cases[-1].strategy == "keys"

    with pytest.raises(DeclarationErrors) as refused:
        declared(f"{query} LIMIT 5", "WITH ('delta-join.strategy' = 'FORCE')")
    (error,) = refused.value.errors
    assert (error.rule, error.where) == ("DELTA_JOIN", "assets/t.sql:1")
    assert "LIMIT 5" in error.message


def test_a_delta_join_can_be_ruled_out(declared):
    query = "SELECT o.id, c.country FROM orders o LEFT JOIN customer c ON c.cid = o.cid"

    last = declared(query, "WITH ('delta-join.strategy' = 'NONE')").cases[-1]

    assert (last.strategy, last.reason.about) == ("full", "delta-join.strategy = NONE")


# -- prices


def record(
    strategy: str, seconds: float, rows_in: int, fingerprint: str = "f", cpu: float | None = None
) -> RefreshResult:
    from datetime import UTC, datetime

    return RefreshResult(
        table=TableName.parse("t"),
        at=datetime(2026, 1, 1, tzinfo=UTC),
        state=State.SUCCEEDED,
        strategy=strategy,
        reason="",
        seconds=seconds,
        version=1,
        fingerprint=fingerprint,
        rows_in=rows_in,
        committed=True,
        cpu_seconds=cpu,
    )


def known_price(
    strategy: str, changed: int, records: Iterable[RefreshResult], fingerprint: str, *, rows: int | None = None
) -> Price:
    """The price, where there is one."""
    price = price_of(strategy, changed, records, fingerprint, rows=rows)
    assert price is not None
    return price


def test_without_a_measurement_of_both_there_is_no_price():
    assert price_of("keys", 10, [record("full", 9, 100)], "f") is None
    assert price_of("keys", 10, [record("keys", 9, 100)], "f") is None
    assert price_of("keys", 10, [record("keys", 9, 100), record("full", 9, 100, "other")], "f") is None


def test_the_price_follows_the_newest_measurements_and_the_rows():
    records = [record("keys", 8, 100), record("keys", 80, 100), *[record("full", 30, 1000)] * 2]

    assert not known_price("keys", 100, records, "f").prefers_full
    assert known_price("keys", 100_000, records, "f").prefers_full
    assert str(price_of("keys", 100, records, "f")) == "incremental=8.0 s, full=29.4 s"


def test_the_budget_is_twice_the_cpu_seconds_of_the_newest_full_refresh_and_never_little():
    records = [record("keys", 800, 100), record("full", 30, 1000), record("full", 90, 1000)]

    assert budget_of(records, "f", cores=2, is_local=True) == 2 * 30 * 2
    assert budget_of([record("full", 1, 1000)], "f", cores=2, is_local=True) == 2 * BUDGET_SECONDS
    measured = [replace(records[1], cpu_seconds=45.0)]
    assert budget_of(measured, "f", cores=2, is_local=True) == 90
    assert budget_of(measured, "f", cores=100, is_local=False) == 2 * 30 * 100
    assert budget_of(records, "other", cores=2, is_local=True) is None


def test_a_short_full_refresh_does_not_take_the_place_of_an_incremental_one():
    assert not known_price("keys", 10, [record("keys", 4, 10), record("full", 0.4, 100)], "f").prefers_full
    assert not counts(999, 99_999)
    assert counts(1_000, 0)
    assert counts(0, 100_000)


def test_the_measurement_of_the_most_similar_size_speaks():
    records = [*[record("keys", 40, 100_000)] * 2, *[record("keys", 2, 90)] * 2, record("full", 30, 1_000_000)]

    assert known_price("keys", 100, records, "f").incremental < 3
    assert known_price("keys", 90_000, records, "f").incremental > 30


def test_one_refresh_of_a_size_is_not_taken_at_its_word_and_of_more_the_cheapest_is():
    whole = record("full", 30, 1_000_000)

    assert known_price("keys", 100, [record("keys", 40, 100), whole], "f").incremental == pytest.approx(24)
    assert known_price("keys", 100, [record("keys", 9, 100), record("keys", 40, 100), whole], "f").incremental == 9
    # Of another size only: guessed lower than what the rows would make of it.
    assert known_price("keys", 1_000, [*[record("keys", 10, 100)] * 3, whole], "f").incremental == pytest.approx(
        10 * 10**0.3 * 0.6
    )


def test_cpu_decides_where_all_that_speak_were_measured():
    whole = record("full", 30, 1_000, cpu=10)
    incremental = [record("keys", 20, 100, cpu=11), record("keys", 21, 100, cpu=12)]

    assert known_price("keys", 100, [*incremental, whole], "f").prefers_full
    assert str(price_of("keys", 100, [*incremental, whole], "f")) == "incremental=11.0 CPU-s, full=6.0 CPU-s"
    assert not known_price("keys", 100, [*incremental, record("full", 30, 1_000)], "f").prefers_full
    assert not known_price("keys", 100, [record("keys", 20, 100), *incremental, whole], "f").prefers_full


def test_a_price_that_was_not_asked_for_a_long_time_is_forgotten():
    old = [record("keys", 40, 100), record("keys", 41, 100), record("full", 30, 1_000)]

    assert known_price("keys", 100, old, "f").prefers_full
    assert not known_price("keys", 100, [*[record("full", 30, 1_000)] * 20, *old], "f").prefers_full


def test_a_full_refresh_is_expected_to_grow_with_its_inputs():
    records = [*[record("full", 10, 1_000)] * 2, record("keys", 5, 10)]

    assert known_price("keys", 10, records, "f", rows=1_000).full == 10
    assert known_price("keys", 10, records, "f", rows=3_000).full == 20


def test_a_full_refresh_that_was_done_once_is_hoped_to_be_cheaper_by_what_a_fresh_jvm_adds():
    keys = [record("keys", 3.7, 100)] * 3

    # Measured at 5 s, once, in a fresh JVM: tried again, though by that figure alone it were the dearer way.
    assert known_price("keys", 100, [*keys, record("full", 5, 1_000)], "f").prefers_full
    assert known_price("keys", 100, [*keys, record("full", 50, 1_000)], "f").full == 46
    # The time that it then takes decides.
    assert known_price("keys", 100, [record("full", 1.4, 1_000), *keys, record("full", 5, 1_000)], "f").full == 1.4
    assert not known_price("keys", 100, [*keys, *[record("full", 5, 1_000)] * 2], "f").prefers_full


def test_a_full_refresh_is_tried_again_where_it_is_not_far_from_being_the_cheaper_one():
    def prefers_full(seconds: float, full: float, times: int) -> bool:
        keys = [record("keys", seconds, 100)] * times
        return known_price("keys", 100, [*keys, *[record("full", full, 1_000)] * 2], "f").prefers_full

    assert not prefers_full(4, 5.5, 10)
    assert prefers_full(4, 5.5, 20)
    # A price of less than half of it, or more by what a fresh JVM may add, is never given up for a try.
    assert not prefers_full(2, 5, 500)
    assert not prefers_full(70, 100, 500)


def test_before_anything_was_measured_a_great_share_of_many_rows_is_expected_to_cost_more_than_all():
    records = [record("full", 30, 1_000_000)]

    assert price_of("keys", 9_999, records, "f", rows=20_000) is None
    assert not known_price("keys", 10_000, records, "f", rows=1_000_000).prefers_full
    assert known_price("keys", 100_000, records, "f", rows=1_000_000).prefers_full


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("id, cid", "'merge.order' = 'amount', 'merge.tie-breaker' = 'cid'", "plain columns of the select list"),
        ("id, amount", "'merge.order' = 'amount', 'merge.tie-breaker' = 'cid'", "plain columns of the select list"),
        ("id, amount, cid", "'merge.order' = 'amount', 'merge.tie-breaker' = 'cid'", None),
        ("id", "'merge.order' = 'amount', 'merge.tie-breaker' = 'cid', 'merge.late' = 'ignore'", None),
    ],
)
def test_deletes_can_be_ignored_where_the_stored_row_has_its_order(declared, columns, options, said):
    with_options = f"(PRIMARY KEY (id)) WITH ('merge' = 'first_row', 'upstream-deletes' = 'ignore', {options})"
    if said is None:
        assert declared(f"SELECT {columns} FROM orders", with_options).cases[1].strategy == "merge"
        return
    with pytest.raises(DeclarationErrors) as refused:
        declared(f"SELECT {columns} FROM orders", with_options)
    (error,) = refused.value.errors
    assert (error.rule, error.where) == ("OPTION_NEEDS", "assets/t.sql:1")
    assert said in error.message
