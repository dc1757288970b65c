"""Window table functions become Spark's SQL, line by line; what is no window is refused before any work."""

from __future__ import annotations

import pytest

from freshline.errors import DeclarationError
from freshline.sql.query_parser import parse_query
from freshline.sql.tokens import Text
from freshline.sql.window_functions import lower_windows
from freshline.values.names import TableName

TIMES = "TABLE ev, DESCRIPTOR(ts)"
SESSION = "SESSION(TABLE ev PARTITION BY a, `b c`, DESCRIPTOR(ts), INTERVAL '10' MINUTES)"


def lowered(query: str) -> str:
    return lower_windows(Text(query, "t.sql", 1)).text


def refusal(query: str) -> str:
    with pytest.raises(DeclarationError) as caught:
        parse_query(query, "t.sql", 1)
    return f"{caught.value.where} {caught.value.rule}: {caught.value.message}"


def test_a_tumbling_window_is_arithmetic_on_microseconds():
    found = lowered("SELECT * FROM TABLE(TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '10' SECONDS)) AS w")

    place = "unix_micros(CAST(freshline_rows.`ts` AS TIMESTAMP))"
    start = f"({place} - pmod({place}, 10000000))"
    assert found == (
        f"SELECT * FROM (SELECT freshline_rows.*, timestamp_micros({start}) AS window_start, "
        f"timestamp_micros({start} + 10000000) AS window_end, "
        f"timestamp_micros(unix_micros(timestamp_micros({start} + 10000000)) - 1) AS window_time "
        "FROM ev AS freshline_rows WHERE freshline_rows.`ts` IS NOT NULL) AS w"
    )


@pytest.mark.parametrize(
    "call",
    [
        f"TUMBLE({TIMES}, INTERVAL '10' MINUTES)",
        f"tumble({TIMES}, interval 10 minute)",
        f"TABLE(TUMBLE({TIMES}, INTERVAL '600' SECOND))",
        "TABLE(TUMBLE(SIZE => INTERVAL '10' MINUTES, DATA => TABLE ev, TIMECOL => DESCRIPTOR(ts)))",
        "TABLE ( TUMBLE(DATA => TABLE ev, TIMECOL => DESCRIPTOR(`ts`), SIZE => INTERVAL '10 minutes') )",
        f"TUMBLE({TIMES}, SIZE => INTERVAL '9 minutes 60 seconds', OFFSET => INTERVAL '0' SECOND)",
        f"HOP({TIMES}, INTERVAL '10' MINUTE, INTERVAL '10' MINUTE)",
    ],
)
def test_spellings_of_one_window_are_one_window(call):
    assert lowered(f"SELECT * FROM {call}") == lowered(f"SELECT * FROM TUMBLE({TIMES}, INTERVAL '10' MINUTES)")


@pytest.mark.parametrize(
    "call",
    [
        "SESSION(TABLE ev PARTITION BY a, `b c`, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
        "TABLE(session(TABLE ev PARTITION BY (a, `b c`), descriptor(`ts`), interval 600 seconds))",
        "SESSION(GAP => INTERVAL '10 minutes', DATA => TABLE ev PARTITION BY a, `b c`, TIMECOL => DESCRIPTOR(ts))",
    ],
)
def test_a_session_has_the_columns_of_its_key_in_every_spelling(call):
    found = lowered(f"SELECT * FROM {call}")

    assert found == lowered(f"SELECT * FROM {SESSION}")
    assert found.count("PARTITION BY freshline_rows.`a`, freshline_rows.`b c`") == 5
    assert "RANGE BETWEEN 600000000 PRECEDING AND 1 PRECEDING" in found


@pytest.mark.parametrize(
    "call",
    [
        "COUNT_WINDOW(TABLE ev PARTITION BY a, `b c` ORDER BY ts, id DESC, SIZE => 100)",
        "table(count_window(table ev partition by (a, `b c`) order by (ts, id desc), 100))",
        "COUNT_WINDOW(SLIDE => 100, SIZE => 100, DATA => TABLE ev PARTITION BY a, `b c` ORDER BY ts, id DESC)",
        "COUNT_WINDOW(TABLE ev PARTITION BY a, `b c` ORDER BY `ts`, id DESC, 100, 100)",
    ],
)
def test_rows_are_counted_in_the_order_of_every_spelling(call):
    found = lowered(f"SELECT * FROM {call}")

    assert found == lowered(
        "SELECT * FROM COUNT_WINDOW(TABLE ev PARTITION BY a, `b c` ORDER BY ts, id DESC, SIZE => 100)"
    )
    key = "PARTITION BY freshline_rows.`a`, freshline_rows.`b c`"
    assert f"rank() OVER ({key} ORDER BY freshline_rows.`ts`, freshline_rows.`id` DESC)" in found
    assert "div 100 AS window_number" in found


def test_text_that_follows_a_window_stays_on_its_line():
    query = (
        "SELECT window_start,\n  count(*) AS n\nFROM TABLE(TUMBLE(\n  TABLE ev, -- all of them\n  DESCRIPTOR(ts),\n"
        "  INTERVAL '10' MINUTES)) AS w\nWHERE nothing.there = 1\nGROUP BY window_start"
    )
    found = lowered(query)

    assert found.count("\n") == query.count("\n")
    assert found.splitlines()[6] == "WHERE nothing.there = 1"


def test_the_query_of_a_file_is_kept_as_it_was_written():
    query = f"SELECT * FROM TUMBLE({TIMES}, INTERVAL '1' HOUR) WHERE v > 1 -- why"
    parsed = parse_query(query, "t.sql", 1)

    assert parsed.written == query
    assert parsed.reads == (TableName(None, "ev"),)
    assert parsed.meaning == "select * from tumble ( table ev , descriptor ( ts ) , interval '1' hour ) where v > 1"


def test_windows_over_windows_and_in_common_tables_are_read():
    query = (
        "WITH m AS (SELECT window_time AS at, k FROM TUMBLE(TABLE shop.ev, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "SELECT * FROM HOP((SELECT * FROM m), DESCRIPTOR(at), INTERVAL '1' HOUR, INTERVAL '1' DAY) h "
        "JOIN TUMBLE(TABLE m, DESCRIPTOR(at), INTERVAL '1' HOUR) t ON h.k = t.k"
    )
    parsed = parse_query(query, "t.sql", 1)

    assert parsed.reads == (TableName("shop", "ev"),)
    assert [(time.function, time.column) for time in parsed.window_times] == [
        ("TUMBLE", "ts"), ("HOP", "at"), ("TUMBLE", "at"),
    ]  # fmt: skip


def test_a_call_behind_a_comma_may_begin_with_any_argument():
    call = "TUMBLE(SIZE => INTERVAL '10' MINUTES, TIMECOL => DESCRIPTOR(ts), DATA => TABLE ev)"

    assert lowered(f"SELECT * FROM b, {call}") == lowered(f"SELECT * FROM b, TUMBLE({TIMES}, INTERVAL '10' MINUTES)")
    assert lowered(f"SELECT * FROM b, TABLE({call})") == lowered(f"SELECT * FROM b, {call}")


def test_a_column_called_like_a_window_function_is_a_column():
    query = "SELECT tumble, hop, (hop), session FROM ev AS session WHERE cumulate > 1"

    assert lowered(query) == query


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (f"TUMBLE({TIMES}, INTERVAL '0' SECOND)", "WINDOW_SIZE: TUMBLE: SIZE is not positive"),
        (f"TUMBLE({TIMES}, INTERVAL '-1' DAY)", "WINDOW_SIZE: TUMBLE: SIZE is not positive"),
        (f"TUMBLE({TIMES}, INTERVAL '1' MONTH)", "WINDOW_SIZE: TUMBLE: SIZE is in months, which have no fixed length"),
        (
            f"TUMBLE({TIMES}, INTERVAL '0.0000001' SECOND)",
            "WINDOW_SIZE: TUMBLE: SIZE INTERVAL '0.0000001' SECOND is no",
        ),
        (f"TUMBLE({TIMES}, INTERVAL '1 month 2 days')", "WINDOW_SIZE: TUMBLE: SIZE INTERVAL '1 month 2 days' is no"),
        (f"TUMBLE({TIMES}, 10)", "WINDOW_SIZE: TUMBLE: SIZE 10 is no interval"),
        (f"TUMBLE({TIMES}, INTERVAL '10' PARSECS)", "WINDOW_SIZE: TUMBLE: SIZE INTERVAL '10' PARSECS is no interval"),
        (f"TUMBLE({TIMES}, INTERVAL '5000000000' WEEKS)", "WINDOW_SIZE: TUMBLE: SIZE"),
        (
            f"HOP({TIMES}, INTERVAL '7' MINUTE, INTERVAL '10' MINUTE)",
            "WINDOW_SIZE: HOP: SIZE is not a multiple of SLIDE",
        ),
        (
            f"HOP({TIMES}, INTERVAL '10' MINUTE, INTERVAL '5' MINUTE)",
            "WINDOW_SIZE: HOP: SIZE is not a multiple of SLIDE",
        ),
        (f"HOP({TIMES}, INTERVAL '1' SECOND, INTERVAL '1' HOUR)", "WINDOW_SIZE: HOP: a row would be in 3,600 windows"),
        (f"CUMULATE({TIMES}, INTERVAL '0' HOUR, INTERVAL '1' DAY)", "WINDOW_SIZE: CUMULATE: STEP is not positive"),
        (
            f"TUMBLE({TIMES}, INTERVAL '1' HOUR, TIME_ZONE => 'UTC')",
            "WINDOW_SIZE: TUMBLE: with TIME_ZONE all intervals",
        ),
        (
            f"CUMULATE({TIMES}, INTERVAL '1' DAY, INTERVAL '1' MONTH, TIME_ZONE => 'UTC')",
            "WINDOW_SIZE: CUMULATE: with TIME_ZONE all intervals",
        ),
        (f"TUMBLE({TIMES}, INTERVAL '1' DAY, TIME_ZONE => 'Europe/Berln')", "Did you mean Europe/Berlin?"),
        # Python knows these, and Java does not.
        (f"TUMBLE({TIMES}, INTERVAL '1' DAY, TIME_ZONE => 'Factory')", "WINDOW_TIME: TUMBLE: 'Factory' is no time"),
        (f"TUMBLE({TIMES}, INTERVAL '1' DAY, TIME_ZONE => 'localtime')", "WINDOW_TIME: TUMBLE: 'localtime' is no time"),
        (f"TUMBLE({TIMES}, INTERVAL '1' DAY, TIME_ZONE => 'ROC')", "WINDOW_TIME: TUMBLE: 'ROC' is no time zone"),
        (f"TUMBLE({TIMES}, INTERVAL '1' DAY, TIME_ZONE => zone)", "WINDOW_TIME: TUMBLE: the time zone is a text"),
        (f"TUMBLE({TIMES})", "QUERY_SYNTAX: TUMBLE: SIZE is missing. Write TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL"),
        ("TUMBLE(TABLE ev, ts, INTERVAL '1' DAY)", "QUERY_SYNTAX: TUMBLE: the time is one column"),
        ("TUMBLE(TABLE ev, DESCRIPTOR(a, b), INTERVAL '1' DAY)", "QUERY_SYNTAX: TUMBLE: the time is one column"),
        ("TUMBLE(ev, DESCRIPTOR(ts), INTERVAL '1' DAY)", "QUERY_SYNTAX: TUMBLE: the input is TABLE and a name"),
        (f"TUMBLE({TIMES}, INTERVAL '1' DAY, INTERVAL '1' DAY, 'UTC', 1)", "QUERY_SYNTAX: TUMBLE: too many arguments"),
        (f"TUMBLE({TIMES}, SIZ => INTERVAL '1' DAY)", "TUMBLE has no argument SIZ. Did you mean SIZE?"),
        (f"TUMBLE({TIMES}, SIZE => INTERVAL '1' DAY, INTERVAL '1' DAY)", "an argument without a name stands behind"),
        (f"TUMBLE({TIMES}, INTERVAL '1' DAY, SIZE => INTERVAL '1' DAY)", "QUERY_SYNTAX: TUMBLE: SIZE is given twice"),
        (f"TABLE(TUMBLE({TIMES}, INTERVAL '1' DAY), 1)", "QUERY_SYNTAX: TABLE(TUMBLE(..) is not closed by )"),
        (f"TUMBLE({TIMES}, INTERVAL '1' DAY", "QUERY_SYNTAX: TUMBLE( is not closed by )"),
        ("SESSION(TABLE ev PARTITION BY k + 1, DESCRIPTOR(ts), INTERVAL '1' DAY)", "PARTITION BY takes columns"),
        ("SESSION(TABLE ev PARTITION BY (), DESCRIPTOR(ts), INTERVAL '1' DAY)", "PARTITION BY takes columns"),
        ("SESSION(TABLE ev PARTITION BY, DESCRIPTOR(ts), INTERVAL '1' DAY)", "PARTITION BY takes columns"),
        ("SESSION(TABLE ev, k, DESCRIPTOR(ts), INTERVAL '1' DAY)", "QUERY_SYNTAX: SESSION: too many arguments"),
        (f"SESSION({TIMES})", "SESSION: GAP is missing. Write SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts)"),
        (f"SESSION({TIMES}, INTERVAL '0' SECOND)", "WINDOW_SIZE: SESSION: GAP is not positive"),
        (f"SESSION({TIMES}, INTERVAL '1' MONTH)", "WINDOW_SIZE: SESSION: GAP is in months"),
        (f"SESSION({TIMES}, INTERVAL '1' DAY, TIME_ZONE => 'UTC')", "SESSION has no argument TIME_ZONE"),
        ("COUNT_WINDOW(TABLE ev PARTITION BY k, SIZE => 10)", "COUNT_WINDOW: ORDER BY is missing. Write COUNT_WINDOW("),
        ("COUNT_WINDOW(TABLE ev ORDER BY ts, id)", "COUNT_WINDOW: SIZE is missing"),
        ("COUNT_WINDOW(TABLE ev ORDER BY ts, id + 1, SIZE => 10)", "COUNT_WINDOW:"),
        (
            "COUNT_WINDOW(TABLE ev ORDER BY lower(k), SIZE => 10)",
            "ORDER BY takes columns, such as ORDER BY ts, id DESC",
        ),
        ("COUNT_WINDOW(TABLE ev ORDER BY, SIZE => 10)", "ORDER BY takes columns"),
        ("COUNT_WINDOW(TABLE ev ORDER BY ts, id, SIZE => 0)", "WINDOW_SIZE: COUNT_WINDOW: SIZE 0 is no number of rows"),
        ("COUNT_WINDOW(TABLE ev ORDER BY ts, id, SIZE => -1)", "WINDOW_SIZE: COUNT_WINDOW: SIZE -1 is no number of"),
        ("COUNT_WINDOW(TABLE ev ORDER BY ts, SIZE => INTERVAL '1' DAY)", "COUNT_WINDOW: SIZE INTERVAL'1'DAY is no"),
        ("COUNT_WINDOW(TABLE ev ORDER BY ts, id, SIZE => 10, SLIDE => 3)", "SIZE is not a multiple of SLIDE"),
        ("COUNT_WINDOW(TABLE ev ORDER BY ts, id, SIZE => 2000, SLIDE => 1)", "a row would be in 2,000 windows"),
        ("COUNT_WINDOW(TABLE ev ORDER BY ts, id, SIZE => 10, GAP => 3)", "COUNT_WINDOW has no argument GAP"),
    ],
)
def test_a_call_that_is_no_window_is_refused_with_its_line(call, said):
    found = refusal(f"SELECT *\nFROM {call}")

    assert said in found
    assert "t.sql:2" in found


FILES = "WITH ('connector' = 'files', 'path' = 'landing/{}', 'format' = 'json')"


def test_a_declared_column_that_is_no_time_is_refused_with_its_line(project):
    project.declare("ev.sql", f"CREATE SOURCE ev (id BIGINT, said STRING, ts TIMESTAMP_NTZ) {FILES.format('ev')}")
    query = "SELECT\n  window_start\nFROM TUMBLE(TABLE EV, DESCRIPTOR({}), INTERVAL '1' HOUR)"
    project.table("t", query.format("Said"))
    project.check_error("WINDOW_TIME", "Said, which is STRING and no TIMESTAMP", at="assets/t.sql:5")

    cast = "WITH ev AS (SELECT CAST(said AS TIMESTAMP) AS said FROM ev) "
    for text in (cast + query.format("said"), query.format("ts")):
        project.table("t", text)
        assert project.read().table(TableName(None, "t")).columns == ("window_start",)


@pytest.mark.parametrize(
    ("input_", "order", "said"),
    [
        ("TABLE ev", "ts, id", None),
        ("TABLE ev PARTITION BY k, ID", "ts", None),
        ("TABLE ev PARTITION BY k", "ts", "Add the PRIMARY KEY of ev to ORDER BY: id."),
        ("TABLE bag PARTITION BY k", "ts", "bag has no PRIMARY KEY. Declare one, and add it to ORDER BY."),
        ("TABLE made", "ts", None),
        ("TABLE made PARTITION BY s", "ts DESC", None),
        ("(SELECT * FROM ev)", "ts, id", "Declare it as a table with a PRIMARY KEY, and name that."),
        ("TABLE w", "ts, id", "Of a query that is not known."),
        ("TABLE ev", "k, id", "WINDOW_TIME: COUNT_WINDOW puts rows into windows by k, which is STRING"),
    ],
)
def test_rows_are_counted_in_a_total_order_only(project, input_, order, said):
    columns = "id BIGINT, k STRING, ts TIMESTAMP, PRIMARY KEY (id)"
    project.declare("ev.sql", f"CREATE SOURCE ev ({columns}) {FILES.format('ev')}")
    project.declare("bag.sql", f"CREATE SOURCE bag (k STRING, ts TIMESTAMP) {FILES.format('bag')}")
    project.table("made", "SELECT ts, 1 AS s FROM ev GROUP BY ts", keys="PRIMARY KEY (ts)")
    counted = f"COUNT_WINDOW({input_} ORDER BY {order}, SIZE => 10)"
    project.table("t", f"WITH w AS (SELECT * FROM ev) SELECT window_number\nFROM {counted}")
    if said is None:
        assert project.read().table(TableName(None, "t")).columns == ("window_number",)
        return
    rule, where, message = project.error()

    assert where == "assets/t.sql:4"
    assert said in f"{rule}: {message}"
