"""Stopping a refresh at a named point, as a process would stop that is killed there."""

from __future__ import annotations


class Crash(BaseException):
    """Raised at a failpoint. No handler of errors takes it for one of a refresh, so it ends the refresh as it is."""

    def __init__(self, point: str) -> None:
        self.point = point
        super().__init__(f"stopped at the failpoint {point}")
