"""The real webserver of a project, behind its guard, asked as the UI asks it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOCATION = """\
  - python_module:
      module_name: assets.definitions
      working_directory: {root}
      location_name: {name}
"""
DEFINITIONS = """\
from pathlib import Path

from freshline.dagster import FreshlineProject, build_definitions

defs = build_definitions(FreshlineProject(Path(__file__).resolve().parent.parent))
"""
# Runs are started at once, so that no daemon is needed.
INSTANCE = """\
telemetry: {enabled: false}
nux: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
"""
START_SECONDS = 180.0
# A launch whose answer is given up has begun a run all the same.
ASK_SECONDS = 120.0


class Webserver:
    """A webserver that is asked with `token`, if there is one."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.url}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json", **self._headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=ASK_SECONDS) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{error}: {error.read()[:4000].decode()}") from error
        assert "errors" not in told, told["errors"]
        data: dict[str, Any] = told["data"]
        return data

    @property
    def answers(self) -> bool:
        try:
            request = urllib.request.Request(f"{self.url}/server_info", headers=self._headers)
            with urllib.request.urlopen(request, timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False


@contextmanager
def served(
    root: Path, others: Mapping[str, Path] | None = None, *, token: str | None = None, **environ: str
) -> Iterator[Webserver]:
    """The webserver of a project, until the block ends; `others` are further locations that it shows."""
    locations = {"freshline": root, **(others or {})}
    (root / "workspace.yaml").write_text(
        "load_from:\n" + "".join(LOCATION.format(root=each, name=name) for name, each in locations.items())
    )
    for each in locations.values():
        (each / "assets" / "definitions.py").write_text(DEFINITIONS)
    home = root / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = root / "webserver.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "freshline.dagster.webserver", "--project", str(root), "--port", str(port)],
            cwd=root,
            env={**os.environ, "DAGSTER_HOME": str(home), **environ},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    webserver = Webserver(port, token)
    try:
        wait_until(lambda: process.poll() is not None or webserver.answers, START_SECONDS, log)
        assert process.poll() is None, log.read_text()
        yield webserver
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=15)


def wait_until(met: Callable[[], bool], seconds: float, log: Path) -> float:
    """Wait until it is so; the seconds that it took."""
    began = time.monotonic()
    while not met():
        assert time.monotonic() < began + seconds, log.read_text()
        time.sleep(0.2)
    return time.monotonic() - began
