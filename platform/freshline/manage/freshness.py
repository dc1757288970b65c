"""Give a table another freshness than its file says, or take that back."""

from __future__ import annotations

from datetime import timedelta

from freshline.freshness.alter import FreshnessDecision, decide_freshness, decide_reset
from freshline.manage.decide import (
    Clock,
    Duration,
    Project,
    open_intention_writer,
    read_end,
    read_freshness,
    utc_now,
    who,
)


def set_freshness(
    table: str,
    freshness: str | timedelta,
    *,
    for_: Duration | None = None,
    cascade: bool = False,
    by: str | None = None,
    project: Project = None,
    clock: Clock = utc_now,
) -> FreshnessDecision:
    """Let the table be this fresh from now on, or for so long; its mode follows. Returns what was changed.

    `freshness` and `for_` are timedeltas or intervals (`INTERVAL '5' SECOND`, `PT5S`, `5 seconds`). With `cascade` the
    tables that drive it are taken along where they deliver later. `by` is who decides, by default the user of this
    process; `project` its settings or a folder in it, by default the current one. Setting what is set already changes
    nothing. Raises RequestError, FreshnessError, and the errors of the project and its control store.
    """
    wanted, decided_by = read_freshness(freshness), who(by)
    with open_intention_writer(project, clock, table) as writer:
        return writer.freshness(
            lambda intentions, now: decide_freshness(
                writer.graph,
                intentions,
                table,
                wanted,
                until=read_end(for_, now),
                cascade=cascade,
                by=decided_by,
                now=now,
            )
        )


def reset_freshness(
    table: str,
    *,
    cascade: bool = False,
    by: str | None = None,
    project: Project = None,
    clock: Clock = utc_now,
) -> FreshnessDecision:
    """Let the table be as fresh as its file says; with `cascade` also what drives it, where nobody else needs it.

    Returns what was changed, nothing where it is so already. Raises as `set_freshness`.
    """
    decided_by = who(by)
    with open_intention_writer(project, clock, table) as writer:
        return writer.freshness(
            lambda intentions, now: decide_reset(
                writer.graph, intentions, table, cascade=cascade, by=decided_by, now=now
            )
        )
