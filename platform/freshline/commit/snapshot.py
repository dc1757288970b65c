"""The newest set of versions of all tables that agree on what they saw of the sources.

Tables of different freshness have read different amounts at any moment; a query over several of them compares yesterday
with now. Here older versions of those that are ahead are taken, until all that share a root saw the same of it. Only
reads, and without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from freshline.commit.delta_log import Newest, position_at, read_newest, read_receipts, table_id
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.errors import ReadError
from freshline.freshness.record import Check
from freshline.plan.cut import Candidate, Root, choose_agreeing, cut_of
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec

# How many versions of a table are read.
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


def newest_snapshot(
    graph: Graph, warehouse: Warehouse, checks: Mapping[TableName, Check] = MappingProxyType({})
) -> Snapshot:
    """The newest versions of all tables that agree; tables without a version are left out.

    `checks` are those of the control store: a refresh that found nothing to write is a check of the sources too. Raises
    ReadError where no versions that are still known agree.
    """
    tables: dict[TableName, Iterable[Candidate]] = {}
    for spec in graph.tables:
        if spec.sink is not None:
            continue  # its rows are elsewhere
        newest = read_newest(warehouse.path(spec.name))
        if newest is not None and newest.receipt is not None:
            tables[spec.name] = _versions(warehouse.path(spec.name), newest, newest.receipt, checks.get(spec.name))
    roots = {
        spec.name: Root(found, 0)
        for spec in graph.sources
        if (found := _newest_of_source(spec, warehouse.location(spec))) is not None
    }
    chosen = choose_agreeing(tables, roots)
    if chosen is None:
        raise ReadError(
            "no versions of the tables that are still known agree on what they saw of their sources. Refresh all of "
            "them with `freshline refresh`, and ask again."
        )
    cut = {root: number for candidate in chosen.values() for root, number in candidate.cut.items()}
    positions = {name: candidate.position for name, candidate in chosen.items()}
    for name, root in roots.items():
        positions[name] = _position_of_source(root.newest.position, cut[root.name])
    return Snapshot({name: positions[name] for name in graph.order if name in positions}, cut)


def _versions(path: Path, newest: Newest, receipt: Receipt, check: Check | None) -> Iterator[Candidate]:
    """The versions of a table, newest first; the newest one also as a later check saw it."""
    identity = newest.table_id or table_id(path)
    position = position_at(identity, newest.version, receipt)
    if check is not None and check.is_of(receipt) and "cut" in check.known:
        yield Candidate(position, cut_of(check.known["cut"]), frozenset(check.known.get("cut_ahead", ())))
    # Maintenance that came after a refresh changed no row, and carries its receipt on where its own commit is gone.
    yield Candidate(position, cut_of(receipt.cut), frozenset(receipt.cut_ahead))
    if receipt.restored is not None:
        return
    for version, earlier in islice(read_receipts(path), MOST_CANDIDATES):
        if earlier.seq != receipt.seq:
            uneven = frozenset(earlier.cut_ahead)
            yield Candidate(position_at(identity, version, earlier), cut_of(earlier.cut), uneven)
        if earlier.restored is not None:
            # A restore took back the versions before it.
            return


def _newest_of_source(spec: SourceSpec, path: Path) -> Candidate | None:
    """The newest version of a source, None where it has none."""
    newest, root = read_newest(path), str(spec.name)
    if newest is None or (spec.is_log and newest.receipt is None):
        return None
    identity = newest.table_id or table_id(path)
    if not spec.is_log:
        return Candidate(TablePosition(identity, newest.version), {root: newest.version})
    assert newest.receipt is not None
    seq = newest.receipt.seq
    return Candidate(TablePosition(identity, newest.version, seq), {root: seq})


def _position_of_source(newest: TablePosition, seen: int) -> TablePosition:
    """The position of a source of which tables saw so much: rows of a log have the number of their batch."""
    if newest.seq is None:
        return TablePosition(newest.table_id, seen)
    return TablePosition(newest.table_id, newest.version, seen)
