"""The files with which Prometheus finds an engine, for its owner, whatever the names of the folders are."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from freshline.engine.scrape_files import (
    chosen_token,
    forget_target,
    instance,
    targets_file,
    token_file,
    write_target,
    write_token,
)
from freshline.errors import SettingsError, StorageError
from freshline.values.settings import Settings

pytestmark = pytest.mark.security

TOKEN = "0123456789abcdef"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_prometheus_follows_the_port_of_each_engine(settings: Settings) -> None:
    write_target(settings, 1234)
    write_target(settings, 5678)

    name = f"{settings.root.name}/local"
    assert json.loads(targets_file(settings).read_text()) == [
        {"targets": ["127.0.0.1:5678"], "labels": {"job": "freshline", "instance": name}}
    ]

    forget_target(settings, 1234)
    assert json.loads(targets_file(settings).read_text()) != []
    forget_target(settings, 5678)

    assert json.loads(targets_file(settings).read_text()) == []
    assert [path.name for path in targets_file(settings).parent.iterdir()] == ["targets.json"]


@pytest.mark.parametrize(("umask", "expected"), [(0o077, 0o600), (0o027, 0o640), (0o007, 0o660)])
def test_the_token_is_its_owners_and_the_address_follows_the_umask(
    settings: Settings, umask: int, expected: int
) -> None:
    settings = replace(settings, umask=umask)
    before = os.umask(0)
    try:
        write_token(settings, TOKEN)
        write_target(settings, 1)
    finally:
        os.umask(before)

    assert mode(token_file(settings)) == 0o600
    assert mode(targets_file(settings)) == expected
    assert token_file(settings).read_text() == TOKEN


@pytest.mark.parametrize("name", ["token", "targets.json"])
def test_a_link_in_its_place_is_replaced_and_not_followed(settings: Settings, name: str) -> None:
    victim = settings.root / "victim"
    victim.write_text("untouched")
    token_file(settings).parent.mkdir(parents=True)
    (token_file(settings).parent / name).symlink_to(victim)
    write_token(settings, TOKEN)
    write_target(settings, 1)

    assert victim.read_text() == "untouched"


def test_a_folder_that_cannot_be_written_is_an_error(settings: Settings) -> None:
    settings.state.mkdir(parents=True)
    (settings.state / "metrics").write_text("a file")

    with pytest.raises(StorageError):
        write_target(settings, 1)


def test_an_engine_that_cannot_be_forgotten_is_a_warning(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    write_target(settings, 1)
    monkeypatch.setattr("tempfile.mkstemp", full)
    forget_target(settings, 1)

    assert "goes on asking" in caplog.text


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"a": 1}', "\udcff"])
def test_an_engine_whose_state_was_moved_or_damaged_writes_nothing_there(settings: Settings, text: str | None) -> None:
    if text is not None:
        targets_file(settings).parent.mkdir(parents=True)
        targets_file(settings).write_bytes(text.encode("utf-8", "surrogateescape"))
    forget_target(settings, 1)

    assert targets_file(settings).exists() == (text is not None)
    assert settings.state.exists() == (text is not None)


def test_the_name_of_an_engine_is_a_text(settings: Settings) -> None:
    hostile = replace(settings, root=Path('/x/"} \udcff\n<b>'))
    write_target(hostile, 1)

    assert instance(hostile) == '"} ?\n<b>/local'
    assert json.loads(targets_file(hostile).read_bytes())[0]["labels"]["instance"] == instance(hostile)


def test_the_token_may_be_one_of_yours(settings: Settings) -> None:
    (settings.root / "mine").write_text(f"{TOKEN}\n")

    assert chosen_token(settings, {}) is None
    assert chosen_token(replace(settings, metrics_token="${file:mine}"), {}) == TOKEN
    assert chosen_token(replace(settings, metrics_token="${env:MINE}"), {"MINE": TOKEN}) == TOKEN


@pytest.mark.parametrize("text", ["short", "a token with blanks in it", "x" * 513])
def test_a_text_that_is_no_token_is_refused_and_not_shown(settings: Settings, text: str) -> None:
    with pytest.raises(SettingsError, match="metrics-token") as raised:
        chosen_token(replace(settings, metrics_token="${env:MINE}"), {"MINE": text})

    assert text not in str(raised.value)
