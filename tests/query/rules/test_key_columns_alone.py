"""Below an inner join on a key of one type, changed rows alone give the keys."""

from __future__ import annotations

import pytest

from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.keys import find_affected
from freshline.values.reason import Reason
from tests.query.compact import shown

SCHEMA = {"l": ("k", "a", "x"), "r": ("k", "b", "m"), "s": ("m", "c")}
TYPES = {
    "l": {"k": "BIGINT", "a": "STRING", "x": "DOUBLE"},
    "r": {"k": "BIGINT", "b": "STRING", "m": "DECIMAL(10,2)"},
    "s": {"m": "DECIMAL(10,2)", "c": "STRING"},
}


def queries(text, *changed, key=("k",), types=TYPES):
    found = find_affected(ResolvedQuery.of(text, SCHEMA, types), frozenset(changed), primary_key=key)
    assert not isinstance(found, Reason), found
    return shown(found)


def test_each_side_of_a_join_gives_the_key():
    text = "SELECT l.k, l.a, r.b FROM l JOIN r ON l.k = r.k WHERE l.a <> 'x' AND r.b > l.a"

    assert queries(text, "l", "r") == (
        "SELECT a0.k FROM l* a0 WHERE (a0.a <> 'x')",
        "SELECT a1.k FROM r* a1",
    )


def test_equality_goes_on_from_table_to_table():
    text = "SELECT l.k, count(*) AS n FROM s JOIN r ON r.m = s.m JOIN l ON r.k = l.k GROUP BY l.k"

    assert queries(text, "r") == ("SELECT a1.k FROM r* a1",)
    assert "JOIN" in queries(text, "s")[0]


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("SELECT l.k, r.b FROM l LEFT JOIN r ON l.k = r.k", "r"),
        ("SELECT r.k, r.b FROM l LEFT JOIN r ON l.k = r.k", "l"),
        ("SELECT l.k + 1 AS k FROM l JOIN r ON l.k = r.k", "r"),
        ("SELECT l.k FROM l JOIN r ON l.k = r.k + 1", "r"),
        ("SELECT l.k FROM l JOIN r ON l.k = r.k OR l.a = r.b", "r"),
    ],
)
def test_rows_beside_them_are_read_where_equality_does_not_say_enough(text, changed):
    assert any("JOIN" in query or "EXISTS" in query for query in queries(text, changed))


def test_equal_values_of_two_types_or_of_looser_equality_are_not_one_value():
    text = "SELECT l.k, r.b FROM l JOIN r ON l.k = r.k"

    for kind in ("STRING", "DOUBLE", "INT"):
        other = {**TYPES, "r": {**TYPES["r"], "k": kind}}
        assert "JOIN" in queries(text, "r", types=other)[0]
    both = {"l": {**TYPES["l"], "k": "DOUBLE"}, "r": {**TYPES["r"], "k": "DOUBLE"}}
    assert "JOIN" in queries(text, "r", types=both)[0]
    assert "JOIN" in queries(text, "r", types=None)[0]
