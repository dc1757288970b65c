"""Walking through the shards of a stream, page by page, from positions on.

The end of a page is remembered, so that the next request needs no other one before it. This memory is valid for
minutes. Then, and in a new process, the newest record that was read is read again. If it is still there, nothing can
have expired behind it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime

from freshline.compute.cancellation import Cancellation
from freshline.errors import BrokerError
from freshline.sources.kinesis.aggregates import UserRecord, user_records
from freshline.sources.kinesis.client import IteratorExpiredError, KinesisClient, KinesisRecord, Page, SequenceGoneError
from freshline.sources.kinesis.connector import ALL, Kinesis
from freshline.sources.kinesis.position import ShardPosition
from freshline.sources.kinesis.rows import RecordRows, ShardRecord
from freshline.sources.kinesis.shards import StreamState, is_at_edge, milliseconds_of, require_unbroken
from freshline.sources.starting import EARLIEST

# Where a page ended is valid for 5 minutes.
VALID_SECONDS = 240.0
# In the place of an iterator, where there is none yet.
_NOT_YET = ""


@dataclass(frozen=True)
class _Cursor:
    """The place of the next page of a shard, behind the record `sequence`.

    `iterator` is None at the end of a closed shard.
    """

    iterator: str | None
    sequence: str
    made_at: float


class Walk:
    """Reads shards of one stream, in one thread at a time."""

    def __init__(self, declared: Kinesis, client: KinesisClient, where: str) -> None:
        self._declared, self._client, self._where = declared, client, where
        self._cursors: dict[str, _Cursor] = {}
        self._of: tuple[str, str] = ("", "")
        # The newest answer: a stream may be read for longer than its records are kept.
        self._now = 0

    def begin(self, state: StreamState, starting: str) -> None:
        """Say which stream is read, and where its shards begin that nothing was read of.

        The memory of another stream is forgotten.
        """
        if self._of != (state.identity, starting):
            self._cursors.clear()
            self._of = (state.identity, starting)

    def quiet_until(self, state: StreamState, name: str, at: ShardPosition, cancellation: Cancellation) -> int | None:
        """Up to when a shard has nothing behind a position; None where it has records, or is at its end."""
        while True:
            page = self._page(state, name, at, cancellation, 1)
            if page.records and is_at_edge(state, page.behind_ms):
                self._cursors.pop(name, None)
            if page.records or page.following is None:
                return None
            self._remember(name, page.following, at.sequence)
            if page.is_last:
                return page.now

    def read(
        self,
        state: StreamState,
        name: str,
        at: ShardPosition,
        rows: RecordRows,
        cancellation: Cancellation,
        until: str = "",
    ) -> tuple[ShardPosition, bool]:
        """Add the next page of a shard to rows, up to the record `until` where one is named.

        Returns the position behind it, and whether there was nothing more. Raises OSError where the disk is full.
        """
        page = self._page(state, name, at, cancellation)
        shard, sequence, arrived, number = state.shards[name], at.sequence, at.arrived, at.records
        is_there = False
        for record in page.records:
            for each in user_records(record, shard, all_keys=self._declared.user_records == ALL):
                rows.add(_row(record, each, name, number))
                number += 1
            sequence, arrived = record.sequence, record.arrived
            if is_there := sequence == until:
                break
        after = replace(at, sequence=sequence, arrived=arrived, records=number)
        if is_there:
            return after, True
        if page.following is None or is_at_edge(state, page.behind_ms):
            # Where records are about to expire, each page is found again behind the record before it.
            self._cursors.pop(name, None)
        else:
            self._remember(name, page.following, sequence)
        if page.following is None:
            # The service does not say when it was closed. Shards made from it may have had records since the last one.
            return replace(after, until=_later(at.until, arrived), is_closed=True), True
        return replace(after, until=page.now if page.is_last else _later(at.until, arrived)), page.is_last

    def _page(
        self, state: StreamState, name: str, at: ShardPosition, cancellation: Cancellation, most: int | None = None
    ) -> Page:
        if not at.sequence and self._is_to_come(state):
            return Page((), _NOT_YET, 0, state.now, is_full=False)
        for _ in range(3):
            iterator = self._iterator(state, name, at, cancellation)
            if iterator is None:
                return Page((), None, 0, state.now, is_full=False)
            try:
                return self._asked(iterator, cancellation, most)
            except IteratorExpiredError:
                self._cursors.pop(name, None)
        raise BrokerError(
            f"the service takes no iterator of shard {name} that it gave. Nothing was read; it is tried again.",
            where=self._where,
        )

    def _asked(self, iterator: str, cancellation: Cancellation, most: int | None) -> Page:
        page = self._client.page(iterator, cancellation, most)
        self._now = max(self._now, page.now)
        return page

    def _is_to_come(self, state: StreamState) -> bool:
        """Whether reading begins at a time that is still to come, which the service does not take."""
        starting = self._of[1]
        return starting != EARLIEST and milliseconds_of(datetime.fromisoformat(starting)) > state.now

    def _remember(self, name: str, iterator: str | None, sequence: str) -> None:
        if iterator == _NOT_YET:
            return
        self._cursors[name] = _Cursor(iterator, sequence, time.monotonic())

    def _iterator(self, state: StreamState, name: str, at: ShardPosition, cancellation: Cancellation) -> str | None:
        known = self._cursors.get(name)
        if known is None or known.sequence != at.sequence or time.monotonic() - known.made_at > VALID_SECONDS:
            self._remember(name, self._behind(state, name, at, cancellation), at.sequence)
        return self._cursors[name].iterator

    def _behind(self, state: StreamState, name: str, at: ShardPosition, cancellation: Cancellation) -> str | None:
        """The iterator of the first record behind a position. Raises OffsetsLostError."""
        if at.sequence:
            try:
                page = self._first(name, at.sequence, cancellation)
            except SequenceGoneError:
                page = None
            if page is not None and page.records and page.records[0].sequence == at.sequence:
                return page.following
        today = replace(state, now=max(state.now, self._now))
        require_unbroken(self._declared, today, name, at, where=self._where)
        starting = self._of[1]
        if at.sequence or starting == EARLIEST:
            return self._client.iterator(name, cancellation, "TRIM_HORIZON")
        moment = datetime.fromisoformat(starting)
        return self._client.iterator(name, cancellation, "AT_TIMESTAMP", Timestamp=moment)

    def _first(self, name: str, sequence: str, cancellation: Cancellation) -> Page:
        """The first record from a number on. Raises SequenceGoneError."""
        begin = self._client.iterator(name, cancellation, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=sequence)
        page = self._asked(begin, cancellation, 1)
        while not page.records and not page.is_last and page.following is not None:
            page = self._asked(page.following, cancellation, 1)
        return page


def _later(first: int | None, second: int | None) -> int | None:
    known = [time for time in (first, second) if time is not None]
    return max(known) if known else None


def _row(record: KinesisRecord, each: UserRecord, shard: str, number: int) -> ShardRecord:
    # A key may have half of a character in it, which no column can.
    key = each.key.encode("utf-8", "backslashreplace").decode("utf-8")
    arrived = None if record.arrived is None else record.arrived * 1000
    return ShardRecord(each.data, number, shard, record.sequence, each.sub_sequence, key, arrived, each.verdict)
