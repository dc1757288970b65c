"""`first_row`: the row of a key that is first, by an expression or by arrival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshline.merges.one_row import OneRow, declared_order
from freshline.merges.sequence import BY_ARRIVAL
from freshline.values.options import Kind, Option, Options

LATE = ("correct", "ignore")


@dataclass(frozen=True)
class FirstRow(OneRow):
    """The first row of each key. `late` is `correct`, or `ignore`: a row that is stored stays."""

    name: ClassVar[str] = "first_row"
    takes_least: ClassVar[bool] = True
    order_option: ClassVar[str] = "merge.order"
    options: ClassVar[tuple[Option, ...]] = (
        Option("merge.order", "the expression by which a row is earlier than another, or arrival", Kind.TEXT),
        Option("merge.tie-breaker", "what decides between rows of equal order"),
        Option("merge.late", "what becomes of an earlier row that arrives late", Kind.CHOICE, choices=LATE),
    )

    order: str | None = None
    tie_breaker: str | None = None
    late: str = "correct"

    @classmethod
    def declare(cls, options: Options) -> FirstRow:
        order = options.text("merge.order")
        by_expression = order is not None and order.lower() != BY_ARRIVAL
        options.require("merge.tie-breaker", "a 'merge.order' that is an expression", by_expression)
        options.require("merge.late", "a 'merge.order' that is an expression: by arrival no row is late", by_expression)
        late = options.choice("merge.late", LATE) or "correct"
        if not by_expression:
            return cls(None, options.text("merge.tie-breaker"), late)
        return cls(*declared_order(options, "merge.order"), late)

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.name, self.order, self.tie_breaker, self.late, None, self.upstream_deletes)

    @property
    def depends_on_refreshes(self) -> bool:
        return self.late == "ignore"

    @property
    def follows_from_rows(self) -> bool:
        return not self.never_gives_way

    @property
    def never_gives_way(self) -> bool:
        return self.order is None or self.late == "ignore"
