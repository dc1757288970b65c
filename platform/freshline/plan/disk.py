"""The space that a table will take on disk: the versions of its history, and the growth of its rows.

A forecast by the newest commits, for as long as things go on as they do. Files that a commit replaced, and those of its
change feed, are kept for the history; what it added beyond them is growth. Everything here comes from the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from freshline.values.json import to_json
from freshline.values.spec import Mode, Spec

LEAST_COMMITS = 3
HISTORY_SECONDS = 7 * 86_400
CONTINUOUS_HISTORY_SECONDS = 2 * 86_400
_HOUR, _DAY = 3_600, 86_400


def history_seconds(spec: Spec, mode: Mode) -> int:
    """The time for which versions and changes are kept: as declared, else by the mode."""
    return spec.history_seconds or (CONTINUOUS_HISTORY_SECONDS if mode is Mode.CONTINUOUS else HISTORY_SECONDS)


@dataclass(frozen=True)
class CommitSize:
    """The time of a commit, and the bytes of the files that it added, replaced, and wrote for the change feed."""

    at: datetime
    added: int
    replaced: int = 0
    feed: int = 0


@dataclass(frozen=True)
class DiskForecast:
    """Bytes that `history_seconds` of versions will take beside the rows, and by which the rows grow in a day.

    A table whose files have become fewer or smaller grows by nothing: deletes and upkeep do not go on for ever.
    """

    history_seconds: int
    history_bytes: int
    growth_bytes_a_day: int
    commits_an_hour: float

    def as_json(self) -> dict[str, Any]:
        """The object `disk` that `freshline plan --json` prints."""
        return {**to_json(self), "commits_an_hour": round(self.commits_an_hour, 2)}


def forecast_disk(commits: Sequence[CommitSize], history: int) -> DiskForecast | None:
    """The forecast from some of the newest commits, in any order; None where they are too few.

    The commit that made the table should not be among them.

    >>> from datetime import UTC, timedelta
    >>> begin = datetime(2026, 11, 1, tzinfo=UTC)
    >>> forecast_disk([CommitSize(begin + timedelta(minutes=n), 1_100, 1_000, 50) for n in range(4)], 7_200)
    DiskForecast(history_seconds=7200, history_bytes=126000, growth_bytes_a_day=144000, commits_an_hour=60.0)
    """
    if len(commits) < LEAST_COMMITS:
        return None
    times = [commit.at for commit in commits]
    span = (max(times) - min(times)).total_seconds()
    if span <= 0:
        return None
    count = len(commits)
    a_second = (count - 1) / span
    kept = sum(commit.replaced + commit.feed for commit in commits) / count
    grown = max(0, sum(commit.added - commit.replaced for commit in commits)) / count
    return DiskForecast(history, round(kept * a_second * history), round(grown * a_second * _DAY), a_second * _HOUR)
