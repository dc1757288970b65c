"""A real RabbitMQ server for a run of tests, from what the machine has installed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pika

# As the conformance suite searches for it.
PASSWORD = "hunter2-is-the-secret"
_START_SECONDS = 90.0
_LOOK_SECONDS = 0.05


@dataclass
class RabbitServer:
    """A server that listens on loopback only, with its data, its settings and its name server in `folder`."""

    program: Path
    folder: Path
    user: str | None
    port: int
    tls_port: int
    distribution_port: int
    names_port: int
    process: subprocess.Popen[bytes] | None = None
    names: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=count)
    _connection: Any = None

    @property
    def url(self) -> str:
        return f"amqp://guest:{PASSWORD}@127.0.0.1:{self.port}/%2F"

    @property
    def tls_url(self) -> str:
        return f"amqps://guest:{PASSWORD}@localhost:{self.tls_port}/%2F"

    @property
    def parameters(self) -> Any:
        """The parameters of a test's connection."""
        credentials = pika.PlainCredentials("guest", PASSWORD)
        return pika.ConnectionParameters("127.0.0.1", self.port, credentials=credentials, heartbeat=0)

    def new_name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    # -- the process

    def start(self) -> None:
        """Start the server, on the data of its last life where there is any, and wait until it answers."""
        environment = self._environment()
        out = (self.folder / "out").open("ab")
        self.names = subprocess.Popen(
            ["epmd", "-port", str(self.names_port), "-address", "127.0.0.1"],
            user=self.user, env=environment, stdout=out, stderr=out,
        )  # fmt: skip
        # Without it the server would start one of its own, which outlives it.
        while not _listens(self.names_port):
            assert self.names.poll() is None, "the name server of Erlang did not start"
            time.sleep(_LOOK_SECONDS)
        self.process = subprocess.Popen(
            [str(self.program)], user=self.user, env=environment, cwd=self.folder, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
        out.close()
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            said = (self.folder / "out").read_text(encoding="utf-8", errors="replace")[-4000:]
            assert self.process.poll() is None, f"RabbitMQ did not start: {said}"
            assert time.monotonic() < deadline, f"RabbitMQ does not answer: {said}"
            time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        """End the server as a power cut would. A queue that was declared within the last seconds may be forgotten."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server as its administrator would."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        assert self.process is not None
        assert self.names is not None
        self._forget()
        # A test that failed may have left it ended.
        if self.process.poll() is None:
            os.killpg(self.process.pid, how)
        self.process.wait()
        self.names.kill()
        self.names.wait()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """The server does nothing, and its connections stay."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def run(self, *arguments: str) -> str:
        """Run rabbitmqctl. It takes seconds, so only where nothing else does it."""
        command = [str(self.program.with_name("rabbitmqctl")), *arguments]
        done = subprocess.run(
            command,
            user=self.user,
            env=self._environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                # Another version of the protocol than the server has: it says so at once, and nothing more.
                connection.settimeout(5)
                connection.sendall(b"AMQP\x00\x00\x09\x00")
                return connection.recv(4) == b"AMQP"
        except OSError:
            return False

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            **{name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL")},
            "HOME": folder,
            "ERL_EPMD_PORT": str(self.names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "freshline@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_CTL_DIST_PORT_MIN": str(self.distribution_port + 1),
            "RABBITMQ_BASE": folder,
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_FEATURE_FLAGS_FILE": f"{folder}/flags",
            "RABBITMQ_SCHEMA_DIR": f"{folder}/schema",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{folder}/config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/environment",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            # One scheduler that does not spin: tests share the machine.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none",
        }

    # -- what tests do with it

    @property
    def channel(self) -> Any:
        """A channel that waits until what is published is at the broker."""
        if self._connection is None or not self._connection[0].is_open or not self._connection[1].is_open:
            self._forget()
            connection = pika.BlockingConnection(self.parameters)
            channel = connection.channel()
            channel.confirm_delivery()
            self._connection = (connection, channel)
        return self._connection[1]

    def declare(self, name: str, kind: str, **arguments: Any) -> None:
        """A queue of this kind: classic, quorum or stream."""
        given = {"x-queue-type": kind, **{key.replace("_", "-"): value for key, value in arguments.items()}}
        self.channel.queue_declare(name, durable=True, arguments=given)

    def delete(self, name: str) -> None:
        self.channel.queue_delete(name)

    def send(self, name: str, bodies: Sequence[bytes], **properties: Any) -> None:
        """Publish messages by the default exchange; `ids` are their message ids, where they have some."""
        ids = properties.pop("ids", None)
        for number, body in enumerate(bodies):
            given: Mapping[str, Any] = properties if ids is None else {**properties, "message_id": ids[number]}
            self.channel.basic_publish("", name, body, pika.BasicProperties(delivery_mode=2, **given))

    def ready(self, name: str) -> int:
        """How many messages wait in a queue."""
        return int(self.channel.queue_declare(name, passive=True).method.message_count)

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection[0].is_open:
            connection[0].close()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def find_server() -> Path | None:
    """The script that starts a server in the foreground; on Debian the one on the path asks for another user."""
    found = sorted(Path("/usr/lib/rabbitmq").glob("lib/*/sbin/rabbitmq-server"))
    if found:
        return found[-1]
    on_path = shutil.which("rabbitmq-server")
    return None if on_path is None else Path(on_path).resolve()


def free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def make_certificate(folder: Path) -> None:
    """A certificate of localhost, which signed itself."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost", "-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")],
        check=True, capture_output=True,
    )  # fmt: skip


@contextmanager
def running_rabbitmq(program: Path) -> Iterator[RabbitServer]:
    """Start a server without any queue, and end it and remove its folder afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="freshline-rabbitmq-"))
    # The server of Debian runs as its own user, and would leave files of root behind otherwise.
    user = "rabbitmq" if os.geteuid() == 0 else None
    port, tls_port, stream_port, distribution_port, names_port = free_ports(5)
    server = RabbitServer(program, folder, user, port, tls_port, distribution_port, names_port)
    make_certificate(folder)
    (folder / "plugins").write_text("[rabbitmq_stream].\n", encoding="utf-8")
    (folder / "environment").write_text("", encoding="utf-8")
    (folder / "rabbitmq.conf").write_text(
        f"stream.listeners.tcp.1 = 127.0.0.1:{stream_port}\nlisteners.ssl.1 = 127.0.0.1:{tls_port}\n"
        f"ssl_options.cacertfile = {folder}/certificate.pem\nssl_options.certfile = {folder}/certificate.pem\n"
        f"ssl_options.keyfile = {folder}/key.pem\nssl_options.verify = verify_none\n"
        f"default_user = guest\ndefault_pass = {PASSWORD}\n"
        "vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 10MB\n",
        encoding="utf-8",
    )
    (folder / "certificate.pem").chmod(0o644)
    if user is not None:
        account = pwd.getpwnam(user)
        for path in (folder, *folder.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)
        # Tests read the certificate.
        folder.chmod(0o755)
    try:
        server.start()
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder)
