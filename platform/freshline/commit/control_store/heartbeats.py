"""When processes that must not fall silent were last heard of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, select

from freshline.commit.control_store.database import Database, text_of, time_of
from freshline.commit.control_store.schema import HEARTBEATS
from freshline.plan.record import Heartbeat


class HeartbeatStore:
    """The heartbeats in the control store, one a name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def beat(self, name: str, at: datetime, detail: Mapping[str, Any] | None = None) -> None:
        """Remember that `name` was there at `at`, and what it said of itself."""
        with self._database.write() as connection:
            connection.execute(delete(HEARTBEATS).where(HEARTBEATS.c.name == name))
            connection.execute(
                insert(HEARTBEATS).values(name=name, at=text_of(at), detail=json.dumps(dict(detail or {})))
            )

    def forget(self, name: str) -> None:
        """It was ended on purpose: its silence means nothing any more."""
        with self._database.write() as connection:
            connection.execute(delete(HEARTBEATS).where(HEARTBEATS.c.name == name))

    def read(self) -> dict[str, Heartbeat]:
        """The newest heartbeat of each name."""
        with self._database.read() as connection:
            rows = connection.execute(select(HEARTBEATS)).mappings().all()
        return {row["name"]: Heartbeat(time_of(row["at"]), json.loads(row["detail"])) for row in rows}
