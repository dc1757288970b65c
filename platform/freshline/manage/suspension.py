"""Leave a table as it is for a while, or refresh it again."""

from __future__ import annotations

from freshline.freshness.alter import SuspensionDecision, decide_resume, decide_suspension
from freshline.manage.decide import Clock, Duration, Project, open_intention_writer, read_end, utc_now, who


def suspend(
    table: str,
    *,
    for_: Duration | None = None,
    because: str | None = None,
    by: str | None = None,
    project: Project = None,
    clock: Clock = utc_now,
) -> SuspensionDecision:
    """Refresh the table no more by itself, until it is resumed or for so long; what it drives is blocked with it.

    A refresh that runs is finished. A table that is suspended already stays as it is, which is no mistake. The
    arguments are those of `set_freshness`. Raises RequestError, and the errors of the project and its control store.
    """
    decided_by = who(by)
    with open_intention_writer(project, clock, table) as writer:
        return writer.suspension(
            lambda intentions, now: decide_suspension(
                writer.graph,
                intentions,
                table,
                until=read_end(for_, now),
                reason=because,
                by=decided_by,
                now=now,
            )
        )


def resume(table: str, *, by: str | None = None, project: Project = None, clock: Clock = utc_now) -> SuspensionDecision:
    """Refresh the table by itself again, from where it stopped; one that is not suspended stays as it is.

    Raises RequestError, and the errors of the project and its control store.
    """
    decided_by = who(by)
    with open_intention_writer(project, clock, table) as writer:
        return writer.suspension(
            lambda intentions, now: decide_resume(writer.graph, intentions, table, by=decided_by, now=now)
        )
