"""A declared query is judged before Spark runs it: functions, nodes, and the tables that it reads."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import ParseException

from freshline.commit.delta_log import newest_version
from freshline.compute.read_only import (
    LOWERED_FUNCTIONS,
    judge,
    judge_asked,
    read_declared,
    read_expression,
    read_only,
)
from freshline.errors import DeclarationError, ForbiddenQueryError
from freshline.sql.clauses import QueryText, TableClauses
from freshline.sql.functions import ALLOWED_FUNCTIONS, ASKED_TABLE_FUNCTIONS, REFUSED_FUNCTIONS
from freshline.sql.query_parser import parse_query
from freshline.sql.statement import read_statement
from freshline.sql.tokens import Text
from freshline.values.as_of_joins import Versions

ROOT = Path(__file__).parents[2]
# Functions of no registry: Spark's parser makes them itself, and Delta adds its table functions to each session.
BESIDE = {"!=", "<>", "||", "table_changes", "table_changes_by_path"}


def functions_of(spark, registry: str) -> set[str]:
    found = getattr(spark._jvm.org.apache.spark.sql.catalyst.analysis, registry).builtin().listFunction()
    return {name.funcName() for name in spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(found)}


def test_each_function_of_spark_is_allowed_or_refused(spark):
    functions, tables = functions_of(spark, "FunctionRegistry"), functions_of(spark, "TableFunctionRegistry")

    assert functions | tables | BESIDE == ALLOWED_FUNCTIONS | ASKED_TABLE_FUNCTIONS | REFUSED_FUNCTIONS.keys()
    assert not (ALLOWED_FUNCTIONS | ASKED_TABLE_FUNCTIONS) & REFUSED_FUNCTIONS.keys()
    assert tables >= ASKED_TABLE_FUNCTIONS


def test_the_examples_of_sparks_own_functions_pass(spark):
    analysis = spark._jvm.org.apache.spark.sql.catalyst.analysis
    parser = spark._jsparkSession.sessionState().sqlParser()
    refused, judged = set(), 0
    for registry in (analysis.FunctionRegistry.builtin(), analysis.TableFunctionRegistry.builtin()):
        for name in spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(registry.listFunction()):
            told = registry.lookupFunction(name).get().getExamples()
            for example in re.findall(r"^\s*> (?!SET )(.*?);\s*$", told, re.MULTILINE):
                try:
                    plan = parser.parsePlan(example)
                except ParseException:
                    continue  # some have to be completed first
                judged += 1
                try:
                    judge(plan)
                except ForbiddenQueryError as error:
                    refused.add((name.funcName(), str(error)))

    assert judged > 500
    assert {name for name, _ in refused if name not in REFUSED_FUNCTIONS} == set(), refused


def queries_of_the_repository() -> list[tuple[str, str]]:
    """Every query that is declared in an asset, an example, the benchmarks or the docs, with its place."""
    files = [file for folder in ("assets", "platform", "tests") for file in sorted((ROOT / folder).rglob("*.sql"))]
    found = [(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")) for file in files]
    for page in sorted([*ROOT.glob("platform/docs/*.md"), ROOT / "README.md"]):
        for number, block in enumerate(re.findall(r"```sql\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)):
            found.append((f"{page.name} {number}", block))
    return found


def test_every_query_of_assets_examples_tpch_and_docs_passes(spark):
    parser = spark._jsparkSession.sessionState().sqlParser()
    judged = 0
    for place, text in queries_of_the_repository():
        for statement in re.split(r";\s*\n", text):
            try:
                clauses = read_statement(Text(statement, place))
            except DeclarationError:
                continue  # no declaration, or one that shows the grammar
            if not isinstance(clauses, TableClauses):
                continue  # a source
            query, final = clauses.query, clauses.final
            assert isinstance(query, QueryText)
            parsed = parse_query(query.text, place, query.line, None if final is None else final.value)
            joins = tuple(replace(join, versions=Versions("at")) for join in parsed.as_of_joins)
            parsed = replace(parsed, as_of_joins=joins)
            reading = judge(parser.parsePlan(parsed.render()), LOWERED_FUNCTIONS)
            judged += 1
            assert reading.relations - reading.common <= {name.view.lower() for name in parsed.reads}, place
            assert {name.view.lower() for name in parsed.reads} <= reading.relations, place

    assert judged >= 22 + 10


def test_the_function_behind_patterns_is_called_by_nobody_else(spark):
    text = "SELECT freshline_match('{}', array(1L), array(1L), array(struct(1))) AS x FROM s"

    with pytest.raises(ForbiddenQueryError, match="none of the functions"):
        judge_asked(spark, text, {"s"}, {})
    with pytest.raises(DeclarationError, match="MATCH_RECOGNIZE"):
        parse_query(text, "t.sql", 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT reflect('java.lang.System', 'getenv', 'HOME') AS x FROM s", "calls a method of Java"),
        ("SELECT TRANSFORM(id) USING 'cat' AS (x) FROM s", "runs a program"),
        ("SELECT id FROM text.`/etc/passwd`", "no declared table"),
        ("SELECT sum(id) OVER w FROM s WINDOW w AS (ORDER BY java_method('a', 'b'))", "calls a method of Java"),
    ],
)
def test_a_plan_that_is_made_of_a_query_is_judged_too(spark, text, why):
    with pytest.raises(ForbiddenQueryError, match=why):
        read_only(spark, text)


FORBIDDEN_CALLS = (
    "reflect('a', 'b')",
    "`TRY_Reflect` ('a', 'b')",
    "java_method/* */('a', 'b')",
    "system.builtin.reflect('a', 'b')",
    "IDENTIFIER('reflect')('a', 'b')",
    "f(TABLE(s))",
    "(SELECT max(value) FROM text.`/etc/passwd`)",
    "(SELECT TRANSFORM(1) USING 'cat' AS (x))",
    "EXISTS (SELECT 1 FROM s VERSION AS OF 1)",
    ":name",
)
CALL_PLACES = (
    "SELECT {}",
    "SELECT {} + 1 AS n FROM s",
    "SELECT abs(coalesce({}, 1)) FROM s",
    "SELECT CASE {} WHEN 1 THEN 2 END, CASE WHEN id = 1 THEN {} END FROM s",
    "SELECT CAST({} AS INT), {}::INT, TRY_CAST({} AS INT)",
    "SELECT struct({}), array({})[0], map('a', {}).a, named_struct('a', {}).a",
    "SELECT filter(array(1), x -> x > {}), reduce(array(1), {}, (a, x) -> a + x)",
    "SELECT id IN (1, {}), id BETWEEN {} AND 2, id LIKE ANY ('a', {}), NOT ({}), -{}, id <=> {} FROM s",
    "SELECT trim(BOTH 'a' FROM {}), extract(YEAR FROM {}), position({} IN 'a'), substring({} FROM 1 FOR {})",
    "SELECT timestampadd(DAY, {}, now()), overlay('a' PLACING {} FROM 1), {} COLLATE UTF8_LCASE, {} || 'a'",
    "SELECT sum(id) FILTER (WHERE {}), count(DISTINCT {}), first({}) IGNORE NULLS, max_by(id, {}) FROM s",
    "SELECT listagg(t, {}) WITHIN GROUP (ORDER BY {}) FROM s",
    "SELECT sum({}) OVER (PARTITION BY {} ORDER BY {}) FROM s",
    "SELECT lag(id, 1, {}) OVER w FROM s WINDOW w AS (ORDER BY id)",
    "SELECT sum(id) OVER v FROM s WINDOW v AS (ORDER BY id), w AS (PARTITION BY {})",
    "SELECT (SELECT sum(id) OVER w FROM s WINDOW w AS (ORDER BY {}) LIMIT 1)",
    "WITH q AS (SELECT sum(id) OVER w FROM s WINDOW w AS (ORDER BY {})) SELECT * FROM q",
    "SELECT id FROM s WHERE id > 1 AND (id < 3 OR {})",
    "SELECT id FROM s GROUP BY id, {}",
    "SELECT id FROM s GROUP BY GROUPING SETS ((id), ({}, id), ())",
    "SELECT id FROM s GROUP BY ROLLUP (id, {})",
    "SELECT id FROM s GROUP BY id HAVING {}",
    "SELECT id FROM s QUALIFY rank() OVER (ORDER BY {}) = 1",
    "SELECT id FROM s ORDER BY {} DESC NULLS LAST",
    "SELECT id FROM s DISTRIBUTE BY {} SORT BY {}",
    "SELECT id FROM s CLUSTER BY {}",
    "SELECT id FROM s LIMIT {}",
    "SELECT id FROM s LIMIT 1 OFFSET {}",
    "SELECT s.id FROM s JOIN u ON s.id = u.id AND {}",
    "SELECT s.id FROM s LEFT ANTI JOIN u ON {}",
    "SELECT x FROM s LATERAL VIEW OUTER explode(array({})) e AS x",
    "SELECT * FROM s, LATERAL (SELECT {} AS x)",
    "SELECT * FROM s, LATERAL explode(array({})) AS e(x)",
    "SELECT * FROM range({})",
    "VALUES (1, {}), ({}, 2)",
    "SELECT * FROM VALUES (1), ({}) AS v(a)",
    "SELECT * FROM s PIVOT (max({}) FOR t IN ('a'))",
    "SELECT * FROM s PIVOT (max(id) FOR t IN ({} AS x))",
    "WITH RECURSIVE r(n) AS (SELECT {} UNION ALL SELECT n + 1 FROM r WHERE n < {}) SELECT n FROM r",
    "SELECT 1 UNION ALL SELECT {} INTERSECT SELECT {}",
    "FROM s |> EXTEND {} AS x |> WHERE {} |> AGGREGATE max({}) AS m GROUP BY id |> ORDER BY {}",
    "FROM s |> SET t = {}",
)
FORBIDDEN_TABLES = (
    "text.`/etc/passwd`",
    "delta.`/x`",
    "`csv`/**/.`/x`",
    "spark_catalog.default.s",
    "IDENTIFIER('text' || '.`/x`')",
    "STREAM s",
    "python_worker_logs()",
    "table_changes_by_path('/x', 0)",
    "s VERSION AS OF 1",
    "s TIMESTAMP AS OF now()",
    "(SELECT TRANSFORM(id) USING 'cat' AS (id) FROM s)",
)
TABLE_PLACES = (
    "SELECT * FROM {}",
    "TABLE {}",
    "FROM {} SELECT *",
    "FROM s |> JOIN {} USING (id)",
    "FROM s |> UNION ALL FROM {}",
    "SELECT * FROM s, {}",
    "SELECT * FROM s NATURAL JOIN {}",
    "SELECT * FROM (s CROSS JOIN {})",
    "SELECT * FROM (SELECT id FROM {}) q",
    "WITH q AS (SELECT * FROM {}) SELECT 1",
    "SELECT (SELECT max(id) FROM {})",
    "SELECT id FROM s WHERE id NOT IN (SELECT id FROM {})",
    "SELECT id FROM s ORDER BY (SELECT max(id) FROM {})",
    "SELECT id FROM s EXCEPT ALL SELECT id FROM {}",
    "SELECT * FROM s, LATERAL (SELECT * FROM {})",
    "SELECT sum(id) OVER w FROM s WINDOW w AS (ORDER BY (SELECT max(id) FROM {}))",
    "SELECT filter(array(1), x -> x > (SELECT max(id) FROM {}))",
    "SELECT * FROM {} TABLESAMPLE (10 PERCENT)",
    "SELECT * FROM {} LATERAL VIEW explode(array(1)) AS x",
    "SELECT * FROM {} UNPIVOT (n FOR k IN (id))",
)


@pytest.mark.parametrize(
    ("places", "forbidden", "harmless"),
    [(CALL_PLACES, FORBIDDEN_CALLS, "1"), (TABLE_PLACES, FORBIDDEN_TABLES, "s")],
    ids=["calls", "tables"],
)
def test_a_forbidden_part_is_found_wherever_it_stands(spark, places, forbidden, harmless):
    parser = spark._jsparkSession.sessionState().sqlParser()
    for place in places:
        judge(parser.parsePlan(place.replace("{}", harmless)))
        found = 0
        for part in forbidden:
            # In one of several places of a statement at a time, the last.
            before, _, after = place.rpartition("{}")
            try:
                plan = parser.parsePlan(before.replace("{}", harmless) + part + after)
            except ParseException:
                continue
            with pytest.raises(ForbiddenQueryError):
                judge(plan)
            found += 1
        assert found >= len(forbidden) // 3, place


def test_a_query_that_is_nested_without_end_is_refused(spark):
    def nested(deep: int) -> str:
        return "SELECT * FROM (" * deep + "SELECT 1 AS n" + ")" * deep

    assert read_only(spark, nested(30)).collect() == [(1,)]
    with pytest.raises(ForbiddenQueryError, match="nested too deeply"):
        read_only(spark, nested(3000))


@pytest.mark.parametrize(
    "text",
    [
        "reflect('java.lang.System', 'getenv', 'HOME') > ''",
        "id IN (SELECT value FROM text.`/etc/passwd`)",
        "EXISTS (SELECT * FROM s)",
        "no_function_of_spark(id)",
    ],
)
def test_an_expression_over_a_row_calls_and_reads_nothing_else(spark, text):
    with pytest.raises(ForbiddenQueryError):
        read_expression(text)


def test_spark_reads_the_tables_that_the_declaration_was_found_to_read(spark):
    session = spark.newSession()
    for name in ("freshline_read_s", "freshline_read_u"):
        session.range(2).createOrReplaceTempView(name)
    union = "SELECT id FROM freshline_read_s --\\\n UNION ALL SELECT id FROM freshline_read_u"

    assert read_declared(session, "SELECT id FROM freshline_read_s", ["freshline_read_s"]).count() == 2
    # To a parser that ends the comment with its line this is a union.
    with pytest.raises(ForbiddenQueryError, match="does not read freshline_read_u in the query, unlike the plan"):
        read_declared(session, union, ["freshline_read_s", "freshline_read_u"])
    with pytest.raises(ForbiddenQueryError, match="also reads freshline_read_u in the query, unlike the plan"):
        read_declared(session, "SELECT id FROM freshline_read_s, freshline_read_u", ["freshline_read_s"])


TIE = "'merge.tie-breaker'"
READS_A_FILE = "from_xml('<a/>', 'b STRING', map('rowValidationXSDPath', '/etc/passwd')).b"

DELETE = f"""'merge.delete-when' = "{READS_A_FILE} IS NULL\""""


@pytest.mark.parametrize(
    "declared",
    [
        f"t FRESHNESS = INTERVAL '1' HOUR AS SELECT id, {READS_A_FILE} AS x FROM s",
        f"t (CONSTRAINT c EXPECT ({READS_A_FILE} IS NULL)) FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM s",
        (
            f"t (PRIMARY KEY (id)) WITH ('merge' = 'last_row', 'merge.sequence' = 'id', {TIE} = 'id', {DELETE}) "
            "FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM s"
        ),
    ],
    ids=["query", "constraint", "option"],
)
def test_the_engine_refuses_before_it_commits_what_the_declaration_could_not_see(lab, declared):
    lab.source("s", "id INT")
    lab.sql("INSERT INTO s VALUES (1)")
    name = lab.declare(f"CREATE MATERIALIZED TABLE {declared}")

    outcome = lab.refresh("t")

    assert isinstance(outcome.error, ForbiddenQueryError)
    assert "the option rowValidationXSDPath of from_xml(..) reads a file" in outcome.error.message
    assert str(outcome.error.where).endswith("t.sql:1")
    assert newest_version(lab.runtime.warehouse.path(name)) is None
