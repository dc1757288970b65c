"""The records of a stream of Kinesis: what its shards have and the log has not.

An inspection asks each open shard for one record. The service knows no end of a shard that is open, so a shard is read
until it has nothing more, or until a batch is full; the position names the newest record that was read of each. Shards
that came from others begin in a later commit than the one that closed those. Nothing is written to the stream, and
nothing else keeps a position there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, ClassVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import RECORD
from freshline.errors import (
    FreshlineError,
    OffsetsLostError,
    RequestError,
    SourceError,
    StreamReplacedError,
)
from freshline.sources.kinesis.client import KinesisClient
from freshline.sources.kinesis.connector import SHARD, Kinesis
from freshline.sources.kinesis.position import KinesisPosition, ShardPosition
from freshline.sources.kinesis.rows import RecordRows
from freshline.sources.kinesis.shards import (
    StreamState,
    continued,
    next_shards,
    open_shards,
    renewal_is_due,
    with_readable,
    without_moments,
)
from freshline.sources.kinesis.walk import VALID_SECONDS, Walk
from freshline.sources.prepare import note_undeclared
from freshline.sources.reader import SMALL_ROWS, Group, Host, Inspection, Portion, ReadRequest, Records, Tail
from freshline.sources.spill import SpillingReader
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec

# So many records, or so many bytes of them, are one commit, and a page more.
BATCH_RECORDS, BATCH_BYTES = 200_000, 512 * 1024 * 1024
# A union read has the tail in memory.
MOST_TAIL_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class KinesisInspection(Inspection):
    """The stream, where reading goes on in it, and the shards that have something new."""

    before: KinesisPosition | None = None
    state: StreamState | None = None
    start: KinesisPosition | None = None
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class KinesisPortion(Portion):
    """Shards of a stream from a position on. `rows` are there once it is prepared."""

    state: StreamState | None = None
    shards: tuple[str, ...] = ()
    rows: RecordRows | None = None


class KinesisReader(SpillingReader[KinesisInspection, KinesisPortion]):
    """Reads every record that the stream has now."""

    has_tail: ClassVar[bool] = True

    def __init__(self, spec: SourceSpec, host: Host) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.connection, Kinesis)
        self._kinesis = spec.connection
        self._client = KinesisClient(self._kinesis, self.secret, self.where)
        self._walk = Walk(self._kinesis, self._client, self.where)
        # Of the newest inspection: the shards that were checked, and those of them that have more to read.
        self._seen: set[str] = set()
        self._unread: tuple[str, ...] = ()
        self._idle: tuple[StreamState, float] | None = None
        self._clean = True

    # -- inspecting

    def inspect(self, position: KinesisPosition | None, asked: ReadRequest) -> KinesisInspection:
        at = self.host.clock()
        # An inspection that fails remembers nothing.
        known, self._idle = self._idle, None
        state, start = self._begin(position, asked.cancellation, known)
        quiet = {
            name: self._walk.quiet_until(state, name, start.shards[name], asked.cancellation)
            for name in open_shards(start)
        }
        unread = tuple(name for name, until in quiet.items() if until is None)
        if unread and known is not None and position is not None:
            # A shard may have ended, and those that came from it are read, too.
            state, start = self._begin(position, asked.cancellation, None)
        # While no shard has anything new, none ends, and so there are no others.
        self._idle = None if unread else (state, time.monotonic())
        shards = {name: _quiet(shard, quiet.get(name)) for name, shard in start.shards.items()}
        start = replace(start, shards=shards)
        self._seen, self._unread = set(quiet), unread
        is_new = bool(unread) or position is None or _is_elsewhere(position, start) or renewal_is_due(state, position)
        return KinesisInspection(at, len(unread), is_new, before=position, state=state, start=start, unread=unread)

    def _begin(
        self, position: KinesisPosition | None, cancellation: Cancellation, known: tuple[StreamState, float] | None
    ) -> tuple[StreamState, KinesisPosition]:
        """The stream, and the position from which reading goes on.

        Its shards are those of `known`, an earlier state with its time, where these are still all.
        """
        state = None
        if known is not None and position is not None and time.monotonic() - known[1] < VALID_SECONDS:
            summary, before = self._client.summary(cancellation), known[0]
            if summary.identity == before.identity and before.shards.keys() >= set(open_shards(position)):
                state = replace(summary, shards=before.shards)
        state = state or self._client.describe(cancellation)
        start = continued(self._kinesis, state, position, where=self.where)
        self._walk.begin(state, start.starting)
        return state, start

    # -- cutting

    def cut(self, inspection: KinesisInspection, position: KinesisPosition | None) -> KinesisPortion | None:
        if not inspection.is_new:
            return None
        assert inspection.start is not None
        start, shards = inspection.start, inspection.unread
        if position != inspection.before:
            assert position is not None
            start, shards = position, self._unread
            if not shards:
                return None
        return KinesisPortion(
            position,
            start,
            inspection.at,
            0,
            f"reading {len(shards)} shards of stream {self._kinesis.stream}",
            state=inspection.state,
            shards=shards,
        )

    # -- reading

    def prepare(
        self, spark: SparkSession, portion: KinesisPortion, previous: Receipt | None, cancellation: Cancellation
    ) -> KinesisPortion:
        """Read the portion out of the stream, before it is known where it ends."""
        assert portion.state is not None
        rows, start = RecordRows(self.folder), _of(portion.after)
        with self.filling(rows):
            after, waiting = self._read(self._walk, portion.state, start, portion.shards, rows, cancellation)
        after = with_readable(portion.state, after)
        self._seen |= set(portion.shards)
        self._unread = (*waiting, *next_shards(portion.state, after, self._seen))
        if self._is_nothing(portion, after):
            return replace(portion, after=_of(portion.before), left=len(self._unread))
        is_all = not self._unread
        return replace(
            portion,
            after=after,
            at=portion.at if is_all else None if previous is None else previous.data_timestamp,
            left=len(self._unread),
            most_records=rows.count,
            small=not rows.is_spilled and rows.count <= SMALL_ROWS,
            clean=self._clean,
            rows=rows,
        )

    def _is_nothing(self, portion: KinesisPortion, after: KinesisPosition) -> bool:
        """Whether a portion leads to where the log is, with moments that need no commit."""
        before = portion.before
        if before is None or portion.state is None:
            return False
        return without_moments(after) == without_moments(_of(before)) and not renewal_is_due(portion.state, _of(before))

    def _read(
        self,
        walk: Walk,
        state: StreamState,
        start: KinesisPosition,
        names: Sequence[str],
        rows: RecordRows,
        cancellation: Cancellation,
        most_bytes: int | None = None,
    ) -> tuple[KinesisPosition, tuple[str, ...]]:
        """Read shards to their ends, or until it is enough; the position behind, and the shards that have more.

        A page of each comes before the next one of any, so that none is left behind.
        """
        shards, waiting = dict(start.shards), deque(names)
        enough = BATCH_BYTES if most_bytes is None else most_bytes
        try:
            while waiting and rows.count < BATCH_RECORDS and rows.bytes < enough:
                name = waiting.popleft()
                shards[name], is_all = walk.read(state, name, shards[name], rows, cancellation)
                if not is_all:
                    waiting.append(name)
            rows.finish()
        except OSError as error:
            raise self.no_room(error) from error
        return replace(start, shards=shards), tuple(waiting)

    def read(self, spark: SparkSession, portion: KinesisPortion) -> Records:
        assert portion.rows is not None
        return Records((Group(portion.rows.records(spark)),))

    def note_fields(
        self, portion: KinesisPortion, fields: Mapping[str, str]
    ) -> tuple[KinesisPortion, tuple[FreshlineError, ...]]:
        after = _of(portion.after)
        noted, problems = note_undeclared(after.undeclared, fields, is_first=portion.before is None, where=self.where)
        return replace(portion, after=replace(after, undeclared=noted)), problems

    def partitions(
        self, inspection: KinesisInspection, position: KinesisPosition | None, left: int
    ) -> Mapping[str, bool]:
        shards = inspection.start if position is None else position
        return {} if shards is None else {name: name in self._unread for name in open_shards(shards)}

    def confirm(self, portion: KinesisPortion, found: Mapping[str, int] | None) -> None:
        # Were the records those of a stream that was made anew meanwhile, their numbers would say nothing.
        after, state = _of(portion.after), self._client.summary(Cancellation())
        if (state.arn, state.created) != (after.arn, after.created):
            raise StreamReplacedError(
                f"stream {state.name} was deleted and made anew while it was read; nothing of it was committed.",
                where=self.where,
            )

    def release(self, portion: KinesisPortion, *, seconds: float, rejected: int) -> None:
        # Nothing is released: a stream keeps its records for everybody.
        self._clean = rejected == 0

    def waiting(self, left: int) -> str:
        return f"{left} shards have more"

    def close(self) -> None:
        self._client.close()

    # -- union read

    def find_tail(
        self, position: KinesisPosition, seq: int, asked: ReadRequest
    ) -> tuple[KinesisPosition, KinesisPosition]:
        state = self._client.describe(asked.cancellation)
        if (state.arn, state.created) != (position.arn, position.created):
            raise SourceError(
                f"stream {state.name} is not the one that was read. `freshline refresh {self.spec.name}` says more.",
                where=self.where,
            )
        start = continued(self._kinesis, state, position, where=self.where)
        walk = Walk(self._kinesis, self._client, self.where)
        walk.begin(state, start.starting)
        end, rows, seen = start, RecordRows(None), set[str]()
        # Shards that came from others follow those, as in refreshes.
        while names := next_shards(state, end, seen):
            seen |= set(names)
            end, waiting = self._read(walk, state, end, names, rows, asked.cancellation, MOST_TAIL_BYTES)
            if waiting:
                raise self._too_much()
            end = with_readable(state, end)
        return start, end

    def tail(
        self,
        spark: SparkSession,
        start: KinesisPosition,
        end: KinesisPosition,
        position: KinesisPosition | None,
        asked: ReadRequest,
    ) -> Tail:
        read = start if position is None else position
        if (read.arn, read.created) != (end.arn, end.created):
            raise StreamReplacedError(
                f"the token is of stream {end.arn}, and the log has gone on with another one. Read anew.",
                where=self.where,
            )
        between = _numbers(start, end)
        if not between:
            return Tail()
        if self.spec.primary_key:
            # Of two records with one key, the order of arrival decides which stays. So the tail of a source with a key
            # is judged as one batch each time, for as long as the stream has it.
            try:
                return Tail(unread=self._unread_between(start, end, asked))
            except OffsetsLostError:
                if not _numbers(start, read):
                    raise
        logged = [
            (F.col(SHARD) == name) & (F.col(RECORD) >= first) & (F.col(RECORD) < min(last, read.shards[name].records))
            for name, (first, last) in between.items()
            if name in read.shards and read.shards[name].records > first
        ]
        unread = self._unread_between(read, end, asked) if _numbers(read, end) else None
        return Tail(reduce(or_, logged) if logged else None, unread)

    def _unread_between(self, start: KinesisPosition, end: KinesisPosition, asked: ReadRequest) -> KinesisPortion:
        """The records between two positions, in memory. Raises RequestError for too many of them."""
        rows = RecordRows(None)
        state = self._client.describe(asked.cancellation)
        if (state.arn, state.created) != (end.arn, end.created):
            raise self._not_as_it_was(end)
        walk = Walk(self._kinesis, self._client, self.where)
        walk.begin(state, start.starting)
        for name in _numbers(start, end):
            if name not in state.shards:
                raise OffsetsLostError(
                    f"stream {state.name} has no shard {name} any more, of which a part was not in the log. Nothing "
                    "was read.",
                    where=self.where,
                )
            at, last = start.shards.get(name, ShardPosition(records=end.base)), end.shards[name]
            is_all = False
            while not is_all:
                if rows.bytes > MOST_TAIL_BYTES:
                    raise self._too_much()
                at, is_all = walk.read(state, name, at, rows, asked.cancellation, until=last.sequence)
            if (at.sequence, at.records) != (last.sequence, last.records):
                raise self._not_as_it_was(end)
        return KinesisPortion(start, end, None, 0, "", state=state, rows=rows)

    def _too_much(self) -> RequestError:
        return RequestError(
            f"union_read of {self.spec.name}: the stream has more unread records than a union read takes. Run "
            f"`freshline refresh {self.spec.name}` first."
        )

    def _not_as_it_was(self, end: KinesisPosition) -> StreamReplacedError:
        return StreamReplacedError(
            f"stream {end.arn} is not as it was when the token was made. Read anew.", where=self.where
        )


def _quiet(shard: ShardPosition, until: int | None) -> ShardPosition:
    """The position in a shard that had nothing more up to a moment, None for one that has."""
    return shard if until is None else replace(shard, until=until)


def _is_elsewhere(before: KinesisPosition, start: KinesisPosition) -> bool:
    """Whether reading goes on in other shards, or in another stream, than the newest receipt says."""
    return (before.arn, before.created, open_shards(before)) != (start.arn, start.created, open_shards(start))


def _numbers(start: KinesisPosition, end: KinesisPosition) -> dict[str, tuple[int, int]]:
    """The numbers of the rows between two positions of one stream by shard, from and up to."""
    found = {}
    for name, shard in end.shards.items():
        first = start.shards[name].records if name in start.shards else end.base
        if shard.records > first:
            found[name] = (first, shard.records)
    return found


def _of(position: Any) -> KinesisPosition:
    assert isinstance(position, KinesisPosition)
    return position
