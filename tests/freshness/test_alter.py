"""Which freshness can be promised, which tables change with it, and what repeating a suspension means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.errors import FreshnessError, RequestError
from freshline.freshness.alter import (
    FreshnessDecision,
    decide_freshness,
    decide_reset,
    decide_resume,
    decide_suspension,
)
from freshline.freshness.intentions import FreshnessOverride, Intentions, Suspension, blocked_tables
from freshline.values.freshness import Freshness
from freshline.values.names import TableName

pytestmark = pytest.mark.seconds

NOW = datetime(2026, 11, 27, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)


def name(text: str) -> TableName:
    return TableName.parse(text)


def table(text: str, freshness: str, query: str) -> tuple[str, str]:
    return f"{text}.sql", f"CREATE MATERIALIZED TABLE {text} FRESHNESS = {freshness} AS {query}"


def source(text: str, clause: str = "", connector: str = "files', 'format' = 'json") -> tuple[str, str]:
    return (
        f"{text}.sql",
        f"CREATE SOURCE {text} (id BIGINT, at BIGINT) {clause} WITH ('connector' = '{connector}', 'path' = '{text}')",
    )


@pytest.fixture
def graph(settings) -> Graph:
    """events -> seen (2 min) -> paired (DOWNSTREAM) -> sales (5 min) -> report (1 day); slow states its freshness.

    campaigns are read in place once a day; places is a dimension of sales and drives nothing.
    """
    return read_declarations(
        dict(
            [
                source("events"),
                source("slow", "FRESHNESS = INTERVAL '1' MINUTE"),
                source("campaigns", "FRESHNESS = INTERVAL '1' DAY", "delta"),
                table("seen", "INTERVAL '2' MINUTE", "SELECT id, at FROM events"),
                table("places", "INTERVAL '1' DAY", "SELECT id FROM events"),
                table("paired", "DOWNSTREAM", "SELECT s.id, s.at FROM seen s JOIN campaigns c ON c.id = s.id"),
                table(
                    "sales",
                    "INTERVAL '5' MINUTE",
                    "SELECT p.id FROM paired p LEFT JOIN places FOR SYSTEM_TIME AS OF PROCTIME() AS q ON q.id = p.id",
                ),
                table("report", "INTERVAL '1' DAY", "SELECT id FROM sales"),
                table("drips", "INTERVAL '5' MINUTE", "SELECT id FROM slow"),
            ]
        ),
        settings,
    )


def override(text: str, seconds: int, until: datetime | None = None) -> FreshnessOverride:
    return FreshnessOverride(name(text), Freshness(seconds), "operator", NOW - HOUR, until)


def intentions(*overrides: FreshnessOverride, suspended: tuple[str, ...] = ()) -> Intentions:
    return Intentions(
        1,
        {one.table: one for one in overrides},
        {name(each): Suspension(name(each), "operator", NOW - HOUR) for each in suspended},
    )


def decide(
    graph: Graph,
    text: str,
    seconds: int,
    *,
    before: Intentions | None = None,
    until: datetime | None = None,
    cascade: bool = False,
) -> FreshnessDecision:
    return decide_freshness(
        graph,
        before or intentions(),
        text,
        Freshness(seconds),
        until=until,
        cascade=cascade,
        by="operator",
        now=NOW,
    )


def reset(graph: Graph, text: str, before: Intentions, *, cascade: bool = False) -> FreshnessDecision:
    return decide_reset(graph, before, text, cascade=cascade, by="operator", now=NOW)


def test_a_freshness_that_everything_delivers_is_one_override(graph):
    decision = decide(graph, "SALES", 180, until=NOW + HOUR)

    assert decision.overrides == (FreshnessOverride(name("sales"), Freshness(180), "operator", NOW, NOW + HOUR),)
    assert decision.sentence == (
        "paired: freshness 3 minutes until 2026-11-27 09:00:00+00:00, was 5 minutes; stays incremental; by operator\n"
        "sales: freshness 3 minutes until 2026-11-27 09:00:00+00:00, was 5 minutes; stays incremental; by operator"
    )


def test_a_freshness_below_an_upstream_names_it_and_what_it_delivers(graph):
    with pytest.raises(FreshnessError, match="seen delivers 2 minutes") as raised:
        decide(graph, "sales", 5)

    assert raised.value.inputs == {"seen": 120}
    assert "CASCADE" in raised.value.message


def test_cascade_takes_upstreams_along_and_no_dimensions(graph):
    decision = decide(graph, "sales", 5, cascade=True, until=NOW + HOUR)

    assert [(str(one.table), one.freshness.seconds) for one in decision.overrides] == [("seen", 5), ("sales", 5)]
    assert {str(one.table): str(one.mode_after) for one in decision.changes} == {
        "seen": "continuous", "paired": "continuous", "sales": "continuous",
    }  # fmt: skip
    assert all(one.until == NOW + HOUR for one in decision.overrides)


def test_a_source_that_states_a_freshness_cannot_be_taken_along(graph):
    for cascade in (False, True):
        with pytest.raises(FreshnessError, match=r"source slow delivers 1 minute.*Remove FRESHNESS.*slow\.sql:1"):
            decide(graph, "drips", 5, cascade=cascade)


def test_an_upstream_that_is_as_fresh_only_for_a_while_is_not_enough(graph):
    before = intentions(override("seen", 5, NOW + HOUR))

    assert decide(graph, "sales", 5, before=before, until=NOW + HOUR).overrides
    with pytest.raises(FreshnessError, match="seen delivers 2 minutes"):
        decide(graph, "sales", 5, before=before, until=NOW + 2 * HOUR)
    with pytest.raises(FreshnessError, match="seen delivers 2 minutes"):
        decide(graph, "sales", 5, before=before)


def test_a_longer_freshness_than_a_consumer_promises_names_the_consumer(graph):
    with pytest.raises(FreshnessError, match="too long for what it drives: .*sales promises 5 minutes"):
        decide(graph, "seen", 3600)


def test_the_same_override_again_changes_nothing(graph):
    decision = decide(graph, "seen", 60, before=intentions(override("seen", 60)))

    assert (decision.overrides, decision.removed) == ((), ())
    assert "is 1 minute already" in decision.sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("salez", "no table salez. Did you mean sales"), ("events", "events is a source"), ("a.b.c", "is not a name")],
)
def test_a_name_that_is_no_table_is_refused(graph, text, sentence):
    with pytest.raises(RequestError, match=sentence):
        decide(graph, text, 600)
    with pytest.raises(RequestError, match=sentence):
        decide_suspension(graph, intentions(), text, until=None, reason=None, by="operator", now=NOW)


def test_an_end_that_has_passed_is_refused(graph):
    with pytest.raises(RequestError, match="has passed"):
        decide(graph, "sales", 180, until=NOW)
    with pytest.raises(RequestError, match="has passed"):
        decide_suspension(graph, intentions(), "sales", until=NOW - HOUR, reason=None, by="operator", now=NOW)


def test_resetting_goes_back_to_the_declared_freshness_with_what_came_along(graph):
    before = intentions(override("seen", 5), override("sales", 5))

    alone = reset(graph, "sales", before)
    whole = reset(graph, "sales", before, cascade=True)

    assert [str(each) for each in alone.removed] == ["sales"]
    assert [str(each) for each in whole.removed] == ["sales", "seen"]
    assert {str(one.table): (one.after.seconds, one.reset) for one in whole.changes} == {
        "seen": (120, True), "paired": (300, False), "sales": (300, True),
    }  # fmt: skip


def test_resetting_leaves_what_another_table_still_needs(settings):
    graph = read_declarations(
        dict(
            [
                source("events"),
                table("seen", "INTERVAL '2' MINUTE", "SELECT id FROM events"),
                table("a", "INTERVAL '5' MINUTE", "SELECT id FROM seen"),
                table("b", "INTERVAL '5' MINUTE", "SELECT id FROM seen"),
            ]
        ),
        settings,
    )
    before = intentions(override("seen", 5), override("a", 5), override("b", 5))

    assert [str(each) for each in reset(graph, "a", before, cascade=True).removed] == ["a"]
    with pytest.raises(FreshnessError, match="too long for what it drives: a promises 5 seconds, b promises"):
        reset(graph, "seen", before)


def test_resetting_what_is_not_overridden_changes_nothing(graph):
    decision = reset(graph, "sales", intentions())

    assert decision.removed == ()
    assert "the declared one, 5 minutes, already" in decision.sentence


def test_an_override_of_a_table_that_is_gone_can_be_removed(graph):
    assert reset(graph, "gone", intentions(override("gone", 5))).removed == (name("gone"),)


# -- suspensions


def test_below_is_what_the_table_drives_and_the_nearest_cause_is_named(graph):
    blocked = blocked_tables(graph, {name("seen"), name("sales")})

    assert {str(each): str(cause) for each, cause in blocked.items()} == {"paired": "seen", "report": "sales"}
    assert blocked_tables(graph, {name("places")}) == {}


def test_suspending_reports_what_is_blocked_by_it(graph):
    decision = decide_suspension(
        graph, intentions(), "sales", until=NOW + HOUR, reason="a wrong price", by="operator", now=NOW
    )

    assert decision.suspension == Suspension(name("sales"), "operator", NOW, NOW + HOUR, "a wrong price")
    assert decision.sentence == (
        "suspended: sales, by operator since 2026-11-27 08:00:00+00:00 until 2026-11-27 09:00:00+00:00: a wrong price. "
        "Blocked by it: report."
    )


def test_suspending_again_says_so_and_leaves_it(graph):
    decision = decide_suspension(
        graph, intentions(suspended=("sales",)), "sales", until=None, reason="again", by="analyst", now=NOW
    )

    assert decision.suspension is None
    assert decision.sentence.startswith("already suspended: sales, by operator since")


def test_resuming_frees_what_nobody_else_blocks(graph):
    both = intentions(suspended=("seen", "sales"))

    decision = decide_resume(graph, both, "seen", by="operator", now=NOW)

    assert decision.resume
    assert [str(each) for each in decision.freed] == ["paired"]


def test_resuming_below_a_suspended_table_says_that_it_stays_blocked(graph):
    decision = decide_resume(graph, intentions(suspended=("seen", "sales")), "sales", by="operator", now=NOW)

    assert "stays blocked by seen" in decision.sentence


def test_resuming_what_is_not_suspended_says_so(graph):
    assert not decide_resume(graph, intentions(), "sales", by="operator", now=NOW).resume
    blocked = decide_resume(graph, intentions(suspended=("seen",)), "sales", by="operator", now=NOW)
    assert blocked.sentence == "not suspended: sales. It waits for seen, which is: resume that one."


def test_an_override_whose_end_would_leave_a_consumer_with_a_promise_that_breaks_is_refused(graph):
    known = intentions(override("sales", 5), override("paired", 5), override("seen", 5))

    with pytest.raises(FreshnessError, match="in force again from 2026-11-27 09:00:00.*sales promises.*leave the end"):
        decide_freshness(graph, known, "seen", Freshness(4), until=NOW + HOUR, cascade=False, by="ann", now=NOW)
    # An override that ends before it does needs it no longer.
    known = intentions(override("sales", 5, NOW + HOUR / 2), override("paired", 5, NOW + HOUR / 2), override("seen", 5))
    decided = decide_freshness(graph, known, "seen", Freshness(4), until=NOW + HOUR, cascade=False, by="ann", now=NOW)
    assert [str(one.table) for one in decided.overrides] == ["seen"]


def test_cascade_takes_along_what_became_slower_since(graph):
    known = intentions(override("sales", 5))

    decided = decide_freshness(graph, known, "sales", Freshness(5), until=None, cascade=True, by="ann", now=NOW)

    assert {str(one.table) for one in decided.overrides} >= {"seen", "sales"}


def test_a_suspension_of_what_is_a_source_by_now_blocks_nothing_and_can_be_ended(graph):
    known = intentions(override("events", 5), suspended=("events",))

    assert blocked_tables(graph, known.suspensions) == {}
    assert decide_resume(graph, known, "events", by="ann", now=NOW).resume
    assert decide_reset(graph, known, "events", cascade=False, by="ann", now=NOW).removed == (name("events"),)


def test_a_second_suspension_reports_the_first(graph):
    known = intentions(suspended=("sales",))
    decided = decide_suspension(graph, known, "sales", until=None, reason="x", by="ann", now=NOW)

    assert decided.as_json()["changed"] is False
    suspended = decided.as_json()["suspended"]
    assert isinstance(suspended, dict)
    assert suspended["by"] == "operator"


def test_a_reason_that_is_no_text_is_refused(graph):
    with pytest.raises(RequestError, match="no UTF-8"):
        decide_suspension(graph, Intentions(), "sales", until=None, reason="\udcff", by="ann", now=NOW)
