"""A row has the version that was valid at its own time, whichever came first, and however late either is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from freshline.errors import AsOfDuplicateError, DeclarationErrors
from tests.lanes import few_or_many
from tests.scenarios.tables import follow
from tests.scenarios.test_windows import in_utc, sql_time

ORDERS = "id BIGINT, currency STRING, amount INT, ts TIMESTAMP"
RATES = "currency STRING, valid TIMESTAMP, rate DOUBLE, loaded INT"
HEAD = "FRESHNESS = INTERVAL '5' MINUTE AS SELECT"
MET = "rate FOR SYSTEM_TIME AS OF o.ts AS r ON r.currency = o.currency"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
A_MICROSECOND = timedelta(microseconds=1)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def declare_inputs(lab, options: dict[str, str] | None = None) -> None:
    lab.source("o", ORDERS)
    lab.source("rate", RATES, watermark="valid", options=options)


def met_by_definition(
    orders: Sequence[Sequence[Any]], rates: Sequence[Sequence[Any]], *, ended=lambda rate: False
) -> dict[int, Any]:
    """The rate of each order: that of the version of its currency with the greatest time at or before its own."""
    found: dict[int, Any] = {}
    for number, currency, _, at in orders:
        held = [rate for rate in rates if None not in (currency, at, rate[1]) and rate[0] == currency and rate[1] <= at]
        newest = max(held, key=lambda rate: (rate[1], rate[3] if rate[3] is not None else -1), default=None)
        found[number] = None if newest is None or ended(newest) else newest[2]
    return found


def values(rows: Sequence[tuple[str, ...]]) -> str:
    return ", ".join(f"({', '.join(row)})" for row in rows)


def drawn(chance: random.Random, number: int) -> list[str]:
    """Changes of both sides: late rows, ties of an order with a version, moved times, keys and times that are NULL."""

    def time() -> str:
        at = NOON + HOUR * chance.randint(-400_000, 40) if chance.random() < 0.1 else NOON + HOUR * chance.randint(0, 9)
        return sql_time(chance.choice((at, at, at + A_MICROSECOND, None)))

    def currency() -> str:
        return chance.choice(("'EUR'", "'USD'", "'CHF'", "NULL"))

    orders = [(str(100 * number + each), currency(), str(each), time()) for each in range(chance.randint(1, 5))]
    rates = [(currency(), time(), f"{chance.randint(1, 9)}.5D", str(100 * number + each)) for each in range(3)]
    changes = [f"INSERT INTO o VALUES {values(orders)}", f"INSERT INTO rate VALUES {values(rates)}"]
    changes += chance.sample(
        [
            f"DELETE FROM rate WHERE currency = {currency()} AND pmod(loaded, 3) = {number % 3}",
            f"UPDATE rate SET rate = rate + 1 WHERE currency = {currency()} AND pmod(loaded, 2) = 0",
            f"UPDATE rate SET valid = valid + INTERVAL '30' MINUTE WHERE pmod(loaded, 4) = {number % 4}",
            f"UPDATE o SET ts = ts - INTERVAL '1' HOUR WHERE pmod(id, 3) = {number % 3}",
            f"DELETE FROM o WHERE pmod(id, 5) = {number % 5}",
        ],
        2,
    )
    return chance.sample(changes, 3)


@pytest.mark.parametrize("rounds", few_or_many(2, 60))
def test_a_row_has_the_version_of_its_time(lab, rounds):
    declare_inputs(lab, {"as-of.tie-breaker": "loaded"})
    lab.declare(f"CREATE MATERIALIZED TABLE euros {HEAD} o.id, o.amount, r.rate FROM o LEFT JOIN {MET}")
    lab.declare(f"CREATE MATERIALIZED TABLE met {HEAD} o.*, r.* EXCEPT (currency) FROM o JOIN {MET}")
    lab.declare(
        f"CREATE MATERIALIZED TABLE sums {HEAD} r.valid, count(*) AS n, sum(o.amount) AS amount "
        f"FROM o LEFT JOIN {MET} GROUP BY r.valid"
    )
    chance = random.Random(11)
    for number in range(rounds):
        for change in drawn(chance, number):
            lab.sql(change)
        outcomes = {str(outcome.table): outcome for outcome in lab.refresh_all()}
        for name in ("euros", "met", "sums"):
            assert outcomes[name].error is None, outcomes[name].error
            # A late version between two rows changes nothing.
            expected = ("keys", "noop") if number else ("full",)
            assert outcomes[name].strategy in expected, (name, outcomes[name].reason)
            assert lab.diff(name) == []
        orders = [in_utc(row) for row in lab.sql("SELECT * FROM o")]
        rates = [in_utc(row) for row in lab.sql("SELECT currency, valid, rate, loaded FROM rate")]
        met = met_by_definition(orders, rates)
        assert {row["id"]: row["rate"] for row in lab.rows("euros")} == met
        partners = {row["id"]: row["rate"] for row in lab.rows("met")}
        assert partners == {order: rate for order, rate in met.items() if rate is not None}
        assert sum(row["n"] for row in lab.rows("sums")) == len(orders)


def fill(lab) -> None:
    lab.sql(
        f"INSERT INTO o VALUES (1, 'EUR', 10, {sql_time(NOON)}), (2, 'EUR', 20, {sql_time(NOON + 5 * HOUR)}), "
        f"(3, 'USD', 30, {sql_time(NOON)})"
    )
    lab.sql(f"INSERT INTO rate VALUES ('EUR', {sql_time(NOON)}, 1.5D, 1), ('USD', {sql_time(NOON)}, 2.5D, 1)")


@pytest.mark.long
def test_a_late_version_computes_only_the_rows_of_its_time(lab):
    declare_inputs(lab)
    lab.declare(f"CREATE MATERIALIZED TABLE euros (PRIMARY KEY (id)) {HEAD} o.id, r.rate FROM o LEFT JOIN {MET}")
    fill(lab)
    many = [("1000 + id", "'EUR'", "1", f"{sql_time(NOON)} + make_interval(0, 0, 0, 0, 0, CAST(id AS INT))")]
    lab.sql(f"INSERT INTO o SELECT {', '.join(many[0])} FROM range(500)")
    lab.refresh_all()

    lab.sql(f"INSERT INTO rate VALUES ('EUR', {sql_time(NOON + 100 * MINUTE)}, 9.5D, 2)")
    outcome = follow(lab, f"INSERT INTO rate VALUES ('EUR', {sql_time(NOON + 110 * MINUTE)}, 1.5D, 3)", name="euros")
    assert (outcome.strategy, outcome.error) == ("keys", None), outcome
    assert outcome.rows_out == 10, outcome


@pytest.mark.long
def test_a_version_may_end_its_key(lab):
    declare_inputs(lab, {"as-of.delete-when": "rate IS NULL OR rate < 0"})
    lab.declare(f"CREATE MATERIALIZED TABLE euros {HEAD} o.id, r.rate FROM o LEFT JOIN {MET}")
    fill(lab)
    lab.refresh_all()
    lab.sql(f"INSERT INTO rate VALUES ('EUR', {sql_time(NOON + HOUR)}, -1D, 2), ('USD', {sql_time(NOON)} - "
            "INTERVAL '1' HOUR, NULL, 3)")  # fmt: skip

    outcome = lab.refresh("euros")

    assert outcome.strategy == "keys"
    assert {row["id"]: row["rate"] for row in lab.rows("euros")} == {1: 1.5, 2: None, 3: 2.5}
    lab.sql(f"INSERT INTO rate VALUES ('EUR', {sql_time(NOON + 5 * HOUR)}, 4.5D, 4)")
    lab.refresh("euros")
    assert {row["id"]: row["rate"] for row in lab.rows("euros")} == {1: 1.5, 2: 4.5, 3: 2.5}


@pytest.mark.long
@pytest.mark.parametrize("first", [True, False])
def test_two_versions_of_one_time_fail_the_table_and_leave_it_as_it_was(lab, first):
    declare_inputs(lab)
    lab.declare(f"CREATE MATERIALIZED TABLE euros {HEAD} o.id, r.rate FROM o LEFT JOIN {MET}")
    fill(lab)
    if not first:
        lab.refresh_all()
    before = None if first else lab.rows("euros")
    lab.sql(f"INSERT INTO rate VALUES ('EUR', {sql_time(NOON)}, 7.5D, 2)")

    outcome = lab.refresh("euros")

    assert outcome.state == "FAILED"
    assert isinstance(outcome.error, AsOfDuplicateError)
    assert (outcome.error.code, outcome.error.versions) == ("ASOF_DUPLICATE", "rate")
    assert "EUR" in outcome.error.sample
    if first:
        assert lab.receipt("euros") is None
    else:
        assert lab.rows("euros") == before
    lab.sql("DELETE FROM rate WHERE rate = 7.5D")
    assert lab.refresh("euros").state == "SUCCEEDED"
    assert lab.diff("euros") == []


@pytest.mark.long
def test_versions_without_a_key_match_nothing_and_are_no_duplicates(lab):
    declare_inputs(lab)
    lab.sql(f"INSERT INTO o VALUES (1, 'EUR', 1, {sql_time(NOON)}), (2, NULL, 1, {sql_time(NOON)})")
    lab.declare(
        "CREATE MATERIALIZED TABLE euros FRESHNESS = INTERVAL '1' HOUR WITH ('incremental' = 'strict') AS "
        "SELECT o.id, r.rate FROM o LEFT JOIN rate FOR SYSTEM_TIME AS OF o.ts AS r ON r.currency = o.currency"
    )
    for number in range(2):
        lab.sql(f"INSERT INTO rate VALUES (NULL, {sql_time(NOON)}, {number}D, {number})")
        assert lab.refresh("euros").error is None
    assert [(row["id"], row["rate"]) for row in lab.rows("euros")] == [(1, None), (2, None)]


@pytest.mark.long
def test_times_of_versions_may_be_without_a_zone(lab):
    lab.source("o", ORDERS)
    lab.source("rate", RATES.replace("TIMESTAMP", "TIMESTAMP_NTZ"), watermark="valid")
    lab.sql(f"INSERT INTO o VALUES (1, 'EUR', 1, {sql_time(NOON)}), (2, 'EUR', 1, {sql_time(NOON - HOUR)})")
    lab.declare(
        "CREATE MATERIALIZED TABLE euros FRESHNESS = INTERVAL '1' HOUR AS "
        "SELECT o.id, r.rate FROM o LEFT JOIN rate FOR SYSTEM_TIME AS OF o.ts AS r ON r.currency = o.currency"
    )
    for number, hour in enumerate((12, 10, 13)):
        lab.sql(f"INSERT INTO rate VALUES ('EUR', TIMESTAMP_NTZ'2026-01-01 {hour}:00:00', {number}D, {number})")
        follow(lab, name="euros")
    assert [(row["id"], row["rate"]) for row in lab.rows("euros")] == [(1, 0.0), (2, 1.0)]


def test_the_options_of_a_version_table_are_part_of_the_query(lab):
    declare_inputs(lab)
    lab.declare(f"CREATE MATERIALIZED TABLE euros {HEAD} o.id, r.rate FROM o LEFT JOIN {MET}")
    fill(lab)
    lab.refresh_all()
    path = lab.runtime.graph.source(lab.runtime.graph.sources[-1].name).options["path"]
    lab.declare(
        f"CREATE SOURCE rate ({RATES}, WATERMARK FOR valid AS valid) "
        f"WITH ('connector' = 'delta', 'path' = '{path}', 'as-of.delete-when' = 'rate > 2')"
    )

    outcome = lab.refresh("euros")

    assert outcome.error is not None
    assert outcome.error.code == "DEFINITION_CHANGED"


REFUSED = {
    "rate FOR SYSTEM_TIME AS OF ts AS r ON r.currency = o.currency": ("ASOF_TIME", "alias.column"),
    "rate FOR SYSTEM_TIME AS OF x.ts AS r ON r.currency = o.currency": ("ASOF_TIME", "x is none of the rows"),
    "rate FOR SYSTEM_TIME AS OF r.valid AS r ON r.currency = o.currency": ("ASOF_TIME", "r is none of the rows"),
    "rate FOR SYSTEM_TIME AS OF z.ts AS r ON r.currency = o.currency JOIN o AS z ON z.id = o.id": (
        "ASOF_TIME",
        "z is none of the rows",
    ),
    "rate FOR SYSTEM_TIME AS OF o.t AS r ON r.currency = o.currency": ("UNKNOWN_COLUMN", "Did you mean ts?"),
    "o FOR SYSTEM_TIME AS OF o.ts AS r ON r.currency = o.currency": ("ASOF_TIME", "WATERMARK FOR column"),
    "rate FOR SYSTEM_TIME AS OF o.ts AS r ON r.currency <=> o.currency": ("LOOKUP", "instead of <=>"),
    "rate FOR SYSTEM_TIME AS OF o.ts AS r ON r.currency > o.currency": ("LOOKUP", "is not an equality"),
    "rate FOR SYSTEM_TIME AS OF o.ts AS r USING (currency)": ("LOOKUP", "instead of USING"),
}


@pytest.fixture(scope="module")
def inputs(shared_lab):
    """The inputs of the refused joins."""
    declare_inputs(shared_lab)
    return shared_lab


@pytest.mark.parametrize("join", REFUSED)
def test_a_wrong_as_of_join_is_reported_before_any_work(inputs, join):
    rule, said = REFUSED[join]

    with pytest.raises(DeclarationErrors) as caught:
        inputs.declare(f"CREATE MATERIALIZED TABLE euros\n{HEAD} o.id\nFROM o LEFT JOIN {join}")

    (error,) = caught.value.errors
    assert (error.rule, error.where) == (rule, "assets/euros.sql:3")
    assert said in error.message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"as-of.tie-breaker": "loaded, lodaed"}, "Did you mean loaded?"),
        ({"as-of.delete-when": "rte > 1"}, "reads rte"),
        ({"as-of.delete-when": "rand() > 1"}, "without rand"),
        ({"as-of.delete-when": "rate >"}, "as-of.delete-when"),
    ],
)
def test_wrong_options_of_versions_are_reported_by_name(lab, options, said):
    with pytest.raises(DeclarationErrors, match="as-of") as caught:
        declare_inputs(lab, options)

    assert said in caught.value.errors[0].message


def test_options_of_versions_need_a_watermark(lab):
    with pytest.raises(DeclarationErrors) as caught:
        lab.source("rate", RATES, options={"as-of.tie-breaker": "loaded"})

    assert [error.rule for error in caught.value.errors] == ["OPTION_NEEDS"]
