"""engine, status, doctor, up and down, beside an engine that answers as a test asks it to."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from freshline.cli.main import run
from freshline.cli.processes import UpRecord
from freshline.engine.process import ProcessId
from tests.cli.conftest import FakeEngine


def test_the_engine_is_started_once_and_stopped_once(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for command, code in (("status", 1), ("start", 0), ("start", 0), ("status", 0), ("stop", 0), ("stop", 0)):
        assert run(["engine", command]) == code
        said.append(capsys.readouterr().out.strip().split(":")[0])

    assert said == ["no engine is running", "started", "runs already", "running", "stopped", "no engine was running"]


def test_an_engine_that_serves_requests_only_gets_loops(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.running = True

    assert run(["engine", "start", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "running": True, "version": "0", "pid": 1, "warehouse": "/w", "loops": True,
    }  # fmt: skip


def test_status_shows_what_the_engine_is_refreshing(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.running = True
    fake_engine.statuses = [{"table": "orders", "state": "RUNNING"}, {"table": "spend", "state": "SUCCEEDED"}]

    assert run(["status", "--json"]) == 0

    states = {status["table"]: status["state"] for status in json.loads(capsys.readouterr().out)}
    assert states == {"orders": "RUNNING", "spend": "SCHEDULED"}


def test_status_needs_no_engine(shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status"]) == 0

    header, orders, spend = capsys.readouterr().out.splitlines()
    assert header.split()[:5] == ["table", "kind", "mode", "freshness", "lag"]
    assert (orders.split()[0], spend.split()[0]) == ("orders", "spend")
    assert not fake_engine.running


def test_down_ends_the_engine_and_ending_nothing_is_no_mistake(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.running = True

    assert run(["down"]) == 0
    assert not fake_engine.running
    assert run(["down"]) == 0
    assert capsys.readouterr().out.splitlines() == ["ended", "nothing was running"]


def test_a_port_in_use_is_a_sentence(shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        for detach in ([], ["--detach"]):
            assert run(["up", "--port", str(port), *detach]) == 1
            err = capsys.readouterr().err
            assert err.startswith(f"SETTINGS port {port} of the Dagster UI is in use.")
            assert err.count("\n") == 1
    assert not fake_engine.running


def test_a_second_up_says_where_the_first_is(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ProcessId.own()
    UpRecord("mark", own, (), "http://127.0.0.1:1", True).write(shop / ".freshline" / "local" / "up.json")

    assert run(["up"]) == 1
    assert "up already at http://127.0.0.1:1" in capsys.readouterr().err
    assert run(["up", "--detach"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == ["Dagster UI: http://127.0.0.1:1", "freshness board: http://127.0.0.1:1/freshline/"]


def checks(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, object]]]:
    code = run(["doctor", "--json", *arguments])
    return code, {check["name"]: check for check in json.loads(capsys.readouterr().out)}


def test_doctor_outside_of_a_project_still_checks_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, found = checks([], capsys)

    assert code == 1
    assert found["python"]["ok"]
    assert not found["project"]["ok"]


def leave_killed(shop: Path) -> Path:
    """The state folder with what a killed engine and a killed `up` leave in it."""
    state = shop / ".freshline" / "local"
    state.mkdir(parents=True)
    (state / "engine.json").write_text('{"pid": 999999999}')
    own = ProcessId.own()
    UpRecord("no-such-mark", ProcessId(own.pid, own.started - 100)).write(state / "up.json")
    return state


def test_doctor_reports_every_kind_of_trouble_at_once(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    state = leave_killed(shop)
    (state / "control.db").write_text("not a database " * 100)
    (shop / "assets" / "other.sql").write_text("SELECT")
    (shop / "pyproject.toml").write_text('[tool.freshline]\njava-home = "/no/java"\njar-directory = "/no/jars"\n')

    code, found = checks([], capsys)

    assert code == 1
    bad = {name for name, check in found.items() if not check["ok"]}
    assert bad == {"java", "jars", "declarations", "up", "engine", "control store", "alerts"}
    assert "assets/other.sql:1" in str(found["declarations"]["message"])


def test_doctor_clears_away_what_a_killed_process_left(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    state = leave_killed(shop)

    _, found = checks(["--fix"], capsys)

    assert found["engine"]["ok"]
    assert found["up"]["ok"]
    assert not (state / "engine.json").exists()
    assert not (state / "up.json").exists()


def test_doctor_prints_a_line_a_check(shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor"])

    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("ok  ", "problem  ")) for line in lines)
    assert any(line.startswith("ok       declarations   2 in ") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--kafka", "--keep"], "leave out --keep"),
        (["--once", "--keep"], "leave out --keep"),
        (["--json"], "goes with --once"),
        (["--once"], "FRESHLINE_ENV is demo, which is not an environment of this project"),
    ],
)
def test_the_demo_refuses_what_it_cannot_do(
    arguments: list[str], sentence: str, shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", *arguments]) == 1
    assert sentence in "".join(capsys.readouterr())
    assert not fake_engine.running


def test_the_demo_needs_the_reference_deployment(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHLINE_ENV", "local")
    (shop / "pyproject.toml").write_text("[tool.freshline.environments.demo]\n")

    assert run(["demo", "--once"]) == 1
    assert "there is no resources/generator.py here" in capsys.readouterr().err


def test_the_demo_wipes_nothing_outside_of_its_own_folder(
    shop: Path,
    fake_engine: FakeEngine,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FRESHLINE_ENV", "local")
    precious = tmp_path / "warehouse"
    precious.mkdir()
    (precious / "file").touch()
    (shop / "pyproject.toml").write_text(f'[tool.freshline.environments.demo]\nwarehouse = "{precious}"\n')

    assert run(["demo", "--once"]) == 1
    assert "the demo wipes its tables" in capsys.readouterr().err
    assert (precious / "file").exists()
