"""The order of the rows of a key where a merge takes values of several rows, as the options declare it."""

from __future__ import annotations

from dataclasses import dataclass

from freshline.merges.one_row import ARRIVED, tie_columns
from freshline.values.merge import Expression
from freshline.values.options import Options

BY_ARRIVAL = "arrival"


@dataclass(frozen=True)
class MergeSequence:
    """`merge.sequence` and `merge.tie-breaker`. An `expression` of None is the arrival in a log table."""

    expression: str | None
    tie_breaker: str | None = None

    @classmethod
    def declare(cls, options: Options, *, shares_ties: bool = False) -> MergeSequence | None:
        """The order that is declared, None where none is; problems are added to those of `options`.

        With `shares_ties` the tie-breaker is also that of other orders, and so may stand beside arrival.
        """
        written = options.text("merge.sequence")
        if written is None:
            return None
        by_arrival = written.lower() == BY_ARRIVAL
        ties = options.text("merge.tie-breaker")
        if by_arrival and not shares_ties:
            options.require("merge.tie-breaker", "a 'merge.sequence' that is an expression", False)
        return cls(None, None) if by_arrival else cls(written, ties)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Its SQL, with the options that it is of."""
        found = [] if self.expression is None else [Expression("merge.sequence", self.expression)]
        return (*found, *tie_expressions(self.tie_breaker))

    @property
    def sql(self) -> str:
        """A struct that is greater for a later row; a row whose sequence is NULL is earlier than all others."""
        if self.expression is None:
            return f"struct(true AS n, {ARRIVED} AS o)"
        parts = [f"(({self.expression}) IS NOT NULL) AS n", f"({self.expression}) AS o"]
        return f"struct({', '.join([*parts, *tie_columns(self.tie_breaker)])})"


def tie_expressions(tie_breaker: str | None) -> tuple[Expression, ...]:
    """The SQL of the option `merge.tie-breaker`, where it is written."""
    return () if tie_breaker is None else (Expression("merge.tie-breaker", tie_breaker, several=True),)
