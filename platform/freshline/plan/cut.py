"""Cuts: choosing versions of inputs that agree on what they saw of the roots they share.

A table that reads A and B, both fed by one root, is exact only at versions of A and B that stand for the same position
of that root. The newest versions often do not: one of them was refreshed a moment earlier. Then the newest older
version of the one that is ahead is taken, never one before what the table has read already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from freshline.declare.names import TableName
from freshline.plan.position import TablePosition

Cut = Mapping[str, int]


@dataclass(frozen=True)
class Candidate:
    """A version of an input, and how far into each root it has seen (batch number or version, by root)."""

    position: TablePosition
    cut: Cut


def choose_agreeing(candidates: Mapping[TableName, Sequence[Candidate]]) -> dict[TableName, Candidate] | None:
    """For each input the newest candidate such that inputs which share a root saw the same of it; None if there is
    none.

    `candidates` are newest first and not empty. Going back only ever lowers what is seen of a root, so the first
    choice that agrees is the newest one.
    """
    place = dict.fromkeys(candidates, 0)
    while True:
        chosen = {name: candidates[name][index] for name, index in place.items()}
        least: dict[str, int] = {}
        for candidate in chosen.values():
            for root, seen in candidate.cut.items():
                least[root] = min(seen, least.get(root, seen))
        ahead = [
            name
            for name, candidate in chosen.items()
            if any(seen > least[root] for root, seen in candidate.cut.items())
        ]
        if not ahead:
            return chosen
        for name in ahead:
            place[name] += 1
            if place[name] >= len(candidates[name]):
                return None
