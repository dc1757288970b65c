"""The verdicts of a table's checks, from values."""

from __future__ import annotations

import pytest
from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetSelection,
    DagsterInstance,
    Definitions,
    define_asset_job,
)

from freshline.dagster.checks import constraint_verdict, quarantine_verdict, verified_sentence
from freshline.dagster.executable import executable_checks
from freshline.report.alerts.history import Arrivals
from freshline.values.names import TableName
from freshline.values.receipt import Violation, added_up
from freshline.values.spec import Constraint, OnViolation

TABLE = TableName.parse("t")


def test_a_constraint_reports_how_many_rows_and_some_of_them():
    constraint = Constraint("positive", "amount > 0", OnViolation.QUARANTINE)

    told = constraint_verdict(TABLE, constraint, Violation(3, ('{"id":1}',)))

    assert (told.check, told.passed, told.severity) == ("constraint_positive", False, AssetCheckSeverity.WARN)
    assert told.description == "EXPECT (amount > 0): 3 rows violate it and are kept in t__quarantine"
    assert told.metadata["violations"] == 3
    assert told.metadata["samples"].value == '- `{"id":1}`'
    assert constraint_verdict(TABLE, constraint, Violation(0)).passed


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"equal": True, "partitions": []}, "the table equals a recompute of its query"),
        ({"equal": True, "partitions": ["a"]}, "1 partition equals a recompute of the query"),
        ({"equal": True, "partitions": ["a", "b"]}, "2 partitions equal a recompute of the query"),
        (
            {"equal": False, "partitions": [], "missing": 1, "extra": 2, "unverified": 3, "detail": "why"},
            "beside a recompute of the query 1 rows are missing, 2 are too many, and 3 could not be verified: why",
        ),
    ],
)
def test_a_verification_is_a_whole_sentence(found, said):
    assert verified_sentence(found) == said


def test_a_check_that_a_run_leaves_to_others_is_no_missing_output():
    specs = [AssetCheckSpec("freshness", asset="t"), AssetCheckSpec("verify", asset="t")]

    def evaluate(context: AssetCheckExecutionContext):
        yield AssetCheckResult(asset_key="t", check_name="freshness", passed=True)

    checks = executable_checks(specs, "freshline_checks", "judges", evaluate)
    job = define_asset_job("all", selection=AssetSelection.checks(checks))
    defs = Definitions(asset_checks=[checks], jobs=[job])
    with DagsterInstance.ephemeral() as instance:
        ran = defs.resolve_job_def("all").execute_in_process(instance=instance)
        logged = [entry.message for entry in instance.all_logs(ran.run_id)]

    assert ran.success
    assert [each.check_name for each in ran.get_asset_check_evaluations()] == ["freshness"]
    assert not [message for message in logged if "did not yield or return" in message]


def test_violations_of_several_refreshes_are_added_up():
    found = added_up({"a": Violation(1, ("x",))}, {"a": Violation(2, ("y",)), "b": Violation(4)})

    assert found == {"a": Violation(3, ("x",)), "b": Violation(4)}


@pytest.mark.parametrize(
    ("arrivals", "passed"),
    [
        (Arrivals(0, 0), True),
        (Arrivals(10, 10), True),  # too few to judge by
        (Arrivals(1000, 50), True),
        (Arrivals(1000, 51), False),
    ],
)
def test_the_quarantine_rate_goes_by_the_settings_of_alerts(settings, arrivals, passed):
    assert quarantine_verdict(TABLE, arrivals, settings).passed is passed
