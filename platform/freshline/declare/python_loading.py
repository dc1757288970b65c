"""Loading the Python declarations of a project in another process, which may hang or end without harm.

`freshline plan`, the engine and Dagster's code location read declarations, and a file of Python is a program: an import
that never ends would stop each of them. One process serves one reading of a project. It is started for the first file
that is not in the cache of declarations, so a project that was read before starts none.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from freshline.declare.cache import from_values, to_values
from freshline.declare.limited_process import EndedError, LimitedProcess, LimitError, ProcessChannel, ProcessLimits
from freshline.errors import DeclarationError, error_from_json
from freshline.sql.clauses import Declaration
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.rules import declaration_error
from freshline.values.settings import Settings

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from freshline.declare.python_loading import main; main()"
)
# Of what files print while they load, so much is passed on.
_MOST_PRINTED = 1_000_000


class PythonLoader:
    """Reads Python declarations of one project; a context manager that leaves no process behind."""

    def __init__(self, settings: Settings) -> None:
        self._root = settings.root
        self._limits = ProcessLimits(settings.python_seconds, settings.python_memory)
        self._process: LimitedProcess | None = None
        self._printed = 0

    def __enter__(self) -> PythonLoader:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def read(self, file: Path, text: str, path: str, name: TableName) -> Declaration:
        """The declaration of one file, which errors call `path`. Raises DeclarationError."""
        try:
            answer = self._ask({"file": str(file), "text": text, "path": path, "name": list(name.parts)})
        except LimitError as error:
            self._end()
            raise declaration_error(
                "PYTHON_LIMIT",
                f"loading the file {error.sentence}, and was ended. Correct what it does when it is imported, or raise "
                "`python-time-limit` or `python-memory` in [tool.freshline].",
                Location(path, 1),
            ) from error
        except EndedError as error:
            self._end()
            raise declaration_error(
                "PYTHON_FILE",
                f"the file does not load: it ends the process ({error}). Correct it.",
                Location(path, 1),
            ) from error
        if "error" in answer:
            raise error_from_json(answer["error"])
        found: Declaration = from_values(answer["declaration"], Declaration)
        return found

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            self._process = LimitedProcess(
                ["-c", _START, json.dumps(sys.path)], folder=self._root, environ=os.environ, printed=self._pass_on
            )
            self._process.wait_until_ready(self._limits)
        self._process.send({"root": str(self._root), **question})
        return self._process.answer(self._limits)

    def _pass_on(self, printed: bytes) -> None:
        self._printed += len(printed)
        if self._printed <= _MOST_PRINTED:
            sys.stderr.write(printed.decode("utf-8", "replace"))

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._process = None


def main() -> None:
    """Answer the process that started this one, until it has nothing more to ask."""
    channel = ProcessChannel()
    # The modules that every declaration needs are loaded before the time of the first one counts.
    from freshline.declare import python_file, table  # noqa: F401
    from freshline.declare.project import declare_python

    channel.ready()
    for line in channel.messages:
        asked = json.loads(line)
        parts = asked["name"]
        name = TableName(parts[0] if len(parts) == 2 else None, parts[-1])
        try:
            found = declare_python(Path(asked["root"]), Path(asked["file"]), asked["text"], asked["path"], name)
            answer: dict[str, Any] = {"declaration": to_values(found, Declaration)}
        except DeclarationError as error:
            answer = {"error": error.as_json()}
        channel.answer(answer)
    # Threads that the files started are nobody's.
    os._exit(0)
