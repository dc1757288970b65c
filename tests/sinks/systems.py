"""Systems as sinks, for the claims about every sink."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from freshline.testing import Lab
from freshline.testing.claims import SECRET
from freshline.testing.lab import Row
from freshline.testing.sinks import SinkSystem
from tests.databases import Database
from tests.mariadb import MariadbDatabase, MariadbServer
from tests.postgres import PostgresServer
from tests.report.alerts.servers import make_certificate
from tests.servers.clickhouse import ClickHouseServer
from tests.servers.opensearch import OpenSearchServer
from tests.servers.web import WebServer
from tests.sinks.hook_service import HookService
from tests.sinks.kafka_topic import Topic

# The claims about a kind's own fence and position. `make test` has the others with Postgres alone, and a stop in the
# middle in each kind's story.
OWN = ("test_other_writers_are_refused", "test_a_restored_table_is_followed")


@contextmanager
def prepared(system: SinkSystem, monkeypatch: pytest.MonkeyPatch) -> Iterator[SinkSystem]:
    """The system with its environment variables, as `check_sink` prepares it."""
    try:
        for name, value in system.variables.items():
            monkeypatch.setenv(name, value)
        yield system
    finally:
        system.close()


class PostgresSystem(SinkSystem):
    """A table `copy` of a database of Postgres. A text with a zero byte is no text there."""

    sink = "jdbc"
    options: ClassVar[Mapping[str, str]] = {"table": "public.copy"}
    secret = "url"
    secret_variable = "SHOP_URL"
    refused = ("a\x00b",)
    gone = "DATABASE"

    def __init__(self, lab: Lab, server: PostgresServer) -> None:
        super().__init__(lab)
        self.database = Database(server)

    def held(self, secret: str) -> str:
        # A server that asks for no password takes any.
        return f"{self.database.url}&password={secret}"

    def stored(self) -> list[Row]:
        rows = self.database.ask(
            "SELECT COALESCE(json_agg(to_jsonb(copy) ORDER BY k), '[]') FROM copy"
            if self.database.ask("SELECT to_regclass('copy') IS NOT NULL")[0][0]
            else "SELECT '[]'::json"
        )
        found: list[Row] = rows[0][0]
        return found

    def spoil(self) -> bool:
        self.database.sql("DELETE FROM copy WHERE k = 1; INSERT INTO copy VALUES (77, 'mine', 7)")
        self.database.sql("UPDATE copy SET v = 'changed' WHERE k = 2")
        return True

    def take_away(self) -> bool:
        self.database.server.stop()
        return True

    def bring_back(self) -> None:
        self.database.forget()
        self.database.server.start()

    def close(self) -> None:
        self.database.close()


class MariadbSystem(SinkSystem):
    """A table `copy` of a database of MariaDB, which somebody has made with a short column."""

    sink = "jdbc"
    options: ClassVar[Mapping[str, str]] = {"table": "copy"}
    secret = "url"
    secret_variable = "SHOP_URL"
    refused = ("x" * 101, "'" * 200)
    gone = "DATABASE"
    untrusted = "DATABASE_REFUSED"

    def __init__(self, lab: Lab, server: MariadbServer) -> None:
        super().__init__(lab)
        self.database = MariadbDatabase(server)
        self._user = f"claims_{self.database.name}"
        self.database.sql("CREATE TABLE copy (k int PRIMARY KEY, v varchar(100), n double)")
        for host in ("localhost", "127.0.0.1"):
            self.database.sql(
                f"CREATE USER {self._user}@'{host}' IDENTIFIED BY '{SECRET}'",
                f"GRANT ALL ON {self.database.name}.* TO {self._user}@'{host}'",
            )

    def held(self, secret: str) -> str:
        return self.database.url_of(self._user, secret)

    @property
    def variables(self) -> Mapping[str, str]:
        port, name = self.database.server.port, self.database.name
        # A server on this machine is not verified unless the address says so.
        address = f"mariadb://{self._user}:{SECRET}@localhost:{port}/{name}?ssl-mode=verify-identity"
        return {**super().variables, "TLS_URL": address}

    def stored(self) -> list[Row]:
        with self.database.connection.cursor() as cursor:
            cursor.execute("SELECT * FROM copy ORDER BY k")
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def spoil(self) -> bool:
        self.database.sql(
            "DELETE FROM copy WHERE k = 1",
            "INSERT INTO copy VALUES (77, 'mine', 7)",
            "UPDATE copy SET v = 'changed' WHERE k = 2",
        )
        return True

    def take_away(self) -> bool:
        self.database.server.stop()
        return True

    def bring_back(self) -> None:
        self.database.forget()
        self.database.server.start()

    def by_tls(self) -> Mapping[str, str]:
        return {"url": "${env:TLS_URL}", "tls.ca": str(self.database.server.certificate)}

    def close(self) -> None:
        self.database.sql(*[f"DROP USER {self._user}@'{host}'" for host in ("localhost", "127.0.0.1")])
        self.database.close()


class TopicSystem(SinkSystem):
    """A topic of a real broker, of one partition, which takes no large records."""

    sink = "kafka"
    # A property of the client that has a secret, and that it needs for nothing here.
    secret = "kafka.ssl.key.password"
    secret_variable = "BROKER_SECRET"
    refused = ("x" * 25_000,)

    def __init__(self, lab: Lab, servers: str) -> None:
        super().__init__(lab)
        self.topic = Topic(servers)
        self.topic.create(max_message_bytes="20000")

    @property
    def given(self) -> Mapping[str, str]:
        return {**super().given, "topic": self.topic.name, "bootstrap.servers": self.topic.servers}

    def stored(self) -> list[Row]:
        return sorted(self.topic.state().values(), key=lambda row: int(row["k"]))

    def spoil(self) -> bool:
        self.topic.send(
            (b'{"k":1}', None),
            (b'{"k":77}', b'{"k":77,"v":"mine","n":7.0}'),
            (b'{"k":2}', b'{"k":2,"v":"changed","n":1.0}'),
        )
        return True


class FolderSystem(SinkSystem):
    """A folder of versions, each of which is a file of Parquet."""

    sink = "files"
    options: ClassVar[Mapping[str, str]] = {"path": "exports", "format": "parquet"}

    def _files(self) -> list[Path]:
        folder = self.lab.settings.root / "exports"
        current = folder / "CURRENT"
        if not current.exists():
            return []
        # As a reader takes it, and not by what the writer keeps for itself.
        newest = max(folder.glob("v=*/_SUCCESS"), key=lambda file: int(file.parent.name.removeprefix("v=")))
        return sorted(newest.parent.glob("part-*.parquet"))

    def stored(self) -> list[Row]:
        rows = [row for file in self._files() for row in pq.read_table(file).to_pylist()]
        return sorted(rows, key=lambda row: int(row["k"]))

    def spoil(self) -> bool:
        (file,) = self._files()
        table = pq.read_table(file)
        mine = pa.Table.from_pylist([{"k": 77, "v": "mine", "n": 7.0}], table.schema)
        pq.write_table(pa.concat_tables([table.filter(pc.not_equal(table["k"], 1)), mine]), file)
        return True


class WebSystem(SinkSystem):
    """A system of HTTP behind a front that asks for a password, may be away, and has another one by TLS."""

    secret = "password"
    secret_variable = "SYSTEM_PASSWORD"
    user: ClassVar[str]

    def __init__(self, lab: Lab, port: int, *, asks: bool) -> None:
        super().__init__(lab)
        self._certificate, key = make_certificate(lab.settings.root)
        credentials = (self.user, SECRET) if asks else None
        self._front = WebServer(behind=port, credentials=credentials)
        self._tls_front = WebServer(behind=port, credentials=credentials, certificate=(self._certificate, key))
        self._front.start()
        self._tls_front.start()

    @property
    def given(self) -> Mapping[str, str]:
        return {**super().given, "url": self._front.url}

    def take_away(self) -> bool:
        self._front.stop()
        return True

    def bring_back(self) -> None:
        self._front.start()

    def by_tls(self) -> Mapping[str, str]:
        return {"url": self._tls_front.url, "tls.ca": str(self._certificate)}

    def close(self) -> None:
        self._front.stop()
        self._tls_front.stop()


class OpenSearchSystem(WebSystem):
    """An index of a real OpenSearch, whose texts are keywords, which have at most 32,766 bytes."""

    sink = "opensearch"
    user = "admin"
    refused = ("x" * 33_000,)
    _PAGE = 10_000

    def __init__(self, lab: Lab, server: OpenSearchServer) -> None:
        super().__init__(lab, server.port, asks=True)
        self._server, self._index = server, server.new_name()

    @property
    def given(self) -> Mapping[str, str]:
        return {**super().given, "index": self._index, "mapping": '{"v": {"type": "keyword"}}'}

    def stored(self) -> list[Row]:
        status, found = self._server.ask("GET", f"/{self._index}/_mapping")
        if status == 404:
            return []
        (index,) = found.values()
        # A document has no field where the row has NULL.
        nothing: Row = dict.fromkeys(index["mappings"]["properties"])
        self._server.ask("POST", f"/{self._index}/_refresh")
        rows: list[Row] = []
        last: list[int] | None = None
        while last is None or len(rows) % self._PAGE == 0:
            body: dict[str, Any] = {"size": self._PAGE, "sort": ["k"]}
            status, found = self._server.ask(
                "POST", f"/{self._index}/_search", body if last is None else {**body, "search_after": last}
            )
            assert status == 200, found
            hits = found["hits"]["hits"]
            if not hits:
                break
            rows += [{**nothing, **hit["_source"]} for hit in hits]
            last = hits[-1]["sort"]
        return rows

    def spoil(self) -> bool:
        self._server.ask("DELETE", f"/{self._index}/_doc/1")
        self._server.ask("PUT", f"/{self._index}/_doc/77", {"k": 77, "v": "mine", "n": 7})
        self._server.ask("PUT", f"/{self._index}/_doc/2", {"k": 2, "v": "changed", "n": 1})
        return True


class ClickHouseSystem(WebSystem):
    """A view of ClickHouse's engine, which has no days before 1900."""

    sink = "clickhouse"
    user = "default"
    columns = "k, v, n, CASE WHEN v = 'long ago' THEN DATE'1899-12-31' END AS day"
    refused = ("long ago",)

    def __init__(self, lab: Lab, server: ClickHouseServer) -> None:
        # Its engine asks for the password itself.
        super().__init__(lab, server.port, asks=False)
        assert server.password == SECRET
        self._server, self._database = server, server.new_database()

    @property
    def given(self) -> Mapping[str, str]:
        return {**super().given, "table": f"{self._database}.copy"}

    def row(self, key: int) -> Row:
        return {**super().row(key), "day": None}

    def stored(self) -> list[Row]:
        if self._ask("EXISTS copy") == [{"result": 0}]:
            return []
        return self._ask("SELECT * FROM copy ORDER BY k")

    def spoil(self) -> bool:
        (table,) = self._ask("SELECT comment FROM system.tables WHERE database = currentDatabase() AND name = 'copy'")
        behind = table["comment"].removeprefix("freshline ")
        names = "k, v, n, _freshline_version, _freshline_deleted"
        greatest = 2**64 - 1
        self._server.ask(
            f"INSERT INTO {behind} ({names}) VALUES (1, '', 0, {greatest}, 1), (77, 'mine', 7, {greatest}, 0), "
            f"(2, 'changed', 1, {greatest}, 0)",
            database=self._database,
        )
        return True

    def _ask(self, query: str) -> list[Row]:
        text = self._server.ask(query, database=self._database)
        return [json.loads(line) for line in text.splitlines()]


class HookSystem(SinkSystem):
    """A service that takes posts, as the page "Sinks" says that one should, and refuses some rows."""

    sink = "webhook"
    options: ClassVar[Mapping[str, str]] = {
        "url": "${env:HOOK_URL}",
        "private-addresses": "true",
        "rows-per-request": "500",
    }
    secret = "secret"
    secret_variable = "HOOK_SECRET"
    refused = ("refuse me",)
    points = ("sink-post-confirmed",)

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self._service = HookService(SECRET, refused=frozenset(self.refused))
        self._service.start()

    @property
    def variables(self) -> Mapping[str, str]:
        return {**super().variables, "HOOK_URL": f"{self._service.url}/hook"}

    def stored(self) -> list[Row]:
        return sorted(self._service.rows.values(), key=lambda row: int(row["k"]))

    def spoil(self) -> bool:
        del self._service.rows[1]
        self._service.rows[77] = {"k": 77, "v": "mine", "n": 7.0}
        return True

    def take_away(self) -> bool:
        self._service.stop()
        return True

    def bring_back(self) -> None:
        self._service.start()

    def close(self) -> None:
        self._service.stop()
