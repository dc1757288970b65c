"""Processes that `up` starts are found and ended again, whatever happened to the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from freshline.cli.processes import MARK, UpRecord, end_marked, marked, new_mark, rotate, start
from freshline.engine.process import ProcessId
from freshline.engine.up_record import engine_environ
from freshline.errors import FormatError

WAIT = "import sys, threading; print('up', flush=True); threading.Event().wait()"
PARENT = (
    "import subprocess, sys, threading\n"
    f"child = subprocess.Popen([sys.executable, '-c', {WAIT!r}], start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    "threading.Event().wait()\n"
)


def begin(code: str, tmp_path: Path, mark: str) -> tuple[subprocess.Popen[bytes], ProcessId]:
    return start(
        [sys.executable, "-c", code], log=tmp_path / "logs" / "child.log", environ=os.environ, mark=mark,
        folder=tmp_path, umask=0o077,
    )  # fmt: skip


@pytest.mark.seconds
def test_a_marked_process_and_its_children_end_even_after_their_parent_was_killed(tmp_path: Path) -> None:
    mark = new_mark()
    process, started = begin(PARENT, tmp_path, mark)
    log = tmp_path / "logs" / "child.log"
    while not log.read_text().strip():
        assert process.poll() is None
    grandchild = psutil.Process(int(log.read_text().split()[0]))
    process.kill()
    process.wait()

    assert not started.alive
    assert grandchild in marked(mark)
    assert end_marked(mark) >= 1
    assert marked(mark) == []
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    mark = new_mark()
    process, started = begin("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT, tmp_path, mark)
    log = tmp_path / "logs" / "child.log"
    while "up" not in log.read_text():
        assert process.poll() is None
    assert started.alive

    end_marked(mark, grace_seconds=0.2)
    process.wait()

    assert not started.alive


def test_a_process_of_another_mark_is_left_alone(tmp_path: Path) -> None:
    mark = new_mark()
    process, started = begin(WAIT, tmp_path, mark)
    try:
        assert end_marked(new_mark()) == 0
        assert started.alive
    finally:
        process.kill()
        process.wait()


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "state" / "up.json"
    own = ProcessId.own()
    record = UpRecord("mark", own, (("dagster-webserver", own),), "http://127.0.0.1:3000", True)

    record.write(file)

    assert UpRecord.read(file) == record
    assert [entry.name for entry in file.parent.iterdir()] == ["up.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "mark": "m", "supervisor": 3}'])
def test_a_broken_record_is_no_record(tmp_path: Path, text: str) -> None:
    file = tmp_path / "up.json"
    file.write_text(text)

    assert UpRecord.read(file) is None


def test_a_record_of_a_newer_freshline_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "up.json"
    file.write_text('{"format": 99}')

    with pytest.raises(FormatError, match="newer"):
        UpRecord.read(file)


def test_the_mark_reaches_the_environment(tmp_path: Path) -> None:
    mark = new_mark()
    process, _ = begin(f"import os; print(os.environ[{MARK!r}])", tmp_path, mark)
    process.wait()

    assert (tmp_path / "logs" / "child.log").read_text().strip() == mark


@pytest.mark.parametrize(
    ("mark", "expected"),
    [(None, None), ("word", "word"), ("word/dagster", "word/engine"), ("word/engine", "word/engine")],
)
def test_an_engine_has_the_mark_of_the_engine_whichever_part_of_up_starts_it(
    mark: str | None, expected: str | None
) -> None:
    before = {"HOME": "/home"} if mark is None else {"HOME": "/home", MARK: mark}

    found = engine_environ(before)

    assert (found.get(MARK), found["HOME"]) == (expected, "/home")


def test_an_engine_has_few_arenas_of_memory_unless_its_user_says_otherwise() -> None:
    assert engine_environ({})["MALLOC_ARENA_MAX"] == "2"
    assert engine_environ({"MALLOC_ARENA_MAX": "8"})["MALLOC_ARENA_MAX"] == "8"


def test_a_log_that_has_grown_large_is_emptied_while_its_process_writes_to_it(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    writes = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    with log.open("ab") as output:
        process = subprocess.Popen([sys.executable, "-c", writes], stdin=subprocess.PIPE, stdout=output, text=True)
    assert process.stdin is not None
    process.stdin.write("x" * 2_000 + "\n")
    process.stdin.flush()
    while log.stat().st_size < 2_001:
        assert process.poll() is None

    assert not rotate(log, 2_001)
    assert rotate(log, 2_000)
    process.communicate("after\n", timeout=20)

    assert log.read_text() == "after\n"
    assert (tmp_path / "part.log.1").stat().st_size == 2_001


def test_a_log_that_is_not_there_is_left_alone(tmp_path: Path) -> None:
    assert not rotate(tmp_path / "none.log", 10)
