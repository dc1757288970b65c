"""Each row of a query is in the main table or in one of its side outputs, whatever changes and whenever."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from freshline.errors import DeclarationErrors, RequestError
from freshline.manage.declaration import drop
from freshline.values.names import TableName
from tests.crashes import crash
from tests.lanes import long_but

ORDERS = "id BIGINT, shop STRING, amount INT, at TIMESTAMP"
GOOD = """CREATE MATERIALIZED TABLE good (PRIMARY KEY (id))
FRESHNESS = INTERVAL '5' MINUTE
SIDE OUTPUT negative WHERE (amount < 0)
SIDE OUTPUT unknown WHERE (shop IS NULL OR amount IS NULL) -- what nobody knows
AS SELECT id, shop, amount, amount * 2 AS twice FROM orders -- all of them"""
TABLES = ("good", "negative", "unknown")


def taken(lab) -> dict[str, Counter[tuple[object, ...]]]:
    """The rows of each table by definition: the first condition that is true takes a row."""
    found: dict[str, Counter[tuple[object, ...]]] = {name: Counter() for name in TABLES}
    for row in lab.sql("SELECT id, shop, amount FROM orders"):
        if row["amount"] is not None and row["amount"] < 0:
            name = "negative"
        else:
            name = "unknown" if row["shop"] is None or row["amount"] is None else "good"
        found[name][tuple(row.values())] += 1
    return found


def stored(lab) -> dict[str, Counter[tuple[object, ...]]]:
    return {name: Counter((row["id"], row["shop"], row["amount"]) for row in lab.rows(name)) for name in TABLES}


def drawn(chance: random.Random, number: int) -> list[str]:
    rows = ", ".join(
        f"({100 * number + each}, {chance.choice(('NULL', repr('a'), repr('b')))}, "
        f"{chance.choice(('NULL', '-1', '0', '5'))}, TIMESTAMP'2026-01-01 00:00:00')"
        for each in range(6)
    )
    return [
        f"INSERT INTO orders VALUES {rows}",
        chance.choice(
            (
                f"UPDATE orders SET amount = -amount WHERE pmod(id, 3) = {number % 3}",
                f"DELETE FROM orders WHERE pmod(id, 4) = {number % 4}",
                f"UPDATE orders SET shop = NULL WHERE pmod(id, 5) = {number % 5}",
                f"UPDATE orders SET amount = NULL WHERE pmod(id, 6) = {number % 6}",
            )
        ),
    ]


def test_every_row_is_in_one_of_the_tables(lab):
    lab.source("orders", ORDERS)
    lab.declare(GOOD)
    chance = random.Random(5)
    for number in range(3):
        for change in drawn(chance, number):
            lab.sql(change)
        outcomes = {str(outcome.table): outcome for outcome in lab.refresh_all()}
        for name in TABLES:
            assert outcomes[name].error is None, outcomes[name].error
            if number:
                assert outcomes[name].strategy in ("keys", "noop"), (name, outcomes[name].reason)
            assert lab.diff(name) == []
        assert stored(lab) == taken(lab)


@pytest.mark.parametrize("point", long_but(["table-after-commit"], ["table-before-commit", "table-after-commit"]))
def test_a_crash_between_two_of_them_is_made_good(lab, point):
    lab.source("orders", ORDERS)
    lab.declare(GOOD)
    lab.sql("INSERT INTO orders VALUES (1, 'a', 1, NULL), (2, 'a', -1, NULL), (3, NULL, 1, NULL)")
    lab.refresh_all()
    lab.sql("INSERT INTO orders VALUES (4, 'a', 1, NULL), (5, 'a', -1, NULL), (6, NULL, 1, NULL)")
    lab.refresh("orders")
    for name in ("negative", "good"):
        crash(lab, point, name, upstreams=False, lose_control_store=True)

    lab.refresh_all()

    assert stored(lab) == taken(lab)
    assert sum(len(rows) for rows in stored(lab).values()) == 6


def test_they_are_refreshed_restored_and_read_like_any_table(lab):
    lab.source("orders", ORDERS)
    lab.declare(GOOD)
    lab.declare("CREATE MATERIALIZED TABLE loss FRESHNESS = INTERVAL '1' HOUR AS SELECT sum(amount) AS s FROM negative")
    lab.sql("INSERT INTO orders VALUES (1, 'a', 1, NULL), (2, 'a', -1, NULL)")

    lab.refresh("good")
    lab.refresh("loss")

    assert [row["s"] for row in lab.rows("loss")] == [-1]
    graph = lab.runtime.graph
    assert [str(name) for name in graph.with_beside([TableName.parse("good")])] == ["good", "negative", "unknown"]
    assert lab.refresh("negative", full=True).strategy == "full"
    assert stored(lab) == taken(lab)


@pytest.fixture(scope="module")
def inputs(shared_lab):
    """The inputs of the refused tables."""
    shared_lab.source("orders", ORDERS)
    shared_lab.source("ev", "id BIGINT, ts TIMESTAMP", watermark="ts")
    return shared_lab


@pytest.mark.parametrize(
    ("clauses", "query", "rule", "line"),
    [
        ("EMIT FINAL SIDE OUTPUT bad WHERE (id < 0)", "SELECT * FROM ev", "SIDE_OUTPUT", 2),
        ("SIDE OUTPUT t WHERE (id < 0)", "SELECT * FROM orders", "SIDE_OUTPUT", 2),
        ("SIDE OUTPUT bad WHERE ()", "SELECT * FROM orders", "SIDE_OUTPUT", 2),
        ("SIDE OUTPUT orders WHERE (id < 0)", "SELECT * FROM orders", "DUPLICATE_NAME", 2),
        ("SIDE OUTPUT bad WHERE (nothing < 0)", "SELECT *\nFROM orders", "UNKNOWN_COLUMN", 2),
        (
            "SIDE OUTPUT low WHERE (id < 0)\nSIDE OUTPUT bad WHERE (\nnothing < 0)",
            "SELECT * FROM orders",
            "UNKNOWN_COLUMN",
            4,
        ),
        ("SIDE OUTPUT bad WHERE (id <)", "SELECT * FROM orders", "SIDE_OUTPUT", 2),
        ("SIDE OUTPUT bad WHERE (rand() < 0.5)", "SELECT * FROM orders", "SIDE_OUTPUT", 2),
        ("SIDE OUTPUT bad WHERE (id IN (SELECT 1))", "SELECT * FROM orders", "SIDE_OUTPUT", 2),
        ("SIDE OUTPUT bad WHERE (id < 0)", "SELECT id, rand() AS r FROM orders", "SIDE_OUTPUT", 2),
        ("SIDE OUTPUT bad WHERE (id < 0)", "SELECT * FROM ev WHERE ts > now()", "SIDE_OUTPUT", 2),
        ("SIDE OUTPUT bad WHERE (id < 0) SIDE OUTPUT bad WHERE (id < 0)", "SELECT * FROM orders", "DUPLICATE_NAME", 2),
        (
            "WITH ('merge' = 'first_row', 'merge.order' = 'id')\nSIDE OUTPUT bad WHERE (id < 0)",
            "SELECT * FROM orders",
            "SIDE_OUTPUT",
            3,
        ),
        (
            "SIDE OUTPUT bad WHERE (id < 0)",
            "SELECT e.* FROM ev e JOIN orders FOR SYSTEM_TIME AS OF PROCTIME() AS o ON o.id = e.id",
            "SIDE_OUTPUT",
            2,
        ),
        ("SIDE OUTPUT bad WHERE (id < 0)", "SELECT *, nothing FROM orders", "UNKNOWN_COLUMN", 3),
        ("SIDE OUTPUT bad WHERE id < 0", "SELECT * FROM orders", "SYNTAX", 2),
        ("SIDE OUTPUT bad (id < 0)", "SELECT * FROM orders", "SYNTAX", 2),
    ],
)
def test_a_mistake_is_reported(inputs, clauses, query, rule, line):
    with pytest.raises(DeclarationErrors) as raised:
        inputs.declare(f"CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR\n{clauses}\nAS {query}")

    found = [(error.rule, error.where) for error in raised.value.errors]
    # A text that cannot be read has no name to give its file one.
    file = "declared" if rule == "SYNTAX" else "t"
    assert (rule, f"assets/{file}.sql:{line}") in found, found


def test_a_table_that_is_declared_with_another_is_changed_there(lab):
    lab.source("orders", ORDERS)
    lab.declare(GOOD)

    with pytest.raises(RequestError, match="declared with good, whose side output"):
        drop(TableName.parse("negative"), lab.runtime.settings)
