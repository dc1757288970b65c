"""The metrics of frozen figures: a text that Prometheus reads, whatever names there are, in little time."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from freshline.freshness.intentions import Suspension
from freshline.report.metrics.counts import BUCKETS, Durations, PromiseSeconds, RefreshCounts, strategy_of
from freshline.report.metrics.exposition import LONGEST_LABEL, Family, label_text, labels, text_of
from freshline.report.metrics.families import EngineFigures, families_of
from freshline.values.names import TableName
from freshline.values.result import State
from tests.report.metrics.figures import HOSTILE, NOW, alert, figures, outcome, status, table
from tests.report.metrics.promtool import check_metrics

pytestmark = pytest.mark.security


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Each sample by name and labels, as the library of Prometheus reads the text."""
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    keys = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in found]
    assert len(keys) == len(set(keys)), "Prometheus refuses a scrape with a sample twice"
    return {key: sample.value for key, sample in zip(keys, found, strict=True)}


def value(text: str, name: str, **wanted: str) -> float | None:
    return parsed(text).get((name, tuple(sorted(wanted.items()))))


def shown(**changes: object) -> str:
    return text_of(families_of(figures(**changes)))


def test_prometheus_reads_every_sample() -> None:
    text = shown()

    assert value(text, "freshline_table_lag_seconds", table="orders") == 1.0
    assert value(text, "freshline_table_freshness_seconds", table="orders") == 10
    assert value(text, "freshline_table_data_timestamp_seconds", table="orders") == NOW.timestamp() - 1
    assert value(text, "freshline_table_lag_limit_seconds", table="orders", level="fail") == 20
    assert value(text, "freshline_table_late_seconds_total", table="orders") == 10
    assert value(text, "freshline_table_state", table="orders", state="SUCCEEDED") == 1
    assert value(text, "freshline_refreshes_total", table="orders", strategy="append", state="SUCCEEDED") == 1
    assert value(text, "freshline_refresh_rows_rejected_total", table="orders") == 1
    assert value(text, "freshline_refresh_duration_seconds_bucket", strategy="append", le="0.5") == 1
    assert value(text, "freshline_refresh_duration_seconds_bucket", strategy="append", le="0.25") == 0
    assert value(text, "freshline_refresh_duration_seconds_count", strategy="append") == 1
    assert value(text, "freshline_refreshes_waiting") == 1
    assert value(text, "freshline_requests_open", kind="sql") == 0
    assert value(text, "freshline_alerts_open", subject="orders", kind="late", level="FAIL") == 1
    assert value(text, "freshline_jvm_heap_used_bytes") == 1_000
    assert value(text, "process_cpu_seconds_total") == 1.5


CASES: dict[str, EngineFigures] = {
    "everything": figures(),
    "no table": figures(tables=(), durations={}, alerts=()),
    "nothing": EngineFigures("0.1.0", False),
    "hostile": figures(
        tables=tuple(replace(table(), name=name) for name in HOSTILE[:-1]),
        alerts=tuple(alert(name) for name in HOSTILE),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_promtool_has_nothing_to_say_about_the_metrics(case: str) -> None:
    assert check_metrics(text_of(families_of(CASES[case]))) == ""


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_a_text(name: str) -> None:
    text = shown(
        tables=(table(), replace(table(), name=name)),
        alerts=(alert(name),),
        durations={strategy_of(outcome(strategy=name)): Durations().after(1.0)},
        requests={name: 1},
    )

    found = parsed(text)
    seen = label_text(name)
    assert found[("freshline_table_lag_seconds", (("table", seen),))] == 1.0
    assert found[("freshline_requests_open", (("kind", seen),))] == 1
    assert len(parsed(shown())) < len(found) < 2 * len(parsed(shown()))
    assert ("up", (("job", "x"),)) not in found
    assert len(seen) <= LONGEST_LABEL


def test_hostile_names_that_become_one_are_counted_together() -> None:
    long = "x" * 10_000
    text = shown(alerts=(alert(long + "a"), alert(long + "b"), alert("a\ud800"), alert("a\udfff")))

    assert value(text, "freshline_alerts_open", subject=label_text(long), kind="late", level="FAIL") == 2
    assert value(text, "freshline_alerts_open", subject="a?", kind="late", level="FAIL") == 2


def test_a_figure_that_nobody_knows_is_absent_and_no_nan() -> None:
    unknown = status(lag_seconds=None, data_timestamp=None, state="SCHEDULED", version=None, last_refresh=None)
    text = shown(
        tables=(table(status=unknown, counted=None),),
        looked_at=None,
        look_seconds=None,
        heap=None,
        engine=None,
        jvm=None,
    )

    names = {name for name, _ in parsed(text)}
    assert "nan" not in text.lower()
    assert names.isdisjoint(
        {
            "freshline_table_lag_seconds", "freshline_table_data_timestamp_seconds", "freshline_table_rows",
            "freshline_look_timestamp_seconds", "freshline_jvm_heap_used_bytes", "process_cpu_seconds_total",
        }
    )  # fmt: skip
    assert value(text, "freshline_table_freshness_seconds", table="orders") == 10
    assert value(text, "freshline_table_state", table="orders", state="SCHEDULED") == 1


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), float("-inf")])
def test_a_lag_that_is_no_number_is_absent(seconds: float) -> None:
    assert value(shown(tables=(table(status=status(lag_seconds=seconds)),)), "freshline_table_lag_seconds") is None


def test_an_engine_without_tables_has_metrics_too() -> None:
    text = shown(tables=(), durations={}, alerts=())

    assert value(text, "freshline_loops_running") == 1
    assert not [name for name, _ in parsed(text) if "table" in name]


def test_a_suspended_table_says_so_and_keeps_its_lag() -> None:
    suspension = Suspension(TableName.parse("orders"), "somebody", NOW, reason="by hand")
    held = status(state="SUSPENDED", suspended=suspension, lag_seconds=500.0)
    text = shown(tables=(table(status=held),))

    assert value(text, "freshline_table_state", table="orders", state="SUSPENDED") == 1
    assert value(text, "freshline_table_state", table="orders", state="SUCCEEDED") is None
    assert value(text, "freshline_table_lag_seconds", table="orders") == 500


@pytest.mark.seconds
def test_a_thousand_tables_are_shown_within_a_tenth_of_a_second() -> None:
    names = [f"sales.table_{number}" for number in range(1_000)]
    many = figures(tables=tuple(table(name) for name in names))
    took = []
    for _ in range(5):
        began = time.thread_time()
        text = text_of(families_of(many))
        took.append(time.thread_time() - began)

    assert len({labels["table"] for labels in _labels(text) if "table" in labels}) == 1_000
    assert 20_000 < text.count("\n") < 30_000
    assert min(took) < 0.1


def _labels(text: str) -> list[dict[str, str]]:
    return [sample.labels for family in text_string_to_metric_families(text) for sample in family.samples]


def test_the_number_of_series_grows_with_the_tables_and_not_with_what_happens() -> None:
    counts = RefreshCounts()
    for number in range(1_000):
        state = (State.SUCCEEDED, State.FAILED, State.CANCELLED)[number % 3]
        strategy = ("append", "full", "keys", "merge", "noop", "partition", None)[number % 7]
        counts = counts.after(outcome(state=state, strategy=strategy, reason=f"reason {number}"))

    # Seven strategies of those that succeeded, one of which is not known, and one for each other state.
    assert len(counts.ended) == 7 + 2


# -- counts


def test_counters_begin_at_0_so_that_the_first_failure_is_an_increase() -> None:
    text = shown(tables=(table(counts=RefreshCounts()),))

    assert value(text, "freshline_refreshes_total", table="orders", strategy="none", state="FAILED") == 0
    assert value(text, "freshline_refresh_rows_written_total", table="orders") == 0


def test_refreshes_add_up() -> None:
    counts = (
        RefreshCounts().after(outcome()).after(outcome(strategy="full", rows_in=None, rows_out=None, cpu_seconds=None))
    )

    assert counts.ended[("append", "SUCCEEDED")] == counts.ended[("full", "SUCCEEDED")] == 1
    assert (counts.rows_read, counts.rows_written, counts.rows_rejected, counts.rows_late) == (3, 2, 2, 2)
    assert (counts.seconds, counts.cpu_seconds) == (1.0, 0.25)


def test_failures_in_a_row_end_with_a_success() -> None:
    failed = outcome(state=State.FAILED, strategy="append", rejected=0)
    counts = RefreshCounts().after(failed).after(None).after(outcome(state=State.CANCELLED))

    assert counts.failures_in_a_row == 2
    assert counts.ended[("none", "FAILED")] == 2
    assert counts.after(outcome()).failures_in_a_row == 0


def test_every_bound_of_the_histogram_is_reached() -> None:
    found = Durations()
    for bound in (*BUCKETS, 10 * BUCKETS[-1]):
        found = found.after(bound)

    assert found.counts == (1,) * (len(BUCKETS) + 1)


# -- the share of time in which promises are kept


def test_a_table_is_late_from_the_moment_that_its_lag_passes_the_promise() -> None:
    kept = (
        PromiseSeconds()
        .after(status(lag_seconds=3.0), 30)
        .after(status(lag_seconds=15.0), 30)
        .after(status(lag_seconds=45), 30)
    )

    # Five seconds of the second half minute, and all of the third.
    assert kept == PromiseSeconds(90, 35)


def test_a_lag_of_exactly_the_promise_keeps_it() -> None:
    assert PromiseSeconds().after(status(lag_seconds=10.0), 5) == PromiseSeconds(5, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"lag_seconds": None},
        {"suspended": Suspension(TableName.parse("orders"), "somebody", NOW)},
        {"blocked_by": TableName.parse("other")},
        {"paused": "the sensor is off"},
    ],
)
def test_a_table_without_a_promise_to_keep_is_not_observed(changes: dict[str, Any]) -> None:
    assert PromiseSeconds(7, 1).after(status(**{"lag_seconds": 900.0, **changes}), 60) == PromiseSeconds(7, 1)


def test_a_clock_that_jumps_forward_adds_no_more_than_the_time_that_passed() -> None:
    assert PromiseSeconds().after(status(lag_seconds=timedelta(days=400).total_seconds()), 15) == PromiseSeconds(15, 15)


def test_a_clock_that_was_put_back_adds_nothing_late() -> None:
    assert PromiseSeconds().after(status(lag_seconds=0.0), 15) == PromiseSeconds(15, 0)


# -- JSON


def test_families_go_through_json_unchanged() -> None:
    families = families_of(figures())

    assert tuple(Family.from_json(family.as_json()) for family in families) == families


def test_labels_are_in_the_order_in_which_they_are_given() -> None:
    assert labels(b="1", a="2").text == '{b="1",a="2"}'
