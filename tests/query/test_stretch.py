"""The queries for which a stretch of a key is enough, by their text alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshline.query.query import Query
from freshline.query.rules.affected_interval import (
    AffectedInterval,
    AffectedSessions,
    Bound,
    Counted,
    Matches,
    find_affected_interval,
)
from freshline.sql.match_recognize import lower_patterns
from freshline.sql.tokens import Text
from freshline.sql.window_functions import lower_windows
from freshline.values.names import TableName

EV, NAME = TableName.parse("ev"), TableName.parse("name")
SESSION = "SESSION(TABLE ev PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTES)"
MINUTES = 60_000_000


def stretch(query: str) -> AffectedInterval | None:
    text = lower_windows(Text(lower_patterns(Text(query, "")).text, "")).text
    return find_affected_interval(Query(text, (("ev", EV), ("name", NAME))))


def sessions(keys: str = "k", first: str | None = "window_start", last: str | None = None, **facts) -> AffectedSessions:
    end = None if last is None else Bound(last, facts.pop("moved", 10 * MINUTES))
    columns = facts.pop("columns", keys)
    found = AffectedSessions(EV, tuple(columns.split()), "ts", tuple(keys.split()), 10 * MINUTES, None, end, True)
    return replace(found, first=None if first is None else Bound(first), **facts)


UNDERSTOOD = {
    f"SELECT k, window_start, window_end, v FROM {SESSION}": sessions(last="window_end"),
    f"SELECT * FROM {SESSION}": sessions(last="window_end"),
    f"SELECT window_time AS t, k AS who FROM TABLE({SESSION}) AS w": sessions(
        "who", None, "t", columns="k", moved=10 * MINUTES - 1
    ),
    f"SELECT k, window_start, count(*) AS n FROM {SESSION} GROUP BY 1, 2 HAVING count(*) > 1": sessions(complete=False),
    f"WITH s AS (SELECT k AS a, window_start AS b FROM {SESSION} WHERE v > 1) SELECT b, a FROM s": sessions(
        "a", "b", columns="k", complete=False
    ),
    f"SELECT w.k, w.window_start, n.name FROM {SESSION} AS w JOIN name AS n ON n.k = w.k": sessions(complete=False),
    "SELECT `a b`, window_start FROM SESSION((SELECT x AS `a b`, at AS ts FROM ev WHERE x > 1) PARTITION BY `a b`, "
    "DESCRIPTOR(ts), INTERVAL '10' MINUTES)": replace(sessions(columns="x", time="at"), key_columns=("a b",)),
    # A row whose array is empty gives no row, so its session may give none.
    f"SELECT k, window_start, window_end, explode(arr) AS x FROM {SESSION}": sessions(
        last="window_end", complete=False
    ),
    f"SELECT k, window_start, inline(arr) FROM (SELECT k, window_start, arr FROM {SESSION}) AS q": sessions(
        complete=False
    ),
    # All rows are of one key.
    "SELECT window_start, count(*) AS n FROM SESSION(TABLE ev, DESCRIPTOR(ts), INTERVAL '10' MINUTES) GROUP BY "
    "window_start": sessions(""),
    "SELECT session_window.start AS s, session_window.end AS e, k, count(*) AS n FROM ev WHERE v > 1 GROUP BY k, "
    "session_window(ts, '10 minutes')": sessions(first="s", last="e"),
    "SELECT k, session_window.start AS s FROM ev AS e GROUP BY session_window(e.ts, '600 seconds'), e.k "
    "HAVING count(*) > 1": sessions(first="s", complete=False),
    "SELECT w.k, w.s, n.name FROM name AS n JOIN (SELECT k, session_window.start AS s FROM ev GROUP BY k, "
    "session_window(ts, '10 minutes')) AS w ON n.k = w.k": sessions(first="s", complete=False),
}
NOT = (
    # Columns of ev go by the names of others.
    "SELECT k, session_window.start AS s FROM ev AS e(ts, k) GROUP BY k, session_window(ts, '10 minutes')",
    # The result does not say which key.
    f"SELECT window_start, count(*) AS n FROM {SESSION} GROUP BY window_start",
    f"SELECT k, count(*) AS n FROM {SESSION} GROUP BY k, window_start",
    f"SELECT k, date_trunc('DAY', window_start) AS day FROM {SESSION}",
    # Rows of several sessions are in one row.
    f"SELECT k, max(window_start) AS s FROM {SESSION} GROUP BY k",
    f"SELECT k, window_start, count(*) OVER (PARTITION BY k) AS n FROM {SESSION}",
    f"SELECT k, window_start FROM {SESSION} LIMIT 3",
    f"SELECT k, window_start FROM {SESSION} UNION ALL SELECT k, window_end FROM {SESSION}",
    (
        "SELECT k, session_window.start AS s, rank() OVER (PARTITION BY k ORDER BY count(*)) AS r FROM ev GROUP BY k, "
        "session_window(ts, '10 minutes')"
    ),
    "SELECT k, session_window.start AS s FROM ev GROUP BY ROLLUP(k), session_window(ts, '10 minutes')",
    "SELECT k, session_window.start AS s FROM ev GROUP BY k, v, session_window(ts, '10 minutes')",
    # Changed rows reach other rows in another way.
    f"SELECT w.k, w.window_start FROM {SESSION} AS w JOIN ev AS e ON e.id = w.id",
    f"SELECT k, window_start FROM {SESSION} WHERE EXISTS (SELECT 1 FROM ev AS e WHERE e.v > 3)",
    f"SELECT n.k, w.window_start FROM name AS n LEFT JOIN {SESSION} AS w ON n.k = w.k",
    # The key and the time are computed.
    (
        "SELECT k, window_start FROM SESSION((SELECT lower(k) AS k, ts FROM ev) PARTITION BY k, DESCRIPTOR(ts), "
        "INTERVAL '1' HOUR)"
    ),
    (
        "SELECT k, window_start FROM SESSION((SELECT k, ts + INTERVAL '1' HOUR AS ts FROM ev) PARTITION BY k, "
        "DESCRIPTOR(ts), INTERVAL '1' HOUR)"
    ),
    (
        "SELECT k, window_start FROM SESSION((SELECT k, max(ts) AS ts FROM ev GROUP BY k, v) PARTITION BY k, "
        "DESCRIPTOR(ts), INTERVAL '1' HOUR)"
    ),
    "SELECT k, sum(v) AS s FROM ev GROUP BY k",
)


@pytest.mark.parametrize("query", UNDERSTOOD)
def test_a_refresh_reads_the_sessions_near_a_change(query):
    assert stretch(query) == UNDERSTOOD[query]


@pytest.mark.parametrize("query", NOT)
def test_a_refresh_reads_all_rows_of_the_keys(query):
    assert stretch(query) is None


def matched(
    items: str = "tail, began",
    measures: str = "FIRST(A.ts) AS began",
    skip: str = "SKIP PAST LAST ROW",
    pattern: str = "A B+",
    define: str = "B AS B.v > PREV(B.v)",
    rows: str = "",
    within: str = "WITHIN INTERVAL '1' HOUR",
    order: str = "ts, id DESC",
) -> AffectedInterval | None:
    return stretch(
        f"SELECT {items} FROM ev MATCH_RECOGNIZE (PARTITION BY tail ORDER BY {order} MEASURES {measures} {rows} "
        f"AFTER MATCH {skip} PATTERN ({pattern}) {within} DEFINE {define})"
    )


@pytest.mark.parametrize(
    "clauses",
    [
        {},
        {"items": "*"},
        {"measures": "FINAL FIRST(`ts`) AS began", "rows": "ALL ROWS PER MATCH"},
        {"skip": "SKIP TO LAST B", "order": "ts"},
        {"pattern": "(A | C) B+?", "define": "B AS B.v > LAST(A.v)", "measures": "FIRST(ts) AS began"},
        {"pattern": "A A B", "define": "B AS B.v > PREV(B.v, 2)"},
    ],
    ids=str,
)
def test_a_refresh_searches_from_an_interval_before_a_change_on(clauses):
    assert matched(**clauses) == Matches(EV, ("tail",), "ts", ("tail",), 60 * MINUTES, Bound("began"))


@pytest.mark.parametrize(
    "source",
    [
        "(SELECT tail, ts, explode(tags) AS v FROM ev)",
        "(SELECT tail, ts, v FROM ev LATERAL VIEW explode(tags) t AS v)",
        "(SELECT e.tail, e.ts, n.name AS v FROM ev AS e JOIN name AS n ON n.k = e.tail)",
        "(SELECT e.tail, e.ts, n.name AS v FROM ev AS e LEFT JOIN name AS n ON n.k = e.tail)",
    ],
)
def test_rows_that_are_several_have_all_rows_of_the_keys_read(source):
    query = (
        f"SELECT * FROM {source} MATCH_RECOGNIZE (PARTITION BY tail ORDER BY ts, v MEASURES FIRST(A.ts) AS began "
        "PATTERN (A B+) WITHIN INTERVAL '1' HOUR DEFINE B AS B.v > 'a')"
    )
    assert stretch(query) is None
    assert stretch(query.replace(source, "(SELECT tail, ts, v FROM ev WHERE v > 'a')")) is not None
    counted = (
        f"SELECT tail, window_number, window_start, window_end, v FROM COUNT_WINDOW({source} PARTITION BY tail "
        "ORDER BY ts, v, SIZE => 3)"
    )
    assert stretch(counted) is None
    assert stretch(counted.replace(source, "TABLE ev")) is not None


def test_without_a_partition_all_rows_are_of_one_key():
    found = stretch(
        "SELECT began FROM ev MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(ts) AS began PATTERN (A B) "
        "WITHIN INTERVAL '1' HOUR DEFINE B AS B.v > 1)"
    )
    assert found == Matches(EV, (), "ts", (), 60 * MINUTES, Bound("began"))
    assert str(found) == "the matches from 1 hours before a changed ts on"


@pytest.mark.parametrize(
    "clauses",
    [
        {"within": ""},
        {"items": "tail"},
        {"items": "tail, max(began) AS began", "measures": "FIRST(A.ts) AS began"},
        {"measures": "FIRST(B.ts) AS began"},
        {"measures": "FIRST(A.ts, 1) AS began"},
        {"measures": "LAST(A.ts) AS began"},
        {"measures": "FIRST(A.at) AS began"},
        {"measures": "FIRST(ts) AS began, MATCH_NUMBER() AS n"},
        {"measures": "FIRST(ts) AS began, PREV(A.v) AS before"},
        {"measures": "FIRST(ts) AS began, NEXT(B.v) AS behind"},
        {"measures": "FIRST(ts) AS began", "rows": "ALL ROWS PER MATCH WITH UNMATCHED ROWS"},
        {"measures": "FIRST(ts) AS began", "pattern": "A* B*"},
        {"measures": "FIRST(ts) AS began", "pattern": "^ A B"},
        {"measures": "FIRST(ts) AS began", "pattern": "A B $"},
        {"measures": "FIRST(A.ts) AS began", "pattern": "(A | C) B"},
        {"define": "A AS A.v > PREV(A.v), B AS B.v > 1"},
        {"define": "B AS B.v > PREV(B.v, 2)"},
        {"define": "B AS B.v < NEXT(B.v)"},
        {"define": "B AS B.v > PREV(FIRST(A.v))"},
    ],
    ids=str,
)
def test_a_refresh_searches_the_whole_partition(clauses):
    assert matched(**clauses) is None


COUNT = "COUNT_WINDOW(TABLE ev PARTITION BY k ORDER BY ts, id DESC, SIZE => 20, SLIDE => 10)"
BOUNDS = "k, window_number, window_start, window_end"


def counted(**facts) -> Counted:
    first, last = Bound("window_start"), Bound("window_end")
    found = Counted(EV, ("k",), "ts", ("k",), ("ts", "id"), "window_number", first, last, 2)
    return replace(found, **facts)


COUNTED = {
    f"SELECT * FROM {COUNT}": counted(),
    f"SELECT {BOUNDS}, count(*) AS n FROM {COUNT} GROUP BY 1, 2, window_start, window_end": counted(),
    f"SELECT window_number AS n, k, window_start AS s, window_time AS e FROM TABLE({COUNT})": counted(
        number="n", first=Bound("s"), last=Bound("e")
    ),
    "SELECT a, n, s, e, max(v) OVER (PARTITION BY a, n, s, e) AS g FROM (SELECT k AS a, v, window_number AS n, "
    f"window_start AS s, window_end AS e FROM {COUNT}) AS q": counted(
        key_columns=("a",), number="n", first=Bound("s"), last=Bound("e")
    ),
    "SELECT window_number, window_start, window_end, id FROM COUNT_WINDOW(TABLE ev ORDER BY ts ASC, id, SIZE => 20)": (
        counted(keys=(), key_columns=(), overlap=1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("query", COUNTED)
def test_a_refresh_reads_the_windows_from_the_first_changed_row_on(query):
    assert stretch(query) == COUNTED[query]


@pytest.mark.parametrize(
    "query",
    [
        # A place is counted from the last time on, so a late row moves nearly all.
        f"SELECT * FROM {COUNT.replace('BY ts', 'BY ts DESC')}",
        # The table does not have each window, or lacks the columns that identify it.
        f"SELECT {BOUNDS} FROM {COUNT} WHERE v > 1",
        f"SELECT {BOUNDS} FROM {COUNT} GROUP BY {BOUNDS} HAVING count(*) > 1",
        f"SELECT k, window_start, window_end FROM {COUNT}",
        f"SELECT k, window_number, window_start FROM {COUNT}",
        f"SELECT window_number, window_start, window_end FROM {COUNT}",
        # The number has another meaning than that of a name.
        f"SELECT {BOUNDS}, window_number + 1 AS n FROM {COUNT}",
        f"SELECT {BOUNDS}, max(window_number) AS n FROM {COUNT} GROUP BY {BOUNDS}",
        f"SELECT {BOUNDS}, struct(q.*) AS r FROM (SELECT {BOUNDS}, id FROM {COUNT}) AS q",
        (
            f"SELECT {BOUNDS}, sum(n) OVER (PARTITION BY {BOUNDS} ORDER BY n) AS s FROM (SELECT {BOUNDS}, "
            f"window_number AS n FROM {COUNT}) AS q"
        ),
        f"SELECT {BOUNDS}, (SELECT max(name) FROM name WHERE name.k = window_number) AS n FROM {COUNT}",
    ],
)  # fmt: skip
def test_a_refresh_reads_all_windows_of_the_keys(query):
    assert stretch(query) is None
