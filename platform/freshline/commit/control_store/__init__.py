"""The control store: intentions and caches of one environment, in SQLite or in another database by URL."""

from __future__ import annotations

from freshline.commit.control_rows import FORMAT
from freshline.commit.control_store.store import KEPT_RECORDS, KEPT_REFRESHES, KEPT_REQUESTS, ControlStore
from freshline.freshness.record import Check

__all__ = ["FORMAT", "KEPT_RECORDS", "KEPT_REFRESHES", "KEPT_REQUESTS", "Check", "ControlStore"]
