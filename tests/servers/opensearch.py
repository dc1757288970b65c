"""A real OpenSearch on loopback for a run of tests, as the demo has it (resources/search_node.py).

The node has no security plugin. Tests of passwords and TLS set `web_server` before it, which can also answer 429 and
503, hang, and lose the answer of a bulk that was done.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from resources.search_node import LOCK, START_SECONDS, SearchNode, node_in
from tests.servers.missing import require_jars
from tests.servers.processes import ServerProcess


@dataclass
class OpenSearchServer:
    """A node that listens on `port` of loopback. It keeps what it stored when it is killed and started again."""

    process: ServerProcess
    node: SearchNode
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def port(self) -> int:
        return self.node.port

    @property
    def url(self) -> str:
        return self.node.url

    def new_name(self) -> str:
        """The name of an index that is not there."""
        return f"index-{next(self._numbers)}"

    def start(self) -> None:
        self.process.start(self.node.answers, START_SECONDS)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON of an answer. A `body` of text is sent as it is, with lines of JSON in it."""
        return self.node.ask(method, path, body)

    def documents(self, index: str) -> dict[str, Any]:
        """The documents of an index by their ids, of a small one."""
        self.ask("POST", f"/{index}/_refresh")
        status, found = self.ask("POST", f"/{index}/_search", {"size": 10_000})
        assert status == 200, found
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}


@contextmanager
def running_opensearch() -> Iterator[OpenSearchServer]:
    """Start a node without an index, and end it and remove its folder afterwards. Skips where its jars are missing."""
    folder = Path(tempfile.mkdtemp(prefix="freshline-opensearch-"))
    try:
        node = node_in(folder, *require_jars("opensearch", LOCK, folder))
        server = OpenSearchServer(ServerProcess("OpenSearch", node.command, folder), node)
        server.start()
        try:
            yield server
        finally:
            server.process.kill()
    finally:
        shutil.rmtree(folder)
