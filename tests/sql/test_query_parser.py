"""The places in a query, and the queries that are refused."""

from __future__ import annotations

import pytest
import sqlglot

from freshline.errors import DeclarationError, DeclarationErrors
from freshline.sql.columns import output_columns
from freshline.sql.query_parser import parse_query, parse_sql, parse_structure
from freshline.values.names import TableName
from freshline.values.query import LookupJoin, SqlQuery


def parse(text: str, line: int = 1) -> SqlQuery:
    return parse_query(text, "assets/t.sql", line)


def refused(text: str, line: int = 1) -> list[tuple[str, str, str]]:
    with pytest.raises(DeclarationError) as raised:
        parse(text, line)
    found = raised.value.errors if isinstance(raised.value, DeclarationErrors) else [raised.value]
    return [(error.rule, str(error.where), error.message) for error in found]


def read(query: SqlQuery) -> list[tuple[str, str, bool, bool]]:
    """Name, text at the span, whether it has an alias, whether it is a lookup."""
    return [(str(r.name), query.text[r.span.start : r.span.end], r.has_alias, r.lookup) for r in query.references]


def test_every_place_that_reads_a_table_is_found_with_its_text():
    query = parse(
        """SELECT orders.orders, 'orders' AS s -- orders
        FROM orders /* customers */ JOIN `sales`.`customers` c ON orders.c = c.id
        WHERE EXISTS (SELECT 1 FROM sales . returns WHERE returns.id = orders.id)
        UNION ALL SELECT a, b FROM (SELECT * FROM `x`) AS orders"""
    )
    assert read(query) == [
        ("orders", "orders", False, False),
        ("sales.customers", "`sales`.`customers`", True, False),
        ("sales.returns", "sales . returns", False, False),
        ("x", "`x`", False, False),
    ]
    assert query.references[1].alias == "c"


def test_spans_are_right_behind_characters_outside_of_the_basic_plane():
    query = parse("SELECT '😀é' AS a, `b` -- 😀\nFROM orders")
    assert read(query) == [("orders", "orders", False, False)]
    assert query.render() == "SELECT '😀é' AS a, `b` -- 😀\nFROM `orders` AS `orders`"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("WITH orders AS (SELECT * FROM raw) SELECT * FROM orders", ["raw"]),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM ORDERS", ["orders"]),
        ("WITH a AS (SELECT 1 AS x), b AS (SELECT * FROM a) SELECT * FROM b JOIN c ON b.x = c.x", ["c"]),
        ("WITH b AS (SELECT * FROM a), a AS (SELECT 1 AS x) SELECT * FROM b", ["a"]),
        ("WITH a AS (SELECT 1 AS x) SELECT * FROM s.a", ["s.a"]),
        ("SELECT * FROM (WITH a AS (SELECT 1 AS x) SELECT * FROM a) AS i JOIN a ON i.x = a.x", ["a"]),
        ("WITH a AS (WITH b AS (SELECT * FROM c) SELECT * FROM b) SELECT * FROM a JOIN b ON a.x = b.x", ["c", "b"]),
        ("WITH a AS (SELECT 1 AS x) SELECT (SELECT max(x) FROM a) AS m FROM b WHERE x IN (SELECT x FROM a)", ["b"]),
        ("WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x FROM a) SELECT * FROM a", []),
        ("SELECT /*+ BROADCAST(b) */ * FROM a JOIN b ON a.x = b.x", ["a", "b"]),
        ("SELECT * FROM range(10)", []),
        ("SELECT * FROM a LATERAL VIEW explode(xs) e AS x", ["a"]),
        ("SELECT * FROM VALUES (1) AS v(x)", []),
        ("SELECT 1 AS x", []),
        ("SELECT * FROM a, b WHERE a.x = b.x", ["a", "b"]),
        ("SELECT * FROM ((a JOIN b ON a.x = b.x) JOIN c ON a.x = c.x)", ["a", "b", "c"]),
        ("SELECT * FROM a PIVOT (sum(x) FOR y IN ('p', 'q'))", ["a"]),
    ],
)
def test_common_tables_functions_and_hints_are_not_read(text, names):
    assert [str(name) for name in parse(text).reads] == names


def test_render_names_views_and_keeps_everything_else_as_it_was_written():
    query = parse("select  o.`id`, sales.returns.at\nfrom sales.orders o, sales.returns -- both\n where x='FROM sales'")

    assert query.render() == (
        "select  o.`id`, `returns`.at\nfrom `freshline_5_sales_orders` o, `freshline_5_sales_returns` AS `returns` "
        "-- both\n where x='FROM sales'"
    )
    assert query.render(views={TableName("sales", "orders"): "v1"}).startswith(
        "select  o.`id`, `returns`.at\nfrom `v1`"
    )


def test_a_field_of_a_struct_is_not_taken_for_a_namespace():
    query = parse("SELECT sales.returns.city AS c, sales.returns.at FROM t AS sales JOIN sales.returns r ON true")
    assert query.qualifiers == ()


def test_select_items_are_added_at_the_end_of_the_outermost_list():
    query = parse("WITH a AS (SELECT x FROM t) SELECT trim(BOTH FROM x) AS y, x IS NOT DISTINCT FROM 1 AS z\nFROM a")
    assert query.render(select_also=["1 AS one"]).endswith("DISTINCT FROM 1 AS z\n, 1 AS one FROM a")


@pytest.mark.parametrize(
    "text", ["SELECT 1 AS x", "SELECT x FROM a UNION SELECT x FROM b", "(SELECT x FROM a)", "(SELECT x FROM a) LIMIT 1"]
)
def test_where_there_is_no_one_select_list_with_a_from_nothing_can_be_added(text):
    query = parse(text)
    assert query.select_end is None
    with pytest.raises(ValueError, match="one SELECT"):
        query.render(select_also=["1 AS one"])


LOOKUP = """SELECT o.id, version_of(d) AS v, VERSION_OF(`p`) AS w
FROM orders o
LEFT JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() AS d ON o.k = d.k AND d.ds = CAST(o.ts AS DATE)
JOIN sales.place for system_time /* now */ as of proctime ( ) p ON (lower(o.p) <=> p.name)
"""


def test_lookup_joins_are_read_with_their_keys_as_written():
    query = parse(LOOKUP)

    assert query.lookup_joins == (
        LookupJoin(TableName(None, "dim"), "d", (("k", "o.k"), ("ds", "CAST(o.ts AS DATE)")), outer=True),
        LookupJoin(TableName("sales", "place"), "p", (("name", "lower(o.p)"),), outer=False),
    )
    assert query.lookups == {TableName(None, "dim"), TableName("sales", "place")}
    assert [str(name) for name in query.reads] == ["orders", "dim", "sales.place"]


def test_syntax_that_spark_does_not_know_is_taken_out_for_it():
    assert parse(LOOKUP).render(versions={"d": 7, "p": 9}) == (
        "SELECT o.id, CAST(7 AS BIGINT) AS v, CAST(9 AS BIGINT) AS w\nFROM `orders` o\n"
        "LEFT JOIN `dim`   AS d ON o.k = d.k AND d.ds = CAST(o.ts AS DATE)\n"
        "JOIN `freshline_5_sales_place`   p ON (lower(o.p) <=> p.name)\n"
    )


def test_a_lookup_without_an_alias_is_called_by_its_name():
    query = parse("SELECT version_of(dim) AS v FROM a JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() ON dim.k = a.k")
    assert query.lookup_joins[0].alias == "dim"
    assert query.render(versions={"dim": 3}).endswith("FROM `a` AS `a` JOIN `dim` AS `dim`   ON dim.k = a.k")


def test_a_table_that_is_also_read_plainly_is_not_only_a_lookup():
    query = parse("SELECT a.x FROM d AS a JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS b ON a.x = b.x")
    assert query.lookups == frozenset()
    assert len(query.lookup_joins) == 1


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("d.k = CASE WHEN o.a = 1 AND o.b = 2 THEN o.c END", [("k", "CASE WHEN o.a = 1 AND o.b = 2 THEN o.c END")]),
        ("(d.k = o.k) AND ((o.x = d.x))", [("k", "o.k"), ("x", "o.x")]),
        (
            "((d.k = (o.k)) AND d.x = coalesce(o.x, 'a = b AND c'))",
            [("k", "o.k"), ("x", "coalesce(o.x, 'a = b AND c')")],
        ),
        ("d.`odd name` = o.k", [("odd name", "o.k")]),
        ("D.k = k2", [("k", "k2")]),
        ("d.k = o.a + left(o.b, 2) WHERE o.k = 1", [("k", "o.a + left(o.b, 2)")]),
        ("d.ds = DATE '2026-01-01'", [("ds", "DATE '2026-01-01'")]),
        ("d.k == o.k LEFT JOIN z ON z.k = o.k", [("k", "o.k")]),
    ],
)
def test_keys_are_pairs_of_column_and_probe(condition, keys):
    query = parse(f"SELECT o.k FROM o JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() AS d ON {condition}")
    assert list(query.lookup_joins[0].keys) == keys


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1 FROM o JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON d.k < o.k", "is not an equality"),
        (
            "SELECT 1 FROM o JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON d.k = o.k AND d.live",
            "d.live is not an equality",
        ),
        ("SELECT 1 FROM o JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON d.k = o.k OR d.j = o.j", "is not an equality"),
        ("SELECT 1 FROM o JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON lower(d.k) = o.k", "is not an equality"),
        ("SELECT 1 FROM o JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON d.k = d.j", "is not an equality"),
        ("SELECT 1 FROM o JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON k = j", "is not an equality"),
        ("SELECT 1 FROM o JOIN d FOR SYSTEM_TIME AS OF PROCTIME()", "has no ON"),
        ("SELECT 1 FROM o JOIN d FOR SYSTEM_TIME AS OF PROCTIME() USING (k)", "instead of USING"),
        ("SELECT 1 FROM o RIGHT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON d.k = o.k", "RIGHT JOIN cannot look up d"),
        ("SELECT 1 FROM o FULL OUTER JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON d.k = o.k", "FULL OUTER JOIN cannot"),
        ("SELECT 1 FROM o LEFT SEMI JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON d.k = o.k", "LEFT SEMI JOIN cannot"),
        ("SELECT 1 FROM o CROSS JOIN d FOR SYSTEM_TIME AS OF PROCTIME()", "CROSS JOIN cannot"),
        ("SELECT 1 FROM o, d FOR SYSTEM_TIME AS OF PROCTIME()", "LOOKUP"),
        ("SELECT 1 FROM d FOR SYSTEM_TIME AS OF PROCTIME()", "beginning of FROM"),
        ("SELECT 1 FROM o FOR SYSTEM_TIME AS OF o.ts JOIN d ON d.k = o.k", "stands at the beginning of FROM"),
        (
            "SELECT 1 FROM o JOIN d x FOR SYSTEM_TIME AS OF PROCTIME() ON x.k = o.k",
            "follows the name of a declared table",
        ),
        (
            "WITH d AS (SELECT 1 AS k) SELECT 1 FROM o JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON d.k = o.k",
            "common table",
        ),
    ],
)
def test_other_lookup_joins_are_refused(text, said):
    rule, _, message = refused(text)[0]
    assert rule == "LOOKUP"
    assert said in message or said == "LOOKUP"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("version_of(o)", "does not name a lookup join. Lookups are d."),
        ("version_of(nothing)", "does not name a lookup join"),
        ("version_of()", "takes the alias"),
        ("version_of(d, o)", "takes the alias"),
        ("version_of(d.k)", "takes the alias"),
        ("version_of('d')", "takes the alias"),
    ],
)
def test_version_of_takes_the_alias_of_a_lookup(call, said):
    rule, where, message = refused(
        f"SELECT o.k,\n {call} AS v FROM o JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() AS d ON d.k = o.k", line=10
    )[0]
    assert (rule, where) == ("VERSION_OF", "assets/t.sql:11")
    assert said in message


@pytest.mark.parametrize(
    ("text", "rule", "line", "said"),
    [
        ("SELECT a FROM t WHERE", "QUERY_SYNTAX", 5, "cannot be read"),
        ("SELECT a\n\n FROM t GROUP a", "QUERY_SYNTAX", 7, "cannot be read"),
        ("SELECT map(a) FROM t", "QUERY_SYNTAX", 5, "not the arguments"),
        ("SELECT a,\n FROM t", "QUERY_SYNTAX", 5, "ends with a comma"),
        ("SELECT (a FROM t", "QUERY_SYNTAX", 5, "cannot be read"),
        ("SELECT a FROM t; SELECT b FROM t", "TWO_DECLARATIONS", 5, "a second statement"),
        ("INSERT INTO x SELECT 1", "QUERY_KIND", 5, "begins with INSERT"),
        ("VALUES (1)", "QUERY_KIND", 5, "begins with VALUES"),
        ("FROM t SELECT a", "QUERY_KIND", 5, "begins with FROM"),
        ("SHOW TABLES", "QUERY_KIND", 5, "begins with SHOW"),
        ("WITH a AS (SELECT 1) INSERT INTO x SELECT * FROM a", "QUERY_KIND", 5, "not a SELECT"),
        ("SELECT a FROM t |> WHERE a > 1", "QUERY_KIND", 5, "|> is not read"),
        ("SELECT TRANSFORM(a)\nUSING 'cat' AS (x) FROM t", "QUERY_KIND", 5, "runs a program"),
        ("SELECT a FROM (\nSELECT TRANSFORM(a) USING 'cat' AS (x) FROM t)", "QUERY_KIND", 6, "runs a program"),
        ("SELECT a,\n reflect('b', 'c') FROM t", "QUERY_FUNCTION", 6, "reflect(..) calls a method of Java"),
        ("SELECT `Java_Method` ('b', 'c') FROM t", "QUERY_FUNCTION", 5, "calls a method of Java"),
        ("SELECT from_protobuf(a, 'M', '/x') FROM t", "QUERY_FUNCTION", 5, "reads the descriptor file"),
        ("SELECT input_file_name/**/() AS f FROM t", "QUERY_FUNCTION", 5, "where the warehouse keeps a row"),
        ("SELECT a FROM table_changes('t', 1)", "QUERY_FUNCTION", 5, "past its declaration"),
        ("SELECT a\n-- and then \\\n, b FROM t", "SYNTAX", 6, "a comment ends with a backslash"),
        ("SELECT a\nFROM delta.`/x/y`", "QUERY_INPUT", 6, "delta.`/x/y` reads a path"),
        ("SELECT a FROM parquet.`x`", "QUERY_INPUT", 5, "reads a path"),
        ("SELECT a FROM `/x/y`", "QUERY_INPUT", 5, "reads a path"),
        ("SELECT a FROM read_files('/x')", "QUERY_INPUT", 5, "read_files(..) cannot be read"),
        ("SELECT a FROM t VERSION AS OF 3", "QUERY_INPUT", 5, "Versions are pinned"),
        ("SELECT a FROM t TIMESTAMP AS OF '2026-01-01'", "QUERY_INPUT", 5, "Versions are pinned"),
        ("SELECT a FROM t@v3", "QUERY_INPUT", 5, "Versions are pinned"),
        ("SELECT a FROM t TABLESAMPLE (10 PERCENT)", "QUERY_INPUT", 5, "TABLESAMPLE"),
        ("SELECT a FROM (SELECT a FROM t) TABLESAMPLE (10 PERCENT)", "QUERY_INPUT", 5, "TABLESAMPLE"),
        ("WITH c AS (SELECT a FROM t) SELECT a FROM c TABLESAMPLE (5 ROWS)", "QUERY_INPUT", 5, "c is read with"),
        ("SELECT a FROM spark_catalog.sales.orders", "QUERY_INPUT", 5, "has 3 parts"),
        ("SELECT a FROM a.orders, b.orders", "DUPLICATE_ALIAS", 5, "a.orders and b.orders are both called orders"),
        ("SELECT 1 FROM orders o JOIN returns O ON true", "DUPLICATE_ALIAS", 5, "are both called o"),
    ],
)
def test_a_text_that_is_not_one_select_over_declared_tables_is_refused(text, rule, line, said):
    found = refused(text, line=5)
    assert [(r, w) for r, w, _ in found] == [(rule, f"assets/t.sql:{line}")]
    assert said in found[0][2]


def test_a_query_that_is_nested_too_deeply_is_refused():
    rule, _, message = refused("SELECT " + "(" * 2000 + "x" + ")" * 2000 + " AS a FROM t")[0]
    assert rule == "QUERY_SYNTAX"
    assert "Split it into several tables" in message


def test_everything_that_is_wrong_is_reported_at_once():
    found = refused("SELECT version_of(z) AS v\nFROM delta.`/x`\nJOIN a.b.c ON true")
    assert [(rule, where[-1]) for rule, where, _ in found] == [
        ("VERSION_OF", "1"),
        ("QUERY_INPUT", "2"),
        ("QUERY_INPUT", "3"),
    ]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("SELECT a FROM t", "select  a -- c\n from  T;", True),
        ("SELECT `a` FROM t", "SELECT a FROM t", True),
        ("SELECT 'a' AS x FROM t", "SELECT 'A' AS x FROM t", False),
        ("SELECT 'a b' AS x FROM t", "SELECT 'a  b' AS x FROM t", False),
        ("SELECT a FROM t", "SELECT b FROM t", False),
        ("SELECT `a b` AS x FROM t", "SELECT a b FROM t", False),
        (
            "SELECT a FROM o JOIN t ON t.a = o.b",
            "SELECT a FROM o JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON t.a = o.b",
            False,
        ),
    ],
)
def test_meaning_is_the_query_without_layout(one, other, same):
    assert (parse(one).meaning == parse(other).meaning) is same


def test_a_time_window_is_read_as_the_function_that_it_is():
    query = parse("SELECT window.start AS s, 'window (' AS w FROM t GROUP BY window (at, '1 hour')")

    assert query.render() == "SELECT window.start AS s, 'window (' AS w FROM `t` AS `t` GROUP BY window (at, '1 hour')"
    assert parse_structure(query).args["group"] is not None
    assert parse_sql(query.render()).args["group"] is not None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT a FROM t GROUP BY window (at, '1 hour') window (at, '2 hours')", "at 'window'"),
        (
            "SELECT t.a FROM t JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS d ON d.k > window(t.at, '1 hour')",
            "d.k > WINDOW(t.at, '1 hour') is not an equality",
        ),
    ],
)
def test_an_error_shows_the_function_of_a_time_window_as_it_is_written(text, shown):
    with pytest.raises(DeclarationError) as caught:
        parse(text)

    assert shown in str(caught.value)


def test_a_named_window_is_still_one():
    tree = parse_structure(parse("SELECT sum(x) OVER w AS s FROM t WINDOW w AS (PARTITION BY y)"))
    assert len(tree.args["windows"]) == 1


def test_a_declared_query_is_parsed_once_for_its_places_and_its_columns(monkeypatch):
    texts = []
    real = sqlglot.parse

    def noted(text, **options):
        texts.append(text)
        return real(text, **options)

    monkeypatch.setattr(sqlglot, "parse", noted)
    text = "SELECT t.a AS once, d.b FROM t LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS d ON t.k = d.k"

    query = parse(text)
    for _ in range(2):
        columns = output_columns(query, "t.sql", {TableName.parse("t"): ("a", "k"), TableName.parse("d"): ("b", "k")})
        assert columns == ("once", "b")
    assert parse_structure(query) is parse_structure(parse(text))

    assert len(texts) == 1
