"""`partial_update`: the columns of a row are in groups, and each group follows the order of its own sequences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from freshline.merges.aggregates import Aggregate, parse_aggregate
from freshline.merges.one_row import tie_columns
from freshline.merges.sequence import MergeSequence, tie_expressions
from freshline.values.merge import DELETE, Expression, Merge, Problem
from freshline.values.options import Kind, Option, Options
from freshline.values.rules import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import TableSpec

RULE = "MERGE_GROUP"
GROUP = "merge.group."
SEPARATOR = "merge.separator."
DELETE_GROUP = "merge.delete-group"
ORDER = "_freshline_order"
# The list of columns, and the expressions behind BY.
_ITEM = r"(?P<name>[A-Za-z_]\w*|`(?:[^`]|``)+`)(?:\s+USING\s+(?P<function>\w+))?"
_ITEMS = re.compile(rf"\s*{_ITEM}\s*(?P<next>,|\bBY\b)", re.IGNORECASE)


@dataclass(frozen=True)
class Item:
    """A column of a group, and the function over all rows with a sequence; None for the value of the last one.

    `separator` stands between the texts of `listagg`.
    """

    column: str
    function: Aggregate | None = None
    separator: str = ","


@dataclass(frozen=True)
class SequenceGroup:
    """Columns that follow one order: that of the SQL expressions `by`, the first of which counts most."""

    name: str
    items: tuple[Item, ...]
    by: tuple[str, ...]

    @property
    def option(self) -> str:
        return GROUP + self.name


@dataclass(frozen=True)
class PartialUpdate(Merge):
    """The row of a key has, of each group, the columns of the last row by the group's order.

    Columns in no group have their newest value that is not NULL, by `sequence`. A key is not there while the last row
    of `delete_group` matches `delete_when`.
    """

    name: ClassVar[str] = "partial_update"
    options: ClassVar[tuple[Option, ...]] = (
        Option(GROUP, "the columns of the group of this name, and BY which sequences they follow", is_beginning=True),
        Option(SEPARATOR, "the text between those that listagg puts together", Kind.RAW, is_beginning=True),
        Option("merge.sequence", "the expression by which a row is later, for columns in no group, or arrival"),
        Option("merge.tie-breaker", "what decides between rows of equal order"),
        Option("merge.delete-when", "the condition by which the last row of a group deletes its key"),
        Option(DELETE_GROUP, "the group whose last row decides whether the key is there"),
    )

    groups: tuple[SequenceGroup, ...] = ()
    sequence: MergeSequence | None = None
    tie_breaker: str | None = None
    delete_when: str | None = None
    delete_group: str | None = None

    @classmethod
    def declare(cls, options: Options) -> PartialUpdate:
        groups = _groups(options)
        ties, condition = options.text("merge.tie-breaker"), options.text("merge.delete-when")
        sequence = MergeSequence.declare(options, shares_ties=bool(groups))
        if not groups and sequence is None and not options.beginning(GROUP):
            options.problems.add(
                "OPTION_NEEDS",
                "'merge' = 'partial_update' needs 'merge.sequence', or groups such as "
                "'merge.group.profile' = 'name, city BY profile_version'.",
                options.at("merge"),
            )
        named = options.text(DELETE_GROUP)
        options.require("merge.delete-when", f"'{DELETE_GROUP}'", named is not None)
        options.require(DELETE_GROUP, "'merge.delete-when'", condition is not None)
        group = next((each.name for each in groups if named is not None and each.name.lower() == named.lower()), None)
        if named is not None and group is None:
            names = [each.name for each in groups]
            near = nearest(named, names)
            options.problems.add(
                RULE,
                f"option '{DELETE_GROUP}' is '{named}', and there is no group of that name.{near} "
                f"Groups are {', '.join(names) or 'declared by ' + GROUP + 'NAME'}.",
                options.at(DELETE_GROUP),
            )
        return cls(groups, sequence, ties, condition, group)

    @property
    def meaning(self) -> tuple[object, ...]:
        groups = [
            (each.name.lower(), [(i.column.lower(), str(i.function), i.separator) for i in each.items], each.by)
            for each in sorted(self.groups, key=lambda each: each.name.lower())
        ]
        order = None if self.sequence is None else (self.sequence.expression,)
        return (self.name, groups, order, self.tie_breaker, self.delete_when, self.delete_group, self.upstream_deletes)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        by = [Expression(each.option, ", ".join(each.by), several=True) for each in self.groups]
        own = () if self.sequence is None else self.sequence.expressions
        ties = () if any(each.option == "merge.tie-breaker" for each in own) else tie_expressions(self.tie_breaker)
        delete = () if self.delete_when is None else (Expression("merge.delete-when", self.delete_when),)
        return (*by, *own, *ties, *delete)

    @property
    def helpers(self) -> Mapping[str, str]:
        ties = tie_columns(self.tie_breaker)
        found = {} if self.sequence is None else {ORDER: self.sequence.sql}
        if self.delete_when is not None:
            found[DELETE] = f"coalesce(({self.delete_when}), false)"
        for number, group in enumerate(self.groups):
            by = [f"({expression}) AS s{place}" for place, expression in enumerate(group.by)]
            counts = " AND ".join(f"({expression}) IS NOT NULL" for expression in group.by)
            # A row without one of the sequences is no row of the group.
            found[order_of(number)] = f"CASE WHEN {counts} THEN struct({', '.join([*by, *ties])}) END"
        return found

    @property
    def is_by_arrival(self) -> bool:
        return self.sequence is not None and self.sequence.expression is None

    def columns_of(self, spec: TableSpec) -> tuple[tuple[Item, ...], ...]:
        """The columns of each group as the table spells them, with those of its sequences that are in no list."""
        spelling = {column.lower(): column for column in spec.columns or ()}
        keys = {key.lower() for key in spec.primary_key}
        listed = {item.column.lower() for group in self.groups for item in group.items}
        found = []
        for group in self.groups:
            own = [replace(item, column=spelling[item.column.lower()]) for item in group.items]
            by = [name for name in map(_plain_name, group.by) if name is not None]
            own += [Item(spelling[n]) for n in dict.fromkeys(by) if n in spelling and n not in keys and n not in listed]
            found.append(tuple(own))
        return tuple(found)

    def find_problems(self, spec: TableSpec) -> tuple[Problem, ...]:
        keys = {key.lower() for key in spec.primary_key}
        columns = [column for column in spec.columns or () if column.lower() not in keys]
        found, placed = list[Problem](), dict[str, SequenceGroup]()
        for group in self.groups:
            for item in group.items:
                sentence = _why_not(item, placed, keys, columns)
                if sentence is not None:
                    found.append(Problem(RULE, group.option, f"'{group.option}' of {spec.name} {sentence}"))
                placed.setdefault(item.column.lower(), group)
        if found:
            return tuple(found)
        return (*self._shared_sequences(spec), *self._in_no_group(spec, columns))

    def _shared_sequences(self, spec: TableSpec) -> list[Problem]:
        """A column of the table by which two groups follow belongs to neither of them by itself."""
        owners, found = dict[str, SequenceGroup](), list[Problem]()
        for group, items in zip(self.groups, self.columns_of(spec), strict=True):
            for item in items:
                other = owners.setdefault(item.column.lower(), group)
                if other is not group:
                    found.append(
                        Problem(
                            RULE,
                            group.option,
                            f"{spec.name} has the column {item.column}, by which {other.name} and {group.name} follow. "
                            "Name it in the list of one of them, before BY.",
                        )
                    )
        return found

    def _in_no_group(self, spec: TableSpec, columns: list[str]) -> list[Problem]:
        grouped = {item.column.lower() for items in self.columns_of(spec) for item in items}
        others = [column for column in columns if column.lower() not in grouped]
        if others and self.sequence is None:
            return [
                Problem(
                    RULE,
                    "merge",
                    f"column {others[0]} of {spec.name} is in no group. Name it in one, or add 'merge.sequence', "
                    "by which columns in no group follow.",
                )
            ]
        if not others and self.sequence is not None:
            return [
                Problem(
                    RULE,
                    "merge.sequence",
                    f"all columns of {spec.name} are in groups, so nothing follows 'merge.sequence'. Remove it.",
                )
            ]
        return []

    def fold(self, rows: DataFrame, spec: TableSpec) -> DataFrame:
        from freshline.merges.groups import fold_groups

        return fold_groups(rows, spec, self)

    def stored_sequences(self, spec: TableSpec) -> tuple[tuple[str | None, ...], ...]:
        """The columns of the table that are the sequences of each group, None for one that it does not store."""
        from freshline.query.select_list import stored_order

        found = []
        for group, items in zip(self.groups, self.columns_of(spec), strict=True):
            # In the list of another group it is that of another row.
            own = {item.column for item in items if item.function is None}
            names = [stored_order(spec, by, None).order for by in group.by]
            found.append(tuple(name if name in own else None for name in names))
        return tuple(found)

    def stands_for_rows(self, rows: Any, stored: Any, spec: TableSpec) -> bool:
        # Three facts are not stored: the breaker of a tie, the row that set a column in no group, a key's delete.
        if self.tie_breaker is not None or self.sequence is not None or self.delete_when is not None:
            return False
        if any(name is None for names in self.stored_sequences(spec) for name in names):
            return False
        from freshline.merges.groups import group_folds
        from freshline.merges.values import stands_for_rows

        return stands_for_rows(rows, stored, group_folds(spec, self), spec)

    def fold_onto(self, rows: DataFrame, stored: DataFrame, spec: TableSpec) -> DataFrame:
        from freshline.merges.groups import fold_groups_onto

        return fold_groups_onto(rows, stored, spec, self)


def order_of(number: int) -> str:
    """The helper with the order of a group: NULL for a row that does not count in it."""
    return f"_freshline_group{number}"


def _groups(options: Options) -> tuple[SequenceGroup, ...]:
    """The groups that are declared; problems are added to those of `options`."""
    found, separators = list[SequenceGroup](), options.beginning(SEPARATOR)
    for name, text in options.beginning(GROUP).items():
        try:
            group = _group(name, text, separators)
        except ValueError as error:
            options.problems.add(RULE, f"option '{GROUP}{name}' is '{text}': {error}", options.at(GROUP + name))
            continue
        found.append(group)
    lists = {item.column.lower() for each in found for item in each.items if item.function is Aggregate.LISTAGG}
    for column in separators:
        options.require(SEPARATOR + column, f"'{column} USING listagg' in a group", column in lists)
    return tuple(found)


def _group(name: str, text: str, separators: Mapping[str, str]) -> SequenceGroup:
    """The group that an option describes; raises ValueError with a sentence."""
    if not re.fullmatch(r"\w+", name):
        raise ValueError("the name of a group is of letters, digits and underscores. Correct it.")
    items, at = list[Item](), 0
    while True:
        match = _ITEMS.match(text, at)
        if match is None:
            raise ValueError("it has another form than 'a, b USING sum BY s1, s2'. Correct it.")
        column, function = match["name"], match["function"]
        column = column[1:-1].replace("``", "`") if column.startswith("`") else column
        if any(each.column.lower() == column.lower() for each in items):
            raise ValueError(f"it names {column} twice. Name it once.")
        items.append(Item(column, parse_aggregate(function) if function else None, separators.get(column.lower(), ",")))
        at = match.end()
        if match["next"] != ",":
            break
    rest = text[at:].strip()
    if not rest:
        raise ValueError("it has no sequence behind BY. Add the columns by which a row is later.")
    from freshline.query.select_list import split_expressions
    from freshline.sql.expression import parse_expression

    parse_expression(rest, several=True)
    return SequenceGroup(name, tuple(items), split_expressions(rest))


def _plain_name(expression: str) -> str | None:
    """The column, in lower case, that an expression is; None for any other expression."""
    text = expression.strip()
    if re.fullmatch(r"[A-Za-z_]\w*", text):
        return text.lower()
    return text[1:-1].replace("``", "`").lower() if re.fullmatch(r"`(?:[^`]|``)+`", text) else None


def _why_not(item: Item, placed: Mapping[str, SequenceGroup], keys: set[str], columns: list[str]) -> str | None:
    """The reason why a column cannot be in a group; None where it can."""
    name = item.column.lower()
    if name in keys:
        return f"names {item.column}, which is a column of the PRIMARY KEY. Remove it."
    if name not in {column.lower() for column in columns}:
        return f"names {item.column}, which the query does not yield.{nearest(item.column, columns)}"
    if name in placed:
        return f"names {item.column}, which is in the group {placed[name].name} too. Name it in one of them."
    return None
