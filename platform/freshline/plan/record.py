"""Memories of the control store that are no results: checks of sources, requests, heartbeats.

Losing them loses no row. A check says how far a table was compared with its inputs without a commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from freshline.plan.receipt import Receipt


@dataclass(frozen=True)
class Check:
    """A look at the inputs of a table, or at a source, that needed no commit.

    Everything that was there up to `data_timestamp` is at `position` (JSON text of whoever checked). For what freshline
    writes, it names the receipt of then as `receipt`, and holds for no other.
    """

    data_timestamp: datetime
    position: str
    checked_at: datetime

    @property
    def known(self) -> Mapping[str, Any]:
        """What the position says."""
        found: Mapping[str, Any] = json.loads(self.position or "{}")
        return found

    def is_of(self, receipt: Receipt | None) -> bool:
        """Whether it was made of what the receipt stands for, None for a table without one."""
        return bool(self.known.get("receipt") == (None if receipt is None else receipt.identity))


@dataclass(frozen=True)
class RequestRecord:
    """A request that was made to an engine; `arguments` is a JSON text."""

    id: str
    kind: str
    arguments: str
    created_at: datetime


@dataclass(frozen=True)
class Heartbeat:
    """When a process was last heard of, and what it said of itself."""

    at: datetime
    detail: Mapping[str, Any]
