"""The headless Chromium that takes the pictures of the documentation, for tests of pages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests.scripts import load_script

PICTURES = Path(__file__).parents[1] / "platform" / "docs" / "pictures.py"
PACKAGES = "chromium chromium-driver"  # of Debian


def load_pictures() -> ModuleType:
    """The program that takes pictures."""
    return load_script(PICTURES)


def require_chromium() -> None:
    """Skips a test where Chromium or its driver is not installed, unless the environment requires them."""
    browsers = load_pictures().BROWSERS
    if shutil.which("chromedriver") and any(shutil.which(name) for name in browsers):
        return
    if os.environ.get("FRESHLINE_REQUIRE_CHROMIUM"):
        pytest.fail(f"Chromium and its driver are required here and not installed: apt-get install {PACKAGES}")
    pytest.skip(f"Chromium or its driver is not installed: apt-get install {PACKAGES}")
