"""A real Hive metastore for a run of tests: the one in Spark's own jars, on Derby."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyspark
import pytest
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from freshline.catalogs.hive.thrift_calls import Calls
from freshline.cli.supervisor import free_port

JARS = Path(pyspark.__file__).parent / "jars"
SERVER = Path(__file__).parent / "catalogs" / "Metastore.java"
OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1")
_START_SECONDS = 120.0
_LOOK_SECONDS = 0.05


def require_java() -> str:
    """Java with its compiler; skips a test where there is none, unless the environment requires it."""
    java = shutil.which("java")
    if java is None or shutil.which("javac") is None:
        if os.environ.get("FRESHLINE_REQUIRE_METASTORE"):
            pytest.fail("a JDK is required here and not installed (on Debian: apt-get install openjdk-17-jdk-headless)")
        pytest.skip("no JDK is installed (on Debian: apt-get install openjdk-17-jdk-headless)")
    return java


@dataclass
class MetastoreServer:
    """A metastore that listens on loopback, with its database in `folder`."""

    java: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._numbers = count()

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    def new_name(self) -> str:
        """The name of a database that no other test has."""
        return f"test_{next(self._numbers)}"

    def start(self) -> None:
        """Start the server, on the data of its last life where there is any, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.java, *OPTIONS, "-cp", f"{JARS}/*", str(SERVER), str(self.port), str(self.folder)],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
                return
            except OSError:
                said = (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-2000:]
                assert self.process.poll() is None, said
                assert time.monotonic() < deadline, said
                time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        """End the server as a power cut would."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """The server takes connections and answers nobody."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    @contextmanager
    def client(self) -> Iterator[Calls]:
        """Somebody else's connection."""
        transport: Any = TBufferedTransport(TSocket("127.0.0.1", self.port))
        transport.open()
        try:
            yield Calls(transport)
        finally:
            transport.close()

    def tables(self, database: str) -> list[str]:
        """The names of the tables of a database, none where there is no such database."""
        with self.client() as calls:
            return sorted(calls.names(database))

    def table(self, database: str, name: str) -> Any:
        with self.client() as calls:
            (found,) = calls.tables(database, [name])
            return found


@contextmanager
def running_metastore(java: str) -> Iterator[MetastoreServer]:
    """Start a metastore with an empty database, and end it and remove that afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="freshline-metastore-"))
    server = MetastoreServer(java, folder, free_port())
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)
