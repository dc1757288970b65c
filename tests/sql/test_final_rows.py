"""Which rows are final by time is read from the words of a query: columns with words for names are columns there."""

from __future__ import annotations

import pytest

from freshline.errors import DeclarationError
from freshline.query.final import FinalQuery, read_final
from freshline.query.functions import UNORDERED
from freshline.sql.final_rows import _BY_PLACE
from freshline.sql.query_parser import parse_late_rows, parse_query, parse_sql
from freshline.values.closing import Final
from freshline.values.query import SqlQuery

SOON = "b.ts BETWEEN a.ts - INTERVAL '5' MINUTES AND a.ts"
PAIRS = f"FROM a JOIN b ON a.k = b.k AND {SOON}"
SUM = "sum(v) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) AS x"


def parse(text: str) -> SqlQuery:
    return parse_query(text, "assets/t.sql", 1, Final())


def final(text: str) -> FinalQuery:
    return read_final(parse(text), "assets/t.sql")


def refused(text: str, *said: str) -> None:
    """Check that the rows of a query are refused, with words of the message."""
    with pytest.raises(DeclarationError) as raised:
        final(text)
    assert raised.value.rule == "FINAL_INPUT"
    for each in said:
        assert each in str(raised.value)


# -- a star inside a call


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        (f"SELECT a.id, to_json(struct(b.*)) AS o {PAIRS}", "b.* inside a call"),
        (f"SELECT a.id, xxhash64(*) AS o {PAIRS}", "* inside a call"),
        (f"SELECT struct(a.*) AS o {PAIRS}", "a.* inside a call"),
        (f"SELECT a.id, struct(a.id, * EXCEPT (v)) AS o {PAIRS}", "* inside a call"),
        (f"SELECT a.id, struct(`b`.* EXCEPT (v)) AS o {PAIRS}", "`b`.* inside a call"),
        (f"SELECT a.id, a.v IN (b.*) AS o {PAIRS}", "b.* inside a call"),
        (f"SELECT a.id, count(DISTINCT *) AS o {PAIRS}", "* inside a call"),
        (f"SELECT a.id, sum(a.v * (2 + hash(b.*))) AS o {PAIRS}", "b.* inside a call"),
        (f"SELECT a.id {PAIRS} WHERE xxhash64(*) > 0", "* inside a call"),
        (f"SELECT a.id FROM a JOIN b ON a.k = hash(b.*) AND {SOON}", "b.* inside a call"),
        (f"SELECT o FROM (SELECT to_json(struct(b.*)) AS o {PAIRS})", "b.* inside a call"),
    ],
)
def test_a_star_inside_a_call_is_refused_in_a_join(query, shown):
    refused(query, f"this query has {shown}", "Name the columns")


@pytest.mark.parametrize(
    "items",
    [
        "a.id, (a.v * 2) * (b.v*(a.v)) AS o, 2*a.v*(`b`.`v`*2) AS p",
        "a.*, b.* EXCEPT (k), struct(a.v * b.v, a.s.x * 2) AS o",
        "ALL *",
        "array(1)[0] * (array(2)[0] * 3) AS o",
    ],
)
def test_products_and_stars_outside_of_calls_stay(items):
    assert final(f"SELECT {items} {PAIRS}").times == frozenset()


def test_count_of_a_join_is_an_aggregate_as_before():
    refused(f"SELECT count(*) AS n {PAIRS}", "this query has COUNT(*)")


@pytest.mark.parametrize(
    ("items", "lowered"),
    [
        ("*", "* EXCEPT (freshline_new_0, freshline_new_1) FROM"),
        ("ALL *", "ALL * EXCEPT (freshline_new_0, freshline_new_1) FROM"),
        ("/*+ X */ b.*", "/*+ X */ b.* EXCEPT (freshline_new_1) FROM"),
        ("/*+ X */ *", "/*+ X */ * EXCEPT (freshline_new_0, freshline_new_1) FROM"),
        ("ALL a.*", "ALL a.* EXCEPT (freshline_new_0) FROM"),
        ("a.*, b.* EXCEPT (k)", "a.* EXCEPT (freshline_new_0), b.* EXCEPT (freshline_new_1, k) FROM"),
        ("a.s.*, s.*", "a.s.*, s.* FROM"),
    ],
)
def test_hidden_columns_stay_out_of_stars_of_the_tables_and_of_no_struct(items, lowered):
    assert f"SELECT {lowered}" in parse(f"SELECT {items} {PAIRS}").text


@pytest.mark.parametrize(
    "rows",
    [
        "SELECT id, v, ts, to_json(struct({})) AS o FROM a",
        "SELECT id, v, ts FROM a WHERE xxhash64({}) > 0",
        "SELECT id, v, ts FROM b UNION ALL SELECT id, v, ts + hash({}) FROM a",
    ],
)
@pytest.mark.parametrize("star", ["*", "a.*"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT v FROM TUMBLE(({}), DESCRIPTOR(ts), INTERVAL '1' HOUR)",
        "SELECT n FROM ({}) MATCH_RECOGNIZE (ORDER BY ts MEASURES count(*) AS n PATTERN (A) DEFINE A AS v > 1)",
    ],
)
def test_a_star_inside_a_call_is_refused_in_rows_of_windows_and_patterns(query, rows, star):
    refused(query.format(rows.format(star)), f"this query has {star} inside a call. Name the columns")


# -- a field of a STRUCT is not the column of its name


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT id, {SUM.replace('ORDER BY ts', 'ORDER BY s.ts')} FROM a",
        "SELECT id, row_number() OVER (PARTITION BY k ORDER BY a.ts, id) AS n FROM a AS e",
    ],
)
def test_a_field_of_a_struct_is_no_time(query):
    refused(query, "by no ascending column, but")


@pytest.mark.parametrize(
    ("over", "order"),
    [
        ("PARTITION BY k ORDER BY ts, s.id", ("k", "ts")),
        ("PARTITION BY k ORDER BY ts, id", ("k", "ts", "id")),
        ("PARTITION BY e.k ORDER BY E.ts, `e`.id", ("k", "ts", "id")),
        ("PARTITION BY s.id ORDER BY ts, k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", ("ts", "k")),
    ],
)
def test_rows_are_distinguished_by_columns_of_the_source_only(over, order):
    function = "sum(v)" if "ROWS" in over else "row_number()"
    (time,) = parse(f"SELECT id, {function} OVER ({over}) AS n FROM a AS e").window_times

    assert time.order == order


@pytest.mark.parametrize("call", ["percentile_approx(v, 0.5)", "approx_percentile(v, 0.5)", "hll_sketch_agg(v)"])
def test_an_approximation_over_a_frame_follows_from_a_total_order(call):
    frame = "OVER (PARTITION BY k ORDER BY ts, id RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    (time,) = parse(f"SELECT id, {call} {frame} AS x FROM a").window_times

    assert time.order == ("k", "ts", "id")


def test_every_function_of_the_order_of_rows_counts_their_places():
    assert {name.upper() for name in UNORDERED} <= set(_BY_PLACE)
    (time,) = parse("SELECT id, approx_count_distinct(v) OVER (ORDER BY ts) AS x FROM a").window_times
    assert time.order is None


@pytest.mark.parametrize(
    ("items", "times"),
    [
        ("id, s.ts", set()),
        ("id, s.ts AS ts", set()),
        ("id, s.*", set()),
        ("id, ts", {"ts"}),
        ("id, a.ts AS at", {"at"}),
        ("*", {"ts"}),
        ("a.*", {"ts"}),
        ("ALL *", {"ts"}),
        ("ALL ts", {"ts"}),
    ],
)
def test_only_a_column_of_the_source_is_a_time_of_the_result(items, times):
    assert final(f"SELECT {items}, {SUM} FROM a").times == times


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ("id, v, s.ts AS ts", "windows by s.ts AS ts"),
        ("id, v, s.x.ts AS ts", "windows by s.x.ts AS ts"),
        ("id, v, s.ts", "windows by s.ts"),
        ("id, v, s.*", "s.* is no `*` of the table that is read"),
        ("* EXCEPT (ts), s.*", "s.* is no `*` of the table that is read"),
        ("*, s.*", "s.* is no `*` of the table that is read"),
        ("ts, `a`.s.* EXCEPT (x)", "`a`.s.* is no `*` of the table that is read"),
    ],
)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT v FROM TUMBLE(({}), DESCRIPTOR(ts), INTERVAL '1' HOUR)",
        "SELECT n FROM ({}) MATCH_RECOGNIZE (ORDER BY ts MEASURES count(*) AS n PATTERN (A) DEFINE A AS v > 1)",
    ],
)
def test_rows_of_windows_and_patterns_have_a_time_that_is_a_column(query, items, said):
    refused(query.format(f"SELECT {items} FROM a"), said)


@pytest.mark.parametrize(
    ("select", "read"),
    [
        ("SELECT * FROM a", "ts"),
        ("SELECT *, s.x AS x FROM a", "ts"),
        ("SELECT id, e.landed AS ts FROM a AS e", "landed"),
        ("SELECT id, a.landed AS ts FROM a", "landed"),
        ("SELECT id, A.landed AS ts FROM a", "landed"),
        ("SELECT id, n.a.landed AS ts FROM n.a", "landed"),
        ("SELECT e.* FROM a AS e", "ts"),
        ("SELECT n.a.* FROM n.a", "ts"),
        ("SELECT a.* EXCEPT (v) FROM a", "ts"),
    ],
)
def test_the_time_of_rows_is_found_by_the_alias_too(select, read):
    found = final(f"SELECT id FROM TUMBLE(({select}), DESCRIPTOR(ts), INTERVAL '1' HOUR)")

    assert [column for _, column, _ in found.read] == [read]


# -- rows of windows and patterns, in parentheses

WINDOW = "SELECT window_end, count(*) AS n FROM TUMBLE({}, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_end"
PATTERN = "SELECT n FROM {} MATCH_RECOGNIZE (ORDER BY ts MEASURES count(*) AS n PATTERN (A) DEFINE A AS v > 1)"


@pytest.mark.parametrize("query", [WINDOW, PATTERN])
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("((SELECT * FROM a ORDER BY v DESC LIMIT 3))", "ORDER"),
        ("((SELECT * FROM a LIMIT 3))", "LIMIT"),
        ("(((SELECT * FROM a) LIMIT 3))", "LIMIT"),
        ("((SELECT DISTINCT * FROM a))", "DISTINCT"),
        ("((SELECT ts, v FROM a) UNION ALL (SELECT DISTINCT ts, v FROM b))", "DISTINCT"),
        ("((SELECT ts, v FROM a) UNION ALL ((SELECT ts, v FROM b) UNION (SELECT ts, v FROM b)))", "UNION"),
        ("(SELECT ts, v FROM a UNION ALL (SELECT ts, v FROM b EXCEPT SELECT ts, v FROM a))", "EXCEPT"),
        ("((SELECT * FROM a LATERAL VIEW explode(x)))", "LATERAL"),
        ("((SELECT ts, max(v) AS v FROM a GROUP BY ts))", "GROUP"),
        ("((SELECT ts, v FROM a JOIN b ON true))", "JOIN"),
        ("((SELECT ts, v FROM a PIVOT (sum(v) FOR k IN (1, 2))))", "PIVOT"),
        ("((WITH c AS (SELECT * FROM a) SELECT * FROM c))", "WITH"),
    ],
)
def test_further_parentheses_hide_nothing(query, rows, said):
    refused(query.format(rows), f"this query has {said}.")


@pytest.mark.parametrize("query", [WINDOW, PATTERN])
@pytest.mark.parametrize("rows", ["((SELECT ts, v FROM a) AS e)", "(VALUES (1, 2))", "((SELECT 1) UNION ALL)"])
def test_rows_in_parentheses_are_of_selects(query, rows):
    refused(query.format(rows))


@pytest.mark.parametrize("query", [WINDOW, PATTERN])
@pytest.mark.parametrize(
    ("rows", "lowered"),
    [
        ("((SELECT ts, v FROM a))", "(SELECT ts, v{a} FROM a)"),
        (
            "((SELECT ts, v FROM a) UNION ALL (SELECT * FROM b))",
            "((SELECT ts, v{a} FROM a) UNION ALL (SELECT *{not} {b} FROM b))",
        ),
        (
            "(((SELECT ts, v FROM a UNION ALL SELECT ts, v FROM b)) UNION ALL SELECT b.* FROM b)",
            "(((SELECT ts, v{a} FROM a UNION ALL SELECT ts, v{b} FROM b)) UNION ALL SELECT b.*{not} {b} FROM b)",
        ),
        ("(SELECT n.b.* FROM n.b)", "(SELECT n.b.*{not} {b} FROM n.b)"),
        ("(SELECT ALL * FROM b)", "(SELECT ALL *{not} {b} FROM b)"),
        ("(SELECT B . * EXCEPT (k) FROM a AS b)", "(SELECT B . * EXCEPT ({names}, k){b} FROM a AS b)"),
        ("(SELECT `a b`.* FROM a `a b`)", "(SELECT `a b`.*{not}{ab} FROM a `a b`)"),
        ("(SELECT /*+ COALESCE(1) */ * FROM b)", "(SELECT /*+ COALESCE(1) */ *{not} {b} FROM b)"),
        ("(SELECT ts, v * 2 AS v FROM a -- all\n)", "(SELECT ts, v * 2 AS v{a} FROM a -- all\n)"),
    ],
)
def test_rows_in_parentheses_have_their_arrival(query, rows, lowered):
    names = "_freshline_watermark, _freshline_seq"
    lowered = lowered.replace("{not} ", "{not}").replace("{names}", names).replace("{not}", f" EXCEPT ({names})")
    for shown, alias in (("{a}", "`a`"), ("{b}", "`b`"), ("{ab}", "`a b`")):
        lowered = lowered.replace(shown, f", {alias}._freshline_watermark, {alias}._freshline_seq")

    assert final(query.format(rows)).read
    assert f"FROM {lowered} AS freshline_rows" in parse(query.format(rows)).text


@pytest.mark.parametrize("query", [WINDOW, PATTERN])
@pytest.mark.parametrize(
    "rows",
    [
        "SELECT ts, v, offset FROM a",
        "SELECT offset, limit, ts, v FROM a",
        "SELECT ALL offset, ts, v FROM a",
        "SELECT ts, v, e.offset, e.window AS group FROM a AS e WHERE e.union > limit AND offset = 3",
        "SELECT ts, v * offset AS v FROM a WHERE v IS NOT DISTINCT FROM a.from",
    ],
)
def test_a_column_of_such_rows_may_have_the_name_of_a_clause(query, rows):
    assert final(query.format(f"({rows})")).read


# -- pivots, and columns that are named behind an alias

HOURS = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT x, y FROM (SELECT k, v FROM {HOURS}) PIVOT (sum(v) FOR k IN ('x' AS x, 'y' AS y))",
        f"SELECT x, y FROM ((SELECT k, v FROM {HOURS}) PIVOT (sum(v) FOR k IN ('x' AS x, 'y' AS y)))",
        f"SELECT x, y, window_end FROM {HOURS} PIVOT (sum(v) FOR k IN ('x' AS x, 'y' AS y))",
        "SELECT x, y FROM a PIVOT (sum(v) FOR k IN ('x' AS x, 'y' AS y))",
        "SELECT x FROM (SELECT x FROM a PIVOT (sum(v) FOR k IN ('x' AS x)))",
        f"SELECT x, y FROM (SELECT k, {SUM} FROM a) PIVOT (sum(x) FOR k IN ('x' AS x, 'y' AS y))",
        f"SELECT x, y FROM (SELECT a.k, b.v {PAIRS}) PIVOT (sum(v) FOR k IN ('x' AS x, 'y' AS y))",
        f"SELECT x FROM {PATTERN[14:].format('a')} PIVOT (sum(n) FOR n IN (1 AS x))",
    ],
)
def test_a_pivot_is_a_group_without_a_bound(query):
    refused(query, "this query has PIVOT, which groups by all other columns.")


def test_unpivot_gives_rows_of_each_row():
    assert final("SELECT n, v FROM a UNPIVOT (v FOR n IN (x, y))").read == ()
    assert final(f"SELECT n FROM (SELECT x, y, {SUM} FROM a) UNPIVOT (v FOR n IN (x, y))").read
    assert final(f"SELECT u.window_end, n FROM {HOURS} UNPIVOT (v FOR n IN (x, y)) AS u").times == {"window_end"}
    rows = f"SELECT window_end AS e, x, y FROM {HOURS}"
    refused(f"SELECT n FROM ({rows}) UNPIVOT (v FOR n IN (e, x))", "this query has UNPIVOT of a bound of the window.")


@pytest.mark.parametrize(
    "source",
    [f"{HOURS} AS w (k, window_end, v)", f"(SELECT k, window_end FROM {HOURS}) AS w (window_end, k)"],
)
def test_columns_that_are_named_behind_an_alias_are_no_bounds(source):
    refused(f"SELECT window_end, count(*) AS n FROM {source} GROUP BY window_end", "this query has AS w (")


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT count(*) AS n FROM {HOURS} AS w GROUP BY s.window_end",
        f"SELECT s.window_end, count(*) AS n FROM {HOURS} GROUP BY 1",
        f"SELECT k, sum(v) OVER (PARTITION BY w.s.window_end) AS x FROM {HOURS} AS w",
    ],
)
def test_a_field_of_a_struct_is_no_bound(query):
    refused(query)


@pytest.mark.parametrize(
    ("items", "times"),
    [
        ("s.window_end, v", set()),
        ("s.*", set()),
        ("w.* EXCEPT (window_time)", {"window_end"}),
        ("* EXCEPT (window_end, window_time)", set()),
        ("w.window_end AS e", {"e"}),
    ],
)
def test_only_a_bound_of_the_window_is_a_time_of_the_result(items, times):
    assert final(f"SELECT {items} FROM {HOURS} AS w").times == times


# -- END is the end of CASE only


@pytest.mark.parametrize(
    "on",
    [
        f"{SOON} AND a.end = 1 OR a.k = b.k",
        f"{SOON} AND end = 1 OR a.k = b.k",
        f"CASE WHEN end = 1 OR a.v = 2 THEN true ELSE end END AND {SOON} OR a.k = b.k",
        f"CASE WHEN a.v = 2 THEN a.end ELSE b.case END = 1 AND {SOON} OR a.k = b.k",
    ],
)
def test_or_is_found_behind_a_column_that_is_named_end(on):
    refused(f"SELECT a.id FROM a JOIN b ON {on}", "JOIN with OR in ON")


@pytest.mark.parametrize(
    "on",
    [
        f"a.end = b.end AND {SOON}",
        f"end AND {SOON}",
        f"a.or = b.and AND a.between = 1 AND {SOON}",
        f"CASE WHEN a.v = 1 OR b.v = 2 THEN a.end ELSE b.case END = 1 AND {SOON}",
        f"CASE WHEN a.v = 1 OR b.v = 2 THEN CASE a.end WHEN 1 THEN true END END AND {SOON}",
        "b.ts >= a.ts AND b.ts <= a.ts AND a.end = 3",
        f"CASE a.v WHEN 1 THEN (b.v + end) * end ELSE f(end, end) END = 1 AND {SOON}",
    ],
)
def test_an_interval_is_found_beside_a_column_that_is_named_end(on):
    assert [time.column for time in parse(f"SELECT a.id FROM a JOIN b ON {on}").window_times] == ["ts", "ts"]


def test_an_interval_inside_case_is_none():
    on = f"CASE WHEN end = 1 AND {SOON} AND true THEN true ELSE true END"

    refused(f"SELECT a.id FROM a JOIN b ON {on}", "without an interval")


# -- columns with the names of clauses


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT id, {SUM} FROM a WHERE offset > 3",
        f"SELECT id, {SUM} FROM a WHERE a.offset > 3 AND NOT limit < window AND a.from = 1 AND group = sort",
        f"SELECT id, {SUM} FROM a WHERE v BETWEEN limit AND offset OR v + limit = 2 QUALIFY v > offset",
        f"SELECT id, {SUM} FROM a WHERE v IS DISTINCT FROM offset AND CASE limit WHEN 1 THEN true END",
        f"SELECT id, {SUM} FROM a WHERE CASE WHEN offset > 3 THEN limit ELSE window END = 1",
        f"SELECT a.id FROM a JOIN b ON a.offset < b.offset AND {SOON}",
        f"SELECT a.id FROM a JOIN b ON {SOON} AND a.join = b.on AND window = 3 WHERE limit > a.over",
        "SELECT e.id FROM e JOIN r FOR SYSTEM_TIME AS OF e.ts ON r.k = e.k WHERE offset > 3 AND e.join = 1",
    ],
)
def test_a_column_may_have_the_name_of_a_clause(query):
    assert final(query).read
    late = parse_late_rows(query, "assets/t.sql", 1, Final())
    assert late is not None
    parse_sql(late.text)


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("WHERE offset > 3 LIMIT 3", "LIMIT"),
        ("WHERE offset > limit LIMIT 3 OFFSET 2", "LIMIT"),
        ("WHERE a.and LIMIT 3", "LIMIT"),
        ("WHERE v > 3 OFFSET 2", "OFFSET"),
        ("OFFSET 2", "OFFSET"),
        ("WHERE a.offset ORDER BY id", "ORDER BY"),
        ("WHERE offset GROUP BY id", "GROUP BY"),
        ("WHERE (v > 3) UNION ALL SELECT 1, 2", "UNION"),
        ("WHERE CASE WHEN v = 1 THEN true END LIMIT 1", "LIMIT"),
        ("WHERE v = 'x' LIMIT 1", "LIMIT"),
        ("WHERE `v` LIMIT 1", "LIMIT"),
        ("WHERE v IS NULL LIMIT 1", "LIMIT"),
        ("WHERE v = s[0] WINDOW w AS (ORDER BY ts)", "WINDOW"),
    ],
)
def test_a_clause_behind_such_columns_is_refused(clause, said):
    refused(f"SELECT id, {SUM} FROM a {clause}", f"this query has {said}.")


# -- columns with the names of those of late rows


@pytest.mark.parametrize(
    ("query", "name"),
    [
        *((f"SELECT id FROM {HOURS}", name) for name in ("position", "late_by")),
        *((f"SELECT id, {SUM} FROM a", name) for name in ("position", "late_by")),
        *((PATTERN.format("a"), name) for name in ("position", "late_by")),
    ],
)
def test_a_column_of_the_log_with_a_name_of_late_rows_is_named(project, query, name):
    columns = f"id BIGINT, v BIGINT, ts TIMESTAMP, {name} INT, PRIMARY KEY (id), WATERMARK FOR ts AS ts"
    files = "WITH ('connector' = 'files', 'path' = 'landing/a', 'format' = 'json')"
    project.declare("a.sql", f"CREATE SOURCE a ({columns}) {files}")
    project.table("t", query, header="FRESHNESS = INTERVAL '1' HOUR EMIT FINAL")

    project.check_error("FINAL_INPUT", f"EMIT FINAL reads rows with a column {name}")
