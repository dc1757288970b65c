"""Each option of a shipped sink has its words on the page of sinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshline.values.registry import shipped_sinks
from freshline.values.sink import SINK_OPTIONS

PAGE = Path(__file__).resolve().parents[2] / "platform" / "docs" / "sinks.md"
OPTIONS = sorted({option.name for option in (*SINK_OPTIONS, *(o for each in shipped_sinks() for o in each.options))})


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_a_sink_is_on_its_page(name):
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [each.name for each in shipped_sinks()])
def test_a_sink_has_a_section(kind):
    assert f"\n## {kind}\n" in PAGE.read_text(encoding="utf-8")
