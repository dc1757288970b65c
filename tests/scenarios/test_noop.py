"""Nothing to do: no commit, no Spark, a reason."""

from __future__ import annotations

import pytest

from freshline.run import Runtime
from tests.scenarios.tables import declare, fill, follow


@pytest.fixture
def no_spark(monkeypatch):
    """From here on a refresh that asks for a session fails."""

    def refuse():
        def working(*arguments, **named):
            raise AssertionError("a session was taken")

        monkeypatch.setattr(Runtime, "working", working)

    return refuse


def test_a_second_refresh_commits_nothing_and_starts_no_spark(lab, no_spark):
    fill(lab, "s", "id INT, at DATE", "(1, DATE'2026-01-01')")
    declare(lab, "SELECT id FROM s", name="plain")
    declare(lab, "SELECT at, count(*) AS n FROM s GROUP BY at", "PARTITIONED BY (at)", name="daily")
    lab.refresh_all()
    no_spark()

    again = lab.refresh_all()

    assert [(o.table.name, o.strategy, o.committed, o.version) for o in again] == [
        ("s", "noop", False, 1),
        ("daily", "noop", False, 1),
        ("plain", "noop", False, 1),
    ]
    assert again[-1].reason.startswith("NOTHING_NEW")


def test_compaction_of_a_source_is_no_change(lab, no_spark):
    lab.source("s", "id INT")
    for number in range(3):
        lab.sql(f"INSERT INTO s VALUES ({number})")
    declare(lab, "SELECT id FROM s")
    lab.refresh("t")
    lab.sql("OPTIMIZE s")
    no_spark()

    assert lab.refresh("t").reason.startswith("NOTHING_NEW")


def test_a_position_that_ran_far_ahead_is_carried_into_the_log_without_rows(lab):
    fill(lab, "s", "id INT", "(1)")
    lab.sql("INSERT INTO s VALUES (2)")
    declare(lab, "SELECT id FROM s")
    lab.refresh("t")
    lab.sql("OPTIMIZE s")
    lab.clock.advance(hours=2)

    carried = follow(lab)
    assert (carried.strategy, carried.committed, carried.rows_out) == ("noop", True, 0)
    assert next(iter(lab.receipt("t").positions.values())).version == 3
    assert lab.receipt("t").data_timestamp == lab.clock()
    assert lab.refresh("t").committed is False


def test_an_overwrite_with_equal_rows_is_no_change(lab):
    fill(lab, "s", "id INT, ds STRING", "(1, 'a'), (1, 'a'), (2, 'b')")
    declare(lab, "SELECT ds, count(*) AS n FROM s GROUP BY ds", "PARTITIONED BY (ds)")
    lab.refresh("t")
    lab.sql("INSERT OVERWRITE s VALUES (2, 'b'), (1, 'a'), (1, 'a')")

    outcome = lab.refresh("t")

    assert (outcome.strategy, outcome.committed) == ("noop", False)
    assert outcome.reason.startswith("NO_NET_CHANGE")
    # The position is checked: the next refresh does not read the overwrite again.
    assert lab.refresh("t").reason.startswith("NOTHING_NEW")
