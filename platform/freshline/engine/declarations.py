"""The declarations of a running engine: read again when a file has changed.

Looked at by size and time of the files, which is cheap; what a declaration means is decided by its fingerprint, in the
refresh. While the files have errors the graph before them stays in force for the loops, and requests get the errors.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from freshline.declare.graph import Graph
from freshline.declare.query import PythonQuery
from freshline.declare.settings import Settings
from freshline.errors import DeclarationError
from freshline.plan.project import open_project

LOG = logging.getLogger(__name__)

Signature = frozenset[tuple[str, int, int]]


class Declarations:
    """The newest graph without errors, and the errors of the files as they are now."""

    def __init__(self, settings: Settings) -> None:
        """Read the project; raises DeclarationErrors."""
        self._settings = settings
        self._changed: Callable[[Graph], None] = lambda _: None
        self._lock = threading.Lock()
        self._error: DeclarationError | None = None
        self._graph = open_project(settings)
        self._signature = self._look()

    def on_change(self, changed: Callable[[Graph], None]) -> None:
        """Call `changed` with each later graph."""
        self._changed = changed

    @property
    def graph(self) -> Graph:
        """The newest graph without errors, as of the last look."""
        return self._graph

    @property
    def error(self) -> DeclarationError | None:
        """What is wrong with the files, as of the last look."""
        return self._error

    def look(self) -> Graph:
        """Look at the files, read them if one has changed, and return the graph in force."""
        with self._lock:
            signature = self._look()
            if signature != self._signature:
                self._signature = signature
                self._read()
            return self._graph

    def look_strictly(self) -> Graph:
        """As `look`; raises DeclarationErrors while the files have errors."""
        graph = self.look()
        error = self._error
        if error is not None:
            raise error
        return graph

    def _read(self) -> None:
        try:
            graph = open_project(self._settings)
        except DeclarationError as error:
            LOG.warning("the declarations have changed and have errors; the ones before stay in force:\n%s", error)
            self._error = error
            return
        self._error = None
        self._graph = graph
        self._signature = self._look()
        LOG.info("the declarations have changed: %d tables and sources", len(graph))
        self._changed(graph)

    def _look(self) -> Signature:
        files = set(_files(self._settings.declarations, (".sql", ".py")))
        if any(isinstance(table.query, PythonQuery) for table in self._graph.tables):
            # Tables in Python may import any module of the project.
            files.update(_files(self._settings.root, (".py",)))
        return frozenset(files)


def _files(folder: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    for base, folders, names in os.walk(folder):
        # Neither environments nor state nor caches hold declarations.
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__")) and not (Path(base) / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            if name.endswith(suffixes):
                path = Path(base) / name
                try:
                    status = path.stat()
                except OSError:
                    continue  # gone again, or not to be read; reading the project tells which
                yield str(path), status.st_mtime_ns, status.st_size
