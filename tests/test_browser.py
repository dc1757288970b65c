"""Tests of pages are skipped without a browser, but not where it is required."""

from __future__ import annotations

import pytest

from tests.browser import require_chromium


@pytest.mark.parametrize(("required", "outcome"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_browser_fails_where_it_is_required_and_is_skipped_elsewhere(monkeypatch, required, outcome):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("FRESHLINE_REQUIRE_CHROMIUM", required)

    with pytest.raises(outcome, match="apt-get install chromium chromium-driver"):
        require_chromium()
