"""The facts that freshline has of Spark's functions are Spark's own."""

from __future__ import annotations

import pytest
from sqlglot import ErrorLevel, exp, parse, parse_one

from freshline.query.functions import (
    AGGREGATES,
    UNORDERED,
    is_aggregate,
    is_session_key,
    is_time_window,
    is_unordered,
    name_of,
)
from freshline.sql.query_parser import parse_sql
from freshline.sql.volatile import VOLATILE

# Spark counts these among its aggregates only by what they do.
GROUPED_ELSEWHERE = {"schema_of_variant_agg", "vector_avg", "vector_sum"}


@pytest.mark.parametrize(
    ("text", "aggregates"),
    [
        ("sum(a)", 1),
        ("try_sum(a)", 1),
        ("std(a) FILTER (WHERE b)", 1),
        ("any(a)", 1),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY a)", 1),
        ("sum(a) OVER (PARTITION BY b)", 0),
        ("try_sum(a) FILTER (WHERE b) OVER (PARTITION BY b)", 0),
        ("sum(sum(a)) OVER (PARTITION BY b ORDER BY count(*))", 2),
        ("rank() OVER (PARTITION BY max(a) ORDER BY b)", 1),
        ("abs(a) + transform(b, x -> x + 1)", 0),
    ],
)
def test_aggregates_are_distinguished_from_window_functions(text, aggregates):
    tree = parse_one(text, dialect="spark")

    assert sum(is_aggregate(node) for node in tree.walk()) == aggregates


@pytest.mark.parametrize(
    ("text", "unordered"),
    [
        ("first(a)", True),
        ("first(a) IGNORE NULLS", True),
        ("first(a) OVER (PARTITION BY b ORDER BY c)", False),
        ("listagg(a)", True),
        ("listagg(a) WITHIN GROUP (ORDER BY a)", False),
        ("collect_set(a)", True),
        ("sort_array(collect_set(a))", False),
        ("size(collect_set(a) FILTER (WHERE b))", False),
        ("concat(collect_list(a), b)", True),
        ("max(a)", False),
        ("size(collect_set(v) OVER (PARTITION BY k))", False),
        ("sort_array(collect_list(v) OVER (PARTITION BY k))", False),
        ("collect_list(v) OVER (PARTITION BY k)", True),
        ("collect_list(v) OVER (PARTITION BY k ORDER BY v)", False),
        ("first(v) IGNORE NULLS OVER (PARTITION BY k)", True),
        ("array_sort(collect_list(v), (l, r) -> length(l) - length(r))", True),
        ("array_sort(collect_list(v))", False),
    ],
)
def test_a_value_that_follows_the_order_of_reading_is_found(text, unordered):
    tree = parse_one(f"SELECT {text}", dialect="spark")

    assert any(is_unordered(node) for node in tree.walk()) is unordered


def test_every_aggregate_of_spark_is_known(spark):
    functions = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry
    names = spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(functions.functionSet())
    found = {name.funcName(): functions.builtin().lookupFunction(name).get().getGroup() for name in names}

    assert {name for name, group in found.items() if group == "agg_funcs"} == AGGREGATES - GROUPED_ELSEWHERE
    assert found.keys() >= AGGREGATES | UNORDERED
    # A function that the parser takes for an aggregate must be one, or be used with OVER only.
    for name, group in found.items():
        if not name.isidentifier() or name in VOLATILE:
            continue
        try:
            [tree] = parse(f"SELECT {name}(a)", dialect="spark", error_level=ErrorLevel.IGNORE)
        except IndexError:
            # A function such as map, whose arguments come in pairs.
            [tree] = parse(f"SELECT {name}(a, b)", dialect="spark", error_level=ErrorLevel.IGNORE)
        if tree is not None and tree.find(exp.AggFunc):
            assert group in ("agg_funcs", "window_funcs") or name in GROUPED_ELSEWHERE, (name, group)


BY_HOUR = "SELECT window(ts, '1 hour').start AS s FROM ev GROUP BY window(ts, '1 hour')"


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (BY_HOUR, True),
        # Around their query is a join, a condition, or a window function.
        (f"SELECT a.s FROM ev JOIN ({BY_HOUR}) a ON a.s = ev.ts", True),
        (f"SELECT a.s FROM ({BY_HOUR}) a LEFT JOIN ({BY_HOUR}) b ON a.s = b.s", True),
        (f"SELECT id FROM ev WHERE EXISTS (SELECT 1 FROM ({BY_HOUR}) a WHERE a.s = ev.ts)", True),
        (f"SELECT id FROM ev WHERE ts IN ({BY_HOUR})", True),
        (f"SELECT s, rank() OVER (ORDER BY s) AS r FROM ({BY_HOUR})", True),
        # A group has one window, a row may have several.
        (f"{BY_HOUR} QUALIFY rank() OVER (PARTITION BY window(ts, '1 hour').start ORDER BY count(*)) = 1", True),
        ("SELECT rank() OVER (PARTITION BY window(ts, '1 hour').start ORDER BY v) AS r FROM ev", False),
        ("SELECT id FROM ev WHERE window(ts, '1 hour').start > x", False),
        ("SELECT id FROM ev JOIN o ON o.ts = window(ev.ts, '1 hour').start", False),
        (f"SELECT id FROM ({BY_HOUR}) a JOIN ev ON a.s = window(ev.ts, '1 hour').start", False),
    ],
)
def test_a_window_of_a_row_is_known_by_its_own_query(query, told):
    calls = [node for node in parse_sql(query).walk() if name_of(node) == "window"]

    assert calls
    assert all(is_time_window(call) for call in calls) is told


@pytest.mark.parametrize(
    "around", ["SELECT a.k FROM ({}) a JOIN ev ON a.k = ev.k", "SELECT id FROM ev WHERE k IN ({})"]
)
def test_a_session_is_known_by_its_own_query(around):
    query = around.format("SELECT k FROM ev GROUP BY k, session_window(ts, '1 hour')")

    (call,) = (node for node in parse_sql(query).walk() if name_of(node) == "session_window")
    assert is_session_key(call)
