"""The project of `freshline init`, with a real engine: what the README shows is what happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

import freshline
from freshline.cli.main import run
from freshline.cli.options import open_settings
from freshline.engine.state_file import read_state
from freshline.errors import RequestError

FRESHLINE = [sys.executable, "-m", "freshline.cli.main"]
# Hours of work that needs no memory: a join that must be kept somewhere would end the engine instead.
ENDLESS = "SELECT count(*) AS n FROM range(0, 1000000000000, 1, 64) WHERE sha2(CAST(id AS STRING), 512) LIKE 'zzz%'"


class Shop:
    """A project made by `init`, and its commands as a person types them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {key: value for key, value in os.environ.items() if key != "FRESHLINE_ENV"}

    def run(self, *arguments: str, code: int = 0) -> str:
        ended = subprocess.run(
            [*FRESHLINE, *arguments], cwd=self.root / "landing", env=self.environ, capture_output=True, text=True
        )
        assert ended.returncode == code, ended.stderr
        return ended.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code))

    def versions(self) -> dict[str, int]:
        warehouse = open_settings(self.root).warehouse
        return {name: DeltaTable(warehouse / name).version() for name in ("orders", "spend")}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop that was refreshed once; what it started is ended, and nothing may be left."""
    root = tmp_path_factory.mktemp("cli") / "shop"
    assert run(["init", str(root)]) == 0
    with (root / "pyproject.toml").open("a") as settings:
        settings.write('driver-memory = "1g"\nidle-seconds = 600\n')
    shop = Shop(root)
    outcomes = shop.json("refresh")
    assert [(o["table"], o["state"], o["strategy"]) for o in outcomes] == [
        ("orders", "SUCCEEDED", "append"),
        ("spend", "SUCCEEDED", "full"),
    ]
    state = read_state(open_settings(root).state)
    assert state is not None
    yield shop
    shop.run("down")
    assert not state.process.alive
    assert not state.jvm.alive


def test_sql_gives_the_right_rows(engine: Shop) -> None:
    text = engine.run("sql", "SELECT * FROM spend ORDER BY customer", "--json")

    assert json.loads(text) == [
        {"customer": "ada", "order_count": 2, "total": 27.25},
        {"customer": "alan", "order_count": 1, "total": 120.0},
        {"customer": "grace", "order_count": 1, "total": 5.0},
    ]
    assert '"total":120.00' in text


def test_a_second_refresh_is_noop_with_its_reason_and_adds_no_commit(engine: Shop) -> None:
    before = engine.versions()

    outcomes = engine.json("refresh")

    assert {o["strategy"] for o in outcomes} == {"noop"}
    assert all(o["reason"].startswith("NOTHING_NEW") for o in outcomes)
    assert engine.versions() == before


def test_status_and_verify_agree_that_all_is_well(engine: Shop) -> None:
    orders, spend = engine.json("status")

    assert (orders["table"], orders["kind"], orders["rows"], orders["quarantined"]) == ("orders", "log", 4, 0)
    assert (spend["table"], spend["state"], spend["rows"]) == ("spend", "SUCCEEDED", 3)
    assert 0 <= spend["lag_seconds"] < 600
    assert spend["last_refresh"]["reason"]
    assert [(v["table"], v["equal"], v["missing"], v["extra"]) for v in engine.json("verify")] == [
        ("spend", True, 0, 0)
    ]


def test_a_statement_that_would_write_is_refused(engine: Shop) -> None:
    assert engine.json("sql", "DROP TABLE spend", code=1)["error"]["code"] == "STATEMENT_FORBIDDEN"


def test_an_unknown_table_is_refused(engine: Shop) -> None:
    assert "nope" in engine.json("refresh", "nope", code=1)["error"]["message"]


def test_ctrl_c_cancels_what_spark_works_on_and_exits_130(engine: Shop) -> None:
    asking = subprocess.Popen(
        [*FRESHLINE, "sql", ENDLESS],
        cwd=engine.root,
        env=engine.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    state = read_state(open_settings(engine.root).state)
    assert state is not None
    jvm = psutil.Process(state.jvm.pid)

    def used() -> float:
        times = jvm.cpu_times()
        return float(times.user + times.system)

    # Planning takes a second of CPU; what takes five is the query at work, on a busy machine too.
    before, deadline = used(), time.monotonic() + 180
    while used() < before + 5:
        assert asking.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)

    asking.send_signal(signal.SIGINT)
    _, said = asking.communicate(timeout=15)

    assert asking.returncode == 130
    assert said.decode().splitlines()[-1] == "CANCELLED cancelled."
    while jvm.cpu_percent(interval=1.0) > 30:
        assert time.monotonic() < deadline


def test_new_files_arrive_with_the_next_refresh(engine: Shop) -> None:
    file = engine.root / "landing" / "orders" / "2026-11-02.csv"
    file.write_text("order_id,customer,amount,ordered_at\no-5,grace,1.50,2026-11-02 08:00:00\no-6,x,many,never\n")

    orders, spend = engine.json("refresh")

    assert (orders["rows_out"], orders["rejected"]) == (1, 1)
    assert spend["strategy"] == "keys"
    rows = json.loads(engine.run("sql", "SELECT total FROM spend WHERE customer = 'grace'", "--json"))
    assert rows == [{"total": 6.5}]
    assert engine.json("status")[0]["quarantined"] == 1
    assert engine.json("tick") == []


def test_programs_declare_refresh_alter_compare_and_drop_a_table(engine: Shop) -> None:
    root = engine.root
    statement = "CREATE MATERIALIZED TABLE dear FRESHNESS = INTERVAL '1' HOUR AS SELECT customer FROM spend"
    assert freshline.create_table(statement, project=root).changed
    assert not freshline.create_table(statement, project=root).changed
    with pytest.raises(RequestError, match="no CREATE MATERIALIZED TABLE"):
        freshline.create_table("SELECT 1", project=root)

    outcomes = freshline.refresh_tables("dear", project=root)
    assert {str(outcome.table): outcome.state for outcome in outcomes}["dear"] == "SUCCEEDED"
    query = "SELECT DISTINCT customer FROM spend"
    with pytest.raises(RequestError, match="Say from when on"):
        freshline.alter_query("dear", query, project=root)
    altered = freshline.alter_query("dear", query, start="beginning", project=root)
    assert altered.refreshes[-1].strategy == "full"
    assert [(each.table, each.equal) for each in freshline.verify_tables("dear", project=root)] == [("dear", True)]

    with pytest.raises(RequestError, match="dear reads it"):
        freshline.drop_table("spend", project=root)
    dropped = freshline.drop_table("dear", purge=True, project=root)
    assert [Path(folder).name for folder in dropped.deleted] == ["dear"]
    assert not (root / "assets" / "dear.sql").exists()
    with pytest.raises(RequestError, match="dear"):
        freshline.refresh_tables("dear", project=root)
