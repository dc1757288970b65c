"""A pseudo terminal, in which a command runs as it does before a person."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# A line that was drawn and erased again: what is being done.
ERASED = re.compile(r"[^\n]*\r\x1b\[2K")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


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
    project: Path, *command: str, columns: int, rows: int = 500, environ: Mapping[str, str] | None = None
) -> Terminal:
    """Run a command of freshline in a terminal of that size."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    inherited = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR", "PAGER")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "freshline.cli.main", *command, "--project", str(project)],
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


def plain(said: str) -> str:
    """The text that stays on the screen, without what was erased and without colours."""
    return CONTROL.sub("", ERASED.sub("", said))
