"""Without its lookup joins, a query gives of each row what no dimension decides."""

from __future__ import annotations

import pytest

from freshline.query.rules.lookups import OwnRows, find_own_rows
from freshline.sql.query_parser import parse_query
from freshline.values.reason import Reason

COLUMNS = {"o": ("id", "n", "c", "arr"), "x": ("id", "v"), "c": ("id", "name", "tags"), "d": ("id", "rate")}
C = "c FOR SYSTEM_TIME AS OF PROCTIME() AS c ON o.c = c.id"
D = "d FOR SYSTEM_TIME AS OF PROCTIME() AS d ON d.id = c.name"


def own(text):
    query = parse_query(text, "assets/t.sql", 1)
    return find_own_rows(query, {name.view.lower(): COLUMNS[name.name] for name in query.reads})


@pytest.mark.parametrize(
    ("query", "columns", "text"),
    [
        (
            f"SELECT o.id, n, name, version_of(c) AS v FROM o LEFT JOIN {C} WHERE n > 1 AND c.name <> 'x'",
            ("id", "n"),
            "SELECT a0.id, a0.n FROM o AS a0 WHERE (a0.n > 1)",
        ),
        (
            f"WITH e AS (SELECT o.id, c.name, o.n FROM o JOIN {C}) SELECT n, upper(name) AS u FROM e WHERE name > ''",
            ("n",),
            "WITH e AS (SELECT a0.id, NULL AS name, a0.n FROM o AS a0) SELECT a2.n FROM e AS a2",
        ),
        (
            f"SELECT o.id, 'a' AS k, name FROM o JOIN {C} UNION ALL SELECT id, 'b', string(v) FROM x ORDER BY name",
            ("id", "k"),
            "SELECT a0.id, 'a' AS k FROM o AS a0 UNION ALL SELECT a2.id, 'b' AS b FROM x AS a2",
        ),
        (
            f"SELECT x.v, rate * n AS r FROM o JOIN x ON o.id = x.id JOIN {C} LEFT JOIN {D}",
            ("v",),
            "SELECT a1.v FROM o AS a0 JOIN x AS a1 ON a0.id = a1.id",
        ),
    ],
)
def test_a_condition_that_a_dimension_decides_is_left_out(query, columns, text):
    found = own(query)

    assert isinstance(found, OwnRows)
    assert (found.columns, found.text.replace("freshline_", "").replace("`", "")) == (columns, text)


def test_a_row_has_changed_where_a_column_has_that_the_query_reads():
    found = own(f"SELECT o.id, name FROM o JOIN x ON o.id = x.id LEFT JOIN {C} WHERE n > 1")

    assert (found.columns_read("o"), found.columns_read("x")) == ({"id", "n", "c"}, {"id"})


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (f"SELECT c.name, c.id AS cid FROM o JOIN {C}", "NO_KEY"),
        (f"SELECT o.id, t FROM o JOIN {C} LATERAL VIEW explode(c.tags) s AS t", "UNSUPPORTED"),
        (f"SELECT o.id, x.v FROM o LEFT JOIN {C} JOIN x ON x.id = c.id", "UNSUPPORTED"),
    ],
)
def test_rows_that_a_dimension_decides_are_not_found_by_what_they_have_of_themselves(query, reason):
    found = own(query)

    assert isinstance(found, Reason)
    assert found.code == reason
