"""The input of alerts: the state of every table, and whether those who keep it are heard of. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

from freshline.declare.graph import Graph
from freshline.freshness.intentions import Suspension
from freshline.report.alerts.history import NOTHING, Arrivals, Failing
from freshline.report.status import TableStatus
from freshline.values.names import TableName
from freshline.values.spec import Mode, SourceSpec

ENGINE = "engine"
SCHEDULER = "scheduler"


@dataclass(frozen=True)
class TableCondition:
    """The state of one table or source.

    `warn_after` and `fail_after` are lags in seconds. `first_seen` is when it was first checked without having
    data; None where it has. `promised_at` is when its freshness became as short as it is, None where it always was.
    `driving` are the inputs that count in its lag. `unreadable` is the error of reading its log, as a JSON object.
    `infeasible` says why its freshness cannot be kept, None where it can or nobody knows. `late_share` and
    `watermark_after` are those declared of a source. Its `watermark` moved last at `watermark_moved_at`, and
    `watermark_held_by` keeps it back. `retained_bytes` is what the system outside keeps for a source, and
    `retained_above` the limit of that. `stands_still` says why refreshes do not help a late table whose inputs are all
    newer, empty for any other.
    """

    name: TableName
    mode: Mode
    freshness_seconds: int
    warn_after: int
    fail_after: int
    data_timestamp: datetime | None
    first_seen: datetime | None = None
    promised_at: datetime | None = None
    is_source: bool = False
    driving: tuple[TableName, ...] = ()
    suspension: Suspension | None = None
    unreadable: Mapping[str, Any] | None = None
    infeasible: str | None = None
    refresh_seconds: float | None = None
    failing: Failing | None = None
    arrivals: Arrivals = NOTHING
    late_share: float | None = None
    watermark_after: int | None = None
    watermark: datetime | None = None
    watermark_moved_at: datetime | None = None
    watermark_held_by: tuple[str, ...] = ()
    retained_bytes: int | None = None
    retained_above: int | None = None
    stands_still: str = ""

    @property
    def reported_from(self) -> datetime | None:
        """From when on it may be reported late: a promise that was just made shorter cannot have been broken before."""
        since = self.late_since
        if since is None or self.promised_at is None:
            return since
        return max(since, self.promised_at + timedelta(seconds=self.warn_after))

    @property
    def late_since(self) -> datetime | None:
        """When its lag passes `warn_after`, past or to come; None where nothing is known to count from."""
        begin = self.data_timestamp or self.first_seen
        return None if begin is None else begin + timedelta(seconds=self.warn_after)


class Voice(StrEnum):
    """Whether a process is heard of."""

    ABSENT = "absent"  # none is expected: never started, or ended in order
    HEARD = "heard"
    SILENT = "silent"
    UNKNOWN = "unknown"  # its last words are there, and whether more follow is yet to be seen


@dataclass(frozen=True)
class WatchedProcess:
    """A process that must not fall silent; of a silent one, when it was last heard of and a sentence."""

    voice: Voice = Voice.ABSENT
    since: datetime | None = None
    cause: str = ""


@dataclass(frozen=True)
class CatalogCondition:
    """A catalog that is not where the tables are, since when, and why; `refused` where it needs a person."""

    name: str
    since: datetime
    cause: str
    refused: bool = False


@dataclass(frozen=True)
class AlertSituation:
    """Everything that an evaluation reads. `standings` are in the order of the graph.

    `switched_off` are the modes whose sensor somebody switched off in Dagster. A breach that began before
    `catching_up_since` is left to the engine to mend and not reported yet; None: each is reported. `read_at` is when
    the logs were read, if that was before now: nobody knows then how late a table is by now.
    """

    standings: Mapping[TableName, TableCondition]
    engine: WatchedProcess = WatchedProcess(Voice.HEARD)
    scheduler: WatchedProcess = WatchedProcess()
    switched_off: frozenset[Mode] = field(default_factory=frozenset)
    catching_up_since: datetime | None = None
    read_at: datetime | None = None
    catalogs: tuple[CatalogCondition, ...] = ()

    @cached_property
    def places(self) -> Mapping[TableName, int]:
        """The place of each table in the order of the graph."""
        return {name: place for place, name in enumerate(self.standings)}


def lag_limits(freshness: int, warn_after: int | None, fail_after: int | None) -> tuple[int, int]:
    """The lags in seconds above which a table warns and fails, from what is declared.

    >>> lag_limits(60, None, None), lag_limits(60, 300, None), lag_limits(60, None, 30)
    ((60, 120), (300, 300), (30, 30))
    """
    if warn_after is None:
        warn_after = freshness if fail_after is None else min(freshness, fail_after)
    if fail_after is None:
        fail_after = max(2 * freshness, warn_after)
    return warn_after, fail_after


def table_standing(graph: Graph, status: TableStatus) -> TableCondition:
    """The standing of one table by the graph and its status; the caller fills in the rest."""
    spec = graph.specs[status.table]
    warn, fail = lag_limits(status.freshness_seconds, spec.warn_after_seconds, spec.fail_after_seconds)
    return TableCondition(
        name=status.table,
        mode=Mode(status.mode),
        freshness_seconds=status.freshness_seconds,
        warn_after=warn,
        fail_after=fail,
        data_timestamp=status.data_timestamp,
        driving=graph.driving(status.table),
        is_source=isinstance(spec, SourceSpec),
        unreadable=status.error if status.unreadable else None,
        infeasible=status.feasible_reason if status.feasible is False else None,
        refresh_seconds=None if status.last_refresh is None else status.last_refresh.seconds,
        late_share=spec.late_share if isinstance(spec, SourceSpec) else None,
        watermark_after=spec.watermark_after_seconds if isinstance(spec, SourceSpec) else None,
        watermark=status.watermark,
        watermark_moved_at=status.watermark_moved_at,
        watermark_held_by=status.watermark_held_by,
        retained_bytes=status.retained_bytes,
        stands_still=status.stands_still,
        retained_above=spec.connection.retained_above if isinstance(spec, SourceSpec) else None,
    )


def moment_text(time: datetime) -> str:
    """A moment as alerts show it, in UTC to the second."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
