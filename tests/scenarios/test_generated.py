"""Whatever happens to the sources, every table equals its query at the positions in its receipt, after every refresh.

The changes are random and the seed is printed; a failure is replayed by its seed. Queries are random too: those that
`generator` draws are refreshed by every strategy in turn, and some are compared with DuckDB. FRESHLINE_GENERATED is how
many refreshes the long lane makes, FRESHLINE_GENERATED_DOUBLES how many of them over sums of DOUBLE,
FRESHLINE_GENERATED_EVENT_TIME how many over windows, matches and intervals of time, FRESHLINE_GENERATED_TIMED how many
that compare rows with the time, FRESHLINE_GENERATED_ONE_ROW how many of aggregates over all rows,
FRESHLINE_GENERATED_FIRST how many of the first rows of an order. The long lane begins
with other seeds every day, so that nights differ, and a failure names its own; FRESHLINE_SEED is where it begins
instead.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime
from itertools import count

import pytest

from freshline.testing import Lab
from tests.plain_lab import PlainLab
from tests.scenarios.generator.case import draw
from tests.scenarios.generator.judge import Counts, judge_refreshes
from tests.scenarios.generator.shrink import told

HOURLY = "FRESHNESS = INTERVAL '1' HOUR"
KEYS = ["a", "b", "c", None]
DAYS = ["2026-01-01", "2026-01-02", "2026-01-03", None]

TABLES = {
    "first": "(PRIMARY KEY (k)) WITH ('merge' = 'first_row', 'merge.order' = 'ts', 'merge.tie-breaker' = 'id') "
    "{f} AS SELECT k, ts, id, v FROM ev WHERE v IS NULL OR v <> 3",
    "arrived": "(PRIMARY KEY (k, d)) WITH ('merge' = 'first_row') {f} AS SELECT k, CAST(ts AS DATE) AS d, v FROM ev",
    "late": "(PRIMARY KEY (k)) WITH ('merge' = 'first_row', 'merge.order' = 'ts', 'merge.tie-breaker' = 'id', "
    "'merge.late' = 'ignore') {f} AS SELECT k, id FROM ev",
    "last": "(PRIMARY KEY (k)) WITH ('merge' = 'last_row', 'merge.sequence' = 'ts', 'merge.tie-breaker' = 'id', "
    "'merge.delete-when' = 'v = 0') {f} AS SELECT k, v FROM ev",
    "copied": "{f} "
    "AS SELECT o.id, o.k, o.n * 2 AS n FROM o WHERE n > 0 UNION ALL SELECT CAST(NULL AS INT), k, v FROM ev",
    "days": "PARTITIONED BY (d) {f} AS SELECT d, count(*) AS n, sum(n) AS s, max(k) AS k FROM o GROUP BY d",
    "ranked": "PARTITIONED BY (d, k) {f} "
    "AS SELECT d, k, id, rank() OVER (PARTITION BY d, k ORDER BY n, id) AS r FROM o",
    "met": "PARTITIONED BY (d) {f} AS SELECT o.id, o.d, first.id AS touch, version_of(first) AS fv, c.name FROM o "
    "LEFT JOIN first FOR SYSTEM_TIME AS OF PROCTIME() ON o.k = first.k "
    "LEFT JOIN c FOR SYSTEM_TIME AS OF PROCTIME() ON c.k = o.k",
}

# The condition that is expected of the rows of each; a row for which it is not true is left out.
EXPECTED = {
    "first": "v > 0",
    "arrived": "v <> 1",
    "late": "id > '0003'",
    "last": "v < 3",
    "copied": "n > 2 OR k IS NULL",
    "days": "n < 4",
    "ranked": "r < 3",
    "met": "touch IS NOT NULL",
}


# The shapes of the cases of event time, in turn by their seeds.
EVENT_TIME = (
    {"deep": 1, "patterns": True, "judged": 0.0},
    {"deep": 1, "intervals": True, "parted": 0.4},
    {"deep": 1, "windows": True, "intervals": True, "timed": 0.3, "parted": 0.2},
)


def declare(lab, expected=None):
    lab.files("ev", "id STRING, k STRING, ts TIMESTAMP, v INT", primary_key=["id"])
    lab.source("o", "id INT, k STRING, d DATE, n INT")
    lab.source("c", "k STRING, name STRING")
    lab.sql("INSERT INTO c VALUES ('a', 'A'), ('b', 'B'), (NULL, 'N')")
    for name, rest in TABLES.items():
        text = rest.format(f=HOURLY)
        if expected is not None:
            constraint = f"CONSTRAINT c EXPECT ({expected[name]}) ON VIOLATION QUARANTINE"
            # With a PRIMARY KEY the parentheses are there.
            text = f"({constraint}, {text[1:]}" if text.startswith("(") else f"({constraint}) {text}"
        lab.declare(f"CREATE MATERIALIZED TABLE {name} {text}")


class Changes:
    """Random changes of the sources of one Lab."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab = lab
        self.random = random.Random(seed)
        self.numbers = 0
        self.files = 0

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def event(self) -> dict[str, object]:
        choice = self.random.choice
        day = choice(DAYS)
        # An id that came before is a redelivery or a conflict.
        number = self.next_number() if self.random.random() < 0.8 else self.random.randint(0, self.numbers)
        return {
            "id": f"{number:04d}",
            "k": choice(KEYS),
            "ts": day and f"{day}T0{choice('01')}:00:00Z",
            "v": choice([0, 1, 2, 3, None]),
        }

    def order(self) -> str:
        choice = self.random.choice
        key, day = choice(KEYS), choice(DAYS)
        text = ", ".join("NULL" if value is None else f"'{value}'" for value in (key, day))
        return f"({self.next_number()}, {text}, {choice([-1, 0, 1, 2, 'NULL'])})"

    def orders(self) -> str:
        rows = [self.order() for _ in range(self.random.randint(1, 4))]
        return "VALUES " + ", ".join(f"({r[1:-1].split(', ')[0]}, {', '.join(r[1:-1].split(', ')[1:])})" for r in rows)

    def where(self) -> str:
        return self.random.choice(
            [
                f"id = {self.random.randint(0, self.numbers)}",
                f"k <=> {self._key()}",
                "d = DATE'2026-01-01'",
                "d IS NULL",
                "n < 1",
            ]
        )

    def _key(self) -> str:
        key = self.random.choice(KEYS)
        return "NULL" if key is None else f"'{key}'"

    def make(self) -> str:
        kind = self.random.choices(
            ["land", "insert", "update", "move", "delete", "overwrite", "same", "truncate", "dimension", "nothing"],
            [6, 6, 2, 1, 2, 1, 1, 0.3, 1, 0.5],
        )[0]
        sql = self.lab.sql
        match kind:
            case "land":
                self.files += 1
                events = [self.event() for _ in range(self.random.randint(0, 6))]
                self.lab.land("ev", f"{self.files}.json", [*events, *events[:1]])
            case "insert":
                sql(f"INSERT INTO o {self.orders()}")
            case "update":
                sql(f"UPDATE o SET n = n + 1 WHERE {self.where()}")
            case "move":
                sql(f"UPDATE o SET d = DATE'2026-01-02', k = {self._key()} WHERE {self.where()}")
            case "delete":
                sql(f"DELETE FROM o WHERE {self.where()}")
            case "overwrite":
                sql(f"INSERT OVERWRITE o {self.orders()}")
            case "same":
                sql("INSERT OVERWRITE o SELECT * FROM o")
            case "truncate":
                sql("TRUNCATE TABLE o")
            case "dimension":
                sql(f"UPDATE c SET name = concat(name, 'x') WHERE k <=> {self._key()}")
        return kind

    def run(self, steps: int) -> None:
        done: list[str] = []
        for _ in range(steps):
            made = [self.make() for _ in range(self.random.randint(1, 3))]
            names = self.random.sample(list(TABLES), self.random.randint(1, len(TABLES)))
            done.append(f"{made} -> {names}")
            for name in names:
                if self.random.random() < 0.05:
                    self.lab.restart(lose_control_store=self.random.random() < 0.5)
                outcome = self.lab.refresh(name)
                assert outcome.error is None, (name, outcome.error, done)
                assert self.lab.diff(name) == [], (name, outcome.strategy, outcome.reason, done)
            self.lab.clock.advance(minutes=10)


@pytest.mark.slow
def test_tables_equal_their_queries_after_random_changes(lab):
    declare(lab)

    Changes(lab, seed=20261101).run(2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_tables_equal_their_queries_after_many_random_changes(lab, seed):
    seed += first_seed(0)
    print(f"FRESHLINE_SEED={seed}")
    declare(lab)

    Changes(lab, seed).run(40)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_tables_equal_their_queries_without_what_constraints_leave_out(lab, seed):
    declare(lab, EXPECTED)

    Changes(lab, seed).run(25)

    for name, expected in EXPECTED.items():
        assert lab.sql(f"SELECT * FROM {name} WHERE NOT coalesce({expected}, false)") == []
        rejected = [(row["error"], row["raw"]) for row in lab.quarantine(name)]
        assert all(error == "CONSTRAINT(c)" for error, _ in rejected)
        if name in ("days", "ranked"):
            # A row that is computed again and rejected again is kept once.
            assert len(rejected) == len(set(rejected)), name
    assert any(lab.quarantine(name) for name in EXPECTED)


def first_seed(kind):
    """Where the long lane begins: a million seeds for each day, and a hundred thousand for each kind of cases."""
    given = os.environ.get("FRESHLINE_SEED")
    return int(given) if given else datetime.now(UTC).toordinal() % 1000 * 1_000_000 + kind * 100_000


def refresh_random_queries(spark, wanted, first, *, tables, rounds, shapes=({},), most=60, **named):
    """Refresh tables of random queries that many times; a wrong one is made smaller and reported.

    Cases are of each of `shapes` in turn. Over sums of DOUBLE only those count that had something to do.
    """
    counts, lab_of = Counts(), Lab

    def judged(case):
        return judge_refreshes(case, lambda start: lab_of(spark, start=start), counts)

    for seed in count(first):
        shape = {**shapes[seed % len(shapes)], **named}
        case = draw(seed, tables=tables, rounds=rounds, **shape)
        # Of four cases one has its sources written by Spark.
        lab_of = PlainLab if seed % 4 else Lab
        failure = judged(case)
        if failure is not None:
            # With the seed, one case repeats it.
            pytest.fail(f"FRESHLINE_SEED={seed}: {told(case, failure, judged, most=most)}")
        if counts.refreshes - (counts.strategies["noop"] if shape.get("doubles") else 0) >= wanted:
            return counts
    raise AssertionError


@pytest.mark.slow
def test_tables_of_random_queries_equal_them_after_random_changes(spark):
    counts = refresh_random_queries(spark, 8, 3000, tables=4, rounds=2)

    # A run that computes everything anew, or has nothing to do, would find nothing.
    incremental = counts.refreshes - counts.strategies["full"] - counts.strategies["noop"]
    assert incremental >= 2, counts
    assert counts.by_hand >= 2, counts


@pytest.mark.long
def test_tables_of_random_queries_over_event_time_equal_them(spark):
    # One case of each shape.
    counts = refresh_random_queries(spark, 18, 5028, tables=3, rounds=2, shapes=EVENT_TIME)

    assert counts.strategies["keys"] >= 2, counts
    assert counts.matched >= 5, counts


@pytest.mark.long
def test_tables_of_random_queries_that_compare_rows_with_the_time_equal_them(spark):
    counts = refresh_random_queries(spark, 12, 4002, tables=4, rounds=3, timed=1.0)

    assert counts.strategies["keys"] >= 2, counts


@pytest.mark.slow
def test_the_first_rows_of_random_queries_equal_them(spark):
    counts = refresh_random_queries(spark, 8, 6005, tables=3, rounds=3, deep=2, ordered=1.0)

    assert counts.strategies["keys"] >= 2, counts


@pytest.mark.long
@pytest.mark.parametrize(
    ("variable", "most", "kind", "drawn", "part"),
    [
        pytest.param("FRESHLINE_GENERATED", 10_000, 1, {}, 5, id="of_all_kinds"),
        pytest.param("FRESHLINE_GENERATED_DOUBLES", 500, 2, {"doubles": True}, 5, id="that_add_up_doubles"),
        pytest.param("FRESHLINE_GENERATED_EVENT_TIME", 10_000, 3, {"shapes": EVENT_TIME}, 5, id="over_event_time"),
        pytest.param("FRESHLINE_GENERATED_TIMED", 500, 4, {"timed": 1.0}, 5, id="that_compare_rows_with_the_time"),
        # Many of them leave out all rows that changed.
        pytest.param("FRESHLINE_GENERATED_ONE_ROW", 300, 5, {"one_row": 0.8}, 10, id="of_one_row"),
        pytest.param("FRESHLINE_GENERATED_FIRST", 300, 6, {"ordered": 0.9}, 10, id="for_the_first_rows"),
    ],
)
def test_tables_of_many_random_queries_equal_them(spark, variable, most, kind, drawn, part):
    """At least one of so many refreshes (`part`) is by keys."""
    wanted = int(os.environ.get(variable, most))

    counts = refresh_random_queries(spark, wanted, first_seed(kind), tables=6, rounds=4, **drawn)

    print(counts)
    # A run of one case repeats a failure.
    if wanted >= 300:
        assert counts.strategies["keys"] > wanted // part, counts
        assert "shapes" not in drawn or counts.matched > wanted // 10, counts
