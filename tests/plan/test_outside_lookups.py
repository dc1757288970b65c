"""A source that is asked by key is read by lookup joins on exactly its key, row by row."""

from __future__ import annotations

import pytest

from freshline.declare.project import read_declarations
from freshline.errors import DeclarationErrors
from freshline.plan.project import check_promises
from freshline.query.rules.asked_keys import find_key_queries
from freshline.values.names import TableName
from freshline.values.reason import Reason
from freshline.values.spec import TableSpec

SOURCES = {
    "o.sql": "CREATE SOURCE o (id INT, customer INT, region STRING) WITH ('connector' = 'delta', 'path' = 'o')",
    "p.sql": "CREATE SOURCE p (id INT, n INT) WITH ('connector' = 'delta', 'path' = 'p')",
}
C = (
    "CREATE SOURCE c (id INT, region STRING, name STRING, boss INT, PRIMARY KEY (id, region)) WITH ('connector' = "
    "'http', 'lookup' = 'true', 'url' = 'http://h/{id}/{region}'OPTIONS)"
)
AS_OF = "FOR SYSTEM_TIME AS OF PROCTIME()"
ON = "ON c.id = o.customer AND o.region = c.region"
JOINED = f"FROM o LEFT JOIN c {AS_OF} AS c {ON}"
CHAINED = (
    f"WITH r AS (SELECT o.id, c.boss, o.region {JOINED}) SELECT r.id, d.name FROM r LEFT JOIN c {AS_OF} AS d "
    "ON d.id = r.boss AND d.region = r.region"
)


def graph_of(settings, query, options="", clause=""):
    text = f"CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR {clause} AS {query}"
    return read_declarations({**SOURCES, "c.sql": C.replace("OPTIONS", options), "t.sql": text}, settings)


def problems(settings, query, options="", clause=""):
    try:
        check_promises(graph_of(settings, query, options, clause))
    except DeclarationErrors as refused:
        return [f"{error.rule} {error}" for error in refused.errors]
    return []


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT o.id, c.name {JOINED}",
        f"SELECT o.id, c.name {JOINED.replace('LEFT ', '')} WHERE c.name <> 'x'",
        f"SELECT o.id, c.name {JOINED} JOIN p ON p.id = o.id",
        CHAINED,
        f"SELECT o.id, c.name {JOINED} UNION ALL SELECT p.id, 'x' FROM p",
    ],
)
def test_lookup_joins_by_row_on_the_key_are_taken(settings, query):
    assert problems(settings, query) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT name FROM c", "otherwise than by FOR SYSTEM_TIME"),
        ("SELECT o.id, c.name FROM o JOIN c ON c.id = o.customer", "otherwise than by FOR SYSTEM_TIME"),
        (f"SELECT o.id, c.name FROM o JOIN c {AS_OF} AS c ON c.id = o.id", "exactly its PRIMARY KEY (id, region)"),
        (f"SELECT o.id {JOINED} AND c.name = o.region", "ON of c names id, region, name"),
        (f"SELECT c.name, count(*) AS n {JOINED} GROUP BY c.name", "one row of the inputs"),
        (f"SELECT DISTINCT c.name {JOINED}", "one row of the inputs"),
        (f"SELECT o.id, row_number() OVER (ORDER BY o.id) AS n, c.name {JOINED}", "one row of the inputs"),
        ("SELECT o.id FROM o WHERE o.id IN (SELECT id FROM c)", "otherwise than by FOR SYSTEM_TIME"),
    ],
)
def test_everything_else_is_refused_by_name(settings, query, said):
    found = problems(settings, query)

    assert any(each.startswith("LOOKUP_ONLY") and said in each and "c has 'lookup'" in each for each in found), found


def test_rows_that_a_failure_would_lose_for_good_are_refused(settings):
    query, option = f"SELECT o.id, c.name {JOINED}", ", 'lookup.on-error' = 'null'"

    assert problems(settings, query, option) == []
    (found,) = problems(settings, query.replace("LEFT ", ""), option)
    assert "Write LEFT JOIN" in found


def keys_of(settings, query):
    spec = graph_of(settings, query).table(TableName.parse("t"))
    schema = {"o": ("id", "customer", "region"), "p": ("id", "n"), "c": ("id", "region", "name", "boss")}
    return find_key_queries(spec.sql, schema, {TableName.parse("c")})


def test_keys_are_those_of_the_rows_that_stand_before_the_join(settings):
    query = f"SELECT o.id, c.name {JOINED} JOIN p ON p.id = o.id WHERE o.id > 3 AND c.name = 'x' AND p.n = 1"
    (found,) = keys_of(settings, query)

    assert found.columns == ("id", "region")
    assert ".`customer` AS `id`" in found.text
    assert "JOIN `p`" in found.text
    assert "> 3" in found.text
    assert "'x'" not in found.text
    assert not found.reads


def test_a_lookup_that_decides_the_key_of_another_is_asked_before_it(settings):
    query = f"SELECT o.id, d.name {JOINED} LEFT JOIN c {AS_OF} AS d ON d.id = c.boss AND d.region = o.region"
    first, second = keys_of(settings, query)

    assert not first.reads
    assert second.reads == {TableName.parse("c")}


QUARANTINE = ", 'lookup.on-error' = 'quarantine'"


@pytest.mark.parametrize(
    "query",
    [f"SELECT o.id, c.name {JOINED}", f"SELECT o.id {JOINED.replace('LEFT ', '')} WHERE c.name <> 'x' AND o.id > 1"],
)
def test_rows_of_one_input_may_wait_for_an_answer(settings, query):
    assert problems(settings, query, QUARANTINE) == []
    spec = graph_of(settings, query, QUARANTINE).spec(TableName.parse("t"))
    assert isinstance(spec, TableSpec)
    assert (spec.quarantined_lookups, spec.may_wait) == ((TableName.parse("c"),), True)


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        (f"SELECT o.id, c.name {JOINED} JOIN p ON p.id = o.id", ""),
        (CHAINED, ""),
        (f"SELECT o.id, c.name {JOINED} UNION ALL SELECT p.id, 'x' FROM p", ""),
        (f"SELECT o.id, c.name FROM (SELECT * FROM o) AS o LEFT JOIN c {AS_OF} AS c {ON}", ""),
        (
            f"SELECT o.region, c.name {JOINED}",
            "PARTITIONED BY (region) WITH ('partition.values' = 'a, b')",
        ),
    ],
)
def test_rows_that_cannot_wait_for_an_answer_are_refused(settings, query, clause):
    (found,) = problems(settings, query, QUARANTINE, clause)
    assert found.startswith("LOOKUP_ONLY")
    assert "'lookup.on-error' = 'quarantine'" in found
    # With another option the query is taken.
    assert problems(settings, query, ", 'lookup.on-error' = 'null'", clause) == []


def test_keys_come_with_the_number_of_their_row(settings):
    query = graph_of(settings, f"SELECT o.id {JOINED} WHERE o.id > 1 AND c.name = 'x'").table(TableName.parse("t")).sql
    schema = {"o": ("id", "customer", "region"), "c": ("id", "region", "name", "boss")}
    queries = find_key_queries(query, schema, {TableName.parse("c")}, also="n")
    assert not isinstance(queries, Reason)
    (found,) = queries
    assert (found.columns, ".`n` FROM `o`" in found.text) == (("id", "region"), True)
    assert "> 1" in found.text
    assert "'x'" not in found.text
