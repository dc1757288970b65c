"""Pinning: each input of a refresh at one version, once; nothing newer is seen afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from freshline.attempt.runtime import Runtime
from freshline.commit.control_store import Check
from freshline.commit.delta_log import (
    newest_version,
    position_at,
    read_newest,
    read_receipts,
    receipt_at,
    table_id,
)
from freshline.declare.names import TableName
from freshline.declare.spec import SourceSpec, Spec, TableSpec
from freshline.errors import RefreshError, SourceError
from freshline.plan.cut import Candidate, choose_agreeing
from freshline.plan.position import Position, TablePosition
from freshline.plan.receipt import Receipt
from freshline.refresh.inputs import Pinned

# How far back versions are looked at for a cut on which inputs agree.
MOST_CANDIDATES = 100


class NoVersionError(RefreshError):
    """An input has no version yet: refresh it first."""

    code = "NO_VERSION"
    retry_helps = True


@dataclass(frozen=True)
class Pins:
    """The inputs of one refresh.

    `data_timestamp` is the time up to which everything that the driving inputs had is in the pinned versions; `cut` are
    the root positions behind them; `mixed` names roots that the driving inputs saw differently far and could not be
    brought to agree on.
    """

    inputs: Mapping[TableName, Pinned]
    data_timestamp: datetime
    cut: Mapping[str, Mapping[str, Any]]
    mixed: tuple[str, ...] = ()

    @property
    def positions(self) -> dict[TableName, Position]:
        return {name: pinned.position for name, pinned in self.inputs.items()}


def pin_inputs(runtime: Runtime, spec: TableSpec, base: Mapping[TableName, Position]) -> Pins:
    """Pin the newest version of every input, older ones where driving inputs must agree on a root that they share.

    `base` are the positions that the table has read already; nothing is pinned before them. The time of an input is
    read before its version, so that the version holds at least everything up to that time.
    """
    inputs: dict[TableName, Pinned] = {}
    stamps: dict[TableName, datetime] = {}
    cuts: dict[TableName, Mapping[str, Mapping[str, Any]]] = {}
    checks = runtime.control.checks()
    for name in spec.reads:
        upstream = runtime.graph.spec(name)
        path = runtime.warehouse.location(upstream)
        now = runtime.clock()
        version = newest_version(path)
        if version is None:
            if isinstance(upstream, SourceSpec) and not upstream.is_log:
                raise SourceError(
                    f"there is no Delta table at {path}. Write it, or correct `path`.", where=str(upstream.written_at)
                )
            raise NoVersionError(
                f"{name}, which it reads, has no version yet. Refresh {name} first.", where=str(spec.name)
            )
        receipt = receipt_at(path, version)
        position = position_at(table_id(path), version, receipt)
        is_log = isinstance(upstream, SourceSpec) and upstream.is_log
        # Other inputs are read by their version alone.
        inputs[name] = Pinned(upstream, path, position, is_newest=is_log and _is_all_ours(path, version))
        cuts[name] = _cut(upstream, position, receipt)
        stamps[name] = _stamp(upstream, checks.get(name), receipt, now)
        if isinstance(upstream, SourceSpec) and not upstream.is_log:
            runtime.control.record_check(name, now, json.dumps(position.as_json()))
    mixed = _agree(spec, inputs, cuts, stamps, base)
    cut: dict[str, Mapping[str, Any]] = {}
    for name, roots in cuts.items():
        if name in spec.driving:
            for root, where in roots.items():
                # Where two inputs saw one root differently, the older sight is what the result can promise.
                cut[root] = _older(cut[root], where) if root in cut else where
    driving = [stamps[name] for name in spec.driving if name not in spec.non_driving]
    return Pins(inputs, min(driving) if driving else runtime.clock(), cut, mixed)


def _is_all_ours(path: Path, version: int) -> bool:
    """Whether this is the newest version still, and nobody else changed rows since its receipt."""
    newest = read_newest(path)
    return newest is not None and newest.version == version and not newest.foreign


def _stamp(upstream: Spec, check: Check | None, receipt: Receipt | None, now: datetime) -> datetime:
    """The time up to which everything that an input's roots had is in its newest version."""
    if isinstance(upstream, SourceSpec) and not upstream.is_log:
        return now
    known = [] if receipt is None or receipt.data_timestamp is None else [receipt.data_timestamp]
    if check is not None and (receipt is not None or isinstance(upstream, SourceSpec)) and check.is_of(receipt):
        known.append(check.data_timestamp)
    return max(known) if known else datetime.fromtimestamp(0, now.tzinfo)


def _cut(upstream: Spec, position: TablePosition, receipt: Receipt | None) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(upstream, SourceSpec):
        return {} if receipt is None else receipt.cut
    if upstream.is_log:
        return {str(upstream.name): {"table_id": position.table_id, "seq": position.seq or 0}}
    return {str(upstream.name): {"table_id": position.table_id, "version": position.version}}


def _agree(
    spec: TableSpec,
    inputs: dict[TableName, Pinned],
    cuts: dict[TableName, Mapping[str, Mapping[str, Any]]],
    stamps: dict[TableName, datetime],
    base: Mapping[TableName, Position],
) -> tuple[str, ...]:
    """Take older versions of driving inputs that are ahead on a shared root; returns the roots left in disagreement."""
    names = list(spec.driving)
    roots = [root for name in names for root in cuts[name]]
    shared = {root for root in roots if roots.count(root) > 1}
    apart = {root for root in shared if len({_seen(cuts[name][root]) for name in names if root in cuts[name]}) > 1}
    if not apart:
        return ()
    candidates = {name: _candidates(inputs[name], cuts[name], shared, base.get(name), cuts.values()) for name in names}
    chosen = choose_agreeing(candidates)
    if chosen is None:
        return tuple(sorted(apart))
    for name, candidate in chosen.items():
        if candidate.position == inputs[name].position:
            continue
        pinned = inputs[name]
        inputs[name] = Pinned(pinned.spec, pinned.path, candidate.position)
        receipt = receipt_at(pinned.path, candidate.position.version)
        if pinned.is_log:
            cuts[name] = {str(name): {"table_id": candidate.position.table_id, "seq": candidate.position.seq or 0}}
        elif receipt is not None:
            cuts[name] = receipt.cut
        if receipt is not None and receipt.data_timestamp is not None:
            stamps[name] = receipt.data_timestamp
    return ()


def _candidates(
    pinned: Pinned,
    cut: Mapping[str, Mapping[str, Any]],
    shared: set[str],
    base: Position | None,
    others: Iterable[Mapping[str, Mapping[str, Any]]],
) -> list[Candidate]:
    """The versions of one input, newest first, down to what the table has read of it."""
    newest = Candidate(pinned.position, {root: _seen(where) for root, where in cut.items() if root in shared})
    found = [newest]
    floor = base.version if isinstance(base, TablePosition) else 0
    if isinstance(pinned.spec, SourceSpec) and not pinned.is_log:
        # A table that is read in place can be read at any version that another input saw.
        root = str(pinned.name)
        seen = {_seen(roots[root]) for roots in others if root in roots}
        earlier = sorted((version for version in seen if floor <= version < pinned.position.version), reverse=True)
        identity = pinned.position.table_id
        return [newest, *(Candidate(TablePosition(identity, version), {root: version}) for version in earlier)]
    for version, receipt in islice(read_receipts(pinned.path, since=floor), MOST_CANDIDATES):
        if receipt.restored is not None:
            # What was before it was taken back, or is what it holds.
            break
        if receipt.seq == pinned.position.seq:
            continue
        where = {str(pinned.name): receipt.seq} if pinned.is_log else {r: _seen(w) for r, w in receipt.cut.items()}
        found.append(
            Candidate(
                position_at(pinned.position.table_id, version, receipt),
                {root: seen for root, seen in where.items() if root in shared},
            )
        )
    return found


def _seen(where: Mapping[str, Any]) -> int:
    return int(where["seq"] if "seq" in where else where["version"])


def _older(left: Mapping[str, Any], right: Mapping[str, Any]) -> Mapping[str, Any]:
    return left if _seen(left) <= _seen(right) else right


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
