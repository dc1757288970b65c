"""A log with a key takes each record once, and reads its own rows only for keys that it may have."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from freshline.commit.delta_log import newest_version
from freshline.compute.log_keys import MOST_KEYS
from freshline.ingest.duplicates import MOST_REPEATED
from freshline.sources.reader import SMALL_ROWS
from freshline.testing import Crash
from tests.delta_log import added_files, without_rows
from tests.lanes import few_or_many, long_but


def land(lab, name, *rows):
    lab.land("ev", name, [{"id": key, "n": n} for key, n in rows])
    return lab.refresh("ev")


def counts(outcome):
    assert outcome.error is None, outcome.error
    return outcome.rows_out, outcome.rows_in - outcome.rows_out - outcome.rejected, outcome.rejected


def test_new_keys_are_taken_without_reading_the_rows_of_the_log(lab):
    lab.files("ev", "id STRING, n INT", primary_key=["id"])
    assert counts(land(lab, "1.json", ("a", 1), ("b", 1))) == (2, 0, 0)
    with without_rows(lab.path("ev")):
        assert counts(land(lab, "2.json", ("c", 1), ("d", 1), ("d", 1))) == (2, 1, 0)
    assert counts(land(lab, "3.json", ("a", 1), ("d", 1), ("e", 1), ("b", 2))) == (1, 2, 1)
    lab.restart()
    # Another engine knows no key yet.
    assert counts(land(lab, "4.json", ("e", 1), ("f", 1))) == (1, 1, 0)
    with without_rows(lab.path("ev")):
        assert counts(land(lab, "5.json", ("g", 1))) == (1, 0, 0)


def test_a_key_that_came_before_is_searched_in_the_batch_that_brought_it(lab):
    lab.files("ev", "id STRING, n INT", primary_key=["id"])
    files = {}
    for name in ("a", "b", "c"):
        assert counts(land(lab, f"{name}.json", (name, 1), (f"{name}2", 1))) == (2, 0, 0)
        files[name] = added_files(lab.path("ev"))

    with without_rows(lab.path("ev"), but=files["b"]):
        assert counts(land(lab, "d.json", ("b", 1), ("d", 1), ("b2", 2))) == (1, 1, 1)
    lab.restart()
    assert counts(land(lab, "e.json", ("d", 1), ("e", 1))) == (1, 1, 0)
    # Keys that another engine learned from the rows are known with their place too.
    with without_rows(lab.path("ev"), but=files["a"] | files["c"]):
        assert counts(land(lab, "f.json", ("a2", 1), ("c", 7), ("f", 1))) == (1, 1, 1)


@pytest.mark.parametrize(
    ("columns", "key", "values"),
    [
        ("a BIGINT, b DATE", ["a", "b"], [(2**53 + 1, "2026-01-01"), (2**53, "2026-01-01"), (1, "0001-01-01")]),
        ("a DECIMAL(38,2), b BOOLEAN", ["b", "a"], [("1.10", True), ("-1.10", True), ("1.10", False)]),
        ("a STRING, b TINYINT", ["a", "b"], [("", 1), ("é", 1), ("e\u0301", 1), ("\u0000", -128)]),
        ("a BINARY, b TIMESTAMP", ["a"], [("AA==", None), ("AAA=", None), ("", None)]),
        ("a TIMESTAMP, b INT", ["a", "b"], [("0001-01-01T00:00:00Z", 1), ("9999-12-31T23:59:59.999999Z", 1)]),
        ("a DOUBLE, b STRUCT<x: INT>", ["a"], [(0.1, {"x": 1}), (1e300, None)]),
    ],
)
def test_keys_of_each_type_are_taken_once(lab, columns, key, values):
    lab.files("ev", f"{columns}, n INT", primary_key=key)
    rows = [{"a": a, "b": b, "n": 1} for a, b in values]
    lab.land("ev", "1.json", [*rows, *rows])
    assert counts(lab.refresh("ev")) == (len(rows), len(rows), 0)
    lab.land("ev", "2.json", [*rows, {**rows[0], "n": 2}, {**rows[-1], "n": 2}])
    assert counts(lab.refresh("ev")) == (0, len(rows), 2)


def test_a_key_comes_again_after_the_time_that_it_is_known_for(lab):
    lab.files("ev", "id STRING, n INT", primary_key=["id"], deduplicate="1 hour")
    assert counts(land(lab, "1.json", ("a", 1), ("b", 1))) == (2, 0, 0)
    lab.clock.advance(minutes=50)
    assert counts(land(lab, "2.json", ("a", 1), ("b", 2))) == (0, 1, 1)
    lab.clock.advance(minutes=11)
    # Taken again, and then known by the newer row.
    assert counts(land(lab, "3.json", ("a", 7), ("a", 8))) == (1, 0, 1)
    lab.clock.advance(minutes=30)
    assert counts(land(lab, "4.json", ("a", 7), ("a", 1))) == (0, 1, 1)


def test_keys_that_spark_takes_for_equal_are_one(lab):
    lab.files("ev", "x DOUBLE, y TIMESTAMP, z DECIMAL(10,2), n INT", primary_key=["x", "y", "z"])
    first = {"x": 0.0, "y": "2026-01-01T00:00:00Z", "z": 1.5, "n": 1}
    lab.land("ev", "1.json", [first, {**first, "x": 2.0}])
    assert counts(lab.refresh("ev")) == (2, 0, 0)
    again = [{**first, "x": -0.0}, {**first, "y": "2026-01-01T01:00:00+01:00"}, {**first, "z": 1.50}, {**first, "z": 2}]
    lab.land("ev", "2.json", again)
    outcome = lab.refresh("ev")
    assert outcome.rows_out == 1


def test_a_log_that_was_put_back_takes_again_what_it_no_longer_has(lab):
    lab.files("ev", "id STRING, n INT", primary_key=["id"])
    land(lab, "1.json", ("a", 1))
    version = newest_version(lab.path("ev"))
    land(lab, "2.json", ("b", 1))
    lab.runtime.sessions.root.sql(f"RESTORE TABLE delta.`{lab.path('ev')}` TO VERSION AS OF {version}")

    # The second file is read again with the third, without a restart.
    assert counts(land(lab, "3.json", ("b", 1), ("c", 1), ("a", 1))) == (2, 2, 0)
    assert [row["id"] for row in lab.rows("ev")] == ["a", "b", "c"]


def test_a_batch_that_was_not_committed_leaves_its_keys_to_be_taken(lab):
    lab.files("ev", "id STRING, n INT", primary_key=["id"])
    land(lab, "1.json", ("a", 1))
    for point in ("log-before-commit", "log-writing", "log-after-commit"):
        lab.land("ev", f"{point}.json", [{"id": point, "n": 1}, {"id": "a", "n": 1}])
        with pytest.raises(Crash), lab.crash_at(point):
            lab.refresh("ev")
        # In the same process, as after an error that is no end of it.
        assert lab.refresh("ev").error is None
    assert [row["id"] for row in lab.rows("ev")] == sorted(
        ["a", "log-before-commit", "log-writing", "log-after-commit"]
    )


@pytest.mark.parametrize("steps", few_or_many(10, 120))
def test_random_batches_leave_each_key_once(lab, steps):
    chance = random.Random(steps)
    lab.files("ev", "id STRING, n INT", primary_key=["id"])
    lab.runtime.known_keys.most = 150
    expected: dict[str, int] = {}
    conflicts = 0
    for step in range(steps):
        rows = []
        for _ in range(chance.choice([1, 3, 40])):
            key = chance.choice([f"k{chance.randrange(400)}", f"new{step}", "'\\\u202e", "💥"])
            n = expected.get(key, chance.randrange(3)) if chance.random() < 0.8 else 7
            rows.append((key, n))
            if expected.setdefault(key, n) != n:
                conflicts += 1
        assert land(lab, f"{step}.json", *rows).error is None
        if chance.random() < 0.15:
            lab.restart()
            lab.runtime.known_keys.most = 150
    assert {row["id"]: row["n"] for row in lab.rows("ev")} == expected
    assert len(lab.rows("ev")) == len(expected)
    assert sum(row["error"] == "KEY_CONFLICT" for row in lab.quarantine("ev")) == conflicts


@pytest.mark.parametrize(
    ("kept", "repeated"),
    long_but([(MOST_KEYS, MOST_REPEATED)], [(MOST_KEYS, MOST_REPEATED), (MOST_KEYS, 1), (1, MOST_REPEATED)]),
)
def test_large_batches_leave_each_key_once(lab, monkeypatch, kept, repeated):
    monkeypatch.setattr("freshline.ingest.duplicates.MOST_REPEATED", repeated)
    chance = random.Random(3)
    lab.files("ev", "id STRING, n INT", primary_key=["id"])
    lab.runtime.known_keys.most = kept
    expected: dict[str, int] = {}
    rejected: Counter[str] = Counter()
    ids = 0
    # The first batch has few keys twice. The second has more of them than a list of keys takes, and most are in the
    # log already.
    for batch, (new, again) in enumerate(((SMALL_ROWS + 500, 90), (9_000, 14_000))):
        rows = [(f"k{number}", number % 3) for number in range(ids, ids + new)]
        ids += new
        repeated_ids = [chance.randrange(ids) for _ in range(again)]
        rows += [(f"k{number}", number % 3 if chance.random() < 0.9 else 7) for number in repeated_ids]
        chance.shuffle(rows)
        half = len(rows) // 2
        for key, n in rows:
            if expected.setdefault(key, n) != n:
                rejected["KEY_CONFLICT"] += 1
        for number, part in enumerate((rows[:half], rows[half:])):
            lab.land("ev", f"{batch}-{number}.json", [{"id": key, "n": n} for key, n in part] + [{"id": None, "n": 1}])
        rejected["NULL_KEY"] += 2

        outcome = lab.refresh("ev")

        assert outcome.error is None
        assert outcome.rows_in == len(rows) + 2
    assert {row["id"]: row["n"] for row in lab.rows("ev")} == expected
    assert len(lab.rows("ev")) == len(expected)
    assert Counter(row["error"] for row in lab.quarantine("ev")) == rejected
