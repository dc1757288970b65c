"""One engine a warehouse: on a local file system two JVMs can both seem to win a commit to one Delta table.

The lock is the operating system's, on a file in the warehouse's root, and ends with the process that took it. A record
beside it names the holder, so that a second engine can name the first, and so that the JVM which a killed engine leaves
for a moment is found. The lock lasts until both are dead: `acquire` ends such a JVM before it returns. A copy of a
warehouse has a copy of that record: `acquire` ends only a JVM of this very folder, by the identity of its lock file.
"""

from __future__ import annotations

import fcntl
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from freshline.engine.file_id import FileId
from freshline.engine.process import ProcessId
from freshline.engine.whole_file import write_whole
from freshline.errors import UNREADABLE_FILE, EngineHeldError, StorageError

LOCK = "_freshline_engine.lock"
HOLDER = "_freshline_engine.json"
_JVM_GRACE_SECONDS = 10.0
_NO_JVM = {"jvm_pid": None, "jvm_start_time": None, "jvm_start_mark": ""}


@dataclass(frozen=True)
class Holder:
    """The holder of a warehouse: the engine and its JVM, on which machine, since when, for which project.

    `warehouse` is the folder's path and `lock` the identity of its lock file, both as they were then; empty and None in
    records of versions that did not write them.
    """

    process: ProcessId
    jvm: ProcessId | None
    host: str
    since: datetime
    project: str
    state: str
    warehouse: str = ""
    lock: FileId | None = None

    def held(self, root: Path, lock: FileId) -> bool:
        """Whether the record is of this very folder, and not of one that this is a copy of."""
        return self.lock is None or self.lock == lock or self.warehouse == str(root.resolve())

    def sentence(self) -> str:
        since = f"{self.since:%Y-%m-%d %H:%M:%S} UTC"
        return f"process {self.process.pid} on {self.host} since {since}, project {self.project}"


class WarehouseLock:
    """The lock of this process on one warehouse, until `release` or the end of the process."""

    def __init__(self, root: Path, handle: BinaryIO, holder: Holder) -> None:
        self._root = root
        self._handle = handle
        self.holder = holder

    @classmethod
    def acquire(
        cls, root: Path, *, project: Path, state: Path, progress: Callable[[str], None] = lambda _: None
    ) -> WarehouseLock:
        """Take the warehouse, after ending the JVM that a killed engine left.

        Raises EngineHeldError, which names the holder, where another engine has it, StorageError where the root cannot
        be written, and EngineError where the JVM left cannot be ended.
        """
        try:
            root.mkdir(parents=True, exist_ok=True)
            handle = (root / LOCK).open("ab")
        except OSError as error:
            raise StorageError(
                f"the warehouse cannot be written: {error.strerror or error}. Make its folder writable for this user.",
                where=str(root),
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.close()
            raise _held(root, read_holder(root)) from error
        try:
            own = FileId.of(handle.fileno())
            before = read_holder(root)
            if before is not None and before.host == platform.node() and before.held(root, own):
                # Its lock file was deleted, or the folder put in the place of its own: it goes on writing to this path.
                if before.process.alive and before.process != ProcessId.own():
                    raise _held(root, before)
                if before.jvm is not None and before.jvm.alive:
                    progress(f"ending process {before.jvm.pid}, which a killed engine left")
                    before.jvm.end(grace_seconds=_JVM_GRACE_SECONDS)
            holder = Holder(
                process=ProcessId.own(),
                jvm=None,
                host=platform.node(),
                since=datetime.now(UTC),
                project=str(project),
                state=str(state),
                warehouse=str(root.resolve()),
                lock=own,
            )
            lock = cls(root, handle, holder)
            lock._write()
        except BaseException:
            handle.close()
            raise
        return lock

    def record_jvm(self, jvm: ProcessId) -> None:
        """Write down the JVM, before it writes anything."""
        self.holder = replace(self.holder, jvm=jvm)
        self._write()

    def require_in_place(self) -> None:
        """Raise StorageError unless the warehouse's path still leads to the locked folder.

        Where a folder was moved or its disk is gone, every table seems to be missing there, and would be made anew and
        filled a second time.
        """
        try:
            found = FileId.of(self._root / LOCK)
        except OSError:
            found = None
        if found != self.holder.lock:
            raise StorageError(
                "the warehouse that this engine holds is not at its path any more: its folder was moved, its disk is "
                f"gone, or {LOCK} was deleted. Nothing is written there, and this engine ends by itself. Put the "
                "folder back, or run freshline where it is now.",
                where=str(self._root),
            )

    def release(self) -> None:
        """Give the warehouse back; the JVM must have ended."""
        holder = read_holder(self._root)
        if holder is None or holder.process == self.holder.process:
            # Where the lock file was deleted, another engine may have taken the warehouse meanwhile.
            (self._root / HOLDER).unlink(missing_ok=True)
        self._handle.close()

    def _write(self) -> None:
        holder = self.holder
        value = {
            **holder.process.as_json(),
            **(_NO_JVM if holder.jvm is None else holder.jvm.as_json("jvm_")),
            "host": holder.host,
            "since": holder.since.isoformat(),
            "project": holder.project,
            "state": holder.state,
            "warehouse": holder.warehouse,
            "lock": None if holder.lock is None else holder.lock.as_json(),
        }
        try:
            # Whoever may read the warehouse may know its holder.
            mode = 0o666 & (self._root / LOCK).stat().st_mode
            write_whole(self._root / HOLDER, json.dumps(value), mode=mode)
        except OSError as error:
            raise StorageError(
                f"the warehouse cannot be written: {error.strerror or error}. Free some space or make it writable.",
                where=str(self._root),
            ) from error


def _held(root: Path, holder: Holder | None) -> EngineHeldError:
    who = "an engine that is just starting" if holder is None else holder.sentence()
    return EngineHeldError(
        f"the warehouse is held by {who}. One engine writes to a warehouse: use that one, or stop it with "
        "`freshline engine stop` in its project.",
        where=str(root),
    )


def read_holder(root: Path) -> Holder | None:
    """The holder of a warehouse that was recorded last, dead or alive. Only reads.

    In a copy of a warehouse it is the holder of the original: see `Holder.held` and `find_holder`.
    """
    try:
        value = json.loads((root / HOLDER).read_text(encoding="utf-8"))
        return Holder(
            process=ProcessId.from_json(value),
            jvm=None if value["jvm_pid"] is None else ProcessId.from_json(value, "jvm_"),
            host=str(value["host"]),
            since=datetime.fromisoformat(value["since"]),
            project=str(value["project"]),
            state=str(value["state"]),
            warehouse=str(value.get("warehouse", "")),
            lock=FileId.from_json(value.get("lock")),
        )
    except UNREADABLE_FILE:
        return None


def find_holder(root: Path) -> Holder | None:
    """The last holder of this very warehouse, dead or alive, on this machine. Only reads."""
    holder = read_holder(root)
    if holder is None or holder.host != platform.node():
        return None
    try:
        return holder if holder.held(root, FileId.of(root / LOCK)) else None
    except OSError:
        return None
