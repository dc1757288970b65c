"""Commands of freshline as a person or a program gives them, and what is promised about all that they print.

A command ends, with 0 or 1, says an error by a documented code, and never shows a stack trace.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.parts import Parts

ERRORS = Path(__file__).resolve().parents[2] / "platform" / "docs" / "errors.md"
_TRACE = re.compile(r"Traceback \(most recent call last\)|^\s+at (org|java|scala|io)\.[\w.$]+\(", re.MULTILINE)
_MOST_SECONDS = 300.0


def documented_codes() -> frozenset[str]:
    """Every error code and rule that has a paragraph in the documentation."""
    return frozenset(re.findall(r"^\*\*`([A-Z_0-9]+)`\*\*", ERRORS.read_text(encoding="utf-8"), re.MULTILINE))


@dataclass(frozen=True)
class Answer:
    """How a command ended, and the codes of the errors that it reported."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float

    @property
    def json(self) -> Any:
        """The value that it printed for programs. Raises ValueError where that is no JSON."""
        return json.loads(self.out)

    def codes(self) -> list[str]:
        """The codes of its errors: of the command, and of each table that failed."""
        try:
            value = self.json
        except ValueError:
            return re.findall(r"^([A-Z][A-Z_]+)(?:/[A-Z_]+)?[: ]", self.err, re.MULTILINE)
        found = []
        for item in value if isinstance(value, list) else [value]:
            error = item.get("error") if isinstance(item, dict) else None
            if isinstance(error, dict):
                found.append(str(error["code"]))
        return found


@dataclass
class Commands:
    """Runs commands on a project. Broken promises go to `complain`; `killed` commands may end as they like."""

    root: Callable[[], Path]
    parts: Parts
    log: Path
    environ: Callable[[], dict[str, str]]
    complain: Callable[[str], None]
    codes: frozenset[str] = field(default_factory=documented_codes)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and leave it running; `finish` takes its answer."""
        line = [sys.executable, "-m", "freshline.cli.main", *arguments, "--project", str(self.root())]
        return subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environ(),
            cwd="/",
            start_new_session=True,
        )

    def finish(
        self, arguments: Sequence[str], process: subprocess.Popen[str], *, seconds: float = _MOST_SECONDS
    ) -> Answer:
        """Wait for a command and judge what it printed."""
        began = time.monotonic()
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate()
            self.complain(f"freshline {' '.join(arguments)} did not end within {seconds:.0f} s: {err[-400:]}")
        answer = Answer(tuple(arguments), process.returncode, out, err, time.monotonic() - began)
        with self._lock, self.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"at": time.time(), **vars(answer)}) + "\n")
        if answer.code != -signal.SIGKILL:
            self._judge(answer)
        return answer

    def run(self, *arguments: str, seconds: float = _MOST_SECONDS) -> Answer:
        """Run a command to its end."""
        return self.finish(arguments, self.start(*arguments), seconds=seconds)

    def _judge(self, answer: Answer) -> None:
        said = f"freshline {' '.join(answer.arguments)}"
        if answer.code not in (0, 1):
            self.complain(f"{said} ended with {answer.code}: {answer.err[-400:]}")
        if _TRACE.search(answer.out) or _TRACE.search(answer.err):
            self.complain(f"{said} showed a stack trace: {answer.out[-1500:]}{answer.err[-1500:]}")
        codes = answer.codes()
        if unknown := [code for code in codes if code not in self.codes]:
            self.complain(f"{said} told undocumented codes {unknown}: {answer.err[-400:]}")
        if answer.code == 1 and not codes and "verify" not in answer.arguments:
            self.complain(f"{said} failed without a code: {answer.out[-400:]} {answer.err[-400:]}")
