"""Merges that keep one of the rows of a key: the first or the last by a total order.

Rows are compared from left to right by a struct:

- first_row takes the least `(order IS NULL, order, tie-breaker.., row)`, so that a NULL never beats a value;
- last_row takes the greatest `(order IS NOT NULL, order, tie-breaker.., row)`;
- by arrival it is `(batch, file, record)` of the log.

The row itself comes last, so that two different events with equal order and tie-breaker have one winner whatever
order they arrive in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from freshline.values.connector import FILE, RECORD, SEQ
from freshline.values.merge import DELETE, Expression, Merge
from freshline.values.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from freshline.values.spec import TableSpec

ORDER = "_freshline_order"
ARRIVAL = (SEQ, FILE, RECORD)
ARRIVED = f"struct({', '.join(ARRIVAL)})"


@dataclass(frozen=True)
class OneRow(Merge):
    """One row of each key, chosen by a total order.

    `order` and `tie_breaker` are SQL expressions over the columns that the query reads or returns; an `order` of None
    is arrival. `takes_least` says which end of the order wins, and `order_option` names the option that has it.
    """

    takes_least: ClassVar[bool]
    order_option: ClassVar[str]
    compares_with_stored: ClassVar[bool] = True

    order: str | None
    tie_breaker: str | None

    @property
    def delete_condition(self) -> str | None:
        """The condition by which a winning row takes its key away; None for never."""
        return None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        found = (
            Expression(self.order_option, self.order or ""),
            Expression("merge.tie-breaker", self.tie_breaker or "", several=True),
            Expression("merge.delete-when", "" if self.follows_changes else self.delete_condition or ""),
        )
        return tuple(each for each in found if each.text)

    @property
    def helpers(self) -> Mapping[str, str]:
        delete = "false" if self.delete_condition is None else f"coalesce(({self.delete_condition}), false)"
        if self.order is None:
            return {ORDER: ARRIVED, DELETE: delete}
        null = "IS NULL" if self.takes_least else "IS NOT NULL"
        parts = [f"(({self.order}) {null}) AS n", f"({self.order}) AS o", *tie_columns(self.tie_breaker)]
        return {ORDER: f"struct({', '.join(parts)})", DELETE: delete}

    @property
    def is_by_arrival(self) -> bool:
        return self.order is None

    @property
    def never_gives_way(self) -> bool:
        """Whether a stored row stays whatever comes."""
        return False

    @property
    def needs_older_rows(self) -> bool:
        # Whatever comes is later than all that came before.
        return self.delete_condition is not None and not self.follows_changes

    def why_not_ignore(self, spec: TableSpec) -> tuple[str, ...]:
        from freshline.query.select_list import stored_order

        stored, found = stored_order(spec, self.order, self.tie_breaker), []
        if not self.never_gives_way and (stored.order is None or stored.ties is None):
            found.append(
                "order and tie-breaker as plain columns of the select list: a new row is compared with the stored one "
                "alone. Select them."
            )
        if self.delete_condition is not None:
            found.append(
                "a merge without 'merge.delete-when': whether a later row deleted a key that is not there only the "
                "input could tell. Remove one of them."
            )
        return tuple(found)

    def complete(self, rows: DataFrame, spec: TableSpec) -> DataFrame:
        from freshline.merges.fold import with_row_in_order

        return rows if self.order is None else with_row_in_order(rows, spec, self)

    def fold(self, rows: DataFrame, spec: TableSpec) -> DataFrame:
        from freshline.compute.fold import winning_rows
        from freshline.merges.fold import best_rows

        return winning_rows(best_rows(rows, spec, self), spec)

    def find_winners(self, spark: SparkSession, spec: TableSpec, rows: DataFrame, before: Any) -> Any:
        from freshline.merges.fold import find_winners

        return find_winners(spark, spec, self, rows, before)


def tie_columns(tie_breaker: str | None) -> list[str]:
    """SQL of the parts of an order that decide between rows of equal order."""
    from freshline.query.select_list import split_expressions

    return [f"({tie}) AS t{number}" for number, tie in enumerate(split_expressions(tie_breaker))]


def declared_order(options: Options, option: str) -> tuple[str | None, str | None]:
    """The expression of the order and its tie-breaker, which is required with it."""
    order, ties = options.text(option), options.text("merge.tie-breaker")
    if order is not None and "merge.tie-breaker" not in options:
        options.problems.add(
            "OPTION_NEEDS",
            "an order by expression needs 'merge.tie-breaker': what decides between rows of one key and equal order, "
            "such as the id of the event.",
            options.at(option),
        )
    return order, ties
