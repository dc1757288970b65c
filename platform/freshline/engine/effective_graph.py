"""The graph in force in an engine: declarations with overrides of freshness applied, and tables that are left alone.

One number of the control store shows a change, which is in force at the next step of the loops. While the store cannot
be read, the known intentions stay in force, with their ends: a store that is away for a moment must not stop tables.
Intentions that have ended by themselves are removed and recorded here, once: the engine always runs when it matters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from freshline.commit.control_store import ControlStore
from freshline.declare.graph import Graph
from freshline.engine.declarations import Declarations
from freshline.errors import DeclarationError, FreshlineError
from freshline.freshness.exclusion import TableExclusion, excluded_tables
from freshline.freshness.intentions import Intentions, apply_overrides
from freshline.freshness.record import Heartbeat
from freshline.manage.decide import IntentionWriter
from freshline.values.names import TableName

LOG = logging.getLogger(__name__)

SCHEDULER = "scheduler"
_HEARTBEAT_SECONDS = 2.0


class EffectiveGraph:
    """The graph in force, the intentions of this moment, and the tables that are left alone."""

    def __init__(self, declarations: Declarations, control: ControlStore, clock: Callable[[], datetime]) -> None:
        self._declarations = declarations
        self._control = control
        self._clock = clock
        self._changed: Callable[[Graph], None] = lambda _: None
        self._lock = threading.RLock()
        self._stored = Intentions(generation=-1)
        self._scheduler: Heartbeat | None = None
        self._detail: Mapping[str, Any] | None = None
        self._scheduler_at = -_HEARTBEAT_SECONDS
        self._trouble = ""
        self._declared = declarations.graph
        self._of_now = Intentions()
        self._graph = self._declared
        self._held: Mapping[TableName, TableExclusion] = {}
        self.follow()

    def on_change(self, changed: Callable[[Graph], None]) -> None:
        """Call `changed` with each later graph."""
        self._changed = changed

    @property
    def graph(self) -> Graph:
        """The declared tables with the freshnesses and modes in force, as of the last check."""
        return self._graph

    @property
    def declared(self) -> Graph:
        """The tables as the files have them, as of the last check."""
        return self._declared

    @property
    def intentions(self) -> Intentions:
        """The overrides and suspensions in force, as of the last check."""
        return self._of_now

    @property
    def held(self) -> Mapping[TableName, TableExclusion]:
        """The tables that the loops leave alone, as of the last check."""
        return self._held

    @property
    def partial(self) -> bool:
        """Whether declared tables are missing in the graph, because the engine began while they had mistakes."""
        return self._declarations.partial

    @property
    def error(self) -> DeclarationError | None:
        """The mistakes in the files, None without any."""
        return self._declarations.error

    @property
    def left_out(self) -> Sequence[TableName]:
        """The tables that are declared with mistakes and are not in the graph in force."""
        return self._declarations.left_out

    def check_whole(self, check: Callable[[], None] = lambda: None) -> Graph:
        """As `check`, once all is read, whatever mistakes there are: for requests of stored rows."""
        self._declarations.check_whole(check)
        return self.follow()

    def check(self) -> Graph:
        """Check the files and the store, and return the graph in force."""
        self._declarations.check()
        return self.follow()

    def check_strictly(self, check: Callable[[], None] = lambda: None, wanted: Collection[TableName] = ()) -> Graph:
        """As `check`, once all is read; raises DeclarationErrors while files have errors, and what `check` raises.

        It does not where `wanted` are named, and nothing that they depend on has a mistake or has changed.
        """
        self._declarations.check_strictly(check, wanted)
        return self.follow()

    def follow(self) -> Graph:
        """Take up later decisions, and return the graph in force. Never raises for a store that is away."""
        with self._lock:
            try:
                self._read()
            except FreshlineError as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    LOG.warning("the intentions cannot be read; those known stay in force: %s", error)
            else:
                if self._trouble:
                    LOG.info("the intentions can be read again")
                self._trouble = ""
            declared, of_now = self._declarations.graph, self._stored.at(self._clock())
            detail = None if self._scheduler is None else self._scheduler.detail
            if declared is not self._declared or (of_now, detail) != (self._of_now, self._detail):
                # Only then: this runs at every step, and projects may have thousands of tables.
                if declared is not self._declared or of_now.overrides != self._of_now.overrides:
                    self._graph = apply_overrides(declared, of_now)
                    self._changed(self._graph)
                self._declared, self._of_now, self._detail = declared, of_now, detail
                self._held = excluded_tables(self._graph, of_now, self._scheduler)
            return self._graph

    def _read(self) -> None:
        if self._control.intentions.generation() != self._stored.generation:
            self._stored = self._control.intentions.read()
            self._report()
        now = self._clock()
        ended = self._stored.ended(now)
        if ended.overrides or ended.suspensions:
            for sentence in IntentionWriter(self._declarations.graph, self._control, self._clock).end_what_is_over():
                LOG.info("%s", sentence)
            self._stored = self._control.intentions.read()
        if time.monotonic() - self._scheduler_at >= _HEARTBEAT_SECONDS:
            self._scheduler = self._control.heartbeats.read().get(SCHEDULER)
            self._scheduler_at = time.monotonic()

    def _report(self) -> None:
        LOG.info(
            "intentions of generation %d: overridden %s; suspended %s",
            self._stored.generation,
            ", ".join(f"{name} {one.freshness}" for name, one in self._stored.overrides.items()) or "none",
            ", ".join(str(name) for name in self._stored.suspensions) or "none",
        )
