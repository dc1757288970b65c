"""PageRank as freshline defines it, and how far a round is from the end.

The rank of a node is 0.15 + 0.85 times the sum, over edges that end there, of the rank of the node where the edge
begins, divided by how many begin at that one. So a rank depends on nothing outside of the component, and ranks without
edges are 0.15.

Rounds converge to the only solution, from any start. A round's change says how far it is, in two ways. Both are true,
and the lesser counts: the sum of changes shrinks to 0.85 of it in each round, because no node gives more than it has;
and if no rank changed by more than some number, the changes of all later rounds are at most that number times what the
solution itself is the sum of, in parts of 0.15.

Neither asks where the round began. So a round may begin with a mixture of the ranks of the last ones, that which would
change least (D. G. Anderson 1965). It takes about half as many rounds where plain ones are slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

DAMPING = 0.85
# With a tolerance that floating-point sums can keep, ranks of any graph need fewer.
MOST_RANK_ROUNDS = 500
# Stored ranks that are this part of the tolerance away from new ones stay, and new ones are as close to the solution.
# Then a stored rank is within half of the tolerance, and the ranks of two computations within all of it.
PART = 0.25


# So many rounds are mixed. More of them save few rounds, and Spark keeps two columns for each.
MIXED = 5
# The sum of absolute weights, above which a mixture would carry little but errors of rounding.
MOST_WEIGHT = 100.0


@dataclass(frozen=True)
class RankChange:
    """How ranks changed in a round: the sum of changes, the greatest change, and the greatest rank after it."""

    moved: float
    most_moved: float
    greatest: float


def remaining_error(step: RankChange) -> float:
    """At most the distance of any rank, after the round, from the solution.

    >>> remaining_error(RankChange(moved=0.0, most_moved=0.0, greatest=1.0))
    0.0
    """
    least = 1.0 - DAMPING
    by_sum = step.moved * DAMPING / least
    if step.most_moved >= least:
        return by_sum
    # The greatest rank of the solution is at most this distance from the one of now, so it is on both sides.
    by_most = step.most_moved * (step.greatest / least - 1.0) / (1.0 - step.most_moved / least)
    return min(by_sum, max(by_most, 0.0))


class Mixing:
    """How much of each of the last rounds the next one begins with."""

    def __init__(self) -> None:
        self.least = inf

    def weights(self, moved: float, products: Sequence[Sequence[float]]) -> list[float]:
        """The weights of the last rounds, the newest first; fewer than were handed in where older ones do not help.

        `moved` is the sum of absolute changes in the newest round, and `products` are those of the changes of each two
        rounds, summed up over the nodes. After a round that moved more than one before, the next one is plain: that
        makes the sum 0.85 of it at most, so there is an end.

        >>> Mixing().weights(1.0, [[1.0, 2.0], [2.0, 4.0]])  # changes that were halved will be again
        [2.0, -1.0]
        """
        if moved >= self.least:
            return [1.0]
        self.least = moved
        if len(products) == 1:
            return [1.0]
        # The least squares of how far each older round's change is from the newest one's.
        matrix = np.array(products)
        old, of_newest = matrix[1:, 1:], matrix[0, 1:]
        apart = matrix[0, 0] - of_newest[:, None] - of_newest[None, :] + old
        found, *_ = np.linalg.lstsq(apart, matrix[0, 0] - of_newest, rcond=1e-14)
        weights = [1.0 - float(found.sum()), *(float(weight) for weight in found)]
        size = sum(abs(weight) for weight in weights)
        return weights if size <= MOST_WEIGHT else [1.0]
