"""`freshline sql`: queries over the newest versions, by declared names, and nothing that writes."""

from __future__ import annotations

import json

import pytest

from freshline.errors import RequestError
from freshline.reads.sql import query, resolve_names
from freshline.values.names import TableName

NAMES = [TableName("b", "t"), TableName(None, "s")]


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("SELECT * FROM s;", "SELECT * FROM s"),
        ("SELECT * FROM b.t", "SELECT * FROM `freshline_1_b_t` AS `t`"),
        ("SELECT t.x, b.t.y FROM b.t, s", "SELECT t.x, `t`.y FROM `freshline_1_b_t` AS `t`, s"),
        ("SELECT x.y FROM s JOIN B.T AS x ON x.a = s.a", "SELECT x.y FROM s JOIN `freshline_1_b_t` AS x ON x.a = s.a"),
        ("SELECT x.y FROM `b`.`t` x", "SELECT x.y FROM `freshline_1_b_t` x"),
        ("SELECT 'b.t' AS text FROM b.t WHERE a = 1", "SELECT 'b.t' AS text FROM `freshline_1_b_t` AS `t` WHERE a = 1"),
    ],
)
def test_names_with_a_namespace_become_views(statement, text):
    assert resolve_names(statement, NAMES)[0] == text


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE s",
        "INSERT INTO s VALUES (1)",
        "SELECT 1; SELECT 2",
        "SELECT FROM WHERE",
        "SET spark.x = 1",
        "",
        "CREATE VIEW v AS SELECT 1",
    ],
)
def test_a_statement_that_is_no_query_is_refused_with_a_sentence(lab, statement):
    with pytest.raises(RequestError):
        query(lab.runtime, statement)


def test_rows_are_json_objects_with_all_digits(lab):
    lab.source("a.s", "id INT, big BIGINT, d DECIMAL(38,2), t STRING, n STRING")
    lab.sql("INSERT INTO a.s VALUES (1, 9007199254740993, 123456789012345678901234567890.10, 'say \"hi\"\\n', NULL)")

    result = query(lab.runtime, "SELECT *, array(1) AS `odd name`, CAST('NaN' AS DOUBLE) AS f FROM a.s")

    assert [name for name, _ in result.columns] == ["id", "big", "d", "t", "n", "odd name", "f"]
    (row,) = result.rows
    assert '"big":9007199254740993' in row
    assert '"d":123456789012345678901234567890.10' in row
    value = json.loads(row)
    assert (value["t"], value["n"], value["odd name"]) == ('say "hi"\n', None, [1])


def test_more_rows_than_the_limit_are_reported(lab):
    result = query(lab.runtime, "SELECT id FROM range(10)", limit=3)

    assert (len(result.rows), result.truncated) == (3, True)
    assert query(lab.runtime, "VALUES (1)").rows == ('{"col1":1}',)


def test_views_of_one_query_are_not_seen_by_the_next(lab):
    lab.source("s", "id INT")
    lab.declare("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM s")
    lab.refresh("t")
    query(lab.runtime, "SELECT * FROM s JOIN t USING (id)")

    with pytest.raises(RequestError, match="there is no table or source freshline_merge_source"):
        query(lab.runtime, "SELECT * FROM freshline_merge_source")
    (session,) = lab.runtime.sessions._free
    assert [table.name for table in session.catalog.listTables()] == []


def test_rejected_rows_are_read_by_the_name_of_their_table(lab):
    lab.files("a.note", "id INT, said STRING")
    lab.declare(
        "CREATE MATERIALIZED TABLE small (CONSTRAINT low EXPECT (id < 5) ON VIOLATION QUARANTINE) "
        "FRESHNESS = INTERVAL '1' HOUR AS SELECT id, said FROM a.note"
    )
    asked = "SELECT error, count(*) AS n FROM {} GROUP BY error"
    # Before the first refresh nothing was rejected, which is no error.
    assert query(lab.runtime, asked.format("a.note__quarantine")).rows == ()
    lab.land("a.note", "1.json", '{"id": 1, "said": "a"}\n{"id": "x"}\n{"id": 9, "said": "b"}\n')
    assert lab.refresh("small").error is None

    assert query(lab.runtime, asked.format("a.note__quarantine")).rows == ('{"error":"NOT_JSON","n":1}',)
    assert query(lab.runtime, "SELECT raw FROM small__quarantine").rows == (
        '{"raw":"{\\"id\\":9,\\"said\\":\\"b\\"}"}',
    )
    with pytest.raises(RequestError, match="there is no table or source other__quarantine"):
        query(lab.runtime, "SELECT * FROM other__quarantine")
