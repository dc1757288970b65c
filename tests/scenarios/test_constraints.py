"""CONSTRAINT .. EXPECT over the rows that refreshes compute: counted, left out, kept in quarantine, or refused.

Each story refreshes by one strategy. The table is compared with its query less the rows that the constraints leave
out, and every row that is rejected is in quarantine once, wherever a refresh is stopped.
"""

from __future__ import annotations

import json

import pytest

from freshline.testing import Crash
from freshline.values.receipt import Violation
from tests.scenarios.tables import HOURLY, declare, follow

TABLE_POINTS = ["table-before-quarantine", "table-after-quarantine", "table-before-commit", "table-after-commit"]


def rows_in_quarantine(lab, name):
    return sorted((row["error"], json.loads(row["raw"])["id"]) for row in lab.quarantine(name))


def counts(outcome):
    return {name: violation.rows for name, violation in outcome.violations.items()}


def test_an_append_counts_leaves_out_and_keeps(lab):
    lab.source("s", "id INT, amount INT, kind STRING")
    lab.declare(
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (id), CONSTRAINT known EXPECT (kind IS NOT NULL), "
        "CONSTRAINT positive EXPECT (amount > 0) ON VIOLATION DROP ROW, "
        f"CONSTRAINT small EXPECT (amount < 100) ON VIOLATION QUARANTINE) {HOURLY} AS SELECT id, amount, kind FROM s"
    )
    lab.sql("INSERT INTO s VALUES (1, 5, 'a'), (2, -1, 'a'), (3, 500, NULL), (4, NULL, 'a')")
    first = lab.refresh("t")

    # NULL does not satisfy a condition: 4 violates both, and is kept.
    assert [row["id"] for row in lab.rows("t")] == [1]
    assert counts(first) == {"known": 1, "positive": 2, "small": 2}
    assert first.violations["known"].samples == ('{"id":3,"amount":500,"kind":null}',)
    assert (first.rows_out, first.rejected) == (1, 2)
    assert rows_in_quarantine(lab, "t") == [("CONSTRAINT(small)", 3), ("CONSTRAINT(small)", 4)]

    second = follow(lab, "INSERT INTO s VALUES (5, 7, NULL), (6, 700, 'b')", by="append")
    assert [row["id"] for row in lab.rows("t")] == [1, 5]
    assert counts(second) == {"known": 1, "small": 1}
    assert lab.receipt("t").violations == {
        "known": Violation(1, ('{"id":5,"amount":7,"kind":null}',)),
        "small": Violation(1, ('{"id":6,"amount":700,"kind":"b"}',)),
    }
    lab.sql("INSERT INTO s VALUES (7, 900, 'b')")
    third = lab.refresh("t")

    # Nothing is added, and the receipt says up to where, so that the row is rejected once.
    assert (third.strategy, third.committed, counts(third)) == ("noop", True, {"small": 1})
    assert lab.refresh("t").reason.startswith("NOTHING_NEW")
    assert [row[1] for row in rows_in_quarantine(lab, "t")] == [3, 4, 6, 7]
    (status,) = [each for each in lab.status() if str(each.table) == "t"]
    assert status.quarantined == 4


@pytest.mark.long
def test_groups_that_are_left_out_go_away_and_come_back(lab):
    lab.source("s", "id INT, k STRING, amount INT")
    lab.declare(
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (k), "
        "CONSTRAINT small EXPECT (total < 100) ON VIOLATION QUARANTINE, CONSTRAINT many EXPECT (n > 1)) "
        f"{HOURLY} AS SELECT k, sum(amount) AS total, count(*) AS n, max(id) AS id FROM s GROUP BY k"
    )
    lab.sql("INSERT INTO s VALUES (1, 'a', 10), (2, 'b', 20)")
    lab.refresh("t")
    grown = follow(lab, "INSERT INTO s VALUES (3, 'a', 200), (4, 'c', 1)", by="keys")
    assert [row["k"] for row in lab.rows("t")] == ["b", "c"]
    assert counts(grown) == {"small": 1, "many": 1}
    follow(lab, "DELETE FROM s WHERE id = 3")
    assert [(row["k"], row["total"]) for row in lab.rows("t")] == [("a", 10), ("b", 20), ("c", 1)]
    lab.sql("INSERT INTO s VALUES (3, 'a', 200)")
    lab.refresh("t")
    lab.refresh("t", full=True)

    # The same row was rejected three times, and is there once.
    assert rows_in_quarantine(lab, "t") == [("CONSTRAINT(small)", 3)]
    assert lab.diff("t") == []


@pytest.mark.long
def test_partitions_are_computed_without_what_is_left_out(lab):
    lab.source("s", "id INT, d STRING, amount INT")
    lab.declare(
        "CREATE MATERIALIZED TABLE t (CONSTRAINT positive EXPECT (amount > 0) ON VIOLATION DROP ROW) "
        f"PARTITIONED BY (d) {HOURLY} AS SELECT id, d, amount FROM s"
    )
    lab.sql("INSERT INTO s VALUES (1, 'x', 1), (2, 'x', -1), (3, 'y', 1)")
    lab.refresh("t")
    outcome = follow(lab, "UPDATE s SET amount = -amount WHERE d = 'x'")
    assert (outcome.strategy, counts(outcome)) == ("partition", {"positive": 1})
    assert [row["id"] for row in lab.rows("t")] == [2, 3]
    named = lab.refresh("t", partitions={"d": "x"})
    assert counts(named) == {"positive": 1}
    assert [row["id"] for row in lab.rows("t")] == [2, 3]


@pytest.mark.long
def test_a_merge_goes_on_as_if_a_bad_row_had_not_come(lab):
    lab.files("ev", "event STRING, id STRING, op STRING, amount INT, at TIMESTAMP", primary_key=["event"])
    lab.declare(
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (id), "
        "CONSTRAINT positive EXPECT (amount > 0) ON VIOLATION QUARANTINE) WITH ('merge' = 'last_row', "
        "'merge.sequence' = 'at', 'merge.tie-breaker' = 'event', 'merge.delete-when' = 'op = ''d''') "
        f"{HOURLY} AS SELECT id, amount, at FROM ev"
    )

    def event(number, key, amount, op="u"):
        return {"event": f"e{number}", "id": key, "op": op, "amount": amount, "at": f"2026-01-0{number}T00:00:00Z"}

    lab.land("ev", "1.json", [event(1, "a", 1), event(2, "b", -1), event(3, "c", 3)])
    lab.refresh("t")
    assert [(row["id"], row["amount"]) for row in lab.rows("t")] == [("a", 1), ("c", 3)]
    lab.land("ev", "2.json", [event(4, "a", -4), event(5, "b", 5), event(6, "c", None, "d")])
    outcome = lab.refresh("t")

    # A delete has no values to be judged.
    assert (outcome.strategy, counts(outcome)) == ("merge", {"positive": 1})
    assert [(row["id"], row["amount"]) for row in lab.rows("t")] == [("a", 1), ("b", 5)]
    assert rows_in_quarantine(lab, "t") == [("CONSTRAINT(positive)", "a"), ("CONSTRAINT(positive)", "b")]
    assert json.loads(lab.quarantine("t")[-1]["positions"]) == {"file": "2.json", "record": 1}
    assert lab.diff("t") == []


def test_a_constraint_that_fails_leaves_table_and_quarantine_alone(lab):
    lab.source("s", "id INT, amount INT")
    lab.declare(
        "CREATE MATERIALIZED TABLE t (CONSTRAINT small EXPECT (amount < 100) ON VIOLATION QUARANTINE, "
        f"CONSTRAINT positive EXPECT (amount > 0) ON VIOLATION FAIL) {HOURLY} AS SELECT id, amount FROM s"
    )
    lab.sql("INSERT INTO s VALUES (1, 1)")
    version = lab.refresh("t").version
    lab.sql("INSERT INTO s VALUES (2, -7), (3, 300)")
    outcome = lab.refresh("t")

    assert (outcome.state, outcome.error.code, outcome.error.retry_helps) == ("FAILED", "CONSTRAINT", False)
    assert '{"id":2,"amount":-7}' in outcome.error.message
    assert outcome.version == version
    assert lab.quarantine("t") == []
    lab.sql("DELETE FROM s WHERE id = 2")
    assert lab.refresh("t").ok
    assert rows_in_quarantine(lab, "t") == [("CONSTRAINT(small)", 3)]


def test_records_of_a_source_are_judged_as_they_arrive(lab):
    lab.files(
        "ev",
        "id STRING, amount INT, CONSTRAINT known EXPECT (id <> 'w'), "
        "CONSTRAINT positive EXPECT (amount > 0) ON VIOLATION DROP ROW, "
        "CONSTRAINT small EXPECT (amount < 100) ON VIOLATION QUARANTINE",
        primary_key=["id"],
    )
    lab.land("ev", "1.json", '{"id": "a", "amount": 1}\n{"id": "b", "amount": -1}\n{broken\n{"id": "w", "amount": 3}\n')
    lab.refresh("ev")
    lab.land("ev", "2.json", '{"id": "a", "amount": 1}\n{"id": "c", "amount": 300}\n{"id": "d"}\n')
    outcome = lab.refresh("ev")

    assert [row["id"] for row in lab.rows("ev")] == ["a", "w"]
    assert [(row["file"], row["line"], row["error"]) for row in lab.quarantine("ev")] == [
        ("1.json", 3, "NOT_JSON"),
        ("2.json", 2, "CONSTRAINT(small)"),
        ("2.json", 3, "CONSTRAINT(small)"),
    ]
    assert lab.quarantine("ev")[1]["message"] == "EXPECT (amount < 100) is not met"
    assert (outcome.rows_in, outcome.rows_out, outcome.rejected) == (3, 0, 2)
    assert counts(outcome) == {"positive": 1, "small": 2}


def test_a_source_that_fails_commits_nothing_of_the_batch(lab):
    lab.files("ev", "id STRING, CONSTRAINT named EXPECT (id <> '') ON VIOLATION FAIL")
    file = lab.land("ev", "1.json", '{"id": "a"}\n{"id": ""}\n')
    outcome = lab.refresh("ev")

    assert outcome.error.code == "CONSTRAINT"
    assert lab.receipt("ev") is None
    file.unlink()
    lab.land("ev", "2.json", '{"id": "a"}\n')
    assert lab.refresh("ev").rows_out == 1


@pytest.mark.long
def test_stops_leave_every_rejected_row_in_quarantine_once(lab):
    lab.source("s", "id INT, amount INT")
    declare(lab, "SELECT id, amount FROM s", "(CONSTRAINT small EXPECT (amount < 100) ON VIOLATION QUARANTINE)")
    lab.sql("INSERT INTO s VALUES (0, 500), (100, 1)")
    lab.refresh("t")
    for number, point in enumerate(TABLE_POINTS, 1):
        lab.sql(f"INSERT INTO s VALUES ({number}, 500), ({100 + number}, 1)")
        for _ in range(2):
            with lab.crash_at(point), pytest.raises(Crash):
                lab.refresh("t")
            if point == "table-after-commit":
                break
        if number % 2:
            lab.restart(lose_control_store=number == 3)

        assert lab.refresh("t").error is None, point
        assert [row[1] for row in rows_in_quarantine(lab, "t")] == list(range(number + 1)), point
        assert [row["id"] for row in lab.rows("t")] == [100 + each for each in range(number + 1)], point
    assert lab.diff("t") == []
    assert lab.refresh("t").strategy == "noop"
