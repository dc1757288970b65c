"""A mistake is one line and exit code 1, and starting costs next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from freshline.cli import main as main_module
from freshline.cli.failures import CommandError
from freshline.cli.main import COMMANDS, cli, run
from freshline.errors import CancelledError, DeclarationError, DeclarationErrors, EngineError
from tests.cli.loaded import loaded_by_command

HEAVY = ("pyspark", "dagster", "rich", "sqlalchemy", "deltalake", "pandas", "pyarrow", "py4j")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes the command `down` raise."""

    def fail(error: BaseException) -> None:
        @click.command()
        @click.option("--json", "as_json", is_flag=True)
        def command(as_json: bool) -> None:
            raise error

        monkeypatch.setattr(cli, "get_command", lambda context, name: command)

    return fail


WRONG = [DeclarationError("CYCLE", "a reads a.", where="a.sql:1"), DeclarationError("NAME", "no.", where="b.sql:2")]
REPORTED = {"code": "QUERY", "message": "there is no column b.", "where": "spend", "retry_helps": False}


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (
            EngineError("the engine does not answer.\n  Start it again.", where="warehouse"),
            1,
            ["ENGINE warehouse: the engine does not answer. Start it again."],
        ),
        (
            DeclarationErrors(WRONG),
            1,
            ["DECLARATION/CYCLE a.sql:1: a reads a.", "DECLARATION/NAME b.sql:2: no."],
        ),
        (CommandError(REPORTED), 1, ["QUERY spend: there is no column b."]),
        (PermissionError(13, "Permission denied", "/state"), 1, ["SYSTEM /state: Permission denied."]),
        (KeyboardInterrupt(), 130, ["", "CANCELLED cancelled."]),
        (CancelledError("cancelled."), 130, ["CANCELLED cancelled."]),
    ],
    ids=["mistake", "declarations", "of the engine", "of the system", "Ctrl-C", "cancelled"],
)
def test_an_error_is_a_line_for_each_mistake_and_an_exit_code(
    error: BaseException,
    code: int,
    lines: list[str],
    failing: Callable[[BaseException], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing(error)

    assert run(["down"]) == code
    assert capsys.readouterr() == ("", "".join(f"{line}\n" for line in lines))


def test_with_json_an_error_is_an_object_on_stdout(
    failing: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing(DeclarationErrors([DeclarationError("CYCLE", "a reads a.", where="a.sql:1")]))

    assert run(["down", "--json"]) == 1
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert err == ""
    assert error["code"] == "DECLARATION"
    assert error["errors"][0]["rule"] == "CYCLE"


@pytest.mark.parametrize("arguments", [["no-such"], ["plan", "--no-such"], ["plan", "extra"], ["--no-such"]])
def test_a_command_line_that_cannot_be_read_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("USAGE ")
    assert err.count("\n") == 1


def test_a_mistyped_command_has_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stauts"]) == 2
    assert capsys.readouterr().err == ("USAGE No such command 'stauts'. Did you mean 'status'? See freshline --help.\n")
    assert run(["qqqq"]) == 2
    assert capsys.readouterr().err == "USAGE No such command 'qqqq'. See freshline --help.\n"


# init makes a project, schema needs none, engine has commands of its own, doctor reports it among its checks.
ELSEWHERE = ("init", "engine", "doctor", "completion", "schema")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ELSEWHERE])
def test_a_command_outside_of_a_project_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    needed = {
        "sql": ["SELECT 1"],
        "alter": ["t", "--reset"],
        "suspend": ["t"],
        "resume": ["t"],
        "backfill": ["t"],
        "savepoint": ["list"],
        "quarantine": ["retry", "s"],
        "catalog": ["show"],
        "consumers": ["list"],
        "report": ["board.html"],
        "new": ["table", "t"],
    }

    assert run([name, *needed.get(name, [])]) == 1
    err = capsys.readouterr().err
    assert err.startswith("SETTINGS ")
    assert err.count("\n") == 1


def test_help_imports_nothing_heavy() -> None:
    assert loaded_by_command(["--help"], *HEAVY, "freshline.engine") == []


@pytest.mark.seconds
def test_plan_of_a_new_project_imports_nothing_heavy(tmp_path: Path) -> None:
    run(["init", str(tmp_path)])

    assert loaded_by_command(["plan", "--project", str(tmp_path)], *HEAVY) == []


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("freshline ")


@pytest.mark.seconds
def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    run(["init", str(tmp_path)])
    command = f"{sys.executable} -m freshline.cli.main plan --project {tmp_path} --json | head -c 1"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, check=True)

    assert ended.stderr == b""


def test_the_module_is_the_console_script() -> None:
    assert callable(main_module.main)


def test_a_command_of_the_repository_is_in_a_clone_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--help"]) == 0
    assert "Run the reference deployment" in capsys.readouterr().out
    monkeypatch.setattr("freshline.cli.main._ROOT", tmp_path)

    assert run(["--help"]) == 0
    assert "Run the reference deployment" not in capsys.readouterr().out
    assert run(["demo", "--once"]) == 2
    assert "in a clone of it alone" in capsys.readouterr().err
