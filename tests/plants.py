"""Bugs that are planted on purpose, into a copy of the library: whoever searches for bugs must find these first."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
# The exit code of a run in which a claim failed; 2 and above are runs that did not come to a claim.
FAILED = 1
_RUN_SECONDS = 900
# pytest puts the folders of this setting before those of PYTHONPATH.
_PATHS = ("-o", "pythonpath=.", "-o", "addopts=--import-mode=importlib --strict-markers -ra")
LIBRARY = Path(__file__).parents[1] / "platform" / "freshline"


@dataclass(frozen=True)
class Plant:
    """One bug: in `file`, below platform/freshline, `new` stands in place of `old`. `why` says what it lets happen."""

    name: str
    file: str
    old: str
    new: str
    why: str


@dataclass(frozen=True)
class Planted:
    """A plant, and the arguments of pytest for the tests that must find it. `slow` ones need an engine, or Spark.

    It is found where the run of these tests fails by a claim: a run that cannot be collected has found nothing.
    """

    plant: Plant
    tests: tuple[str, ...]
    slow: bool = False


def plant(name: str, file: str, old: str, new: str, why: str, *tests: str, slow: bool = False) -> Planted:
    """A plant with the tests that must find it."""
    return Planted(Plant(name, file, old, new, why), tests, slow)


def as_parameters(planted: Iterable[Planted]) -> list[Any]:
    """The plants as parameters of a test, by their names; slow ones are marked."""
    return [pytest.param(each, id=each.plant.name, marks=[pytest.mark.slow] if each.slow else []) for each in planted]


def require_fit(planted: Planted) -> None:
    """Require that the plant is one replacement that compiles, and that its tests are there."""
    text = (LIBRARY / planted.plant.file).read_text(encoding="utf-8")
    assert text.count(planted.plant.old) == 1
    assert planted.plant.old != planted.plant.new
    compile(text.replace(planted.plant.old, planted.plant.new), planted.plant.file, "exec")
    assert planted.tests
    for test in planted.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).is_file() else ""
        assert text, test
        # A claim of the library's own stands in its base class.
        of = "\n".join([text, *(each.read_text(encoding="utf-8") for each in (LIBRARY / "testing").glob("*.py"))])
        called = re.sub(r"\[.*", "", name.rpartition("::")[2])
        assert not called or re.search(rf"^ *(?:class|def) {called}\b", of, re.MULTILINE), test


def require_found(planted: Planted, folder: Path) -> None:
    """Require that the tests fail with the plant."""
    copy = planted_copy(planted.plant, folder)
    done = run_python(
        copy, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *_PATHS, *planted.tests
    )

    said = f"{done.stdout[-3000:]}{done.stderr[-1000:]}"
    assert done.returncode == FAILED, f"{planted.plant.name} was not found:\n{said}"
    assert re.search(r"^FAILED ", done.stdout, re.MULTILINE), f"nothing was found by a claim:\n{said}"


def run_python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the planted library: its folder is before that of the installed one, here and in all children."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    path = os.pathsep.join([str(copy), str(ROOT)])
    # An input that a fuzzer finds because of a hole is no case for those who have no hole.
    environ |= {"PYTHONPATH": path, "FRESHLINE_CASES": str(copy / "cases"), "FRESHLINE_INPUTS": "20000"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )


def planted_copy(plant: Plant, folder: Path) -> Path:
    """Copy the library to folder/freshline with the bug in it; returns the folder to put on PYTHONPATH.

    Raises ValueError where the text to replace does not occur exactly once.
    """
    text = (LIBRARY / plant.file).read_text(encoding="utf-8")
    found = text.count(plant.old)
    if found != 1:
        raise ValueError(f"{plant.name}: the text to replace occurs {found} times in {plant.file}, not once")
    shutil.copytree(LIBRARY, folder / "freshline", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "freshline" / plant.file).write_text(text.replace(plant.old, plant.new), encoding="utf-8")
    return folder
