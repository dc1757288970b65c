"""A refresh that ended, with the times of its stages: the value that a trace is made from."""

from __future__ import annotations

from dataclasses import dataclass

from freshline.values.result import RefreshResult


@dataclass(frozen=True)
class Timed:
    """A stage: its name, its begin and end in nanoseconds since 1970, the number of the stage around it."""

    name: str
    began: int
    ended: int
    within: int | None = None
    failed: bool = False


@dataclass(frozen=True)
class RefreshTrace:
    """A refresh that ended: when it was asked for and ended (nanoseconds since 1970), its stages, its result.

    `waited_seconds` went by between the request and the first stage.
    """

    asked: int
    ended: int
    waited_seconds: float
    stages: tuple[Timed, ...]
    result: RefreshResult
