"""`last_row`: the row of a key that is last by an expression, or by the changes of a feed; it may delete the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from freshline.merges.one_row import ARRIVAL, ORDER, OneRow, declared_order
from freshline.values.change import DELETE as DELETED
from freshline.values.change import OP, POSITION
from freshline.values.connector import FILE
from freshline.values.options import Option, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from freshline.values.spec import TableSpec

# The facts of an event beside its order.
EVENT = "_freshline_event"
# The order of a change feed, which says itself which rows are gone.
BY_CHANGE = "change"


@dataclass(frozen=True)
class LastRow(OneRow):
    """The last row of each key. `delete_when` is a condition: a winning row that matches it deletes its key.

    With `by_change` the last row is that of the last event of a change feed, and a delete takes the key away. An event
    is later than one that arrived before it, or with `by_position` than one that is before it in the database.
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
    by_position: bool = False

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
        order = self.order
        if self.by_change:
            order = f"{BY_CHANGE} by position" if self.by_position else BY_CHANGE
        return (self.name, order, self.tie_breaker, "correct", self.delete_when, self.upstream_deletes)

    @property
    def follows_changes(self) -> bool:
        return self.by_change

    def in_source_order(self) -> LastRow:
        return replace(self, by_position=True)

    @property
    def delete_condition(self) -> str | None:
        return f"{OP} = '{DELETED}'" if self.by_change else self.delete_when

    @property
    def helpers(self) -> Mapping[str, str]:
        found = super().helpers
        if not self.by_change:
            return found
        # Two events at one position, such as those of a snapshot that was read twice, are in order of arrival.
        order = {ORDER: f"struct({', '.join((POSITION, *ARRIVAL))})"} if self.by_position else {}
        return {**found, **order, EVENT: f"struct({OP} AS op, {POSITION} AS at, {FILE} AS part)"}

    @property
    def needs_older_rows(self) -> bool:
        # By position an event that arrives may be earlier than those of its key that came before.
        return self.by_position or super().needs_older_rows

    def complete(self, rows: DataFrame, spec: TableSpec) -> DataFrame:
        from freshline.merges.truncates import without_truncated

        if self.by_change:
            return without_truncated(rows, by_position=self.by_position)
        return super().complete(rows, spec)

    def find_winners(self, spark: SparkSession, spec: TableSpec, rows: DataFrame, before: Any) -> Any:
        from freshline.merges.truncates import removed_before

        found = super().find_winners(spark, spec, rows, before)
        if not self.by_change:
            return found
        return replace(found, rows=removed_before(spark, found.rows, before, by_position=self.by_position))
