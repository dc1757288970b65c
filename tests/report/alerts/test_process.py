"""The process of the watch: it notices from outside, survives its control store, and there is one at a time."""

from __future__ import annotations

import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from freshline.cli.watch import identity, surroundings_of
from freshline.commit.control_store import database
from freshline.engine.watch_health import read_watch_problems
from freshline.errors import EngineError, StorageError
from freshline.report.alerts import delivery, process
from freshline.report.alerts.process import Lease, run
from tests.lanes import long_but
from tests.postgres import find_programs, running_server
from tests.report.alerts.servers import WebServer, web_server
from tests.report.alerts.shop import ORDERS, Shop, make_shop

pytestmark = pytest.mark.slow  # the watch runs in processes of its own

BEATER = Path(__file__).with_name("beater.py")


def wait_for(condition: Callable[[], bool], seconds: float) -> float:
    """Wait until it is so; returns how long it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, "it did not become so in time"
        time.sleep(0.05)
    return time.monotonic() - begin


def wait_for_looks(shop: Shop, number: int) -> None:
    """Wait until the watch has begun so many more checks."""
    for _ in range(number):
        wait_for_another_look(shop)


def wait_for_another_look(shop: Shop) -> None:
    seen = shop.control.heartbeats.read()["watch"].at
    wait_for(lambda: shop.control.heartbeats.read()["watch"].at != seen, 30)


@contextmanager
def child(command: list[str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end, whatever happened."""
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def engine(shop: Shop) -> Any:
    """A process that beats as the engine."""
    return child([sys.executable, str(BEATER), shop.settings.control_store])


def watch(shop: Shop) -> Any:
    """A real `freshline watch`."""
    command = [sys.executable, "-m", "freshline.cli.main", "watch", "--project", str(shop.settings.root)]
    return child(command, env={**os.environ, "FRESHLINE_ENV": "local"})


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server(WebServer()) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def shop(request: pytest.FixtureRequest, tmp_path: Path, web: WebServer) -> Iterator[Shop]:
    """A shop of 5 seconds whose alerts go to a webhook."""
    url = request.getfixturevalue("postgres").new_database() if request.param == "postgres" else None
    channel = f'[tool.freshline.alerts.channels.hook]\ntype = "webhook"\nurl = "{web.url}"\nprivate-addresses = true'
    made = make_shop(tmp_path / "shop", control_store=url, freshness=5, settings=channel)
    yield made
    made.control.close()


def told(web: WebServer) -> list[tuple[str, str | None, str]]:
    """Event, table and kind of what the webhook got, in order."""
    messages = [json.loads(received.body) for received in web.received]
    return [(message["event"], message["table"], message["kind"]) for message in messages]


class Refresher(threading.Thread):
    """Refreshes the tables of a shop every second until it is stopped."""

    def __init__(self, shop: Shop) -> None:
        super().__init__()
        self.shop, self.over = shop, threading.Event()
        self.newest = datetime.now(UTC)

    def run(self) -> None:
        number = 0
        while not self.over.wait(1.0):
            number += 1
            self.newest = datetime.now(UTC)
            self.shop.refresh(number, self.newest)

    def stop(self) -> None:
        self.over.set()
        self.join()


@pytest.mark.slow
@pytest.mark.parametrize("shop", long_but(["sqlite"], ["sqlite", "postgres"]), indirect=True)
def test_a_killed_engine_is_reported_within_15_seconds_and_so_is_what_is_late_by_it(shop: Shop, web: WebServer) -> None:
    refreshing = Refresher(shop)
    with watch(shop), engine(shop) as first:
        refreshing.start()
        try:
            wait_for(lambda: "watch" in shop.control.heartbeats.read(), 60)
            wait_for_looks(shop, 3)
            assert told(web) == []
        finally:
            refreshing.stop()
        first.send_signal(signal.SIGKILL)
        assert wait_for(lambda: ("raised", None, "engine_silent") in told(web), 30) < 15
        late = ("raised", "sales.spend", "late")
        wait_for(lambda: late in told(web), 30)
        declaration_error = refreshing.newest + timedelta(seconds=5)
        raised = next(alert for alert in shop.control.alerts.open_alerts() if alert.subject == "sales.spend")
        assert raised.raised_at - declaration_error < timedelta(seconds=15)
        assert "the engine, process" in raised.cause

        again = Refresher(shop)
        again.start()
        try:
            with engine(shop):
                wait_for(lambda: ("recovered", None, "engine_silent") in told(web), 40)
                wait_for(lambda: ("recovered", "sales.spend", "late") in told(web), 40)
        finally:
            again.stop()
    events = told(web)
    assert events.count(late) == 1
    assert events.count(("raised", None, "engine_silent")) == 1
    assert events.count(("recovered", "sales.spend", "late")) == 1


@pytest.mark.slow
def test_sigterm_ends_it_in_order_and_the_next_one_begins_at_once(shop: Shop) -> None:
    for _ in range(2):
        with watch(shop) as running:
            wait_for(lambda: "watch" in shop.control.heartbeats.read(), 60)
            running.send_signal(signal.SIGTERM)
            _, errors = running.communicate(timeout=30)
        assert running.returncode == 0
        assert b"watching" in errors
        assert "watch" not in shop.control.heartbeats.read()


@pytest.mark.slow
def test_a_second_one_names_the_first_and_takes_over_when_it_was_killed(shop: Shop) -> None:
    with watch(shop) as first:
        wait_for(lambda: "watch" in shop.control.heartbeats.read(), 60)
        with watch(shop) as second:
            _, errors = second.communicate(timeout=60)
        assert second.returncode == 1
        assert f"freshline watch runs already: process {first.pid} on " in errors.decode()
        first.kill()
        first.wait()
        with watch(shop) as third:
            took = wait_for(lambda: shop.control.heartbeats.read()["watch"].detail["pid"] == third.pid, 60)
        assert took < 15


# -- in this process


def test_a_lease_is_lost_to_nobody_while_it_is_renewed(shop: Shop) -> None:
    first, second = Lease(shop.control, identity()), Lease(shop.control, identity())
    first.renew()
    first.renew()
    with pytest.raises(EngineError, match="One looks at an environment at a time"):
        second.renew()
    second.release()  # it has nothing to give back
    with pytest.raises(EngineError):
        second.renew()
    first.release()
    second.renew()


def test_a_lease_that_was_not_renewed_for_long_is_taken(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Lease(shop.control, identity()), Lease(shop.control, identity())
    first.renew()
    monkeypatch.setattr(process, "HELD", timedelta(0))
    second.renew()
    monkeypatch.undo()
    with pytest.raises(EngineError):
        first.renew()


def test_a_lease_that_was_taken_is_not_taken_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Lease(shop.control, identity()), Lease(shop.control, identity())
    first.renew()
    # As by two machines whose clocks differ: each takes the other for gone.
    monkeypatch.setattr(process, "HELD", timedelta(0))
    second.renew()
    with pytest.raises(EngineError):
        first.renew()
    second.renew()


@contextmanager
def running(shop: Shop) -> Iterator[None]:
    """A watch in a thread of this process."""
    over = threading.Event()
    arguments = (shop.settings, surroundings_of(shop.settings), identity(), over)
    thread = threading.Thread(target=run, args=arguments)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
        assert not thread.is_alive()


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_a_control_store_that_is_locked_is_said_once_and_waited_for(
    shop: Shop, web: WebServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    monkeypatch.setattr(process, "LOOK_SECONDS", 0.2)
    with caplog.at_level(logging.INFO), running(shop):
        wait_for(lambda: bool(lines(caplog, "watching")), 30)
        holder = sqlite3.connect(str(shop.settings.state / "control.db"), isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        wait_for(lambda: bool(lines(caplog, "nothing can be watched for now")), 30)
        # That several more checks fail can be seen nowhere but in what is not logged.
        time.sleep(2)
        assert len(lines(caplog, "nothing can be watched for now")) == 1
        assert "locked by another process" in lines(caplog, "nothing can be watched")[0]
        holder.close()
        wait_for(lambda: bool(lines(caplog, "watching again")), 30)


def test_a_control_store_that_is_away_is_waited_for_from_the_start_on_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    programs = find_programs()
    if programs is None:
        pytest.skip("Postgres is not installed (on Debian: apt-get install postgresql)")
    monkeypatch.setattr(process, "LOOK_SECONDS", 0.2)
    with running_server(programs) as server:
        data, log = str(server.folder / "data"), str(server.folder / "log")
        options = f"-c listen_addresses= -c unix_socket_directories={server.folder} -c fsync=off"

        def start() -> None:
            server.run("pg_ctl", "start", "--wait", "--pgdata", data, "--options", options, "--log", log)

        def stop() -> None:
            server.run("pg_ctl", "stop", "--mode", "immediate", "--pgdata", data)

        shop = make_shop(tmp_path / "shop", control_store=server.new_database())
        shop.control.close()
        stop()
        with caplog.at_level(logging.INFO), running(shop):
            wait_for(lambda: bool(lines(caplog, "nothing can be watched for now")), 30)
            start()
            wait_for(lambda: "watching" in lines(caplog, "watching"), 30)
            stop()
            wait_for(lambda: len(lines(caplog, "nothing can be watched for now")) == 2, 30)
            start()
            wait_for(lambda: bool(lines(caplog, "watching again")), 30)
        assert len(lines(caplog, "nothing can be watched for now")) == 2


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_once_needs_a_control_store_that_answers(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    holder = sqlite3.connect(str(shop.settings.state / "control.db"), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked by another process"):
        process.check_once(shop.settings, surroundings_of(shop.settings), identity())
    holder.close()


@pytest.mark.slow
@pytest.mark.parametrize("shop", ["postgres"], indirect=True)
def test_a_control_store_that_is_read_only_is_said_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "LOOK_SECONDS", 0.1)
    url = f"{shop.settings.control_store}&options=-c%20default_transaction_read_only%3Don"
    shop.settings = replace(shop.settings, control_store=url)
    with running(shop):
        wait_for(lambda: bool(lines(caplog, "nothing can be watched for now")), 30)
        # That several more checks fail can be seen nowhere but in what is not logged.
        time.sleep(1)
    assert len(lines(caplog, "nothing can be watched for now")) == 1
    assert "cannot be written: it is read-only" in lines(caplog, "nothing can be watched")[0]


def test_checks_of_a_cron_job_report_each_change_once(shop: Shop, web: WebServer) -> None:
    shop.refresh(1, datetime.now(UTC) - timedelta(minutes=1))
    arguments = (shop.settings, surroundings_of(shop.settings), identity())
    first = process.check_once(*arguments)
    second = process.check_once(*arguments)

    assert [(message.subject, message.kind) for message in first.messages] == [
        ("orders", "late"),
        ("sales.spend", "late"),
    ]
    assert [message.id for message in first.messages] == [json.loads(received.body)["id"] for received in web.received]
    assert second.messages == ()
    assert told(web) == [("raised", "orders", "late"), ("raised", "sales.spend", "late")]
    assert [alert.delivered_to for alert in shop.control.alerts.open_alerts()] == [("hook",), ("hook",)]


def test_a_dead_channel_delays_no_check(shop: Shop, web: WebServer) -> None:
    web.trickle = True
    shop.refresh(1, datetime.now(UTC) - timedelta(minutes=1))
    with running(shop):
        wait_for(lambda: len(shop.control.alerts.open_alerts()) == 2, 30)
        wait_for(web.came.is_set, 30)
        # The channel waits for its answer, and checks go on.
        wait_for_looks(shop, 2)
        web.over.set()


def test_changed_declarations_are_taken_up(shop: Shop) -> None:
    shop.refresh(1, datetime.now(UTC) - timedelta(minutes=1))
    with running(shop):
        wait_for(lambda: len(shop.control.alerts.open_alerts()) == 2, 30)
        for file in (shop.settings.root / "assets").rglob("*.sql"):
            file.write_text(file.read_text().replace("'5' SECOND", "'1' DAY"))
        wait_for(lambda: all(alert.calm_since is not None for alert in shop.control.alerts.open_alerts()), 30)


BROKEN = """
[tool.freshline.alerts.channels.pager]
type = "channel_to_come:FileChannel"
[tool.freshline.alerts.channels.secret]
type = "slack"
url = "${env:NO_SUCH_VARIABLE_OF_A_TEST}"
"""
FILE_CHANNEL = """
from pathlib import Path


class FileChannel:
    def __init__(self, options, resolve):
        self.file = Path(__file__).with_name("told.txt")

    def deliver(self, message):
        with self.file.open("a") as opened:
            print(message.headline, file=opened)
"""


def hooked(tmp_path: Path, web: WebServer, more: str) -> Shop:
    channel = f'[tool.freshline.alerts.channels.hook]\ntype = "webhook"\nurl = "{web.url}"\nprivate-addresses = true'
    return make_shop(tmp_path / "shop", freshness=5, settings=channel + more)


def test_a_channel_that_cannot_be_had_is_reported_and_the_others_go_on(
    tmp_path: Path, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_PREPARE_SECONDS", 0.5)
    monkeypatch.setattr(delivery, "FIRST_PAUSE_SECONDS", 0.5)
    shop = hooked(tmp_path, web, BROKEN)

    def problems() -> tuple[str, ...]:
        return read_watch_problems(shop.settings, shop.control.heartbeats.read(), datetime.now(UTC))

    shop.refresh(1, datetime.now(UTC) - timedelta(minutes=1))
    with running(shop):
        wait_for(lambda: len(told(web)) == 2, 30)
        wait_for(lambda: len(problems()) == 2, 30)
        pager, secret = problems()
        assert pager.startswith(
            "channel pager takes no alert: channel_to_come:FileChannel cannot be used: ModuleNotFound"
        )
        assert secret.startswith("channel secret takes no alert: there is no environment variable NO_SUCH_VARIABLE")
        # The messages that it missed wait for it.
        (shop.settings.root / "channel_to_come.py").write_text(FILE_CHANNEL)
        told_file = shop.settings.root / "told.txt"
        wait_for(lambda: told_file.exists() and len(told_file.read_text().splitlines()) == 2, 30)
        wait_for(lambda: len(problems()) == 1, 30)
    shop.control.close()


def test_a_class_that_never_loads_delays_no_check(
    tmp_path: Path, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_PATIENCE_SECONDS", 0.2)
    shop = hooked(tmp_path, web, '\n[tool.freshline.alerts.channels.slow]\ntype = "channel_that_waits:Slow"\n')
    (shop.settings.root / "channel_that_waits.py").write_text(
        "import threading\nOVER = threading.Event()\n\n\nclass Slow:\n"
        "    def __init__(self, options, resolve):\n        OVER.wait(60)\n\n"
        "    def deliver(self, message):\n        pass\n"
    )
    shop.refresh(1, datetime.now(UTC) - timedelta(minutes=1))
    try:
        with running(shop):
            wait_for(lambda: len(told(web)) == 2, 30)
            wait_for(lambda: "watch" in shop.control.heartbeats.read(), 30)
            wait_for(lambda: shop.control.heartbeats.read()["watch"].detail["channels"] != {}, 30)
            assert shop.control.heartbeats.read()["watch"].detail["channels"] == {
                "slow": "its class has not loaded yet"
            }
            sys.modules["channel_that_waits"].OVER.set()
            wait_for(lambda: shop.control.heartbeats.read()["watch"].detail["channels"] == {}, 30)
    finally:
        sys.modules["channel_that_waits"].OVER.set()
        shop.control.close()


def test_a_channel_that_refuses_messages_is_reported_until_it_takes_one(
    tmp_path: Path, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "FIRST_PAUSE_SECONDS", 0.5)
    shop = hooked(tmp_path, web, "")
    web.status = 500
    shop.refresh(1, datetime.now(UTC) - timedelta(minutes=1))
    with running(shop):
        wait_for(lambda: "watch" in shop.control.heartbeats.read(), 30)
        wait_for(lambda: "hook" in shop.control.heartbeats.read()["watch"].detail["channels"], 30)
        assert "500" in shop.control.heartbeats.read()["watch"].detail["channels"]["hook"]
        web.status = 200
        wait_for(lambda: shop.control.heartbeats.read()["watch"].detail["channels"] == {}, 30)
    shop.control.close()


def test_a_watch_that_starts_beside_a_mistake_watches_the_others_and_closes_no_alert_of_its_table(
    tmp_path: Path, web: WebServer
) -> None:
    shop = hooked(tmp_path, web, "")
    shop.refresh(1, datetime.now(UTC) - timedelta(minutes=1))
    process.check_once(shop.settings, surroundings_of(shop.settings), identity())
    assert len(shop.control.alerts.open_alerts()) == 2
    (shop.settings.root / "assets" / "sales" / "spend.sql").write_text("CREATE MATERIALIZED TABLE")
    shop.commit(ORDERS, 2, datetime.now(UTC) + timedelta(seconds=30))

    process.check_once(shop.settings, surroundings_of(shop.settings), identity())

    alerts = {alert.subject: alert for alert in shop.control.alerts.open_alerts()}
    assert alerts["orders"].calm_since is not None
    assert alerts["sales.spend"].calm_since is None
    shop.control.close()
