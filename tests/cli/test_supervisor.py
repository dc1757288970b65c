"""`up` brings Dagster up on loopback, notices what ends, and leaves no process over."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil
import pytest
from dagster import DagsterInstance
from dagster._core.run_coordinator import QueuedRunCoordinator

from freshline.cli import supervisor as cli_supervisor
from freshline.cli.main import run
from freshline.cli.options import open_settings
from freshline.cli.processes import UpRecord, marked
from freshline.cli.supervisor import Supervisor, dagster_yaml, end_all, record_file
from freshline.commit.control_store import ControlStore
from freshline.engine.process import ProcessId
from freshline.errors import EngineError, SettingsError
from freshline.values.settings import Settings
from tests.cli.conftest import FakeEngine
from tests.lanes import long_but


@pytest.fixture
def settings(shop: Path) -> Settings:
    """A project whose Dagster definitions are empty, so that Dagster starts quickly."""
    (shop / "assets" / "definitions.py").write_text("from dagster import Definitions\n\ndefs = Definitions()\n")
    return open_settings(shop)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(settings: Settings, fake_engine: FakeEngine, said: list[str]) -> Iterator[Supervisor]:
    found = Supervisor(settings, said.append, port=0)
    found.start(lambda message: None)
    yield found
    found.stop()


def record(settings: Settings) -> UpRecord:
    found = UpRecord.read(record_file(settings))
    assert found is not None
    return found


@pytest.mark.slow
def test_the_ui_answers_on_loopback_and_all_of_it_ends(
    supervisor: Supervisor, settings: Settings, fake_engine: FakeEngine
) -> None:
    assert supervisor.url is not None
    assert supervisor.url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(f"{supervisor.url}/server_info") as answer:
        assert answer.status == 200
    up = record(settings)
    assert [name for name, process in up.children if process.alive] == ["dagster-webserver", "dagster-daemon", "watch"]
    assert (fake_engine.running, fake_engine.loops) == (True, True)
    listening = {
        connection.laddr.ip
        for process in marked(f"{up.mark}/dagster")
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}

    supervisor.stop()

    assert marked(f"{up.mark}/dagster") == []
    assert marked(f"{up.mark}/watch") == []
    assert not record_file(settings).exists()
    assert not fake_engine.running


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", long_but(["dagster-webserver"], ["dagster-webserver", "dagster-daemon"]))
def test_a_process_that_ends_by_itself_is_reported_and_started_again(
    supervisor: Supervisor, settings: Settings, said: list[str], name: str
) -> None:
    over = threading.Event()
    watching = threading.Thread(target=supervisor.watch, args=(over,))
    watching.start()
    first = dict(record(settings).children)[name]
    try:
        os.kill(first.pid, signal.SIGKILL)
        wait_for(lambda: dict(record(settings).children)[name] != first)
        if name == "dagster-webserver":
            wait_for(lambda: answers(f"{supervisor.url}/server_info"))
    finally:
        over.set()
        watching.join()

    assert dict(record(settings).children)[name].alive
    assert said == [f"{name} has ended (code -9) and is started again; its log: {settings.state}/logs/{name}.log"]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.long
@pytest.mark.slow
def test_a_project_that_is_gone_is_kept_no_longer(supervisor: Supervisor, settings: Settings, said: list[str]) -> None:
    (settings.root / "workspace.yaml").unlink()

    assert supervisor.watch(threading.Event()) == 1
    assert said == [f"{settings.root / 'workspace.yaml'} is gone: there is nothing left to keep"]


@pytest.mark.long
@pytest.mark.slow
def test_a_watch_that_is_killed_is_started_again(supervisor: Supervisor, settings: Settings, said: list[str]) -> None:
    store = ControlStore.open(settings.control_store)
    over = threading.Event()
    watching = threading.Thread(target=supervisor.watch, args=(over,))
    watching.start()
    first = dict(record(settings).children)["watch"]

    def watcher() -> object:
        beat = store.heartbeats.read().get("watch")
        return None if beat is None else beat.detail["pid"]

    try:
        wait_for(lambda: watcher() == first.pid)
        os.kill(first.pid, signal.SIGKILL)
        wait_for(lambda: watcher() not in (None, first.pid))
        assert dict(record(settings).children)["watch"].pid == watcher()
    finally:
        over.set()
        watching.join()
        store.close()
    log = settings.state / "logs" / "watch.log"
    assert said == [f"watch has ended (code -9) and is started again; its log: {log}"]


def test_a_watch_that_ends_again_and_again_is_on_record_until_it_stays(
    settings: Settings, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor(settings, said.append, port=0)
    supervisor._keep("watch", supervisor._start_child, "watch", "freshline.no_such_module")
    over = threading.Event()
    watching = threading.Thread(target=supervisor.watch, args=(over,))
    watching.start()
    try:
        wait_for(lambda: any(each.times == 2 for each in record(settings).ended))
        (ended,) = record(settings).ended
        assert (ended.name, ended.code) == ("watch", 1)
        assert "No module named freshline.no_such_module" in ended.log
        monkeypatch.setattr(cli_supervisor, "_WELL_SECONDS", 0.0)
        supervisor._kept["watch"].start = partial(
            supervisor._start_child, "watch", "watch", "freshline.cli.main", "watch"
        )
        wait_for(lambda: record(settings).ended == ())
    finally:
        over.set()
        watching.join()
        supervisor.stop()


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it is so, for three minutes at most: a webserver beside other tests takes more than one."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < 180
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.slow
def test_down_ends_what_a_killed_up_left(supervisor: Supervisor, settings: Settings, fake_engine: FakeEngine) -> None:
    up = record(settings)
    gone = UpRecord(up.mark, type(up.supervisor)(up.supervisor.pid, 0.0), up.children, up.url, up.started_engine)
    gone.write(record_file(settings))

    store = ControlStore.open(settings.control_store)
    store.heartbeats.beat("scheduler", datetime.now(UTC))
    assert end_all(settings, lambda message: None) >= 4

    assert marked(f"{up.mark}/dagster") == []
    assert marked(f"{up.mark}/watch") == []
    # Neither the end of the watch nor that of Dagster is reported as a silence.
    assert store.heartbeats.read() == {}
    store.close()
    assert not fake_engine.running


@pytest.mark.long
def test_a_webserver_that_cannot_start_is_reported_with_the_last_line_of_its_log(
    settings: Settings, fake_engine: FakeEngine
) -> None:
    (settings.root / "workspace.yaml").write_text("load_from: 3\n")

    with pytest.raises(EngineError, match="the Dagster webserver ended with code 1: .*dagster-webserver.log"):
        Supervisor(settings, lambda sentence: None, port=0).start(lambda message: None)

    assert not fake_engine.running
    assert not record_file(settings).exists()


def test_an_engine_that_ran_before_stays(
    settings: Settings, fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine.running = fake_engine.loops = True
    # A webserver that ends at once; Dagster's own needs seconds to fail.
    monkeypatch.setattr(sys, "executable", shutil.which("false"))

    with pytest.raises(EngineError, match="ended with code 1"):
        Supervisor(settings, lambda sentence: None, port=0).start(lambda message: None)

    assert fake_engine.running


def test_without_a_workspace_nothing_is_started(settings: Settings, fake_engine: FakeEngine) -> None:
    (settings.root / "workspace.yaml").unlink()

    with pytest.raises(SettingsError, match="workspace.yaml"):
        Supervisor(settings, lambda sentence: None, port=0).start(lambda message: None)

    assert not fake_engine.running


def with_token(settings: Settings, reference: str) -> Settings:
    file = settings.root / "pyproject.toml"
    file.write_text(file.read_text().replace("[tool.freshline]", f'[tool.freshline]\ndagster-token = "{reference}"'))
    return open_settings(settings.root)


@pytest.mark.long
@pytest.mark.slow
def test_a_ui_that_asks_for_a_token_is_up(
    settings: Settings, fake_engine: FakeEngine, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UI_TOKEN", "0123456789abcdef")
    supervisor = Supervisor(with_token(settings, "${env:UI_TOKEN}"), said.append, port=0)
    supervisor.start(lambda message: None)
    try:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{supervisor.url}/server_info")
        request = urllib.request.Request(f"{supervisor.url}/", headers={"Authorization": "Bearer 0123456789abcdef"})
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200
    finally:
        supervisor.stop()


def test_a_token_that_cannot_be_read_is_reported_before_anything_starts(
    settings: Settings, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = with_token(settings, "${env:NOT_THERE}")

    with pytest.raises(SettingsError, match="dagster-token: there is no environment variable NOT_THERE"):
        Supervisor(changed, lambda sentence: None, port=0).start(lambda message: None)

    assert not fake_engine.running
    assert run(["doctor"]) == 1
    assert "NOT_THERE" in capsys.readouterr().out


def test_the_heartbeats_of_what_was_ended_on_purpose_are_forgotten(settings: Settings, said: list[str]) -> None:
    store = ControlStore.open(settings.control_store)
    for name in ("scheduler", "engine", "watch"):
        store.heartbeats.beat(name, datetime.now(UTC))
    own = ProcessId.own()
    UpRecord("no-such-mark", ProcessId(own.pid, own.started - 100)).write(record_file(settings))

    end_all(settings, said.append)

    assert set(store.heartbeats.read()) == {"watch"}
    store.close()


def test_runs_wait_in_a_queue_that_fits_what_the_engine_does_at_once(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(dagster_yaml(replace(settings, parallel_refreshes=5)))

    with DagsterInstance.from_config(str(tmp_path)) as instance:
        queue = instance.get_concurrency_config().run_queue_config

    assert isinstance(instance.run_coordinator, QueuedRunCoordinator)
    assert queue is not None
    assert queue.max_concurrent_runs == 13
    assert queue.tag_concurrency_limits == [{"key": "dagster/backfill", "limit": 5}]
