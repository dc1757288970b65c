"""The control store: intentions and caches of one environment, in SQLite or in another database by URL."""

from __future__ import annotations

from freshline.commit.control_rows import FORMAT
from freshline.commit.control_store.store import KEPT_REFRESHES, KEPT_REQUESTS, MOST_RECORDS, ControlStore
from freshline.plan.record import Check

__all__ = ["FORMAT", "KEPT_REFRESHES", "KEPT_REQUESTS", "MOST_RECORDS", "Check", "ControlStore"]
