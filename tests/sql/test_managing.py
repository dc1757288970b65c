"""Statements that manage tables are distinguished from Spark's, become values, and are refused with a sentence."""

from __future__ import annotations

import pytest

from freshline.errors import DeclarationError
from freshline.sql.managing import (
    AlterQuery,
    Create,
    CreateSavepoint,
    Describe,
    Drop,
    DropSavepoint,
    Explain,
    ExplainFreshness,
    PartitionRange,
    Refresh,
    ResetFreshness,
    RestoreSavepoint,
    Resume,
    SetFreshness,
    ShowCreate,
    ShowRefreshes,
    ShowSavepoints,
    ShowTables,
    Suspend,
    Verify,
    read_managing,
)
from freshline.values.freshness import Freshness
from freshline.values.names import TableName

T = TableName(None, "t")
ALTER = "ALTER MATERIALIZED TABLE t"


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        (f"{ALTER} SET FRESHNESS INTERVAL '5' SECOND", SetFreshness(T, Freshness(5), None, False)),
        (
            f"{ALTER} SET FRESHNESS = INTERVAL 5 MINUTES FOR INTERVAL '48' HOUR CASCADE",
            SetFreshness(T, Freshness(300), 172_800, True),
        ),
        (f"{ALTER} SET FRESHNESS '10 seconds' FOR 'PT2H'", SetFreshness(T, Freshness(10), 7200, False)),
        ("alter materialized table a.`t` reset freshness cascade;", ResetFreshness(TableName("a", "t"), True)),
        (f"{ALTER} SUSPEND", Suspend(T, None, None)),
        (f"{ALTER} SUSPEND FOR INTERVAL '2' HOUR BECAUSE 'it''s wrong'", Suspend(T, 7200, "it's wrong")),
        (f"{ALTER} RESUME", Resume(T)),
        (f"{ALTER} REFRESH", Refresh(T, False, ())),
        (f"{ALTER} REFRESH FULL", Refresh(T, True, ())),
        (f"{ALTER} REFRESH CASCADE", Refresh(T, False, (), cascade=True)),
        (
            f"{ALTER} REFRESH PARTITION (ds BETWEEN '2026-11-01' AND DATE '2026-11-05') PARTITION (ds = 'x') CASCADE",
            Refresh(T, False, ((("ds", "x"),),), (PartitionRange("ds", "2026-11-01", "2026-11-05"),), cascade=True),
        ),
        (
            f"{ALTER} REFRESH PARTITION (ds = '2026-11-01', n = -5) PARTITION (ds = DATE '2026-11-02', n = 7)",
            Refresh(T, False, ((("ds", "2026-11-01"), ("n", "-5")), (("ds", "2026-11-02"), ("n", "7")))),
        ),
        ("DROP MATERIALIZED TABLE IF EXISTS t", Drop(T, True)),
        ("DROP MATERIALIZED TABLE t", Drop(T, False)),
        ("-- a word\n SHOW MATERIALIZED TABLES", ShowTables()),
        ("SHOW CREATE MATERIALIZED TABLE t", ShowCreate(T)),
        ("/* all */ SHOW REFRESHES", ShowRefreshes(None)),
        ("SHOW REFRESHES FOR t;", ShowRefreshes(T)),
        ("DESCRIBE t", Describe(T, False)),
        ("DESC EXTENDED t", Describe(T, True)),
        ("DESCRIBE extended", Describe(TableName(None, "extended"), False)),
        ("EXPLAIN MATERIALIZED TABLE t", Explain(T)),
        ("EXPLAIN FRESHNESS t", ExplainFreshness(T)),
        ("VERIFY MATERIALIZED TABLE t", Verify(T)),
        (
            "VERIFY MATERIALIZED TABLE t PARTITION (ds = DATE '2026-11-01') PARTITION (ds = NULL, r = 2)",
            Verify(T, ((("ds", "2026-11-01"),), (("ds", ""), ("r", "2")))),
        ),
        (
            "CREATE OR ALTER MATERIALIZED TABLE t AS SELECT ';' AS a FROM s;",
            Create(T, True, "CREATE OR ALTER MATERIALIZED TABLE t AS SELECT ';' AS a FROM s"),
        ),
        ("CREATE SAVEPOINT s", CreateSavepoint("s", ())),
        ("CREATE SAVEPOINT s FOR t, a.t", CreateSavepoint("s", (T, TableName("a", "t")))),
        ("RESTORE SAVEPOINT s;", RestoreSavepoint("s")),
        ("DROP SAVEPOINT s", DropSavepoint("s")),
        ("SHOW SAVEPOINTS", ShowSavepoints()),
        ("CREATE SOURCE t (id INT)", Create(T, False, "CREATE SOURCE t (id INT)")),
    ],
)
def test_a_statement_becomes_a_value(statement, value):
    assert read_managing(statement) == value


@pytest.mark.parametrize(
    "statement",
    ["SELECT 1", "WITH t AS (SELECT 1) SELECT * FROM t", "EXPLAIN SELECT 1", "SHOW TABLES", "DESCRIBE QUERY SELECT 1",
     "ALTER TABLE t ADD COLUMN a INT", "CREATE TABLE t (a INT)", "DROP TABLE t", "", "-- nothing", "(SELECT 1)"],
)  # fmt: skip
def test_another_statement_is_sparks(statement):
    assert read_managing(statement) is None


@pytest.mark.parametrize(
    ("statement", "rule", "sentence"),
    [
        (f"{ALTER} SET FRESHNESS INTERVAL '0' SECOND", "FRESHNESS_VALUE", "is not a freshness: it is not positive"),
        (f"{ALTER} SET FRESHNESS INTERVAL '5' SECOND FOR INTERVAL '1' MONTH", "FRESHNESS_VALUE", "not a duration"),
        (f"{ALTER} SUSPEND FOR", "SYNTAX", "an interval, .* is expected where the statement ends"),
        (f"{ALTER} SET FRESHNESS", "SYNTAX", "an interval, .* is expected where the statement ends"),
        (f"{ALTER} PAUSE", "SYNTAX", "RESUME, REFRESH or AS is expected where PAUSE stands"),
        (f"{ALTER} RESUME now", "SYNTAX", "the end of the statement is expected where now stands"),
        (f"{ALTER} AS", "SYNTAX", "a query is expected where the statement ends"),
        (f"{ALTER} AS SELECT a FROM s FROM DATE 'soon'", "SYNTAX", "'soon' is no date"),
        (f"{ALTER} REFRESH FULL PARTITION (ds = '1')", "SYNTAX", "leave out FULL or PARTITION"),
        (f"{ALTER} REFRESH PARTITION (ds BETWEEN 'a')", "SYNTAX", "AND"),
        (f"{ALTER} REFRESH PARTITION (ds BETWEEN 'a' AND)", "SYNTAX", "a value is expected"),
        (f"{ALTER} REFRESH PARTITION (ds BETWEEN 'a' AND 'b', n = 1)", "SYNTAX", "where , stands"),
        (f"{ALTER} REFRESH CASCADE PARTITION (ds = 'a')", "SYNTAX", "the end of the statement"),
        (f"{ALTER} REFRESH PARTITION (ds = )", "SYNTAX", "a value is expected"),
        ("ALTER MATERIALIZED VIEW t", "SYNTAX", "MATERIALIZED TABLE is expected"),
        ("CREATE SAVEPOINT", "SYNTAX", "the name of a savepoint is expected"),
        ("RESTORE SAVEPOINT s FOR t", "SYNTAX", "the end of the statement is expected"),
        ("CREATE OR REPLACE MATERIALIZED TABLE t AS SELECT 1", "SYNTAX", "CREATE OR ALTER is expected"),
        ("CREATE MATERIALIZED TABLE IF NOT EXISTS t AS SELECT 1", "SYNTAX", "CREATE OR ALTER of what is unchanged"),
        ("VERIFY t", "SYNTAX", "MATERIALIZED TABLE is expected"),
        ("VERIFY MATERIALIZED TABLE t PARTITION (ds BETWEEN '1' AND '2')", "SYNTAX", "= is expected"),
        ("VERIFY MATERIALIZED TABLE t PARTITION ()", "SYNTAX", "a column is expected"),
        ("SHOW MATERIALIZED VIEWS", "SYNTAX", "MATERIALIZED TABLES is expected"),
        (f"{ALTER} SUSPEND BECAUSE reasons", "SYNTAX", "a reason in quotes is expected"),
        ("DROP MATERIALIZED TABLE t PURGE now", "SYNTAX", "the end of the statement is expected"),
        ("DROP MATERIALIZED TABLE a.b.c", "NAME", "is not a name"),
    ],
)
def test_a_statement_that_cannot_be_read_is_reported(statement, rule, sentence):
    with pytest.raises(DeclarationError, match=sentence) as raised:
        read_managing(statement)

    assert raised.value.rule == rule
    assert raised.value.where == "statement:1"


def test_the_line_of_a_mistake_is_reported():
    with pytest.raises(DeclarationError) as raised:
        read_managing("\n\nALTER MATERIALIZED TABLE t\n  SUSPEND FOR INTERVAL '0' HOUR")

    assert raised.value.where == "statement:4"


@pytest.mark.parametrize(
    ("text", "query", "start"),
    [
        ("SELECT a FROM s", "SELECT a FROM s", None),
        ("SELECT a FROM s FROM NOW;", "SELECT a FROM s", "now"),
        ("SELECT a\nFROM s from beginning", "SELECT a\nFROM s", "beginning"),
        ("SELECT a FROM s FROM DATE '2026-11-01'", "SELECT a FROM s", "2026-11-01"),
        ("SELECT a FROM now", "SELECT a FROM now", None),
        ("SELECT a FROM (SELECT a FROM s) FROM NOW", "SELECT a FROM (SELECT a FROM s)", "now"),
        ("SELECT (SELECT max(a) FROM s) AS a FROM now", "SELECT (SELECT max(a) FROM s) AS a FROM now", None),
    ],
)
def test_a_start_is_separated_from_the_query_before_it(text, query, start):
    found = read_managing(f"{ALTER} AS {text}")

    assert isinstance(found, AlterQuery)
    assert (found.query, found.start) == (query, start)


@pytest.mark.parametrize("text", ["RESTORE SAVEPOINT\ufeff", "RESTORE SAVEPOINT", "RESTORE SAVEPOINT."])
def test_restore_without_a_savepoint_is_refused(text):
    with pytest.raises(DeclarationError, match="expected"):
        read_managing(text)
