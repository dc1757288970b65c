"""Graph functions over numbers are those of networkx, and ranks those of the system of equations that they solve."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa

from freshline.compute.graph_in_memory import communities, components, number_nodes, ranks, within_reach
from freshline.compute.ranks import MOST_RANK_ROUNDS


def checked() -> None:
    """Nothing is cancelled."""


def edges_of(pairs):
    source, target = ([pair[end] for pair in pairs] for end in (0, 1))
    return number_nodes(pa.chunked_array([source], type=pa.int64()), pa.chunked_array([target], type=pa.int64()))


def ranked(edges, start, tolerance):
    """The ranks, and after how many rounds."""
    found = ranks(edges, start, tolerance, MOST_RANK_ROUNDS, checked)
    assert found is not None
    return found


def drawn(chance, nodes, edges):
    return [(chance.randrange(nodes), chance.randrange(nodes)) for _ in range(edges)]


def exact_ranks(pairs):
    """The solution of rank = 0.15 + 0.85 x sum, by elimination."""
    nodes = sorted({node for pair in pairs for node in pair})
    place = {node: number for number, node in enumerate(nodes)}
    out = Counter(source for source, _ in pairs)
    matrix = np.eye(len(nodes))
    for source, target in pairs:
        matrix[place[target], place[source]] -= 0.85 / out[source]
    return dict(zip(nodes, np.linalg.solve(matrix, np.full(len(nodes), 0.15)), strict=True))


def by_definition(pairs, rounds):
    """Synchronous label propagation, one node after another."""
    labels = {node: node for pair in pairs for node in pair}
    for _ in range(rounds):
        after = dict(labels)
        for node in labels:
            heard: Counter[Any] = Counter()
            for source, target in pairs:
                if source != target and node in (source, target):
                    heard[labels[target if node == source else source]] += 1
            if heard:
                after[node] = min(heard, key=lambda label: (-heard[label], label))
        labels = after
    return labels


def test_components_are_those_of_networkx_and_named_by_their_least_node():
    chance = random.Random(1)
    for _ in range(60):
        pairs = drawn(chance, chance.choice([3, 20, 200]), chance.choice([1, 10, 100]))
        edges = edges_of(pairs)
        found = dict(
            zip(edges.nodes.to_pylist(), edges.nodes.take(components(edges, checked)).to_pylist(), strict=True)
        )
        assert found == {node: min(group) for group in nx.connected_components(nx.Graph(pairs)) for node in group}
        start = chance.choice(pairs)[0]
        reached = within_reach(edges, pa.chunked_array([[start]], type=pa.int64()), checked)
        assert set(reached.to_pylist()) == nx.node_connected_component(nx.Graph(pairs), start)


def test_a_long_path_against_the_order_of_its_nodes_is_one_component():
    names = list(range(5_000))
    random.Random(2).shuffle(names)
    edges = edges_of(list(pairwise(names)))
    assert set(components(edges, checked)) == {0}


def test_ranks_are_within_half_of_the_tolerance_from_any_start():
    chance = random.Random(3)
    for number in range(60):
        pairs = drawn(chance, chance.choice([2, 10, 60]), chance.choice([1, 20, 200]))
        if number % 5 == 0:
            pairs += [(node, 0) for node in range(1, 50)]  # a hub
        edges = edges_of(pairs)
        start = np.array([chance.choice([0.15, 1.0, 40.0]) for _ in range(edges.count)])
        found, _ = ranked(edges, start, 1e-7)
        expected = exact_ranks(pairs)
        assert max(abs(found - [expected[node] for node in edges.nodes.to_pylist()])) <= 1e-7


def test_ranks_are_those_of_networkx_where_every_node_has_an_edge_that_leaves_it():
    chance = random.Random(4)
    pairs = [*((node, (node + 1) % 40) for node in range(40)), *drawn(chance, 40, 100)]
    edges = edges_of(pairs)
    found, _ = ranked(edges, np.ones(edges.count), 1e-9)
    # Its function for ranks needs scipy; they are what its matrix leaves as it is.
    matrix = np.asarray(nx.google_matrix(nx.MultiDiGraph(pairs), alpha=0.85, nodelist=range(40)))
    assert max(abs(found @ matrix - found)) < 1e-8
    assert abs(found.sum() - 40) < 1e-7


def plain_rounds(edges, start, tolerance):
    """After how many rounds ranks are right where each one begins with those of the last."""
    out = np.maximum(np.bincount(edges.source, minlength=edges.count), 1)
    before = start
    for number in range(1, MOST_RANK_ROUNDS + 1):
        given = (before / out)[edges.source]
        after = 0.15 + 0.85 * np.bincount(edges.target, weights=given, minlength=edges.count)
        if abs(after - before).sum() * 0.85 / 0.15 <= tolerance:
            return number
        before = after
    raise AssertionError("too many rounds")


def test_ranks_in_a_large_component_take_half_of_the_rounds_of_plain_ones():
    chance = random.Random(8)
    anywhere = drawn(chance, 3_000, 9_000)
    ring = [(node, (node + chance.randrange(-5, 6)) % 3_000) for node in range(3_000) for _ in range(3)]
    for pairs in (anywhere, ring):
        stored, many = ranked(edges_of(pairs), np.ones(edges_of(pairs).count), 2.5e-7)
        new = [(chance.choice(pairs)[0], chance.choice(pairs)[1]) for _ in range(20)]
        edges = edges_of([*pairs, *new])
        plain = plain_rounds(edges, np.ones(edges.count), 2.5e-7)
        again, few = ranked(edges, stored, 2.5e-7)
        assert many <= 0.6 * plain
        assert few <= 0.5 * plain
        assert max(abs(again - ranked(edges, np.ones(edges.count), 1e-9)[0])) <= 2.5e-7


def test_ranks_from_stored_ones_take_fewer_rounds():
    chance = random.Random(5)
    pairs = drawn(chance, 3_000, 9_000)
    edges = edges_of(pairs)
    cold, many = ranked(edges, np.ones(edges.count), 2.5e-7)
    again, few = ranked(edges, cold, 2.5e-7)
    assert few <= 2
    assert many > 10
    assert max(abs(cold - again)) < 2.5e-7


def test_communities_are_those_of_the_definition():
    chance = random.Random(6)
    for _ in range(40):
        pairs = drawn(chance, chance.choice([2, 8, 30]), chance.choice([1, 12, 60]))
        rounds = chance.choice([1, 2, 5, 10])
        edges = edges_of(pairs)
        labels = edges.nodes.take(communities(edges, rounds, checked)).to_pylist()
        assert dict(zip(edges.nodes.to_pylist(), labels, strict=True)) == by_definition(pairs, rounds)


def test_no_edges_have_no_nodes():
    edges = edges_of([])
    assert list(components(edges, checked)) == []
    assert list(communities(edges, 10, checked)) == []
    found, _ = ranked(edges, np.ones(0), 1e-7)
    assert list(found) == []
