"""Memories of the control store that are no results: checks of sources, requests, heartbeats.

Losing them loses no row. A check says how far a table was compared with its inputs without a commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from freshline.freshness.lag import newest_stamp
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt

UNTIL = "until"
# So begins the heartbeat of a catalog that is not where the tables are; its name follows.
CATALOG_HEARTBEAT = "catalog:"
# How many earlier versions of a source a check names.
MOST_EARLIER = 64


@dataclass(frozen=True)
class Check:
    """A check of the inputs of a table, or of a source, that needed no commit.

    Everything that was there up to `data_timestamp` is at `position` (JSON text of whoever checked). For a table that
    freshline writes, it names the receipt of then as `receipt`, and is true of no other.
    """

    data_timestamp: datetime
    position: str
    checked_at: datetime

    @property
    def known(self) -> Mapping[str, Any]:
        """The content of the position."""
        found: Mapping[str, Any] = json.loads(self.position or "{}")
        return found

    def until(self, position: TablePosition) -> datetime | None:
        """The last time at which a version of a source was seen to be the newest one; None where that is not known."""
        if self.known.get("table_id") != position.table_id:
            return None
        if self.known.get("version") == position.version:
            return self.data_timestamp
        found = dict(self.known.get(UNTIL, ()))
        return datetime.fromisoformat(found[position.version]) if position.version in found else None

    def is_of(self, receipt: Receipt | None) -> bool:
        """Whether it was made of what the receipt stands for, None for a table without one."""
        return bool(self.known.get("receipt") == (None if receipt is None else receipt.identity))


def complete_until(receipt: Receipt | None, check: Check | None, now: datetime) -> datetime | None:
    """The time up to which the newest version of a table or log has everything that its roots had.

    Its newest receipt says it, and a check of that receipt: later versions have at least what was there, so the newer
    of the two times applies. None where neither says it.
    """
    stamps = [] if receipt is None or receipt.data_timestamp is None else [receipt.data_timestamp]
    # Any other check is of rows that were there before, or that the log has lost.
    if check is not None and check.is_of(receipt):
        stamps.append(check.data_timestamp)
    return newest_stamp(stamps, now)


def source_position(position: TablePosition, before: Check | None) -> str:
    """The text of a check of a source that is read in place.

    It names the versions that were the newest ones at earlier checks, each with the last time it was found so.
    """
    value = position.as_json()
    if before is not None and before.known.get("table_id") == position.table_id:
        earlier = [list(pair) for pair in before.known.get(UNTIL, ())]
        if before.known.get("version") != position.version:
            earlier.insert(0, [before.known.get("version"), before.data_timestamp.isoformat()])
        if earlier:
            value[UNTIL] = earlier[:MOST_EARLIER]
    return json.dumps(value)


@dataclass(frozen=True)
class RequestRecord:
    """A request that was made to an engine; `arguments` is a JSON text."""

    id: str
    kind: str
    arguments: str
    created_at: datetime


@dataclass(frozen=True)
class Heartbeat:
    """The last sign of a process, with what it said of itself."""

    at: datetime
    detail: Mapping[str, Any]
