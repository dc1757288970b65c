"""`last_row`: the row of a key that is last by an expression; it may delete the key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshline.declare.options import Option, Options
from freshline.merges.one_row import OneRow, declared_order


@dataclass(frozen=True)
class LastRow(OneRow):
    """The last row of each key. `delete_when` is a condition: a winning row that meets it deletes its key."""

    name: ClassVar[str] = "last_row"
    takes_least: ClassVar[bool] = False
    order_option: ClassVar[str] = "merge.sequence"
    options: ClassVar[tuple[Option, ...]] = (
        Option("merge.sequence", "the expression by which a row is later than another"),
        Option("merge.tie-breaker", "what decides between rows of equal order"),
        Option("merge.delete-when", "the condition by which a winning row deletes its key"),
    )

    order: str | None = None
    tie_breaker: str | None = None
    delete_when: str | None = None

    @classmethod
    def declare(cls, options: Options) -> LastRow:
        if "merge.sequence" not in options:
            options.problems.add(
                "OPTION_NEEDS",
                "'merge' = 'last_row' needs 'merge.sequence': the expression by which a row is later than another.",
                options.at("merge"),
            )
        return cls(*declared_order(options, "merge.sequence"), options.text("merge.delete-when"))

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.name, self.order, self.tie_breaker, "correct", self.delete_when, self.upstream_deletes)

    @property
    def delete_condition(self) -> str | None:
        return self.delete_when
