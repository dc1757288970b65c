"""A new project works, and making one never touches what is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from freshline.cli.main import run
from freshline.cli.templates import TEMPLATES, Template, project_files


def test_a_new_project_has_a_source_a_table_and_what_dagster_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path / "shop"), "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert answer["project"] == str(tmp_path / "shop")
    assert {str(f.relative_to(tmp_path / "shop")) for f in (tmp_path / "shop").rglob("*") if f.is_file()} == set(
        answer["files"]
    )
    assert "freshline refresh" in answer["next"]


def test_a_new_project_plans_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(["init", str(tmp_path / "shop")])
    assert f"cd {tmp_path / 'shop'}" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "shop" / "landing")

    assert run(["plan", "--json"]) == 0

    orders, spend = json.loads(capsys.readouterr().out)
    assert (orders["table"], orders["kind"], orders["declaration"]) == ("orders", "log", "new")
    assert (spend["table"], spend["kind"], spend["mode"]) == ("spend", "table", "incremental")
    assert spend["reads"] == ["orders"]
    assert spend["written_at"] == "assets/spend.sql:1"


def test_a_folder_may_have_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    assert run(["init", str(tmp_path)]) == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_nothing_is_written_when_a_file_is_there_already(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("mine")

    assert run(["init", str(tmp_path)]) == 1

    assert [entry.name for entry in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"
    assert "there is README.md already" in capsys.readouterr().err


@pytest.mark.parametrize("template", TEMPLATES)
def test_each_template_plans_at_once_and_never_overwrites(
    template: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "shop"
    assert run(["init", str(root), "--template", template, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["next"] == list(TEMPLATES[template].next)
    before = {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}

    assert run(["plan", "--json", "--project", str(root)]) == 0

    orders, spend = json.loads(capsys.readouterr().out)
    assert (orders["table"], spend["table"], spend["reads"]) == ("orders", "spend", ["orders"])
    for other in TEMPLATES:
        assert run(["init", str(root), "--template", other]) == 1
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_the_readme_of_a_template_names_the_next_commands(template: Template) -> None:
    shown = [line.partition("#")[0].strip() for line in template.readme.split("\n")]

    assert [line for line in template.next if line not in shown] == ["freshline up"]
    assert "`freshline up`" in template.readme


@pytest.mark.spark
@pytest.mark.parametrize("template", ["delta", "files"])
def test_a_template_runs_as_its_readme_says(template: str, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    assert run(["init", str(root), "--template", template]) == 0
    commands = [line.strip() for line in (root / "README.md").read_text().split("\n") if line.startswith("    ")]
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, program in (("freshline", "-m freshline.cli.main"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
        (tools / name).chmod(0o755)

    def type_in(command: str) -> str:
        environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        environ.pop("FRESHLINE_ENV", None)
        ended = subprocess.run(["sh", "-c", command], cwd=root, env=environ, capture_output=True, text=True)
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    try:
        said = [type_in(command) for command in commands]
        total = json.loads(type_in("freshline sql 'SELECT sum(total) AS total FROM spend' --json"))
    finally:
        type_in("freshline down")

    assert any("27.25" in each for each in said), said
    assert total == [{"total": 152.25 * sum("job.py" in command for command in commands) or 152.25}]


@pytest.mark.parametrize("name", ["My Shop", 'a"b', "-x-", "...", "日本"])
def test_any_folder_name_gives_a_project_that_can_be_read(name: str) -> None:
    assert tomllib.loads(project_files(name)["pyproject.toml"])["project"]["name"]


def test_init_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init"]) == 2
    assert capsys.readouterr().err == "USAGE Missing argument 'DIR'. See freshline init --help.\n"
