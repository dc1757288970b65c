"""Systems as sinks, for the claims about every sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from freshline.testing import Lab
from freshline.testing.lab import Row
from freshline.testing.sinks import SinkSystem
from tests.databases import Database
from tests.postgres import PostgresServer


class PostgresSystem(SinkSystem):
    """A table `copy` of a database of Postgres. A text with a zero byte is no text there."""

    sink = "jdbc"
    options: ClassVar[Mapping[str, str]] = {"table": "public.copy"}
    secret = "url"
    secret_variable = "SHOP_URL"
    refused = ("a\x00b",)

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

    def close(self) -> None:
        self.database.close()
