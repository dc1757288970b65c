"""Mistakes in declarations over event time are reported with file, line and fragment, before any work."""

from __future__ import annotations

import pytest

from freshline.declare.project import read_declarations
from freshline.errors import DeclarationErrors
from freshline.plan.project import check_promises

FILES = "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing')"
SOURCES = {
    "ev.sql": f"CREATE SOURCE ev (id BIGINT, k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {FILES}",
    "plain.sql": "CREATE SOURCE plain (v INT, ts TIMESTAMP) WITH ('connector' = 'delta', 'path' = 'plain')",
}


def problems(settings, text: str) -> list[tuple[str, str, str]]:
    """The rule, the place and the sentence of each mistake in a declaration."""
    try:
        check_promises(read_declarations({**SOURCES, "t.sql": text}, settings))
    except DeclarationErrors as refused:
        return [(error.rule, str(error.where), error.message) for error in refused.errors]
    return []


GROUPED = "SELECT k, count(*) AS n FROM ev GROUP BY k"


@pytest.mark.parametrize(
    ("code", "line", "emit", "query", "said"),
    [
        ("EMIT_WHEN", 2, "WHEN (count(*) > 3)", GROUPED, "WHEN (count(*) > 3): it contains the aggregate count"),
        ("EMIT_WHEN", 3, "WHEN\n(n > (SELECT 1))", GROUPED, "subquery"),
        ("EMIT_WHEN", 2, "WHEN (now() > '2026-01-01')", GROUPED, "gives another value each time"),
        ("EMIT_WHEN", 2, "WHEN (n > rand() * 10)", GROUPED, "rand gives another value each time"),
        ("EMIT_WHEN", 2, "WHEN (watermark('ev') > ts)", GROUPED, "takes no argument"),
        ("EMIT_WHEN", 2, "WHEN (n >)", GROUPED, "not one SQL expression"),
        ("EMIT_WHEN", 2, "WHEN ()", GROUPED, "empty"),
        ("EMIT_WHEN", 2, "WHEN (n > 3 -- enough)\n)", GROUPED, "not one SQL expression"),
        ("UNKNOWN_COLUMN", 4, "WHEN (n > 3\n\nAND m > 3)", GROUPED, "m"),
        ("UNKNOWN_COLUMN", 2, "WHEN (v > 3)", GROUPED, "v"),
        ("UNKNOWN_COLUMN", 4, "WHEN (n > 3)", "SELECT k, count(*) AS n, max(x) AS w FROM ev GROUP BY k", "x"),
        ("LATENESS", 2, "ALLOWED LATENESS INTERVAL '1' MINUTE WHEN (n > 3)", GROUPED, "Remove one"),
        ("LATENESS", 2, "ALLOWED LATENESS INTERVAL '-1' MINUTE", "SELECT v FROM ev", "-1"),
        ("FINAL_INPUT", 2, "WHEN (n > 3)", "SELECT k, v AS n FROM ev", "PRIMARY KEY"),
        ("FINAL_INPUT", 2, "WHEN (n > 3)", "SELECT count(*) AS n FROM ev GROUP BY k", "PRIMARY KEY"),
        ("FINAL_INPUT", 4, "WHEN (n > 3)", GROUPED.replace("count(*)", "count(*) + first(v)"), "order of reading"),
        ("FINAL_INPUT", 4, "WHEN (n > 3)", GROUPED.replace("GROUP", "WHERE ts > now() GROUP"), "this query has now"),
        ("WATERMARK_MISSING", 2, "WHEN (watermark() > ts)", "SELECT v, max(ts) AS ts FROM plain GROUP BY v", "plain"),
        ("SYNTAX", 2, "WHEN n > 3", GROUPED, "( is expected"),
    ],
)
def test_mistakes_in_emit_are_reported_at_their_line(settings, code, line, emit, query, said):
    [found] = problems(settings, f"CREATE MATERIALIZED TABLE t\nEMIT FINAL {emit}\nAS\n{query}")

    assert found[0] == code, found
    assert found[1].endswith(f"t.sql:{line}"), found
    assert said in found[2]


@pytest.mark.parametrize(
    "query",
    [
        GROUPED,
        "WITH a AS (SELECT * FROM ev) SELECT lower(k) AS k, count(*) AS n FROM a GROUP BY lower(k) -- all",
        "SELECT DISTINCT k, v AS n FROM ev",
        "SELECT k, v AS n FROM ev GROUP BY ALL",
        "SELECT window_end, k, count(*) AS n FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY 1, 2",
    ],
)
def test_rows_of_when_have_a_key_by_their_query(settings, query):
    found = problems(
        settings, f"CREATE MATERIALIZED TABLE t EMIT FINAL WHEN (n > 3 -- 'x\n AND k <> 'watermark()') AS\n{query}"
    )

    assert [rule for rule, _, _ in found] == (["FINAL_INPUT"] if "ALL" in query else [])


SOURCES_OF_PATTERNS = "SELECT * FROM ev MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts\nMEASURES A.id AS a\n{}\n)"
HOUR = "INTERVAL '1' HOUR"
UNION = f"SELECT count(*) AS n FROM TUMBLE(TABLE ({{}} UNION ALL {{}}), DESCRIPTOR(ts), {HOUR}) GROUP BY window_start"

# One mistake for each rule of event time: its code, the line of the query on which it stands, the query, and the words
# of the declaration that the message repeats. Those that only rows can show are ASOF_DUPLICATE (test_as_of.py) and
# PATTERN_BUDGET (test_patterns.py).
MISTAKES = [
    ("WINDOW_SIZE", 2, f"SELECT id\nFROM HOP(TABLE ev, DESCRIPTOR(ts), {HOUR}, INTERVAL '90' MINUTES)", "HOP"),
    ("WINDOW_SIZE", 2, "SELECT id\nFROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '0' HOUR)", "TUMBLE"),
    ("WINDOW_TIME", 2, f"SELECT id\nFROM TUMBLE(TABLE ev, DESCRIPTOR(v), {HOUR})", "by v, which is INT"),
    ("COUNT_ORDER", 2, "SELECT id\nFROM COUNT_WINDOW(TABLE ev PARTITION BY k ORDER BY ts, SIZE => 3)", "COUNT_WINDOW"),
    (
        "ASOF_TIME",
        2,
        "SELECT e.id FROM ev AS e\nJOIN ev FOR SYSTEM_TIME AS OF ts AS r ON r.k = e.k",
        "SYSTEM_TIME AS OF",
    ),
    ("ASOF_TIME", 2, "SELECT e.id FROM ev AS e\nJOIN plain FOR SYSTEM_TIME AS OF e.ts AS r ON r.v = e.v", "plain"),
    ("PATTERN_SYNTAX", 3, SOURCES_OF_PATTERNS.format("PATTERN (A **) DEFINE A AS v > 1"), "PATTERN"),
    ("PATTERN_VARIABLE", 3, SOURCES_OF_PATTERNS.format("PATTERN (A) DEFINE A AS v > 1, B AS v > 2"), "DEFINE names B"),
    ("PATTERN_VARIABLE", 3, SOURCES_OF_PATTERNS.format("PATTERN (A) DEFINE A AS v > Z.v"), "Z"),
    (
        "PATTERN_EMPTY_SKIP",
        3,
        SOURCES_OF_PATTERNS.format("AFTER MATCH SKIP TO FIRST A PATTERN (A B) DEFINE B AS v > 1"),
        "FIRST A",
    ),
    ("PATTERN_EXPRESSION", 3, SOURCES_OF_PATTERNS.format("PATTERN (A) DEFINE A AS v > (SELECT 1)"), "subquery"),
    ("UNKNOWN_COLUMN", 2, f"SELECT id\nFROM TUMBLE(TABLE ev, DESCRIPTOR(time), {HOUR})", "time"),
]


@pytest.mark.parametrize(("code", "line", "query", "said"), MISTAKES)
def test_mistakes_in_queries_over_time_are_reported_at_their_line(settings, code, line, query, said):
    [found] = problems(settings, f"CREATE MATERIALIZED TABLE t\nAS\n{query}")

    assert found[0] == code, found
    assert found[1].endswith(f"t.sql:{line + 2}"), found
    assert said in found[2]


@pytest.mark.parametrize(
    ("code", "header", "query", "said"),
    [
        ("FINAL_INPUT", "(PRIMARY KEY (id)) WITH ('merge' = 'first_row')\n", "SELECT id, v FROM ev", "'merge'"),
        ("FINAL_INPUT", "\n", "SELECT id, v FROM ev WHERE ts > now() - INTERVAL '7' DAYS", "this query has now"),
        ("FINAL_INPUT", "\n", SOURCES_OF_PATTERNS.format("PATTERN (A $) DEFINE A AS v > 1"), "this query has $"),
        ("FINAL_INPUT", "\n", "SELECT v FROM plain", "plain"),
        ("WATERMARK_MISSING", "\n", f"SELECT v FROM TUMBLE(TABLE two, DESCRIPTOR(at), {HOUR})", "watermark is of ts"),
        # Columns of UNION ALL are alike by their place.
        ("WATERMARK_MISSING", "\n", UNION.format("SELECT ts, v FROM ev", "SELECT at, v FROM two"), "time is at"),
        ("WATERMARK_MISSING", "\n", UNION.format("SELECT v, ts FROM ev", "SELECT ts, at FROM two"), "time is at"),
        ("FINAL_INPUT", "\n", UNION.format("SELECT * FROM ev", "SELECT * FROM two"), "by their places"),
        ("FINAL_INPUT", "\n", UNION.format("SELECT ts, v, at FROM two", "SELECT * FROM two"), "by their places"),
        ("FINAL_INPUT", "\n", UNION.format("SELECT *, v AS w FROM ev", "SELECT ts, * FROM two"), "which is ts"),
    ],
)  # fmt: skip
def test_a_declaration_that_final_does_not_go_with_is_reported(settings, code, header, query, said):
    two = f"CREATE SOURCE two (v INT, ts TIMESTAMP, at TIMESTAMP, WATERMARK FOR ts AS ts) {FILES}"
    text = f"CREATE MATERIALIZED TABLE t {header}EMIT FINAL AS\n{query}"
    try:
        check_promises(read_declarations({**SOURCES, "two.sql": two, "t.sql": text}, settings))
        pytest.fail("nothing was refused")
    except DeclarationErrors as refused:
        [error] = refused.errors
    assert error.rule == code, error
    assert "t.sql:" in str(error.where)
    assert said in error.message
