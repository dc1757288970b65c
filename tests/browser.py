"""The headless Chromium that takes the pictures of the documentation, for tests of pages."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

PICTURES = Path(__file__).parents[1] / "platform" / "docs" / "pictures.py"
PACKAGES = "chromium chromium-driver"  # of Debian


def load_pictures() -> ModuleType:
    """The program that takes pictures. It is loaded by its path, because the documentation is no package."""
    spec = importlib.util.spec_from_file_location("pictures", PICTURES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses search for their module there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def require_chromium() -> None:
    """Skips a test where Chromium or its driver is not installed, unless the environment requires them."""
    browsers = load_pictures().BROWSERS
    if shutil.which("chromedriver") and any(shutil.which(name) for name in browsers):
        return
    if os.environ.get("FRESHLINE_REQUIRE_CHROMIUM"):
        pytest.fail(f"Chromium and its driver are required here and not installed: apt-get install {PACKAGES}")
    pytest.skip(f"Chromium or its driver is not installed: apt-get install {PACKAGES}")
