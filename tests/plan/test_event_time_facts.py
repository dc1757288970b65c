"""EXPLAIN says of tables over event time when rows are final, where the watermark stands and what a late row costs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from freshline.declare.project import read_declarations
from freshline.plan.explain import Explanation, declared_types, explain_table, with_event_time
from freshline.values.names import TableName
from freshline.values.watermark import TableWatermark

FILES = "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing')"
SOURCES = {
    "ev.sql": "CREATE SOURCE ev (id BIGINT, k STRING, v INT, ts TIMESTAMP, "
    f"WATERMARK FOR ts AS ts - INTERVAL '5' MINUTES) {FILES}",
    "plain.sql": "CREATE SOURCE plain (k STRING, v INT, ts TIMESTAMP) WITH ('connector' = 'delta', 'path' = 'plain')",
}
TUMBLE = "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
SUMS = f"SELECT window_start, window_end, count(*) AS n FROM {TUMBLE} GROUP BY window_start, window_end"
FRAME = "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY ts) AS s FROM ev"
PAIRS = (
    "SELECT a.id, b.v FROM ev AS a LEFT JOIN ev AS b ON b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts AND a.k = b.k"
)
MATCHES = "SELECT n FROM ev MATCH_RECOGNIZE (ORDER BY ts, id MEASURES count(*) AS n PATTERN (A B+) DEFINE B AS B.v > 1)"
STANDING = TableWatermark(datetime(2026, 3, 1, 12, tzinfo=UTC), ("ev (partition 3)",))


def explained(settings, query: str, header: str = "") -> Explanation:
    graph = read_declarations({**SOURCES, "t.sql": f"CREATE MATERIALIZED TABLE t {header} AS {query}"}, settings)
    spec = graph.table(TableName.parse("t"))
    columns = {name: graph.columns(name) or () for name in spec.reads}
    found = explain_table(spec, columns, frozenset({TableName.parse("ev")}), declared_types(spec, graph))
    return with_event_time(found, graph, lambda name: STANDING)


@pytest.mark.parametrize(
    ("header", "query", "strategy", "final", "said"),
    [
        ("", SUMS, "keys", None, "one stored row per group"),
        ("", SUMS.replace("count(*)", "max(v) - min(v)"), "keys", None, "the rows of its keys are read again"),
        ("", f"SELECT window_end, v FROM {TUMBLE}", "append", None, "no stored row is read"),
        ("", "SELECT max(v) - min(v) AS span FROM ev", "full", None, "reads all rows"),
        ("", "SELECT max(ts) AS newest FROM ev", "keys", None, "one stored row per group"),
        ("EMIT FINAL ALLOWED LATENESS INTERVAL '1' MINUTE", SUMS, "append", "windows", "one row of t__late"),
        ("EMIT FINAL ALLOWED LATENESS INTERVAL '1' MINUTE", FRAME, "append", "time", "one row of t__late"),
        ("EMIT FINAL ALLOWED LATENESS INTERVAL '1' MINUTE", PAIRS, "append", "pairs", "one row of t__late"),
        ("EMIT FINAL ALLOWED LATENESS INTERVAL '1' MINUTE", MATCHES, "append", "matches", "one row of t__late"),
        ("EMIT FINAL WHEN (n > 3)", SUMS, "append", "when", "not written yet"),
        ("EMIT FINAL", "SELECT v FROM ev", "append", "rows", "no stored row is read"),
    ],
)
def test_the_cost_of_a_late_row_follows_from_the_strategy(settings, header, query, strategy, final, said):
    found = explained(settings, query, header)

    assert found.cases[0].strategy == strategy
    facts = found.as_json()["event_time"]
    assert (facts["final"], facts["lateness_seconds"]) == (final, 60 if "LATENESS" in header else None)
    assert said in facts["late_row"]
    assert ("allowed lateness 0:01:00" in str(found)) == ("LATENESS" in header)
    assert facts["sources"] == [{"name": "ev", "column": "ts", "delay_seconds": 300}]
    assert (facts["watermark"], facts["watermark_held_by"]) == ("2026-03-01T12:00:00+00:00", ["ev (partition 3)"])
    assert "watermark: 2026-03-01 12:00:00 UTC of ev.ts - 0:05:00, held up by ev (partition 3)" in str(found)


@pytest.mark.seconds
def test_a_table_without_times_says_nothing_of_them(settings):
    found = explained(settings, "SELECT k, sum(v) AS s FROM plain GROUP BY k")

    assert found.event_time is None
    assert "event_time" not in found.as_json()
