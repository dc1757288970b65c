"""The columns that a query yields, and the ones it reads that are not there."""

from __future__ import annotations

import pytest

from freshline.errors import DeclarationError, DeclarationErrors
from freshline.sql.columns import output_columns
from freshline.sql.query_parser import parse_query
from freshline.values.names import TableName

INPUTS: dict[TableName, tuple[str, ...] | None] = {
    TableName(None, "orders"): ("id", "customer", "amount", "day", "at", "address", "tags"),
    TableName(None, "customers"): ("id", "name", "region"),
    TableName("sales", "returns"): ("id", "reason"),
    TableName(None, "scored"): None,
}


def columns(text: str) -> tuple[str, ...]:
    query = parse_query(text, "assets/t.sql", 1)
    return output_columns(query, "assets/t.sql", {name: INPUTS[name] for name in query.reads})


def refused(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(DeclarationErrors) as raised:
        columns(text)
    return [(error.rule, str(error.where), error.message) for error in raised.value.errors]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT id, amount * 2 AS twice, o.Day FROM orders o", "id twice Day"),
        ("SELECT id a, `customer` AS `b` FROM orders", "a b"),
        ("SELECT * FROM customers", "id name region"),
        ("SELECT * EXCEPT (region) FROM customers", "id name"),
        ("SELECT c.*, o.amount FROM orders o JOIN customers c ON o.customer = c.id", "id name region amount"),
        ("SELECT sales.returns.* FROM sales.returns", "id reason"),
        ("SELECT sales.returns.id, returns.reason FROM sales.returns", "id reason"),
        ("SELECT * FROM customers JOIN sales.returns USING (id)", "id name region reason"),
        ("SELECT * FROM customers NATURAL JOIN sales.returns", "id name region reason"),
        ("SELECT * FROM customers LEFT SEMI JOIN orders ON customers.id = orders.customer", "id name region"),
        ("SELECT id FROM customers ANTI JOIN orders ON customers.id = orders.customer", "id"),
        ("SELECT address.city, tags[0] AS first, o.address.zip FROM orders o", "city first zip"),
        ("WITH c AS (SELECT id, name FROM customers) SELECT * FROM c", "id name"),
        ("WITH c (a, b) AS (SELECT id, name FROM customers) SELECT * FROM c", "a b"),
        ("WITH c AS (SELECT * FROM customers), d AS (SELECT c.id FROM c) SELECT d.* FROM d", "id"),
        ("SELECT * FROM (SELECT id, amount FROM orders) AS x", "id amount"),
        ("SELECT * FROM (SELECT id, amount FROM orders) AS x (a, b)", "a b"),
        ("SELECT id, region FROM customers UNION ALL SELECT id, day FROM orders", "id region"),
        ("(SELECT id FROM customers) EXCEPT (SELECT customer FROM orders)", "id"),
        ("SELECT id FROM customers ORDER BY region LIMIT 3", "id"),
        ("SELECT o.id, tag FROM orders o LATERAL VIEW explode(o.tags) t AS tag", "id tag"),
        ("SELECT o.id, x.tag FROM orders o LATERAL VIEW OUTER posexplode(tags) x AS pos, tag", "id tag"),
        ("SELECT posexplode(tags) AS (pos, tag), id FROM orders", "pos tag id"),
        (
            "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer HAVING n > 1",
            "customer n total",
        ),
        ("SELECT year(day) AS y, count(*) AS n FROM orders GROUP BY y ORDER BY n", "y n"),
        ("SELECT amount + 1 AS a, a * 2 AS b FROM orders", "a b"),
        ("SELECT id, row_number() OVER (PARTITION BY customer ORDER BY at) AS rn FROM orders QUALIFY rn = 1", "id rn"),
        ("SELECT id, sum(amount) OVER w AS s FROM orders WINDOW w AS (PARTITION BY customer)", "id s"),
        (
            "SELECT transform(tags, t -> upper(t)) AS tags, aggregate(tags, 0, (acc, x) -> acc + 1) AS n FROM orders",
            "tags n",
        ),
        ("SELECT id, (SELECT max(name) FROM customers c WHERE c.id = o.customer) AS name FROM orders o", "id name"),
        ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM customers WHERE region = o.customer)", "id"),
        ("SELECT id FROM orders WHERE customer IN (SELECT id FROM customers WHERE region = address.city)", "id"),
        (
            "SELECT datediff(DAY, day, at) AS d, timestampadd(HOUR, 1, at) AS t, trunc(at, 'MM') AS x FROM orders",
            "d t x",
        ),
        (
            "SELECT extract(YEAR FROM day) AS y, current_date AS d, current_user AS u, INTERVAL 1 DAY AS i FROM orders",
            "y d u i",
        ),
        ("SELECT CASE WHEN amount > 1 THEN 'a' ELSE 'b' END AS size, CAST(day AS STRING) AS s FROM orders", "size s"),
        ("SELECT some_function(MONTH, amount) AS x, named_struct('a', 1).a AS y FROM orders", "x y"),
        ("SELECT s.id, s.anything FROM scored s", "id anything"),
        ("SELECT whatever, id FROM scored JOIN customers ON scored.k = customers.id", "whatever id"),
        ("SELECT a, b FROM VALUES (1, 2) AS v(a, b)", "a b"),
        ("SELECT * FROM range(10)", "id"),
        ("SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id ORDER BY id", "id"),
        ("SELECT c.* FROM orders o JOIN customers c ON o.customer = c.id ORDER BY id LIMIT 1", "id name region"),
        ("SELECT window.start, count(*) AS n FROM orders GROUP BY window(at, '1 hour')", "start n"),
        ("SELECT session_window.end AS e FROM orders GROUP BY session_window(at, '1 hour'), customer", "e"),
        ("SELECT * FROM (SELECT id, day, amount FROM orders) PIVOT (sum(amount) FOR day IN ('x' AS x))", None),
        ("SELECT id, x FROM (SELECT id, day, amount FROM orders) PIVOT (sum(amount) FOR day IN ('x' AS x))", "id x"),
        ("WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r", "n"),
        (
            "SELECT o.id FROM orders o, LATERAL (SELECT name AS n FROM customers WHERE id = 1) x WHERE n = 'a'",
            "id",
        ),
        (
            "SELECT o.id, n.reason FROM orders o JOIN (customers c JOIN sales.returns n ON c.id = n.id) ON true",
            "id reason",
        ),
        ("SELECT max(id) AS id FROM orders GROUP BY ALL", "id"),
        ("SELECT (id), ((amount)) FROM orders", "id amount"),
    ],
)
def test_the_columns_of_a_query_are_known_without_spark(text, names):
    if names is None:
        assert [rule for rule, _, _ in refused(text)] == ["COLUMNS_UNKNOWN"]
    else:
        assert " ".join(columns(text)) == names


@pytest.mark.parametrize(
    ("text", "rule", "line", "said"),
    [
        (
            "SELECT id,\n amont AS a\nFROM orders",
            "UNKNOWN_COLUMN",
            2,
            "no column amont in orders. Did you mean amount?",
        ),
        (
            "SELECT id FROM orders o\nWHERE o.amont > 1",
            "UNKNOWN_COLUMN",
            2,
            "o has no column amont. Did you mean amount?",
        ),
        ("SELECT id FROM orders\nGROUP BY custmer, id", "UNKNOWN_COLUMN", 2, "Did you mean customer?"),
        ("SELECT id FROM orders\nORDER BY zzz", "UNKNOWN_COLUMN", 2, "no column zzz"),
        ("SELECT x.id FROM orders", "UNKNOWN_COLUMN", 1, "no column x.id in orders"),
        ("SELECT id FROM (SELECT id FROM orders) AS x WHERE amount > 1", "UNKNOWN_COLUMN", 1, "no column amount in x"),
        ("WITH c AS (SELECT nme FROM customers) SELECT nme FROM c", "UNKNOWN_COLUMN", 1, "Did you mean name?"),
        (
            "SELECT o.id FROM orders o JOIN customers c\nON o.customer = c.ident",
            "UNKNOWN_COLUMN",
            2,
            "c has no column ident",
        ),
        ("SELECT sales.returns.why FROM sales.returns", "UNKNOWN_COLUMN", 1, "why"),
        (
            "SELECT 1 AS one FROM orders WHERE EXISTS (SELECT 1 FROM customers WHERE regin = 1)",
            "UNKNOWN_COLUMN",
            1,
            "region",
        ),
        (
            "SELECT\nid FROM orders JOIN customers ON customer = name",
            "AMBIGUOUS_COLUMN",
            2,
            "id is a column of orders and of customers",
        ),
        ("SELECT customer FROM orders JOIN customers\nON customer = id", "AMBIGUOUS_COLUMN", 2, "Write orders.id"),
        (
            "SELECT id,\n amount + 1 FROM orders",
            "UNNAMED_COLUMN",
            2,
            "column 2 of the query has no name. Give it a name with AS.",
        ),
        ("SELECT count(*) FROM orders", "UNNAMED_COLUMN", 1, "Give it a name with AS"),
        ("WITH c AS (SELECT count(*) FROM orders) SELECT * FROM c", "UNNAMED_COLUMN", 1, "Give it a name with AS"),
        ("SELECT id,\n customer AS ID FROM orders", "DUPLICATE_COLUMN", 2, "yields ID twice"),
        ("SELECT * FROM orders o JOIN customers c ON o.customer = c.id", "DUPLICATE_COLUMN", 1, "yields id twice"),
        ("SELECT * FROM scored", "COLUMNS_UNKNOWN", 1, "the columns of scored, which is written in Python"),
        ("SELECT address.* FROM orders", "COLUMNS_UNKNOWN", 1, "Write their names instead of `*`"),
        ("SELECT id AS _freshline_id FROM orders", "RESERVED_NAME", 1, "freshline's own"),
        ("SELECT id AS _Commit_Version FROM orders", "RESERVED_NAME", 1, "what is read of changes"),
        ("SELECT id AS `a\tb` FROM orders", "COLUMN_NAME", 1, "a tab or a line end"),
    ],
)
def test_a_column_that_cannot_be_is_reported_with_its_line(text, rule, line, said):
    found = refused(text)
    assert [(r, w) for r, w, _ in found] == [(rule, f"assets/t.sql:{line}")], found
    assert said in found[0][2]


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("SESSION(TABLE orders, DESCRIPTOR(att), INTERVAL '5' MINUTE)", "orders has no column att."),
        (
            "TUMBLE(TABLE (SELECT id, at FROM orders), DESCRIPTOR(att), INTERVAL '5' MINUTE)",
            "the query in parentheses has no column att.",
        ),
        (
            "orders MATCH_RECOGNIZE (PARTITION BY custom ORDER BY at MEASURES A.id AS i PATTERN (A) DEFINE A AS true)",
            "orders has no column custom.",
        ),
    ],
)
def test_a_window_that_names_no_column_of_its_input_is_reported_once_without_names_of_ours(call, said):
    ((rule, _, message),) = refused(f"SELECT * FROM {call}")

    assert rule == "UNKNOWN_COLUMN"
    assert message.startswith(said)


def test_too_many_set_operations_in_a_row_are_refused_with_a_sentence():
    with pytest.raises(DeclarationError, match="too many set operations in a row"):
        columns(" UNION ALL ".join(["SELECT id FROM customers"] * 1000))
