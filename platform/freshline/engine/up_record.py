"""The record of what `freshline up` started.

It stands in the state folder, so that `freshline down` ends what a killed `up` left, and so that Dagster's sensors know
whether the engine is theirs to start again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from freshline.engine.file_id import FileId
from freshline.engine.process import ProcessId
from freshline.engine.whole_file import write_whole
from freshline.errors import UNREADABLE, FormatError
from freshline.values.settings import Settings

# The variable that marks the processes of one `up`.
MARK = "FRESHLINE_UP"
ENGINE_PART = "engine"
FORMAT = 1
# Variables in the environment of every process of ours that runs for days, unless the environment says otherwise.
# glibc gives each thread an arena of its own, up to eight for each core, and gives none of it back: Rust's and Arrow's
# threads made an engine grow from 180 MB to 300 MB with the 120th refresh (decision 69).
LONG_RUNNING = {"MALLOC_ARENA_MAX": "2"}


def engine_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of an engine that a process of `up` starts, a run for instance: it has the mark of the engine.

    Under the mark of Dagster it and its JVM would be ended together with Dagster's processes, in the middle of work.
    """
    own, _, part = environ.get(MARK, "").partition("/")
    mark = {MARK: f"{own}/{ENGINE_PART}"} if part else {}
    return {**LONG_RUNNING, **environ, **mark}


def record_file(settings: Settings) -> Path:
    """The file with the record of the running `up`."""
    return settings.state / "up.json"


@dataclass(frozen=True)
class EndedChild:
    """A child that does not stay: how often in a row it ended, its newest exit code, and the last line of its log."""

    name: str
    times: int
    code: int
    log: str


@dataclass(frozen=True)
class UpRecord:
    """The processes of one `freshline up`: itself, children by name, their mark, the UI's address once it answers.

    `ended` are the children that ended by themselves, and have not run for a minute since.
    """

    mark: str
    supervisor: ProcessId
    children: tuple[tuple[str, ProcessId], ...] = ()
    url: str | None = None
    started_engine: bool = False
    ended: tuple[EndedChild, ...] = ()

    def write(self, file: Path) -> None:
        """Put the record in the place of the one that is there; killed half way, the old one stays."""
        value = {
            "format": FORMAT,
            "mark": self.mark,
            "supervisor": self.supervisor.as_json(),
            "children": [{"name": name, **process.as_json()} for name, process in self.children],
            "url": self.url,
            "started_engine": self.started_engine,
            "ended": [asdict(each) for each in self.ended],
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        value["folder"] = FileId.of(file.parent).as_json()
        write_whole(file, json.dumps(value))

    @classmethod
    def read(cls, file: Path) -> UpRecord | None:
        """The record; None where there is none that can be read, or only that of a folder which was copied.

        Raises FormatError for a newer format.
        """
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
            if int(value["format"]) > FORMAT:
                raise FormatError("written by a newer freshline. End it with that one.", where=str(file))
            if FileId.from_json(value.get("folder")) not in (None, FileId.of(file.parent)):
                return None
            return cls(
                mark=str(value["mark"]),
                supervisor=ProcessId.from_json(value["supervisor"]),
                children=tuple((str(child["name"]), ProcessId.from_json(child)) for child in value["children"]),
                url=value["url"],
                started_engine=bool(value["started_engine"]),
                ended=tuple(
                    EndedChild(str(each["name"]), int(each["times"]), int(each["code"]), str(each["log"]))
                    for each in value.get("ended", ())
                ),
            )
        except FileNotFoundError:
            return None
        except UNREADABLE:
            return None
