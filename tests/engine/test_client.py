"""The client: what it says where no engine answers, and that asking costs no command its start."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

from freshline.cli.main import run
from freshline.declare.project import read_settings
from freshline.engine.client import EngineClient
from freshline.engine.down_mark import read_down_mark, write_down_mark
from freshline.engine.lock import HOLDER, WarehouseLock, find_holder, read_holder
from freshline.engine.process import ProcessId
from freshline.engine.state_file import read_state, state_file, write_state
from freshline.engine.up_record import UpRecord, record_file
from freshline.errors import (
    DeclarationError,
    DeclarationErrors,
    EngineError,
    EngineHeldError,
    JavaError,
    RequestError,
    SettingsError,
    error_from_json,
)
from tests.engine.test_state_file import ENGINE as STATE

OWN = ProcessId(os.getpid(), ProcessId.own().started)
ENGINE = replace(STATE, process=OWN, jvm=ProcessId.own(), http_port=1, connect_port=1, loops=False)


def test_importing_the_client_loads_nothing_heavy():
    code = (
        "import sys; import freshline.engine.client; "
        "heavy = set('pyspark dagster sqlalchemy sqlglot deltalake pyarrow starlette uvicorn psutil'.split()); "
        "print(sorted(heavy & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_without_an_engine_the_error_says_how_to_start_one(settings):
    with pytest.raises(EngineError, match="no engine is running. Start it with `freshline engine start`"):
        EngineClient.connect(settings, start=False)


@pytest.mark.parametrize("text", [None, "{}", "not json"])
def test_a_stale_state_file_is_not_believed(settings, text):
    write_state(settings.state, replace(ENGINE, process=replace(ENGINE.process, started=1.0)))
    if text is not None:
        state_file(settings.state).write_text(text)

    with pytest.raises(EngineError, match="no engine is running"):
        EngineClient.connect(settings, start=False)
    assert text is not None or not state_file(settings.state).exists()


def test_an_engine_that_is_there_and_does_not_answer_is_named(settings):
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        write_state(settings.state, replace(ENGINE, http_port=closed.getsockname()[1]))

        with pytest.raises(EngineError, match=f"process {os.getpid()}") as raised:
            EngineClient.connect(settings, start=False)

    assert raised.value.retry_helps
    assert state_file(settings.state).exists()


def test_an_engine_that_has_died_is_reported_with_what_to_do(settings):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = ProcessId.of(child.pid)
    assert process is not None
    client = EngineClient(settings, replace(ENGINE, process=process))
    child.communicate()

    with pytest.raises(EngineError, match="ended before it had answered. Committed rows stay. Try again") as raised:
        list(client.events("request"))
    assert raised.value.retry_helps


@pytest.mark.seconds
def test_a_project_that_cannot_be_started_says_why(settings):
    # No pyproject.toml: the engine cannot find the project.
    on_outcome: list[str] = []

    with pytest.raises(SettingsError, match="there is no project"):
        EngineClient.connect(settings, start=True, progress=on_outcome.append)

    assert on_outcome[0] == "starting the engine"
    assert not state_file(settings.state).exists()


def test_a_copy_of_a_project_does_not_reach_the_engine_of_the_original(settings):
    write_state(settings.state, ENGINE)
    UpRecord("mark", ProcessId.own()).write(record_file(settings))
    copy = replace(settings, state=settings.state.with_name("copy"))
    shutil.copytree(settings.state, copy.state)

    assert read_state(settings.state) == ENGINE
    assert read_state(copy.state) is None
    assert UpRecord.read(record_file(settings)) is not None
    assert UpRecord.read(record_file(copy)) is None


def test_an_engine_that_somebody_waits_for_is_not_started_after_down(settings):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = ProcessId.of(other.pid)
    assert process is not None
    lock = WarehouseLock.acquire(settings.warehouse, project=settings.root, state=settings.state)
    lock.holder = replace(lock.holder, process=process)
    lock.record_jvm(process)
    settings.state.mkdir(parents=True, exist_ok=True)
    said: list[str] = []

    def progress(message: str) -> None:
        said.append(message)
        # It waits now for the engine that the other process is starting, and that `down` ends.
        write_down_mark(settings.state)
        other.kill()
        other.wait()

    with pytest.raises(EngineError, match="`freshline down` was called meanwhile"):
        EngineClient.connect(settings, start=True, progress=progress)

    assert said == ["waiting for the engine that another command has started"]
    lock.release()


@pytest.mark.seconds
def test_an_engine_that_was_asked_for_before_down_ends_before_it_starts_spark(tmp_path, capsys):
    assert run(["init", str(tmp_path / "shop")]) == 0
    settings = read_settings(tmp_path / "shop", {})
    settings.state.mkdir(parents=True)
    before = read_down_mark(settings.state)
    write_down_mark(settings.state)
    command = [sys.executable, "-m", "freshline.engine.main", "--project", str(settings.root), "--down-mark", before]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "`freshline down` was called meanwhile" in done.stderr
    assert find_holder(settings.warehouse) is None
    assert "starting Spark" not in (settings.state / "logs" / "engine.log").read_text()


@pytest.mark.parametrize("error", [JavaError("no Java"), RequestError("no", where="x"), EngineHeldError("held")])
def test_an_error_keeps_its_class_on_the_way(error):
    received = error_from_json(error.as_json())

    assert type(received) is type(error)
    assert str(received) == str(error)


def test_declaration_errors_come_one_by_one():
    errors = DeclarationErrors([DeclarationError("CYCLE", "a", where="a.sql:1"), DeclarationError("FILE", "b")])

    received = error_from_json(errors.as_json())

    assert isinstance(received, DeclarationErrors)
    assert [(each.rule, each.where) for each in received.errors] == [("CYCLE", "a.sql:1"), ("FILE", None)]


@pytest.mark.parametrize("errors", ["text", [False], [{}], [[]], {"a": 1}, [{"rule": None, "where": 5}]])
def test_an_error_of_another_form_is_an_error_all_the_same(errors):
    found = error_from_json({"code": "DECLARATION", "message": "m", "where": 5, "errors": errors})

    assert found.code == "DECLARATION"
    assert str(found)


@pytest.mark.parametrize(
    "content", ['{"format": Infinity}', '{"format": 1, "pid": Infinity}', "[" * 100_000, "[]", "5"]
)
def test_a_state_file_that_says_nothing_is_none(settings, content):
    settings.state.mkdir(parents=True)
    for file in (state_file(settings.state), record_file(settings), settings.state / HOLDER):
        file.write_text(content)

    assert read_state(settings.state) is None
    assert UpRecord.read(record_file(settings)) is None
    assert read_holder(settings.state) is None
