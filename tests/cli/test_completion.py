"""Completion of a shell: the script is there, and completing a command imports none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from freshline.cli.main import COMMANDS, run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed(shell, capsys):
    assert run(["completion", shell]) == 0
    assert f"_FRESHLINE_COMPLETE={shell}_complete" in capsys.readouterr().out

    assert run(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shell"] == shell


def test_another_shell_is_misused(capsys):
    assert run(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


def completed(words: str, number: int, code: str = "") -> list[str]:
    program = (
        "import sys\nsys.argv = ['freshline']\nfrom freshline.cli.main import main\n"
        f"try:\n    main()\nfinally:\n    {code or 'pass'}"
    )
    environ = {**os.environ, "_FRESHLINE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environ)
    assert said.returncode == 0, said.stderr
    return said.stdout.split()


def test_commands_and_options_are_completed():
    assert completed("freshline sta", 1) == ["plain,status"]
    assert "plain,--watch" in completed("freshline status --w", 2)


def test_completing_a_command_imports_none():
    loaded = "print(*(name for name in sys.modules if name in {'freshline.cli.status', 'freshline.cli.plan'}))"

    assert completed("freshline ", 1, loaded) == [f"plain,{name}" for name in COMMANDS]
