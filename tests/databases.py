"""A database of a real Postgres server, whose tables are declared as sources of a Lab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from freshline.testing import Lab
    from tests.postgres import PostgresServer


class Shop:
    """A new database of a server. `url` is its connection string, which tests put into the variable SHOP_URL."""

    def __init__(self, lab: Lab, server: PostgresServer) -> None:
        self.lab = lab
        self.server = server
        _, _, place = server.new_database().partition("://")
        self.url = f"postgresql://{place}"
        self.name = place.rpartition("?")[0].rpartition("/")[2]
        self.slot = f"slot_{self.name}"
        self._connection: psycopg.Connection[Any] | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """A connection that commits each statement."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection

    def sql(self, statements: str) -> None:
        """Run statements; several are one transaction."""
        self.connection.execute(statements.encode())

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode()).fetchall()

    def declare(
        self, table: str, columns: str, *, name: str = "feed", key: Sequence[str] = ("id",), **options: str
    ) -> None:
        """Declare a source; `options` are those of WITH, with `_` for `-`."""
        written = {option.replace("_", "-"): value for option, value in options.items()}
        given = {"connector": "postgres", "url": "${env:SHOP_URL}", "table": table, "slot": self.slot, **written}
        pairs = ", ".join(f"'{option}' = '{value}'" for option, value in given.items())
        self.lab.declare(f"CREATE SOURCE {name} ({columns}, PRIMARY KEY ({', '.join(key)})) WITH ({pairs})")

    def close(self) -> None:
        """Let the server forget the slots of this database."""
        self.sql(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            f"WHERE database = '{self.name}' AND NOT active"
        )
        self.connection.close()
