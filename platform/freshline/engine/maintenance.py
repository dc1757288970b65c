"""Maintenance between refreshes: one thread checks tables that were written to, one at a time.

A table is checked after so many commits, never by a clock. A check reads its log without Spark. Maintenance holds the
table's lock, so that it waits for a refresh, and a refresh for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from freshline.values.names import TableName

LOG = logging.getLogger(__name__)

# Fewer commits change little; a check costs some milliseconds.
COMMITS_BETWEEN_LOOKS = 20


class Maintenance:
    """Calls `maintain` for tables that were committed to often enough since it was called last."""

    def __init__(self, maintain: Callable[[TableName], object]) -> None:
        self._maintain = maintain
        self._changed = threading.Condition()
        self._waiting: dict[TableName, int] = {}
        self._looked: dict[TableName, int] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self._thread.start()

    def committed(self, name: TableName, version: int | None) -> None:
        """Note that a table has a new version."""
        with self._changed:
            if version is None or version - self._looked.get(name, -COMMITS_BETWEEN_LOOKS) < COMMITS_BETWEEN_LOOKS:
                return
            self._waiting[name] = version
            self._changed.notify_all()

    def stop(self, seconds: float) -> bool:
        """Begin nothing more; whether what runs ended within so many seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or bool(self._waiting))
                if self._stopping:
                    return
                name = next(iter(self._waiting))
                self._looked[name] = self._waiting.pop(name)
            try:
                self._maintain(name)
            except Exception:  # tables are refreshed whether or not their files can be put together
                LOG.exception("the maintenance of %s failed; it is tried again after its next commits", name)
