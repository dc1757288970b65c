"""Tables in YAML: the same specs as those of SQL, and mistakes with the line on which they stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshline.declare.yaml_table import declared_text, find_tables
from freshline.errors import DeclarationError
from freshline.sql.clauses import SinkClauses, TableClauses
from freshline.values.location import Location
from freshline.values.names import TableName

HEAD = "type: freshline.dagster.FreshlineProjectComponent\nattributes:\n  tables:\n"
FILE = "assets/defs/lake/defs.yaml"

# Each pair is one declaration, in SQL and in YAML.
SAME = {
    "plain": ("CREATE MATERIALIZED TABLE t AS SELECT id FROM orders", "query: SELECT id FROM orders"),
    "freshness": (
        "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '5' MINUTE AS SELECT id FROM orders",
        "freshness: 5 minutes\nquery: SELECT id FROM orders",
    ),
    "an interval as in SQL": (
        "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '5' MINUTE AS SELECT id FROM orders",
        "freshness: INTERVAL '5' MINUTE\nquery: SELECT id FROM orders;",
    ),
    "mode and comment": (
        (
            "CREATE MATERIALIZED TABLE t COMMENT 'All: of them' REFRESH_MODE = BATCH FRESHNESS = INTERVAL '1' DAY "
            "AS SELECT id FROM orders"
        ),
        'comment: "All: of them"\nmode: batch\nfreshness: 1 day\nquery: SELECT id FROM orders',
    ),
    "keys and partitions": (
        (
            "CREATE MATERIALIZED TABLE t (PRIMARY KEY (day, customer)) PARTITIONED BY (day) "
            "WITH ('partition.unit' = 'day', 'partition.start' = '2026-01-01', 'group' = 'finance') "
            "AS SELECT day, customer, sum(amount) AS total FROM orders GROUP BY day, customer"
        ),
        (
            "primary_key: [day, customer]\npartitioned_by: day\n"
            "options:\n  partition.unit: day\n  partition.start: 2026-01-01\n  GROUP: finance\n"
            "query: SELECT day, customer, sum(amount) AS total FROM orders GROUP BY day, customer"
        ),
    ),
    "clusters and lists of options": (
        (
            "CREATE MATERIALIZED TABLE t CLUSTER BY (customer, day) WITH ('requires-history' = 'orders') "
            "AS SELECT id, customer, day FROM orders"
        ),
        (
            "cluster_by:\n  - customer\n  - day\noptions: {requires-history: orders}\n"
            "query: SELECT id, customer, day FROM orders"
        ),
    ),
    "constraints and a watermark": (
        (
            "CREATE MATERIALIZED TABLE t (CONSTRAINT positive EXPECT (amount > 0) ON VIOLATION DROP ROW, "
            "CONSTRAINT named EXPECT (customer <> ''), WATERMARK FOR at AS at - INTERVAL '5' MINUTE) "
            "AS SELECT id, customer, amount, at FROM orders"
        ),
        (
            "constraints:\n  positive: {expect: amount > 0, on_violation: drop row}\n  named: customer <> ''\n"
            "watermark: {column: at, delay: 5 minutes}\n"
            "query: SELECT id, customer, amount, at FROM orders"
        ),
    ),
    "a merge": (
        (
            "CREATE MATERIALIZED TABLE t (PRIMARY KEY (customer)) "
            "WITH ('merge' = 'last_row', 'merge.sequence' = 'at', 'merge.tie-breaker' = 'id') "
            "AS SELECT customer, id, at FROM orders"
        ),
        (
            "primary_key: customer\noptions: {merge: last_row, merge.sequence: at, merge.tie-breaker: id}\n"
            "query: SELECT customer, id, at FROM orders"
        ),
    ),
}


def entry(fields: str, name: str = "t") -> str:
    """An entry of the list; its first field stands on line 5."""
    return f"    - name: {name}\n" + "".join(f"      {line}\n" for line in fields.split("\n"))


def in_yaml(shop, *entries: str):
    return shop.declare("defs/lake/defs.yaml", HEAD + "".join(entries))


@pytest.mark.parametrize(("sql", "fields"), SAME.values(), ids=SAME)
def test_a_table_in_yaml_is_the_one_in_sql(shop, sql, fields):
    name = TableName(None, "t")
    written = shop.declare("t.sql", sql)
    expected = shop.read().table(name)
    written.unlink()
    in_yaml(shop, entry(fields))

    found = shop.read().table(name)

    assert found.fingerprint == expected.fingerprint
    assert found.written_at == Location(FILE, 4)
    query = replace(found.query, line=expected.query.line)
    assert replace(found, written_at=expected.written_at, query=query) == expected


def test_a_name_has_a_namespace_and_tables_read_each_other(shop):
    in_yaml(
        shop,
        entry("query: SELECT id FROM sales.u", "sales.t"),
        entry("query: |\n\n  SELECT id\n  FROM orders\n", "sales.u"),
    )

    graph = shop.read()

    assert [str(name) for name in graph.upstream(TableName.parse("sales.t"))] == ["orders", "sales.u"]
    assert graph.table(TableName.parse("sales.u")).query.line == 9


@pytest.mark.parametrize(
    ("fields", "rule", "line", "said"),
    [
        ("freshness: 0 seconds\nquery: SELECT id FROM orders", "FRESHNESS_VALUE", 5, ""),
        ("query: SELECT idd FROM orders", "UNKNOWN_COLUMN", 5, "Did you mean id?"),
        ("query: |\n  SELECT id,\n    nope\n  FROM orders", "UNKNOWN_COLUMN", 7, "nope"),
        ("query: >\n  SELECT nope FROM orders", "UNKNOWN_COLUMN", 6, "nope"),
        ("query: DELETE FROM orders", "QUERY_KIND", 5, ""),
        ("freshness: 1 day", "YAML_DECLARATION", 4, "a table has a query."),
        ("query:", "YAML_DECLARATION", 5, "query is a text, and not nothing."),
        ("query: [1]", "YAML_DECLARATION", 5, "query is a text, and not a list."),
        ("fresh: 1 day\nquery: SELECT id FROM orders", "YAML_DECLARATION", 5, "a table has no fresh."),
        ("query: SELECT id FROM orders\nquery: SELECT 1", "DUPLICATE_CLAUSE", 6, "first on line 5"),
        ("query: SELECT id FROM orders\nprimary_key: [id, ID]", "YAML_DECLARATION", 6, "names a column twice"),
        ("query: SELECT id FROM orders\nprimary_key: nope", "PRIMARY_KEY", 6, "nope"),
        ("query: SELECT id FROM orders\noptions:\n  nope: 1", "UNKNOWN_OPTION", 7, "nope"),
        ("query: SELECT id FROM orders\noptions:\n  group: [a]", "YAML_DECLARATION", 7, "and not a list"),
        ("query: SELECT id FROM orders\noptions: 7", "YAML_DECLARATION", 6, "options is a mapping."),
        ("query: SELECT id FROM orders\nmode: sometimes", "REFRESH_MODE", 6, ""),
        ("query: SELECT id FROM orders\nwatermark: {delay: 1 day}", "YAML_DECLARATION", 6, "a watermark has a column."),
        ("query: SELECT id FROM orders\nwatermark: {column: id, delay: soon}", "WATERMARK", 6, "soon"),
        ("query: SELECT id FROM orders\nconstraints:\n  a-b: id > 1", "YAML_DECLARATION", 7, "'a-b'"),
        ("query: SELECT id FROM orders\nconstraints:\n  a: {on_violation: FAIL}", "YAML_DECLARATION", 7, "expect"),
        (
            "query: SELECT id FROM orders\nconstraints:\n  a: {expect: id > 1, on_violation: CRY}",
            "YAML_DECLARATION",
            7,
            "on_violation is CRY. It is one of WARN, DROP ROW, QUARANTINE, FAIL.",
        ),
    ],
)
def test_a_mistake_has_its_line(shop, fields, rule, line, said):
    in_yaml(shop, entry(fields))

    shop.check_error(rule, said, at=f"{FILE}:{line}")


def test_all_mistakes_are_reported_and_who_reads_a_broken_table_is_not_blamed(shop):
    in_yaml(shop, entry("freshness: 0\nmode: never\nquery: SELECT id FROM orders"))
    shop.declare("reads.sql", "CREATE MATERIALIZED TABLE reads AS SELECT id FROM t")

    assert [(rule, where) for rule, where, _ in shop.errors()] == [("FRESHNESS_VALUE", f"{FILE}:5")]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (HEAD + "    - name: [\n", 5, "the file is no YAML"),
        (HEAD.rstrip() + " 7\n", 3, "tables is a list with an entry for each table."),
        (HEAD + "    - SELECT 1\n", 4, "a table is a mapping of name, query"),
        (HEAD + "    - name: 1t\n      query: SELECT 1 AS a\n", 4, "'1t' is not a name"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported_with_its_line(shop, text, line, said):
    shop.declare("defs/lake/defs.yaml", text)

    errors = shop.errors()

    assert errors[0][1] == f"{FILE}:{line}"
    assert said in errors[0][2]


def test_a_name_is_declared_once_in_sql_or_in_yaml(shop):
    in_yaml(shop, entry("query: SELECT id FROM orders"))
    shop.declare("t.sql", "CREATE MATERIALIZED TABLE t AS SELECT id FROM orders")

    assert {rule for rule, _, _ in shop.errors()} == {"DUPLICATE_NAME"}


def test_other_components_are_passed_by_and_every_document_is_read(shop):
    shop.declare("defs/other/defs.yaml", "type: other.Component\nattributes: {tables: [{name: x}]}\n")
    shop.declare("defs/broken/defs.yaml", "type: [other\n")
    shop.declare("defs/own.yaml", HEAD + entry("query: SELECT id FROM orders", "not_read"))
    two = "type: other.Component\n---\n" + HEAD + entry("query: SELECT id FROM orders")
    shop.declare("defs/deep/er/still/defs.yaml", two)
    shop.declare(
        "defs/lake/defs.yaml", "type: freshline.dagster.FreshlineProjectComponent\nattributes:\n  select: '*'\n"
    )

    graph = shop.read()

    assert [str(spec.name) for spec in graph.tables] == ["t"]
    assert graph.table(TableName(None, "t")).written_at == Location("assets/defs/deep/er/still/defs.yaml", 6)


def test_a_second_reading_takes_tables_from_the_cache_until_they_change(shop, monkeypatch):
    in_yaml(shop, entry("query: SELECT id FROM orders"), entry("query: SELECT id FROM t", "u"))
    before = shop.read()
    parsed = []
    from freshline.declare import yaml_table

    clauses = yaml_table.YamlTable.clauses

    def noted(self: yaml_table.YamlTable) -> TableClauses | SinkClauses:
        parsed.append(self.at)
        return clauses(self)

    monkeypatch.setattr(yaml_table.YamlTable, "clauses", noted)

    assert shop.read().specs == before.specs
    assert parsed == []
    in_yaml(shop, entry("query: SELECT id FROM orders"), entry("query: SELECT id + 1 AS id FROM t", "u"))
    after = shop.read()
    assert parsed == [Location(FILE, 6)]
    assert after.table(TableName(None, "u")).fingerprint != before.table(TableName(None, "u")).fingerprint


def test_the_text_of_an_entry_is_the_one_that_was_written():
    text = HEAD + entry("query: |\n  SELECT a,\n    b\n  FROM s") + "    # another\n" + entry("query: SELECT 1", "u")

    assert declared_text(text, 4) == "name: t\nquery: |\n  SELECT a,\n    b\n  FROM s"
    assert declared_text(text, find_tables(text, "f")[1].at.line) == "name: u\nquery: SELECT 1"
    assert declared_text(text, 1) is None


@pytest.mark.seconds
@pytest.mark.parametrize("text", ["[" * 3_000, "{a: " * 3_000, "- " * 3_000])
def test_a_file_that_is_nested_without_end_is_refused(text):
    with pytest.raises(DeclarationError, match="the file is nested too deeply to be read"):
        find_tables(f"{HEAD}    {text}", FILE)


@pytest.mark.parametrize(
    "text", ["    -\n", "    - # nothing\n\n", "    - {}: 1\n    - ? [a]\n      : 2\n", "    - 5\n"]
)
def test_an_entry_without_a_text_or_with_a_key_that_is_none_is_refused(text):
    for table in find_tables(f"{HEAD}{text}", FILE):
        with pytest.raises(DeclarationError):
            table.clauses()


def test_a_list_as_a_key_of_the_file_names_nothing():
    assert find_tables(f"? [a]\n: 1\n{HEAD}    - name: t\n      query: SELECT 1 AS a\n", FILE)
