"""Code locations that follow their project, in Dagster's webserver and in its daemon.

Both have a code server for each location. It is replaced when declarations or overrides have changed, and when it was
killed. Left alone, Dagster's webserver keeps those it began with until somebody reloads them by hand, and its daemon
replaces all of them each minute, which takes a tenth of a core.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from freshline.dagster.changes import ProjectChanges
from freshline.dagster.internals import (
    DagsterUserCodeUnreachableError,
    GrpcServerCodeLocation,
    WorkspaceProcessContext,
)

LOG = logging.getLogger("dagster")

LOOK_SECONDS = 2.0
# Looking for changes takes at most this share of the time, however many files the project has.
_SHARE = 0.01
# A code server that is only slow answers the next time.
SILENT_LOOKS = 3
# For a location that failed for another reason than its files: its code server was killed, or a module came later.
_AGAIN_SECONDS = 60.0


@contextmanager
def kept_locations(
    process: WorkspaceProcessContext, changes: ProjectChanges, renewed_after: float | None = None
) -> Iterator[None]:
    """Keep the locations of `process` loaded until the block ends; after `renewed_after` seconds they load anew anyway.

    `changes` was made before the locations were loaded.
    """
    stop = threading.Event()
    keeper = _Keeper(process, changes, renewed_after)
    thread = threading.Thread(target=keeper.run, args=(stop,), name="code-locations", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class _Keeper:
    def __init__(self, process: WorkspaceProcessContext, changes: ProjectChanges, renewed_after: float | None) -> None:
        self._process = process
        self._changes = changes
        self._renewed_after = renewed_after
        self._look_at = 0.0
        self._loaded_at: dict[str, float] = {}
        self._silent: dict[str, int] = {}

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_SECONDS):
            changed = self._changed()
            for name in self._process.create_request_context().get_code_location_entries():
                if changed or self._needs(name):
                    self._load(name)

    def _changed(self) -> bool:
        began = time.monotonic()
        if began < self._look_at:
            return False
        try:
            changed = self._changes.found()
        except Exception:
            # Whatever happened to the project's files: the locations that there are must be kept.
            LOG.exception("the declarations could not be looked at")
            changed = False
        ended = time.monotonic()
        self._look_at = ended + (ended - began) / _SHARE
        if changed:
            LOG.info("declarations or overrides have changed; the locations are loaded again")
            self._changes.loaded()
        return changed

    def _needs(self, name: str) -> bool:
        """Whether a location has to be loaded though nothing has changed."""
        entry = self._process.create_request_context().get_code_location_entries()[name]
        age = time.monotonic() - self._loaded_at.setdefault(name, time.monotonic())
        if entry.load_error is not None:
            return age >= _AGAIN_SECONDS
        location = entry.code_location
        if isinstance(location, GrpcServerCodeLocation) and not _answers(location):
            self._silent[name] = self._silent.get(name, 0) + 1
            if self._silent[name] >= SILENT_LOOKS:
                LOG.warning("the code server of %s has ended; the location is loaded again", name)
                return True
            return False
        self._silent.pop(name, None)
        return self._renewed_after is not None and age >= self._renewed_after

    def _load(self, name: str) -> None:
        self._silent.pop(name, None)
        self._loaded_at[name] = time.monotonic()
        before = self._process.create_request_context().get_code_location_entries()[name].code_location
        self._process.reload_code_location(name)
        if before is not None:
            # Its code server gets no signs of life any more, and ends when its runs have ended. Dagster leaves that to
            # the garbage collection, and threads of the daemon keep what they had.
            before.cleanup()


def _answers(location: GrpcServerCodeLocation) -> bool:
    try:
        location.client.ping("")
    except DagsterUserCodeUnreachableError:
        return False
    return True
