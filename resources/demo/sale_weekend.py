"""The story of the demo: for a sale, orders must be known within seconds, and afterwards as before.

One statement changes how fresh a table is, for a while, and it ends by itself. Each event is said in one sentence, by
the status of the table: nothing is said that did not come about. At the end orders are counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING

from freshline.cli.ask import ask
from freshline.cli.progress import Progress
from freshline.engine.client import EngineClient
from freshline.report.table_text import duration_text
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.settings import Settings

if TYPE_CHECKING:
    from freshline.report.status import TableStatus

TABLE = TableName.parse("enriched_orders")
SOURCE = "sale_order"
SALE_FRESHNESS = Freshness(5)
BY = "the demo"
_BEGINS_SECONDS = 60.0
_LASTS_SECONDS = 90.0


@dataclass(frozen=True)
class Times:
    """When the sale begins, in seconds of the demo, and how many it lasts."""

    begins: float
    lasts: int


def sale_times(seconds: float | None) -> Times:
    """The sale of a demo of so many seconds, None for one without an end: a short demo has a short sale.

    >>> sale_times(None), sale_times(60.0)
    (Times(begins=60.0, lasts=90), Times(begins=12.0, lasts=24))
    """
    if seconds is None:
        return Times(_BEGINS_SECONDS, int(_LASTS_SECONDS))
    return Times(min(_BEGINS_SECONDS, seconds / 5), max(1, int(min(_LASTS_SECONDS, seconds * 2 / 5))))


# Before which portion of `demo --once` the table gets which freshness: each mode once, and the declared one at the end.
_PORTIONS = {3: SALE_FRESHNESS, 5: Freshness(3_600), 7: None}


def alternate(settings: Settings, portion: int) -> list[str]:
    """Change how fresh the table is before this portion (from 0), if that is its turn; returns what was changed."""
    if portion not in _PORTIONS:
        return []
    # SQLAlchemy is imported when it is used, like all that is heavy.
    from freshline.manage.freshness import reset_freshness, set_freshness

    freshness = _PORTIONS[portion]
    if freshness is None:
        decision = reset_freshness(str(TABLE), cascade=True, by=BY, project=settings)
    else:
        decision = set_freshness(str(TABLE), str(freshness), cascade=True, by=BY, project=settings)
    return decision.sentence.split("\n")


class _Chapter(Enum):
    BEFORE = auto()
    CHANGED = auto()
    FRESH = auto()
    AFTER = auto()


class SaleWeekend:
    """One run of the story. `step` is called with each new status, and returns the sentences to be said."""

    def __init__(self, settings: Settings, times: Times) -> None:
        self._settings = settings
        self._times = times
        self._chapter = _Chapter.BEFORE
        self._least_lag = math.inf

    def step(self, passed: float, statuses: Sequence[TableStatus]) -> list[str]:
        """The sentences of now, `passed` seconds after the first event; begins the sale when it is time.

        Raises FreshnessError, and StorageError where the control store cannot be used.
        """
        status = next(status for status in statuses if status.table == TABLE)
        promise = f"{Freshness(status.freshness_seconds)}, {status.mode}"
        match self._chapter:
            case _Chapter.BEFORE:
                if passed < self._times.begins or status.version is None:
                    return []
                self._chapter = _Chapter.CHANGED
                return [self._begin()]
            case _Chapter.CHANGED | _Chapter.FRESH if status.override is None:
                told = self._best() if self._chapter is _Chapter.CHANGED else []
                self._chapter = _Chapter.AFTER
                over = "The sale is over, and the change has ended by itself"
                return [*told, f"{over}: {TABLE} is kept within {promise}, again."]
            case _Chapter.CHANGED if status.lag_seconds is not None and not status.late:
                self._chapter = _Chapter.FRESH
                lag = duration_text(status.lag_seconds)
                return [f"{TABLE} has the orders of {lag} ago, within its {promise}."]
            case _Chapter.CHANGED if status.lag_seconds is not None:
                self._least_lag = min(self._least_lag, status.lag_seconds)
        return []

    def _best(self) -> list[str]:
        if math.isinf(self._least_lag):
            return []
        asked = f"more than the {SALE_FRESHNESS} that were asked of this machine"
        return [f"{TABLE} lagged {duration_text(self._least_lag)} at best, {asked}."]

    def _begin(self) -> str:
        # SQLAlchemy is imported when it is used, like all that is heavy.
        from freshline.manage.freshness import set_freshness

        lasts = timedelta(seconds=self._times.lasts)
        decision = set_freshness(
            str(TABLE), str(SALE_FRESHNESS), for_=lasts, cascade=True, by=BY, project=self._settings
        )
        told = [decision.sentence.replace("\n", "; "), *decision.warnings]
        return f"A sale begins, and lasts {duration_text(self._times.lasts)}. {'; '.join(told)}."


@dataclass(frozen=True)
class OrderCount:
    """How many orders landed, and how many rows and different orders the table has."""

    landed: int
    rows: int
    different: int

    @property
    def exact(self) -> bool:
        """Whether nothing is lost and nothing is there twice."""
        return self.landed == self.rows == self.different

    def __str__(self) -> str:
        """
        >>> print(OrderCount(3, 3, 3))
        3 orders landed; enriched_orders has 3 rows with 3 different order_ids: nothing lost, nothing twice
        >>> print(OrderCount(3, 3, 2))
        3 orders landed; enriched_orders has 3 rows with 2 different order_ids: 1 lost, 1 more than once
        """
        lost, more = self.landed - self.different, self.rows - self.different
        found = "nothing lost, nothing twice" if self.exact else f"{lost} lost, {more} more than once"
        there = f"{TABLE} has {self.rows} rows with {self.different} different order_ids"
        return f"{self.landed} orders landed; {there}: {found}"

    def as_json(self) -> dict[str, int]:
        """The object that `freshline demo --once --json` prints."""
        return {"landed": self.landed, "rows": self.rows, "different": self.different}


def count_orders(client: EngineClient, landed: int, progress: Progress) -> OrderCount:
    """Count the rows of the table as it is now. Raises CommandError and EngineError."""
    statement = f"SELECT count(*) AS orders, count(DISTINCT order_id) AS different FROM {TABLE}"
    rows = [
        json.loads(row)
        for event in ask(client, "sql", progress, statement=statement, limit=1)
        if event["type"] == "rows"
        for row in event["rows"]
    ]
    return OrderCount(landed, int(rows[0]["orders"]), int(rows[0]["different"]))
