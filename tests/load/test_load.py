"""The loads themselves, made small: they end with nothing wrong, and see what is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load.__main__ import LOADS, expect, land, main, source
from tests.load.project import Loaded


@pytest.mark.long
@pytest.mark.parametrize("name", LOADS)
def test_a_small_load_ends_with_nothing_wrong(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--scale", "0.02"]) == 0
    assert "nothing was wrong" in capsys.readouterr().out


@pytest.mark.long
def test_a_row_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    project = Loaded(tmp_path / "shop", {"s": source("s", "id BIGINT")})
    land(project.root / "landing" / "s", "0.json", ['{"id": 1}'])
    with project.watched():
        project.run("refresh", "s")
        project.run("refresh", "nothing")
    expect(project, "rows of s", project.rows("s", "id"), [(1,), (2,)])

    refused, missing = project.problems
    assert "nothing" in refused
    assert missing.startswith("rows of s: [(1,)]")


def test_a_load_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["everything"])
    assert "no such loads: everything" in capsys.readouterr().err
