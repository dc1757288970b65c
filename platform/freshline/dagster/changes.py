"""Whether the assets of a project would be others now than when its code location was loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from freshline.dagster.inspection import opened
from freshline.engine.declarations import Known, known_files
from freshline.errors import FreshlineError
from freshline.values.settings import Settings

LOG = logging.getLogger("dagster")

# A code location is made of tables and sources, modules of the project, its settings and locations.
_SUFFIXES = (".sql", ".py", ".yaml", ".toml")

Overrides = frozenset[tuple[str, str]]
Signature = tuple[frozenset[Known], Overrides]


class ProjectChanges:
    """Files and overrides of a project, as they were when somebody loaded them and as they are now.

    Files are known by what the file system says of them. Only overrides that are in force count, so that one that ends
    is a change too. Packages outside of the project are not checked.
    """

    def __init__(self, settings: Settings, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Note how they are now: make the value before anything is loaded."""
        self._settings = settings
        self._clock = clock
        self._overrides: Overrides = frozenset()
        self._seen: Signature = frozenset(), frozenset()
        self._loaded = self._seen = self._look()

    def found(self) -> bool:
        """Check whether something has changed since `loaded` and has stopped changing since the last check.

        So a burst of changes is one.
        """
        before, self._seen = self._seen, self._look()
        return self._seen == before != self._loaded

    def loaded(self) -> None:
        """Note that the state of the last check is about to be loaded."""
        self._loaded = self._seen

    def _look(self) -> Signature:
        settings = self._settings
        if not (settings.root / "workspace.yaml").is_file():
            # A folder that is being moved: there is nothing that could be loaded.
            return self._seen
        # The folder of declarations may be outside of the project, or hidden in it.
        files = {*known_files(settings.root, _SUFFIXES), *known_files(settings.declarations, _SUFFIXES)}
        try:
            if settings.has_control_store:
                with opened(settings) as control:
                    overrides = control.intentions.read().at(self._clock()).overrides
                self._overrides = frozenset((str(name), repr(each.freshness)) for name, each in overrides.items())
        except FreshlineError as error:
            # The overrides of before stay: without the store a location would load as if there were none.
            LOG.warning("overrides are not looked at: %s", error)
        return frozenset(files), self._overrides
