"""The header grammar of both statements, and what each mistake in it gets."""

from __future__ import annotations

import pytest

from freshline.errors import DeclarationError, DeclarationErrors
from freshline.sql.clauses import ModelClauses, QueryText, SinkClauses, SourceClauses, TableClauses
from freshline.sql.statement import read_statement
from freshline.sql.tokens import Text
from freshline.values.freshness import Freshness
from freshline.values.location import Written
from freshline.values.spec import Constraint, Downstream, OnViolation, Watermark


def read(text: str) -> TableClauses | SourceClauses:
    found = read_statement(Text(text, "assets/t.sql"))
    assert not isinstance(found, ModelClauses | SinkClauses)
    return found


def table(text: str) -> TableClauses:
    found = read(text)
    assert isinstance(found, TableClauses)
    return found


def source(text: str) -> SourceClauses:
    found = read(text)
    assert isinstance(found, SourceClauses)
    return found


def errors(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(DeclarationError) as raised:
        read(text)
    found = raised.value.errors if isinstance(raised.value, DeclarationErrors) else [raised.value]
    return [(error.rule, str(error.where), error.message) for error in found]


def error(text: str) -> tuple[str, str, str]:
    found = errors(text)
    assert len(found) == 1, found
    return found[0]


FULL = """\
-- what it is for
create or alter materialized table `sales`.`orders` (
  primary key (id, `day`) not enforced /* names the order */
)
with ('owner' = "ann", 'history' = '2 days')
partitioned /* by */ by (day)
cluster by (id)
refresh_mode = batch
comment 'it''s here'
freshness = interval '30' minutes
as
-- the query
select id, day
from raw -- all of it
; -- done
"""


def test_every_clause_is_read_in_any_order_and_letter_case():
    clauses = table(FULL)

    assert str(clauses.name) == "sales.orders"
    assert clauses.written_at.line == 2
    assert clauses.primary_key is not None
    assert clauses.primary_key.value == ("id", "day")
    assert clauses.primary_key.line == 3
    assert clauses.partitioned_by is not None
    assert clauses.partitioned_by.value == ("day",)
    assert clauses.cluster_by is not None
    assert clauses.cluster_by.value == ("id",)
    assert clauses.mode is not None
    assert clauses.mode.value == "BATCH"
    assert clauses.comment == "it's here"
    assert clauses.freshness is not None
    assert clauses.freshness.value == Freshness(1800)
    assert {key: option.value for key, option in clauses.options.items()} == {"owner": "ann", "history": "2 days"}


def test_the_query_is_kept_as_it_was_written_with_its_line():
    query = table(FULL).query

    assert isinstance(query, QueryText)
    assert query.text == "select id, day\nfrom raw"
    assert query.line == 13


def test_a_comment_behind_the_query_is_not_part_of_it():
    query = table("CREATE MATERIALIZED TABLE t AS SELECT 1 AS a -- one\n").query

    assert isinstance(query, QueryText)
    assert query.text == "SELECT 1 AS a"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("FRESHNESS = INTERVAL '30' SECOND", Freshness(30)),
        ("FRESHNESS = INTERVAL 5 MINUTES", Freshness(300)),
        ("FRESHNESS INTERVAL '1' DAY", Freshness(86400)),
        ("FRESHNESS = 'PT30S'", Freshness(30)),
        ("FRESHNESS = downstream", Downstream.DOWNSTREAM),
    ],
)
def test_freshness_is_an_interval_or_downstream(text, value):
    freshness = table(f"CREATE MATERIALIZED TABLE t {text} AS SELECT 1 AS a").freshness
    assert freshness is not None
    assert freshness.value == value


@pytest.mark.parametrize(
    "written",
    [
        "0",
        "-1",
        "1.5",
        "INTERVAL '0' SECOND",
        "INTERVAL '-1' SECOND",
        "INTERVAL '1.5' SECOND",
        "INTERVAL '1' MONTH",
        "1 MONTH",
        "INTERVAL '9999999999999' DAY",
    ],
)
def test_a_freshness_that_is_none_shows_its_value_line_and_what_is_accepted(written):
    rule, where, message = error(f"CREATE MATERIALIZED TABLE t\nFRESHNESS = {written}\nAS SELECT 1 AS a")

    assert (rule, where) == ("FRESHNESS_VALUE", "assets/t.sql:2")
    assert message.startswith(written)
    assert "Accepted is a positive whole number" in message


def test_options_keep_their_escapes():
    clauses = table(
        """CREATE MATERIALIZED TABLE t WITH ('a' = 'op = ''d''', 'b' = 'it\\'s', "c" = "q""q") AS SELECT 1"""
    )
    assert {key: option.value for key, option in clauses.options.items()} == {"a": "op = 'd'", "b": "it's", "c": 'q"q'}


def test_columns_of_a_source_are_read_with_types_and_metadata():
    clauses = source("""CREATE SOURCE s (
  `id` BIGINT COMMENT 'the id',
  amount decimal(10, 2), -- money
  place STRUCT<lat: DOUBLE, tags: ARRAY<MAP<STRING, INT>>>,
  at TIMESTAMP METADATA FROM 'ingested_at',
  PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'c' FRESHNESS = INTERVAL '1' HOUR WITH ('connector' = 'files')""")

    assert [(c.value.name, c.value.type, c.value.metadata, c.line) for c in clauses.columns] == [
        ("id", "BIGINT", None, 2),
        ("amount", "DECIMAL(10,2)", None, 3),
        ("place", "STRUCT<lat: DOUBLE, tags: ARRAY<MAP<STRING, INT>>>", None, 4),
        ("at", "TIMESTAMP", "ingested_at", 5),
    ]
    assert clauses.primary_key is not None
    assert clauses.primary_key.value == ("id",)


def test_a_column_may_carry_the_key_itself():
    key = source("CREATE SOURCE s (id INT PRIMARY KEY, a STRING) WITH ('connector' = 'files')").primary_key
    assert key is not None
    assert key.value == ("id",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE MATERIALIZED TABLE t (CONSTRAINT c CHECK (a > 0)) AS SELECT 1", "CONSTRAINT .. CHECK"),
        ("CREATE SOURCE s (a INT, CONSTRAINT c UNIQUE (a)) WITH ('connector' = 'files')", "CONSTRAINT .. UNIQUE"),
    ],
)
def test_a_clause_that_is_not_built_is_refused_with_a_sentence(text, said):
    rule, where, message = error(text)
    assert (rule, where) == ("NOT_BUILT", "assets/t.sql:1")
    assert message == f"{said} is not built yet. Remove it."


@pytest.mark.parametrize(
    ("text", "rule", "line", "said"),
    [
        ("", "NO_DECLARATION", 1, "declares nothing"),
        ("-- only a comment\n", "NO_DECLARATION", 1, "declares nothing"),
        ("SELECT 1", "SYNTAX", 1, "CREATE MATERIALIZED TABLE or CREATE SOURCE is expected"),
        (
            "CREATE TABLE t AS SELECT 1",
            "SYNTAX",
            1,
            "MATERIALIZED TABLE, SOURCE, SINK or MODEL is expected where TABLE stands",
        ),
        ("ALTER MATERIALIZED TABLE t SUSPEND", "SYNTAX", 1, "where ALTER stands"),
        ("CREATE OR REPLACE MATERIALIZED TABLE t AS SELECT 1", "SYNTAX", 1, "OR ALTER is expected"),
        ("CREATE MATERIALIZED TABLE IF NOT EXISTS t AS SELECT 1", "SYNTAX", 1, "IF NOT EXISTS"),
        ("CREATE MATERIALIZED TABLE t", "SYNTAX", 1, "is expected where the declaration ends"),
        ("CREATE MATERIALIZED TABLE t AS", "SYNTAX", 1, "a query is expected"),
        ("CREATE MATERIALIZED TABLE t\nAS DELETE FROM x", "QUERY_KIND", 2, "begins with DELETE"),
        ("CREATE MATERIALIZED TABLE t (a INT) AS SELECT 1", "SYNTAX", 1, "takes its columns from its query"),
        ("CREATE MATERIALIZED TABLE t () AS SELECT 1", "SYNTAX", 1, "PRIMARY KEY"),
        ("CREATE MATERIALIZED TABLE t (PRIMARY KEY ()) AS SELECT 1", "SYNTAX", 1, "a column is expected where )"),
        (
            "CREATE MATERIALIZED TABLE t\nFRESHNES = INTERVAL '1' DAY AS SELECT 1",
            "SYNTAX",
            2,
            "Did you mean FRESHNESS?",
        ),
        ("CREATE MATERIALIZED TABLE t COMMENT AS SELECT 1", "SYNTAX", 1, "a comment in quotes"),
        ("CREATE MATERIALIZED TABLE t WITH (a = 'b') AS SELECT 1", "SYNTAX", 1, "the name of an option in quotes"),
        ("CREATE MATERIALIZED TABLE t WITH ('a' = 1) AS SELECT 1", "SYNTAX", 1, "the value of 'a' in quotes"),
        ("CREATE MATERIALIZED TABLE t WITH () AS SELECT 1", "SYNTAX", 1, "the name of an option"),
        ("CREATE MATERIALIZED TABLE t REFRESH_MODE BATCH AS SELECT 1", "SYNTAX", 1, "= is expected"),
        ("CREATE MATERIALIZED TABLE t FRESHNESS = AS SELECT 1", "SYNTAX", 1, "an interval"),
        ("CREATE MATERIALIZED TABLE 2bad AS SELECT 1", "SYNTAX", 1, "a name is expected where 2bad"),
        ("CREATE MATERIALIZED TABLE my-table AS SELECT 1", "NAME", 1, "'my-table' is not a name"),
        ("CREATE MATERIALIZED TABLE a.b.c AS SELECT 1", "NAME", 1, "'a.b.c' is not a name"),
        ("CREATE MATERIALIZED TABLE `a b` AS SELECT 1", "NAME", 1, "'a b' is not a name"),
        (f"CREATE MATERIALIZED TABLE {'x' * 129} AS SELECT 1", "NAME", 1, "up to 128"),
        ("CREATE MATERIALIZED TABLE naïve AS SELECT 1", "NAME", 1, "'naïve' is not a name"),
        ("CREATE MATERIALIZED TABLE t COMMENT\n'no end AS SELECT 1", "SYNTAX", 2, "has no end"),
        ("CREATE MATERIALIZED TABLE t\n/* no end AS SELECT 1", "SYNTAX", 2, "has no end"),
        ("CREATE SOURCE s WITH ('connector' = 'files')", "SYNTAX", 1, "the columns of the source"),
        ("CREATE SOURCE s () WITH ('connector' = 'files')", "SYNTAX", 1, "the name of a column"),
        ("CREATE SOURCE s (a) WITH ('connector' = 'files')", "SYNTAX", 1, "the type of column a is expected"),
        ("CREATE SOURCE s (a INT b INT) WITH ('connector' = 'files')", "COLUMN_TYPE", 1, "'INT b INT' is not a type"),
        ("CREATE SOURCE s (a TEXT) WITH ('connector' = 'files')", "COLUMN_TYPE", 1, "there is no type TEXT"),
        (
            "CREATE SOURCE s (a INT,\n A STRING) WITH ('connector' = 'files')",
            "DUPLICATE_COLUMN",
            2,
            "A is declared twice",
        ),
        ("CREATE SOURCE s (a INT, PRIMARY KEY (a, A)) WITH ('x' = 'y')", "PRIMARY_KEY", 1, "names A twice"),
        ("CREATE SOURCE s (a INT) AS SELECT 1", "SYNTAX", 1, "one of COMMENT, WITH, FRESHNESS is expected where AS"),
        ("CREATE SOURCE s (a INT) PARTITIONED BY (a)", "SYNTAX", 1, "one of COMMENT, WITH, FRESHNESS"),
        ("CREATE SOURCE s (a INT,) WITH ('x' = 'y')", "SYNTAX", 1, "the name of a column"),
        (
            "CREATE SOURCE s (\n  id INT NOT NULL) WITH ('connector' = 'files')",
            "NOT_BUILT",
            2,
            "NOT NULL is not built yet",
        ),
        (
            "CREATE MATERIALIZED TABLE a AS SELECT 1;\n\nCREATE MATERIALIZED TABLE b AS SELECT 2;\n",
            "TWO_DECLARATIONS",
            3,
            "lines 1 and 3",
        ),
        (
            "CREATE MATERIALIZED TABLE t WITH ('owner' = 'a',\n'OWNER' = 'b') AS SELECT 1",
            "DUPLICATE_CLAUSE",
            2,
            "also on line 1",
        ),
        # Lines are those of the file with the line ends of Windows too.
        ("CREATE MATERIALIZED TABLE t\r\n\r\nFRESHNESS = 0\r\nAS SELECT 1", "FRESHNESS_VALUE", 3, "0"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_what_is_expected(text, rule, line, said):
    found = error(text)

    assert found[:2] == (rule, f"assets/t.sql:{line}")
    assert said in found[2]


@pytest.mark.parametrize(
    "clause",
    [
        "COMMENT 'a'",
        "PARTITIONED BY (a)",
        "CLUSTER BY (a)",
        "WITH ('owner' = 'x')",
        "FRESHNESS = INTERVAL '1' DAY",
        "REFRESH_MODE = AUTO",
    ],
)
def test_a_clause_is_written_once(clause):
    found = errors(f"CREATE MATERIALIZED TABLE t\n{clause}\n{clause}\nAS SELECT 1 AS a")
    assert found[0][:2] == ("DUPLICATE_CLAUSE", "assets/t.sql:3")
    assert "first on line 2" in found[0][2]


def test_a_watermark_is_a_column_less_an_interval():
    clause = "WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE"
    watermark = table(f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (a), {clause}) AS SELECT 1").watermark
    assert watermark is not None
    assert watermark.value == Watermark("ts", 300)
    clause = "WATERMARK FOR ts AS TS"
    found = source(f"CREATE SOURCE s (a INT, ts TIMESTAMP, {clause}) WITH ('connector' = 'files')").watermark
    assert found is not None
    assert found.value == Watermark("ts", 0)


@pytest.mark.parametrize(
    ("clause", "rule", "said"),
    [
        ("WATERMARK FOR ts AS other", "WATERMARK", "is computed from other"),
        ("WATERMARK FOR ts AS ts - INTERVAL '1' MONTH", "WATERMARK", "is not a delay"),
        ("WATERMARK FOR ts AS ts -", "SYNTAX", "an interval"),
        ("WATERMARK FOR ts", "SYNTAX", "AS is expected"),
        ("WATERMARK FOR ts AS ts, WATERMARK FOR ts AS ts", "DUPLICATE_CLAUSE", "WATERMARK"),
        ("CONSTRAINT c EXPECT (a > 0", "SYNTAX", ") is expected"),
        ("CONSTRAINT c EXPECT a", "SYNTAX", "( is expected"),
        ("CONSTRAINT EXPECT (a)", "SYNTAX", ""),
        (
            "CONSTRAINT c EXPECT (a) ON VIOLATION IGNORE",
            "SYNTAX",
            "WARN, DROP ROW, QUARANTINE, FAIL is expected where IGNORE stands",
        ),
    ],
)
def test_another_watermark_or_constraint_is_refused(clause, rule, said):
    found = error(f"CREATE MATERIALIZED TABLE t ({clause}) AS SELECT 1")
    assert (found[0], found[1]) == (rule, "assets/t.sql:1")
    assert said in found[2]


def test_constraints_are_conditions_with_what_becomes_of_a_row():
    found = table(
        "CREATE MATERIALIZED TABLE t (\n CONSTRAINT a EXPECT (x > 0),\n"
        " constraint `b` expect (f(x, (1)) or y in (1, 2)) on violation drop row,\n"
        " CONSTRAINT c EXPECT (z = ')') ON VIOLATION QUARANTINE,\n"
        " CONSTRAINT d EXPECT (TRUE) ON VIOLATION FAIL\n) AS SELECT 1"
    ).constraints
    assert [(each.value, each.line) for each in found] == [
        (Constraint("a", "x > 0", OnViolation.WARN), 2),
        (Constraint("b", "f(x, (1)) or y in (1, 2)", OnViolation.DROP_ROW), 3),
        (Constraint("c", "z = ')'", OnViolation.QUARANTINE), 4),
        (Constraint("d", "TRUE", OnViolation.FAIL), 5),
    ]
    assert source("CREATE SOURCE s (a INT, CONSTRAINT c EXPECT (a > 0)) WITH ('x' = 'y')").constraints == (
        Written(Constraint("c", "a > 0"), 1),
    )


def test_mistakes_in_several_values_are_reported_at_once():
    found = errors(
        "CREATE SOURCE s (\n a TEXT,\n b INT,\n B INT,\n CONSTRAINT c CHECK (b > 0)\n) FRESHNESS = 0 WITH ('x' = 'y')"
    )
    assert [(rule, where) for rule, where, _ in found] == [
        ("COLUMN_TYPE", "assets/t.sql:2"),
        ("DUPLICATE_COLUMN", "assets/t.sql:4"),
        ("NOT_BUILT", "assets/t.sql:5"),
        ("FRESHNESS_VALUE", "assets/t.sql:6"),
    ]
