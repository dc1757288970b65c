"""Options that promise what no refresh could keep are refused with the project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from freshline.declare.project import read_declarations, read_settings
from freshline.errors import DeclarationErrors
from freshline.plan.project import check_promises, open_project

SOURCES = {
    "o.sql": "CREATE SOURCE o (id INT, k INT, at INT, tags ARRAY<INT>) WITH ('connector' = 'delta', 'path' = 'o')",
    "c.sql": "CREATE SOURCE c (id INT, code INT, name STRING, active BOOLEAN) "
    "WITH ('connector' = 'delta', 'path' = 'c')",
}


def problems(settings, query: str, option: str) -> list[str]:
    text = f"CREATE MATERIALIZED TABLE t WITH ({option}) FRESHNESS = INTERVAL '1' HOUR AS {query}"
    try:
        check_promises(read_declarations({**SOURCES, "t.sql": text}, settings))
    except DeclarationErrors as refused:
        return [str(error) for error in refused.errors]
    return []


RETRIED = "'lookup.retry-on-miss.attempts' = '3'"
LOOKUP = "FROM o LEFT JOIN c FOR SYSTEM_TIME AS OF PROCTIME() AS d ON o.k = d.id"


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("WHERE d.active", "d.active"),
        ("WHERE o.at > 1 AND coalesce(d.name, '') <> ''", "d.name"),
        ("WHERE active", "active"),
        ("WHERE o.at > 1 AND k < 9", None),
        ("LATERAL VIEW explode(o.tags) v AS tag WHERE tag > 1", None),
    ],
)
def test_a_condition_that_would_drop_a_row_while_it_waits_is_refused(settings, where, named):
    found = problems(settings, f"SELECT o.id, d.name {LOOKUP} {where}", RETRIED)

    assert found == [] if named is None else "a WHERE that names no dimension" in found[0]
    assert named is None or f"{named} is NULL while" in found[0]


def test_any_row_of_a_dimension_is_one_for_one_key(settings):
    other = "LEFT JOIN c FOR SYSTEM_TIME AS OF PROCTIME() AS e ON o.at = e."
    option = "'lookup.on-duplicate' = 'any'"

    assert problems(settings, f"SELECT o.id, d.name, e.name AS n {LOOKUP} {other}id", option) == []
    (refused,) = problems(settings, f"SELECT o.id, d.name, e.name AS n {LOOKUP} {other}code", option)
    assert "it is looked up by two" in refused


OPEN = """
import sys
from pathlib import Path
from freshline.declare.project_settings import read_settings
from freshline.plan.project import open_project
print(len(open_project(read_settings(Path(sys.argv[1]), {}))), "sqlglot" in sys.modules)
"""


def opened(root: Path) -> str:
    """How many declarations there are, and whether sqlglot was loaded for them."""
    return subprocess.run([sys.executable, "-c", OPEN, str(root)], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    for name, text in SOURCES.items():
        (tmp_path / "assets" / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.seconds
def test_a_project_that_was_opened_before_is_opened_without_sqlglot(project):
    assert [opened(project) for _ in range(2)] == ["2 True\n", "2 False\n"]


FORCED = (
    "CREATE MATERIALIZED TABLE t WITH ('delta-join.strategy' = 'FORCE') FRESHNESS = INTERVAL '1' HOUR AS "
    "SELECT o.id, c.{column} FROM o LEFT JOIN c ON o.k = c.id"
)


@pytest.mark.seconds
def test_a_promise_that_was_found_of_a_query_is_not_analysed_again(project):
    (project / "assets" / "t.sql").write_text(FORCED.format(column="name"), encoding="utf-8")

    assert [opened(project) for _ in range(2)] == ["3 True\n", "3 False\n"]


def test_a_promise_is_judged_anew_when_an_input_is_another_one(project):
    settings = read_settings(project, {})
    (project / "assets" / "t.sql").write_text(FORCED.format(column="name"), encoding="utf-8")
    (project / "assets" / "u.sql").write_text(
        "CREATE MATERIALIZED TABLE u FRESHNESS = INTERVAL '1' HOUR AS SELECT id, name FROM c", encoding="utf-8"
    )
    open_project(settings)
    cached = settings.state / "cache" / "promises" / "parsed"
    before = cached.read_bytes()
    open_project(settings)
    assert cached.read_bytes() == before

    source = project / "assets" / "c.sql"
    source.write_text(SOURCES["c.sql"].replace("id INT", "id BIGINT"), encoding="utf-8")
    open_project(settings)

    assert cached.read_bytes() != before


def test_a_promise_that_cannot_be_kept_is_refused_every_time(project):
    settings = read_settings(project, {})
    refused = FORCED.format(column="name").replace("LEFT JOIN", "LEFT ANTI JOIN").replace("c.name", "rand() AS r")
    (project / "assets" / "t.sql").write_text(refused, encoding="utf-8")
    for _ in range(3):
        with pytest.raises(DeclarationErrors, match="FORCE"):
            open_project(settings)


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\0" * 100])
def test_a_damaged_note_of_what_was_judged_is_lost_time_only(project, damage):
    settings = read_settings(project, {})
    (project / "assets" / "t.sql").write_text(FORCED.format(column="name"), encoding="utf-8")
    open_project(settings)
    cached = settings.state / "cache" / "promises" / "parsed"
    cached.write_bytes(damage)

    assert len(open_project(settings)) == 3
    assert len(cached.read_bytes()) > 100


def test_a_project_that_is_as_it_was_is_opened_without_a_write(project):
    settings = read_settings(project, {})
    for _ in range(2):
        open_project(settings)
    before = {file: file.stat().st_ino for file in (settings.state / "cache").rglob("parsed")}
    open_project(settings)

    assert {file: file.stat().st_ino for file in (settings.state / "cache").rglob("parsed")} == before
