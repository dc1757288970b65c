"""Options that promise what no refresh could keep are refused with the project."""

from __future__ import annotations

import subprocess
import sys

import pytest

from freshline.declare.project import read_declarations
from freshline.errors import DeclarationErrors
from freshline.plan.project import check_promises

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


def test_a_project_that_was_opened_before_is_opened_without_sqlglot(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    for name, text in SOURCES.items():
        (tmp_path / "assets" / name).write_text(text, encoding="utf-8")
    said = [
        subprocess.run([sys.executable, "-c", OPEN, str(tmp_path)], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]

    assert said == ["2 True\n", "2 False\n"]
