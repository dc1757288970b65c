"""The stages of a refresh and how long each took, for traces.

A refresh names its stages through its runtime: `pin`, `compute` and `commit`. Without traces nobody records them, and
the name costs a call of a function.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

# Called with a stage's name; the block is the stage.
StageName = Callable[[str], AbstractContextManager[None]]

_NOTHING = nullcontext()


def unrecorded(_name: str) -> AbstractContextManager[None]:
    """A stage that nobody records."""
    return _NOTHING


@dataclass(frozen=True)
class Stage:
    """A stage that ended. Times are seconds of the monotonic clock, `within` the number of the stage around it."""

    name: str
    began: float
    ended: float
    within: int | None
    failed: bool


@dataclass
class _Open:
    stages: list[Stage | None] = field(default_factory=list)
    around: list[int] = field(default_factory=list)


class StageRecorder:
    """Records the stages of the refresh of each thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._thread = threading.local()

    @contextmanager
    def recording(self) -> Iterator[list[Stage]]:
        """Record the stages of this thread; the list is filled when the block ends, outer stages before inner ones."""
        opened = self._thread.opened = _Open()
        found: list[Stage] = []
        try:
            yield found
        finally:
            self._thread.opened = None
            found += [stage for stage in opened.stages if stage is not None]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage of the refresh of this thread."""
        opened: _Open | None = getattr(self._thread, "opened", None)
        if opened is None:
            yield
            return
        number, began = len(opened.stages), self._clock()
        within = opened.around[-1] if opened.around else None
        opened.stages.append(None)
        opened.around.append(number)
        failed = True
        try:
            yield
            failed = False
        finally:
            opened.around.pop()
            opened.stages[number] = Stage(name, began, self._clock(), within, failed)
