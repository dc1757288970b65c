"""The claims about sinks and lookups find bugs that are planted on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plants import Planted, as_parameters, require_fit, require_found
from tests.sinks.plants import BUGS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.name)
def test_each_bug_fits_the_code_and_names_claims_that_are_there(bug: Planted) -> None:
    require_fit(bug)


@pytest.mark.long
@pytest.mark.parametrize("bug", as_parameters(BUGS))
def test_a_planted_bug_is_found(bug: Planted, tmp_path: Path) -> None:
    require_found(bug, tmp_path)
