"""`freshline logs`: what the processes of `freshline up` say, as one view.

Each writes a log file of its own in the state folder. Lines are put in the order of the times that they begin with; a
line without one (a traceback) stays behind the line that it belongs to. It only reads.
"""

from __future__ import annotations

import heapq
import json
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from freshline.cli.failures import CommandError
from freshline.cli.options import json_option, open_settings, project_option
from freshline.errors import RequestError
from freshline.report.table_text import printable

# The files that each process writes, in the order in which `up` starts them.
FILES: Mapping[str, tuple[str, ...]] = {
    "up": ("up.log",),
    "engine": ("engine.log", "engine.out"),
    "worker": ("worker.log",),
    "webserver": ("dagster-webserver.log",),
    "daemon": ("dagster-daemon.log",),
    "watch": ("watch.log",),
}
TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\s?(Z|[+-]\d\d:?\d\d)?")
# The time of a line of JSON, of freshline's own or of Dagster's.
JSON_TIME = re.compile(r'\{.*?"time(?:stamp)?": "')
_LOOK_SECONDS = 0.3


@dataclass(frozen=True)
class Line:
    """One line of a process; `at` is None where neither it nor a line before it says when."""

    process: str
    at: datetime | None
    text: str

    def as_json(self) -> dict[str, str | None]:
        """The object that `--json` prints."""
        return {"process": self.process, "at": None if self.at is None else self.at.isoformat(), "line": self.text}


@click.command(epilog="\b\nExample:\n  freshline logs engine --follow")
@click.argument("process", required=False, metavar="[PROCESS]")
@click.option("--follow", "-f", is_flag=True, help="Continue with new lines until Ctrl-C.")
@click.option(
    "--lines", "-n", type=click.IntRange(0), default=50, metavar="N", help="Lines of each log.  [default: 50]"
)
@project_option
@json_option
def command(process: str | None, follow: bool, lines: int, project: Path | None, as_json: bool) -> None:
    """Show the logs of the engine, Dagster and the watch, in the order of time.

    PROCESS is one of up, engine, worker, webserver, daemon and watch. Without it, all are shown.
    """
    if process is not None and process not in FILES:
        raise CommandError.of(RequestError(f"there is no process {process!r}. There are {', '.join(FILES)}."))
    folder = open_settings(project).state / "logs"
    chosen = [process] if process is not None else list(FILES)
    files = [_Followed(name, folder / file) for name in chosen for file in FILES[name]]
    shown = 0
    for line in in_order([file.last(lines) for file in files]):
        _show(line, chosen, as_json)
        shown += 1
    if follow:
        while True:
            for line in in_order([file.new() for file in files]):
                _show(line, chosen, as_json)
            time.sleep(_LOOK_SECONDS)
    if not shown and not as_json:
        click.echo(f"nothing was written yet to {folder}", err=True)


def in_order(logs: Sequence[Sequence[Line]]) -> Iterator[Line]:
    """The lines of several logs, each in its own order, by their times."""
    first = datetime.min.replace(tzinfo=UTC)
    return heapq.merge(*logs, key=lambda line: line.at or first)


def read_lines(process: str, texts: Sequence[str], at: datetime | None) -> list[Line]:
    """Lines with their times; `at` is that of the line before the first.

    >>> [line.at.minute for line in read_lines("engine", ["2026-01-02 03:04:05Z a", "b"], None)]
    [4, 4]
    """
    found = []
    for text in texts:
        own = time_of(text)
        # A clock that was set back must not change the order of a log.
        at = at if own is None else own if at is None else max(at, own)
        found.append(Line(process, at, text))
    return found


def time_of(text: str) -> datetime | None:
    """The time that a line begins with; one without a zone is this machine's."""
    begin = JSON_TIME.match(text)
    match = TIME.match(text.lstrip("[")) if begin is None else TIME.match(text, begin.end())
    if match is None:
        return None
    day, hour, fraction, zone = match.groups()
    try:
        found = datetime.fromisoformat(f"{day}T{hour}.{(fraction or '0').ljust(6, '0')}{zone or ''}")
    except ValueError:
        return None
    return found.astimezone(UTC)


class _Followed:
    """One log file, of which the end was read up to a place."""

    def __init__(self, process: str, path: Path) -> None:
        self._process = process
        self._path = path
        self._place = 0
        self._file = 0
        self._rest = b""
        self._at: datetime | None = None

    def last(self, count: int) -> list[Line]:
        """The last lines, and from here on `new` has what comes."""
        return self._lines(deque(self._read(), maxlen=count))

    def new(self) -> list[Line]:
        """The lines that were completed since the last call."""
        return self._lines(self._read())

    def _lines(self, texts: Sequence[str]) -> list[Line]:
        found = read_lines(self._process, list(texts), self._at)
        self._at = found[-1].at if found else self._at
        return found

    def _read(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                stat = self._path.stat()
                if stat.st_ino != self._file or stat.st_size < self._place:
                    # A log that has grown large is moved away, and begins again.
                    self._place, self._file, self._rest = 0, stat.st_ino, b""
                file.seek(self._place)
                data = file.read()
        except FileNotFoundError:
            return []
        self._place += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", "replace").rstrip("\r") for line in whole]


def _show(line: Line, chosen: Sequence[str], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(line.as_json()))
    else:
        # Logs contain texts that others have sent. A tab is the indent of Java.
        text = printable(line.text.expandtabs())
        click.echo(text if len(chosen) == 1 else f"{line.process:<9} {text}")
