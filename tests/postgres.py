"""A real Postgres server for a run of tests, from what the machine has installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg
import pytest

from freshline.cli.supervisor import free_port
from resources.database import find_programs as find_programs
from resources.database import new_folder


def require_programs() -> Path:
    """Postgres' programs; skips a test where it is not installed, unless the environment requires it."""
    programs = find_programs()
    if programs is None:
        if os.environ.get("FRESHLINE_REQUIRE_POSTGRES"):
            pytest.fail("Postgres is required here and not installed (on Debian: apt-get install postgresql)")
        pytest.skip("Postgres is not installed (on Debian: apt-get install postgresql)")
    return programs


@dataclass
class PostgresServer:
    """A server that listens on a socket in `folder`, and on `port` of this machine where that is not 0."""

    programs: Path
    folder: Path
    user: str | None
    port: int = 0
    _numbers: Iterator[int] = field(default_factory=count)

    def new_database(self) -> str:
        """The SQLAlchemy URL of an empty database."""
        name = f"test_{next(self._numbers)}"
        port = f"--port={self.port or 5432}"
        self.run("createdb", "--host", str(self.folder), port, "--username", "freshline", name)
        more = f"&port={self.port}" if self.port else ""
        return f"postgresql+psycopg://freshline@/{name}?host={self.folder}{more}"

    def start(self) -> None:
        """Start the server, on the data of its last life where there is any."""
        listens = f"127.0.0.1 -c port={self.port}" if self.port else ""
        options = (
            f"-c listen_addresses={listens} -c unix_socket_directories={self.folder} -c fsync=off -c wal_level=logical"
        )
        options += " -c max_replication_slots=100 -c max_wal_senders=20"
        log = str(self.folder / "log")
        data = str(self.folder / "data")
        self.run("pg_ctl", "start", "--wait", "--pgdata", data, "--options", options, "--log", log)

    def stop(self, mode: str = "immediate") -> None:
        """End the server; `immediate` as a power cut would."""
        self.run("pg_ctl", "stop", "--mode", mode, "--pgdata", str(self.folder / "data"))

    @contextmanager
    def passwords_for(self, user: str) -> Iterator[None]:
        """This user needs a password, as nobody else does."""
        file = self.folder / "data" / "pg_hba.conf"
        before = file.read_text(encoding="utf-8")
        file.write_text(f"local all {user} scram-sha-256\n{before}", encoding="utf-8")
        self.run("pg_ctl", "reload", "--pgdata", str(self.folder / "data"))
        while not self._asks_for_password(user):
            pass
        try:
            yield
        finally:
            file.write_text(before, encoding="utf-8")
            self.run("pg_ctl", "reload", "--pgdata", str(self.folder / "data"))

    def _asks_for_password(self, user: str) -> bool:
        """Whether the server has read its new settings."""
        try:
            psycopg.connect(host=str(self.folder), user=user, dbname="postgres").close()
        except psycopg.OperationalError:
            return True
        return False

    def run(self, program: str, *arguments: str) -> None:
        """Run one of Postgres' programs as the user that the server runs as."""
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(command, user=self.user, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"


@contextmanager
def running_server(programs: Path, *, listens: bool = False) -> Iterator[PostgresServer]:
    """Start a server with an empty data directory, and end it and remove that directory afterwards.

    It has a port of this machine only where it `listens`.
    """
    folder, user = new_folder()
    server = PostgresServer(programs, folder, user, free_port() if listens else 0)
    data = str(folder / "data")
    try:
        server.run("initdb", "--pgdata", data, "--username", "freshline", "--auth", "trust", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
