"""ClickHouse on loopback for a run of tests: its engine, as chdb has it, behind its HTTP interface.

chdb-core-lite 26.5.0 (Apache-2.0, a wheel of 51 MB) is ClickHouse 26.5 as a library, with its MergeTree tables on disk.
PyPI has no server. Debian's clickhouse-server is 18.16 of 2018, which knows neither `insert_deduplication_token` nor
deleted rows of ReplacingMergeTree, and Debian 13 has none. `clickhouse_service.py` says which part is not the engine's.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from urllib.parse import urlencode

from freshline.cli.supervisor import free_port
from tests.servers.missing import report_missing
from tests.servers.processes import ServerProcess

# As the conformance suite searches for it.
PASSWORD = "hunter2-is-the-secret"
_START_SECONDS = 60.0
_ROOT = Path(__file__).parents[2]


@dataclass
class ClickHouseServer:
    """A server that listens on `port` of loopback. It keeps what it stored when it is killed and started again."""

    process: ServerProcess
    port: int
    user: str = "default"
    password: str = PASSWORD
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process.start(self._answers, _START_SECONDS)

    def new_database(self) -> str:
        """The name of a new database."""
        name = f"test_{next(self._numbers)}"
        self.ask(f"CREATE DATABASE {name}")
        return name

    def ask(self, query: str, body: bytes | None = None, **parameters: str) -> str:
        """The text of an answer, in lines of JSON. Raises AssertionError with that of another status than 200."""
        status, text = self.try_to_ask(query, body, **parameters)
        assert status == 200, text
        return text

    def try_to_ask(self, query: str, body: bytes | None = None, **parameters: str) -> tuple[int, str]:
        """The status and the text of an answer."""
        address = urlencode({"query": query, "default_format": "JSONEachRow", **parameters})
        headers = {"X-ClickHouse-User": self.user, "X-ClickHouse-Key": self.password}
        request = urllib.request.Request(f"{self.url}/?{address}", body or b"", headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def _answers(self) -> bool:
        try:
            return self.try_to_ask("SELECT 1")[0] == 200
        except OSError:
            return False


@contextmanager
def running_clickhouse() -> Iterator[ClickHouseServer]:
    """Start a server without a database, and end it and remove its folder afterwards. Skips where chdb is missing."""
    if find_spec("chdb") is None:
        report_missing("clickhouse", "uv sync, which installs chdb-core-lite")
    folder = Path(tempfile.mkdtemp(prefix="freshline-clickhouse-"))
    port = free_port()
    command = ["env", f"PYTHONPATH={_ROOT}{os.pathsep}{_ROOT / 'platform'}", sys.executable, "-m"]
    command += ["tests.servers.clickhouse_service", str(port), str(folder / "data"), "default", PASSWORD]
    server = ClickHouseServer(ServerProcess("ClickHouse", command, folder), port)
    try:
        server.start()
        try:
            yield server
        finally:
            server.process.kill()
    finally:
        shutil.rmtree(folder)
