"""The state file: readable by its owner only, whole or not at all, and never in the way of another engine's."""

from __future__ import annotations

import json
import stat
from dataclasses import replace

import pytest

from freshline.engine.process import ProcessId
from freshline.engine.state_file import EngineState, read_state, remove_state, state_file, write_state
from freshline.errors import FormatError, StorageError

ENGINE = EngineState(
    process=ProcessId(10, 1.5),
    jvm=ProcessId(11, 2.5),
    http_port=1234,
    connect_port=1235,
    token="secret",
    warehouse="/warehouse",
    version="0.1.0",
    loops=True,
)


def test_a_state_comes_back_as_it_was_written(tmp_path):
    write_state(tmp_path / "state", ENGINE)

    assert read_state(tmp_path / "state") == ENGINE


def test_only_the_owner_may_read_the_token(tmp_path):
    write_state(tmp_path, ENGINE)

    assert stat.S_IMODE(state_file(tmp_path).stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["engine.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "pid": "x"}'])
def test_a_file_that_says_nothing_is_as_good_as_none(tmp_path, text):
    state_file(tmp_path).write_text(text)

    assert read_state(tmp_path) is None


def test_a_file_of_a_newer_freshline_is_refused(tmp_path):
    state_file(tmp_path).write_text(json.dumps({"format": 99}))

    with pytest.raises(FormatError, match="newer freshline"):
        read_state(tmp_path)


def test_the_file_of_another_engine_stays(tmp_path):
    write_state(tmp_path, ENGINE)

    remove_state(tmp_path, replace(ENGINE, process=ProcessId(99, 1.0)))
    assert read_state(tmp_path) == ENGINE

    remove_state(tmp_path, ENGINE)
    assert read_state(tmp_path) is None


def test_a_state_directory_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "state").write_text("")

    with pytest.raises(StorageError, match="state directory cannot be written"):
        write_state(tmp_path / "state", ENGINE)
