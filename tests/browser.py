"""A headless Chromium for tests of pages, where one is installed: what a page shows, and a picture of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BINARY = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
# A machine without it has the other tests of the same pages, which read their HTML.
needs_chromium = pytest.mark.skipif(BINARY is None, reason="no chromium is installed: apt-get install chromium")


def shown_dom(url: str, profile: Path) -> str:
    """The page as it is after its script ran."""
    return _run(profile, "--dump-dom", url)


def take_picture(url: str, profile: Path, file: Path, width: int, height: int = 1_600, *, dark: bool = False) -> None:
    """A picture of the page, as PNG."""
    scheme = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0") if dark else ()
    _run(profile, f"--screenshot={file}", f"--window-size={width},{height}", "--hide-scrollbars", *scheme, url)


def _run(profile: Path, *options: str) -> str:
    assert BINARY is not None
    fixed = (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
        "--disable-component-update", "--no-first-run", f"--user-data-dir={profile}",
    )  # fmt: skip
    done = subprocess.run([BINARY, *fixed, *options], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout
