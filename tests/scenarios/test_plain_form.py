"""Constant rows, renamed columns, QUALIFY by aliases, and subqueries in ON: kept by the rows that changes affect."""

from __future__ import annotations

import pytest

from tests.lanes import long_but
from tests.scenarios.tables import declare, fill, follow


def follow_through(lab, query, changes, last, strategies=("keys", "noop")):
    """A table of the query is kept by these strategies through changes, and is equal through the last ones too."""
    lab.source("orders", "id INT, customer INT, amount INT")
    lab.source("customer", "id INT, name STRING")
    fill(lab, "staff", "id INT, boss INT", "(0, NULL), (1, 0), (2, 1), (3, 1)")
    lab.sql("INSERT INTO orders SELECT id, if(id % 11 = 0, NULL, id % 5), id FROM range(50)")
    lab.sql("INSERT INTO customer SELECT id, concat('c', id) FROM range(4)")
    declare(lab, query)
    lab.refresh("t")

    for statements in changes:
        for statement in statements:
            lab.sql(statement)
        outcome = follow(lab)
        assert outcome.strategy in strategies, outcome.reason

    for statement in last:
        follow(lab, statement)


QUERIES = {
    "a join with constant rows": (
        "SELECT o.id, o.amount, x.label FROM orders o JOIN VALUES (1, 'one'), (2, 'two'), (2, 'again') AS x(k, label) "
        "ON x.k = o.customer"
    ),
    "an outer join with constant rows": (
        "SELECT o.id, o.amount, x.label FROM orders o LEFT JOIN (VALUES (1, 'one'), (CAST(NULL AS INT), 'none')) "
        "AS x(k, label) ON x.k <=> o.customer"
    ),
    "constant rows that are kept without a partner": (
        "SELECT x.k, o.id, o.amount FROM VALUES (1), (77) AS x(k) LEFT JOIN orders o ON o.customer = x.k"
    ),
    "groups of constant rows": (
        "SELECT x.label, count(o.id) AS n, sum(o.amount) AS s FROM orders o JOIN VALUES (1, 'low'), (2, 'low'), "
        "(3, 'high') AS x(k, label) ON x.k = o.customer GROUP BY x.label"
    ),
    "constant rows in WITH": (
        "WITH x(k, label) AS (VALUES (1, 'one'), (3, 'three')) SELECT o.id, x.label FROM orders o JOIN x "
        "ON x.k = o.customer"
    ),
    "constant rows in a subquery": (
        "SELECT id, amount FROM orders WHERE customer NOT IN (SELECT v.k FROM VALUES (1), (4) AS v(k))"
    ),
    "constant rows beside others": (
        "SELECT customer AS k, amount AS n FROM orders UNION ALL SELECT * FROM VALUES (1, 2), (1, 2) AS v(a, b)"
    ),
    "constant rows of two types": (
        "SELECT o.id, x.rate * o.amount AS paid FROM orders o JOIN VALUES (1, 2), (2, 2.5) AS x(k, rate) "
        "ON x.k = o.customer"
    ),
    "renamed columns": ("SELECT x.a, x.c, p.name FROM orders AS x(a, b, c) JOIN customer AS p(k, name) ON p.k = x.b"),
    "a subquery in ON": (
        "SELECT o.id, c.name FROM orders o JOIN customer c ON c.id = o.customer AND EXISTS "
        "(SELECT 1 FROM orders x WHERE x.customer = c.id AND x.amount > 40)"
    ),
    "a subquery in ON and a condition in WHERE": (
        "SELECT o.id, c.name FROM orders o JOIN customer c ON c.id = o.customer AND c.id IN "
        "(SELECT x.customer FROM orders x WHERE x.amount > 40) WHERE o.amount < 49 OR o.id = 3"
    ),
    "renamed columns of a common table": (
        "WITH t AS (SELECT customer, sum(amount) AS s FROM orders GROUP BY customer) "
        "SELECT x.b, c.name, x.a FROM t AS x(a, b) LEFT JOIN customer c ON c.id = x.a"
    ),
    "a common table that is renamed and read as it is": (
        "WITH t(a, b) AS (SELECT id, amount FROM orders UNION ALL SELECT id, id FROM customer) "
        "SELECT x.p, x.q, t.b FROM t AS x(p, q) JOIN t ON t.a = x.p"
    ),
    "a common table that hides an input": (
        "WITH orders AS (SELECT customer, amount FROM orders WHERE amount < 45) "
        "SELECT x.k, count(x.n) AS n FROM orders AS x(k, n) GROUP BY x.k"
    ),
    "names with quotes": (
        "WITH t AS (SELECT * FROM customer) SELECT x.`c``d`, x.`a'b`, o.id FROM t x(`a'b`, `c``d`) "
        "LEFT JOIN orders o ON o.customer = x.`a'b`"
    ),
    "QUALIFY by an alias": (
        "SELECT id, customer, row_number() OVER (PARTITION BY customer ORDER BY amount, id) AS rn FROM orders "
        "QUALIFY rn = 1"
    ),
    "QUALIFY by an alias and by another column": (
        "SELECT o.id, c.name, o.customer, rank() OVER (PARTITION BY o.customer ORDER BY o.amount DESC) AS r "
        "FROM orders o JOIN customer c ON c.id = o.customer QUALIFY r < 3 AND c.name <> 'c1'"
    ),
    "QUALIFY of groups by an alias": (
        "SELECT customer, sum(amount) AS s, rank() OVER (PARTITION BY customer ORDER BY sum(amount)) AS r FROM orders "
        "GROUP BY customer QUALIFY r = 1 AND s > 3"
    ),
    "QUALIFY by an alias with quotes and by a window": (
        "SELECT DISTINCT customer, count(*) OVER (PARTITION BY customer) AS `n'``x` FROM orders "
        "QUALIFY `n'``x` > 2 AND max(amount) OVER (PARTITION BY customer) > 4"
    ),
    "QUALIFY by an alias in a derived table": (
        "SELECT x.customer, x.id, c.name FROM (SELECT id, customer, rank() OVER (PARTITION BY customer "
        "ORDER BY amount) AS r FROM orders QUALIFY r <= 2) x LEFT JOIN customer c ON c.id = x.customer"
    ),
}
SHORT = [
    "groups of constant rows",
    "an outer join with constant rows",
    "a subquery in ON",
    "renamed columns of a common table",
    "QUALIFY by an alias and by another column",
]


@pytest.mark.parametrize("name", long_but(SHORT, list(QUERIES)))
def test_a_query_in_another_form_is_kept_by_affected_keys(lab, name):
    changes = (
        ["UPDATE orders SET amount = amount + 1 WHERE id = 7", "DELETE FROM orders WHERE customer = 1 AND id > 20"],
        ["UPDATE orders SET customer = NULL WHERE id < 4", "INSERT INTO orders VALUES (100, 1, 41), (102, NULL, 3)"],
        ["UPDATE customer SET name = 'changed' WHERE id IN (1, 2)"],
        ["UPDATE orders SET amount = 0 WHERE amount > 40", "INSERT INTO orders VALUES (101, 77, 1)"],
        ["DELETE FROM customer WHERE id = 2", "INSERT INTO orders SELECT * FROM orders WHERE id IN (3, 5, 9)"],
    )
    last = ("DELETE FROM orders", "INSERT INTO orders VALUES (1, 1, 1), (2, 3, 50), (3, NULL, NULL)")
    follow_through(lab, QUERIES[name], changes, last, ("keys", "append", "noop"))


JOINED = {
    "of the optional side": (
        "SELECT o.id, c.name FROM orders o LEFT JOIN customer c ON c.id = o.customer AND EXISTS "
        "(SELECT 1 FROM staff s WHERE s.boss = c.id AND s.id > 1)"
    ),
    "of the kept side, negated": (
        "SELECT o.id, c.name FROM orders o LEFT JOIN customer c ON c.id = o.customer AND NOT EXISTS "
        "(SELECT 1 FROM orders x WHERE x.customer = o.customer AND x.amount > 40)"
    ),
    "IN": (
        "SELECT o.id, c.name FROM orders o LEFT JOIN customer c ON c.id = o.customer AND c.id IN "
        "(SELECT s.boss FROM staff s)"
    ),
    "the same for every row": (
        "SELECT o.id, c.name FROM orders o LEFT JOIN customer c ON c.id = o.customer AND EXISTS "
        "(SELECT 1 FROM staff s WHERE s.id > 5)"
    ),
    "of a right join": (
        "SELECT o.id, c.name FROM customer c RIGHT JOIN orders o ON c.id = o.customer AND EXISTS "
        "(SELECT 1 FROM staff s WHERE s.boss = c.id)"
    ),
    "below groups": (
        "SELECT o.customer, count(c.name) AS n FROM orders o LEFT JOIN customer c ON c.id = o.customer AND EXISTS "
        "(SELECT 1 FROM staff s WHERE s.boss = c.id) GROUP BY o.customer"
    ),
    "in a derived table": (
        "SELECT x.id, x.name, s.boss FROM (SELECT o.id, o.customer, c.name FROM orders o LEFT JOIN customer c "
        "ON c.id = o.customer AND EXISTS (SELECT 1 FROM staff s WHERE s.boss = c.id)) x "
        "JOIN staff s ON s.id = x.customer"
    ),
    "below groups in a derived table": (
        "SELECT o.id, x.k FROM orders o JOIN (SELECT s.id AS k FROM staff s JOIN orders y ON y.customer = s.id "
        "AND EXISTS (SELECT 1 FROM staff z WHERE z.boss = y.customer) LEFT JOIN customer c ON c.id = s.id "
        "GROUP BY s.id) x ON x.k = o.customer"
    ),
    "of an inner join beside an outer one": (
        "SELECT o.id, c.name FROM orders o JOIN staff s ON s.id = o.customer AND EXISTS (SELECT 1 FROM orders y "
        "WHERE y.customer = s.boss AND y.amount > 30) LEFT JOIN customer c ON c.id = o.customer "
        "WHERE c.name IS NULL OR c.id < 3"
    ),
}


@pytest.mark.parametrize("name", long_but(["of the optional side"], list(JOINED)))
def test_a_subquery_in_on_of_an_outer_join_is_kept_by_affected_keys(lab, name):
    changes = (
        ["UPDATE staff SET boss = 2 WHERE id = 3"],
        ["INSERT INTO staff VALUES (9, 3), (9, 3), (8, NULL)", "UPDATE customer SET name = 'changed' WHERE id = 3"],
        ["DELETE FROM staff WHERE boss IS NULL OR id > 3", "DELETE FROM customer WHERE id = 3"],
        ["UPDATE orders SET customer = NULL, amount = 0 WHERE amount > 40"],
        [
            "UPDATE orders SET customer = 1 WHERE customer IS NULL",
            "INSERT INTO customer VALUES (1, 'one'), (NULL, 'no')",
        ],
    )
    last = ("DELETE FROM staff", "INSERT INTO staff VALUES (5, 1)", "DELETE FROM orders")
    follow_through(lab, JOINED[name], changes, last)


LATERAL = {
    "a count": (
        "SELECT c.id, c.name, x.n FROM customer c JOIN LATERAL "
        "(SELECT count(*) AS n FROM orders o WHERE o.customer = c.id) x"
    ),
    "rows that a condition leaves": (
        "SELECT c.id, c.name, x.id AS oid, x.amount FROM customer c, LATERAL "
        "(SELECT o.id, o.amount FROM orders o WHERE o.customer = c.id) x WHERE x.amount <> 12"
    ),
    "rows that may be missing": (
        "SELECT c.id, c.name, x.oid, x.`a'b` FROM customer c LEFT JOIN LATERAL (SELECT o.id, o.amount FROM orders o "
        "WHERE o.customer = c.id AND o.amount > 10) AS x(oid, `a'b`) ON true"
    ),
    "two of them and a join": (
        "SELECT c.id, x.s, y.m, s.boss FROM customer c LEFT JOIN LATERAL (SELECT sum(o.amount) AS s FROM orders o "
        "WHERE o.customer = c.id) x ON x.s > 3 JOIN LATERAL (SELECT max(z.boss) AS m FROM staff z WHERE z.id = c.id) y "
        "LEFT JOIN staff s ON s.id = c.id"
    ),
    "groups": (
        "SELECT c.id, sum(x.amount) AS s FROM customer c, LATERAL "
        "(SELECT o.amount FROM orders o WHERE o.customer <=> c.id) x GROUP BY c.id"
    ),
}


@pytest.mark.parametrize("name", long_but(["rows that may be missing"], list(LATERAL)))
def test_a_query_beside_each_row_is_kept_by_affected_keys(lab, name):
    changes = (
        ["UPDATE orders SET amount = amount + 1 WHERE id IN (7, 40)", "UPDATE staff SET boss = 2 WHERE id = 3"],
        ["DELETE FROM orders WHERE customer = 1 AND id > 5", "INSERT INTO customer VALUES (1, 'c1'), (NULL, 'none')"],
        ["UPDATE orders SET customer = NULL WHERE amount > 40", "DELETE FROM customer WHERE id = 3"],
    )
    last = ("DELETE FROM orders", "INSERT INTO orders VALUES (5, 1, 20), (6, NULL, 3)")
    follow_through(lab, LATERAL[name], changes, last)
