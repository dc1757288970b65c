"""`last_row`: the row of a key that is last by an expression, or by the changes of a feed; it may delete the key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshline.declare.change import DELETE as DELETED
from freshline.declare.change import OP
from freshline.declare.options import Option, Options
from freshline.merges.one_row import OneRow, declared_order

# The order of a change feed, which says itself which rows are gone.
BY_CHANGE = "change"


@dataclass(frozen=True)
class LastRow(OneRow):
    """The last row of each key. `delete_when` is a condition: a winning row that meets it deletes its key.

    With `by_change` the last row is that of the last event of a change feed. An event is later than one that arrived
    before it, and a delete takes the key away.
    """

    name: ClassVar[str] = "last_row"
    takes_least: ClassVar[bool] = False
    order_option: ClassVar[str] = "merge.sequence"
    options: ClassVar[tuple[Option, ...]] = (
        Option("merge.sequence", "the expression by which a row is later than another, or change"),
        Option("merge.tie-breaker", "what decides between rows of equal order"),
        Option("merge.delete-when", "the condition by which a winning row deletes its key"),
    )

    order: str | None = None
    tie_breaker: str | None = None
    delete_when: str | None = None
    by_change: bool = False

    @classmethod
    def declare(cls, options: Options) -> LastRow:
        if "merge.sequence" not in options:
            options.problems.add(
                "OPTION_NEEDS",
                "'merge' = 'last_row' needs 'merge.sequence': the expression by which a row is later than another.",
                options.at("merge"),
            )
        if (options.text("merge.sequence") or "").lower() == BY_CHANGE:
            for option in ("merge.tie-breaker", "merge.delete-when"):
                options.require(option, "a 'merge.sequence' that is an expression: changes have an order", False)
            return cls(by_change=True)
        return cls(*declared_order(options, "merge.sequence"), options.text("merge.delete-when"))

    @property
    def meaning(self) -> tuple[object, ...]:
        order = BY_CHANGE if self.by_change else self.order
        return (self.name, order, self.tie_breaker, "correct", self.delete_when, self.upstream_deletes)

    @property
    def follows_changes(self) -> bool:
        return self.by_change

    @property
    def delete_condition(self) -> str | None:
        return f"{OP} = '{DELETED}'" if self.by_change else self.delete_when
