"""The generated queries find mistakes of the analysis: each of these, planted, is found within a few cases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlglot import exp

from freshline.query import exactness
from freshline.query.rules import key_columns, keys, touched_rows
from freshline.query.tree import RelationState, read_as
from freshline.sql import window_functions
from freshline.sql.count_windows import CountCall
from freshline.sql.session_windows import SessionCall
from freshline.values.as_of_joins import AsOfJoin
from tests.scenarios.generator import case as cases_of
from tests.scenarios.generator.case import draw
from tests.scenarios.generator.judge import Counts, judge_analysis, judge_meaning

MOST_CASES = 400


@pytest.fixture(autouse=True)
def nothing_kept():
    """A result that was kept would hide a bug that is planted later, or be one in another test."""
    kept = (keys.find_affected, exactness.read_exactness, cases_of._lowered)
    for each in kept:
        each.cache_clear()
    yield
    for each in kept:
        each.cache_clear()


def only_new(real):
    """The other side of a join is read as it is now, never as it was."""
    return lambda node, reading, changed: real(node, RelationState.NEW, changed)


def without_padded_rows(real):
    """Rows that an outer join keeps without a partner are forgotten."""

    def changed_at(start, joins, index):
        found = real(start, joins, index)
        return [item for item in found if not any(isinstance(part, exp.Exists) for part in item.where)] or found

    return changed_at


def without_subqueries(real):
    """Queries inside expressions are taken for ones that never change."""
    return lambda select, changed: []


def without_guard(real):
    """A NULL that comes into what NOT IN reads is overlooked."""

    def not_in(node, query, touched, inside, guards):
        return real(node, query, touched, inside, [])

    return not_in


def without_null_asked(real):
    """A NULL that NOT IN searches for is overlooked."""

    def not_in(node, query, touched, inside, guards):
        condition = real(node, query, touched, inside, guards)
        return condition.this if isinstance(condition, exp.Or) else condition

    return not_in


def without_totals(real):
    """Only the groups that have every grouping column are searched for."""
    return lambda self, items, group=None: real(self, items)


def without_right_side(real):
    """Only the left side of a set operation is read."""

    def set_operation(query, context):
        if isinstance(query, exp.SetOperation):
            right = query.expression.args["from_"].this.name
            context = replace(context, changed=context.changed - {right})
        return real(query, context)

    return set_operation


def with_plain_equality(real):
    """Partitions are found with `=`, which matches no NULL."""
    return lambda *arguments: real(*arguments).replace("<=>", "=")


def with_one_partition(real):
    """Of windows that differ, the first one decides."""
    return lambda query: real(query)[:1]


def with_every_condition(real):
    """Conditions that read what changed are kept as they are now."""
    return lambda node, changed: False


def with_one_value(real):
    """The value of a subquery for a row is part of the key with its new value only."""

    def some_rows(select, changed, guards, exactness):
        alone = sum(table.name in changed for table in select.find_all(exp.Table)) == 1
        return [
            touched_rows.Touched(item.start, item.joins, item.laterals, item.where, item.both and not alone)
            for item in real(select, changed, guards, exactness)
        ]

    return some_rows


def with_selected_columns(real):
    """All grouping columns are taken for the key, although a window reads more rows."""
    return lambda query: []


def below_an_outer_join(real):
    """Changed rows give keys by themselves below any join, where a row without a partner has NULL for them."""
    return lambda join: "INNER"


def with_equality_of_one_side(real):
    """Columns that equal each other anywhere are taken for ones of the changed rows."""

    def equal_to(changed, conditions, names, types):
        columns = [column for condition in conditions for column in condition.find_all(exp.Column)]
        own = next((column for column in columns if column.table == changed), None)
        found = real(changed, conditions, names, types)
        if own is None:
            return found
        return {(c.table, c.name.lower()): own for c in columns if c.table != changed} | found

    return equal_to


def by_a_sum(real):
    """A sum of DOUBLE is taken for a value that is the same whenever it is computed."""
    return lambda node, parts: (real(node, parts)[0], True)


def with_closed_ends(real):
    """A window has its end, and so not its beginning."""
    return lambda self, place, size: real(self, f"({place} - 1)", size)


def with_truncation(real):
    """Before 1970, and before an offset, windows are counted towards it."""
    return lambda self, place, size: f"({place} - ({place} % {size}))"


def with_an_open_gap(real):
    """Rows with a distance of exactly one gap are in two sessions."""
    return lambda self: real(replace(self, gap=self.gap - 1))


def from_the_second_row(real):
    """The rows of a key are counted from one on."""
    return lambda self: real(self).replace(" AS BIGINT) - 1", " AS BIGINT)")


def before_and_not_at(real):
    """A version does not apply at the moment from which it applies."""
    return property(lambda self: real.fget(self).replace(">=", ">").replace(" < ", " <= "))


def by_the_least(real):
    """Of two versions of one time the one with the least values wins."""
    return lambda self, view: real(self, view).replace(" DESC)", ")")


OF_WINDOWS = [
    (window_functions._Call, "_before", with_closed_ends),
    (window_functions._Call, "_before", with_truncation),
    (SessionCall, "lower", with_an_open_gap),
    (CountCall, "lower", from_the_second_row),
    (AsOfJoin, "condition", before_and_not_at),
    (AsOfJoin, "rows", by_the_least),
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "name", "plant"), OF_WINDOWS, ids=[plant.__name__ for _, _, plant in OF_WINDOWS])
def test_a_wrong_window_or_as_of_join_is_found(monkeypatch, place, name, plant):
    monkeypatch.setattr(place, name, plant(getattr(place, name)))

    cases = (draw(seed, tables=6, windows=True) for seed in range(8000, 8000 + MOST_CASES // 10))
    failures = (judge_meaning(case, Counts()) for case in cases)

    assert next((failure for failure in failures if failure is not None), None) is not None, plant.__doc__


BUGS = [
    (key_columns, "kind_of", below_an_outer_join),
    (key_columns, "_equal_to", with_equality_of_one_side),
    (key_columns, "read_as", only_new),
    (touched_rows, "_changed_at", without_padded_rows),
    (touched_rows, "_changed_subqueries", without_subqueries),
    (touched_rows, "_not_in", without_guard),
    (touched_rows, "_not_in", without_null_asked),
    (touched_rows.Touched, "select", without_totals),
    (key_columns, "set_operation", without_right_side),
    (key_columns, "_in_partition", with_plain_equality),
    (key_columns, "windows_in", with_one_partition),
    (touched_rows, "_reads", with_every_condition),
    (key_columns, "touched_rows", with_one_value),
    (key_columns, "windows_in", with_selected_columns),
]


# Bugs that only show where a subquery does more than it mostly does.
OF_SUBQUERIES = (with_every_condition, with_one_value)


def without_time(real):
    """Rows that enter or leave as time passes are overlooked."""
    return lambda timed, select, changed, exactness: [exp.false()]


def at_new_time_only(real):
    """A row that went away counts only if temporal filters would let it through now."""
    return lambda condition, changed: read_as(condition, RelationState.NEW, changed)


OF_TIME = [
    (touched_rows, "_crossing", without_time),
    (touched_rows, "_at_either", at_new_time_only),
]


@pytest.mark.seconds
@pytest.mark.parametrize(("place", "name", "plant"), OF_TIME, ids=[plant.__name__ for _, _, plant in OF_TIME])
def test_a_row_that_crosses_unseen_is_found(monkeypatch, place, name, plant):
    monkeypatch.setattr(place, name, plant(getattr(place, name)))

    cases = (draw(seed, tables=6, timed=1.0) for seed in range(9000, 9000 + MOST_CASES))

    assert any(judge_analysis(case, Counts()) is not None for case in cases), plant.__doc__


@pytest.mark.seconds
def test_a_key_by_a_sum_of_doubles_is_found(monkeypatch):
    monkeypatch.setattr(exactness, "_aggregated", by_a_sum(exactness._aggregated))

    cases = (draw(seed, tables=6, doubles=True, thresholds=True) for seed in range(7000, 7100))

    assert any(judge_analysis(case, Counts(), orders=True) is not None for case in cases)


@pytest.mark.long
@pytest.mark.parametrize(("place", "name", "plant"), BUGS, ids=[plant.__name__ for _, _, plant in BUGS])
def test_a_planted_bug_is_found(monkeypatch, place, name, plant):
    planted = plant(getattr(place, name))
    monkeypatch.setattr(place, name, planted)
    if place is key_columns and name == "set_operation":
        monkeypatch.setattr(key_columns, "RULES", (planted, *key_columns.RULES[1:]))

    cases = ((seed, draw(seed, tables=6, subqueries=plant in OF_SUBQUERIES)) for seed in range(5000, 5000 + MOST_CASES))
    found = next((seed for seed, case in cases if judge_analysis(case, Counts()) is not None), None)

    assert found is not None, plant.__doc__
    print(f"{plant.__name__} was found by case {found - 5000 + 1}")
