"""PageRank as freshline defines it, and how far a round is from the end.

The rank of a node is 0.15 + 0.85 times the sum, over edges that end there, of the rank of the node where the edge
begins, divided by how many begin at that one. So a rank depends on nothing outside of the component, and ranks without
edges are 0.15.

Rounds converge to the only solution, from any start. A round's change says how far it is, in two ways. Both hold, and
the lesser counts: the sum of changes shrinks to 0.85 of it in each round, because no node gives more than it has; and
changes in parts of ranks shrink by the greatest growth that a rank has from others.
"""

from __future__ import annotations

from dataclasses import dataclass

DAMPING = 0.85
# With a tolerance that floating-point sums can keep, ranks of any graph need fewer.
MOST_RANK_ROUNDS = 500
# Stored ranks that are this part of the tolerance away from new ones stay, and new ones are as close to the solution.
# Then a stored rank is within half of the tolerance, and the ranks of two computations within all of it.
PART = 0.25


@dataclass(frozen=True)
class Step:
    """How ranks changed in a round: the sum of changes, and the greatest in parts of the rank before.

    `growth` is the greatest of what a rank got from others, in parts of the rank before, and `greatest` is the greatest
    rank before.
    """

    moved: float
    moved_part: float
    growth: float
    greatest: float


def remaining_error(step: Step) -> float:
    """At most the distance of any rank, after the round, from the solution.

    >>> remaining_error(Step(moved=0.0, moved_part=0.0, growth=0.5, greatest=1.0))
    0.0
    """
    by_sum = step.moved * DAMPING / (1.0 - DAMPING)
    if step.growth >= 1.0:
        return by_sum
    return min(by_sum, step.moved_part * step.greatest * step.growth / (1.0 - step.growth))
