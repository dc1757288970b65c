"""Batch: the tables that are requested, in which runs, and those that wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.freshness.batch import BatchPlan, RunAttempts, batch_tables, plan_batch
from freshline.values.names import TableName

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def name(text: str) -> TableName:
    return TableName.parse(text)


def names(*texts: str) -> tuple[TableName, ...]:
    return tuple(name(text) for text in texts)


@pytest.fixture
def graph(settings) -> Graph:
    """loads (in place) -> campaign -> spend; orders (log) -> clean (5 min) -> revenue; orders -> daily."""
    table = "CREATE MATERIALIZED TABLE {} FRESHNESS = INTERVAL {} AS SELECT id FROM {}"
    return read_declarations(
        {
            "loads.sql": "CREATE SOURCE loads (id BIGINT) WITH ('connector' = 'delta', 'path' = 'loads')",
            "orders.sql": "CREATE SOURCE orders (id BIGINT) "
            "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'o')",
            "late.sql": "CREATE SOURCE late (id BIGINT) FRESHNESS = INTERVAL '1' HOUR "
            "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'l')",
            "campaign.sql": table.format("campaign", "'6' HOUR", "loads"),
            "spend.sql": table.format("spend", "'8' HOUR", "campaign"),
            "clean.sql": table.format("clean", "'5' MINUTE", "orders"),
            "revenue.sql": table.format("revenue", "'1' HOUR", "clean"),
            "daily.sql": table.format("daily", "'2' HOUR", "late"),
        },
        settings,
    )


@pytest.fixture
def plan(graph: Graph) -> Callable[..., BatchPlan]:
    def made(*due: str, **changes: object) -> BatchPlan:
        values: dict[str, object] = {"slots": 10, "jitter": 1.0, "attempts": {}, "left_alone": {}, "in_progress": ()}
        values |= changes
        now = values.pop("now", NOW)
        in_progress, left_alone = values.pop("in_progress"), values.pop("left_alone")
        return plan_batch(graph, names(*due), in_progress, left_alone, values.pop("attempts"), now, **values)  # type: ignore[arg-type]

    return made


def test_batch_tables_are_those_of_that_mode_and_log_tables_but_no_source_read_in_place(graph):
    assert set(batch_tables(graph)) == set(names("late", "campaign", "spend", "revenue", "daily"))


def test_a_due_table_is_requested_with_what_drives_it_and_independent_tables_in_runs_of_their_own(plan):
    made = plan("spend", "revenue", "daily")

    assert set(made.runs) == {names("campaign", "spend"), names("revenue"), names("late", "daily")}
    assert made.waiting == {}


def test_a_table_that_the_engine_keeps_is_not_requested(plan):
    assert plan("clean", "orders").runs == ()


def test_no_more_runs_than_slots(plan):
    assert [set(run) for run in plan("spend", "revenue", "daily", slots=1).runs] == [
        set(names("campaign", "spend", "revenue", "late", "daily"))
    ]
    full = plan("spend", slots=0)
    assert full.runs == ()
    assert "runs are in progress" in full.waiting[name("spend")]
    assert full.attempts == {}


def test_a_table_that_a_run_refreshes_is_not_requested_again_nor_what_needs_it(plan):
    made = plan("campaign", "spend", "revenue", in_progress=names("campaign"))

    assert made.runs == (names("revenue"),)
    assert "a run of campaign is in progress" in made.waiting[name("spend")]


def test_a_suspended_table_and_what_needs_it_wait_with_the_reason(plan):
    made = plan("campaign", "spend", left_alone={name("campaign"): "suspended by operator"})

    assert made.runs == ()
    assert made.waiting == dict.fromkeys(names("campaign", "spend"), "suspended by operator")


def test_a_request_that_did_not_help_is_made_again_later_each_time(plan):
    first = plan("revenue")
    assert first.attempts == {name("revenue"): RunAttempts(1, NOW + timedelta(seconds=60))}

    waits = plan("revenue", attempts=first.attempts, now=NOW + timedelta(seconds=59))
    assert waits.runs == ()
    assert waits.attempts == first.attempts
    assert "requested 1 times in vain" in waits.waiting[name("revenue")]

    second = plan("revenue", attempts=first.attempts, now=NOW + timedelta(seconds=60))
    assert second.runs == (names("revenue"),)
    assert second.attempts[name("revenue")] == RunAttempts(2, NOW + timedelta(seconds=180))

    many = plan("revenue", attempts={name("revenue"): RunAttempts(40, NOW)})
    assert many.attempts[name("revenue")].again_at == NOW + timedelta(minutes=15)  # a quarter of its freshness


def test_a_table_waits_for_what_drives_it_to_be_tried_again(plan):
    made = plan("campaign", "spend", attempts={name("campaign"): RunAttempts(3, NOW + timedelta(seconds=9))})

    assert made.runs == ()


def test_a_table_waits_for_the_first_version_of_what_it_reads_unless_its_run_makes_that(plan):
    made = plan("revenue", "campaign", "spend", empty=names("clean", "campaign"))

    assert made.runs == (names("campaign", "spend"),)
    assert made.waiting == {name("revenue"): "clean, which revenue reads, has no version yet"}
    assert name("revenue") not in made.attempts


def test_a_table_that_is_not_due_any_more_begins_anew(plan):
    assert plan(attempts={name("revenue"): RunAttempts(3, NOW)}).attempts == {}


def test_jitter_makes_a_pause_shorter_never_longer(plan):
    assert plan("revenue", jitter=0.0).attempts[name("revenue")].again_at == NOW + timedelta(seconds=45)
