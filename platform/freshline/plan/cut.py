"""Cuts: how much of each root source a version contains, and versions of inputs that agree on it.

A table that reads A and B, both fed by one root, is exact only at versions of A and B that stand for the same position
of that root. The newest versions often do not: one of them was refreshed a moment earlier. Then the newest older
version of the one that is ahead is taken, never one before what the table has read already.

A refresh that finds nothing to write has seen the roots as much as one that writes. Where two ways from one source join
again below a table, it commits a receipt for that (`Graph.meeting`), so that the cut of its newest version moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from freshline.values.names import TableName
from freshline.values.position import TablePosition

Cut = Mapping[str, int]
# The positions of roots as receipts have them: by the root's name its table id, with a `version` or the `seq` of a log.
RootPositions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Candidate:
    """A version of an input, and how far into each root it has seen (batch number or version, by root).

    `uneven` are the roots of which its rows have not all seen the same, as after a refresh of one partition: it agrees
    with nothing about these.
    """

    position: TablePosition
    cut: Cut
    uneven: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Root:
    """A source that is an input itself: it can be read at any position from `least` up to that of `newest`."""

    newest: Candidate
    least: int

    @property
    def name(self) -> str:
        """The root's name, as cuts have it."""
        (name,) = self.newest.cut
        return name


def seen_of(where: Mapping[str, Any]) -> int:
    """The number of a root's position: that of the batch of a log, or the version.

    >>> seen_of({"table_id": "a", "seq": 4}), seen_of({"table_id": "a", "version": 7})
    (4, 7)
    """
    return int(where["seq"] if "seq" in where else where["version"])


def cut_of(roots: RootPositions) -> dict[str, int]:
    """The numbers of positions by root, as candidates have them."""
    return {root: seen_of(where) for root, where in roots.items()}


def least_of(every: Iterable[RootPositions]) -> dict[str, Mapping[str, Any]]:
    """The cut of rows that have seen these: of each root the least."""
    return _picked(every, lambda new, old: seen_of(new) < seen_of(old))


def greatest_of(every: Iterable[RootPositions]) -> dict[str, Mapping[str, Any]]:
    """The greatest position of each root that any of these has seen."""
    return _picked(every, lambda new, old: seen_of(new) > seen_of(old))


def _picked(every: Iterable[RootPositions], better: Any) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for roots in every:
        for root, where in roots.items():
            if root not in found or better(where, found[root]):
                found[root] = where
    return found


def ahead_of(cut: RootPositions, most: RootPositions) -> dict[str, Mapping[str, Any]]:
    """The roots of which some rows have seen more than the cut says, with the most.

    >>> ahead_of({"s": {"seq": 4}, "t": {"seq": 1}}, {"s": {"seq": 6}, "t": {"seq": 1}})
    {'s': {'seq': 6}}
    """
    return {root: where for root, where in most.items() if root not in cut or seen_of(where) > seen_of(cut[root])}


def disagreement(inputs: Mapping[TableName, tuple[RootPositions, RootPositions]]) -> str:
    """The versions at which inputs saw a root that they share, as text; empty where they agree.

    Each input comes with its cut and what is ahead of it.

    >>> a, b = TableName(None, "a"), TableName(None, "b")
    >>> disagreement({a: ({"s": {"version": 4}}, {}), b: ({"s": {"version": 7}}, {})})
    'a has seen version 4 of s, and b version 7'
    >>> disagreement({a: ({"s": {"version": 4}}, {}), b: ({"s": {"version": 4}}, {})})
    ''
    """
    for root in dict.fromkeys(root for cut, _ in inputs.values() for root in cut):
        of_root = {name: (cut[root], ahead.get(root)) for name, (cut, ahead) in inputs.items() if root in cut}
        if len(of_root) < 2:
            continue
        if len({seen_of(where) for where, _ in of_root.values()}) > 1 or any(more for _, more in of_root.values()):
            (first, found), *others = of_root.items()
            texts = [f"{first} has seen {_seen_text(*found)} of {root}"]
            return ", ".join([*texts, *(f"and {name} {_seen_text(*seen)}" for name, seen in others)])
    return ""


def _seen_text(where: Mapping[str, Any], more: Mapping[str, Any] | None) -> str:
    kind = "batch" if "seq" in where else "version"
    to = "" if more is None else f" to {seen_of(more)}"
    return f"{kind} {seen_of(where)}{to}"


def choose_agreeing(
    candidates: Mapping[TableName, Iterable[Candidate]], roots: Mapping[TableName, Root] | None = None
) -> dict[TableName, Candidate] | None:
    """The newest candidate of each input such that inputs which share a root saw the same of it; None if there is none.

    `candidates` are newest first, and read only as far as needed. `roots` are the inputs that are sources themselves.
    The position of a source is then that of `newest`, whatever it saw: the caller finds the version for the cut. Going
    back only ever lowers what is seen of a root, so the first choice that agrees is the newest one.
    """
    waiting: dict[TableName, Iterator[Candidate]] = {name: iter(found) for name, found in candidates.items()}
    chosen: dict[TableName, Candidate] = {}
    free = dict(roots or {})
    for name, rest in waiting.items():
        first = next(rest, None)
        if first is None:
            return None
        chosen[name] = first
    at = {root.name: root.newest.cut[root.name] for root in free.values()}
    while True:
        least = dict(at)
        for candidate in chosen.values():
            for root, seen in candidate.cut.items():
                least[root] = min(seen, least.get(root, seen))
        # A source is read where the tables above it are.
        at = {root: least[root] for root in at}
        ahead = [
            name
            for name, candidate in chosen.items()
            if any(root in candidate.uneven or seen > least[root] for root, seen in candidate.cut.items())
        ]
        if not ahead:
            break
        for name in ahead:
            following = next(waiting[name], None)
            if following is None:
                return None
            chosen[name] = following
    for name, source in free.items():
        if at[source.name] < source.least:
            return None
        chosen[name] = replace(source.newest, cut={source.name: at[source.name]})
    return chosen
