"""Records a command in a terminal as an asciicast, version 2: a text file that `asciinema play` shows.

    python platform/docs/recording.py platform/docs/recordings/demo.cast freshline demo --once

The command runs in a pseudo terminal of 100 columns. Each line of the file is JSON: the header, and then what the
terminal was sent, with the seconds since the beginning. Pauses are recorded as they are, and players shorten those of
more than two seconds. A line that is drawn again as it was is recorded once. Nothing of this machine is in the header.
The exit code is that of the command.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

COLUMNS, ROWS = 100, 30
# For players. The waiting is in the file, so that anyone may see how long it was.
LONGEST_PAUSE = 2
TERMINAL = "xterm-256color"
# How a line that shows progress begins, each time that it is drawn.
REDRAWN = "\r\x1b[2K"


def record(command: Sequence[str], file: Path) -> int:
    """Run a command in a terminal and write what it shows; its exit code.

    The file appears when the command has ended, in the place of one that is there.
    """
    header = {
        "version": 2,
        "width": COLUMNS,
        "height": ROWS,
        "idle_time_limit": LONGEST_PAUSE,
        "title": " ".join(command),
        "env": {"TERM": TERMINAL},
    }
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environ = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR", "PAGER")}
    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**environ, "TERM": TERMINAL},
        start_new_session=True,
    )
    os.close(slave)
    partial = file.with_name(f".{file.name}")
    with partial.open("w", encoding="utf-8") as cast:
        for line in chain([header], _shown(master)):
            cast.write(json.dumps(line, ensure_ascii=False) + "\n")
    os.close(master)
    partial.replace(file)
    return process.wait()


def _shown(master: int) -> Iterator[list[object]]:
    """The output that the terminal is sent, until the last process has left it."""
    begun = time.monotonic()
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    before = ""
    while data := _read(master):
        # A character may come in two parts.
        text = decoder.decode(data)
        if text and not (text == before and text.startswith(REDRAWN) and "\n" not in text):
            yield [round(time.monotonic() - begun, 3), "o", text]
            before = text


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65_536)
    except OSError:
        return b""  # On Linux this is the end: nobody has the other side.


if __name__ == "__main__":
    _, target, *words = sys.argv
    sys.exit(record(words, Path(target)))
