"""The demo runs the reference deployment in an environment of its own, and its exit code says whether all is equal."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from freshline.cli import status
from freshline.cli.main import run
from freshline.cli.options import open_settings
from freshline.declare.project import read_project
from freshline.engine.state_file import read_state
from resources.database import find_programs
from resources.demo import command as demo
from tests.cli.conftest import FakeEngine

ROOT = Path(__file__).parents[2]
OUTCOME = {
    "table": "first_touch", "kind": "table", "state": "SUCCEEDED", "mode": "continuous", "strategy": "merge",
    "reason": "", "version": 1, "rows_in": 1, "rows_out": 1, "rejected": 0, "seconds": 0.1, "error": None,
    "problems": [],
}  # fmt: skip


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the reference deployment; the current folder is its root."""
    for name in ("assets", "resources"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n[tool.freshline.environments.demo]\n")
    shutil.copy(ROOT / "workspace.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    # The demo sets it for the processes that it starts.
    monkeypatch.setenv("FRESHLINE_ENV", "local")
    yield tmp_path
    os.environ["FRESHLINE_ENV"] = "local"


@pytest.fixture
def few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions of a hundredth, for tests that do not depend on how much arrives."""
    for name in ("TOUCHES", "ORDERS", "CUSTOMER_CHANGES"):
        monkeypatch.setattr(demo, name, getattr(demo, name) // 100)


def counted(orders: int) -> dict[str, Any]:
    return {"type": "rows", "columns": [], "rows": [json.dumps({"orders": orders, "different": orders})]}


def verification(equal: bool) -> dict[str, Any]:
    return {
        "type": "verification",
        "verification": {
            "table": "first_touch",
            "equal": equal,
            "missing": 0,
            "extra": 0 if equal else 1,
            "seconds": 0.1,
        },
    }


@pytest.mark.slow
def test_once_refreshes_after_each_of_ten_portions_and_verifies(
    deployment: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.answers = {
        "refresh": [{"type": "outcome", "outcome": OUTCOME}],
        "verify": [verification(True)],
        "sql": [counted(3_000)],
    }

    assert run(["demo", "--once"]) == 0

    out = capsys.readouterr().out
    assert [kind for kind, _ in fake_engine.asked] == ["refresh"] * 10 + ["verify", "sql"]
    assert out.count("portion ") == 10
    assert "1 of 1 are equal to their queries" in out
    assert "freshness 5 seconds, was 5 minutes; continuous, was incremental; by the demo" in out
    assert "3000 orders landed; enriched_orders has 3000 rows with 3000 different order_ids" in out
    assert not fake_engine.running
    landing = deployment / ".freshline" / "demo" / "landing"
    lines = sum(file.read_bytes().count(b"\n") for file in (landing / "touch_event").iterdir())
    assert lines > 10_000


@pytest.mark.usefixtures("few_events")
@pytest.mark.parametrize(
    ("outcome", "verified", "orders"),
    [
        ({}, [verification(True), verification(False)], 30),
        ({"state": "FAILED"}, [verification(True)], 30),
        ({}, [], 30),
        ({}, [verification(True)], 29),
    ],
)
@pytest.mark.slow
def test_once_fails_unless_all_was_refreshed_and_all_is_equal(
    outcome: dict[str, Any],
    verified: list[dict[str, Any]],
    orders: int,
    deployment: Path,
    fake_engine: FakeEngine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = {"type": "outcome", "outcome": {**OUTCOME, **outcome}}
    fake_engine.answers = {"refresh": [told], "verify": verified, "sql": [counted(orders)]}

    assert run(["demo", "--once", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["refreshes"] == 10
    assert len(answer["verify"]) == len(verified)
    assert answer["orders"] == {"landed": 30, "rows": orders, "different": orders}
    assert not fake_engine.running


@pytest.mark.slow
@pytest.mark.usefixtures("few_events")
def test_the_demo_before_is_wiped(deployment: Path, fake_engine: FakeEngine) -> None:
    fake_engine.answers = {"sql": [counted(30)]}
    left = deployment / ".freshline" / "demo" / "warehouse" / "left"
    other = deployment / ".freshline" / "local" / "kept"
    for folder in (left, other):
        folder.mkdir(parents=True)

    run(["demo", "--once"])

    assert not left.exists()
    assert other.exists()


@pytest.mark.slow
def test_the_live_demo_shows_tables_while_events_arrive_and_ends_all_of_it(
    deployment: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (deployment / "assets" / "definitions.py").write_text("from dagster import Definitions\n\ndefs = Definitions()\n")
    monkeypatch.setattr(demo, "PLAIN_SECONDS", 1.0)
    fake_engine.answers = {"sql": [counted(10_000)]}

    # More rows than orders landed: the exit code follows from the count.
    assert run(["demo", "--minutes", "0.05", "--port", "0"]) == 1

    out = capsys.readouterr().out
    assert out.startswith("Dagster UI: http://127.0.0.1:")
    assert out.count("enriched_orders") >= 3
    assert any((deployment / ".freshline" / "demo" / "landing" / "touch_event").iterdir())
    assert "enriched_orders has 10000 rows" in out.splitlines()[-1]
    assert fake_engine.asked[0] == ("refresh", {"tables": ["enriched_orders"]})
    assert not fake_engine.running
    assert not [thread.name for thread in threading.enumerate() if "ThreadPool" in thread.name and thread.is_alive()]


def test_the_live_table_can_be_drawn(deployment: Path, fake_engine: FakeEngine) -> None:
    from rich.console import Console

    settings = open_settings(deployment, demo.ENVIRONMENT)
    graph = read_project(settings)
    console = Console(width=200, record=True)

    with status.open_status(settings, graph) as read:
        console.print(status.drawn_status(*read(), ["the engine does not answer"], console.width))
        narrow = Console(width=60, record=True)
        narrow.print(status.drawn_status(*read(), [], narrow.width))

    # Columns are left out, and no cell is cut.
    lines = narrow.export_text().splitlines()
    assert {"table", "lag", "state", "last"} <= set(lines[0].split())
    assert "…" not in "".join(lines)
    assert any(line.split()[0] == "customer_first_touch" for line in lines[1:])
    text = console.export_text()
    assert "first_touch" in text
    assert text.rstrip().endswith("the engine does not answer")


@pytest.mark.parametrize("more", [["--once"], ["--keep"], ["--kafka"], ["--port", "0"]])
def test_databases_have_their_own_way(deployment: Path, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--databases", *more]) == 1

    assert "leave out --once, --keep, --kafka and --port" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--once"], ["--keep"], ["--kafka"], ["--databases"], ["--port", "0"]])
def test_sinks_have_their_own_way(deployment: Path, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--sinks", *more]) == 1

    assert "leave out" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.spark
def test_sinks_are_equal_to_their_tables_while_all_are_killed(
    deployment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_programs() is None:
        pytest.skip("Postgres is not installed (on Debian: apt-get install postgresql)")

    assert run(["demo", "--sinks", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert sum(answer["kills"].values()) >= 10
    sinks = {"customer_copy", "customer_search", "order_copy", "order_search"}
    assert {each["table"] for each in answer["verify"]} == sinks
    assert all(each["equal"] for each in answer["verify"])
    assert answer["orders"]["landed"] > 100
    assert len(set(answer["orders"].values())) == 1
    assert read_state(deployment / ".freshline" / "demo") is None


@pytest.mark.long
@pytest.mark.spark
def test_every_commit_has_the_rows_of_the_database_while_it_and_the_engine_are_killed(
    deployment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_programs() is None:
        pytest.skip("Postgres is not installed (on Debian: apt-get install postgresql)")

    assert run(["demo", "--databases", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert sum(answer["kills"].values()) >= 10
    assert (answer["differences"], answer["current"]) == ([], True)
    assert min(answer["commits"].values()) > 5
    assert read_state(deployment / ".freshline" / "demo") is None
