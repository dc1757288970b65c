"""Pinning: each input of a refresh at one version, once; nothing newer is seen afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from freshline.commit.delta_log import newest_version, position_at, read_newest, read_receipts, receipt_at, table_id
from freshline.commit.lag_reading import read_lag_facts, superseded_at, with_superseded
from freshline.compute.inputs import Pinned
from freshline.errors import RefreshError, SourceError
from freshline.freshness.lag import LagFacts, data_timestamps, is_newest, newest_stamp
from freshline.freshness.record import Check, complete_until
from freshline.plan.cut import (
    Candidate,
    Root,
    RootPositions,
    ahead_of,
    choose_agreeing,
    cut_of,
    greatest_of,
    least_of,
    seen_of,
)
from freshline.refresh.answers import store_of
from freshline.refresh.runtime import Runtime
from freshline.values.names import TableName
from freshline.values.position import Position, TablePosition
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec, Spec, TableSpec

# How far back versions of a table are read for a cut on which inputs agree.
MOST_CANDIDATES = 1_000


# The place of a cut that is followed among the inputs that agree: no table has such a name.
_FOLLOWED = TableName(None, "")
# From this part of its promise on, the inputs that a late table below waits for are helped.
_WAITS_FROM = 0.5


class NoVersionError(RefreshError):
    """An input has no version yet: refresh it first."""

    code = "NO_VERSION"
    retry_helps = True


@dataclass(frozen=True)
class Pins:
    """The inputs of one refresh.

    `data_timestamp` is the time up to which everything that the driving inputs had is in the pinned versions, and
    `before` that of the table before this refresh, None where it had nothing. `cut` are the root positions behind the
    inputs, and `ahead` those roots of which some of the rows saw more than that, with the most. `mixed` names roots
    that the driving inputs saw differently far and could not be brought to agree on.
    """

    inputs: Mapping[TableName, Pinned]
    data_timestamp: datetime
    cut: RootPositions
    ahead: RootPositions = field(default_factory=dict)
    mixed: tuple[str, ...] = ()
    before: datetime | None = None

    @property
    def positions(self) -> dict[TableName, Position]:
        return {name: pinned.position for name, pinned in self.inputs.items()}


@dataclass(frozen=True)
class _Sight:
    """An input at one version: its rows, what they saw of the roots, and the time up to which that is everything."""

    pinned: Pinned
    cut: RootPositions
    ahead: RootPositions
    stamp: datetime


def pin_inputs(
    runtime: Runtime,
    spec: TableSpec,
    base: Mapping[TableName, Position],
    own: datetime | None = None,
    *,
    followed: Iterable[RootPositions] = (),
) -> Pins:
    """Pin the newest version of every input, older ones where driving inputs must agree on a root that they share.

    `base` are the positions that the table has read already; nothing is pinned before them. `own` is its data timestamp
    by its newest receipt and check. `followed` are cuts of other tables: the first one that its inputs can agree with
    is taken instead of the newest versions (`cuts_to_follow`). The time of an input is read before its version, so that
    the version has at least everything up to that time. Raises NoVersionError for an input that nothing was read into
    yet.
    """
    checks = runtime.control.checks()
    newest = {name: _newest(runtime, spec, name, checks.get(name), known=name in base) for name in spec.reads}
    newest, before = _with_times(runtime, spec, newest, checks, _own(spec, base, own))
    sights, mixed = _agree(runtime, spec, newest, base, checks, followed)
    driving = [sights[name] for name in _strict(spec)]
    cut = least_of(sight.cut for sight in driving)
    ahead = ahead_of(cut, greatest_of(roots for sight in driving for roots in (sight.cut, sight.ahead)))
    stamp = min((sight.stamp for sight in driving), default=runtime.clock())
    inputs = {name: sight.pinned for name, sight in sights.items()}
    # Versions only gain rows: what was true of the table before stays true.
    stamp = newest_stamp([stamp] if before is None else [stamp, before], runtime.clock()) or stamp
    return Pins(inputs, stamp, cut, ahead, mixed, before)


def cuts_to_follow(runtime: Runtime, spec: TableSpec, receipt: Receipt | None) -> list[RootPositions]:
    """Cuts of tables that a table below needs together with this one, where it finds no versions that agree; newest
    first.

    Two tables of one source that changes all the time are refreshed at different moments, each at the newest version of
    then, and may never have seen the same of it. So where a table below that reads both is about to break its promise,
    a refresh by the loops goes as far as the other one has, if that is further than it was.
    """
    if receipt is None:
        return []
    found: dict[TableName, tuple[datetime, RootPositions]] = {}
    late: dict[TableName, bool] = {}
    checks, now = runtime.control.checks(), runtime.clock()
    above = set(runtime.graph.upstream(spec.name)) | set(runtime.graph.downstream(spec.name))
    for below, other in runtime.graph.meetings(spec.name):
        if other in above or other in found:
            continue
        if below not in late:
            late[below] = _waits(runtime, below, checks.get(below), now)
        newest = read_newest(runtime.warehouse.path(other)) if late[below] else None
        if newest is None or newest.receipt is None or newest.receipt.cut_ahead:
            continue
        shared = {root: where for root, where in newest.receipt.cut.items() if root in receipt.cut}
        further = [seen_of(where) - seen_of(receipt.cut[root]) for root, where in shared.items()]
        if newest.receipt.data_timestamp is not None and further and min(further) >= 0 and max(further) > 0:
            found[other] = newest.receipt.data_timestamp, shared
    return [cut for _, cut in sorted(found.values(), key=lambda each: each[0], reverse=True)]


def _waits(runtime: Runtime, name: TableName, check: Check | None, now: datetime) -> bool:
    """Whether a table is near to breaking its promise, by its newest receipt and check."""
    newest = read_newest(runtime.warehouse.path(name))
    if newest is None or newest.receipt is None:
        return False
    stamp = _stamp(runtime.graph.spec(name), check, newest.receipt, now)
    return (now - stamp).total_seconds() > _WAITS_FROM * runtime.graph.freshness(name).seconds


def _own(spec: TableSpec, base: Mapping[TableName, Position], own: datetime | None) -> LagFacts:
    """The facts known of a table that is refreshed. One without a data timestamp has partitions at most."""
    driving = () if spec.is_temporal else _strict(spec)
    return LagFacts(TablePosition("", 0), own, driving, {} if own is None else base)


def _with_times(
    runtime: Runtime,
    spec: TableSpec,
    newest: Mapping[TableName, _Sight],
    checks: Mapping[TableName, Check],
    own: LagFacts,
) -> tuple[dict[TableName, _Sight], datetime | None]:
    """The inputs with the times up to which they have everything, and that of the table itself as `own` describes it.

    An input that nobody checked is as new as its own inputs, where it has the newest of them.
    """
    graph, warehouse, now = runtime.graph, runtime.warehouse, runtime.clock()
    tables = [name for name in newest if not _is_root(newest[name].pinned.spec)]
    above = {other for name in tables for other in graph.driving_upstream(name)}
    held = read_lag_facts(graph, warehouse, above | set(tables), checks, now)
    for name, sight in newest.items():
        if _is_root(sight.pinned.spec):
            held[name] = LagFacts(sight.pinned.position, sight.stamp)
    held[spec.name] = own
    stamps = data_timestamps(with_superseded(graph, warehouse, held, checks))
    found = {}
    for name, sight in newest.items():
        stamp = stamps.get(name)
        # It may have a newer version by now, and what is true of that one is not of the pinned one.
        is_pinned = name in held and is_newest(sight.pinned.position, held[name].newest)
        found[name] = replace(sight, stamp=stamp) if stamp is not None and is_pinned else sight
    return found, stamps[spec.name]


def _strict(spec: TableSpec) -> tuple[TableName, ...]:
    """The inputs that must agree, and that the lag is measured by."""
    return tuple(name for name in spec.driving if name not in spec.non_driving)


def _newest(runtime: Runtime, spec: TableSpec, name: TableName, check: Check | None, *, known: bool) -> _Sight:
    """An input at its newest version; `known` says that the table has read it before."""
    upstream = runtime.graph.spec(name)
    path = runtime.warehouse.location(upstream)
    now = runtime.clock()
    if isinstance(upstream, SourceSpec) and upstream.is_lookup:
        # It has nothing until it is asked, which is no reason to wait for it.
        return _Sight(Pinned(upstream, path, store_of(runtime, upstream).position()), {}, {}, now)
    version = newest_version(path)
    if version is None and _is_root(upstream) and not _is_log(upstream):
        raise SourceError(
            f"there is no Delta table at {path}. Write it, or correct `path`.", where=str(upstream.written_at)
        )
    receipt = None if version is None else receipt_at(path, version)
    if version is None or not (known or _was_read(upstream, receipt, check)):
        raise NoVersionError(f"{name}, which it reads, has no version yet. Refresh {name} first.", where=str(spec.name))
    position = position_at(table_id(path), version, receipt)
    is_log = _is_log(upstream)
    # Other inputs are read by their version alone.
    pinned = Pinned(upstream, path, position, is_newest=is_log and _is_all_ours(path, version))
    stamp = _stamp(upstream, check, receipt, now)
    if _is_root(upstream) and not is_log:
        runtime.control.record_source_check(name, now, position)
    cut, ahead = _saw(upstream, position, receipt)
    return _Sight(pinned, cut, ahead, stamp)


def _is_root(upstream: Spec) -> bool:
    return isinstance(upstream, SourceSpec)


def _is_log(upstream: Spec) -> bool:
    return isinstance(upstream, SourceSpec) and upstream.is_log


def _was_read(upstream: Spec, receipt: Receipt | None, check: Check | None) -> bool:
    """Whether an input has what its own inputs had at some time: the empty table that CREATE makes has nothing.

    A log whose source had nothing yet has no receipt, only the check of it.
    """
    if receipt is not None or (_is_root(upstream) and not _is_log(upstream)):
        return True
    return _is_log(upstream) and check is not None and check.is_of(None)


def _is_all_ours(path: Path, version: int) -> bool:
    """Whether this is the newest version still, and nobody else changed rows since its receipt."""
    newest = read_newest(path)
    return newest is not None and newest.version == version and not newest.foreign


def _stamp(upstream: Spec, check: Check | None, receipt: Receipt | None, now: datetime) -> datetime:
    """The time up to which everything that an input's roots had is in its newest version, as it says itself."""
    if upstream.is_read_in_place:
        return now
    nothing_yet = datetime.fromtimestamp(0, now.tzinfo)
    if receipt is None and not isinstance(upstream, SourceSpec):
        return nothing_yet
    return complete_until(receipt, check, now) or nothing_yet


def _saw(upstream: Spec, position: TablePosition, receipt: Receipt | None) -> tuple[RootPositions, RootPositions]:
    """The cut of a version of an input, and the roots of which some of its rows saw more."""
    if not isinstance(upstream, SourceSpec):
        return ({}, {}) if receipt is None else (receipt.cut, receipt.cut_ahead)
    if upstream.is_log:
        return {str(upstream.name): {"table_id": position.table_id, "seq": position.seq or 0}}, {}
    return {str(upstream.name): {"table_id": position.table_id, "version": position.version}}, {}


def _agree(
    runtime: Runtime,
    spec: TableSpec,
    newest: Mapping[TableName, _Sight],
    base: Mapping[TableName, Position],
    checks: Mapping[TableName, Check],
    followed: Iterable[RootPositions],
) -> tuple[Mapping[TableName, _Sight], tuple[str, ...]]:
    """Older versions of inputs that are ahead on a root that they share; also the roots left in disagreement.

    An input that does not drive is delayed by none and delays none: it is read at its newest version that is not ahead
    of the others.
    """
    names = _strict(spec)
    shared = _shared(newest[name].cut for name in names)
    sights = dict(newest)
    ids = _ids(runtime, shared, newest)
    apart = {root for root in shared if not _is_one(root, [newest[name] for name in names], ids)}
    chosen = next((found for cut in followed if (found := _choose(names, newest, shared, ids, base, cut))), None)
    if apart or chosen:
        chosen = chosen or _choose(names, newest, shared, ids, base)
        if chosen is None:
            return sights, tuple(sorted(apart))
        sights |= _at(names, newest, chosen, checks)
    agreed = cut_of(least_of(sights[name].cut for name in names))
    for name in spec.driving:
        if name not in names:
            sights[name] = _not_ahead(newest[name], agreed, base.get(name), checks)
    return sights, ()


def _shared(cuts: Iterable[RootPositions]) -> frozenset[str]:
    """The roots that two or more of these inputs are fed by."""
    roots = [root for cut in cuts for root in cut]
    return frozenset(root for root in roots if roots.count(root) > 1)


def _ids(runtime: Runtime, shared: frozenset[str], newest: Mapping[TableName, _Sight]) -> Mapping[str, str]:
    """The ids of the shared roots as they are now, where inputs saw different ones: one was replaced since."""
    found: dict[str, str] = {}
    for root in shared:
        seen = {sight.cut[root].get("table_id") for sight in newest.values() if root in sight.cut} - {None}
        name = TableName.parse(root)
        if len(seen) > 1 and name in runtime.graph:
            found[root] = table_id(runtime.warehouse.location(runtime.graph.spec(name)))
    return found


def _is_one(root: str, sights: Iterable[_Sight], ids: Mapping[str, str]) -> bool:
    """Whether all of these inputs that are fed by a root saw the same of it."""
    of_root = [sight for sight in sights if root in sight.cut]
    if root in ids or any(root in sight.ahead for sight in of_root):
        return False
    return len({seen_of(sight.cut[root]) for sight in of_root}) == 1


def _choose(
    names: Iterable[TableName],
    newest: Mapping[TableName, _Sight],
    shared: frozenset[str],
    ids: Mapping[str, str],
    base: Mapping[TableName, Position],
    followed: RootPositions | None = None,
) -> dict[TableName, Candidate] | None:
    """The newest versions that agree, with `followed` on that cut too; None where there are none."""
    tables: dict[TableName, Iterable[Candidate]] = {}
    roots: dict[TableName, Root] = {}
    if followed is not None:
        shared |= frozenset(followed)
        tables[_FOLLOWED] = [Candidate(TablePosition("", 0), cut_of(followed))]
    for name in names:
        sight = newest[name]
        first = _candidate(sight.pinned.position, sight.cut, sight.ahead, shared, ids)
        if not _is_root(sight.pinned.spec):
            tables[name] = _versions(sight, first, shared, ids, _floor(base.get(name)))
        elif first.cut:
            roots[name] = Root(first, _least(base.get(name), log=sight.pinned.is_log))
        else:
            tables[name] = [first]
    chosen = choose_agreeing(tables, roots)
    return None if chosen is None else {name: each for name, each in chosen.items() if name != _FOLLOWED}


def _candidate(
    position: TablePosition,
    cut: RootPositions,
    ahead: RootPositions,
    shared: frozenset[str],
    ids: Mapping[str, str],
) -> Candidate:
    """A version as far as the shared roots go; it agrees with none about a root that was replaced since."""
    others = [root for root in shared if root in cut and root in ids and cut[root].get("table_id") != ids[root]]
    uneven = frozenset(root for root in (*ahead, *others) if root in shared)
    return Candidate(position, {root: seen for root, seen in cut_of(cut).items() if root in shared}, uneven)


def _floor(base: Position | None) -> int:
    return base.version if isinstance(base, TablePosition) else 0


def _least(base: Position | None, *, log: bool) -> int:
    """How far a table has read a source that is its input."""
    if not isinstance(base, TablePosition):
        return 0
    return (base.seq or 0) if log else base.version


def _versions(
    sight: _Sight, first: Candidate, shared: frozenset[str], ids: Mapping[str, str], floor: int
) -> Iterator[Candidate]:
    """The versions of an input that is a table, newest first, down to what the reader has read of it."""
    yield first
    pinned, seq = sight.pinned, sight.pinned.position.seq
    for version, receipt in islice(read_receipts(pinned.path, since=floor), MOST_CANDIDATES):
        if receipt.seq != seq:
            seq = receipt.seq
            position = position_at(pinned.position.table_id, version, receipt)
            yield _candidate(position, receipt.cut, receipt.cut_ahead, shared, ids)
        if receipt.restored is not None:
            # A restore took back the versions before it, or brought one of them back.
            return
    # The reader's own version may be a commit of maintenance, which carries the receipt of one before it.
    carried = receipt_at(pinned.path, floor) if floor else None
    if carried is not None and carried.seq != seq:
        position = position_at(pinned.position.table_id, floor, carried)
        yield _candidate(position, carried.cut, carried.cut_ahead, shared, ids)


def _at(
    names: Iterable[TableName],
    newest: Mapping[TableName, _Sight],
    chosen: Mapping[TableName, Candidate],
    checks: Mapping[TableName, Check],
) -> dict[TableName, _Sight]:
    """The inputs at the versions that were chosen."""
    found: dict[TableName, _Sight] = {}
    tables = [name for name in names if not _is_root(newest[name].pinned.spec)]
    for name in tables:
        sight, position = newest[name], chosen[name].position
        if position != sight.pinned.position:
            path = sight.pinned.path
            receipt = receipt_at(path, position.version)
            assert receipt is not None
            stamp = _latest([receipt.data_timestamp, superseded_at(path, position)], sight.stamp)
            sight = _Sight(Pinned(sight.pinned.spec, path, position), receipt.cut, receipt.cut_ahead, stamp)
        found[name] = sight
    for name in names:
        if name not in found:
            (root,) = newest[name].cut
            seen = chosen[name].cut.get(root, seen_of(newest[name].cut[root]))
            saw_it = [found[other].stamp for other in tables if root in found[other].cut]
            found[name] = _source_at(newest[name], root, seen, saw_it, checks.get(name))
    return found


def _source_at(newest: _Sight, root: str, seen: int, saw_it: Iterable[datetime], check: Check | None) -> _Sight:
    """A source that is an input itself, at the position that the tables above it saw.

    `saw_it` are their data timestamps: they found everything there when this position was the newest one.
    """
    if seen == seen_of(newest.cut[root]):
        return newest
    pinned = newest.pinned
    if pinned.is_log:
        position, receipt = _batch_at(pinned, seen)
        stamps = [None if receipt is None else receipt.data_timestamp, superseded_at(pinned.path, position)]
        where = {"table_id": position.table_id, "seq": seen}
    else:
        position = TablePosition(pinned.position.table_id, seen)
        stamps = [None if check is None else check.until(position)]
        where = {"table_id": position.table_id, "version": seen}
    stamp = _latest([*stamps, *saw_it], newest.stamp)
    return _Sight(Pinned(pinned.spec, pinned.path, position), {root: where}, {}, stamp)


def _latest(stamps: Iterable[datetime | None], newest: datetime) -> datetime:
    """The latest of the times that are known of an older version; none is later than that of the newest one."""
    known = [stamp for stamp in stamps if stamp is not None]
    return min(newest, max(known, default=datetime.fromtimestamp(0, newest.tzinfo)))


def _batch_at(pinned: Pinned, seq: int) -> tuple[TablePosition, Receipt | None]:
    """The position of a log after a batch, and its receipt; where its commit is gone, its rows have their numbers."""
    for version, receipt in read_receipts(pinned.path):
        if receipt.seq == seq:
            return position_at(pinned.position.table_id, version, receipt), receipt
        if receipt.seq < seq:
            break
    return replace(pinned.position, seq=seq, epoch=None), None


def _not_ahead(
    newest: _Sight, agreed: Mapping[str, int], base: Position | None, checks: Mapping[TableName, Check]
) -> _Sight:
    """An input that does not drive, at its newest version that saw no more of a root than the driving ones."""

    def is_ahead(candidate: Candidate) -> bool:
        return bool(candidate.uneven) or any(seen > agreed[root] for root, seen in candidate.cut.items())

    shared = frozenset(agreed) & frozenset(newest.cut)
    first = _candidate(newest.pinned.position, newest.cut, newest.ahead, shared, {})
    if not is_ahead(first):
        return newest
    if _is_root(newest.pinned.spec):
        (root,) = newest.cut
        least = _least(base, log=newest.pinned.is_log)
        return _source_at(newest, root, max(agreed[root], least), [], checks.get(newest.pinned.name))
    for candidate in _versions(newest, first, shared, {}, _floor(base)):
        if not is_ahead(candidate):
            name = newest.pinned.name
            return _at([name], {name: newest}, {name: candidate}, checks)[name]
    # Every version that is known is ahead of them.
    return newest


def pin_at(runtime: Runtime, spec: TableSpec, positions: Mapping[TableName, Position]) -> dict[TableName, Pinned]:
    """The inputs at the positions of a receipt. Raises SourceError where a table is no longer the one that was read."""
    inputs = {}
    for name in spec.reads:
        upstream = runtime.graph.spec(name)
        path = runtime.warehouse.location(upstream)
        position = positions.get(name)
        newest = read_newest(path)
        if newest is None or not isinstance(position, TablePosition):
            raise SourceError(f"{name} has no version at the position of the receipt", where=str(spec.name))
        if table_id(path) != position.table_id:
            raise SourceError(f"{name} is another table than the one that was read", where=str(spec.name))
        inputs[name] = Pinned(upstream, path, position)
    return inputs
