"""Words that Spark would refuse at the first refresh are refused at `plan`, with what to write."""

from __future__ import annotations

import pytest

from freshline.errors import DeclarationError
from freshline.sql.query_parser import parse_query


@pytest.mark.parametrize(
    ("query", "rule", "said"),
    [
        ("SELECT * FROM TUMBEL(TABLE o, DESCRIPTOR(ts), INTERVAL '5' MINUTE)", "QUERY_SYNTAX", "Did you mean TUMBLE?"),
        (
            "SELECT *\nFROM TABLE(cumulat(TABLE o, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '1' HOUR))",
            "QUERY_SYNTAX",
            "cumulat(TABLE ..) is no table function. Did you mean CUMULATE?",
        ),
        ("SELECT * FROM xyzzy(TABLE o)", "QUERY_SYNTAX", "There are TUMBLE, HOP, CUMULATE"),
        ("SELECT * FROM TUMBEL(o, DESCRIPTOR(ts), INTERVAL '5' MINUTE)", "QUERY_INPUT", "Did you mean TUMBLE?"),
        ("SELECT TUMBLE_START(ts, INTERVAL '5' MINUTE) AS s FROM o", "QUERY_FUNCTION", "FROM TUMBLE(TABLE .., "),
        ("SELECT count(*) AS n FROM o GROUP BY HOP(ts, INTERVAL '1' HOUR)", "QUERY_FUNCTION", "group by window_start"),
        ("SELECT ts - INTERVAL '5' AS x FROM o", "QUERY_SYNTAX", "Write one behind it: INTERVAL '5' MINUTE."),
        ("SELECT id FROM o WHERE ts > now() - INTERVAL 5", "QUERY_SYNTAX", "INTERVAL 5 has no unit"),
    ],
)
def test_a_mistake_is_reported_with_what_to_write(query, rule, said):
    with pytest.raises(DeclarationError) as raised:
        parse_query(query, "assets/t.sql", 1)

    (error,) = getattr(raised.value, "errors", (raised.value,))
    assert error.rule == rule
    assert said in error.message


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ts - INTERVAL '5' DAYS AS a, ts - INTERVAL '5' HOUR TO MINUTE AS b, INTERVAL '1 day 2 hours' FROM o",
        "SELECT interval, hop, o.session FROM o",
        "SELECT window_start FROM TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
        "SELECT 'TUMBEL(TABLE o)' AS t, \"INTERVAL '5'\" AS u FROM o",
        "SELECT window_start FROM TABLE(SESSION(TABLE o PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE))",
    ],
)
def test_a_query_that_only_resembles_one_is_read(query):
    assert parse_query(query, "assets/t.sql", 1).references
