"""A Python declaration that hangs, grows or ends while it loads is an error of its own file, and no more."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from freshline.declare.project import read_project
from freshline.errors import DeclarationErrors

GOOD = "import freshline\n\nfreshline.table(query='SELECT 1 AS one', freshness='1 hour')\n"
BAD = {
    "endless": ("while True: pass", "PYTHON_LIMIT", "took longer than 2 seconds"),
    "leaving": ("import os\nos._exit(3)", "PYTHON_FILE", "it ends the process (code 3)"),
    "exiting": ("import sys\nsys.exit(3)", "PYTHON_FILE", "it ends the process"),
    "importing": ("import lib.waits", "PYTHON_LIMIT", "took longer than 2 seconds"),
}


@pytest.fixture
def project(settings):
    (settings.root / "lib").mkdir()
    (settings.root / "lib" / "waits.py").write_text("import time\ntime.sleep(1000)\n")
    settings.declarations.mkdir()
    (settings.root / "pyproject.toml").write_text("[tool.freshline]\n")
    return replace(settings, python_seconds=2.0, python_memory=300 * 2**20)


@pytest.mark.seconds
def test_each_file_that_does_not_load_is_reported_and_the_others_are_read(project):
    names = ("good", "later")
    for name in names:
        (project.declarations / f"{name}.py").write_text(GOOD)
    for name, (text, _, _) in BAD.items():
        (project.declarations / f"{name}.py").write_text(text)

    with pytest.raises(DeclarationErrors) as raised:
        read_project(project)

    told = {str(error.where): (error.rule, error.message) for error in raised.value.errors}
    for name, (_, rule, sentence) in BAD.items():
        (place,) = [where for where in told if where.startswith(f"assets/{name}.py:")]
        assert told[place][0] == rule
        assert sentence in told[place][1]
    assert len(told) == len(BAD)


@pytest.mark.seconds
def test_a_file_that_takes_more_memory_than_it_may_is_named(project):
    (project.declarations / "growing.py").write_text("grown = []\nwhile True: grown.append(b'x' * (1 << 24))")

    # A busy machine takes seconds to grow that far: here only memory is short.
    with pytest.raises(DeclarationErrors, match="took more than 300 MB of memory") as raised:
        read_project(replace(project, python_seconds=120.0))

    assert [error.rule for error in raised.value.errors] == ["PYTHON_LIMIT"]


def test_a_project_that_was_read_before_starts_no_process(project, monkeypatch):
    (project.declarations / "good.py").write_text(GOOD)
    first = read_project(project)
    monkeypatch.setattr(subprocess, "Popen", None)

    assert read_project(project).order == first.order


def test_the_output_of_a_file_is_passed_on_and_no_more_than_a_person_would_read(project, capfd):
    (project.declarations / "good.py").write_text(f"for _ in range(1000): print('x' * 10_000)\n{GOOD}")

    read_project(project)

    printed = len(capfd.readouterr().err)
    assert 0 < printed <= 1_100_000


@pytest.mark.seconds
def test_a_command_ends_with_the_file_that_hangs(project):
    (project.declarations / "endless.py").write_text("while True: pass\n")
    (project.root / "pyproject.toml").write_text("[tool.freshline]\npython-time-limit = '2 seconds'\n")
    began = time.monotonic()

    ended = subprocess.run(
        [Path(sys.executable).with_name("freshline"), "plan"], cwd=project.root, capture_output=True, text=True
    )

    assert ended.returncode == 1
    assert "assets/endless.py:1: loading the file took longer than 2 seconds" in ended.stderr + ended.stdout
    assert time.monotonic() - began < 30


HOLDS = {
    "endless": "while True: pass",
    # Nothing of Python runs while C counts: no thread, and no handler of a signal.
    "in C": "sum(range(10**15))",
    "in a child": "import os\nos.fork()\nwhile True: pass",
}


@pytest.mark.seconds
@pytest.mark.parametrize("how", HOLDS)
def test_a_file_that_hangs_ends_with_the_command_that_is_killed(project, how):
    (project.declarations / "hangs.py").write_text(f"open('began', 'w').close()\n{HOLDS[how]}\n")
    command = subprocess.Popen(
        [Path(sys.executable).with_name("freshline"), "plan"],
        cwd=project.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (project.root / "began").exists():
        assert time.monotonic() < deadline
        assert command.poll() is None
    started = psutil.Process(command.pid).children(recursive=True)
    assert started

    command.kill()
    command.wait()

    assert psutil.wait_procs(started, timeout=20)[1] == []
