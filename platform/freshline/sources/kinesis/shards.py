"""The shards of a stream that a log table reads next, and where each of them begins.

A description of the stream is compared with the position in the newest receipt. A shard is read once those are closed
that it was split or merged from, and in a later commit than their last records, so that the order of a key survives a
split. Records that should be there and are not are an error, because going on would lose rows unseen. Everything here
comes from the arguments: no service and no clock is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from freshline.errors import OffsetsLostError, ShardGoneError, StreamReplacedError
from freshline.sources.kinesis.connector import Kinesis
from freshline.sources.kinesis.position import KinesisPosition, ShardPosition
from freshline.sources.starting import EARLIEST, LATEST

# Times of arrival are approximate, and of several clocks.
SLACK_MS = 10 * 60 * 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# In `accept-gap` the number of a record where none was read.
NOTHING = "0"


@dataclass(frozen=True)
class Shard:
    """A shard that the stream lists. It has the keys whose hash is from `first_hash` up to and with `last_hash`."""

    name: str
    parents: tuple[str, ...] = ()
    first_hash: int = 0
    last_hash: int = 2**128 - 1


@dataclass(frozen=True)
class StreamState:
    """The state of a stream at one moment, `now`. Times are milliseconds since 1970 by the clock of the service."""

    name: str
    arn: str
    created: int
    retention_ms: int
    now: int
    shards: Mapping[str, Shard] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return identity_of(self.arn, self.created)

    @property
    def horizon(self) -> int:
        """Records that arrived before are gone."""
        return self.now - self.retention_ms


def identity_of(arn: str, created: int) -> str:
    """The text by which `accept-stream` names a stream.

    >>> identity_of("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", 1767225600250)
    'arn:aws:kinesis:eu-west-1:123456789012:stream/orders@2026-01-01T00:00:00.250Z'
    """
    return f"{arn}@{shown_moment(created)}"


def shown_moment(milliseconds: int) -> str:
    """A moment as it is shown, in UTC."""
    return moment_of(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_of(milliseconds: int) -> datetime:
    return _EPOCH + milliseconds * _MILLISECOND


def milliseconds_of(moment: datetime) -> int:
    """Milliseconds since 1970, of which a part is left out."""
    return (moment - _EPOCH) // _MILLISECOND


def continued(
    declared: Kinesis, state: StreamState, position: KinesisPosition | None, *, where: str
) -> KinesisPosition:
    """The position from which reading goes on, with all shards that may be read now.

    It has read what `position` has, None before the first batch. Raises StreamReplacedError and ShardGoneError.
    """
    if position is None:
        starting = declared.starting
        if starting == LATEST:
            starting = moment_of(state.now).isoformat()
        return _begun(state, KinesisPosition(state.arn, state.created, starting))
    if (position.arn, position.created) != (state.arn, state.created):
        return _begun(state, _accept_stream(declared, state, position, where))
    shards = _without_gone(declared, state, position, where)
    kept = _pruned(state, shards)
    forgotten = max([position.forgotten, *(shard.records for name, shard in shards.items() if name not in kept)])
    return with_readable(state, replace(position, shards=kept, forgotten=forgotten))


def _begun(state: StreamState, position: KinesisPosition) -> KinesisPosition:
    """The beginning of a stream that nothing was read of. Parents that it does not list any more were there before."""
    before = {parent for shard in state.shards.values() for parent in shard.parents if parent not in state.shards}
    gone = {name: ShardPosition(is_closed=True) for name in before}
    return with_readable(state, replace(position, shards=gone))


def _accept_stream(declared: Kinesis, state: StreamState, position: KinesisPosition, where: str) -> KinesisPosition:
    if declared.accepted_stream == state.identity:
        # Rows are numbered on, so that none has the place of another one: shards have the names of those of before.
        base = max([position.base, position.forgotten, *(shard.records for shard in position.shards.values())])
        return KinesisPosition(state.arn, state.created, EARLIEST, base, undeclared=position.undeclared)
    happened = "was deleted and made anew" if state.arn == position.arn else "is not the one that was read"
    raise StreamReplacedError(
        f"stream {state.name} {happened}: it is {state.identity}, and {identity_of(position.arn, position.created)} "
        "was read. The rows that are there stay. Nothing was read. Declare a source under a new name, or, to go on "
        f"with the records of this stream from its beginning, add 'accept-stream' = '{state.identity}'.",
        where=where,
    )


def _without_gone(
    declared: Kinesis, state: StreamState, position: KinesisPosition, where: str
) -> dict[str, ShardPosition]:
    """The shards of a position; those that are gone and accepted are closed."""
    shards = dict(position.shards)
    gone = {
        name: shard.sequence or NOTHING
        for name, shard in shards.items()
        if not shard.is_closed and name not in state.shards
    }
    unknown = {
        parent: NOTHING
        for name, shard in state.shards.items()
        if name not in shards
        for parent in shard.parents
        if parent not in shards and parent not in state.shards
    }
    lost = {
        name: sequence for name, sequence in {**gone, **unknown}.items() if not is_accepted(declared, name, sequence)
    }
    if lost:
        shown = gap_of(lost)
        name, sequence = min(lost.items())
        read = "nothing of it was read" if sequence == NOTHING else f"it was read up to {sequence}"
        raise ShardGoneError(
            f"stream {state.name} has no shard {name} any more, and {read}: its records expired before they were read. "
            "Nothing was read. Keep records longer (retention period). To go on without them, add "
            f"'accept-gap' = '{shown}'.",
            where=where,
        )
    for name in (*gone, *unknown):
        # Nothing is known any more of what came to the shards that were made from it.
        shards[name] = replace(shards.get(name, ShardPosition(records=position.base)), until=None, is_closed=True)
    return shards


def is_accepted(declared: Kinesis, shard: str, sequence: str) -> bool:
    """Whether the declaration accepts that records of a shard behind a number are gone."""
    return (shard, sequence or NOTHING) in declared.accepted_gaps


def gap_of(lost: Mapping[str, str]) -> str:
    """Numbers of records by shard, as `accept-gap` has them."""
    return ", ".join(f"{name}:{sequence}" for name, sequence in sorted(lost.items()))


def _pruned(state: StreamState, shards: Mapping[str, ShardPosition]) -> dict[str, ShardPosition]:
    """Closed shards are forgotten once neither the stream has them nor a shard that came from them."""
    needed = {parent for shard in state.shards.values() for parent in shard.parents} | state.shards.keys()
    return {name: shard for name, shard in shards.items() if not shard.is_closed or name in needed}


def with_readable(state: StreamState, position: KinesisPosition) -> KinesisPosition:
    """The position with those shards that may be read now, because the ones they came from are closed."""
    shards = dict(position.shards)
    for name, shard in state.shards.items():
        parents = [position.shards.get(parent) for parent in shard.parents]
        if name in shards or not all(parent is not None and parent.is_closed for parent in parents):
            continue
        times = [parent.until for parent in parents if parent is not None]
        # Nothing came to it before its parents were closed.
        known = [time for time in times if time is not None]
        until = min(known) if known and len(known) == len(times) else None
        if position.starting != EARLIEST:
            moment = milliseconds_of(datetime.fromisoformat(position.starting))
            # Records that expired before a source began are none of its own.
            until = max(moment, until or moment) if moment >= state.horizon else until
        shards[name] = ShardPosition(records=position.base, until=until)
    return replace(position, shards=shards)


def open_shards(position: KinesisPosition) -> tuple[str, ...]:
    """The shards of which there may be more, in an order that stays."""
    return tuple(name for name in sorted(position.shards) if not position.shards[name].is_closed)


def is_at_edge(state: StreamState, behind_ms: int) -> bool:
    """Whether records that are so far behind the newest ones may expire while they are read."""
    return behind_ms > state.retention_ms - 6 * SLACK_MS


def require_unbroken(declared: Kinesis, state: StreamState, name: str, shard: ShardPosition, *, where: str) -> None:
    """Raise an error unless nothing can be missing behind a position whose newest record is gone from its shard.

    A record that expired is no loss where everything was read that came until then.
    """
    if is_accepted(declared, name, shard.sequence):
        return
    shown = gap_of({name: shard.sequence or NOTHING})
    if shard.arrived is not None and shard.arrived > state.horizon + SLACK_MS:
        raise OffsetsLostError(
            f"stream {state.name}: record {shard.sequence} of shard {name} was read, and is gone before its time. "
            "Records behind it may be gone, too: the retention period was shorter meanwhile, or the stream lost its "
            f"newest records. Nothing was read. To go on with what the shard has, add 'accept-gap' = '{shown}'.",
            where=where,
        )
    if shard.until is not None and shard.until < state.horizon:
        raise OffsetsLostError(
            f"stream {state.name}: what came to shard {name} after {shown_moment(shard.until)} was not read, and "
            f"records expire after {state.retention_ms // 3_600_000} hours, so some may be lost. Nothing was read. "
            f"Keep records longer (retention period). To go on with what the shard has, add 'accept-gap' = '{shown}'.",
            where=where,
        )


def renewal_is_due(state: StreamState, position: KinesisPosition) -> bool:
    """Whether the moments in a position are so old that they are worth a commit, although nothing else is new.

    They distinguish a shard without new records from one whose records expired unread.
    """
    times = [shard.until for shard in position.shards.values() if not shard.is_closed and shard.until is not None]
    return any(time < state.now - state.retention_ms // 4 for time in times)


def without_moments(position: KinesisPosition) -> KinesisPosition:
    """The part of a position that is the same for all positions behind the same records."""
    return replace(position, shards={name: replace(shard, until=None) for name, shard in position.shards.items()})


def next_shards(state: StreamState, position: KinesisPosition, seen: Iterable[str]) -> tuple[str, ...]:
    """The shards that may be read and were not checked."""
    looked_at = set(seen)
    return tuple(name for name in open_shards(with_readable(state, position)) if name not in looked_at)
