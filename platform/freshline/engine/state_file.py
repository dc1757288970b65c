"""The state file: where the engine of an environment is, for those who want to ask it something.

It has the token, so only its owner may read it. It is written when the engine is ready and removed when the engine
ends; after a `kill -9` it stays behind, and says so by naming a process that is no more. In a copy of the state
directory it names the engine of another project, and is passed over.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from freshline.engine.file_id import FileId
from freshline.engine.process import ProcessId
from freshline.engine.whole_file import write_whole
from freshline.errors import UNREADABLE_FILE, EngineError, FormatError, StorageError

FORMAT = 1
NAME = "engine.json"


@dataclass(frozen=True)
class EngineState:
    """A running engine: its processes, ports on loopback and token. `loops` says whether it keeps tables by itself."""

    process: ProcessId
    jvm: ProcessId
    http_port: int
    connect_port: int
    token: str
    warehouse: str
    version: str
    loops: bool

    @property
    def alive(self) -> bool:
        return self.process.alive


def state_file(state: Path) -> Path:
    """The file below the state directory."""
    return state / NAME


def write_state(state: Path, engine: EngineState) -> None:
    """Put the file in the place of the one that is there; killed half way, the old one stays.

    Raises StorageError where the directory cannot be written.
    """
    value = {
        "format": FORMAT,
        **engine.process.as_json(),
        **engine.jvm.as_json("jvm_"),
        **{key: item for key, item in asdict(engine).items() if key not in ("process", "jvm")},
    }
    try:
        state.mkdir(parents=True, exist_ok=True)
        value["folder"] = FileId.of(state).as_json()
        write_whole(state_file(state), json.dumps(value))
    except OSError as error:
        raise StorageError(
            f"the state directory cannot be written: {error.strerror or error}. Free some space or make it writable.",
            where=str(state),
        ) from error


def read_state(state: Path) -> EngineState | None:
    """The engine that the file names, dead or alive; None where there is no file, or it says nothing that can be read,
    or it was written in another directory, of which this one is a copy.

    Raises FormatError for a file of a newer freshline, EngineError for one of another user.
    """
    file = state_file(state)
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        if int(value["format"]) > FORMAT:
            raise FormatError("the engine was started by a newer freshline. Ask it with that one.", where=str(file))
        if FileId.from_json(value.get("folder")) not in (None, FileId.of(state)):
            return None
        return EngineState(
            process=ProcessId.from_json(value),
            jvm=ProcessId.from_json(value, "jvm_"),
            http_port=int(value["http_port"]),
            connect_port=int(value["connect_port"]),
            token=str(value["token"]),
            warehouse=str(value["warehouse"]),
            version=str(value["version"]),
            loops=bool(value["loops"]),
        )
    except PermissionError as error:
        raise EngineError(
            "the engine was started by another user, and only that user may ask it.", where=str(file)
        ) from error
    except UNREADABLE_FILE:
        return None


def remove_state(state: Path, engine: EngineState | None) -> None:
    """Remove the file if it still names that engine (None: whatever it says); another one's stays."""
    if engine is None or read_state(state) in (None, engine):
        state_file(state).unlink(missing_ok=True)
