"""Each kind of table over event time follows inserts, updates and deletes without computing everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshline.plan.explain import Explanation, declared_types, explain_table
from freshline.plan.project import open_project
from freshline.testing.models import linear_model
from freshline.values.names import TableName
from freshline.values.spec import SourceSpec

COLUMNS = "id BIGINT, k STRING, other STRING, ts TIMESTAMP, v DOUBLE, PRIMARY KEY (id)"
SOURCES = {
    "ev": f"CREATE SOURCE ev ({COLUMNS}) WITH ('connector' = 'delta', 'path' = 'ev');",
    "ad": f"CREATE SOURCE ad ({COLUMNS}) WITH ('connector' = 'delta', 'path' = 'ad');",
    "rate": "CREATE SOURCE rate (k STRING, at TIMESTAMP, euros DOUBLE, PRIMARY KEY (k, at), WATERMARK FOR at AS at) "
    "WITH ('connector' = 'delta', 'path' = 'rate');",
    "log": "CREATE SOURCE log (id BIGINT, k STRING, ts TIMESTAMP, v BIGINT, WATERMARK FOR ts AS ts) "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'log');",
    "log2": "CREATE SOURCE log2 (id BIGINT, k STRING, ts TIMESTAMP, v BIGINT, WATERMARK FOR ts AS ts) "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'log2');",
    "m": "CREATE MODEL m WITH ('path' = 'm.onnx');",
}
HOUR, PER_WINDOW = "INTERVAL '1' HOUR", "SELECT window_start, k, count(*) AS n, max(v) AS v FROM"
GROUP = "GROUP BY window_start, k"
QUERIES = {
    "tumble": f"{PER_WINDOW} TUMBLE(TABLE ev, DESCRIPTOR(ts), {HOUR}) {GROUP}",
    "hop": f"{PER_WINDOW} HOP(TABLE ev, DESCRIPTOR(ts), INTERVAL '20' MINUTES, {HOUR}) {GROUP}",
    "cumulate": f"{PER_WINDOW} CUMULATE(TABLE ev, DESCRIPTOR(ts), {HOUR}, INTERVAL '1' DAY) {GROUP}",
    "session": f"{PER_WINDOW} SESSION(TABLE ev PARTITION BY k, DESCRIPTOR(ts), {HOUR}) {GROUP}",
    "count": f"{PER_WINDOW} COUNT_WINDOW(TABLE ev PARTITION BY k ORDER BY ts, id, SIZE => 3) {GROUP}, window_number",
    "calendar": f"{PER_WINDOW} TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' MONTH, TIME_ZONE => 'Europe/Berlin') "
    f"{GROUP}",
    "spark_window": "SELECT window(ts, '1 hour').start AS s, k, max(v) AS v FROM ev GROUP BY window(ts, '1 hour'), k",
    "spark_session": "SELECT session_window(ts, '1 hour').start AS s, k, max(v) AS v FROM ev "
    "GROUP BY session_window(ts, '1 hour'), k",
    "first_in_window": f"SELECT * FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), {HOUR}) "
    "QUALIFY row_number() OVER (PARTITION BY window_start, k ORDER BY ts, id) = 1",
    "joined_windows": f"SELECT a.id, b.id AS other FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), {HOUR}) AS a "
    f"JOIN TUMBLE(TABLE ad, DESCRIPTOR(ts), {HOUR}) AS b ON a.window_start = b.window_start AND a.k = b.k",
    "interval_join": "SELECT a.id, a.ts, b.id AS other FROM ev AS a LEFT JOIN ad AS b ON a.k = b.k "
    f"AND b.ts BETWEEN a.ts - {HOUR} AND a.ts + {HOUR}",
    "frame": f"SELECT id, k, ts, sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN {HOUR} PRECEDING "
    "AND CURRENT ROW) AS s FROM ev",
    "as_of": "SELECT e.id, e.v * r.euros AS euros FROM ev AS e LEFT JOIN rate FOR SYSTEM_TIME AS OF e.ts AS r "
    "ON r.k = e.k",
    "pattern": "SELECT k, n FROM ev MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, id MEASURES count(*) AS n "
    "PATTERN (A B+) DEFINE B AS B.v > PREV(B.v))",
    "within": "SELECT k, began FROM ev MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, id MEASURES FIRST(A.ts) AS began "
    f"PATTERN (A B+) WITHIN {HOUR} DEFINE B AS B.v > PREV(B.v))",
    "recent": "SELECT k, count(*) AS n, max(v) AS v FROM ev WHERE ts > now() - INTERVAL '7' DAYS GROUP BY k",
    "recent_predicted": "SELECT id, ml_predict(m, v) AS p FROM ev WHERE ts > now() - INTERVAL '7' DAYS",
    "predicted": "SELECT id, ml_predict(m, v) AS p FROM ev",
    "components": "SELECT node, component FROM CONNECTED_COMPONENTS(TABLE ev, DESCRIPTOR(k, other))",
    "ranks": "SELECT node, rank FROM PAGERANK(TABLE ev, DESCRIPTOR(k, other))",
    "communities": "SELECT node, community FROM COMMUNITIES(TABLE ev, DESCRIPTOR(k, other))",
}
HEADER = "FRESHNESS = INTERVAL '1' HOUR"
PYTHON = {
    "by_keys": """import freshline


@freshline.table(keys={"ev": "k"})
def by_keys(ev):
    return ev
""",
    "by_class": """import freshline


@freshline.process(reads="ev", keys=["k"], order=["ts", "id"], columns="k STRING, id BIGINT", outputs={"b": "k STRING"})
class ByClass:
    def row(self, row, out):
        out.emit(row.k, row.id)
""",
}


@pytest.fixture
def explained(settings):
    """Declare one table over the sources, and say how it is kept."""
    settings.declarations.mkdir(parents=True)
    (settings.root / "m.onnx").write_bytes(linear_model([2.0], 1.0))
    for name, text in SOURCES.items():
        (settings.declarations / f"{name}.sql").write_text(text)

    def explain(name: str, text: str, suffix: str = "sql") -> Explanation:
        Path(settings.declarations / f"{name}.{suffix}").write_text(text)
        graph = open_project(settings)
        spec = graph.table(TableName.parse(name))
        logs = frozenset(each for each in spec.reads if isinstance(it := graph.spec(each), SourceSpec) and it.is_log)
        columns = {each: graph.columns(each) or () for each in spec.reads}
        return explain_table(spec, columns, logs, declared_types(spec, graph))

    return explain


@pytest.mark.seconds
@pytest.mark.parametrize("name", QUERIES)
def test_no_change_computes_a_table_over_event_time_in_full(explained, name):
    found = explained(name, f"CREATE MATERIALIZED TABLE {name} {HEADER} AS {QUERIES[name]};")

    assert {case.change: str(case.reason) for case in found.cases if case.strategy == "full"} == {}


@pytest.mark.seconds
@pytest.mark.parametrize("name", PYTHON)
def test_no_change_computes_such_a_table_in_python_in_full(explained, name):
    found = explained(name, PYTHON[name], "py")

    assert {case.change: str(case.reason) for case in found.cases if case.strategy == "full"} == {}


@pytest.mark.parametrize("call", ["TUMBLE(TABLE log, DESCRIPTOR(ts), INTERVAL '1' HOUR)", "log"])
def test_a_final_table_is_only_appended_to(explained, call):
    query = f"{PER_WINDOW} {call} {GROUP}" if call != "log" else "SELECT id, k FROM log"

    assert explained("t", f"CREATE MATERIALIZED TABLE t {HEADER} EMIT FINAL AS {query};").strategies == {"append"}
    by_hand = (
        f"CREATE MATERIALIZED TABLE w {HEADER} EMIT FINAL WHEN (n >= 3) AS SELECT k, count(*) AS n FROM log GROUP BY k"
    )
    assert explained("w", by_hand).strategies == {"append"}


FINAL = {
    "frame": f"SELECT id, sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN {HOUR} PRECEDING AND CURRENT ROW) AS s "
    "FROM log",
    "interval_join": f"SELECT a.id, b.id AS other FROM log AS a LEFT JOIN log2 AS b ON b.ts BETWEEN a.ts - {HOUR} "
    "AND a.ts",
    "as_of": "SELECT a.id, b.v FROM log AS a LEFT JOIN log2 FOR SYSTEM_TIME AS OF a.ts AS b ON b.k = a.k",
    "pattern": "SELECT k, n FROM log MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, id MEASURES count(*) AS n "
    "PATTERN (A B+) DEFINE B AS B.v > PREV(B.v))",
}


@pytest.mark.parametrize("name", FINAL)
def test_a_final_table_without_windows_is_only_appended_to(explained, name):
    found = explained(name, f"CREATE MATERIALIZED TABLE {name} {HEADER} EMIT FINAL AS {FINAL[name]};")

    assert found.strategies == {"append"}
