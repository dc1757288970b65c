"""A query is parsed once, and knows what is nondeterministic in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlglot
from sqlglot import exp

from freshline.merges.last_row import LastRow
from freshline.query import exactness, query, resolved
from freshline.query.query import MOST_NODES, Query, read_query
from freshline.query.resolved import ResolvedQuery, find_lineage
from freshline.query.rules.algebra import find_algebra
from freshline.query.rules.append import find_branches
from freshline.query.rules.keys import Affected, find_affected
from freshline.query.rules.partition import Origin, find_origin
from freshline.query.select_list import groups_by, stored_order
from freshline.query.tree import NotDerivedError, sql
from freshline.sql.query_parser import parse_query, parse_sql
from freshline.values.freshness import Freshness
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.query import TextSpan
from freshline.values.reason import Reason
from freshline.values.spec import TableSpec


def read(text):
    return read_query(parse_query(text, "t.sql", 1))


@pytest.mark.parametrize(
    "call", ["uuid()", "rand()", "rand(7)", "current_timestamp()", "now()", "current_date()", "current_date"]
)
def test_functions_that_give_another_value_each_time_are_seen(call):
    query = read(f"SELECT a, {call} AS x FROM s")

    assert query.volatile is not None
    refused = [find_branches(query), find_origin(query, ("a",))]
    assert [isinstance(each, Reason) and each.code for each in refused] == ["NONDETERMINISTIC"] * 2


@pytest.mark.parametrize(
    "condition",
    [
        "ds < DATE'today'",
        "ts > TIMESTAMP'now'",
        "ts > TIMESTAMP_NTZ 'now'",
        "ds = CAST('yesterday' AS DATE)",
        "ds = 'Tomorrow'",
        "ds BETWEEN '2026-01-01' AND 'today'",
        "ds IN ('today', '2026-01-01')",
        "ts < to_timestamp('now UTC')",
        "ds = date(' today ')",
        "CASE ds WHEN 'today' THEN 1 END = 1",
        "datediff('today', ds) < 3",
        "ds >= date_sub('today', 7)",
        "ds >= dateadd('today', -7)",
        "extract(DAY FROM 'today') = n",
        "ds IS DISTINCT FROM 'today'",
        "nullif(ds, 'today') IS NULL",
        "coalesce(ds, 'today') > a",
        "nvl(ds, 'today') > a",
        "greatest(ds, 'today') > a",
        "if(n = 1, ds, 'today') > a",
        "CASE WHEN n = 1 THEN ds ELSE 'today' END > a",
        "to_utc_timestamp('now', 'Asia/Tokyo') > ts",
    ],
)
def test_a_text_that_is_the_time_of_the_query_is_seen(condition):
    assert read(f"SELECT a FROM s WHERE {condition}").volatile.startswith("the text")


@pytest.mark.parametrize(
    "text",
    [
        "'today' AS a",
        "CASE WHEN a > 1 THEN 'now' ELSE 'later' END AS a",
        "'now or never' = a AS b",
        "lower(status) IN ('now', 'later') AS b",
        "status LIKE 'now' AS b",
        "concat(a, 'today') AS b",
        "regexp_extract(a, 'today', 0) AS b",
        "'now' || a AS b",
        "coalesce(lower(a), 'today') AS b",
        "CASE WHEN a > 1 THEN 'now' WHEN a > 2 THEN lower(b) END AS a",
        "CAST(a AS STRING) = 'now' AS b",
    ],
)
def test_a_text_that_is_only_shown_is_a_text(text):
    assert read(f"SELECT {text} FROM s").volatile is None


def test_encryption_begins_each_time_with_another_vector_unless_it_is_given_one():
    assert read("SELECT aes_encrypt(a, k) AS x FROM s").volatile == "aes_encrypt"
    assert read("SELECT aes_encrypt(a, k, 'CBC', 'PKCS', iv) AS x FROM s").volatile is None


@pytest.mark.parametrize("call", ["unix_timestamp(ts)", "to_date(ts)", "date_trunc('DAY', ts)", "coalesce(a, b)"])
def test_functions_of_their_arguments_are_not(call):
    assert read(f"SELECT a, {call} AS x FROM s").volatile is None


# -- one parse for every rule


@pytest.fixture
def parsed(monkeypatch):
    """The texts that sqlglot parses, from nothing kept on."""
    kept = (query._tree, query._volatile, query._expanded, resolved._qualified, exactness.read_exactness)
    for each in (*kept, read_query, find_branches, find_origin, find_affected, find_algebra, groups_by):
        each.cache_clear()
    texts = []
    real = sqlglot.parse

    def noted(text, **options):
        texts.append(text)
        return real(text, **options)

    monkeypatch.setattr(sqlglot, "parse", noted)
    return texts


def test_all_rules_together_parse_a_query_once(parsed):
    declared = parse_query(
        "WITH x AS (SELECT k, d, v FROM s) SELECT k, d, sum(v) AS v FROM x GROUP BY k, d", "t.sql", 1
    )
    parsed.clear()

    known = read_query(declared)
    find_branches(known)
    origin = find_origin(known, ("d",))
    assert isinstance(origin, Origin)
    assert origin.input == TableName.parse("s")
    assert groups_by(known) == frozenset({"k", "d"})
    over = ResolvedQuery.of(known.text, {"s": ("k", "d", "v")}, {"s": {"k": "INT", "d": "DATE", "v": "INT"}})
    affected, algebra = find_affected(over, frozenset({"s"})), find_algebra(over, frozenset({"s"}))
    assert isinstance(affected, Affected)
    assert affected.columns == ("k", "d")
    assert algebra is not None
    assert algebra.keys == ("k", "d")
    assert over.columns == ("k", "d", "v")
    assert over.lineage["v"] == (("s", "v"),)

    assert parsed == [declared.render()]


def test_a_refresh_after_another_parses_nothing(parsed):
    declared = parse_query("SELECT k, count(*) AS n FROM s GROUP BY k", "t.sql", 1)
    over = ResolvedQuery.of(read_query(declared).text, {"s": ("k",)})
    find_affected(over, frozenset({"s"}))
    parsed.clear()

    again = find_affected(ResolvedQuery.of(declared.render(), {"s": ("k",)}), frozenset({"s"}))
    assert isinstance(again, Affected)
    assert again.columns == ("k",)
    assert parsed == []


def test_the_stored_order_of_a_merge_parses_its_query_once(parsed):
    spec = table("SELECT k, at FROM s", columns=("k", "at"), merge=LastRow("at", None))
    parsed.clear()

    assert [stored_order(spec, "at", None).order for _ in range(3)] == ["at"] * 3
    assert parsed.count(spec.query.render()) == 1


def test_the_rules_leave_the_shared_trees_as_they_are():
    text = (
        "SELECT r.k, sum(s.v) AS v FROM s JOIN r ON s.k = r.k AND s.x > 1.5 WHERE s.v IN (SELECT v FROM q) GROUP BY r.k"
    )
    over = ResolvedQuery.of(text, {"s": ("k", "v", "x"), "r": ("k",), "q": ("v",)})
    tree, qualified = Query(text).tree.sql(), over.tree.sql()

    for changed in ("s", "r", "q"):
        assert not isinstance(find_affected(over, frozenset({changed})), Reason)
        find_algebra(over, frozenset({changed}))

    assert (Query(text).tree.sql(), over.tree.sql()) == (tree, qualified)


# -- places


@pytest.mark.parametrize(
    ("written", "understood"),
    [
        ("ts - INTERVAL 1 HOUR 30 MINUTES", "ts - (INTERVAL '1' HOUR + INTERVAL '30' MINUTES)"),
        ("ts - INTERVAL 1 DAY 2 HOURS 3 MINUTES < x", None),
        ("INTERVAL 1 HOUR 30 MINUTES * 2", "(INTERVAL '1' HOUR + INTERVAL '30' MINUTES) * 2"),
    ],
)
def test_the_units_of_an_interval_stay_together(written, understood):
    understood = understood or "ts - (INTERVAL '1' DAY + INTERVAL '2' HOURS + INTERVAL '3' MINUTES) < x"
    assert sql(parse_sql(f"SELECT {written}")) == f"SELECT {understood}"


def test_an_expression_is_given_as_it_was_written():
    known = Query("SELECT to_char( s.ts , 'yyyy-MM') AS m FROM s")
    (item,) = known.tree.expressions

    assert known.span(item.this) == TextSpan(7, 33)
    assert known.written(item.this, lambda column: f"<{column.name}>") == "to_char( <ts> , 'yyyy-MM')"
    assert known.written(exp.column("made"), lambda column: column.name) is None


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("Sum( a )", "sum(a)", True),
        ("concat(a, 'X')", "concat(a, 'x')", False),
        ("A", "a", True),
        ("to_char(t, 'yyyy')", "to_char(t, 'MM')", False),
    ],
)
def test_expressions_are_compared_by_their_words(left, right, same):
    known = Query(f"SELECT {left}, {right} FROM s")

    assert known.is_same(*known.tree.expressions) is same


def test_inputs_are_the_declared_tables_behind_views():
    known = read(
        "WITH o AS (SELECT k FROM lake.orders) SELECT o.k FROM o JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON d.k = o.k"
    )

    assert set(known.inputs.values()) == {TableName("lake", "orders"), TableName(None, "d")}
    assert known.inputs_in(known.expanded) == {TableName("lake", "orders"), TableName(None, "d")}
    assert known.lookups == {TableName(None, "d")}


@pytest.mark.seconds
def test_common_tables_that_double_too_often_are_refused():
    doubled = ", ".join(f"c{n} AS (SELECT x.a FROM c{n - 1} x, c{n - 1} y)" for n in range(1, 20))
    known = Query(f"WITH c0 AS (SELECT a FROM s), {doubled} SELECT a FROM c19")

    with pytest.raises(NotDerivedError, match="nested too often"):
        _ = known.expanded
    assert sum(1 for _ in known.tree.walk()) < MOST_NODES


# -- columns and their origins


def table(text, **parts):
    spec = TableSpec(TableName.parse("t"), parse_query(text, "t.sql", 1), Location("t.sql", 1), Freshness(60))
    return replace(spec, **parts)


def test_columns_are_followed_to_the_columns_of_inputs():
    orders, customers = TableName("lake", "orders"), TableName(None, "customers")
    spec = table(
        "WITH x AS (SELECT cid, amount * 2 AS twice FROM lake.orders WHERE day > '2026') "
        "SELECT c.Name, sum(x.twice) AS s, 1 AS one FROM x JOIN customers c ON c.id = x.cid GROUP BY c.name",
        columns=("Name", "s", "one"),
    )

    assert find_lineage(spec, {orders: ("cid", "Amount", "day"), customers: ("id", "name")}) == {
        "Name": ((customers, "name"),),
        "s": ((orders, "Amount"),),
    }
    assert find_lineage(spec, {orders: ("cid", "Amount", "day")}) == {}


def test_a_query_that_cannot_be_understood_has_a_reason():
    over = ResolvedQuery.of("SELECT nothing FROM s", {"s": ("k",)})

    with pytest.raises(NotDerivedError, match="not understood"):
        _ = over.columns
    refused = find_affected(over, frozenset({"s"}))
    assert isinstance(refused, Reason)
    assert refused.code == "UNSUPPORTED"
