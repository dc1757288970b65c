"""`freshline watch` and `freshline alerts` as a person and a program use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from freshline.cli.main import run
from freshline.cli.processes import UpRecord
from freshline.cli.supervisor import record_file
from freshline.cli.watch import Up, identity, surroundings_of
from freshline.engine.process import ProcessId
from freshline.engine.state_file import EngineState, write_state
from freshline.engine.up_record import EndedChild
from freshline.engine.watch_health import is_gone
from freshline.freshness.record import Heartbeat
from freshline.report.alerts.channels import configured
from tests.report.alerts.shop import Shop, make_shop


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A project whose tables are a minute old and may be ten seconds."""
    monkeypatch.delenv("FRESHLINE_ENV", raising=False)
    shop = make_shop(tmp_path / "shop")
    shop.refresh(1, datetime.now(UTC) - timedelta(minutes=1))
    monkeypatch.chdir(shop.settings.root)
    yield shop
    shop.control.close()


@pytest.fixture
def gone() -> ProcessId:
    """A process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = ProcessId.of(child.pid)
        assert found is not None
    return found


def test_once_reports_what_is_wrong_and_the_list_has_it(late: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", "--once", "--json"]) == 0
    messages = json.loads(capsys.readouterr().out)
    assert [(m["event"], m["table"], m["kind"], m["level"]) for m in messages] == [
        ("raised", "orders", "late", "FAIL"),
        ("raised", "sales.spend", "late", "FAIL"),
    ]

    assert run(["alerts", "--json"]) == 0
    alerts = json.loads(capsys.readouterr().out)
    assert [alert["table"] for alert in alerts] == ["sales.spend", "orders"]
    assert set(alerts[0]) == {
        "table", "kind", "level", "cause", "since", "raised_at", "recovered_at", "delivered_to", "link",
    }  # fmt: skip
    assert (alerts[0]["delivered_to"], alerts[0]["recovered_at"]) == (["log"], None)

    assert run(["alerts"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split()[:3] == ["table", "kind", "level"]
    assert shown[2].startswith("sales.spend  late  FAIL")


def test_an_alert_about_a_process_is_of_no_table(late: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    late.control.heartbeats.beat("engine", datetime.now(UTC) - timedelta(minutes=5), {"pid": 1})

    assert run(["watch", "--once", "--json"]) == 0
    silent = next(message for message in json.loads(capsys.readouterr().out) if message["kind"] == "engine_silent")
    assert silent["table"] is None
    run(["alerts", "--json"])
    assert None in [alert["table"] for alert in json.loads(capsys.readouterr().out)]
    run(["alerts"])
    assert "\nengine " in capsys.readouterr().out


def test_past_alerts_are_shown_when_asked_for(late: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    run(["watch", "--once"])
    for file in (late.settings.root / "assets").rglob("*.sql"):
        file.unlink()
    run(["watch", "--once"])
    capsys.readouterr()

    assert run(["alerts"]) == 0
    assert capsys.readouterr().out == "there are no open alerts\n"
    assert run(["alerts", "--json"]) == 0
    past = json.loads(capsys.readouterr().out)
    assert [alert["table"] for alert in past] == ["sales.spend", "orders"]
    assert all(alert["recovered_at"] for alert in past)


def test_without_any_alert_it_says_so(late: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alerts", "--all"]) == 0
    assert capsys.readouterr().out == "there were no alerts\n"


def test_json_goes_with_once(late: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", "--json"]) == 1
    assert "--json goes with --once" in capsys.readouterr().out


def test_the_address_of_the_ui_is_that_of_the_running_up_or_the_setting(late: Shop, gone: ProcessId) -> None:
    settings, own = late.settings, ProcessId.own()
    assert surroundings_of(settings).dagster_url() is None
    UpRecord("mark", own, (("dagster-daemon", own),), "http://127.0.0.1:3001").write(record_file(settings))
    assert surroundings_of(settings).dagster_url() == "http://127.0.0.1:3001"
    assert Up(settings).ended() == []
    UpRecord("mark", own, (("dagster-daemon", gone),), "http://127.0.0.1:3001").write(record_file(settings))
    assert Up(settings).ended() == ["scheduler"]
    UpRecord("mark", gone, (("dagster-daemon", gone),), "http://127.0.0.1:3001").write(record_file(settings))
    # Of an `up` that was killed nothing is known, and its address leads nowhere.
    assert (Up(settings).url, Up(settings).ended()) == (None, [])


def test_an_engine_of_this_machine_is_known_to_have_ended(late: Shop, gone: ProcessId) -> None:
    ended = surroundings_of(late.settings).ended
    beat = {"engine": Heartbeat(datetime.now(UTC), {"pid": gone.pid})}
    assert ended(beat) == []
    write_state(late.settings.state, EngineState(gone, gone, 1, 2, "token", "w", "0", True))
    assert ended(beat) == ["engine"]
    # The heartbeat of another one, perhaps on another machine.
    assert ended({"engine": Heartbeat(datetime.now(UTC), {"pid": os.getpid()})}) == []


def test_a_process_is_gone_only_where_it_can_be_seen(gone: ProcessId) -> None:
    own = identity().detail
    assert not is_gone(own)
    ended = {**own, "pid": gone.pid, "started": gone.started}
    assert is_gone(ended)
    assert not is_gone({**ended, "host": "another.example.com"})
    assert not is_gone({})


MISSPELLED = '\n[tool.freshline.alerts.channels.pager]\ntype = "filechanel:FileChannel"\n'
CANNOT_BE_USED = "[tool.freshline.alerts.channels.pager]: filechanel:FileChannel cannot be used: ModuleNotFoundError"


def test_a_misspelled_channel_is_an_error_of_plan_doctor_and_a_check(
    late: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    with (late.settings.root / "pyproject.toml").open("a") as file:
        file.write(MISSPELLED)

    assert run(["plan", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [line["table"] for line in json.loads(out)] == ["orders", "sales.spend"]
    assert CANNOT_BE_USED in err
    assert run(["doctor", "--json"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert CANNOT_BE_USED in checks["alerts"]["message"]
    assert run(["watch", "--once", "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_up_names_a_channel_that_cannot_be_used_and_goes_on(late: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    with (late.settings.root / "pyproject.toml").open("a") as file:
        file.write(MISSPELLED)
    # One that is up already, so that nothing is started.
    UpRecord("mark", ProcessId.own(), (), "http://127.0.0.1:3001").write(record_file(late.settings))

    assert run(["up", "--detach"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Dagster UI: http://127.0.0.1:3001")
    assert CANNOT_BE_USED in err


def test_a_channel_whose_class_never_loads_is_an_error_of_plan_too(
    late: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configured, "PATIENCE_SECONDS", 0.2)
    (late.settings.root / "channel_for_ever.py").write_text("import time\ntime.sleep(5)\n")
    with (late.settings.root / "pyproject.toml").open("a") as file:
        file.write(MISSPELLED.replace("filechanel:FileChannel", "channel_for_ever:Channel"))

    assert run(["plan"]) == 1
    assert "its class has not loaded within" in capsys.readouterr().err


def test_a_watch_that_cannot_run_is_in_the_status_and_among_the_alerts(
    late: Shop, capsys: pytest.CaptureFixture[str], gone: ProcessId
) -> None:
    own = ProcessId.own()
    ended = EndedChild("watch", 3, 1, "FORMAT: the control store is of a newer freshline. (log: watch.log)")
    UpRecord("mark", own, (("watch", gone),), "http://127.0.0.1:3001", ended=(ended,)).write(record_file(late.settings))
    said = f"DELIVERY no alert is raised: the watch ended 3 times in a row, with code 1: {ended.log}"

    assert run(["status"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert run(["status", "--json"]) == 0
    out, err = capsys.readouterr()
    assert (len(json.loads(out)), err.splitlines()) == (2, [said])
    assert run(["alerts"]) == 0
    assert capsys.readouterr().err.splitlines() == [said]
    assert run(["doctor", "--json"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert checks["alerts"] == {"name": "alerts", "ok": False, "message": said}
    assert run(["report", "board.html"]) == 0
    assert "the watch ended 3 times in a row" in Path("board.html").read_text()


def test_a_channel_that_takes_no_alert_is_in_the_status(late: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    detail = {**identity().detail, "channels": {"pager": "the pager answered 500"}}
    late.control.heartbeats.beat("watch", datetime.now(UTC), detail)

    assert run(["status"]) == 0
    assert "DELIVERY channel pager takes no alert: the pager answered 500\n" in capsys.readouterr().out


def test_another_watch_that_is_there_watches_all_the_same(late: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    own = ProcessId.own()
    ended = EndedChild("watch", 3, 1, "freshline watch runs already")
    UpRecord("mark", own, (("watch", ProcessId(own.pid + 1, 0.0)),), ended=(ended,)).write(record_file(late.settings))
    late.control.heartbeats.beat("watch", datetime.now(UTC), identity().detail)

    assert run(["alerts"]) == 0
    assert capsys.readouterr().err == ""


def test_a_watch_that_was_killed_is_reported_until_another_comes(
    late: Shop, capsys: pytest.CaptureFixture[str], gone: ProcessId
) -> None:
    detail = {**identity().detail, "pid": gone.pid, "started": gone.started}
    late.control.heartbeats.beat("watch", datetime.now(UTC), detail)

    assert run(["alerts"]) == 0
    assert f"no alert is raised: the watch, process {gone.pid} on " in capsys.readouterr().err
