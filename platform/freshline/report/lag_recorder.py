"""Keep the lags that the watch reads of every table, for the board: without a check of its own or a second computation.

The lines of a thousand tables can end in one check. They are written a few at a time, because refreshes are recorded in
the same store and wait for each transaction.

The memory from one check to the next only saves time: after a restart the newest rows of the control store say where
to go on, and at most the last minutes of a line are missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from freshline.commit.control_store.history import HistoryStore
from freshline.freshness.history import LagSample, LagSpan, SeenLag, look
from freshline.report.status import TableStatus
from freshline.values.names import TableName

_SPANS_A_TRANSACTION = 50


class LagRecorder:
    """Writes the spans that are over."""

    def __init__(self, history: HistoryStore) -> None:
        self._history = history
        self._seen: dict[TableName, SeenLag] | None = None

    def record(self, statuses: Iterable[TableStatus], now: datetime) -> None:
        """Record one check of all tables. Raises StorageError; what was not written then counts as not seen."""
        known = self._seen
        if known is None:
            known = {name: SeenLag(sample, None) for name, sample in self._history.newest_samples(now).items()}
        looks: dict[TableName, SeenLag] = {}
        over: list[tuple[TableName, LagSpan]] = []
        for status in statuses:
            # Before the first refresh there is no lag, and of a log that cannot be read it is not known.
            if status.lag_seconds is None:
                continue
            sample = LagSample(now, status.lag_seconds, status.freshness_seconds)
            looks[status.table], span = look(known.get(status.table), sample)
            if span is not None:
                over.append((status.table, span))
        written = {name for name, _ in over}
        # Tables that are gone are not among them any more.
        self._seen = {name: seen for name, seen in known.items() if name in written}
        self._seen |= {name: seen for name, seen in looks.items() if name not in written}
        for first in range(0, len(over), _SPANS_A_TRANSACTION):
            spans = dict(over[first : first + _SPANS_A_TRANSACTION])
            self._history.add_spans(spans)
            self._seen |= {name: looks[name] for name in spans}
