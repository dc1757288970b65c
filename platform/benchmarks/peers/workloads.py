"""The workloads: which peers keep the tables of each, how its inputs land, and how rows are found to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.peers import events, tpch
from benchmarks.peers.answers import TABLES, Answers
from benchmarks.peers.catalog import FRESHLINE, PEERS, TPCH_PEERS, Peer, tpch_peer
from benchmarks.tpch_tables.shapes import Shape

Read = Callable[[str], pa.Table]


@dataclass(frozen=True)
class Workload:
    """Inputs that change and tables that are kept.

    `land` gets the folder of the inputs and the number of the step, and makes what arrives at it. `difference` gets
    that folder and reads tables by their names; it says which one is wrong, and how, or None if none is.
    """

    ours: Peer
    peers: Mapping[str, Peer]
    land: Callable[[Path, int], None]
    difference: Callable[[Path, Read], str | None]

    def peer(self, name: str) -> Peer:
        """freshline or one of the peers."""
        return self.ours if name == self.ours.name else self.peers[name]


def event_workload(sizes: events.Sizes) -> Workload:
    """Workload A: a log of events, and four tables that are made of it and of the changes of customers."""
    return Workload(FRESHLINE, PEERS, lambda landing, step: events.land(landing, sizes, step), _wrong_event_table)


def tpch_workload(shape: Shape, made: Path) -> Workload:
    """Workload B: one table over those of TPC-H. `made` has their first rows, as files of Parquet."""
    return Workload(
        tpch_peer(FRESHLINE, shape),
        {name: tpch_peer(PEERS[name], shape) for name in TPCH_PEERS},
        partial(tpch.land, made, shape),
        partial(_wrong_shape, shape),
    )


def _wrong_event_table(landing: Path, read: Read) -> str | None:
    with Answers(landing) as answers:
        for name in TABLES:
            try:
                found = read(name)
            except (OSError, ValueError, KeyError) as error:
                return f"{name} cannot be read: {error}"
            if (difference := answers.difference(name, found)) is not None:
                return difference
    return None


def _wrong_shape(shape: Shape, landing: Path, read: Read) -> str | None:
    try:
        found = read(shape.table)
    except (OSError, ValueError, KeyError) as error:
        return f"{shape.table} cannot be read: {error}"
    return tpch.difference(landing, shape, found)
