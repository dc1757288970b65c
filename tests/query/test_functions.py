"""What is known of Spark's functions is what Spark knows of them."""

from __future__ import annotations

import pytest
from sqlglot import ErrorLevel, exp, parse, parse_one

from freshline.declare.volatile import VOLATILE
from freshline.query.functions import AGGREGATES, UNORDERED, is_aggregate, is_unordered

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
def test_aggregates_are_told_from_window_functions(text, aggregates):
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
    ],
)
def test_a_value_that_follows_the_order_of_reading_is_found(text, unordered):
    tree = parse_one(text, dialect="spark")

    assert any(is_unordered(node) for node in tree.walk()) is unordered


def test_every_aggregate_of_spark_is_known(spark):
    functions = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry
    names = spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(functions.functionSet())
    found = {name.funcName(): functions.builtin().lookupFunction(name).get().getGroup() for name in names}

    assert {name for name, group in found.items() if group == "agg_funcs"} == AGGREGATES - GROUPED_ELSEWHERE
    assert found.keys() >= AGGREGATES | UNORDERED
    # What the parser takes for an aggregate must be one, or be used with OVER only.
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


@pytest.mark.parametrize(
    ("text", "unordered"),
    [
        ("size(collect_set(v) OVER (PARTITION BY k))", False),
        ("sort_array(collect_list(v) OVER (PARTITION BY k))", False),
        ("collect_list(v) OVER (PARTITION BY k)", True),
        ("collect_list(v) OVER (PARTITION BY k ORDER BY v)", False),
        ("first(v) IGNORE NULLS OVER (PARTITION BY k)", True),
        ("array_sort(collect_list(v), (l, r) -> length(l) - length(r))", True),
        ("array_sort(collect_list(v))", False),
    ],
)
def test_what_follows_the_order_of_reading_is_told(text, unordered):
    tree = parse_one(f"SELECT {text}", dialect="spark")

    assert any(is_unordered(node) for node in tree.walk()) is unordered
