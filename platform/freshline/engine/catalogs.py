"""The catalogs of a project follow its tables while an engine runs, each in a thread of its own.

A refresh never waits for a catalog: it leaves the name of its table here. A catalog is asked only if an entry would be
another one than it was brought to, so one that is as the tables are costs no connection. One that is away is tried
again with growing pauses; its trouble stands in the control store, from where the watch makes one alert of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from freshline.catalogs.sync import CatalogSync, conflict_error, sync_catalog
from freshline.catalogs.wanted import WantedEntries, provide_warehouse_id
from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.errors import CatalogError, FreshlineError
from freshline.freshness.record import CATALOG_HEARTBEAT, Heartbeat
from freshline.report.alerts.watch import since_of
from freshline.values.names import TableName
from freshline.values.registrar import CatalogEntry
from freshline.values.result import RefreshResult
from freshline.values.settings import CatalogSettings, Settings

LOG = logging.getLogger(__name__)

# Tables that commit together, as at the start of a project, are entered together.
GATHER_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
# A refusal waits for a person, who may also run `freshline catalog sync`.
REFUSED_PAUSE_SECONDS = 300.0


class CatalogKeeper:
    """Brings every catalog of the settings where the tables are.

    `graph` gives the graph in force, and `is_whole` says that no declared table is missing in it. `require_warehouse`
    raises StorageError where the warehouse is not in its place any more, as a disk that went away.
    """

    def __init__(
        self,
        settings: Settings,
        control: ControlStore,
        graph: Callable[[], Graph],
        is_whole: Callable[[], bool],
        clock: Callable[[], datetime],
        require_warehouse: Callable[[], None] = lambda: None,
    ) -> None:
        names = {catalog.name for catalog in settings.catalogs}
        known = control.heartbeats.read()
        for beat in known:
            if beat.startswith(CATALOG_HEARTBEAT) and beat.removeprefix(CATALOG_HEARTBEAT) not in names:
                control.heartbeats.forget(beat)
        self._kept = [
            _KeptCatalog(
                catalog,
                settings,
                graph,
                is_whole,
                require_warehouse,
                _Trouble(control, catalog.name, clock, known.get(f"{CATALOG_HEARTBEAT}{catalog.name}")),
            )
            for catalog in settings.catalogs
        ]

    def on_outcome(self, result: RefreshResult | None) -> None:
        """Take note of a refresh that ended; returns at once."""
        if result is not None and result.committed:
            for each in self._kept:
                each.note(result.table)

    def on_graph(self) -> None:
        """Take note of changed declarations; returns at once."""
        for each in self._kept:
            each.note(None)

    def on_restore(self, tables: Collection[TableName]) -> None:
        """Take note of tables that were brought to a savepoint; returns at once."""
        for each in self._kept:
            for table in tables:
                each.note(table)

    def close(self, seconds: float) -> None:
        """Begin nothing more, and wait so long for what runs. Entries that are left are made by the next start."""
        deadline = time.monotonic() + seconds
        for each in self._kept:
            each.end()
        for each in self._kept:
            each.join(max(0.0, deadline - time.monotonic()))


class _Trouble:
    """The trouble of one catalog in the control store, written when it begins, changes or ends."""

    def __init__(
        self, control: ControlStore, name: str, clock: Callable[[], datetime], known: Heartbeat | None
    ) -> None:
        """`known` is the trouble that an engine before this one wrote down."""
        self._control = control
        self._name = name
        self._beat = f"{CATALOG_HEARTBEAT}{name}"
        self._clock = clock
        self._since = None if known is None else since_of(known)
        self._is_logged = False
        # The cause that is written, None for none.
        self._written: str | None = None if known is None else ""

    def begin(self, error: FreshlineError, *, refused: bool) -> None:
        """The catalog is not where the tables are."""
        self._since = self._since or self._clock()
        if not self._is_logged:
            LOG.warning("catalog %s: %s Refreshes go on.", self._name, error)
            self._is_logged = True
        if self._written != error.message:
            detail = {"cause": error.message, "since": self._since.isoformat(), "refused": refused}
            self._write(lambda: self._control.heartbeats.beat(self._beat, self._clock(), detail), error.message)

    def end(self) -> None:
        """The catalog is where the tables are."""
        if self._is_logged:
            LOG.info("catalog %s is as the tables are again", self._name)
        if self._written is not None:
            self._write(lambda: self._control.heartbeats.forget(self._beat), None)
        self._since, self._is_logged = None, False

    def _write(self, write: Callable[[], object], written: str | None) -> None:
        try:
            write()
            self._written = written
        except FreshlineError as error:
            # Written with the next try.
            LOG.warning("the state of catalog %s is not in the control store: %s", self._name, error)


@dataclass(frozen=True)
class _Brought:
    """The entries that a catalog was brought to, and whether entries without a table were dropped too."""

    entries: Sequence[CatalogEntry]
    whole: bool


class _KeptCatalog:
    """One catalog and its thread."""

    def __init__(
        self,
        catalog: CatalogSettings,
        settings: Settings,
        graph: Callable[[], Graph],
        is_whole: Callable[[], bool],
        require_warehouse: Callable[[], None],
        trouble: _Trouble,
    ) -> None:
        self._catalog = catalog
        self._settings = settings
        self._graph = graph
        self._is_whole = is_whole
        self._require_warehouse = require_warehouse
        self._trouble = trouble
        self._entries: WantedEntries | None = None
        self._brought: _Brought | None = None
        self._changed = threading.Condition()
        self._tables: set[TableName] = set()
        # The first sync is of the start: much may have happened without an engine.
        self._is_due = True
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=f"catalog-{catalog.name}", daemon=True)
        self._thread.start()

    def note(self, table: TableName | None) -> None:
        """A table has a new commit, or with None the declarations are others."""
        with self._changed:
            if table is not None:
                self._tables.add(table)
            self._is_due = True
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_due or self._ending)
                if not self._ending:
                    self._changed.wait_for(lambda: self._ending, GATHER_SECONDS)
                if self._ending:
                    return
                tables, self._tables, self._is_due = frozenset(self._tables), set(), False
            pause = self._bring(tables, failures)
            failures = 0 if pause is None else failures + 1
            if pause is not None:
                with self._changed:
                    # Not sooner for a table that commits meanwhile: that would be a connection for each refresh.
                    self._tables |= tables
                    self._is_due = True
                    self._changed.wait_for(lambda: self._ending, pause)

    def _bring(self, tables: frozenset[TableName], failures: int) -> float | None:
        """Bring the catalog where the tables are; the seconds until another try, None where none is needed."""
        try:
            self._require_warehouse()
            if self._entries is None:
                warehouse = Warehouse(self._settings.warehouse)
                self._entries = WantedEntries(warehouse, provide_warehouse_id(warehouse))
            wanted = self._entries.read(self._graph(), tables)
            # Behind the reading: tables that went away with their disk are not dropped tables.
            self._require_warehouse()
            now = _Brought(wanted, self._is_whole() and not self._entries.unreadable)
            if now == self._brought:
                return None
            done = sync_catalog(self._catalog, self._settings, wanted, self._entries.warehouse_id, may_drop=now.whole)
            error = done.error or (conflict_error(self._catalog.name, done.conflicts) if done.conflicts else None)
        except FreshlineError as failure:
            done, now, error = None, None, failure
        except Exception as failure:
            # A thread that ends here would leave the catalog as it is, and nobody would hear of it.
            LOG.exception("catalog %s could not be brought where the tables are", self._catalog.name)
            done, now, error = None, None, CatalogError(f"{type(failure).__name__}: {failure}")
        if done is not None and done.error is None:
            _log(done)
        if error is None:
            self._brought = now
            self._trouble.end()
            return None
        refused = isinstance(error, CatalogError) and error.refused
        self._brought = None
        self._trouble.begin(error, refused=refused)
        return min(2.0 ** min(failures, 10), REFUSED_PAUSE_SECONDS if refused else LONGEST_PAUSE_SECONDS)


def _log(done: CatalogSync) -> None:
    for change in done.needed:
        LOG.info("catalog %s: %s", done.catalog, change)
