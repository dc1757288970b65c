"""The part of a project that stands although declarations have mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from freshline.errors import DeclarationErrors
from freshline.plan.valid_project import open_valid_project
from freshline.values.names import TableName

SOURCE = "CREATE SOURCE {} (id INT, v INT) WITH ('connector' = 'files', 'path' = 'landing', 'format' = 'json');"
TABLE = "CREATE MATERIALIZED TABLE {} (PRIMARY KEY (id)) AS SELECT id, v FROM {};"


@pytest.fixture
def declare(settings):
    """A project with the given declarations, by path below their folder."""

    def declare(**files):
        settings.declarations.mkdir(exist_ok=True)
        for path, text in files.items():
            file = settings.declarations / path.replace("__", "/")
            file.parent.mkdir(exist_ok=True)
            file.with_suffix(file.suffix or ".sql").write_text(text, encoding="utf-8")
        return settings

    return declare


def names(standing):
    return [str(name) for name in standing.graph.order]


def mistaken(standing):
    """The rules that each declaration breaks, and the tables with mistakes that it reads."""
    return {
        str(each.name or each.file.name): ([error.rule for error in each.errors], [str(read) for read in each.reads])
        for each in standing.mistaken
    }


def test_without_a_mistake_everything_stands(declare):
    standing = open_valid_project(declare(a=SOURCE.format("a"), b=TABLE.format("b", "a")))

    assert (names(standing), standing.mistaken) == (["a", "b"], ())


def test_a_mistake_costs_its_table_and_those_that_read_it(declare):
    standing = open_valid_project(
        declare(
            a=SOURCE.format("a"),
            b="CREATE MATERIALISED TABLE b AS SELECT id FROM a;",
            c=TABLE.format("c", "b"),
            d=TABLE.format("d", "c"),
            e=TABLE.format("e", "a"),
        )
    )

    assert names(standing) == ["a", "e"]
    assert mistaken(standing) == {"b": (["SYNTAX"], []), "c": ([], ["b"]), "d": ([], ["c"])}


def test_each_table_has_its_own_mistakes(declare):
    standing = open_valid_project(
        declare(
            a=SOURCE.format("a"),
            b="CREATE MATERIALIZED TABLE b WITH ('no' = '1', 'incremental' = 'never') AS SELECT id FROM a;",
            sales__c="CREATE MATERIALIZED TABLE sales.c AS SELECT nothing FROM a;",
            d="CREATE MATERIALIZED TABLE d AS SELECT id FROM nowhere;",
            e=TABLE.format("other", "a"),
        )
    )

    assert names(standing) == ["a"]
    found = mistaken(standing)
    assert sorted(found) == ["b", "d", "e", "sales.c"]
    assert found["d"] == (["UNKNOWN_UPSTREAM"], [])
    assert found["e"] == (["FILE_NAME"], [])
    assert len(found["b"][0]) > 1
    assert all(reads == [] for _, reads in found.values())


def test_tables_that_read_each_other_are_left_out_with_what_reads_them(declare):
    standing = open_valid_project(
        declare(
            a=SOURCE.format("a"), b=TABLE.format("b", "c"), c=TABLE.format("c", "b"), d=TABLE.format("d", "b"),
            e=TABLE.format("e", "a"),
        )
    )  # fmt: skip

    assert names(standing) == ["a", "e"]
    assert set(mistaken(standing)) == {"b", "c", "d"}


def test_a_file_that_is_no_name_is_left_out_by_its_own(declare, settings):
    declare(a=SOURCE.format("a"))
    (settings.declarations / "my table.sql").write_text(TABLE.format("my", "a"), encoding="utf-8")
    (settings.declarations / "bytes.sql").write_bytes(b"CREATE \xff")
    (settings.declarations / "sales" / "deep").mkdir(parents=True)
    (settings.declarations / "sales" / "deep" / "d.sql").write_text(TABLE.format("d", "a"), encoding="utf-8")
    standing = open_valid_project(settings)

    assert names(standing) == ["a"]
    assert mistaken(standing) == {
        "bytes": (["FILE"], []), "my table.sql": (["FILE_NAME"], []), "d.sql": (["FILE"], []),
    }  # fmt: skip
    assert [each.name for each in standing.mistaken].count(None) == 2


def test_python_with_a_mistake_costs_its_table(declare, settings):
    declare(a=SOURCE.format("a"), b=TABLE.format("b", "p"))
    (settings.declarations / "p.py").write_text("import nothing_of_that_name\n", encoding="utf-8")
    standing = open_valid_project(settings)

    assert names(standing) == ["a"]
    assert mistaken(standing)["b"] == ([], ["p"])
    assert standing.mistaken[1].name == TableName(None, "p")


def test_all_mistakes_and_nothing_left_is_an_empty_graph(declare):
    standing = open_valid_project(declare(a="no", b=TABLE.format("b", "a")))

    assert (names(standing), sorted(mistaken(standing))) == ([], ["a", "b"])


def test_a_mistake_that_is_in_no_declaration_is_raised(settings):
    with pytest.raises(DeclarationErrors, match="there is no folder"):
        open_valid_project(settings)


def test_declarations_beside_the_project_are_left_out_too(declare, settings, tmp_path_factory):
    beside = tmp_path_factory.mktemp("beside")
    settings = replace(settings, declarations=beside)
    Path(beside / "a.sql").write_text(SOURCE.format("a"), encoding="utf-8")
    Path(beside / "b.sql").write_text("no", encoding="utf-8")
    standing = open_valid_project(settings)

    assert (names(standing), list(mistaken(standing))) == (["a"], ["b"])
