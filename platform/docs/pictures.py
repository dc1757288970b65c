"""Takes the pictures of the documentation from a running UI, with a headless Chromium.

    python platform/docs/pictures.py http://127.0.0.1:3000 platform/docs/pictures

Run it while the tutorial is at its last chapter. Each picture is of one page; the time that is given to the page is
that of Chromium's virtual clock, so that a slow machine takes the same pictures.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PAGES = {
    "lineage": "asset-groups",
    "asset": "assets/spend?view=overview",
    "checks": "assets/spend?view=checks",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SETTLED_MILLISECONDS = 20_000
SECONDS = 120


def take(browser: str, url: str, picture: Path) -> None:
    """Open one page and keep what it shows. Raises CalledProcessError where the browser fails."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                f"--user-data-dir={profile}",
                f"--screenshot={picture}",
                "--window-size=1600,1000",
                f"--virtual-time-budget={SETTLED_MILLISECONDS}",
                url,
            ],
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )


def main(url: str, folder: Path) -> None:
    """Take all pictures."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is installed")
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        take(browser, f"{url.rstrip('/')}/{page}", folder.absolute() / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
