"""The seam of strategies: the rule that says when changes of inputs can be followed in one way, and with which step.

A strategy is one class, and stands beside what its step computes. Shipped strategies are in `freshline.strategies`.
Those of other packages are found by name (entry points `freshline.strategies`) for the tables whose option
'strategies' names them, and are asked before the shipped ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import ClassVar

from freshline.errors import IncrementalError
from freshline.plan.step import Situation, Step
from freshline.values.extension import Extension, calling
from freshline.values.reason import Reason
from freshline.values.registry import STRATEGIES, ExtensionError, find_strategy
from freshline.values.spec import TableSpec


class RefreshStrategy(Extension, ABC):
    """A way to follow changes of inputs; its instances have no state.

    `name` is what receipts, EXPLAIN and `refresh --strategy` call it.
    """

    name: ClassVar[str]

    def applies_to(self, spec: TableSpec) -> bool:
        """Whether tables of this declaration are refreshed in this way at all."""
        return True

    @abstractmethod
    def find_step(self, situation: Situation) -> Step | Reason:
        """The step that is right for the situation, or why this strategy is not.

        Asked only where the table has a receipt of this declaration, its query gives the same rows each time, and an
        input that drives it changed (or rows wait for their dimension: `situation.lookups_due`).
        """


def strategies_of(spec: TableSpec) -> tuple[RefreshStrategy, ...]:
    """The strategies of a table in the order in which they are asked: those it names, then the shipped ones.

    Raises IncrementalError for one that no installed package has any more, or that cannot be used.
    """
    try:
        every = [_strategy(name) for name in (*spec.strategies, *STRATEGIES)]
    except ExtensionError as error:
        raise IncrementalError(f"strategy {error}", where=str(spec.written_at)) from error
    return tuple(strategy for strategy in every if strategy.applies_to(spec))


@cache
def _strategy(name: str) -> RefreshStrategy:
    kind: type[RefreshStrategy] = find_strategy(name)
    with calling(kind, "__init__"):
        return kind()
