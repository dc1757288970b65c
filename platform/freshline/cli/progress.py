"""Progress on stderr, for what takes longer than a person waits without wondering.

Nothing is shown in the first two seconds. After that a terminal shows one live line with the seconds that have
passed; anything else (a file, a pipe, a log) gets plain lines, one a message.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from freshline.cli.terminal import terminal_width
from freshline.report.table_text import printable, wrapped_lines

PATIENCE_SECONDS = 2.0
_REDRAW_SECONDS = 0.25
_CLEAR = "\r\x1b[2K"
_SECONDS = re.compile(r" \(\d+ s\)\Z")  # the live line counts them itself, and a log is not to have a line a second


class Progress:
    """A context in which calling it with a message says what is being done.

    >>> import io
    >>> shown = io.StringIO()
    >>> with Progress(shown, patience_seconds=0.0) as progress:
    ...     progress("reading files")
    >>> shown.getvalue()
    'reading files\\n'
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._patience = patience_seconds
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._message = ""
        self._said = ""
        self._drawn = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        self._started = self._clock()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._erase()

    def __call__(self, message: str) -> None:
        """Say what is being done now."""
        with self._lock:
            self._message = printable(_SECONDS.sub("", message))
            self._show()

    def print(self, text: str) -> None:
        """Print a line of the answer on stdout without tearing the live line; a terminal gets it wrapped at words."""
        with self._lock:
            self._erase()
            print(wrapped_lines(text, terminal_width()), flush=True)
            self._show()

    def _watch(self) -> None:
        if self._done.wait(self._patience):
            return
        while True:
            with self._lock:
                self._show()
            if self._done.wait(_REDRAW_SECONDS if self._live else None):
                return

    def _show(self) -> None:
        if not self._message or self._clock() - self._started < self._patience:
            return
        if self._live:
            self._stream.write(f"{_CLEAR}{self._message} ({self._clock() - self._started:.0f} s)")
            self._drawn = True
        elif self._message != self._said:
            self._stream.write(f"{self._message}\n")
            self._said = self._message
        self._stream.flush()

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._drawn = False
