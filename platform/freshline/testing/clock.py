"""The clock of a Lab: it stands still until the test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class LabClock:
    """The time as a Lab's refreshes see it, in UTC. Calling it returns the time."""

    def __init__(self, start: datetime | None = None) -> None:
        # The system notes real times on files whatever a test wants, so the clock begins in the present.
        self._now = (datetime.now(UTC) if start is None else start).astimezone(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self._now

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> datetime:
        """Move the time forward and return it; ValueError for a move backwards."""
        step = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if step < timedelta(0):
            raise ValueError(f"the clock only moves forward, not by {step}")
        self._now += step
        return self._now
