"""The client: what it says where no engine answers, and that asking costs no command its start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

from freshline.engine.client import EngineClient, error_from_json
from freshline.engine.process import ProcessId
from freshline.engine.state_file import EngineState, state_file, write_state
from freshline.errors import (
    DeclarationError,
    DeclarationErrors,
    EngineError,
    EngineHeldError,
    JavaError,
    RequestError,
    SettingsError,
)

ENGINE = EngineState(
    process=ProcessId(os.getpid(), ProcessId.own().started),
    jvm=ProcessId.own(),
    http_port=1,
    connect_port=1,
    token="token",
    warehouse="/warehouse",
    version="0.1.0",
    loops=False,
)


def test_importing_the_client_loads_nothing_heavy():
    code = (
        "import sys; import freshline.engine.client; "
        "heavy = set('pyspark dagster sqlalchemy sqlglot deltalake pyarrow starlette uvicorn psutil'.split()); "
        "print(sorted(heavy & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_without_an_engine_it_is_told_how_to_start_one(settings):
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


def test_an_engine_that_has_died_is_told_with_what_to_do(settings):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = ProcessId.of(child.pid)
    assert process is not None
    client = EngineClient(settings, replace(ENGINE, process=process))
    child.communicate()

    with pytest.raises(
        EngineError, match="ended before it had answered. What was committed stays; try again"
    ) as raised:
        list(client.events("request"))
    assert raised.value.retry_helps


def test_a_project_that_cannot_be_started_says_why(settings):
    # No pyproject.toml: the engine cannot find the project.
    told: list[str] = []

    with pytest.raises(SettingsError, match="there is no project"):
        EngineClient.connect(settings, start=True, progress=told.append)

    assert told[0] == "starting the engine"
    assert not state_file(settings.state).exists()


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
