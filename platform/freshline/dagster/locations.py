"""Code servers that were killed come back.

Dagster's daemon replaces its code servers about every minute; its webserver keeps those it began with, and with one
that died no run can be launched until somebody reloads the location by hand. Here each is asked for a sign of life, and
the location of one that gives none is loaded again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from freshline.dagster.internals import (
    DagsterUserCodeUnreachableError,
    GrpcServerCodeLocation,
    WorkspaceProcessContext,
)

LOG = logging.getLogger("dagster-webserver")

LOOK_SECONDS = 5.0
# One that is only slow answers the next time.
SILENT_LOOKS = 2


@contextmanager
def kept_locations(process: WorkspaceProcessContext) -> Iterator[None]:
    """Look after the code servers of a webserver until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=_keep, args=(process, stop), name="code-locations", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _keep(process: WorkspaceProcessContext, stop: threading.Event) -> None:
    silent: dict[str, int] = {}
    while not stop.wait(LOOK_SECONDS):
        for name, entry in process.create_request_context().get_code_location_entries().items():
            location = entry.code_location
            # One whose declarations do not load has no server; its error stands in the UI until it is reloaded.
            if not isinstance(location, GrpcServerCodeLocation) or _answers(location):
                silent.pop(name, None)
                continue
            silent[name] = silent.get(name, 0) + 1
            if silent[name] >= SILENT_LOOKS:
                LOG.warning("the code server of %s has ended; the location is loaded again", name)
                process.reload_code_location(name)
                silent.pop(name)


def _answers(location: GrpcServerCodeLocation) -> bool:
    try:
        location.client.ping("")
    except DagsterUserCodeUnreachableError:
        return False
    return True
