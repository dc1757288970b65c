"""Merges that fold the set of rows of a key: whatever order they come in, one table.

Ten arrival orders are walked at once: an order is a column of the key, and each order has the same rows, in another
order and split into batches elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from freshline.testing import Lab
from tests.lanes import few_or_many
from tests.merges import slow

ORDERS = 10
HOURLY = "FRESHNESS = INTERVAL '1' HOUR"
NOT_A_NUMBER = 999.0
# NaN has no text in JSON: the queries make it of a number.
SCORE = f"CASE WHEN score = {NOT_A_NUMBER} THEN double('NaN') ELSE score END AS score"
COLUMNS = (
    "o INT, k INT, id INT, ver BIGINT, seen BIGINT, amount DECIMAL(12,2), score DOUBLE, name STRING, flag BOOLEAN, "
    "tags MAP<STRING, INT>, op STRING"
)
Row = dict[str, Any]


def random_rows(seed: int, count: int) -> list[Row]:
    """Rows of a few keys with many ties, NULLs in every column, both zeros and NaN."""
    chance = random.Random(seed)

    def some(*values: Any) -> Any:
        return None if chance.random() < 0.2 else chance.choice(values)

    return [
        {
            "k": some(*range(6)) if chance.random() < 0.4 else chance.randrange(6),
            "id": chance.randrange(4),
            "ver": some(1, 2, 3, 9_007_199_254_740_993),
            "seen": some(1, 2, 3),
            "amount": some(0.1, 0.2, -0.3, 1_234_567_890.12),
            "score": some(0.0, -0.0, 1.5, -2.5, NOT_A_NUMBER),
            "name": some("a", "b", "", "ä"),
            "flag": some(True, False),
            "tags": some({"x": 1}, {"x": 2, "y": 1}, {"y": None}, {}),
            "op": some("u", "u", "d"),
        }
        for _ in range(count)
    ]


def land_in_ten_orders(lab: Any, rows: Sequence[Row], seed: int, batches: int) -> Iterator[None]:
    """Land the rows in ten orders, each cut into `batches` files elsewhere, and yield after each file."""
    chance = random.Random(seed)
    files: list[list[Row]] = [[] for _ in range(batches)]
    for order in range(ORDERS):
        shuffled = chance.sample(rows, len(rows))
        cuts = sorted(chance.randrange(len(rows) + 1) for _ in range(batches - 1))
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
            files[number] += [{"o": order, **row} for row in shuffled[start:end]]
    for number, file in enumerate(files):
        lab.land("s", f"{number}.json", file)
        yield


def as_read(row: Mapping[str, Any]) -> Row:
    """A row as the queries return it."""
    amount, score = row["amount"], row["score"]
    return {
        **row,
        "amount": None if amount is None else Decimal(str(amount)).quantize(Decimal("0.01")),
        "score": float("nan") if score == NOT_A_NUMBER else score,
    }


def require_one_table(lab: Any, name: str, expected: list[Row]) -> None:
    """Each of the ten orders has the expected rows, and `verify` finds the same."""
    found: dict[int, list[Row]] = {order: [] for order in range(ORDERS)}
    for row in lab.rows(name):
        found[row["o"]].append({column: row[column] for column in row if column != "o"})
    for order, rows in found.items():
        in_order = sorted(rows, key=lambda row: slow.rank(row["k"]))
        assert [_plain(row) for row in in_order] == [_plain(row) for row in expected], (name, order)
    assert lab.diff(name) == [], name


def _plain(row: Row) -> Row:
    return {column: slow.plain(value) for column, value in row.items()}


def fold(rows: Sequence[Row], fold_key: Callable[[list[Any]], Row | None]) -> list[Row]:
    return slow.fold([as_read(row) for row in rows], ["k"], fold_key)


# -- versioned


def is_delete(row: Mapping[str, Any]) -> bool:
    return bool(row["op"] == "d")


VERSIONED = {
    "stored": ("", f"ver, amount, {SCORE}, name, tags", ("ver", "amount", "score", "name", "tags"), False),
    "hidden": ("", f"name, {SCORE}", ("name", "score"), False),
    "deleting": (", 'merge.delete-when' = 'op = ''d'''", "name, ver", ("name", "ver"), True),
}


@pytest.mark.parametrize(
    "size", few_or_many((("stored", "deleting"), (1,), 60, 3), (tuple(VERSIONED), tuple(range(2, 22)), 120, 5))
)
def test_versioned_is_one_table_for_every_arrival_order(spark, size):
    names, seeds, count, batches = size
    for seed in seeds:
        with Lab(spark) as lab:
            lab.files("s", COLUMNS)
            for name in names:
                options, items, _, _ = VERSIONED[name]
                lab.declare(
                    f"CREATE MATERIALIZED TABLE {name} (PRIMARY KEY (o, k)) WITH ('merge' = 'versioned', "
                    f"'merge.sequence' = 'ver'{options}) {HOURLY} AS SELECT o, k, {items} FROM s"
                )
            rows = random_rows(seed, count)
            strategies = []
            for _ in land_in_ten_orders(lab, rows, seed, batches):
                outcomes = lab.refresh_all()
                assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
                strategies.append({outcome.strategy for outcome in outcomes if outcome.kind == "table"})

            assert strategies == [{"full"}, *[{"merge"}] * (batches - 1)]
            for name in names:
                _, _, columns, deletes = VERSIONED[name]
                is_gone = is_delete if deletes else None
                require_one_table(lab, name, fold(rows, partial(slow.versioned, "ver", columns, is_gone)))


def test_a_row_without_a_version_is_quarantined_once(lab):
    lab.files("s", "k STRING, ver INT, v STRING")
    declared = (
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (k), CONSTRAINT some EXPECT (v <> 'bad') ON VIOLATION {violation}) "
        f"WITH ('merge' = 'versioned', 'merge.sequence' = 'ver') {HOURLY} AS SELECT k, v, ver FROM s"
    )
    lab.declare(declared.format(violation="DROP ROW"))
    lab.land("s", "1.json", [{"k": "a", "ver": 1, "v": "x"}, {"k": "a", "v": "bad"}, {"k": "b", "v": "y"}])
    assert lab.refresh("t").rejected == 2
    lab.land("s", "2.json", [{"v": "z"}, {"k": "a", "ver": 1, "v": "y"}, {"k": "b"}, {"k": "a", "ver": 2, "v": "bad"}])
    lab.refresh("s")
    found, _ = lab.union("t")
    lab.restart()
    outcome = lab.refresh("t")

    assert (outcome.strategy, outcome.rejected) == ("merge", 2)
    assert lab.rows("t") == found == [{"k": "a", "v": "y", "ver": 1}]
    assert lab.refresh("t", full=True).rejected == 0
    assert lab.diff("t") == []
    rows = [(row["error"], row["file"], row["line"], row["raw"]) for row in lab.quarantine("s")]
    assert sorted(rows) == [
        ("NULL_KEY(t)", "2.json", 1, b'{"v":"z"}'),
        ("NULL_VERSION(t)", "1.json", 2, b'{"k":"a","v":"bad"}'),
        ("NULL_VERSION(t)", "1.json", 3, b'{"k":"b","v":"y"}'),
        ("NULL_VERSION(t)", "2.json", 3, b'{"k":"b"}'),
    ]
    assert {row["message"] for row in lab.quarantine("s")} == {
        "the version ('merge.sequence') is NULL",
        "a column of PRIMARY KEY (k) is NULL",
    }


def test_versioned_follows_updates_and_deletes_of_its_input(lab):
    lab.source("s", "k INT, ver INT, v STRING")
    lab.sql("INSERT INTO s VALUES (1, 1, 'a'), (1, 2, 'b'), (1, 2, 'c'), (2, NULL, 'd'), (NULL, 1, 'e'), (3, 1, 'f')")
    lab.declare(
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (k)) WITH ('merge' = 'versioned', 'merge.sequence' = 'ver') "
        f"{HOURLY} AS SELECT k, v FROM s"
    )
    assert lab.refresh("t").rejected == 2
    assert lab.rows("t") == [{"k": 1, "v": "c"}, {"k": 3, "v": "f"}]
    append, change = lab.explain("t").cases
    assert (append.strategy, change.strategy) == ("merge", "keys")

    lab.sql("DELETE FROM s WHERE v IN ('c', 'f')")
    lab.sql("UPDATE s SET ver = 5 WHERE v = 'd'")
    outcome = lab.refresh("t")
    assert (outcome.strategy, outcome.rejected) == ("keys", 0)
    assert lab.rows("t") == [{"k": 1, "v": "b"}, {"k": 2, "v": "d"}]
    lab.sql("UPDATE s SET ver = NULL WHERE k = 2")
    assert lab.refresh("t").rejected == 1
    assert lab.rows("t") == [{"k": 1, "v": "b"}]
    assert lab.diff("t") == []
