"""Tables of matches are what the standard says, whatever changes in their rows, and follow by keys."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from freshline.errors import DeclarationErrors
from freshline.patterns.pattern import parse_pattern
from freshline.testing import Lab
from tests.lanes import few_or_many
from tests.patterns.by_definition import Definition
from tests.scenarios.tables import follow
from tests.scenarios.test_windows import in_utc, sql_time

FLIGHTS = "id BIGINT, tail STRING, left_at TIMESTAMP, delay INT"
HEAD = "FRESHNESS = INTERVAL '5' MINUTE AS SELECT"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
Row = Mapping[str, Any]

GROWING = """departure MATCH_RECOGNIZE (
    PARTITION BY tail ORDER BY left_at, id
    MEASURES FIRST(A.left_at) AS began, LAST(B.delay) AS worst, count(*) AS legs, MATCH_NUMBER() AS number,
             sum(B.delay) AS total, CLASSIFIER() AS ended, PREV(FIRST(A.id)) AS before, LAST(B.id, 1) AS third
    ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
    PATTERN (A B{2,}) WITHIN INTERVAL '1' DAY
    DEFINE B AS B.delay > PREV(B.delay) + 15)"""


def in_order(rows: Sequence[Row], *, tie: Callable[[Row], Any] = lambda row: 0) -> dict[Any, list[Row]]:
    """The rows of each tail by time and number, NULL first."""
    found: dict[Any, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["left_at"] is not None, row["left_at"] or NOON, row["id"], tie(row))):
        found.setdefault(row["tail"], []).append(row)
    return found


def micros(at: datetime | None) -> int | None:
    return None if at is None else (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def growing(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """The rows of GROWING by definition."""
    found = []
    for tail, flights in in_order(rows).items():
        delays = [flight["delay"] for flight in flights]
        grows = [
            place > 0 and None not in (delay, delays[place - 1]) and delay > delays[place - 1] + 15
            for place, delay in enumerate(delays)
        ]
        labels = [frozenset("AB" if each else "A") for each in grows]
        definition = Definition(labels, [micros(flight["left_at"]) for flight in flights], 86_400_000_000)
        for number, (begin, way) in enumerate(definition.matches(parse_pattern("A B{2,}"), "past"), start=1):
            matched = flights[begin : begin + len(way)]
            after = [flight["delay"] for flight in matched[1:]]
            found.append(
                (
                    tail, matched[0]["left_at"], after[-1], len(matched), number, sum(after), "B",
                    flights[begin - 1]["id"] if begin else None, matched[-2]["id"],
                )
            )  # fmt: skip
    return sorted(found, key=str)


def stored(lab, name: str) -> list[tuple[Any, ...]]:
    return sorted((in_utc(row) for row in lab.rows(name)), key=str)


def flights_of(lab) -> list[Row]:
    rows = lab.sql("SELECT id, tail, left_at, delay FROM departure")
    return [dict(zip(row.keys(), in_utc(row), strict=True)) for row in rows]


def drawn(chance: random.Random, number: int) -> list[str]:
    """Rows in any order, ties, NULLs and times before 1970, and changes of what is there."""

    def row(each: int) -> str:
        tail = chance.choice(("'N1'", "'N2'", "'N3'", "NULL"))
        at = NOON + HOUR * chance.randint(0, 40)
        if chance.random() < 0.08:
            at = datetime(1969, 12, 31, chance.randint(0, 23), tzinfo=UTC)
        time = "CAST(NULL AS TIMESTAMP)" if chance.random() < 0.05 else sql_time(at)
        delay = chance.choice(["NULL", *(str(chance.randint(0, 200)) for _ in range(9))])
        return f"({100 * number + each}, {tail}, {time}, {delay})"

    changes = [f"INSERT INTO departure VALUES {', '.join(row(each) for each in range(chance.randint(4, 14)))}"]
    changes += chance.sample(
        [
            f"DELETE FROM departure WHERE pmod(id, 7) = {number % 7}",
            f"UPDATE departure SET delay = delay + 40 WHERE pmod(id, 5) = {number % 5}",
            f"UPDATE departure SET left_at = left_at - INTERVAL '3' HOUR WHERE pmod(id, 6) = {number % 6}",
            f"UPDATE departure SET tail = 'N2' WHERE pmod(id, 9) = {number % 9}",
        ],
        1 if number else 0,
    )
    return changes


@pytest.mark.parametrize("rounds", few_or_many(3, 40))
def test_matches_follow_every_change(lab, rounds):
    lab.source("departure", FLIGHTS)
    lab.declare(f"CREATE MATERIALIZED TABLE growing {HEAD} * FROM {GROWING}")
    chance = random.Random(20)
    matched = 0
    for number in range(rounds):
        for change in drawn(chance, number):
            lab.sql(change)
        outcome = follow(lab, name="growing")
        assert outcome.strategy in (("keys", "noop") if number else ("full",)), outcome.reason
        expected = growing(flights_of(lab))
        matched += len(expected)
        assert stored(lab, "growing") == expected
    assert matched


SMALL = [
    (1, "N1", 0, 10), (2, "N1", 1, 30), (3, "N1", 2, 60), (4, "N1", 3, 5), (5, "N1", 4, 50), (6, "N2", 0, 1),
    (7, "N2", 1, 99),
]  # fmt: skip
VARIANTS: dict[str, tuple[str, str, list[tuple[Any, ...]]]] = {
    # The selected columns, the clauses behind PARTITION BY, and the rows.
    "one row, whole match": (
        "tail, a, b",
        "ORDER BY left_at MEASURES A.id AS a, LAST(B.id) AS b PATTERN (A B+) DEFINE B AS B.delay > PREV(B.delay)",
        [("N1", 1, 3), ("N1", 4, 5), ("N2", 6, 7)],
    ),
    "to the next row": (
        "a, b",
        (
            "ORDER BY left_at MEASURES A.id AS a, LAST(B.id) AS b AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+) "
            "DEFINE B AS B.delay > PREV(B.delay)"
        ),
        [(1, 3), (2, 3), (4, 5), (6, 7)],
    ),
    "to the last of a variable": (
        "a, b",
        (
            "ORDER BY left_at MEASURES A.id AS a, LAST(B.id) AS b AFTER MATCH SKIP TO LAST B PATTERN (A B) "
            "DEFINE B AS B.delay > PREV(B.delay)"
        ),
        [(1, 2), (2, 3), (4, 5), (6, 7)],
    ),
    "all rows, running and final": (
        "id, r, f, c, n",
        (
            "ORDER BY left_at MEASURES LAST(id) AS r, FINAL LAST(id) AS f, CLASSIFIER() AS c, RUNNING sum(delay) AS n "
            "ALL ROWS PER MATCH PATTERN (A B+) DEFINE B AS B.delay > PREV(B.delay)"
        ),
        [
            (1, 1, 3, "A", 10),
            (2, 2, 3, "B", 40),
            (3, 3, 3, "B", 100),
            (4, 4, 5, "A", 5),
            (5, 5, 5, "B", 55),
            (6, 6, 7, "A", 1),
            (7, 7, 7, "B", 100),
        ],
    ),
    "with unmatched rows": (
        "id, m, c",
        (
            "ORDER BY left_at MEASURES MATCH_NUMBER() AS m, count(*) AS c ALL ROWS PER MATCH WITH UNMATCHED ROWS "
            "PATTERN (A B) DEFINE A AS delay > 20, B AS delay > 40"
        ),
        [(1, None, None), (2, 1, 1), (3, 1, 2), (4, None, None), (5, None, None), (6, None, None), (7, None, None)],
    ),
    "empty matches are shown": (
        "id, m, c, n",
        (
            "ORDER BY left_at MEASURES MATCH_NUMBER() AS m, CLASSIFIER() AS c, count(A.*) AS n ALL ROWS PER MATCH "
            "PATTERN (A*) DEFINE A AS delay > 20"
        ),
        [
            (1, 1, None, 0),
            (2, 2, "A", 1),
            (3, 2, "A", 2),
            (4, 3, None, 0),
            (5, 4, "A", 1),
            (6, 1, None, 0),
            (7, 2, "A", 1),
        ],
    ),
    "empty matches are omitted": (
        "id, m",
        (
            "ORDER BY left_at MEASURES MATCH_NUMBER() AS m ALL ROWS PER MATCH OMIT EMPTY MATCHES PATTERN (A*) "
            "DEFINE A AS delay > 20"
        ),
        [(2, 2), (3, 2), (5, 4), (7, 2)],
    ),
    "an empty match is a row of its own": (
        "tail, m, n, x",
        (
            "ORDER BY left_at MEASURES MATCH_NUMBER() AS m, count(*) AS n, LAST(A.id) AS x PATTERN (A*) "
            "DEFINE A AS delay > 20"
        ),
        [("N1", 1, 0, None), ("N1", 2, 2, 3), ("N1", 3, 0, None), ("N1", 4, 1, 5), ("N2", 1, 0, None), ("N2", 2, 1, 7)],
    ),
    "excluded rows are measured only": (
        "id, s",
        (
            "ORDER BY left_at MEASURES FINAL sum(delay) AS s ALL ROWS PER MATCH PATTERN (A {- B -} C) "
            "DEFINE B AS B.delay > A.delay, C AS C.delay > B.delay"
        ),
        [(1, 100), (3, 100)],
    ),
    "newest first": (
        "a, b",
        (
            "ORDER BY left_at DESC, id MEASURES FIRST(A.id) AS a, LAST(B.id) AS b PATTERN (A B+) "
            "DEFINE B AS B.delay < PREV(B.delay)"
        ),
        [(5, 4), (3, 1), (7, 6)],
    ),
    "subsets, either way, names": (
        "a, u, s",
        (
            "ORDER BY left_at MEASURES FIRST(U.id) AS a, CLASSIFIER(U) AS u, sum(U.delay) + max(U.delay) AS s "
            "PATTERN (PERMUTE(Up, Down) X?) SUBSET U = (Up, X) "
            "DEFINE Up AS Up.delay > 25, Down AS Down.delay < 20, X AS X.delay > 1000"
        ),
        [(2, "UP", 60), (3, "UP", 120), (7, "UP", 198)],
    ),
    "of the match so far": (
        "a, n, t",
        (
            "ORDER BY left_at MEASURES FIRST(A.id) AS a, count(*) AS n, sum(A.delay) AS t PATTERN (A+ B?) "
            "DEFINE A AS sum(A.delay) < 101 AND A.delay >= FIRST(A.delay), "
            "B AS B.left_at - INTERVAL '1' HOUR >= FIRST(A.left_at) AND count(A.*) BETWEEN 1 AND 2 OR B.delay IS NULL"
        ),
        [(1, 3, 100), (4, 2, 55), (6, 2, 100)],
    ),
    "lists and approximations": (
        "subset, p, n",
        (
            "ORDER BY left_at MEASURES collect_list(B.delay) AS subset, percentile_approx(delay, 0.5, 100) AS p, "
            "approx_count_distinct(A.delay, 0.05) AS n PATTERN (A B+) DEFINE B AS B.delay > PREV(B.delay)"
        ),
        [([30, 60], 30, 1), ([50], 5, 1), ([99], 1, 1)],
    ),
    "lists up to a row": (
        "id, seen",
        (
            "ORDER BY left_at MEASURES array_agg(id) AS seen ALL ROWS PER MATCH PATTERN (A B+) "
            "DEFINE B AS B.delay > PREV(B.delay) AND CLASSIFIER(B) = 'B'"
        ),
        [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [4]), (5, [4, 5]), (6, [6]), (7, [6, 7])],
    ),
    "neighbours of the match": (
        "a, p, n, q",
        (
            "ORDER BY left_at MEASURES A.id AS a, PREV(A.id) AS p, NEXT(LAST(B.id), 2) AS n, FIRST(B.id, 1) AS q "
            "PATTERN (A B+) DEFINE B AS B.delay > PREV(B.delay)"
        ),
        [(1, None, 5, 3), (4, 3, None, None), (6, None, None, None)],
    ),
}


def declare_small(lab, clauses: str, shown: str = "*", keys: str = "PARTITION BY tail ") -> None:
    lab.source("departure", FLIGHTS)
    lab.declare(f"CREATE MATERIALIZED TABLE found {HEAD} {shown} FROM departure MATCH_RECOGNIZE ({keys}{clauses})")


def fill(lab, rows: Sequence[tuple[Any, ...]] = SMALL) -> None:
    values = ", ".join(
        f"({number}, '{tail}', {sql_time(NOON + HOUR * hour)}, {'NULL' if delay is None else delay})"
        for number, tail, hour, delay in rows
    )
    lab.sql(f"INSERT INTO departure VALUES {values}")


# Each way to show matches and to go on behind one, and all that is said of the rows of a match.
TELLING = (
    "to the last of a variable", "all rows, running and final", "empty matches are shown",
    "excluded rows are measured only", "subsets, either way, names", "of the match so far", "lists up to a row",
    "neighbours of the match",
)  # fmt: skip


def read_in_halves(lab, variants: Iterable[str]) -> dict[str, str]:
    """The tables of these variants, which have read half of the rows, while all of them are there."""
    lab.source("departure", FLIGHTS)
    names = {variant: f"found{number}" for number, variant in enumerate(variants)}
    for variant, name in names.items():
        shown, clauses, _ = VARIANTS[variant]
        lab.declare(
            f"CREATE MATERIALIZED TABLE {name} {HEAD} {shown} "
            f"FROM departure MATCH_RECOGNIZE (PARTITION BY tail {clauses})"
        )
    fill(lab, SMALL[1::2])
    assert all(outcome.error is None for outcome in lab.refresh_all())
    fill(lab, SMALL[0::2])
    return names


def follows(lab, name: str, variant: str) -> None:
    follow(lab, name=name, by="keys")
    assert stored(lab, name) == sorted(VARIANTS[variant][2], key=str)


@pytest.fixture(scope="module")
def small(shared_lab) -> tuple[Lab, dict[str, str]]:
    return shared_lab, read_in_halves(shared_lab, TELLING)


@pytest.mark.long
@pytest.mark.parametrize("variant", TELLING)
def test_a_clause_says(small, variant):
    lab, names = small

    follows(lab, names[variant], variant)


@pytest.mark.long
@pytest.mark.parametrize("variant", [each for each in VARIANTS if each not in TELLING])
def test_another_clause_says(lab, variant):
    [name] = read_in_halves(lab, [variant]).values()

    follows(lab, name, variant)


@pytest.mark.long
def test_rows_of_one_row_are_searched_as_rows_of_one_time(lab):
    lab.source("ev", "k INT, ts TIMESTAMP, tags ARRAY<STRING>")
    lab.sql(
        f"INSERT INTO ev VALUES (1, {sql_time(NOON)}, array('a')), (1, {sql_time(NOON + HOUR)}, array('b', 'c')), "
        f"(1, {sql_time(NOON + 2.5 * HOUR)}, array('d'))"
    )
    lab.declare(
        f"CREATE MATERIALIZED TABLE found {HEAD} * FROM (SELECT k, ts, explode(tags) AS v FROM ev) MATCH_RECOGNIZE ("
        "PARTITION BY k ORDER BY ts, v MEASURES FIRST(ts) AS began, FIRST(v) AS f, LAST(v) AS l "
        "PATTERN (A B) WITHIN INTERVAL '2' HOUR DEFINE B AS B.v > '')"
    )
    assert lab.refresh("found").error is None
    assert [row[2:] for row in stored(lab, "found")] == [("a", "b"), ("c", "d")]
    lab.sql(f"INSERT INTO ev VALUES (1, {sql_time(NOON + 4 * HOUR)}, array('e'))")
    assert (lab.refresh("found").error, lab.diff("found")) == (None, [])
    lab.sql(f"INSERT INTO ev VALUES (1, {sql_time(NOON + 5 * HOUR)}, array('f', 'g'))")
    outcome = lab.refresh("found")
    assert (outcome.error, outcome.strategy) == (None, "keys")
    assert [row[2:] for row in stored(lab, "found")] == [("a", "b"), ("c", "d"), ("e", "f")]


def test_windows_are_matched_without_the_word_table(lab):
    query = (
        "tail, n FROM TUMBLE(TABLE departure, DESCRIPTOR(left_at), INTERVAL '2' HOURS) MATCH_RECOGNIZE ("
        "PARTITION BY tail, window_start ORDER BY id MEASURES count(*) AS n PATTERN (A+) DEFINE A AS A.delay > 5)"
    )
    lab.source("departure", FLIGHTS)
    lab.declare(f"CREATE MATERIALIZED TABLE bare {HEAD} {query}")
    whole = query.replace("TUMBLE(", "TABLE(TUMBLE(").replace("HOURS)", "HOURS))")
    lab.declare(f"CREATE MATERIALIZED TABLE whole {HEAD} {whole}")
    fill(lab)
    assert [lab.refresh(name).error for name in ("bare", "whole")] == [None, None]
    assert stored(lab, "bare") == stored(lab, "whole") != []


def test_without_a_partition_all_rows_are_one(lab):
    declare_small(
        lab,
        "ORDER BY id MEASURES A.id AS a, count(*) AS n PATTERN (A B+) DEFINE B AS B.delay > PREV(B.delay)",
        keys="",
    )
    fill(lab)

    assert lab.refresh("found").error is None
    assert stored(lab, "found") == [(1, 3), (4, 2), (6, 2)]
    fill(lab, [(8, "N2", 2, 100)])
    outcome = lab.refresh("found")
    assert (outcome.error, outcome.strategy) == (None, "full")
    assert stored(lab, "found") == [(1, 3), (4, 2), (6, 3)]


@pytest.mark.long
def test_names_may_be_in_any_letter_case(lab):
    lab.source("departure", "id BIGINT, Tail STRING, leftAt TIMESTAMP, `Delay` INT")
    grows = "PATTERN (A B+) DEFINE B AS B.delay > PREV(B.DELAY)"
    lab.declare(
        f"CREATE MATERIALIZED TABLE found {HEAD} * FROM departure MATCH_RECOGNIZE (PARTITION BY Tail ORDER BY leftAt "
        f"MEASURES A.id AS firstId, count(*) AS n {grows})"
    )
    lab.declare(
        f"CREATE MATERIALIZED TABLE every {HEAD} id, leftAt, c FROM (SELECT * FROM departure WHERE id > 0) "
        f"MATCH_RECOGNIZE (PARTITION BY tail ORDER BY LeftAt MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH {grows})"
    )
    fill(lab)
    lab.refresh_all()
    fill(lab, [(8, "N1", 5, 70)])

    outcomes = {str(outcome.table): outcome for outcome in lab.refresh_all()}

    for name in ("found", "every"):
        assert (outcomes[name].error, outcomes[name].strategy) == (None, "keys"), (name, outcomes[name].reason)
        assert lab.diff(name) == []
    assert stored(lab, "found") == [("N1", 1, 3), ("N1", 4, 3), ("N2", 6, 2)]


@pytest.mark.long
def test_matches_are_rows_like_any_other(lab):
    """Matches of a window, of a query in parentheses, of a join, and of matches again."""
    lab.source("departure", FLIGHTS)
    lab.source("fleet", "tail STRING, owner STRING")
    growing = "PATTERN (A B+) DEFINE B AS B.delay > PREV(B.delay)"
    lab.declare(
        f"CREATE MATERIALIZED TABLE owners {HEAD} f.owner, m.a, m.n, sum(m.n) OVER (PARTITION BY f.owner) AS legs "
        "FROM (SELECT d.*, d.delay * 1 AS late FROM departure d WHERE delay IS NOT NULL) MATCH_RECOGNIZE (PARTITION BY "
        f"tail ORDER BY left_at MEASURES A.id AS a, count(*) AS n {growing}) AS m JOIN fleet f ON f.tail = m.tail"
    )
    lab.declare(
        f"CREATE MATERIALIZED TABLE hourly {HEAD} m.* FROM TABLE(TUMBLE(TABLE departure, DESCRIPTOR(left_at), "
        "INTERVAL '2' HOURS)) MATCH_RECOGNIZE (PARTITION BY tail, window_start ORDER BY left_at MEASURES count(*) AS n "
        f"{growing}) AS m"
    )
    lab.declare(
        f"CREATE MATERIALIZED TABLE again {HEAD} o.* FROM (SELECT * FROM departure MATCH_RECOGNIZE (PARTITION BY tail "
        f"ORDER BY left_at MEASURES A.id AS a, B.delay AS worst {growing})) MATCH_RECOGNIZE (PARTITION BY tail "
        "ORDER BY a MEASURES X.a AS first, Y.a AS second PATTERN (X Y) DEFINE Y AS Y.worst < X.worst) AS o"
    )
    fill(lab)
    lab.sql("INSERT INTO fleet VALUES ('N1', 'anna'), ('N2', 'anna')")
    lab.refresh_all()
    fill(lab, [(8, "N1", 5, 70), (9, "N1", 7, 1), (10, "N1", 8, 3), (11, "N2", 2, None)])

    outcomes = {str(outcome.table): outcome for outcome in lab.refresh_all()}

    for name in ("owners", "hourly", "again"):
        assert (outcomes[name].error, outcomes[name].strategy) == (None, "keys"), (name, outcomes[name].reason)
        assert lab.diff(name) == []
    assert stored(lab, "owners") == [("anna", 1, 3, 10), ("anna", 4, 3, 10), ("anna", 6, 2, 10), ("anna", 9, 2, 10)]
    assert stored(lab, "again") == [("N1", 4, 9)]
    assert [(tail, at.hour) for tail, at, _ in stored(lab, "hourly")] == [("N1", 12), ("N1", 16), ("N2", 12)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("clauses", "code", "said"),
    [
        ("MEASURES A.id AS a PATTERN (A) DEFINE A AS id > 1", "PATTERN_SYNTAX", "ORDER BY is missing"),
        ("ORDER BY id PATTERN (A B) MEASURES A.id AS a DEFINE A AS id > 1", "PATTERN_SYNTAX", "MEASURES stands behind"),
        ("ORDER BY id PATTERN (A (B) DEFINE A AS id > 1", "PATTERN_SYNTAX", "not closed"),
        ("ORDER BY id PATTERN (A **) DEFINE A AS id > 1", "PATTERN_SYNTAX", "two quantifiers"),
        ("ORDER BY id PATTERN (A) DEFINE B AS id > 1", "PATTERN_VARIABLE", "DEFINE names B"),
        ("ORDER BY id PATTERN (A) SUBSET U = (A, C) DEFINE A AS id > 1", "PATTERN_VARIABLE", "SUBSET names C"),
        ("ORDER BY id MEASURES Z.id AS z PATTERN (A) DEFINE A AS id > 1", "PATTERN_VARIABLE", "Z is no variable"),
        ("ORDER BY id AFTER MATCH SKIP TO X PATTERN (A) DEFINE A AS id > 1", "PATTERN_VARIABLE", "SKIP TO names X"),
        ("ORDER BY id AFTER MATCH SKIP TO FIRST A PATTERN (A B) DEFINE B AS id > 1", "PATTERN_EMPTY_SKIP", "FIRST A"),
        ("ORDER BY id PATTERN (A B) DEFINE B AS id > abs(A.id)", "PATTERN_EXPRESSION", "rows matched so far"),
        ("ORDER BY id PATTERN (A B) DEFINE B AS id > (SELECT 1)", "PATTERN_EXPRESSION", "subquery"),
        (
            "ORDER BY id MEASURES sum(A.id + B.id) AS s PATTERN (A B) DEFINE B AS id > 1",
            "PATTERN_EXPRESSION",
            "A and B",
        ),
        ("ORDER BY id PATTERN (A) WITHIN INTERVAL '1' MONTH DEFINE A AS id > 1", "PATTERN_SYNTAX", "WITHIN"),
        ("ORDER BY id PATTERN (A) WITHIN INTERVAL '1' DAY DEFINE A AS id > 1", "WINDOW_TIME", "id, which is BIGINT"),
        ("ORDER BY id PATTERN (A B) DEFINE B AS CLASSIFIER(A) = 'A'", "PATTERN_EXPRESSION", "asked about, which is B"),
        ("ORDER BY id PATTERN (A B) DEFINE B AS CLASSIFIER(Z) = 'A'", "PATTERN_VARIABLE", "one variable"),
        (
            "ORDER BY id PATTERN (A B) DEFINE B AS B.left_at > A.left_at + INTERVAL '1' MONTH",
            "PATTERN_EXPRESSION",
            "rows matched so far",
        ),
        ("ORDER BY id MEASURES max_by(A.id, A.delay) AS m PATTERN (A) DEFINE A AS id > 1", "PATTERN_EXPRESSION", "any"),
        (
            "ORDER BY id MEASURES median(delay) AS m ALL ROWS PER MATCH PATTERN (A) DEFINE A AS id > 1",
            "PATTERN_EXPRESSION",
            "ONE ROW PER MATCH",
        ),
    ],
)
def test_a_mistake_is_reported_before_any_work(small, clauses, code, said):
    lab, _ = small
    with pytest.raises(DeclarationErrors) as raised:
        lab.declare(
            f"CREATE MATERIALIZED TABLE found {HEAD}\n*\nFROM departure MATCH_RECOGNIZE (PARTITION BY tail {clauses})"
        )

    [error] = raised.value.errors
    assert error.rule == code
    assert said in error.message
    assert error.where == "assets/found.sql:3"


# A step of a search counts by the rows that it took before, so that a long match uses its budget up in a second.
LONG_MATCH = 1_500


@pytest.mark.parametrize(
    ("clauses", "code", "count"),
    [
        ("AFTER MATCH SKIP TO B PATTERN (A B?) DEFINE A AS id > 0, B AS B.id = 2", "PATTERN_EMPTY_SKIP", 9),
        ("AFTER MATCH SKIP TO LAST A PATTERN (A B) DEFINE B AS id > 0", "PATTERN_EMPTY_SKIP", 9),
        ("PATTERN (A B) DEFINE B AS B.tail > A.id", "PATTERN_EXPRESSION", 9),
        ("PATTERN (A B) DEFINE B AS A.delay", "PATTERN_EXPRESSION", 9),
        ("MEASURES A.nothing AS a PATTERN (A) DEFINE A AS id > 1", "QUERY", 9),
        (
            "PATTERN (((A+)+)+ B) DEFINE A AS A.id >= FIRST(A.id), B AS B.id < 0",
            "PATTERN_BUDGET",
            LONG_MATCH,
        ),
    ],
)
def test_a_mistake_that_rows_show_fails_this_table_only(lab, clauses, code, count):
    declare_small(lab, f"ORDER BY id {clauses}")
    lab.declare(f"CREATE MATERIALIZED TABLE other {HEAD} * FROM departure")
    lab.sql(f"INSERT INTO departure SELECT id + 1, 'N1', {sql_time(NOON)}, id FROM range({count})")

    found, other = lab.refresh("found"), lab.refresh("other")

    assert (found.error.code, other.error) == (code, None), found.error
    assert "found.sql:1" in found.error.where
    assert len(lab.rows("other")) == count
