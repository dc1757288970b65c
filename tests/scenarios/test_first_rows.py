"""The first rows of all: those of today follow from those of yesterday, and are the same however they are computed."""

from __future__ import annotations

import random

import pytest

from tests.lanes import long_but
from tests.scenarios.tables import HOURLY, declare, fill, follow

CASES = [
    ("SELECT a, b, id FROM s ORDER BY b NULLS LAST, 1 LIMIT 5", [("b", False, False), ("a", False, True)]),
    ("SELECT a, max(b) AS b, count(*) AS id FROM s GROUP BY a ORDER BY b LIMIT 3", [("b", False, True)]),
    ("SELECT a, b, id FROM s ORDER BY a DESC, b LIMIT 5", [("a", True, False), ("b", False, True)]),
    ("SELECT a, b, id FROM s ORDER BY `a` DESC NULLS FIRST LIMIT 7", [("a", True, True)]),
]


def rows(lab, name="t"):
    return [tuple(row.values()) for row in lab.rows(name)]


@pytest.fixture
def scores(lab):
    fill(lab, "scores", "id INT, player STRING, score INT", "SELECT id, concat('p', id % 7), 10 * id FROM range(1, 50)")
    return lab


def test_the_best_of_all_groups(scores):
    scores.declare(
        f"CREATE MATERIALIZED TABLE t {HOURLY} AS "
        "SELECT s.player, sum(s.score) AS total, count(*) AS n FROM scores s GROUP BY s.player "
        "ORDER BY sum(s.score) DESC, player LIMIT 3"
    )
    assert follow(scores).strategy == "full"
    gained = follow(scores, "INSERT INTO scores VALUES (100, 'p1', 5000), (101, 'new', 1)")
    assert gained.strategy == "keys", gained.reason
    assert gained.reason.startswith("AFFECTED_KEYS(player; the first 3 rows)")
    assert ("p1", 6540, 8) in rows(scores)
    # A row that goes lets another one follow, which no change names.
    lost = follow(scores, "DELETE FROM scores WHERE player = 'p1'")
    assert lost.strategy == "full"
    assert lost.reason.startswith("TOP_N(rows behind the first 3 follow)")
    # A row that goes from behind them does not.
    assert follow(scores, "DELETE FROM scores WHERE player = 'new'").reason.startswith("NO_NET_CHANGE")


def test_a_table_that_is_not_full_has_all_rows(scores):
    declare(scores, "SELECT * FROM scores WHERE score > 400 ORDER BY score DESC LIMIT 12", "(PRIMARY KEY (id))")
    follow(scores)
    for statement in (
        "DELETE FROM scores WHERE id IN (49, 48)",
        "UPDATE scores SET score = 0 WHERE id = 47",
        "INSERT INTO scores VALUES (200, 'x', 401), (201, 'y', 9999), (202, 'z', NULL)",
        "INSERT INTO scores SELECT id, 'many', 402 FROM range(300, 310)",
        "UPDATE scores SET score = 500 WHERE id = 304",
    ):
        assert follow(scores, statement).strategy == "keys", statement


def test_of_equal_rows_the_same_are_first_however_they_are_computed(scores):
    declare(scores, "SELECT score, id FROM scores ORDER BY score % 2 LIMIT 4")
    declare(scores, "SELECT player, id FROM scores ORDER BY player LIMIT 4", "(PRIMARY KEY (id))", name="u")
    assert follow(scores).strategy == "full"
    assert sorted(rows(scores)) == [(10, 1), (20, 2), (30, 3), (40, 4)]
    follow(scores, name="u")
    assert sorted(number for _, number in rows(scores, "u")) == [7, 14, 21, 28]
    scores.sql("INSERT INTO scores VALUES (5, 'p0', 1), (50, 'p0', 2), (-3, 'q', 2)")
    assert follow(scores, name="u").strategy == "keys"
    assert sorted(number for _, number in rows(scores, "u")) == [5, 7, 14, 21]


def test_an_order_by_all_columns_is_left_as_it_is(scores):
    declare(scores, "SELECT score, id FROM scores ORDER BY ALL DESC LIMIT 2")
    follow(scores)
    assert rows(scores) == [(480, 48), (490, 49)]
    assert follow(scores, "INSERT INTO scores VALUES (1000, 'x', 1000)").strategy == "full"


@pytest.mark.parametrize(
    ("query", "order"),
    long_but(
        CASES[:2],
        CASES,
    ),
)
def test_random_changes_give_what_sorting_all_rows_gives(lab, query, order):
    chance = random.Random(f"{query}")
    lab.source("s", "id INT, a INT, b STRING")
    held = {number: value(chance) for number in range(20)}
    lab.sql(f"INSERT INTO s VALUES {shown(held)}")
    declare(lab, query)
    assert follow(lab).strategy == "full"
    strategies = []
    for step in range(8):
        if step % 2:
            gone = chance.sample(sorted(held), 2)
            lab.sql(f"DELETE FROM s WHERE id IN ({', '.join(map(str, gone))})")
            for number in gone:
                del held[number]
        else:
            new = {100 * step + 100 + number: value(chance) for number in range(3)}
            lab.sql(f"INSERT INTO s VALUES {shown(new)}")
            held |= new
        strategies.append(follow(lab).strategy)
        every = [(a, b, number) for number, (a, b) in held.items()]
        if "GROUP BY" in query:
            every = [grouped(a, [row for row in every if row[0] == a]) for a in {row[0] for row in every}]
        expected = sorted(every, key=lambda row: place(row, order))[: int(query.rsplit(" ", 1)[1])]
        assert sorted(rows(lab), key=str) == sorted(expected, key=str), (step, strategies)
    assert strategies.count("full") <= 6, strategies


def value(chance):
    return chance.choice([None, 1, 2, 3, 4, 5, 6]), chance.choice([None, "", "a", "b", "B", "é"])


def shown(held):
    def literal(each):
        return "NULL" if each is None else repr(each)

    return ", ".join(f"({number}, {literal(a)}, {literal(b)})" for number, (a, b) in held.items())


def grouped(a, group):
    present = [b for _, b, _ in group if b is not None]
    return a, max(present, key=lambda b: b.encode()) if present else None, len(group)


def place(row, order):
    """The place of a row, by the order and then by all columns from the first to the last."""
    parts = []
    for column, descending, nulls_first in [*order, ("a", False, True), ("b", False, True), ("id", False, True)]:
        each = row[("a", "b", "id").index(column)]
        number = [] if each is None else list(each.encode()) if isinstance(each, str) else [each]
        if descending:
            assert column == "a"
            number = [-part for part in number]
        parts.append(((each is None) != nulls_first, number))
    return parts
