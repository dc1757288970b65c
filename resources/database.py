"""A real Postgres server on this machine, from what is installed: for the demo.

It listens on a socket in a folder of its own only. It can be killed and started again on what it has stored.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from resources.guarded import GuardedProcess

USER = "freshline"
_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_LAST_WORDS = 2_000


def find_programs() -> Path | None:
    """The folder of initdb and postgres: that on PATH, or else the newest of Debian's packages; None without one."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    return found[-1].parent if found else None


@dataclass
class Database:
    """A server with logical decoding, with data, socket and log in `folder`; `user` is who runs it, None for us."""

    programs: Path
    folder: Path
    user: str | None
    _process: GuardedProcess | None = None

    @property
    def url(self) -> str:
        """The address of its database for libpq."""
        return f"postgresql://{USER}@/postgres?host={self.folder}"

    def connect(self) -> psycopg.Connection[Any]:
        """A connection. Raises psycopg.OperationalError while the server is away."""
        return psycopg.connect(self.url)

    def start(self) -> None:
        """Start it, on the data of its last life where there is any, and wait until it answers.

        Raises RuntimeError with what it said if it ends or does not answer in time.
        """
        data = self.folder / "data"
        if not data.exists():
            self._run("initdb", "--pgdata", str(data), "--username", USER, "--auth", "trust", "--encoding", "UTF8")
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self.folder}", "-c", "wal_level=logical"]
        command = [str(self.programs / "postgres"), "-D", str(data), *options]
        self._process = GuardedProcess(command, log=self._log, user=self.user, folder=self.folder)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if not self._process.running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Postgres did not start: {self._last_words()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it with all its processes by kill -9."""
        if self._process is not None:
            self._process.kill()

    def remove(self) -> None:
        """End it, and remove what it stored."""
        if self._process is not None:
            self._process.stop(_STOP_SECONDS)
        shutil.rmtree(self.folder)

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(command, user=self.user, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")

    def _last_words(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:]


def new_database(programs: Path) -> Database:
    """A server that was not started yet, in a new temporary folder."""
    return Database(programs, *new_folder())


def new_folder() -> tuple[Path, str | None]:
    """A temporary folder for a server and its socket, whose path has at most 100 characters, and who is to run it."""
    folder = Path(tempfile.mkdtemp(prefix="freshline-postgres-"))
    # Postgres refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    if user is not None:
        account = pwd.getpwnam(user)
        os.chown(folder, account.pw_uid, account.pw_gid)
    return folder, user
