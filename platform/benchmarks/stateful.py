"""Two tables that Structured Streaming makes with `transformWithState` by hand: a pattern, and records of a key.

Both depend on the order of a key's rows, and rows come late. So a processor keeps the rows that the watermark has not
passed yet, and hands them on by their time. `Records` without this base takes rows as they come, which is right only
where none is late.

The names of methods and arguments are Spark's. Its Python processes get these classes by value, because they do not
have this folder on their path.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

WITHIN_DAYS = 10
WITHIN = timedelta(days=WITHIN_DAYS)
FOUND = "k STRING, began TIMESTAMP, ended TIMESTAMP, n BIGINT"
RECORDS = "k STRING, id BIGINT, ts TIMESTAMP, v BIGINT"
# The same as freshline's users write it.
RECORDS_CLASS = f'''
import freshline


@freshline.process(reads="event", keys=["k"], order=["ts", "id"], columns="{RECORDS}")
class result:
    best: int = -1

    def row(self, row, out):
        if row.v > self.best:
            self.best = row.v
            out.emit(row.k, row.id, row.ts, row.v)
'''
Event = tuple[Any, ...]
Match = Row("k", "began", "ended", "n")
Record = Row("k", "id", "ts", "v")


class InOrder(StatefulProcessor):
    """Hands rows on in the order of time, as far as the watermark has come. A timer a key: its next check."""

    state: str

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.waiting = handle.getListState("waiting", "id BIGINT, ts TIMESTAMP, v BIGINT")
        self.timer = handle.getValueState("timer", "at BIGINT")
        self.kept = handle.getValueState("kept", self.state)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        new = [(row.id, row.ts, row.v) for row in rows]
        self.waiting.appendList(new)
        self._wake_at(min(_millis(ts) for _, ts, _ in new))
        return iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        passed = timerValues.getCurrentWatermarkInMs()
        rows = sorted(self.waiting.get(), key=lambda row: (row[1], row[0]))
        due = [row for row in rows if _millis(row[1]) <= passed]
        left = rows[len(due) :]
        if due and left:
            self.waiting.put(left)
        elif due:
            self.waiting.clear()
        found, wake = self.look(key[0], due, passed)
        self.timer.clear()
        for at in sorted([*([_millis(left[0][1])] if left else []), *([] if wake is None else [wake])])[:1]:
            self._wake_at(at)
        return iter(found)

    def close(self) -> None:
        """Nothing is open."""

    def look(self, key: str, rows: list[Event], passed: int) -> tuple[list[Row], int | None]:
        """The rows that follow from these rows, which are in order, and when to check again even without rows."""
        raise NotImplementedError

    def _wake_at(self, at: int) -> None:
        set_for = self.timer.get()
        if set_for is not None and set_for[0] <= at:
            return
        if set_for is not None:
            self.handle.deleteTimer(set_for[0])
        self.handle.registerTimer(at)
        self.timer.update((at,))


class Pattern(InOrder):
    """`A B+ C+` WITHIN ten days, SKIP PAST LAST ROW: a row, falls, and then rises."""

    state = "times ARRAY<TIMESTAMP>, last BIGINT, rises BOOLEAN"

    def look(self, key: str, rows: list[Event], passed: int) -> tuple[list[Row], int | None]:
        kept = self.kept.get()
        times, last, rises = ([], 0, False) if kept is None else (list(kept[0]), kept[1], kept[2])
        found: list[Row] = []
        for _, ts, v in rows:
            if rises and not (v > last and ts - times[0] < WITHIN):
                found.append(Match(key, times[0], times[-1], len(times)))
                times, rises = [], False
            while times and ts - times[0] >= WITHIN:
                # The match that began there fails. One that begins at the next fall may still end in time.
                times.pop(0)
            if times and (rises or v < last or (v > last and len(times) > 1)):
                rises = v > last
                times.append(ts)
            else:
                times = [ts]
            last = v
        if rises and _millis(times[0] + WITHIN) <= passed:
            found.append(Match(key, times[0], times[-1], len(times)))
            times, rises = [], False
        self.kept.update((times, last, rises))
        return found, _millis(times[0] + WITHIN) if rises else None


class Records(InOrder):
    """The rows of a key that are greater than all before them."""

    state = "best BIGINT"

    def look(self, key: str, rows: list[Event], passed: int) -> tuple[list[Row], int | None]:
        kept = self.kept.get()
        best = -1 if kept is None else kept[0]
        found: list[Row] = []
        for number, ts, v in rows:
            if v > best:
                best = v
                found.append(Record(key, number, ts, v))
        if found:
            self.kept.update((best,))
        return found, None


class RecordsAsTheyCome(StatefulProcessor):
    """`Records` of rows none of which is late: nothing waits, and there are no timers."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.kept = handle.getValueState("kept", "best BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        kept = self.kept.get()
        best = -1 if kept is None else kept[0]
        found = []
        for row in sorted(rows, key=lambda row: (row.ts, row.id)):
            if row.v > best:
                best = row.v
                found.append(Record(key[0], row.id, row.ts, row.v))
        if found:
            self.kept.update((best,))
        return iter(found)

    def close(self) -> None:
        """Nothing is open."""


def _millis(moment: datetime) -> int:
    """Milliseconds since 1970. Spark hands out times without a zone, in that of its Python process."""
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
