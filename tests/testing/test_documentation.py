"""The page about testing: its example runs, and every public name of the Lab is on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import freshline.testing
from freshline.testing import Lab

pytestmark = pytest.mark.seconds

PAGE = Path(__file__).parents[2] / "platform" / "docs" / "testing.md"


def test_the_example_runs(spark):
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]

    exec(compile(example, str(PAGE), "exec"), {})


def test_every_public_name_is_on_the_page():
    page = PAGE.read_text()
    names = [name for name in vars(Lab) if not name.startswith("_") and name != "close"]

    assert [name for name in names if f"lab.{name}" not in page] == []
    assert [name for name in freshline.testing.__all__ if name not in page] == []
