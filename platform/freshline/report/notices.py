"""The notices for a scheduler's UI of tables that are refreshed without a run of its own.

The UI keeps every event for ever, so notices are rare: a change is reported at once, else each table in its turn. The
time of a turn follows from the clock and the table's name alone; only what is out of order has to be remembered.
Everything here comes from the arguments; no clock and no storage is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from zlib import crc32

from freshline.report.status import TableStatus
from freshline.values.names import TableName

FORMAT = 1
LEAST_SECONDS = 60.0
CHECK_SECONDS = 3600.0
# One event a second on average; a turn is as long as that needs.
EVENTS_AN_HOUR = 3600
EVENTS_A_TICK = 100
# So many tables have their turn with the table that drives them; more would fill a tick.
MOST_TOGETHER = 50
# Better news waits this long after the last, so that a table that fails now and then, or is at the edge of its promise,
# does not fill the log.
_CALM = timedelta(seconds=60)


class TableUpkeep(StrEnum):
    """How a table is kept."""

    KEPT = "KEPT"
    EMPTY = "EMPTY"  # never refreshed
    FAILED = "FAILED"
    BLOCKED = "BLOCKED"
    PAUSED = "PAUSED"
    SUSPENDED = "SUSPENDED"


class Punctuality(IntEnum):
    """The lag compared with the promise; the greater the worse."""

    UNKNOWN = 0  # no data yet
    PASS = 1
    WARN = 2
    FAIL = 3


class NoticeKind(StrEnum):
    """The event that a notice reports."""

    MATERIALIZED = "materialized"  # the table is kept; its data moved on
    OBSERVED = "observed"  # it is kept in another way than before
    CHECKED = "checked"  # how its lag stands to the promise


@dataclass(frozen=True)
class Notice:
    """One event for one table. The refreshes that ended after `since`, up to `until`, belong to it and to no other."""

    table: TableName
    kind: NoticeKind
    standing: TableUpkeep
    punctuality: Punctuality
    since: datetime
    until: datetime


@dataclass(frozen=True)
class KnownNotice:
    """The newest report of a table that is not as it should be, or was not a minute ago."""

    standing: TableUpkeep = TableUpkeep.KEPT
    punctuality: Punctuality = Punctuality.PASS
    at: datetime | None = None


@dataclass(frozen=True)
class Memory:
    """The memory that one check leaves to the next; `at` is None before the first.

    `record` is the newest record of the control store that was read. `hour` is the current hour (as hours since 1970),
    and `events` the number of notices in it.
    """

    at: datetime | None = None
    record: int | None = None
    known: Mapping[TableName, KnownNotice] = field(default_factory=dict)
    hour: int = 0
    events: int = 0

    def to_json(self) -> str:
        """A text for the cursor of a sensor; short, because every tick keeps one."""
        return json.dumps(
            {
                "format": FORMAT,
                "at": None if self.at is None else self.at.timestamp(),
                "record": self.record,
                "known": {
                    str(name): [one.standing, int(one.punctuality), None if one.at is None else int(one.at.timestamp())]
                    for name, one in self.known.items()
                },
                "told": [self.hour, self.events],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str | None) -> Memory:
        """The memory that was written; an empty one where it cannot be read: then everything is reported again."""
        try:
            value = json.loads(text or "")
            if value["format"] != FORMAT:
                return cls()
            return cls(
                None if value["at"] is None else datetime.fromtimestamp(value["at"], UTC),
                value["record"],
                {
                    TableName.parse(name): KnownNotice(
                        TableUpkeep(standing),
                        Punctuality(punctuality),
                        None if at is None else datetime.fromtimestamp(at, UTC),
                    )
                    for name, (standing, punctuality, at) in value["known"].items()
                },
                int(value["told"][0]),
                int(value["told"][1]),
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            return cls()


def turn_seconds(freshness_seconds: float, tables: int) -> float:
    """How long a table's turn is: `max(60 s, freshness / 2)`, and at least a second for each table that is reported.

    >>> turn_seconds(10, 10), turn_seconds(300, 10), turn_seconds(10, 1000)
    (60.0, 150.0, 1000.0)
    """
    return max(LEAST_SECONDS, freshness_seconds / 2, tables * 3600.0 / EVENTS_AN_HOUR)


def silence_seconds(freshness_seconds: float, tables: int) -> float:
    """After how long without a materialization a table is late beyond doubt: its freshness and two turns."""
    return freshness_seconds + 2 * turn_seconds(freshness_seconds, tables)


def punctuality(lag_seconds: float | None, freshness_seconds: float) -> Punctuality:
    """WARN beyond the freshness, FAIL beyond twice of it.

    >>> [punctuality(lag, 10).name for lag in (None, 10.0, 10.1, 20.1)]
    ['UNKNOWN', 'PASS', 'WARN', 'FAIL']
    """
    if lag_seconds is None:
        return Punctuality.UNKNOWN
    if lag_seconds <= freshness_seconds:
        return Punctuality.PASS
    return Punctuality.WARN if lag_seconds <= 2 * freshness_seconds else Punctuality.FAIL


def turn_start(name: TableName, seconds: float, at: datetime) -> datetime:
    """When the turn of this table began in which `at` is; tables have their turns at different moments."""
    phase = seconds * (crc32(str(name).lower().encode()) % 10_000) / 10_000
    return datetime.fromtimestamp(math.floor((at.timestamp() - phase) / seconds) * seconds + phase, UTC)


def find_leads(
    turns: Mapping[TableName, float], driving: Mapping[TableName, Sequence[TableName]]
) -> dict[TableName, TableName]:
    """The table with which each has its turn: the first that drives it and has turns as long, or itself.

    `driving` is in the order of the graph. Reported together, a table and its inputs are of one moment.

    >>> a, b, c = map(TableName.parse, "abc")
    >>> leads = find_leads({a: 60.0, b: 60.0, c: 90.0}, {a: [], b: [a], c: [b]})
    >>> {str(name): str(lead) for name, lead in leads.items()}
    {'a': 'a', 'b': 'a', 'c': 'c'}
    """
    leads: dict[TableName, TableName] = {}
    counts: dict[TableName, int] = {}
    for name, inputs in driving.items():
        if name not in turns:
            continue
        alike = (leads[each] for each in inputs if each in leads and turns[each] == turns[name])
        lead = next((each for each in alike if counts[each] < MOST_TOGETHER), name)
        leads[name] = lead
        counts[lead] = counts.get(lead, 0) + 1
    return leads


def is_turn(name: TableName, seconds: float, last: datetime | None, now: datetime) -> bool:
    """Whether another turn of this table began after `last`."""
    # Not "later": after a clock was set back, waiting for the old time would be a long silence.
    return last is None or turn_start(name, seconds, last) != turn_start(name, seconds, now)


def standing(status: TableStatus, left_alone: Mapping[TableName, TableUpkeep]) -> TableUpkeep:
    """How a table is kept; `left_alone` are those that a person or a switch keeps from being refreshed."""
    if status.table in left_alone:
        return left_alone[status.table]
    if status.error is not None or status.state == "FAILED":
        return TableUpkeep.FAILED
    if status.state == "BLOCKED":
        return TableUpkeep.BLOCKED
    return TableUpkeep.EMPTY if status.version is None else TableUpkeep.KEPT


def decide_notices(
    statuses: Sequence[TableStatus],
    turns: Mapping[TableName, float],
    left_alone: Mapping[TableName, TableUpkeep],
    memory: Memory,
    now: datetime,
    told_otherwise: Callable[[TableStatus], bool] = lambda status: False,
    leads: Mapping[TableName, TableName] | None = None,
) -> tuple[list[Notice], Memory]:
    """The notices at `now`, the most important first, and the memory for the next check.

    `turns` has the length of the turn, in seconds, of each table whose refreshes are reported. Of the others only their
    standing and their checks are reported, and a refresh for which `told_otherwise` says no. A table has its turn with
    the one that `leads` names. Sources that are read in place have no promise, and the caller leaves them out.
    """
    hour = int(now.timestamp() // 3600)
    found: list[tuple[int, Notice]] = []
    known: dict[TableName, KnownNotice] = {}
    for status in statuses:
        turn = turns.get(status.table)
        lead = (leads or {}).get(status.table, status.table)
        seen = _Seen(status, standing(status, left_alone), turn, lead, memory, now)
        if (told := seen.kept(told_otherwise)) is not None:
            found.append(told)
        if (told := seen.checked()) is not None:
            found.append(told)
        known[status.table] = seen.known
    spent = memory.events if memory.hour == hour else 0
    room = max(0, min(EVENTS_A_TICK, EVENTS_AN_HOUR - spent))
    found.sort(key=lambda each: each[0])
    for _, notice in found[room:]:
        # The next check finds a change again that was not reported.
        last, left = memory.known.get(notice.table, KnownNotice()), known[notice.table]
        if notice.kind is NoticeKind.CHECKED:
            known[notice.table] = replace(left, punctuality=last.punctuality, at=last.at)
        else:
            known[notice.table] = replace(left, standing=last.standing, at=last.at)
    kept = {name: one for name, one in known.items() if not _is_forgotten(one, now)}
    notices = [notice for _, notice in found[:room]]
    return notices, Memory(now, memory.record, kept, hour, spent + len(notices))


def told_too(
    notices: Sequence[Notice], memory: Memory, tables: Sequence[TableName], now: datetime
) -> tuple[list[Notice], Memory]:
    """The notices, and those of the tables that are reported too, as far as there is room in this tick and hour.

    No refresh belongs to these: it is counted in the turn of its table.
    """
    room = max(0, min(EVENTS_A_TICK - len(notices), EVENTS_AN_HOUR - memory.events))
    more = [
        Notice(table, NoticeKind.MATERIALIZED, TableUpkeep.KEPT, Punctuality.PASS, now, now) for table in tables[:room]
    ]
    return [*notices, *more], replace(memory, events=memory.events + len(more))


class _Seen:
    """One table at one check, beside its newest report; `known` is to be remembered if all of it is reported.

    Notices come with their rank: 0 for a change, 1 for a check that became worse, 2 and 3 for those that can wait.
    """

    def __init__(
        self,
        status: TableStatus,
        standing: TableUpkeep,
        turn: float | None,
        lead: TableName,
        memory: Memory,
        now: datetime,
    ) -> None:
        self.known = self._last = memory.known.get(status.table, KnownNotice())
        self._status = status
        self._standing = standing
        self._punctuality = punctuality(status.lag_seconds, status.freshness_seconds)
        self._turn = turn
        self._lead = lead
        self._before = memory.at
        self._now = now

    def kept(self, told_otherwise: Callable[[TableStatus], bool]) -> tuple[int, Notice] | None:
        """The notice of how the table is kept, if there is one, with its rank."""
        kept = self._standing is TableUpkeep.KEPT
        if self._standing is not self._last.standing:
            if kept and self._last.standing is not TableUpkeep.EMPTY and not self._calm:
                return None
            self.known = replace(self.known, standing=self._standing, at=self._now)
            # Of a table that has never had data there is nothing to report; a run reports its own refresh.
            if self._standing is TableUpkeep.EMPTY or (kept and self._turn is None):
                return None
            return 0, self._notice(NoticeKind.MATERIALIZED if kept else NoticeKind.OBSERVED)
        if not kept:
            return None
        if self._turn is not None:
            return self._in_turn(self._turn)
        if self._just_refreshed() and not told_otherwise(self._status):
            return 2, self._notice(NoticeKind.MATERIALIZED)
        return None

    def _in_turn(self, turn: float) -> tuple[int, Notice] | None:
        if not (is_turn(self._lead, turn, self._before, self._now) and self._moves_on(turn)):
            return None
        until = turn_start(self._lead, turn, self._now)
        since = until - timedelta(seconds=turn)
        if self._before is not None:
            # After a longer silence, all that happened in it.
            since = min(since, turn_start(self._lead, turn, self._before))
        return 2, replace(self._notice(NoticeKind.MATERIALIZED), since=since, until=until)

    def checked(self) -> tuple[int, Notice] | None:
        """The notice of its lag, if there is one, with its rank."""
        last, now = self._last, self._now
        if self._punctuality is Punctuality.UNKNOWN:
            self.known = replace(self.known, punctuality=Punctuality.UNKNOWN)
            return None
        worse = self._punctuality > last.punctuality
        if worse or (self._punctuality < last.punctuality and self._calm):
            self.known = replace(self.known, punctuality=self._punctuality, at=now)
            return 1 if worse else 2, self._notice(NoticeKind.CHECKED)
        if is_turn(self._status.table, max(CHECK_SECONDS, self._turn or 0.0), self._before, now):
            return 3, self._notice(NoticeKind.CHECKED)
        if self._turn is None and self._just_refreshed():
            # Dagster shows no check that is older than what a run materialized.
            return 2, self._notice(NoticeKind.CHECKED)
        return None

    @property
    def _calm(self) -> bool:
        """Whether the last change is a while ago."""
        at = self._last.at
        return at is None or not timedelta(0) <= self._now - at < _CALM

    def _notice(self, kind: NoticeKind) -> Notice:
        return Notice(self._status.table, kind, self._standing, self._punctuality, self._now, self._now)

    def _moves_on(self, turn: float) -> bool:
        """Whether its lag is about what was promised, or it was refreshed within this turn."""
        status = self._status
        if status.lag_seconds is not None and status.lag_seconds <= status.freshness_seconds + turn:
            return True
        return status.last_refresh is not None and self._now - status.last_refresh.at <= timedelta(seconds=turn)

    def _just_refreshed(self) -> bool:
        """Whether it was refreshed about a minute ago: by then a run that did it has reported it itself."""
        last = self._status.last_refresh
        if self._before is None or last is None or self._status.state != "SUCCEEDED":
            return False
        return self._before - _CALM < last.at <= self._now - _CALM


def _is_forgotten(known: KnownNotice, now: datetime) -> bool:
    """Whether a table is as it should be, and was so for a while."""
    normal = known.standing is TableUpkeep.KEPT and known.punctuality is Punctuality.PASS
    return normal and (known.at is None or not timedelta(0) <= now - known.at < _CALM)


def why_late(status: TableStatus, statuses: Mapping[TableName, TableStatus], driving: Collection[TableName]) -> str:
    """One sentence about what keeps a table from its promise."""
    if status.error is not None:
        return f"{status.error.get('code', 'FAILED')}: {status.error.get('message', 'its refresh failed')}"
    late = [name for name in driving if name in statuses and statuses[name].late]
    if late:
        return f"what drives it is late: {', '.join(str(name) for name in late)}"
    if status.version is None:
        return "it was never refreshed"
    return "it was not refreshed in time"
