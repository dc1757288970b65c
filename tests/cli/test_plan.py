"""The plan compares each declaration with the one of the newest refresh, and writes nothing."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from freshline.cli.main import run
from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.project import read_project, read_settings
from freshline.plan.disk import CommitSize, forecast_disk
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State


def planned(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert run(["plan", "--json"]) == 0
    return {line["table"]: line for line in json.loads(capsys.readouterr().out)}


def refreshed(root: Path, state: State = State.SUCCEEDED) -> None:
    settings = read_settings(root, os.environ)
    graph = read_project(settings)
    store = ControlStore.open(settings.control_store)
    for name in graph.order:
        store.record_refresh(
            RefreshResult(
                table=name,
                at=datetime.now(UTC),
                state=state,
                strategy="full",
                reason="",
                seconds=1.0,
                version=0,
                fingerprint=graph.spec(name).fingerprint,
            )
        )
    store.close()


def test_a_declaration_is_new_then_unchanged_then_changed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {line["declaration"] for line in planned(capsys).values()} == {"new"}

    refreshed(shop)
    assert {line["declaration"] for line in planned(capsys).values()} == {"unchanged"}

    spend = shop / "assets" / "spend.sql"
    spend.write_text(spend.read_text().replace("sum(amount)", "max(amount)"))
    plan = planned(capsys)
    assert (plan["orders"]["declaration"], plan["spend"]["declaration"]) == ("unchanged", "changed")


def test_a_comment_or_another_layout_is_no_change(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refreshed(shop)
    spend = shop / "assets" / "spend.sql"
    spend.write_text("-- What customers spent.\n" + spend.read_text().replace("\n  ", "\n      "))

    assert planned(capsys)["spend"]["declaration"] == "unchanged"


def test_a_refresh_that_failed_does_not_count(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refreshed(shop, state=State.FAILED)

    assert planned(capsys)["spend"]["declaration"] == "new"


def test_planning_makes_no_control_store(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned(capsys)

    assert not (shop / ".freshline" / "local" / "control.db").exists()


def test_a_person_reads_one_line_a_table(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan"]) == 0

    header, orders, spend = capsys.readouterr().out.splitlines()
    assert header.startswith("table")
    assert orders.split()[:6] == ["orders", "log", "incremental", "5", "min", "new"]
    assert spend.endswith("orders  freshness 5 minutes is below 30 minutes")
    assert TableName.parse(spend.split()[0]) == TableName.parse("spend")


def test_a_table_with_temporal_filters_shows_where_rows_cross(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "assets" / "heard.sql").write_text(
        "CREATE SOURCE heard (id BIGINT, ts TIMESTAMP) WITH ('connector' = 'files', 'path' = 'landing/heard', "
        "'format' = 'json');"
    )
    (shop / "assets" / "recent.sql").write_text(
        "CREATE MATERIALIZED TABLE recent FRESHNESS = INTERVAL '1' MINUTE AS SELECT id FROM heard "
        "WHERE ts > now() - INTERVAL '7' DAYS;"
    )
    plan = planned(capsys)
    assert (plan["recent"]["crossings"], plan["recent"]["clock"]) == (
        ["heard.ts passes now() - INTERVAL '7' DAYS"],
        None,
    )
    assert plan["spend"]["crossings"] == []

    assert run(["plan"]) == 0
    line = "recent: no clock yet; a row enters or leaves when heard.ts passes now() - INTERVAL '7' DAYS"
    assert line in capsys.readouterr().out.splitlines()


def test_a_project_without_declarations_says_so(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (shop / "assets").glob("*.sql"):
        file.unlink()

    assert run(["plan"]) == 0
    assert capsys.readouterr().out == "nothing is declared\n"
    for command in (["explain"], ["explain", "--freshness"]):
        assert run(command) == 0
        assert capsys.readouterr().out == "no table is declared\n"


def test_the_size_of_a_tables_history_is_forecast_by_its_newest_commits(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = read_settings(shop, {})
    path = Warehouse(settings.warehouse).path(TableName.parse("spend"))
    for number in range(6):
        write_deltalake(path, pa.table({"customer": [f"c{number}"]}), mode="overwrite")
    log = path / "_delta_log"
    for number in range(6):
        file = log / f"{number:020d}.json"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = 1_790_000_000_000 + number * 60_000
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (size,) = {
        action["add"]["size"]
        for file in log.glob("*.json")
        for action in map(json.loads, file.read_text().splitlines())
        if "add" in action
    }

    plan = planned(capsys)

    # A file of that size is replaced each minute, and kept for the week that is the history of an incremental table.
    assert plan["spend"]["disk"] == {
        "history_seconds": 7 * 86_400, "history_bytes": size * 60 * 24 * 7, "growth_bytes_a_day": 0,
        "commits_an_hour": 60.0,
    }  # fmt: skip
    assert plan["orders"]["disk"] is None
    assert run(["plan"]) == 0
    assert "grows a day" in capsys.readouterr().out


def test_a_table_that_becomes_smaller_does_not_grow() -> None:
    begin = datetime(2026, 11, 1, tzinfo=UTC)
    commits = [CommitSize(begin + timedelta(hours=number), 1_000, 60_000) for number in range(4)]

    found = forecast_disk(commits, 86_400)

    assert found is not None
    assert (found.growth_bytes_a_day, found.history_bytes) == (0, 60_000 * 24)


def test_the_columns_that_a_source_gained_and_lost_are_named(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refreshed(shop)
    path = Warehouse(read_settings(shop, {}).warehouse).path(TableName.parse("orders"))
    orders = read_project(read_settings(shop, os.environ)).source(TableName.parse("orders"))
    types = {"DECIMAL(10,2)": pa.decimal128(10, 2), "TIMESTAMP": pa.timestamp("us", "UTC"), "BIGINT": pa.int64()}
    columns = {column.name: pa.array([], types.get(column.type, pa.string())) for column in orders.columns}
    write_deltalake(path, pa.table(columns))
    file = shop / "assets" / "orders.sql"
    written = file.read_text()
    name = orders.columns[-1].name
    file.write_text(written.replace(f"{name} ", f"city STRING,\n  {name}_2 ", 1))

    plan = planned(capsys)

    about = ["new column city", f"new column {name}_2", f"column {name} is no longer read"]
    assert (plan["orders"]["declaration"], plan["orders"]["change_about"]) == ("changed", about)
    assert run(["plan"]) == 0
    told = f"orders: {'; '.join(about)}; its next refresh takes it up"
    assert told in " ".join(capsys.readouterr().out.split())


def test_days_of_utc_in_partitions_of_another_time_zone_are_noted(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "assets" / "heard.sql").write_text(
        "CREATE SOURCE heard (at TIMESTAMP) WITH ('connector' = 'delta', 'path' = 'elsewhere')"
    )
    (shop / "assets" / "by_day.sql").write_text(
        "CREATE MATERIALIZED TABLE by_day PARTITIONED BY (ds) WITH ('partition.unit' = 'day', 'partition.start' = "
        "'2026-01-01', 'partition.time-zone' = 'Europe/Paris') FRESHNESS = INTERVAL '1' DAY AS SELECT CAST(at AS DATE) "
        "AS ds, count(*) AS n FROM heard GROUP BY CAST(at AS DATE)"
    )

    notes = planned(capsys)["by_day"]["notes"]

    note = (
        "by_day: the days of ds are those of UTC, and its partitions are days in Europe/Paris. Make the day of "
        "from_utc_timestamp(at, 'Europe/Paris'), or leave 'partition.time-zone' out."
    )
    assert notes == [note]
