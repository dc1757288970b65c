"""The inspection of files in a process of its own, for decoders that a damaged file may end.

Arrow's reader of ORC aborts at some damaged footers. In the engine that would end it, and each next one at the same
file. Here the file is known by the process that it ended, and is quarantined.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from freshline.errors import SourceError
from freshline.sources.files.contained import inspect_contained
from freshline.sources.files.lines import Inspected, LineReading, PassingError
from freshline.sources.files.position import FileMark
from freshline.sources.formats.container import Container

# The signals by which a process ends of its own code. After any other, somebody else has ended it, and no file is to
# blame.
_BY_CODE = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
# As `__name__` is where it is imported.
_MODULE = "freshline.sources.files.separate_process"
_LOOK_SECONDS = 0.2
_TOLD = 400


def inspect_in_process(
    root: Path,
    marks: Sequence[FileMark],
    container: Container,
    reading: LineReading,
    check: Callable[[], None] = lambda: None,
) -> list[Inspected]:
    """As `inspect_contained`. A file that ends the process is `UNREADABLE`; the others are inspected by the next one.

    Raises SourceError where the process ends otherwise, and PassingError as `inspect_contained`.
    """
    found: list[Inspected] = []
    while len(found) < len(marks):
        left = marks[len(found) :]
        done, ended = _inspect(root, left, container, reading, check)
        found += done
        if ended is not None:
            reason = f"reading it ended the process that did ({ended.name})"
            found.append(Inspected(left[len(done)], "UNREADABLE", reason))
    return found


def _inspect(
    root: Path, marks: Sequence[FileMark], container: Container, reading: LineReading, check: Callable[[], None]
) -> tuple[list[Inspected], signal.Signals | None]:
    """The first files as one process found them, and the signal that ended it."""
    check()
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as told:
        pickle.dump((root, tuple(marks), container, reading), asked)
        asked.seek(0)
        with subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE], stdin=asked, stdout=subprocess.PIPE, stderr=told
        ) as process:
            try:
                found = _answers(process, marks, check)
            finally:
                process.kill()
        if len(found) == len(marks):
            return found, None
        ended = signal.Signals(-process.returncode) if process.returncode < 0 else None
        if ended in _BY_CODE:
            return found, ended
        told.seek(0)
        said = told.read().decode("utf-8", "replace").strip()[-_TOLD:]
        raise SourceError(
            f"the process that reads {marks[len(found)].path} ended "
            f"({ended.name if ended is not None else process.returncode}): {said or 'it said nothing'}.",
            where=str(root),
        )


def _answers(process: subprocess.Popen[bytes], marks: Sequence[FileMark], check: Callable[[], None]) -> list[Inspected]:
    found: list[Inspected] = []
    assert process.stdout is not None
    begun = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(found) < len(marks):
            check()
            if not selector.select(_LOOK_SECONDS):
                continue
            more = os.read(process.stdout.fileno(), 1 << 16)
            if not more:
                break
            *lines, begun = (begun + more).split(b"\n")
            found += [_from_json(line, marks[len(found) + place]) for place, line in enumerate(lines)]
    if len(found) < len(marks):
        # It has ended its answers, and so itself. Its return code has the signal.
        process.wait()
    return found


def _as_json(found: Inspected) -> bytes:
    value: dict[str, Any] = {
        "error": found.error,
        "reason": found.reason,
        "lines": found.lines,
        "first": None if found.first is None else found.first.decode("latin-1"),
        "size": found.size,
        "breaks": found.breaks,
        "changed": found.changed,
        "fields": found.fields,
    }
    return json.dumps(value).encode()


def _from_json(line: bytes, mark: FileMark) -> Inspected:
    value = json.loads(line)
    if "passing" in value:
        raise PassingError(*value["passing"])
    found = Inspected(mark, **{**value, "breaks": (), "fields": (), "first": None})
    return replace(
        found,
        first=None if value["first"] is None else value["first"].encode("latin-1"),
        breaks=tuple((int(place), int(before)) for place, before in value["breaks"]),
        fields=tuple((str(name), str(kind)) for name, kind in value["fields"]),
    )


def main(asked: IO[bytes], told: IO[bytes]) -> None:
    """The process: a line for each file, written when the file was read."""
    # The memory of one that aborts is of no use to anybody.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    root, marks, container, reading = pickle.load(asked)
    for mark in marks:
        try:
            (found,) = inspect_contained(root, (mark,), container, reading)
            answer = _as_json(found)
        except PassingError as error:
            answer = json.dumps({"passing": [error.path, error.reason]}).encode()
        told.write(answer + b"\n")
        told.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
