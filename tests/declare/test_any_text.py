"""Declarations that nobody would write: each is accepted and explained, or refused with an error of freshline.

Texts are made of declarations of each kind by taking away, doubling, moving and mixing their words, and by adding
characters that are rare. FRESHLINE_FUZZED is how many the long lane tries, FRESHLINE_SEED where it begins.
"""

from __future__ import annotations

import os
import random
import re
import time

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.errors import FreshlineError
from freshline.plan.explain import declared_types, explain_table
from freshline.testing.models import linear_model
from freshline.values.names import TableName
from freshline.values.settings import Settings
from freshline.values.spec import SourceSpec, TableSpec
from tests.plan.test_event_time_kinds import QUERIES, SOURCES

pytestmark = pytest.mark.security

HEADER = "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR"
TEXTS = (
    *(f"{HEADER} AS {query}" for query in QUERIES.values()),
    f"{HEADER} EMIT FINAL ALLOWED LATENESS INTERVAL '1' MINUTE AS {QUERIES['hop'].replace('ev', 'log')}",
    f"""{HEADER} EMIT FINAL WHEN (n >= 3 AND watermark() > TIMESTAMP'2026-01-01')
    AS SELECT k, count(*) AS n FROM log GROUP BY k""",
    """CREATE OR ALTER MATERIALIZED TABLE t (id COMMENT 'a', PRIMARY KEY (k),
    CONSTRAINT c EXPECT (v > 0) ON VIOLATION DROP ROW) COMMENT 'x'
    WITH ('merge' = 'last_row', 'merge.sequence' = 'ts', 'merge.delete-when' = 'v = 0')
    FRESHNESS = INTERVAL '10' SECOND REFRESH_MODE = CONTINUOUS AS SELECT k, id, ts, v FROM log -- the log""",
    """CREATE MATERIALIZED TABLE t PARTITIONED BY (day) WITH ('partition.fields.day.date-formatter' = 'yyyy-MM-dd')
    FRESHNESS = INTERVAL '1' DAY AS SELECT date_format(ts, 'yyyy-MM-dd') AS day, sum(v) AS s FROM ev GROUP BY 1""",
    """CREATE MATERIALIZED TABLE t CLUSTER BY (k) FRESHNESS = INTERVAL '1' HOUR SIDE OUTPUT bad WHERE (v < 0)
    AS WITH a AS (SELECT * FROM ev WHERE v IN (SELECT v FROM ad))
    SELECT a.k, rate.euros AS v, version_of(rate) AS n FROM a
    LEFT JOIN rate FOR SYSTEM_TIME AS OF PROCTIME() ON rate.k = a.k UNION ALL SELECT k, v, 0 FROM log""",
    """CREATE SOURCE t (id BIGINT, raw STRING METADATA FROM 'raw', ts TIMESTAMP, PRIMARY KEY (id),
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
    WITH ('connector' = 'kafka', 'topic' = 'a', 'bootstrap.servers' = 'b:9092', 'format' = 'json')""",
    """CREATE SOURCE t (id BIGINT)
    WITH ('connector' = 'files', 'format' = 'csv', 'path' = '${env:HOME}/x', 'settle' = '1 s')""",
    "CREATE MODEL t COMMENT 'm' WITH ('path' = 'm.onnx', 'on-change' = 'new-rows')",
)
WORDS = re.compile(r"\s+|--[^\n]*|'[^']*'|`[^`]*`|\w+|.", re.DOTALL)
PARTS = tuple(WORDS.findall(text) for text in TEXTS)
POOL = tuple(part for parts in PARTS for part in parts if not part.isspace())
ODD = (
    *("\u202e", "\x00", "\ufeff", "\u00a0", "\u2028", "\r", "\t", "é", "\U0001f600", "\\", "'", "`", '"', "''"),
    *"/* */ -- ( ) [ ] { } ; , .. * @ # $$ :: => -> ? ^ |".split(),
    *(
        "-1",
        "0",
        "1e999",
        "9" * 30,
        "NULL",
        "INTERVAL '0' SECOND",
        "INTERVAL '-1' MONTH",
        "INTERVAL '1' YEAR",
        "'\x00'",
    ),
    *("a." * 50 + "b", "(" * 200, "x" * 10_000, *"{2,1} {999999} *? {- -} CASE WITH".split(), "SELECT *", "FROM"),
    *("OVER ()", "UNION ALL", "count()", "LATERAL VIEW explode(a)", "now()", "TABLE(", "DESCRIPTOR()", "PIVOT", "AS"),
)


def changed(chance: random.Random) -> str:
    parts = list(chance.choice(PARTS))
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at = chance.randrange(len(parts) + 1)
        upto = min(len(parts), at + chance.randrange(1, 14))
        other = chance.choice(PARTS)
        begin = chance.randrange(len(other))
        match chance.randrange(6):
            case 0:
                del parts[at:upto]
            case 1:
                parts[at:at] = [chance.choice(POOL)]
            case 2:
                parts[at:at] = [chance.choice(ODD)]
            case 3:
                parts[at : at + 1] = [chance.choice(POOL)]
            case 4:
                parts[at:at] = parts[at:upto]
            case _:
                parts[at:at] = other[begin : begin + chance.randrange(1, 14)]
    return "".join(parts)


def declared_and_explained(text: str, settings: Settings) -> bool:
    """Whether the text is a declaration; a declaration is explained too."""
    try:
        graph = read_declarations({**{f"{name}.sql": each for name, each in SOURCES.items()}, "t.sql": text}, settings)
        for name in graph.order:
            explain(graph, name)
    except FreshlineError:
        return False
    return True


def explain(graph: Graph, name: TableName) -> None:
    spec = graph.spec(name)
    inputs = {each: graph.spec(each) for each in spec.driving} if isinstance(spec, TableSpec) else {}
    sources = {each: source for each, source in inputs.items() if isinstance(source, SourceSpec)}
    if isinstance(spec, TableSpec) and len(sources) == len(inputs):
        columns = {each: tuple(column.name for column in source.columns) for each, source in sources.items()}
        logs = frozenset(each for each in sources if str(each) == "log")
        assert str(explain_table(spec, columns, logs, declared_types(spec, graph)))


def try_texts(settings: Settings, count: int, seed: int) -> int:
    (settings.root / "m.onnx").write_bytes(linear_model([1.0], 0.0))
    accepted = 0
    for number in range(count):
        text = changed(random.Random(f"{seed} {number}"))
        began = time.process_time()
        try:
            accepted += declared_and_explained(text, settings)
        except Exception as error:
            raise AssertionError(f"FRESHLINE_SEED={seed}, text {number}: {text}") from error
        assert time.process_time() - began < 20, text
    return accepted


@pytest.mark.seconds
def test_any_text_is_a_declaration_or_refused_with_an_error_of_ours(settings):
    assert try_texts(settings, 400, 18) > 10


@pytest.mark.long
def test_any_of_many_texts_is_too(settings):
    seed = int(os.environ.get("FRESHLINE_SEED", "1"))
    count = int(os.environ.get("FRESHLINE_FUZZED", "20000"))
    assert try_texts(settings, count, seed) > count // 100


def test_a_count_of_nothing_is_left_to_spark(settings):
    (settings.root / "m.onnx").write_bytes(linear_model([1.0], 0.0))
    query = "SELECT k, count() AS n, max(v) AS v FROM ev GROUP BY k"
    assert declared_and_explained(f"{HEADER} AS {query}", settings)


def test_a_star_behind_a_table_is_refused(settings):
    with pytest.raises(FreshlineError, match=r"ev \* is no table of Spark's SQL"):
        read_declarations({"ev.sql": SOURCES["ev"], "t.sql": f"{HEADER} AS SELECT k FROM ev * WHERE k > 'a'"}, settings)
