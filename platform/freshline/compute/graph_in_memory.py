"""Graph functions over edges in memory: numpy on whole numbers, which stand for the nodes in their order.

Nodes are numbered by value, so the least number of a component is its least node, whatever type nodes have. Arrow sorts
as Spark does: texts and bytes by their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from freshline.compute.ranks import DAMPING, MIXED, Mixing, RankChange, remaining_error

Numbers = NDArray[np.int64]
Ranks = NDArray[np.floating[Any]]
Check = Callable[[], None]


@dataclass(frozen=True)
class Edges:
    """Edges between numbered nodes: the nodes in ascending order, and the two ends of each edge."""

    nodes: pa.Array
    source: Numbers
    target: Numbers

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)


def number_nodes(source: pa.ChunkedArray, target: pa.ChunkedArray) -> Edges:
    """The edges between these nodes, none of which is NULL."""
    both = pa.chunked_array([*source.chunks, *target.chunks], type=source.type)
    distinct = pc.unique(both)
    # Arrow does not sort booleans.
    order = pc.sort_indices(distinct.cast(pa.int8()) if pa.types.is_boolean(distinct.type) else distinct)
    nodes = distinct.take(order)
    return Edges(nodes, places_of(source, nodes), places_of(target, nodes))


def places_of(values: pa.ChunkedArray, nodes: pa.Array) -> Numbers:
    """The number of each value among the nodes; -1 for one that is none of them."""
    found = pc.fill_null(pc.index_in(values, value_set=nodes), -1)
    return np.asarray(found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found).astype(np.int64)


def components(edges: Edges, check: Check) -> Numbers:
    """Of each node the least node of its component.

    Each root that an edge connects with a lesser one is put below it, and what is below roots is put right below them,
    until no edge connects two roots. At least half of the roots of a component go in a round.
    """
    root = np.arange(edges.count, dtype=np.int64)
    while True:
        check()
        first, second = root[edges.source], root[edges.target]
        apart = first != second
        if not apart.any():
            return root
        greater, lesser = np.maximum(first[apart], second[apart]), np.minimum(first[apart], second[apart])
        np.minimum.at(root, greater, lesser)
        while True:
            above = root[root]
            if np.array_equal(above, root):
                break
            root = above


def ranks(edges: Edges, start: Ranks, tolerance: float, most: int, check: Check) -> tuple[Ranks, int] | None:
    """The rank of each node, and after how many rounds; None where it is not right within the tolerance by then."""
    out = np.bincount(edges.source, minlength=edges.count).astype(np.float64)
    before: Ranks = start
    # The results of the last rounds, and how much each changed the ranks that it began with; the newest first.
    last: list[tuple[Ranks, Ranks]] = []
    mixing = Mixing()
    share = 1.0 / np.maximum(out, 1.0)
    for number in range(1, most + 1):
        check()
        given = (before * share)[edges.source]
        after: Ranks = (1.0 - DAMPING) + DAMPING * np.bincount(edges.target, weights=given, minlength=edges.count)
        change = after - before
        moved = np.abs(change)
        step = RankChange(
            moved=float(moved.sum()),
            most_moved=float(moved.max(initial=0.0)),
            greatest=float(after.max(initial=0.0)),
        )
        if remaining_error(step) <= tolerance:
            return after, number
        last = [(after, change), *last][:MIXED]
        weights = mixing.weights(step.moved, [[float(one @ other) for _, other in last] for _, one in last])
        last = last[: len(weights)]
        # No rank is less than one without edges, so this brings a mixture closer.
        before = np.maximum(
            sum(weight * found for weight, (found, _) in zip(weights, last, strict=True)), 1.0 - DAMPING
        )
    return None


def communities(edges: Edges, rounds: int, check: Check) -> Numbers:
    """The label of each node, at first the node itself, after so many rounds.

    In a round each node takes the label that most of its neighbours have, of several the least; all at once. An edge is
    a neighbour in both directions, and one from a node to itself is none.
    """
    labels = np.arange(edges.count, dtype=np.int64)
    between = edges.source != edges.target
    nodes = np.concatenate([edges.source[between], edges.target[between]])
    neighbours = np.concatenate([edges.target[between], edges.source[between]])
    if not len(nodes):
        return labels
    for _ in range(rounds):
        check()
        # In the order of nodes, then of labels: of equal counts the first one has the least label.
        found, counts = np.unique(nodes * edges.count + labels[neighbours], return_counts=True)
        of_node, label = np.divmod(found, edges.count)
        begins = np.flatnonzero(np.r_[True, of_node[1:] != of_node[:-1]])
        most = np.repeat(np.maximum.reduceat(counts, begins), np.diff(np.r_[begins, len(found)]))
        best = np.flatnonzero(counts == most)
        first = best[np.r_[True, of_node[best][1:] != of_node[best][:-1]]]
        after = labels.copy()
        after[of_node[first]] = label[first]
        if np.array_equal(after, labels):
            break
        labels = after
    return labels


def within_reach(edges: Edges, reached: pa.ChunkedArray, check: Check) -> pa.Array:
    """The nodes of the components that have one of these nodes."""
    places = places_of(reached, edges.nodes)
    root = components(edges, check)
    wanted: Any = np.zeros(edges.count, dtype=bool)
    wanted[root[places[places >= 0]]] = True
    return edges.nodes.filter(pa.array(wanted[root]))
