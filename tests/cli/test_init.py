"""A new project works, and making one never touches what is there."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from freshline.cli.init import project_files
from freshline.cli.main import run


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


def test_a_folder_may_hold_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    assert run(["init", str(tmp_path)]) == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_nothing_is_written_when_a_file_is_there_already(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("mine")

    assert run(["init", str(tmp_path)]) == 1

    assert [entry.name for entry in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"
    assert "there is README.md already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["My Shop", 'a"b', "-x-", "...", "日本"])
def test_any_folder_name_gives_a_project_that_can_be_read(name: str) -> None:
    assert tomllib.loads(project_files(name)["pyproject.toml"])["project"]["name"]


def test_init_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init"]) == 2
    assert capsys.readouterr().err == "USAGE Missing argument 'DIR'. See freshline init --help.\n"
