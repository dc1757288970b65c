"""As-of joins have a column of ours, which no `*` shows: neither as a column nor inside of a value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshline.errors import DeclarationError
from freshline.sql.query_parser import parse_query, parse_sql
from freshline.values.as_of_joins import Versions
from freshline.values.closing import Final

JOIN = "FROM o JOIN rate FOR SYSTEM_TIME AS OF o.ts AS r ON r.k = o.k"
HIDDEN = "EXCEPT (freshline_until_1)"
EMIT = pytest.mark.parametrize("final", [None, Final()], ids=["changes", "final"])


def rendered(text: str, final: Final | None) -> str:
    """The SELECT with the join as Spark gets it, in one line and without what FINAL adds to its list."""
    query = parse_query(text, "assets/t.sql", 1, final)
    joins = tuple(replace(join, versions=Versions("valid")) for join in query.as_of_joins)
    found = replace(query, as_of_joins=joins).render()
    parse_sql(found)
    return found.replace(", `o`.`ts` AS freshline_time", "")


@EMIT
@pytest.mark.parametrize(
    ("items", "shown"),
    [
        ("o.id, to_json(struct(r.*)) AS x", f"o.id, to_json(struct(r.* {HIDDEN})) AS x"),
        ("o.id, to_json(struct(R.* EXCEPT (k))) AS x", "o.id, to_json(struct(R.* EXCEPT (freshline_until_1, k))) AS x"),
        ("xxhash64(*) AS x", f"xxhash64(* {HIDDEN}) AS x"),
        ("struct(o.id, *) AS x, r.*", f"struct(o.id, * {HIDDEN}) AS x, r.* {HIDDEN}"),
        ("struct(o.*) AS x, (o.v * (r.v * 2)) AS y", "struct(o.*) AS x, (o.v * (r.v * 2)) AS y"),
        ("/*+ BROADCAST(r) */ *, o.v * 2", f"/*+ BROADCAST(r) */ * {HIDDEN}, o.v * 2"),
        ("ALL *", f"ALL * {HIDDEN}"),
        ("struct(o.r.*) AS x", "struct(o.r.*) AS x"),
        ("(SELECT max(struct(r.*)) FROM c AS r) AS x", "(SELECT max(struct(r.*)) FROM c AS r) AS x"),
        ("EXISTS (SELECT * FROM c) AS x", "EXISTS (SELECT * FROM c) AS x"),
    ],
)
def test_a_star_inside_a_call_has_no_column_of_ours(items, shown, final):
    text = rendered(f"SELECT {items} {JOIN}", final)

    assert f"SELECT {shown} FROM" in text.replace("`c` AS `c`", "c").replace("`c`", "c")


@EMIT
def test_a_star_of_where_has_no_column_of_ours(final):
    assert f"WHERE xxhash64(* {HIDDEN}) > 0" in rendered(f"SELECT o.id {JOIN} WHERE xxhash64(*) > 0", final)


def test_a_star_behind_the_select_is_of_another():
    text = rendered(f"SELECT o.id {JOIN} UNION ALL SELECT struct(*) AS id FROM o", None)

    assert "SELECT struct(*) AS id" in text


def test_a_star_for_two_joins_is_refused_and_one_for_each_is_not():
    two = f"{JOIN} JOIN q FOR SYSTEM_TIME AS OF o.ts AS q ON q.k = o.k"

    with pytest.raises(DeclarationError, match=r"Write alias\.\* for each"):
        parse_query(f"SELECT struct(*) AS x {two}", "assets/t.sql", 1)
    text = rendered(f"SELECT struct(o.*) AS a, struct(r.*) AS b, struct(q.*) AS c, * EXCEPT (k) {two}", None)

    assert "struct(r.* EXCEPT (freshline_until_1)) AS b, struct(q.* EXCEPT (freshline_until_2)) AS c" in text
    assert "* EXCEPT (freshline_until_1, freshline_until_2, k) FROM" in text


def test_a_table_without_an_alias_is_named_by_its_namespace_too():
    join = "FROM o JOIN n.rate FOR SYSTEM_TIME AS OF o.ts ON rate.k = o.k"
    text = rendered(f"SELECT n.rate.*, struct(n.rate.*) AS x, o.rate.* {join}", None)

    assert f"SELECT `rate`.* {HIDDEN}, struct(`rate`.* {HIDDEN}) AS x, o.rate.* FROM" in text


def test_rows_are_counted_by_a_plain_star():
    query = f"SELECT o.k, count(*) AS n, count(DISTINCT *) AS d {JOIN} GROUP BY o.k"

    assert f"SELECT o.k, count(*) AS n, count(DISTINCT * {HIDDEN}) AS d FROM" in rendered(query, None)


@EMIT
@pytest.mark.parametrize(
    "query",
    [
        f"SELECT count(r.*) AS n {JOIN}",
        f"SELECT o.id, (SELECT to_json(struct(r.*))) AS x {JOIN}",
        f"SELECT o.id, (SELECT to_json(struct(r.*)) FROM c LIMIT 1) AS x {JOIN}",
    ],
)
def test_a_star_that_cannot_leave_it_out_is_refused(query, final):
    with pytest.raises(DeclarationError) as raised:
        parse_query(query, "assets/t.sql", 1, final)

    assert "LOOKUP" in str(getattr(raised.value, "errors", [raised.value])[0].rule)
    assert "r.*" in str(raised.value)
    assert "Name the columns" in str(raised.value)
