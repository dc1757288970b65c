"""`aggregate`: each column of a key's row is a function of the values that all of its rows have there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from freshline.merges.aggregates import Aggregate, parse_aggregate
from freshline.merges.sequence import MergeSequence
from freshline.values.merge import Expression, Merge, Problem
from freshline.values.options import Kind, Option, Options
from freshline.values.rules import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.merges.values import Fold
    from freshline.values.spec import TableSpec

RULE = "MERGE_AGGREGATE"
FUNCTION = "merge.aggregate."
SEPARATOR = "merge.separator."
ORDER = "_freshline_order"


@dataclass(frozen=True)
class Folded:
    """A column and the function that folds it; `separator` stands between the texts of `listagg`."""

    column: str
    function: Aggregate
    separator: str = ","


@dataclass(frozen=True)
class AggregateMerge(Merge):
    """The row of a key has, in each column of `folded`, the function of all values of that column.

    `sequence` is None where no function asks which row is earlier.
    """

    name: ClassVar[str] = "aggregate"
    options: ClassVar[tuple[Option, ...]] = (
        Option(FUNCTION, "the function that folds the column of this name", is_beginning=True),
        Option(SEPARATOR, "the text between those that listagg puts together", Kind.RAW, is_beginning=True),
        Option("merge.sequence", "the expression by which a row is later than another, or arrival"),
        Option("merge.tie-breaker", "what decides between rows of equal order"),
    )

    folded: tuple[Folded, ...] = ()
    sequence: MergeSequence | None = None

    @classmethod
    def declare(cls, options: Options) -> AggregateMerge:
        return cls(_folded(options), MergeSequence.declare(options))

    @property
    def meaning(self) -> tuple[object, ...]:
        columns = sorted((each.column.lower(), str(each.function), each.separator) for each in self.folded)
        sequence = self.sequence
        order = None if sequence is None else (sequence.expression, sequence.tie_breaker)
        return (self.name, *columns, order, self.upstream_deletes)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return () if self.sequence is None else self.sequence.expressions

    @property
    def helpers(self) -> Mapping[str, str]:
        return {} if self.sequence is None else {ORDER: self.sequence.sql}

    @property
    def is_by_arrival(self) -> bool:
        return self.sequence is not None and self.sequence.expression is None

    def find_problems(self, spec: TableSpec) -> tuple[Problem, ...]:
        keys = {key.lower() for key in spec.primary_key}
        columns = [column for column in spec.columns or () if column.lower() not in keys]
        known, found = {column.lower() for column in columns}, list[Problem]()
        for each in self.folded:
            option = f"{FUNCTION}{each.column}"
            sentence = "names a column of the PRIMARY KEY. Remove it."
            if each.column.lower() not in keys:
                sentence = f"names a column that the query does not yield.{nearest(each.column, columns)}"
            if each.column.lower() not in known:
                found.append(Problem(RULE, option, f"'{option}' of {spec.name} {sentence}"))
        folded = {each.column.lower() for each in self.folded}
        found += [
            Problem(
                RULE,
                "merge",
                f"column {name} of {spec.name} has no function. Add '{FUNCTION}{name}' = 'last_value', or another "
                "function, or take the column out of the query.",
            )
            for name in columns
            if name.lower() not in folded
        ]
        return tuple(found)

    def complete(self, rows: DataFrame, spec: TableSpec) -> DataFrame:
        from freshline.merges.values import with_row_in_order

        return rows if self.sequence is None else with_row_in_order(rows, ORDER, spec.columns or ())

    def fold(self, rows: DataFrame, spec: TableSpec) -> DataFrame:
        from freshline.merges.values import fold_columns

        return fold_columns(rows, spec, self._folds(), RULE)

    def stands_for_rows(self, rows: Any, stored: Any, spec: TableSpec) -> bool:
        from freshline.merges.values import stands_for_rows

        return stands_for_rows(rows, stored, self._folds(), spec)

    def fold_onto(self, rows: DataFrame, stored: DataFrame, spec: TableSpec) -> DataFrame:
        from freshline.merges.values import as_rows, as_stored_results, fold_columns

        folds = self._folds()
        both, again = as_rows(rows, stored, folds, spec)
        return as_stored_results(fold_columns(both, spec, again, RULE), stored, folds, spec)

    def _folds(self) -> list[Fold]:
        from freshline.merges.values import Fold

        return [Fold(each.column, each.function, each.separator, ORDER) for each in self.folded]


def _folded(options: Options) -> tuple[Folded, ...]:
    """The columns with their functions; problems are added to those of `options`."""
    separators, found = options.beginning(SEPARATOR), list[Folded]()
    for column, text in options.beginning(FUNCTION).items():
        try:
            function = parse_aggregate(text)
        except ValueError as error:
            options.problems.add(RULE, f"option '{FUNCTION}{column}': {error}", options.at(FUNCTION + column))
            continue
        if function.is_ordered and "merge.sequence" not in options:
            options.problems.add(
                "OPTION_NEEDS",
                f"'{FUNCTION}{column}' = '{function}' needs 'merge.sequence': the expression by which a row is later "
                "than another, or arrival.",
                options.at(FUNCTION + column),
            )
        found.append(Folded(column, function, separators.get(column, ",")))
    lists = {each.column for each in found if each.function is Aggregate.LISTAGG}
    for column in separators:
        options.require(SEPARATOR + column, f"'{FUNCTION}{column}' = 'listagg'", column in lists)
    if not any(each.function.is_ordered for each in found):
        for key in ("merge.sequence", "merge.tie-breaker"):
            options.require(key, "a function that asks for an order, such as last_value", False)
    options.require("merge.tie-breaker", "'merge.sequence'", "merge.sequence" in options)
    return tuple(found)
