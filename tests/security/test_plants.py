"""The lane finds holes that are planted on purpose; one that it does not find makes it worth nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plants import LIBRARY, Plant, planted_copy
from tests.security.plants import HOLES, Hole

ROOT = Path(__file__).parents[2]
RUN_SECONDS = 900
# Of a run that ended by a claim that is not so; 2 and above are runs that did not come to one.
FAILED = 1


@pytest.mark.security
@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole.plant.name)
def test_each_hole_fits_the_source_and_is_looked_for_by_tests_that_are_there(hole: Hole) -> None:
    text = (LIBRARY / hole.plant.file).read_text(encoding="utf-8")

    assert text.count(hole.plant.old) == 1
    assert hole.plant.old != hole.plant.new
    compile(text.replace(hole.plant.old, hole.plant.new), hole.plant.file, "exec")
    assert hole.tests
    for test in hole.tests:
        assert (ROOT / test.partition("::")[0]).is_file(), test


@pytest.mark.security
def test_holes_have_names_of_their_own() -> None:
    assert len({hole.plant.name for hole in HOLES}) == len(HOLES)


@pytest.mark.security
def test_a_plant_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="occurs 0 times in errors.py, not once"):
        planted_copy(Plant("x", "errors.py", "not there at all", "", "why"), tmp_path)


@pytest.mark.security
def test_the_planted_copy_is_what_is_imported(tmp_path: Path) -> None:
    text = (LIBRARY / "errors.py").read_text(encoding="utf-8")
    old = next(line for line in text.splitlines() if line.startswith("class FormatError"))
    copy = planted_copy(Plant("x", "errors.py", old, f"PLANTED = True\n\n\n{old}", "why"), tmp_path)
    done = _python(copy, "-c", "import freshline.errors; print(freshline.errors.PLANTED)")

    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "hole",
    [pytest.param(hole, id=hole.plant.name, marks=[pytest.mark.slow] if hole.slow else []) for hole in HOLES],
)
def test_a_planted_hole_is_found(hole: Hole, tmp_path: Path) -> None:
    copy = planted_copy(hole.plant, tmp_path)
    done = _python(copy, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *PATHS, *hole.tests)

    said = f"{done.stdout[-3000:]}{done.stderr[-1000:]}"
    assert done.returncode == FAILED, f"{hole.plant.name} was not found:\n{said}"
    assert re.search(r"^FAILED ", done.stdout, re.MULTILINE), f"nothing was found by a claim:\n{said}"


# pytest puts the folders of this setting before those of PYTHONPATH.
PATHS = ("-o", "pythonpath=.", "-o", "addopts=--import-mode=importlib --strict-markers -ra")


def _python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the planted library: its folder is before that of the installed one, here and in all children."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    path = os.pathsep.join([str(copy), str(ROOT)])
    # What a hole makes a fuzzer find is no case for those who have no hole.
    environ |= {"PYTHONPATH": path, "FRESHLINE_CASES": str(copy / "cases"), "FRESHLINE_INPUTS": "20000"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
