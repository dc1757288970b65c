"""The values by which the lag of tables is measured, from their logs and from the checks of the control store.

`freshline.freshness.lag` does the rest. Only reads, and without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from freshline.commit.delta_log import Newest, newest_version, position_at, read_commit, read_newest, table_id
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.freshness.lag import LagFacts, is_newest
from freshline.freshness.record import Check, complete_until
from freshline.values.names import TableName
from freshline.values.position import TablePosition, position_from_json
from freshline.values.spec import Spec, TableSpec


def lag_facts_at(
    spec: Spec, driving: tuple[TableName, ...], check: Check | None, newest: Newest, path: Path, now: datetime
) -> LagFacts:
    """The known positions and times of a table or source whose newest version is `newest`."""
    receipt = newest.receipt
    if spec.is_read_in_place:
        # The check says what the source had then; no refresh has read yet what it has now.
        position = None if check is None else position_from_json(check.known)
        at_check = position if isinstance(position, TablePosition) else None
        return LagFacts(at_check, None if check is None else check.data_timestamp)
    return LagFacts(
        # Opening a log only for its id takes ten times as long as all the rest.
        position_at(newest.table_id or table_id(path), newest.version, receipt),
        complete_until(receipt, check, now),
        # With temporal filters a table is as old as the time that it was compared with, whatever its inputs are.
        () if isinstance(spec, TableSpec) and spec.is_temporal else driving,
        {} if receipt is None or receipt.is_partial else receipt.positions,
    )


def read_lag_facts(
    graph: Graph, warehouse: Warehouse, names: Iterable[TableName], checks: Mapping[TableName, Check], now: datetime
) -> dict[TableName, LagFacts]:
    """The known positions and times of these tables and sources; those without a version are left out.

    `checks` were read before. Tables are read before their inputs, as `freshline.freshness.lag` asks for.
    """
    wanted = set(names)
    found: dict[TableName, LagFacts] = {}
    for name in reversed(graph.order):
        if name in wanted:
            path = warehouse.location(graph.specs[name])
            newest = read_newest(path)
            if newest is not None:
                found[name] = lag_facts_at(graph.specs[name], graph.driving(name), checks.get(name), newest, path, now)
    return found


def with_superseded(
    graph: Graph, warehouse: Warehouse, held: Mapping[TableName, LagFacts], checks: Mapping[TableName, Check]
) -> dict[TableName, LagFacts]:
    """The same, with the time until which each version that a table has reached was the newest one of its input."""

    def until(name: TableName, reached: TablePosition) -> datetime | None:
        spec = graph.specs[name]
        if spec.is_read_in_place:
            check = checks.get(name)
            return None if check is None else check.until(reached)
        return superseded_at(warehouse.location(spec), reached)

    def with_its(table: LagFacts) -> LagFacts:
        behind = {
            name: reached
            for name in table.driving
            if isinstance(reached := table.reached.get(name), TablePosition)
            and name in held
            and not is_newest(reached, held[name].newest)
        }
        stamps = {name: stamp for name, reached in behind.items() if (stamp := until(name, reached)) is not None}
        return replace(table, superseded=stamps) if stamps else table

    return {name: with_its(table) for name, table in held.items()}


def superseded_at(path: Path, position: TablePosition) -> datetime | None:
    """The time up to which a version of a log or table had everything that its roots had, by what came after it.

    None where nothing came after it, or where that does not say so.
    """
    try:
        return _superseded_at(path, position)
    except LookupError:
        return None


# The commit after a version never changes, and status is asked for every second. That there is none yet is not kept.
@lru_cache(maxsize=8_192)
def _superseded_at(path: Path, position: TablePosition) -> datetime | None:
    newest = newest_version(path)
    for version in range(position.version + 1, 1 + (-1 if newest is None else newest)):
        commit = read_commit(path, version)
        receipt = None if commit is None else commit.receipt
        if commit is None:
            return None
        if receipt is not None and not receipt.maintenance and receipt.seq != position.seq:
            return receipt.data_timestamp_before
    raise LookupError
