"""The cost of parsing: each record is parsed once, however often its verdict is asked for."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from freshline.sources.kafka.reader import as_records
from freshline.sources.reader import Group
from freshline.sources.records import ERROR, accepted, judge_records
from freshline.values.names import TableName


@pytest.mark.slow
@pytest.mark.parametrize("declared", ["k STRING, n INT", "k STRING, n INT, PRIMARY KEY (k)"])
def test_a_filter_on_the_verdict_does_not_parse_again(lab, declared):
    lab.declare(
        f"CREATE SOURCE event ({declared}) WITH ('connector' = 'kafka', 'format' = 'json', 'topic' = 't', "
        "'bootstrap.servers' = 'localhost:1')"
    )
    spec = lab.runtime.graph.spec(TableName.parse("event"))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    values = [(b"1", b'{"k": "a", "n": 1}', "t", 0, 0, moment, None), (b"2", b"{", "t", 0, 1, moment, None)]
    records = lab.runtime.sessions.root.createDataFrame(
        values,
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )

    rows = judge_records([Group(as_records(records))], spec)

    good = rows.where(F.assert_true(F.col(ERROR).isNull() | F.lit(True)).isNull() & F.col(ERROR).isNull())
    plan = good.select("k", "n")._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(") == 1, plan
    assert [(row["k"], row["n"]) for row in good.collect()] == [("a", 1)]
    if not spec.primary_key:
        kept = accepted(rows, spec, 1, datetime(2026, 1, 2, tzinfo=UTC))
        assert [row["n"] for row in kept.collect()] == [1]


def test_python_is_sent_the_bytes_of_records_and_their_keys_alone_and_once(lab):
    lab.declare(
        "CREATE SOURCE feed (k STRING, n INT, PRIMARY KEY (k)) WITH ('connector' = 'kafka', 'topic' = 't', "
        "'format' = 'debezium-json', 'bootstrap.servers' = 'localhost:1')"
    )
    spec = lab.runtime.graph.spec(TableName.parse("feed"))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    event = b'{"op": "c", "before": null, "after": {"k": "a", "n": 1}, "source": {"lsn": 7}, "ts_ms": 1}'
    records = lab.runtime.sessions.root.createDataFrame(
        [(b"1", event, "t", 0, 0, moment, None), (b"2", b"{", "t", 0, 1, moment, None)],
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )

    rows = judge_records([Group(as_records(records))], spec)
    good = rows.where(F.assert_true(F.col(ERROR).isNull() | F.lit(True)).isNull() & F.col(ERROR).isNull())

    # Spark would compute the size of a batch with lists at each record, in a time that grows with the NULLs among them.
    plan = good._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("ArrowEvalPython") == 1, plan
    assert "InArrow" not in plan
    assert re.search(r"ArrowEvalPython \[read_both\([^,]*, [^,]*\)#", plan), plan
    assert [(row["k"], row["n"]) for row in good.collect()] == [("a", 1)]
