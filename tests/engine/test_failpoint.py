"""Failpoints are inert unless a test asks for one twice: by a flag and by a name."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from freshline.engine.failpoint import read_failpoint


@pytest.mark.parametrize(
    "environ",
    [{}, {"FRESHLINE_FAILPOINT": "before-commit"}, {"FRESHLINE_TEST": "1"}],
)
def test_without_flag_and_name_nothing_happens(environ):
    read_failpoint(environ)("before-commit")


def test_the_passing_that_was_named_is_the_last(monkeypatch):
    killed: list[str] = []
    stop_here = read_failpoint(
        {"FRESHLINE_TEST": "1", "FRESHLINE_FAILPOINT": "before-commit:2"}, kill=lambda: killed.append("now")
    )

    stop_here("before-commit")
    stop_here("after-commit")
    assert killed == []
    stop_here("before-commit")
    assert killed == ["now"]
    stop_here("before-commit")
    assert killed == ["now"]


def test_a_count_below_one_is_a_mistake():
    with pytest.raises(ValueError, match="begins at 1"):
        read_failpoint({"FRESHLINE_TEST": "1", "FRESHLINE_FAILPOINT": "x:0"})


def test_the_kill_takes_what_the_process_started_with_it():
    code = (
        "import subprocess, sys; from freshline.engine.failpoint import read_failpoint; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "read_failpoint({'FRESHLINE_TEST': '1', 'FRESHLINE_FAILPOINT': 'here'})('here'); print('still here')"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    # The pipe ends when no process has it open any more, the child included.
    printed = process.communicate(timeout=30)[0]

    assert process.returncode == -9
    assert "still here" not in printed


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < deadline, file
        time.sleep(0.01)


def test_a_point_of_a_folder_stops_at_its_passing_until_the_folder_lets_go(tmp_path):
    reach = read_failpoint({"FRESHLINE_TEST": "1", "FRESHLINE_FAILPOINT_FOLDER": str(tmp_path)})
    reach("before-commit")
    (tmp_path / "armed").write_text(json.dumps({"id": "a", "point": "before-commit", "passing": 2}))
    reach("before-commit")
    reach("after-commit")
    assert not (tmp_path / "reached").exists()

    held = threading.Thread(target=reach, args=["before-commit"])
    held.start()
    wait_for(tmp_path / "reached")
    reached = json.loads((tmp_path / "reached").read_text())
    reach("before-commit")  # of another thread: only the passing that was asked for waits
    other = read_failpoint({"FRESHLINE_TEST": "1", "FRESHLINE_FAILPOINT_FOLDER": str(tmp_path)})
    other("before-commit")
    other("before-commit")  # nor does an engine that took over

    assert (reached["id"], reached["point"]) == ("a", "before-commit")
    assert held.is_alive()
    (tmp_path / "armed").unlink()
    held.join(30)
    assert not held.is_alive()
    assert (tmp_path / "passed").read_text().splitlines().count("before-commit") == 6


def test_without_the_flag_a_folder_is_not_read(tmp_path):
    read_failpoint({"FRESHLINE_FAILPOINT_FOLDER": str(tmp_path)})("before-commit")

    assert list(tmp_path.iterdir()) == []
