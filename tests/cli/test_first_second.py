"""Commands that somebody waits for load what they need and nothing else: `plan`, `status` and `--help`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.project_settings import read_settings
from freshline.values.names import TableName

pytestmark = pytest.mark.seconds

DECLARATIONS = {
    "o": "CREATE SOURCE o (id INT, k INT) WITH ('connector' = 'files', 'path' = 'landing/o', 'format' = 'json')",
    "c": "CREATE SOURCE c (id INT, name STRING) WITH ('connector' = 'files', 'path' = 'landing/c', 'format' = 'json')",
    "t": "CREATE MATERIALIZED TABLE t (PRIMARY KEY (id)) WITH ('delta-join.strategy' = 'FORCE') "
    "FRESHNESS = INTERVAL '1' MINUTE AS SELECT o.id, c.name FROM o LEFT JOIN c ON o.k = c.id",
}
# Each of them takes longer to import than Python to start.
HEAVY = (
    "alembic",
    "asyncio",
    "dagster",
    "deltalake",
    "http",
    "numpy",
    "pandas",
    "psutil",
    "pyarrow",
    "pyspark",
    "rich",
    "sqlalchemy",
    "sqlglot",
    "ssl",
    "yaml",
)
RUN = """
import sys
from freshline.cli.main import run
code = run(sys.argv[2:])
print(code, *sorted(set(sys.argv[1].split()) & set(sys.modules)), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was refreshed and inspected before: its tables have commits, and it has a control store."""
    root = tmp_path_factory.mktemp("project")
    (root / "assets").mkdir()
    (root / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    for name, text in DECLARATIONS.items():
        (root / "assets" / f"{name}.sql").write_text(text, encoding="utf-8")
    settings = read_settings(root, {})
    for name in DECLARATIONS:
        for _ in range(3):
            path = Warehouse(settings.warehouse).path(TableName.parse(name))
            write_deltalake(path, pa.table({"id": [1]}), mode="append")
    settings.state.mkdir(parents=True, exist_ok=True)
    ControlStore.open(settings.control_store, settings.umask).close()
    for _ in range(3):
        loaded(root, "plan")
    return root


def loaded(root: Path, *arguments: str) -> list[str]:
    """The modules of HEAVY that a command has imported."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, " ".join(HEAVY), *arguments], cwd=root, capture_output=True, text=True, check=True
    )
    code, *found = ran.stderr.strip().rpartition("\n")[2].split()
    assert code == "0", ran.stderr
    assert ran.stdout
    return found


@pytest.mark.parametrize(
    "arguments", [("--help",), ("plan", "--help"), ("status", "--help"), ("plan",), ("plan", "--json")]
)
def test_a_plan_and_help_load_nothing_heavy(project, arguments):
    assert loaded(project, *arguments) == []


def test_a_status_loads_delta_rs_alone_which_counts_the_rows(project):
    assert loaded(project, "status") == ["deltalake"]
    assert loaded(project, "status", "--json") == ["deltalake"]
