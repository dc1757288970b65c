"""Takes the pictures of the documentation from a running UI, with a headless Chromium.

    python platform/docs/pictures.py http://127.0.0.1:3000 platform/docs/pictures
    python platform/docs/pictures.py http://127.0.0.1:3000 platform/docs/pictures enriched_orders

Run the first while the tutorial is at its chapter "An alert". The second takes those of the freshness board and of the
page of one table, as of `freshline demo` when it has changed the freshness of that table. Each picture names the texts
that its page must show: it is taken when they are there and the page has come to rest, and one that never shows them
is an error, not an empty picture.
Chromium is steered by chromedriver, with the plain requests of the WebDriver standard.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVER = "chromedriver"
SHOWN_SECONDS = 120.0
# Two pictures of a page that has come to rest are equal.
REST_SECONDS = 1.5
WIDTH = 1440
LOADING = "Loading"
# An age counts on, so a page that shows one would never be at rest in its first minute.
AGE = re.compile(r"\b(?:a few|an?|\d+) (?:second|minute)s? ago\b")
TEXT = "return document.body ? document.body.innerText : ''"
# Windows that Dagster opens by itself for a new user.
CLOSE_HINTS = """
for (const button of document.querySelectorAll('button')) {
  if (['Dismiss', 'Skip', 'Close', 'Got it'].includes(button.innerText.trim())) button.click();
}
"""
# The numbers of a table over time stand behind this button. The page opens with those of the newest event, which has
# only some of them where that event is a check that found nothing.
PLOTS = ("Plots",)
SHOW_PLOTS = """
for (const button of document.querySelectorAll('button')) {
  if (button.innerText.trim() === 'Plots') button.click();
}
"""


@dataclass(frozen=True)
class Picture:
    """One page: where it is, which texts it must show, what is done to it first, and how large the picture is.

    The script runs when the page shows the texts `before`.
    """

    path: str
    shows: tuple[str, ...]
    before: tuple[str, ...] = ()
    script: str = ""
    height: int = 900
    width: int = WIDTH


def pages(backfill: str) -> Mapping[str, Picture]:
    """The pictures of the tutorial's project; `backfill` is the id of the newest backfill."""
    return {
        "lineage": Picture("asset-groups", ("orders", "spend", "large_order", "daily_revenue", "Materialized")),
        "events": Picture("assets/spend?view=events", ("strategy", "reason", "rows_in", "lag_seconds")),
        "plots": Picture(
            "assets/spend?view=overview", ("cpu_seconds", "lag_seconds", "rows_in"), PLOTS, SHOW_PLOTS, 1700
        ),
        "checks": Picture("assets/large_order?view=checks", ("constraint_plausible", "freshness", "verify")),
        "partitions": Picture("assets/daily_revenue?view=partitions", ("2026-10-25", "Partitions Selected")),
        "backfill": Picture(f"runs/b/{backfill}", ("daily_revenue", "100% completed")),
    }


def board_pages(table: str) -> Mapping[str, Picture]:
    """The pictures of the freshness board, of all tables and of one, as wide as a desk and as a phone."""
    texts, page = (table, "Promise"), f"freshline/table/{table}"
    return {
        "board": Picture("freshline/", texts, height=1_150, width=1_400),
        "board_400": Picture("freshline/", texts, height=1_150, width=400),
        "board_table": Picture(page, (*texts, "CPU-seconds"), height=1_150, width=1_400),
        "board_table_400": Picture(page, (*texts, "CPU-seconds"), height=1_150, width=400),
    }


class DriverError(Exception):
    """The browser does not do it, and why."""


class Browser:
    """A headless Chromium."""

    def __init__(self, address: str, session: str) -> None:
        self._address = f"{address}/session/{session}"

    def open(self, url: str, height: int, width: int = WIDTH) -> None:
        # The window itself is never narrower than 500 pixels.
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})
        self._ask("url", {"url": url})

    def prefer(self, scheme: str) -> None:
        """Show pages as to somebody who wants them `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}})

    def requests(self) -> list[str]:
        """The addresses that pages have asked for since the last call, without those of the browser's own pages."""
        events = [json.loads(entry["message"])["message"] for entry in self._ask("se/log", {"type": "performance"})]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        addresses = [(params["request"]["url"], params["documentURL"]) for params in sent]
        return [url for url, page in addresses if not page.startswith("chrome://") and not url.startswith("chrome://")]

    def run(self, script: str) -> Any:
        """Run JavaScript in the page; what it returns."""
        return self._ask("execute/sync", {"script": script, "args": []})

    def wait_for(self, texts: tuple[str, ...], seconds: float = SHOWN_SECONDS) -> str:
        """Wait until the page shows all of the texts and does not change any more; what it shows."""
        deadline = time.monotonic() + seconds
        before = None
        while True:
            shown = str(self.run(TEXT))
            missing = [text for text in texts if text not in shown]
            at_rest = AGE.sub("", shown)
            if not missing and at_rest == before and LOADING not in shown:
                return shown
            if time.monotonic() > deadline:
                raise TimeoutError(f"the page does not show {missing or 'one thing for long'}: {shown[:2000]}")
            before = at_rest
            time.sleep(REST_SECONDS)

    def picture(self) -> bytes:
        """The content of the window, as PNG."""
        return base64.b64decode(self._ask("screenshot"))

    def _ask(self, what: str, body: Mapping[str, Any] | None = None) -> Any:
        return ask(f"{self._address}/{what}", body)


def ask(url: str, body: Mapping[str, Any] | None = None, method: str | None = None) -> Any:
    """One request of the WebDriver standard; the value of its answer. Raises DriverError with what the driver says."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=SHOWN_SECONDS) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise DriverError(str(json.load(error)["value"]["message"])) from error


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium with a profile of its own, until the block ends."""
    binary = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    driver = shutil.which(DRIVER)
    if binary is None or driver is None:
        raise SystemExit(f"{DRIVER} and one of {', '.join(BROWSERS)} are needed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            address = f"http://127.0.0.1:{_port(process)}"
            options = {
                "binary": binary,
                "args": [
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                    "--disable-background-networking",
                    "--hide-scrollbars",
                    f"--user-data-dir={profile}",
                ],
            }
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL"}}
            made = ask(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
            try:
                yield Browser(address, made["sessionId"])
            finally:
                ask(f"{address}/session/{made['sessionId']}", method="DELETE")
        finally:
            process.terminate()
            process.communicate(timeout=30)


def _port(process: subprocess.Popen[str]) -> int:
    """The port that a driver says it took."""
    assert process.stdout is not None
    for line in process.stdout:
        if "started successfully on port " in line:
            return int(line.rsplit(" ", 1)[1].rstrip(".\n"))
    raise SystemExit(f"{DRIVER} ended with code {process.wait()}")


def take(window: Browser, url: str, picture: Picture, file: Path) -> str:
    """Open one page, keep what it shows as a picture, and return its text. Raises TimeoutError."""
    window.open(f"{url.rstrip('/')}/{picture.path}", picture.height, picture.width)
    window.wait_for(())
    window.run(CLOSE_HINTS)
    if picture.script:
        # The page builds its parts one after the other, also the one that the script searches for.
        window.wait_for(picture.before)
        window.run(picture.script)
    shown = window.wait_for(picture.shows)
    file.write_bytes(window.picture())
    return shown


def newest_backfill(url: str) -> str:
    """The id of the newest backfill. Raises LookupError where there is none."""
    query = "{ partitionBackfillsOrError(limit: 1) { ... on PartitionBackfills { results { id } } } }"
    request = urllib.request.Request(
        f"{url.rstrip('/')}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SHOWN_SECONDS) as answer:
        found = json.load(answer)["data"]["partitionBackfillsOrError"]["results"]
    if not found:
        raise LookupError("there is no backfill yet")
    return str(found[0]["id"])


def take_all(url: str, folder: Path, pictures: Mapping[str, Picture]) -> dict[str, str]:
    """Take all pictures; the text of each page by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as window:
        return {name: take(window, url, picture, folder / f"{name}.png") for name, picture in pictures.items()}


if __name__ == "__main__":
    _, ui, target, *tables = sys.argv
    take_all(ui, Path(target), board_pages(tables[0]) if tables else pages(newest_backfill(ui)))
