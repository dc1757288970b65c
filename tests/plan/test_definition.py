"""Changed declarations are classified by what they ask of a person."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshline.declare.project import read_declarations
from freshline.errors import FormatError
from freshline.plan.definition import Definition, classify_change, definition_of, may_keep_rows
from freshline.values.freshness import Freshness
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.query import PythonInput, PythonQuery
from freshline.values.spec import TableSpec

SOURCE = (
    "CREATE SOURCE s (id INT, k STRING, v INT, tags ARRAY<STRING>) "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = 's')"
)
DIMENSION = "CREATE MATERIALIZED TABLE d (PRIMARY KEY (k)) AS SELECT k, max(v) AS top FROM s GROUP BY k"


def defined(settings, query: str, header: str = "") -> Definition:
    graph = read_declarations(
        {"s.sql": SOURCE, "d.sql": DIMENSION, "t.sql": f"CREATE MATERIALIZED TABLE t {header} AS {query}"}, settings
    )
    (spec,) = [spec for spec in graph.tables if str(spec.name) == "t"]
    assert isinstance(spec, TableSpec)
    return definition_of(spec)


LOOKUP = "SELECT s.id{} FROM s LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS f ON f.k = s.k"
CASES = [
    ("SELECT id FROM s", "SELECT id /* words */\nFROM s", "unchanged", ""),
    ("SELECT id FROM s", "SELECT id, v FROM s", "additive", "new column v"),
    ("SELECT id, k FROM s", "SELECT v * 2 AS w, id, k FROM s", "additive", "new column w"),
    ("SELECT id, k FROM s", "SELECT k, id FROM s", "additive", "the order of its columns"),
    (
        "SELECT k, sum(v) AS n FROM s GROUP BY k",
        "SELECT k, sum(v) AS n, max(v) AS m FROM s GROUP BY k",
        "additive",
        "m",
    ),
    ("SELECT id FROM s", "SELECT id, row_number() OVER (ORDER BY v) AS r FROM s", "additive", "new column r"),
    (
        "SELECT * FROM (SELECT id FROM s) AS t WHERE TRUE AND NOT coalesce((id > 1), FALSE)",
        "SELECT * FROM (SELECT id, v FROM s) AS t WHERE TRUE AND NOT coalesce((id > 1), FALSE)",
        "additive",
        "new column v",
    ),
    (
        "SELECT * FROM (SELECT id FROM s) WHERE id > 1",
        "SELECT * FROM (SELECT id, v FROM s) WHERE id > 2",
        "breaking",
        "",
    ),
    ("SELECT id FROM s", "SELECT id FROM s WHERE v > 1", "breaking", "the query changed"),
    ("SELECT id, v FROM s", "SELECT id, v + 1 AS v FROM s", "breaking", "column v is computed in another way"),
    ("SELECT k, count(*) AS n FROM s GROUP BY 1", "SELECT v, k, count(*) AS n FROM s GROUP BY 1", "breaking", "place"),
    ("SELECT DISTINCT k FROM s", "SELECT DISTINCT k, v FROM s", "breaking", "DISTINCT"),
    ("SELECT id FROM s", "SELECT id, count(*) AS n FROM s", "breaking", "aggregates all rows"),
    ("SELECT id FROM s", "SELECT id, explode(tags) AS tag FROM s", "breaking", "several rows of one"),
    (
        "SELECT id FROM s UNION ALL SELECT v FROM s",
        "SELECT id, 1 AS x FROM s UNION ALL SELECT v, 2 FROM s",
        "breaking",
        "",
    ),
    (LOOKUP.format(""), LOOKUP.format(", f.top"), "breaking", "when they arrived"),
    ("SELECT id, v FROM s", "SELECT id FROM s", "destructive", "column v goes away"),
    ("SELECT id, v FROM s", "SELECT id, v AS w FROM s WHERE v > 1", "destructive", "column v goes away"),
]


@pytest.mark.parametrize(("before", "after", "kind", "about"), CASES)
def test_a_change_of_the_query_has_a_class(settings, before, after, kind, about):
    found = classify_change(defined(settings, before), defined(settings, after))

    assert (str(found.kind), about in found.text) == (kind, True), found


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("(PRIMARY KEY (id))", "(PRIMARY KEY (k))", "destructive"),
        ("PARTITIONED BY (k)", "", "destructive"),
        ("WITH ('lookup.on-duplicate' = 'error')", "WITH ('lookup.on-duplicate' = 'any')", "breaking"),
    ],
)
def test_a_change_of_the_header_has_a_class(settings, before, after, kind):
    query = LOOKUP.format(", s.k") if "lookup" in before else "SELECT id, k FROM s"

    assert str(classify_change(defined(settings, query, before), defined(settings, query, after)).kind) == kind


FUNCTION = PythonQuery("t.py", "t", (PythonInput("s", TableName.parse("s")),), "hash")


def in_python(code: str = "hash", **parts) -> Definition:
    spec = TableSpec(TableName.parse("t"), replace(FUNCTION, code_hash=code), Location("t.py", 1), Freshness(60))
    return definition_of(replace(spec, **parts))


@pytest.mark.parametrize(
    ("before", "after", "kind", "about"),
    [
        ({}, {}, "additive", "its code changed"),
        ({"columns": ("id",)}, {"columns": ("ID", "v")}, "additive", "its code changed"),
        ({"columns": ("id", "v")}, {"columns": ("id",)}, "destructive", "column v goes away"),
        ({"columns": ("id", "v")}, {}, "additive", "its code changed"),
        ({"primary_key": ("id",)}, {"primary_key": ("v",)}, "destructive", "PRIMARY KEY was (id), is (v)"),
        ({"primary_key": ("id",)}, {}, "destructive", "PRIMARY KEY was (id), is none"),
        ({"partitioned_by": ("k",)}, {}, "destructive", "PARTITIONED BY was (k), is none"),
    ],
)
def test_a_change_of_a_table_in_python_has_a_class(before, after, kind, about):
    found = classify_change(in_python(**before), in_python("later", **after))

    assert (str(found.kind), about in found.text) == (kind, True), found


def test_a_table_in_python_in_the_place_of_one_in_sql_keeps_its_key(settings):
    written = defined(settings, "SELECT id, k FROM s", "(PRIMARY KEY (id))")

    assert str(classify_change(written, in_python(primary_key=("id",))).kind) == "additive"
    assert "PRIMARY KEY was (id), is none" in classify_change(written, in_python()).text
    assert str(classify_change(in_python(primary_key=("id",)), written).kind) == "breaking"
    assert str(classify_change(None, in_python()).kind) == "additive"


def test_whatever_else_a_fingerprint_counts_is_not_taken_for_a_new_column(settings):
    header = "(PRIMARY KEY (k)) WITH ('merge' = 'first_row', 'merge.order' = '{}', 'merge.tie-breaker' = 'v')"
    first = defined(settings, "SELECT k, id, v FROM s", header.format("id"))
    wider = defined(settings, "SELECT k, id, v, tags FROM s", header.format("id"))
    last = defined(settings, "SELECT k, id, v, tags FROM s", header.format("-id"))

    assert [str(classify_change(first, one).kind) for one in (wider, last, replace(first, fingerprint="x"))] == [
        "additive",
        "breaking",
        "breaking",
    ]


def test_a_definition_that_nobody_kept_asks_for_its_start(settings):
    assert str(classify_change(None, defined(settings, "SELECT id FROM s")).kind) == "breaking"


def test_a_definition_comes_back_as_it_was_kept_and_a_newer_format_is_refused(settings):
    made = defined(settings, "SELECT id FROM s")

    assert Definition.from_json(made.as_json()) == made
    with pytest.raises(FormatError, match="newer one"):
        Definition.from_json({**made.as_json(), "freshline": 2})


KEPT = [
    ("SELECT id, v FROM s", "SELECT id, v + 1 AS v FROM s WHERE v > 1", True),
    ("SELECT id FROM s", "SELECT id + 0 AS id FROM s", False),
    ("SELECT to_char(v, '999') AS id FROM s", "SELECT to_char(v, '99') AS id FROM s", False),
    ("SELECT try_cast(k AS INT) AS id FROM s", "SELECT CAST(k AS INT) AS id FROM s", False),
    ("WITH x AS (SELECT id FROM s) SELECT id FROM x", "WITH x AS (SELECT v AS id FROM s) SELECT id FROM x", False),
    (
        "WITH x AS (SELECT id, v FROM s) SELECT id FROM x",
        "WITH x AS (SELECT id, v + 1 AS v FROM s) SELECT id FROM x",
        True,
    ),
    ("SELECT x.id FROM (SELECT id FROM s) x", "SELECT x.id FROM (SELECT v AS id FROM s) x", False),
    ("SELECT id FROM (SELECT id, k FROM s) x", "SELECT id FROM (SELECT id, v FROM s) x", True),
    ("SELECT id FROM (SELECT * FROM s) x", "SELECT id FROM (SELECT v AS id FROM s) x", False),
    ("SELECT id FROM (SELECT id FROM s UNION SELECT v FROM s) x", "SELECT id FROM (SELECT id FROM s) x", False),
    (
        "WITH x AS (SELECT id FROM s), y AS (SELECT id FROM x) SELECT id FROM y",
        "WITH x AS (SELECT v AS id FROM s), y AS (SELECT id FROM x) SELECT id FROM y",
        False,
    ),
]


@pytest.mark.parametrize(("before", "after", "kept"), KEPT)
def test_rows_are_kept_where_key_and_partition_are_computed_alike(settings, before, after, kept):
    header = "(PRIMARY KEY (id))"

    assert may_keep_rows(defined(settings, before, header), defined(settings, after, header)) is kept
