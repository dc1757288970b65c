"""Of searches for affected keys those are left out that find what another one finds."""

from __future__ import annotations

import pytest

from freshline.query.rules.repeats import without_repeats


def search(kind, reading):
    return (
        f"SELECT `a`.`k` FROM `freshline_{reading}_event` AS `a` {kind} `freshline_changed_shop` AS `b` "
        "ON `b`.`k` = `a`.`k` WHERE (`b`.`t`)"
    )


@pytest.mark.parametrize("kind", ["JOIN", "INNER JOIN", "CROSS JOIN", "LEFT JOIN", "LEFT OUTER JOIN"])
def test_the_earlier_rows_of_a_relation_that_grew_are_not_searched_after_those_of_now(kind):
    queries = (search(kind, "old"), search(kind, "new"))

    assert without_repeats(queries, frozenset({"event"})) == [queries[1]]
    assert without_repeats(queries, frozenset({"shop", "events"})) == list(queries)
    assert without_repeats(queries[:1], frozenset({"event"})) == list(queries[:1])


@pytest.mark.parametrize("kind", ["RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
def test_a_row_that_may_find_less_where_there_are_more_rows_is_searched_for(kind):
    queries = (search(kind, "old"), search(kind, "new"))

    assert without_repeats(queries, frozenset({"event"})) == list(queries)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT `a`.`k` FROM `freshline_{}_event` AS `a` WHERE NOT EXISTS (SELECT 1 FROM `x` WHERE `x`.`k` = `a`.`k`)",
        "SELECT max(`a`.`k`) FROM `freshline_{}_event` AS `a`",
        "SELECT lag(`a`.`k`) OVER (ORDER BY `a`.`k`) FROM `freshline_{}_event` AS `a`",
        "SELECT `a`.`k` FROM `freshline_{}_event` AS `a` LIMIT 3",
        "SELECT `b`.`k` FROM `x` AS `b` LEFT JOIN `freshline_{}_event` AS `a` ON `a`.`k` = `b`.`k`",
        "SELECT `a`.`k` FROM `freshline_{}_event` AS `a`, LATERAL (SELECT `a`.`k` AS `n`) AS `c`",
        "SELECT `a`.`k` FROM (SELECT * FROM `freshline_{}_event`) AS `a`",
        "SELECT `a`.`k` FROM `freshline_{}_event` AS `a` UNION ALL SELECT 1",
    ],
)
def test_queries_of_other_forms_are_all_searched(text):
    queries = (text.format("old"), text.format("new"))

    assert without_repeats(queries, frozenset({"event"})) == list(queries)


def test_where_another_relation_is_read_at_another_time_both_are_searched():
    text = "SELECT `a`.`k` FROM `freshline_{}_event` AS `a` JOIN `freshline_{}_shop` AS `b` ON `b`.`k` = `a`.`k`"
    queries = (text.format("old", "old"), text.format("new", "new"))

    assert without_repeats(queries, frozenset({"event"})) == list(queries)
    assert without_repeats((*queries, text.format("new", "old")), frozenset({"event"})) == [
        queries[1],
        text.format("new", "old"),
    ]
