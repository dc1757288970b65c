"""The tables that are left alone, and why."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from freshline.dagster.inspection import leave_alone
from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.freshness.intentions import Intentions, Suspension
from freshline.report.notices import TableUpkeep
from freshline.values.names import TableName

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def name(text: str) -> TableName:
    return TableName.parse(text)


@pytest.fixture
def graph(settings) -> Graph:
    source = "CREATE SOURCE {} (id BIGINT) WITH ('connector' = 'files', 'format' = 'json', 'path' = '{}')"
    table = "CREATE MATERIALIZED TABLE {} FRESHNESS = INTERVAL '1' HOUR AS SELECT o.id FROM {}"
    return read_declarations(
        {
            "orders.sql": source.format("orders", "o"),
            "rates.sql": source.format("rates", "r"),
            "clean.sql": table.format("clean", "orders AS o"),
            "rate.sql": table.format("rate", "rates AS o"),
            "priced.sql": table.format(
                "priced", "clean AS o LEFT JOIN rate FOR SYSTEM_TIME AS OF PROCTIME() AS r ON r.id = o.id"
            ),
        },
        settings,
    )


def suspended(*tables: str, **changes: object) -> Intentions:
    values: dict[str, object] = {"by": "operator", "at": NOW, **changes}
    return Intentions(suspensions={name(each): Suspension(name(each), **values) for each in tables})  # type: ignore[arg-type]


def test_below_a_suspended_table_is_what_it_drives(graph):
    standings, reasons = leave_alone(graph, suspended("clean", reason="sale"), {})

    assert standings == {name("clean"): TableUpkeep.SUSPENDED, name("priced"): TableUpkeep.BLOCKED}
    assert reasons[name("clean")].startswith("suspended by operator since 2026-11-01 12:00")
    assert reasons[name("clean")].endswith(": sale")
    assert reasons[name("priced")] == "clean, which drives it, is suspended"


def test_a_suspended_dimension_blocks_nothing(graph):
    assert leave_alone(graph, suspended("rate"), {})[0] == {name("rate"): TableUpkeep.SUSPENDED}


def test_a_table_that_a_person_suspended_is_that_and_not_blocked(graph):
    standings, _ = leave_alone(graph, suspended("orders", "clean", until=NOW), {})

    assert standings[name("clean")] is TableUpkeep.SUSPENDED


def test_a_switch_says_least(graph):
    paused = {name("priced"): "switched off", name("rate"): "switched off"}
    standings, reasons = leave_alone(graph, suspended("clean"), paused)

    assert standings[name("priced")] is TableUpkeep.BLOCKED
    assert (standings[name("rate")], reasons[name("rate")]) == (TableUpkeep.PAUSED, "switched off")
