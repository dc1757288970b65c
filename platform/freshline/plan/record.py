"""Memories of the control store that are no results: checks of sources, requests, heartbeats.

Losing them loses no row. A check says how far a table was compared with its inputs without a commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Check:
    """A look at the inputs of a table, or at a source, that needed no commit.

    Everything that was there up to `data_timestamp` is at `position` (JSON text of whoever checked).
    """

    data_timestamp: datetime
    position: str
    checked_at: datetime


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
