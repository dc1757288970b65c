"""The conditions of constraints for tables, for sources, and in Python."""

from __future__ import annotations

import time

import pytest

from freshline.declare.source import declare_source
from freshline.declare.table import declare_table, resolve_table
from freshline.errors import DeclarationErrors
from freshline.sql.clauses import SourceClauses, TableClauses
from freshline.sql.expression import parse_expression
from freshline.sql.statement import read_statement
from freshline.sql.tokens import Text
from freshline.values.names import TableName
from freshline.values.spec import Constraint, OnViolation


def declared(sql):
    clauses = read_statement(Text(sql, "assets/t.sql"))
    if isinstance(clauses, SourceClauses):
        return declare_source(clauses).spec
    assert isinstance(clauses, TableClauses)
    return resolve_table(declare_table(clauses), {TableName(None, "s"): ("id", "amount", "at")}, frozenset(), {})


def table(constraint, select="SELECT id, amount, at FROM s"):
    return declared(f"CREATE MATERIALIZED TABLE t (\n{constraint}) AS {select}")


def refused(sql):
    with pytest.raises(DeclarationErrors) as raised:
        declared(sql)
    return [(error.rule, error.where, error.message) for error in raised.value.errors]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("amout > 0", "reads amout, which is no column of the rows. Did you mean amount? They have id, amount, at."),
        ("at < current_timestamp()", "has current_timestamp, which gives another value each time"),
        ("id IN (SELECT id FROM s)", "contains a subquery"),
        ("sum(amount) > 0", "contains the aggregate sum"),
        ("amount >", "it is not one SQL expression"),
        ("amount > 0 --", "it is not one SQL expression"),
        ("amount > 0, id > 0", "it is not one SQL expression"),
    ],
)
def test_a_condition_reads_one_row_and_gives_one_answer(condition, said):
    sql = f"CREATE MATERIALIZED TABLE t (\nCONSTRAINT c EXPECT ({condition}\n)) AS SELECT id, amount, at FROM s"
    ((rule, where, message),) = refused(sql)

    assert (rule, where) == ("CONSTRAINT", "assets/t.sql:2")
    assert said in message


def test_a_condition_is_over_what_the_query_yields():
    spec = table("CONSTRAINT c EXPECT (total > 0)", "SELECT id, sum(amount) AS total FROM s GROUP BY id")

    assert spec.constraints == (Constraint("c", "total > 0", OnViolation.WARN),)


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        (
            "MATERIALIZED TABLE t (CONSTRAINT c EXPECT (id > 0), CONSTRAINT C EXPECT (id > 1)) AS SELECT id FROM s",
            "declared twice",
        ),
        (
            "MATERIALIZED TABLE t (CONSTRAINT `a b` EXPECT (id > 0)) AS SELECT id FROM s",
            "CONSTRAINT `a b`: a name begins with a letter",
        ),
        # A source that is read in place has none.
        ("SOURCE s (a INT, CONSTRAINT c EXPECT (a > 0)) WITH ('connector' = 'delta', 'path' = 'x')", "read in place"),
    ],
)
def test_a_constraint_that_cannot_be_is_refused(declaration, said):
    ((rule, _, message),) = refused(f"CREATE {declaration}")

    assert rule == "CONSTRAINT"
    assert said in message


def test_the_meaning_changes_with_what_is_left_out_only():
    def fingerprint(constraint):
        return table(f"{constraint}PRIMARY KEY (id)").fingerprint

    plain = fingerprint("")
    assert fingerprint("CONSTRAINT c EXPECT (id > 0), ") == plain
    assert fingerprint("CONSTRAINT c EXPECT (id > 0) ON VIOLATION FAIL, ") == plain
    dropped = fingerprint("CONSTRAINT c EXPECT (id > 0) ON VIOLATION DROP ROW, ")
    assert dropped != plain
    assert fingerprint("CONSTRAINT other EXPECT (id > 0) ON VIOLATION QUARANTINE, ") == dropped


def test_a_source_is_judged_by_the_columns_of_its_records():
    files = "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'x')"
    spec = declared(f"CREATE SOURCE s (a INT, CONSTRAINT c EXPECT (a > 0) ON VIOLATION DROP ROW) {files}")
    assert spec.constraints == (Constraint("c", "a > 0", OnViolation.DROP_ROW),)
    ((_, _, message),) = refused(
        f"CREATE SOURCE s (a INT, f STRING METADATA FROM 'file', CONSTRAINT c EXPECT (f <> '')) {files}"
    )
    assert "reads f, which is no column of the rows" in message


@pytest.mark.parametrize(("opens", "closes"), [("(", ")"), ("{", "}"), ("[", "]"), ("f(", ")"), ("CASE WHEN ", " END")])
def test_a_condition_that_is_nested_without_end_is_refused_at_once(opens, closes):
    for depth in (200, 2_000):
        begun = time.process_time()
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_expression(f"{opens * depth}a > 1{closes * depth}", several=False)
        # A few milliseconds; the bound is for a slow machine.
        assert time.process_time() - begun < 2
