"""The outermost grouping makes columns of the result unique."""

from __future__ import annotations

import pytest

from freshline.query.query import read_query
from freshline.query.select_list import groups_by
from freshline.sql.query_parser import parse_query


@pytest.mark.parametrize(
    ("query", "unique"),
    [
        ("SELECT a, b, count(*) AS n FROM s GROUP BY a, b", {"a", "b"}),
        ("SELECT CAST(a AS DATE) AS d, count(*) AS n FROM s GROUP BY CAST(a AS DATE)", {"d"}),
        ("SELECT a AS x, count(*) AS n FROM s GROUP BY 1", {"x"}),
        ("SELECT DISTINCT a, b FROM s", {"a", "b"}),
        ("SELECT count(*) AS n FROM s GROUP BY a", None),
        ("SELECT a, count(*) AS n FROM s GROUP BY a WITH ROLLUP", None),
        ("SELECT a, explode(xs) AS x FROM s GROUP BY a, xs", None),
        ("SELECT a FROM s", None),
        ("SELECT k, explode(array_sort(collect_set(v))) AS v FROM s GROUP BY k", None),
        # Grouped by the input's column, of which the one of the result is made.
        ("SELECT lower(a) AS a, count(*) AS n FROM s GROUP BY a", None),
        ("SELECT a AS b, b AS a, count(*) AS n FROM s GROUP BY a, b", {"a", "b"}),
        ("SELECT s.a, count(*) AS n FROM s GROUP BY a", {"a"}),
        ("SELECT to_char(t, 'yyyy') AS y, count(*) AS n FROM s GROUP BY to_char(t, 'yyyy'), to_char(t, 'MM')", None),
        ("SELECT CAST(ts AS DATE) AS d, count(*) AS n FROM s GROUP BY d", {"d"}),
    ],
)
def test_the_outermost_grouping_makes_columns_unique(query, unique):
    found = groups_by(read_query(parse_query(query, "t.sql", 1)))

    assert found == (None if unique is None else frozenset(unique))
