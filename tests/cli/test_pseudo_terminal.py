"""A person at a terminal of some width: no word is cut, long texts have a pager, a live table ends with Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from freshline.report.table_text import width
from tests.report.board.shop import Shop, fill, open_shop

pytestmark = pytest.mark.slow

SAID = "the landing directory of the shop was moved by somebody who did not say so"
# A line that was drawn and erased again: what is being done.
ERASED = re.compile(r"[^\n]*\r\x1b\[2K")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("shop")) as shop:
        fill(shop, SAID, f"column `amont` does not exist: {SAID}")
        yield shop


@dataclass
class Terminal:
    """A command in a pseudo terminal."""

    process: subprocess.Popen[bytes]
    master: int
    said: str = ""

    def read_until(self, text: str | None) -> str:
        """All that it has written once `text` is part of it, or once it has ended."""
        while text is None or text not in self.said:
            try:
                data = os.read(self.master, 65_536)
            except OSError:
                break  # the other end is closed
            if not data:
                break
            self.said += data.decode()
        assert text is None or text in self.said, self.said
        return self.said


def start(
    shop: Shop, *command: str, columns: int, rows: int = 500, environ: Mapping[str, str] | None = None
) -> Terminal:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    inherited = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR", "PAGER")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "freshline.cli.main", *command, "--project", str(shop.root)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**inherited, "TERM": "xterm-256color", **(environ or {})},
        # Its terminal, so that Ctrl-C reaches it.
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    return Terminal(process, master)


def printed(shop: Shop, *command: str, columns: int) -> str:
    terminal = start(shop, *command, columns=columns)
    said = terminal.read_until(None)
    os.close(terminal.master)
    assert terminal.process.wait(60) == 0
    return CONTROL.sub("", ERASED.sub("", said))


@pytest.mark.parametrize("command", ["status", "plan", "explain"])
def test_no_word_is_cut_at_80_100_and_120_columns(shop, command):
    known = set(printed(shop, command, columns=500).split())
    for columns in (80, 100, 120):
        said = printed(shop, command, columns=columns)

        assert [line for line in said.split("\n") if width(line) > columns] == []
        assert [word for word in said.split() if word not in known and not word[0].isdigit()] == []


def test_a_live_status_is_drawn_without_a_cut_word_and_ends_with_ctrl_c(shop):
    known = set(printed(shop, "status", columns=500).split())
    terminal = start(shop, "status", "--watch", columns=80)
    drawn = CONTROL.sub("", terminal.read_until("SUSPENDED"))
    os.write(terminal.master, b"\x03")
    terminal.read_until(None)
    os.close(terminal.master)

    assert terminal.process.wait(60) == 0
    lines = [line.rstrip() for line in drawn.split("\n")]
    assert [line for line in lines if width(line) > 80] == []
    assert {word for line in lines[:3] for word in line.split() if not word[0].isdigit()} <= known


def test_a_long_text_goes_through_the_pager_and_a_short_one_does_not(shop, tmp_path):
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho through the pager\ncat > /dev/null\n")
    pager.chmod(0o755)
    for rows, through in ((5, True), (500, False)):
        terminal = start(shop, "status", columns=100, rows=rows, environ={"PAGER": str(pager)})
        said = terminal.read_until(None)
        os.close(terminal.master)

        assert terminal.process.wait(60) == 0
        assert ("through the pager" in said) is through
