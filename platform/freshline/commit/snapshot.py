"""The newest set of versions of all tables that agree on what they saw of the sources.

Tables of different freshness have read different amounts at any moment; a query over several of them compares yesterday
with now. Here older versions of those that are ahead are taken, until all that share a root saw the same of it. Only
reads, and without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from freshline.commit.delta_log import newest_version, position_at, read_newest, read_receipts, table_id
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.declare.names import TableName
from freshline.declare.spec import SourceSpec
from freshline.errors import ReadError
from freshline.plan.cut import Candidate, choose_agreeing
from freshline.plan.position import TablePosition

# How many versions of a table are looked at.
MOST_CANDIDATES = 1000


@dataclass(frozen=True)
class Snapshot:
    """Versions that agree. `positions` are those of tables and sources; `cut` is what all saw of each root."""

    positions: Mapping[TableName, TablePosition]
    cut: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        return {
            "cut": dict(self.cut),
            "tables": {str(name): position.as_json() for name, position in self.positions.items()},
        }


def newest_snapshot(graph: Graph, warehouse: Warehouse) -> Snapshot:
    """The newest versions of all tables that agree; tables without a version are left out.

    Raises ReadError where no versions that are still known agree.
    """
    tables = {spec.name: found for spec in graph.tables if (found := _versions_of(warehouse.path(spec.name)))}
    seen: dict[str, set[int]] = {}
    for found in tables.values():
        for candidate in found:
            for root, number in candidate.cut.items():
                seen.setdefault(root.lower(), set()).add(number)
    candidates: dict[TableName, list[Candidate]] = dict(tables)
    for spec in graph.sources:
        found = _versions_seen(spec, warehouse.location(spec), seen.get(str(spec.name).lower(), set()))
        if found:
            candidates[spec.name] = found
    chosen = choose_agreeing(candidates)
    if chosen is None:
        raise ReadError(
            "no versions of the tables that are still known agree on what they saw of their sources. Refresh all of "
            "them with `freshline refresh`, and ask again."
        )
    cut = {root: number for candidate in chosen.values() for root, number in candidate.cut.items()}
    return Snapshot({name: chosen[name].position for name in graph.order if name in chosen}, cut)


def _versions_of(path: Path) -> list[Candidate]:
    newest = read_newest(path)
    if newest is None or newest.receipt is None:
        return []
    identity = newest.table_id or table_id(path)
    found: list[Candidate] = []
    for version, receipt in islice(read_receipts(path), MOST_CANDIDATES):
        cut = {root: int(where["seq"] if "seq" in where else where["version"]) for root, where in receipt.cut.items()}
        # Maintenance that came after it changed no row.
        at = version if found else newest.version
        found.append(Candidate(position_at(identity, at, receipt), cut))
        if receipt.restored is not None:
            # What was before it was taken back.
            break
    if not found:
        # Its commits are gone; the newest one carries its receipt on.
        receipt = newest.receipt
        cut = {root: int(where["seq"] if "seq" in where else where["version"]) for root, where in receipt.cut.items()}
        return [Candidate(position_at(identity, newest.version, receipt), cut)]
    return found


def _versions_seen(spec: SourceSpec, path: Path, seen: set[int]) -> list[Candidate]:
    """The newest version of a source, and those that a table saw: rows of a log tell by themselves when they came."""
    version = newest_version(path)
    if version is None:
        return []
    identity, root = table_id(path), str(spec.name)
    if not spec.is_log:
        numbers = sorted({version} | {number for number in seen if number < version}, reverse=True)
        return [Candidate(TablePosition(identity, number), {root: number}) for number in numbers]
    newest = read_newest(path)
    if newest is None or newest.receipt is None:
        return []
    seq = newest.receipt.seq
    numbers = sorted({seq} | {number for number in seen if number < seq}, reverse=True)
    return [Candidate(TablePosition(identity, newest.version, number), {root: number}) for number in numbers]
