"""The heartbeats of processes that must not fall silent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, select

from freshline.commit.control_reading import HeartbeatReader
from freshline.commit.control_rows import heartbeat_of, text_of
from freshline.commit.control_store.database import Database, put
from freshline.commit.control_store.schema import HEARTBEATS
from freshline.freshness.record import Heartbeat


class HeartbeatStore(HeartbeatReader):
    """The heartbeats in the control store, one a name."""

    _database: Database

    def beat(self, name: str, at: datetime, detail: Mapping[str, Any] | None = None) -> None:
        """Remember that `name` was there at `at`, and what it said of itself."""
        with self._database.write() as connection:
            put(connection, HEARTBEATS, name=name, at=text_of(at), detail=json.dumps(dict(detail or {})))

    def take(
        self,
        name: str,
        owner: str,
        at: datetime,
        detail: Mapping[str, Any],
        *,
        held: timedelta,
        renewing: bool = False,
        is_gone: Callable[[Heartbeat], bool] = lambda _: False,
    ) -> Heartbeat | None:
        """Beat as the one `owner` of the name, or say who else is: None when it was taken or renewed.

        Somebody else has it for as long as `held` after each beat, unless `is_gone` knows better. One whose time is to
        come beat before the clock was set back, and is not waited for. Who is `renewing` takes it from nobody: two
        machines whose clocks differ would take it from each other in turn.
        """
        with self._database.write() as connection:
            known = _read(connection, name)
            if known is not None:
                lasts = abs(at - known.at) < held and not is_gone(known)
                if known.detail.get("owner") != owner and (renewing or lasts):
                    return known
            put(connection, HEARTBEATS, name=name, at=text_of(at), detail=json.dumps({**detail, "owner": owner}))
        return None

    def release(self, name: str, owner: str) -> None:
        """Forget the name if `owner` has it."""
        with self._database.write() as connection:
            known = _read(connection, name)
            if known is not None and known.detail.get("owner") == owner:
                connection.execute(delete(HEARTBEATS).where(HEARTBEATS.c.name == name))

    def forget(self, name: str) -> None:
        """Forget a process that was ended on purpose: its silence means nothing any more."""
        with self._database.write() as connection:
            connection.execute(delete(HEARTBEATS).where(HEARTBEATS.c.name == name))


def _read(connection: Connection, name: str) -> Heartbeat | None:
    wanted = select(HEARTBEATS.c.at, HEARTBEATS.c.detail).where(HEARTBEATS.c.name == name)
    row = connection.execute(wanted).first()
    return None if row is None else heartbeat_of(row.at, row.detail)
