"""Pinning: each input of a refresh at one version, once; nothing newer is seen afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from freshline.commit.delta_log import newest_version, read_newest, receipt_at, table_id
from freshline.declare.names import TableName
from freshline.declare.spec import SourceSpec, TableSpec
from freshline.errors import RefreshError, SourceError
from freshline.plan.position import Position, TablePosition
from freshline.refresh.inputs import Pinned
from freshline.run.runtime import Runtime


class NoVersionError(RefreshError):
    """An input has no version yet: refresh it first."""

    code = "NO_VERSION"
    retry_helps = True


@dataclass(frozen=True)
class Pins:
    """The inputs of one refresh.

    `data_timestamp` is the time up to which everything that the driving inputs had is in the pinned versions; `cut` are
    the root positions behind them.
    """

    inputs: Mapping[TableName, Pinned]
    data_timestamp: datetime
    cut: Mapping[str, Mapping[str, Any]]

    @property
    def positions(self) -> dict[TableName, Position]:
        return {name: pinned.position for name, pinned in self.inputs.items()}


def pin_inputs(runtime: Runtime, spec: TableSpec) -> Pins:
    """Pin the newest version of every input.

    The time of an input is read before its version, so that the version holds at least everything up to that time.
    """
    inputs: dict[TableName, Pinned] = {}
    stamps: list[datetime] = []
    cut: dict[str, Mapping[str, Any]] = {}
    checks = runtime.control.checks()
    for name in spec.reads:
        upstream = runtime.graph.spec(name)
        path = runtime.warehouse.location(upstream)
        now = runtime.clock()
        check = checks.get(name)
        version = newest_version(path)
        if version is None:
            if isinstance(upstream, SourceSpec) and not upstream.is_log:
                raise SourceError(
                    f"there is no Delta table at {path}. Write it, or correct `path`.", where=str(upstream.written_at)
                )
            raise NoVersionError(f"{name}, which it reads, has no version yet. Refresh {name} first.", where=str(spec.name))
        receipt = receipt_at(path, version)
        identity = table_id(path)
        position = TablePosition(identity, version, None if receipt is None else receipt.seq)
        inputs[name] = Pinned(upstream, path, position)
        stamp = now
        if isinstance(upstream, SourceSpec) and not upstream.is_log:
            runtime.control.record_check(name, now, f'{{"version": {version}}}')
            cut[str(name)] = {"table_id": identity, "version": version}
        elif isinstance(upstream, SourceSpec):
            known = [t for t in (check and check.data_timestamp, receipt and receipt.data_timestamp) if t]
            stamp = max(known) if known else datetime.fromtimestamp(0, now.tzinfo)
            cut[str(name)] = {"table_id": identity, "seq": position.seq or 0}
        else:
            known = [t for t in (receipt and receipt.data_timestamp,) if t]
            if check is not None and receipt is not None and check.position == f'{{"seq": {receipt.seq}}}':
                known.append(check.data_timestamp)
            stamp = max(known) if known else datetime.fromtimestamp(0, now.tzinfo)
            if receipt is not None:
                for root, where in receipt.cut.items():
                    # Where two inputs saw one root differently, the older sight is what the result can promise.
                    cut[root] = _older(cut[root], where) if root in cut else where
        if name in spec.driving and name not in spec.non_driving:
            stamps.append(stamp)
    return Pins(inputs, min(stamps) if stamps else runtime.clock(), cut)


def _older(left: Mapping[str, Any], right: Mapping[str, Any]) -> Mapping[str, Any]:
    key = "seq" if "seq" in left else "version"
    return left if left.get(key, 0) <= right.get(key, 0) else right


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
