"""An engine's server that is asked for changes, without an engine behind it, and a client that follows a table."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.engine.changes import Changes, FollowLimits
from freshline.engine.server import EngineServer, bind
from freshline.values.settings import Settings

ENGINE_TOKEN = "the-token-of-the-engine"
TOKEN = "the-token-of-changes"
DECLARED = {
    "s.sql": "CREATE SOURCE s (id INT, a STRING, n INT) WITH ('connector' = 'delta', 'path' = 'elsewhere')",
    # Rows have a key, and rows have none.
    "keyed.sql": "CREATE MATERIALIZED TABLE keyed (PRIMARY KEY (id)) AS SELECT id, a, n FROM s",
    "plain.sql": "CREATE MATERIALIZED TABLE plain AS SELECT id, a, n FROM s",
    "shop/order.sql": "CREATE MATERIALIZED TABLE shop.order AS SELECT id, a, n FROM s",
}
ROWS = pa.schema([("id", pa.int32()), ("a", pa.string()), ("n", pa.int32())])
Row = dict[str, Any]


def row(key: int, a: str | None = "x", n: int | None = 0) -> Row:
    return {"id": key, "a": a, "n": n}


@dataclass(frozen=True)
class Event:
    """One event. `id` is that of the last line of an id before it is dispatched."""

    kind: str
    id: str
    data: dict[str, Any]


@dataclass
class Stream:
    """An answer of events, as a browser reads it."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    last_id: str = ""
    comments: list[str] = field(default_factory=list)

    def events(self) -> Iterator[Event]:
        """The events until the answer ends."""
        kind, data = "message", ""
        for line in self._lines():
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                if data:
                    yield Event(kind, self.last_id, json.loads(data))
                kind, data = "message", ""
            elif not name:
                self.comments.append(value)
            elif name == "id":
                self.last_id = value
            elif name == "event":
                kind = value
            elif name == "data":
                data += value

    def take(self, number: int) -> list[Event]:
        """The next events, which come."""
        found = self.events()
        return [next(found) for _ in range(number)]

    def close(self) -> None:
        self.connection.close()

    def _lines(self) -> Iterator[str]:
        until = time.monotonic() + 30
        while raw := self.response.readline():
            assert time.monotonic() < until, "the events do not come"
            yield raw.decode().rstrip("\n")


@dataclass
class Tables:
    """The declared tables, whose versions a test writes, and the door at which they are followed."""

    settings: Settings
    graph: Graph
    environ: dict[str, str]
    limits: FollowLimits
    port: int = 0
    changes: Changes | None = None

    def path(self, table: str = "keyed") -> str:
        return str(self.settings.warehouse / table.replace(".", "/"))

    def create(self, table: str = "keyed", schema: pa.Schema = ROWS) -> None:
        """Version 0, without rows."""
        DeltaTable.create(self.path(table), schema, configuration={"delta.enableChangeDataFeed": "true"})

    def add(self, *rows: Row, table: str = "keyed", mode: Any = "append") -> None:
        """A version with more rows, or with `mode` overwrite with these instead."""
        schema = pa.schema(DeltaTable(self.path(table)).schema())
        write_deltalake(self.path(table), pa.Table.from_pylist(list(rows), schema=schema), mode=mode)

    def update(self, condition: str, table: str = "keyed", **values: str) -> None:
        DeltaTable(self.path(table)).update(updates=values, predicate=condition)

    def delete(self, condition: str, table: str = "keyed") -> None:
        DeltaTable(self.path(table)).delete(condition)

    def rows(self, table: str = "keyed") -> list[Row]:
        return sorted(DeltaTable(self.path(table)).to_pyarrow_table().to_pylist(), key=lambda each: repr(each))

    # -- a client

    def ask(self, table: str = "keyed", *, last: str = "", token: str | None = TOKEN, **query: str) -> Any:
        """The status and the JSON of an answer that is none of events, which is an AssertionError."""
        with closing(self._connect(table, last, token, query)) as connection:
            response = connection.getresponse()
            assert response.status != 200
            return response.status, json.loads(response.read())["error"]

    @contextmanager
    def follow(self, table: str = "keyed", *, last: str = "", **query: str) -> Iterator[Stream]:
        connection = self._connect(table, last, TOKEN, query)
        response = connection.getresponse()
        with closing(Stream(connection, response, last)) as stream:
            assert response.status == 200, response.read()
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            yield stream

    def _connect(
        self, table: str, last: str, token: str | None, query: Mapping[str, str]
    ) -> http.client.HTTPConnection:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        headers |= {"Last-Event-ID": last} if last else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        given = {name.rstrip("_"): value for name, value in query.items()}
        connection.request("GET", f"/changes/{table}?{urlencode(given)}", headers=headers)
        return connection


@contextmanager
def open_tables(
    settings: Settings, *, limits: FollowLimits | None = None, declared: Mapping[str, str] = DECLARED
) -> Iterator[Tables]:
    """A server on a free port, without an engine."""
    given = limits or FollowLimits(poll=0.02)
    tables = Tables(settings, read_declarations(declared, settings), {"FOLLOW": TOKEN}, given)
    changes = Changes(lambda: tables.graph, settings, tables.environ, given)
    server = EngineServer(None, ENGINE_TOKEN, bind(0), changes=changes)
    server.start()
    tables.port, tables.changes = server.port, changes
    try:
        yield tables
    finally:
        changes.close()
        server.stop()


def applied(events: list[Event], state: list[Row] | None = None) -> list[Row]:
    """The rows that a client has after events. Fails where it is told to take away a row that it does not have."""
    rows = [] if state is None else state
    for event in events:
        if event.kind == "reset":
            rows.clear()
            continue
        assert event.kind == "changes", event
        for gone in [*event.data["deletes"], *(each["before"] for each in event.data["updates"])]:
            rows.remove(gone)
        rows += [*event.data["inserts"], *(each["after"] for each in event.data["updates"])]
    return sorted(rows, key=lambda each: repr(each))


def folder_of(settings: Settings) -> Path:
    """Where large changes are meanwhile."""
    return settings.state / "changes"
