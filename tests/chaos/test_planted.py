"""The bugs that chaos must find can be planted: each text that one replaces is in the library once."""

from __future__ import annotations

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.planted import CASES, TWINS
from tests.plants import LIBRARY


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.plant.name)
def test_the_text_that_a_planted_bug_replaces_is_there_once(twin):
    text = (LIBRARY / twin.plant.file).read_text(encoding="utf-8")

    assert text.count(twin.plant.old) == 1
    assert twin.plant.new != twin.plant.old
    assert set(twin.faults) <= set(FAULTS)
    assert not twin.case or (CASES / f"{twin.case}.jsonl").is_file()
