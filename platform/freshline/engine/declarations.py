"""The declarations of a running engine: read again when a file has changed.

A check compares the facts of the files in the file system, which is cheap; the refresh compares the meaning of a
declaration by its fingerprint. While the files have errors the graph before them stays in force for the loops, and
requests get the errors, unless the tables that they name have none and are as they were. An engine that starts while
files have errors keeps the tables that do not depend on them, and takes up those that are corrected. Files in Python
are programs, and loading them may take as long as their limit: they are read in a thread of their own, and the graph
before them stays in force for the loops until that has ended. Requests wait for it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from freshline.declare.graph import Graph
from freshline.declare.model import facts_of
from freshline.errors import DeclarationError
from freshline.plan.project import open_project
from freshline.plan.valid_project import open_valid_project
from freshline.values.names import TableName
from freshline.values.query import PythonQuery
from freshline.values.settings import Settings

LOG = logging.getLogger(__name__)

# The seconds that the loops wait for reading, and those after which waiting requests check whether they are cancelled.
_PATIENCE_SECONDS = 2.0
_CHECK_SECONDS = 0.5

# A path with the facts of the file, which are none where it is not there.
Known = tuple[str, tuple[int, ...]]


class Declarations:
    """The newest graph without errors, and the errors of the files as they are now."""

    def __init__(self, settings: Settings) -> None:
        """Read the project; raises DeclarationErrors where it cannot stand without its mistakes."""
        self._settings = settings
        self._changed: Callable[[Graph], None] = lambda _: None
        self._lock = threading.Lock()
        self._error: DeclarationError | None = None
        self._standing: Graph | None = None
        self._partial = False
        self._left_out: tuple[TableName, ...] = ()
        self._reading: threading.Thread | None = None
        # As the files were before they are read: what is replaced meanwhile is read again.
        declared, modules = self._declared(), self._modules()
        try:
            self._graph = open_project(settings)
        except DeclarationError as error:
            self._graph = self._begin_without(error)
        models = {(model.path, model.facts) for model in self._graph.models.values()}
        self._signature = declared | models | (modules if self._imports_modules else set())

    def _begin_without(self, error: DeclarationError) -> Graph:
        """The graph without the mistaken declarations. Raises DeclarationErrors where there can be none."""
        standing = open_valid_project(self._settings)
        LOG.warning("the declarations have errors; what stands without them is in force:\n%s", error)
        self._error, self._partial = error, True
        self._standing, self._left_out = standing.graph, standing.left_out
        return standing.graph

    def on_change(self, changed: Callable[[Graph], None]) -> None:
        """Call `changed` with each later graph."""
        self._changed = changed

    @property
    def graph(self) -> Graph:
        """The newest graph without errors, as of the last check."""
        return self._graph

    @property
    def error(self) -> DeclarationError | None:
        """The mistakes in the files, as of the last check."""
        return self._error

    @property
    def partial(self) -> bool:
        """Whether no graph without errors was read yet, so that declared tables are missing in it."""
        return self._partial

    @property
    def left_out(self) -> tuple[TableName, ...]:
        """The tables that are declared with mistakes and are not in the graph in force, as far as they are known."""
        return tuple(name for name in self._left_out if name not in self._graph)

    def check(self) -> Graph:
        """Check the files, read them if one has changed, and return the graph in force.

        Reading that takes longer than a moment goes on by itself.
        """
        reading = self._begin()
        if reading is not None:
            reading.join(_PATIENCE_SECONDS)
        return self._graph

    def check_strictly(self, check: Callable[[], None] = lambda: None, wanted: Collection[TableName] = ()) -> Graph:
        """As `check`, when reading has ended; raises DeclarationErrors while the files have errors.

        It does not where `wanted` are named, and the declarations of these and of all that they read have no mistake
        and are as they were. `check` is called while it waits and may raise.
        """
        self.check_whole(check)
        error = self._error
        if error is not None and not self._is_as_it_was(wanted):
            raise error
        return self._graph

    def check_whole(self, check: Callable[[], None] = lambda: None) -> Graph:
        """As `check`, when reading has ended. For requests of stored rows, which no mistake changes."""
        # Files that are being read may have changed since that began.
        while (reading := self._begin()) is not None:
            reading.join(_CHECK_SECONDS)
            check()
        return self._graph

    def _is_as_it_was(self, wanted: Collection[TableName]) -> bool:
        graph, standing = self._graph, self._standing
        if standing is None or not wanted or not all(name in graph for name in wanted):
            return False
        near = {each for name in graph.with_beside(wanted) for each in (name, *graph.upstream(name))}
        return all(name in standing and standing.spec(name) == graph.spec(name) for name in near)

    def _begin(self) -> threading.Thread | None:
        """The thread that reads the files, which is started where one has changed; None where nothing is to be read."""
        with self._lock:
            if self._reading is not None and self._reading.is_alive():
                return self._reading
            signature = self._check()
            if signature == self._signature:
                return None
            self._signature = signature
            self._reading = threading.Thread(target=self._read, name="declarations", daemon=True)
            self._reading.start()
            return self._reading

    def _read(self) -> None:
        try:
            graph = open_project(self._settings)
        except DeclarationError as error:
            LOG.warning("the declarations have changed and have errors; the ones before stay in force:\n%s", error)
            self._error = error
            self._take_standing()
            return
        except Exception as error:
            LOG.exception("the declarations could not be read; the ones before stay in force")
            self._standing = None
            self._error = DeclarationError("FILE", f"the declarations cannot be read: {type(error).__name__}: {error}")
            return
        self._error, self._partial, self._left_out = None, False, ()
        self._graph = graph
        LOG.info("the declarations have changed: %d tables and sources", len(graph))
        self._changed(graph)

    def _take_standing(self) -> None:
        """Read the graph without the mistaken declarations.

        It is in force where the graph before lacks tables that are corrected now.
        """
        try:
            standing = open_valid_project(self._settings)
        except DeclarationError:
            # They are not in the files of tables.
            self._standing = None
            return
        self._standing, self._left_out = standing.graph, standing.left_out
        if self._partial and all(name in standing.graph for name in self._graph.order):
            self._graph = standing.graph
            self._changed(standing.graph)

    def _check(self) -> set[Known]:
        files = self._declared() | {_known(model.path) for model in self._graph.models.values()}
        if self._imports_modules:
            files |= self._modules()
        if self._error is not None:
            # The file of a model that is not in force yet may be what was missing.
            files.update(known_files(self._settings.root, (".onnx",)))
        return files

    def _declared(self) -> set[Known]:
        return set(known_files(self._settings.declarations, (".sql", ".py", ".yaml")))

    def _modules(self) -> set[Known]:
        return set(known_files(self._settings.root, (".py",)))

    @property
    def _imports_modules(self) -> bool:
        """Whether there are tables in Python, which may import any module of the project."""
        return any(isinstance(table.query, PythonQuery) for table in self._graph.tables)


def _known(path: str) -> Known:
    """The path of a file with its facts, none where it is missing."""
    try:
        return path, facts_of(os.stat(path))  # noqa: PTH116 - of the text that the model has
    except OSError:
        return path, ()


def known_files(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Known]:
    """The files below `folder` with one of these endings, each with what the file system knows of it."""
    for base, folders, names in os.walk(folder):
        # Neither environments nor state nor caches contain declarations.
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__")) and not (Path(base) / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            if name.endswith(suffixes):
                known = _known(str(Path(base) / name))
                if known[1]:  # else gone again, or not to be read; reading the project distinguishes the two
                    yield known
