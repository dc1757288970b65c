"""Files that a process makes without an engine are private too, whatever the umask of the user is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from freshline.commit.control_store import ControlStore
from freshline.engine.down_mark import write_down_mark
from freshline.engine.lock import HOLDER, WarehouseLock
from freshline.engine.process import ProcessId
from freshline.engine.state_file import EngineState, state_file, write_state
from freshline.engine.up_record import UpRecord, record_file
from freshline.errors import SettingsError, StorageError
from freshline.values.settings import Settings, as_private, provide_state

pytestmark = pytest.mark.security

ENGINE = EngineState(ProcessId.own(), ProcessId.own(), 1, 1, "token", "/warehouse", "0", loops=False)


@pytest.fixture(autouse=True)
def open_mask() -> Iterator[None]:
    """The mask of a user who shares everything."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("umask", "file", "folder"), [(0o077, 0o600, 0o700), (0o027, 0o640, 0o750), (0o007, 0o660, 0o770)]
)
def test_a_control_store_anywhere_has_the_permissions_of_the_setting(
    settings: Settings, tmp_path: Path, umask: int, file: int, folder: int
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    settings = replace(settings, umask=umask, control_store=f"sqlite:///{shared / 'control.db'}")
    store = ControlStore.open(settings.control_store, settings.umask)
    store.heartbeats.read()

    assert {path.name: mode(path) for path in shared.iterdir()} == dict.fromkeys(
        ("control.db", "control.db-wal", "control.db-shm"), file
    )
    store.close()
    assert mode(provide_state(settings)) == folder


def test_a_store_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    path.touch(mode=0o644)
    ControlStore.open(f"sqlite:///{path}").close()

    assert mode(path) == 0o644


def test_files_with_a_token_are_their_owners_in_a_folder_of_everybody(settings: Settings) -> None:
    settings.state.mkdir(parents=True, mode=0o777)
    write_state(settings.state, ENGINE)
    UpRecord("mark", ProcessId.own(), (), None, False).write(record_file(settings))
    write_down_mark(settings.state)

    assert {path.name: oct(mode(path)) for path in settings.state.iterdir() if path.is_file()} == dict.fromkeys(
        (path.name for path in settings.state.iterdir() if path.is_file()), "0o600"
    )
    assert mode(state_file(settings.state)) == 0o600


def test_who_may_not_read_the_warehouse_may_not_read_who_holds_it(settings: Settings) -> None:
    for umask, expected in ((0o077, 0o600), (0o022, 0o644)):
        root = settings.root / f"warehouse{umask}"
        with as_private(umask):
            lock = WarehouseLock.acquire(root, project=settings.root, state=settings.state)
        assert mode(root / HOLDER) == expected
        lock.release()


@pytest.mark.parametrize("name", ["engine.json", "up.json", "down"])
def test_a_link_in_place_of_a_file_of_the_state_is_replaced_and_not_followed(settings: Settings, name: str) -> None:
    victim = settings.root / "victim"
    victim.parent.mkdir(parents=True, exist_ok=True)
    victim.write_text("untouched")
    settings.state.mkdir(parents=True)
    (settings.state / name).symlink_to(victim)
    write_state(settings.state, ENGINE)
    UpRecord("mark", ProcessId.own(), (), None, False).write(record_file(settings))
    write_down_mark(settings.state)

    assert victim.read_text() == "untouched"


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("postgresql+psycopg://u:se@cret:hunter2@host/db", "hunter2"),
        ("postgresql+psycopg://u:hunter2@127.0.0.1:9?connect_timeout=1&password=hunter3", "hunter"),
        ("postgresql+psycopg://u:hunter2@127.0.0.1:9?connect_timeout=1&passfile=hunter2", "hunter2"),
        ("nothing://u:hunter2@host/db", "hunter2"),
        ("hunter2", "hunter2"),
    ],
)
def test_no_part_of_a_password_of_the_control_store_is_shown(url: str, secret: str) -> None:
    with pytest.raises((SettingsError, StorageError)) as raised:
        ControlStore.open(url)

    assert secret not in str(raised.value)


@pytest.mark.parametrize("name", ["shop?now", "a?b=c", "100%25", "#1", "a;b", "x&y=z", "?"])
def test_a_control_store_is_in_the_folder_that_its_path_names(tmp_path: Path, name: str) -> None:
    root = tmp_path / "outer" / name
    root.mkdir(parents=True)
    store = ControlStore.open(f"sqlite:///{root / 'control.db'}")
    store.heartbeats.read()
    store.close()

    assert (root / "control.db").is_file()
    assert [path.name for path in (tmp_path / "outer").iterdir()] == [name]
