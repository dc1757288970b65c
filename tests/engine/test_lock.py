"""One engine a warehouse; who has the lock is named, and what a killed one left is ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from freshline.engine.lock import HOLDER, LOCK, WarehouseLock, find_holder, read_holder
from freshline.engine.process import ProcessId
from freshline.errors import EngineHeldError, StorageError


def acquire(root: Path) -> WarehouseLock:
    return WarehouseLock.acquire(root, project=root.parent / "shop", state=root.parent / "state")


@pytest.fixture
def process() -> Iterator[ProcessId]:
    """A process of another program."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    found = ProcessId.of(child.pid)
    assert found is not None
    yield found
    child.kill()
    child.wait()


def leave(lock: WarehouseLock, *, engine: ProcessId, jvm: ProcessId) -> None:
    """Let another process be the holder, and give up the system's lock as if that process were killed."""
    lock.holder = replace(lock.holder, process=engine)
    lock.record_jvm(jvm)
    lock._handle.close()


DEAD = ProcessId(os.getpid(), 1.0)


def test_a_second_engine_is_refused_and_learns_who_holds_the_warehouse(tmp_path):
    lock = acquire(tmp_path / "warehouse")

    with pytest.raises(EngineHeldError) as raised:
        acquire(tmp_path / "warehouse")

    message = str(raised.value)
    assert f"process {os.getpid()}" in message
    assert f"since {lock.holder.since:%Y-%m-%d %H:%M:%S} UTC" in message
    assert str(tmp_path / "shop") in message
    lock.release()


def test_a_warehouse_that_was_released_can_be_taken_again(tmp_path):
    acquire(tmp_path / "warehouse").release()

    assert read_holder(tmp_path / "warehouse") is None
    acquire(tmp_path / "warehouse").release()


def test_the_lock_ends_with_the_process_that_took_it(tmp_path):
    code = (
        "import os, sys, time; from pathlib import Path; from freshline.engine.lock import WarehouseLock; "
        "root = Path(sys.argv[1]); "
        "lock = WarehouseLock.acquire(root, project=root, state=root); print(flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    with pytest.raises(EngineHeldError, match=f"process {child.pid}"):
        acquire(tmp_path)

    child.kill()
    child.wait()

    acquire(tmp_path).release()


def test_a_jvm_that_a_killed_engine_left_is_ended_before_the_warehouse_is_taken(tmp_path, process):
    before = acquire(tmp_path)
    before.record_jvm(process)
    before._handle.close()  # as if it had been killed: the system let go of the lock, the file stays
    on_outcome: list[str] = []

    lock = WarehouseLock.acquire(tmp_path, project=tmp_path, state=tmp_path, progress=on_outcome.append)

    assert not process.alive
    assert on_outcome == [f"ending process {process.pid}, which a killed engine left"]
    lock.release()


def test_a_process_that_only_has_the_number_of_the_jvm_is_left_alone(tmp_path, process):
    before = acquire(tmp_path)
    before.record_jvm(ProcessId(process.pid, 1.0))
    before._handle.close()

    acquire(tmp_path).release()

    assert process.alive


def test_a_holder_that_cannot_be_read_does_not_keep_anybody_out(tmp_path):
    (tmp_path / HOLDER).write_text(json.dumps({"pid": 1}))

    acquire(tmp_path).release()


def test_a_warehouse_that_cannot_be_written_is_reported():
    # Nobody can make a folder there, not even root.
    with pytest.raises(StorageError, match="Make its folder writable"):
        acquire(Path("/proc/warehouse"))


def test_a_file_in_the_place_of_the_warehouse_is_reported(tmp_path):
    (tmp_path / "warehouse").write_text("")

    with pytest.raises(StorageError, match="the warehouse cannot be written"):
        acquire(tmp_path / "warehouse")


def test_who_opens_a_copy_of_a_warehouse_ends_nothing_of_the_original(tmp_path, process):
    lock = acquire(tmp_path / "warehouse")
    lock.record_jvm(process)
    shutil.copytree(tmp_path / "warehouse", tmp_path / "copy")
    assert find_holder(tmp_path / "warehouse") == lock.holder
    assert find_holder(tmp_path / "copy") is None
    said: list[str] = []

    WarehouseLock.acquire(tmp_path / "copy", project=tmp_path, state=tmp_path, progress=said.append).release()

    assert process.alive
    assert said == []
    lock.release()


def test_a_jvm_that_the_killed_engine_of_the_original_left_is_not_ended_from_a_copy(tmp_path, process):
    leave(acquire(tmp_path / "warehouse"), engine=DEAD, jvm=process)
    shutil.copytree(tmp_path / "warehouse", tmp_path / "copy")

    acquire(tmp_path / "copy").release()
    assert process.alive

    # A warehouse that was moved is the same one.
    (tmp_path / "warehouse").rename(tmp_path / "moved")
    acquire(tmp_path / "moved").release()
    assert not process.alive


@pytest.mark.parametrize("how", ["its lock file is deleted", "a copy takes the place of its folder"])
def test_a_living_engine_keeps_its_warehouse(tmp_path, process, how):
    root = tmp_path / "warehouse"
    leave(acquire(root), engine=process, jvm=process)
    if how == "its lock file is deleted":
        (root / LOCK).unlink()
    else:
        root.rename(tmp_path / "away")
        shutil.copytree(tmp_path / "away", root)

    with pytest.raises(EngineHeldError, match=f"process {process.pid}"):
        acquire(root)

    assert process.alive


def test_a_record_of_a_version_that_wrote_no_identity_is_believed(tmp_path, process):
    leave(acquire(tmp_path), engine=DEAD, jvm=process)
    value = json.loads((tmp_path / HOLDER).read_text())
    del value["lock"], value["warehouse"]
    (tmp_path / HOLDER).write_text(json.dumps(value))

    acquire(tmp_path).release()

    assert not process.alive


@pytest.mark.parametrize("how", ["moved away", "another folder in its place", "without its lock file"])
def test_a_warehouse_that_is_not_at_its_path_any_more_is_not_written(tmp_path, how):
    root = tmp_path / "warehouse"
    lock = acquire(root)
    lock.require_in_place()

    if how == "without its lock file":
        (root / LOCK).unlink()
    else:
        root.rename(tmp_path / "away")
        if how == "another folder in its place":
            shutil.copytree(tmp_path / "away", root)
    with pytest.raises(StorageError, match="not at its path any more"):
        lock.require_in_place()

    if how == "moved away":
        (tmp_path / "away").rename(root)
        lock.require_in_place()
    lock.release()


def test_the_end_of_an_engine_that_lost_its_warehouse_leaves_the_record_of_the_next_one(tmp_path):
    first = acquire(tmp_path)
    (tmp_path / LOCK).unlink()
    (tmp_path / HOLDER).unlink()
    second = acquire(tmp_path)
    value = {**json.loads((tmp_path / HOLDER).read_text()), "pid": 1}  # of another process
    (tmp_path / HOLDER).write_text(json.dumps(value))

    first.release()

    assert read_holder(tmp_path) is not None
    second.release()
