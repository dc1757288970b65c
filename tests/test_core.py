"""The core declares, plans and reports in an installation that lacks whatever a declaration asks for by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.declared_project import CUSTOMERS, ORDERS, Project

LIBRARY = Path(__file__).resolve().parents[1] / "platform" / "freshline"
# `sources/databases` is what connectors of databases share. `platform/docs/decisions.md` (210) says what is not here.
CONNECTORS = ("http", "jdbc", "kafka", "kinesis", "postgres", "rabbitmq")
LEFT_OUT = {
    "keyed",
    "patterns",
    "sources/databases",
    "sinks/jdbc",
    "sinks/kafka",
    *(f"sources/{name}" for name in CONNECTORS),
}
SPEND = """\
CREATE MATERIALIZED TABLE spend (PRIMARY KEY (customer)) AS
SELECT o.customer, SUM(o.amount) AS total FROM orders o JOIN customers c ON c.id = o.customer GROUP BY o.customer;
"""
PATTERN = """\
CREATE MATERIALIZED TABLE t (PRIMARY KEY (customer)) AS SELECT * FROM orders MATCH_RECOGNIZE (
PARTITION BY customer ORDER BY at MEASURES LAST(B.id) AS id PATTERN (A B) DEFINE B AS B.id > A.id);
"""
PROCESS = """\
import freshline

@freshline.process(name="u", reads="orders", keys=["customer"], order=["at"], columns={"n": "BIGINT"})
class Count:
    def row(self, row, out):
        out.emit(n=1)
"""


def link(origin: Path, copy: Path, within: str = "") -> None:
    """The package without what is left out: folders of which a part is left out, and links to all else."""
    copy.mkdir()
    for each in origin.iterdir():
        name = within + each.name
        if any(other.startswith(f"{name}/") for other in LEFT_OUT):
            link(each, copy / each.name, f"{name}/")
        elif name not in LEFT_OUT and each.name != "__pycache__":
            (copy / each.name).symlink_to(each)


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    folder = tmp_path_factory.mktemp("core")
    link(LIBRARY, folder / "freshline")

    def python(*arguments: str, where: Path = folder) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "PYTHONPATH": str(folder)}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=where, env=environ, capture_output=True, text=True, timeout=60, check=False)

    return python


@pytest.fixture
def shop(tmp_path):
    project = Project(tmp_path / "shop")
    for name, text in {"orders": ORDERS, "customers": CUSTOMERS, "spend": SPEND}.items():
        project.declare(f"{name}.sql", text)
    return project


@pytest.mark.seconds
def test_the_core_declares_plans_and_reports_without_them(core, shop):
    helped = core("-m", "freshline.cli.main", "--help", where=shop.root)
    planned = core("-m", "freshline.cli.main", "plan", "--json", where=shop.root)
    status = core("-m", "freshline.cli.main", "status", "--json", where=shop.root)

    assert [each.returncode for each in (helped, planned, status)] == [0, 0, 0], planned.stderr + status.stderr
    assert "spend" in planned.stdout
    assert {each["table"] for each in json.loads(status.stdout)} >= {"spend"}


@pytest.mark.seconds
def test_an_engine_starts_without_them_but_for_keyed():
    """A refresh names columns of `keyed`."""
    code = "import sys, freshline.engine.main, freshline.dagster.definitions\nprint(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    left_out = {f"freshline.{each.replace('/', '.')}" for each in LEFT_OUT} - {"freshline.keyed"}
    assert left_out.isdisjoint(loaded.stdout.split())


@pytest.mark.seconds
def test_a_declaration_that_asks_for_one_of_them_is_refused_by_name(core, shop):
    missing = {}
    for name in CONNECTORS:
        at = shop.declare(f"of_{name}.sql", f"CREATE SOURCE of_{name} (id INT) WITH ('connector' = '{name}');")
        missing[at] = f"sources.{name}"
    missing |= {shop.declare("t.sql", PATTERN): "patterns", shop.declare("u.py", PROCESS): "keyed"}

    refused = core("-m", "freshline.cli.main", "plan", "--json", where=shop.root)

    assert refused.returncode == 1
    errors = {error["where"].partition(":")[0]: error for error in json.loads(refused.stdout)["error"]["errors"]}
    assert errors.keys() == {str(path.relative_to(shop.root)) for path in missing}
    for path, folder in missing.items():
        error = errors[str(path.relative_to(shop.root))]
        assert error["rule"] == "EXTENSION"
        assert f"which lacks freshline.{folder}. Install" in error["message"]
