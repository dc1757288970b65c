"""The demo as a person sees it: whole words at three widths. And each of its refreshes leaves valid lineage events."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from freshline.declare.project_settings import read_settings
from freshline.plan.project import open_project
from freshline.report.table_text import width
from tests.report.telemetry.openlineage_schema import check_event
from tests.terminal import plain, start

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("command", "columns"),
    [("--once", 80), ("--minutes=0.5", 80), ("--minutes=0.5", 100), ("--minutes=0.5", 120)],
)
def test_no_word_of_the_demo_is_cut_and_its_lineage_is_valid(tmp_path: Path, command: str, columns: int) -> None:
    for name in ("assets", "resources"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "workspace.yaml", tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.freshline]\n[tool.freshline.environments.demo]\n[tool.freshline.openlineage]\nfile = "events.jsonl"\n'
    )
    port = () if command == "--once" else ("--port", "0")

    demo = start(tmp_path, "demo", command, *port, columns=columns, rows=60)
    said = plain(demo.read_until(None))
    os.close(demo.master)

    assert demo.process.wait(60) == 0, said
    assert [line for line in said.split("\n") if width(line) > columns] == []
    assert "…" not in said
    graph = open_project(read_settings(tmp_path, {"FRESHLINE_ENV": "demo"}))
    names = {str(name) for name in graph.order}
    assert names <= set(said.split())
    events = [check_event(line) for line in (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    # Each commit has its event, and no check that found nothing has one. In a short demo a table that is refreshed once
    # an hour may not have had its turn.
    records = json.loads(_freshline(tmp_path, "refreshes", "--limit", "100000", "--json"))
    commits = Counter(record["table"] for record in records if record["committed"])
    assert Counter(event["job"]["name"] for event in events if event["eventType"] == "COMPLETE") == commits
    # A table of somebody else is read in place, and has no refreshes.
    expected = set(map(str, graph.kept)) if command == "--once" else {"customer", "first_touch", "enriched_orders"}
    assert commits.keys() >= expected
    with_columns = {event["job"]["name"] for event in events if "columnLineage" in json.dumps(event["outputs"])}
    assert with_columns == {str(table.name) for table in graph.tables} & commits.keys()


def _freshline(project: Path, *arguments: str) -> str:
    """The output of a command of the demo's environment."""
    line = [sys.executable, "-m", "freshline.cli.main", *arguments]
    environment = {**os.environ, "FRESHLINE_ENV": "demo"}
    return subprocess.run(line, cwd=project, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
