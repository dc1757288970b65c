"""A real Kafka broker on this machine: for tests, the demo and benchmarks.

One process in KRaft mode, broker and controller in one, on loopback, from the jars of `broker_jars_lock.json`, which
are fetched on first use. It can be killed and started again on what it has stored.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from freshline.engine.jars import Progress, parse_lock, provide_jars
from freshline.engine.java import find_java
from freshline.values.settings import Settings
from resources.guarded import GuardedProcess

LOCK = Path(__file__).with_name("broker_jars_lock.json")
# A KRaft cluster is named when its storage is formatted: 16 bytes in base64.
CLUSTER_ID = "ZnJlc2hsaW5lLWJyb2tlcg"
_START_SECONDS = 60.0
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
delete.topic.enable=true
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
"""
_STOP_SECONDS = 15.0


@dataclass
class Broker:
    """A broker whose configuration and data are in `folder`; `port` stays the same over its restarts."""

    folder: Path
    class_path: str
    java: Path
    port: int
    controller_port: int
    more: Mapping[str, str] = field(default_factory=dict)
    _process: GuardedProcess | None = None

    @property
    def servers(self) -> str:
        """The addresses that clients take as bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Start it, on the data of its last life where there is any, and wait until it answers.

        Raises RuntimeError with what it said if it ends or does not answer in time.
        """
        properties = self.folder / "server.properties"
        data = self.folder / "data"
        if not properties.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            text = _PROPERTIES.format(port=self.port, controller_port=self.controller_port, data=data)
            text += "".join(f"{name}={value}\n" for name, value in self.more.items())
            properties.write_text(text, encoding="utf-8")
            self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
        # It must not outlive who started it, kill -9 included.
        self._process = GuardedProcess([*self._command(), "kafka.Kafka", str(properties)], log=self.log)
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(self.port):
            if not self.running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker did not start; see {self.log}: {self._last_words()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power cut would (kill -9)."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None:
            self._process.stop(_STOP_SECONDS)

    def _command(self) -> list[str]:
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m"]
        return [str(self.java), *quick, "-cp", self.class_path]

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([*self._command(), *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[0]}: {done.stdout}{done.stderr}")

    def _last_words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]


def new_broker(
    settings: Settings, folder: Path, *, more: Mapping[str, str] | None = None, progress: Progress | None = None
) -> Broker:
    """A broker that was not started yet, on free ports; its jars are fetched where they are not there.

    `more` are properties of the broker beside its own. Raises JarError or JavaError.
    """
    jars = provide_jars(settings, lock=parse_lock(LOCK.read_text(encoding="utf-8")), progress=progress)
    java = find_java(settings).home / "bin" / "java"
    port, controller_port = _free_ports(2)
    return Broker(folder, os.pathsep.join(map(str, jars)), java, port, controller_port, more or {})


def _free_ports(count: int) -> Sequence[int]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _answers(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
