"""The lane finds holes that are planted on purpose; one that it does not find makes it worth nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plants import LIBRARY, Plant, Planted, as_parameters, planted_copy, require_fit, require_found, run_python
from tests.security.plants import HOLES


@pytest.mark.security
@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole.plant.name)
def test_each_hole_fits_the_source_and_names_tests_that_are_there(hole: Planted) -> None:
    require_fit(hole)


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
    done = run_python(copy, "-c", "import freshline.errors; print(freshline.errors.PLANTED)")

    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.long
@pytest.mark.parametrize("hole", as_parameters(HOLES))
def test_a_planted_hole_is_found(hole: Planted, tmp_path: Path) -> None:
    require_found(hole, tmp_path)
