"""The plan of a backfill: the actions on partitions and tables, their order, and their reasons."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from freshline.declare.project import read_project
from freshline.declare.project_settings import read_settings
from freshline.plan.backfill import RequestedBackfill, plan_backfill
from freshline.values.names import TableName
from freshline.values.partition import PartitionState

NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
DAYS = "'partition.unit' = 'day', 'partition.start' = '2026-01-01'"
MONTHS = "'partition.unit' = 'month', 'partition.start' = '2026-01-01'"
HOURS = "'partition.unit' = 'hour', 'partition.start' = '2026-01-01-00:00'"
PARIS = f"{DAYS}, 'partition.time-zone' = 'Europe/Paris'"


@pytest.fixture
def graph(tmp_path):
    """daily is read by a daily, a monthly and a plain table, by one of another zone, and by one that is continuous."""
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    declared = tmp_path / "assets"
    declared.mkdir()
    (declared / "s.sql").write_text(
        "CREATE SOURCE s (ds DATE, n INT) WITH ('connector' = 'delta', 'path' = 'landing/s')"
    )

    def table(name, options, query, freshness="6' HOUR"):
        (declared / f"{name}.sql").write_text(
            f"CREATE MATERIALIZED TABLE {name} {f'PARTITIONED BY (ds) WITH ({options})' if options else ''} "
            f"FRESHNESS = INTERVAL '{freshness} AS {query}"
        )

    table("daily", DAYS, "SELECT ds, n FROM s", freshness="10' SECOND")
    table("same", DAYS, "SELECT (daily.ds) AS ds, sum(n) AS n FROM daily GROUP BY daily.ds")
    table("monthly", MONTHS, "SELECT ds, n FROM same")
    table("paris", PARIS, "SELECT ds, n FROM daily")
    table("moved", DAYS, "SELECT date_add(ds, 1) AS ds, n FROM daily")
    table("live", DAYS, "SELECT ds, n FROM daily", freshness="10' SECOND")
    table("plain", "", "SELECT sum(n) AS n FROM monthly")
    table("joined", DAYS, "SELECT daily.ds, same.n FROM daily JOIN same ON daily.ds = same.ds")
    return read_project(read_settings(tmp_path, {}), {})


def plan(graph, table, first, last, *, states=None, **asked):
    name = TableName.parse(table)
    spec = graph.table(name)
    partitions = tuple(spec.time_partitions.between(first, last, NOW))
    return plan_backfill(graph, RequestedBackfill(name, partitions, **asked), states or {}, NOW)


def told(chunks):
    return [(str(chunk.table), chunk.key, str(chunk.action)) for chunk in chunks]


def test_partitions_that_are_missing_or_stale_are_replaced_and_what_is_done_stays(graph):
    states = {
        "2026-02-01": PartitionState.DONE,
        "2026-02-02": PartitionState.STALE,
        "2026-02-03": PartitionState.MISSING,
    }

    chunks = plan(graph, "daily", "2026-02-01", "2026-02-03", states=states)

    assert told(chunks) == [
        ("daily", "2026-02-01", "skip"),
        ("daily", "2026-02-02", "replace"),
        ("daily", "2026-02-03", "replace"),
    ]
    assert [chunk.why for chunk in chunks] == ["it is done", "it is stale", "it is missing"]
    again = plan(graph, "daily", "2026-02-01", "2026-02-03", states=states, again=True, finished={"2026-02-03"})
    assert [str(chunk.action) for chunk in again] == ["replace", "replace", "skip"]
    assert again[2].why == "an earlier attempt of this backfill has committed it"


def test_a_cascade_goes_by_partitions_where_they_follow_and_else_by_what_changes(graph):
    chunks = plan(graph, "daily", "2026-01-31", "2026-02-01", cascade=True)

    by_table: dict[str, list[tuple[str | None, str]]] = {}
    for chunk in chunks:
        by_table.setdefault(str(chunk.table), []).append((chunk.key, str(chunk.action)))
    assert by_table == {
        "daily": [("2026-01-31", "replace"), ("2026-02-01", "replace")],
        "same": [("2026-01-31", "replace"), ("2026-02-01", "replace")],
        "monthly": [("2026-01-01", "replace"), ("2026-02-01", "replace")],
        "paris": [(None, "refresh")],
        "moved": [(None, "refresh")],
        "live": [(None, "refresh")],
        "plain": [(None, "refresh")],
        "joined": [(None, "refresh")],
    }
    order = list(by_table)
    assert order.index("daily") < order.index("same") < order.index("monthly") < order.index("plain")
    why = {str(chunk.table): chunk.why for chunk in chunks}
    assert why["monthly"] == "its ds follows from same.ds"
    assert why["joined"] == "reads daily and same; which of its rows change, it finds by itself"


def test_values_and_whole_tables_are_planned_too(graph):
    name = TableName.parse("same")

    values = plan_backfill(graph, RequestedBackfill(name, values=((("ds", "a/b"), ("r", "x")),)), {}, NOW)
    whole = plan_backfill(graph, RequestedBackfill(name, cascade=True, full=True), {}, NOW)

    assert told(values) == [("same", "ds=a/b/r=x", "replace")]
    assert {name for name, _, _ in told(whole)} == {"same", "joined", "monthly", "plain"}
    assert [(str(chunk.table), chunk.full) for chunk in whole if chunk.full] == [("same", True)]
