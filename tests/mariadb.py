"""A real MariaDB server for a run of tests, from what the machine has installed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pymysql

from freshline.cli.supervisor import free_port
from tests.report.alerts.servers import make_certificate


@dataclass
class MariadbServer:
    """A server that listens on a socket in `folder`, and on `port` of this machine, there also by TLS."""

    programs: tuple[str, str]
    folder: Path
    user: str | None
    port: int
    certificate: Path
    process: Any = None
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def socket(self) -> str:
        return str(self.folder / "socket")

    def connect(self, database: str | None = None) -> Any:
        """A connection that commits each statement."""
        return pymysql.connect(unix_socket=self.socket, user="freshline", database=database, autocommit=True)

    def start(self) -> None:
        """Start the server, on the data of its last life where there is any."""
        options = ["--no-defaults", f"--datadir={self.folder / 'data'}", f"--socket={self.socket}"]
        options += ["--bind-address=127.0.0.1", f"--port={self.port}", "--skip-name-resolve"]
        options += [f"--ssl-cert={self.certificate}", f"--ssl-key={self.certificate.with_name('key.pem')}"]
        options += ["--innodb-flush-log-at-trx-commit=2", f"--pid-file={self.folder / 'pid'}"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.programs[1], *options], user=self.user, cwd=self.folder, stdout=log, stderr=log
            )
        end = time.monotonic() + 60
        while True:
            try:
                pymysql.connect(unix_socket=self.socket, user="freshline").close()
                return
            except pymysql.OperationalError as error:
                # Access is denied before the user is there: the server answers.
                if error.args[0] in (1045, 1698):
                    return
                assert self.process.poll() is None, (self.folder / "log").read_text(encoding="utf-8")
                assert time.monotonic() < end, "the server did not start"

    def stop(self) -> None:
        """End the server as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def install(self) -> None:
        """Make an empty data directory."""
        command = [self.programs[0], "--no-defaults", f"--datadir={self.folder / 'data'}", "--skip-test-db"]
        command += ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
        done = subprocess.run(command, user=self.user, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"


class MariadbDatabase:
    """A new database of a server. `url` is its address, which tests put into the variable SHOP_URL."""

    def __init__(self, server: MariadbServer) -> None:
        self.server = server
        self.name = f"test_{next(server._numbers)}"
        self._connection: Any = None
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.name} CHARACTER SET utf8mb4")
        self.url = self.url_of("freshline", "")

    def url_of(self, user: str, password: str, name: str | None = None) -> str:
        return f"mariadb://{user}:{password}@localhost/{name or self.name}?unix_socket={self.server.socket}"

    @property
    def connection(self) -> Any:
        if self._connection is None or not self._connection.open:
            self._connection = self.server.connect(self.name)
        return self._connection

    def forget(self) -> None:
        """Drop the connection, after the server was started again."""
        with suppress(pymysql.Error):
            self.connection.close()
        self._connection = None

    def sql(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def close(self) -> None:
        self.sql(f"DROP DATABASE {self.name}")
        self.forget()


def find_programs() -> tuple[str, str] | None:
    """The programs that make a data directory and serve it."""
    found = [shutil.which("mariadb-install-db"), shutil.which("mariadbd") or shutil.which("/usr/sbin/mariadbd")]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


@contextmanager
def running_server(programs: tuple[str, str]) -> Iterator[MariadbServer]:
    """Start a server with an empty data directory, and end it and remove that directory afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="freshline-mariadb-"))
    # MariaDB refuses to run as root.
    user = "mysql" if os.geteuid() == 0 else None
    if user is not None:
        account = pwd.getpwnam(user)
        os.chown(folder, account.pw_uid, account.pw_gid)
    certificate, key = make_certificate(folder)
    # The server reads both as its own user, whatever the umask of this process is.
    for file in (certificate, key):
        file.chmod(0o644)
    server = MariadbServer(programs, folder, user, free_port(), certificate)
    try:
        server.install()
        server.start()
        try:
            with pymysql.connect(unix_socket=server.socket, user="root") as root, root.cursor() as cursor:
                for host in ("localhost", "'127.0.0.1'"):
                    cursor.execute(f"CREATE USER freshline@{host}")
                    cursor.execute(f"GRANT ALL ON *.* TO freshline@{host} WITH GRANT OPTION")
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
