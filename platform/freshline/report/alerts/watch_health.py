"""Whether broken promises would be reported: the words of a watch about itself, and the facts about one that ended.

The watch says in its heartbeat which channels take no message. The facts that a supervisor has about its end are
arguments. Pure: a test may choose any moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from freshline.freshness.record import Heartbeat
from freshline.report.alerts.conditions import moment_text

# The name of the heartbeat, and what in it has the channels.
WATCH, CHANNELS = "watch", "channels"
# A watch beats every two seconds. One that was killed keeps its heartbeat until somebody takes it.
_SILENT = timedelta(seconds=30)


@dataclass(frozen=True)
class EndedWatch:
    """A watch that ends whenever it is started: how often in a row, its newest exit code, and the end of its log."""

    times: int
    code: int
    log: str
    pid: int | None = None


def watch_problems(
    heartbeat: Heartbeat | None,
    ended: EndedWatch | None,
    now: datetime,
    is_gone: Callable[[Heartbeat], bool] = lambda _: False,
) -> tuple[str, ...]:
    """Why alerts are not sent, or not through every channel, a sentence each; none where all is well or none watches.

    `ended` is the watch that a supervisor starts again and again. Another one that is there watches all the same.
    """
    there = heartbeat is not None and abs(now - heartbeat.at) < _SILENT and not is_gone(heartbeat)
    if ended is not None and not (there and heartbeat is not None and heartbeat.detail.get("pid") != ended.pid):
        times = "once" if ended.times == 1 else f"{ended.times} times in a row"
        return (f"no alert is raised: the watch ended {times}, with code {ended.code}: {ended.log}",)
    if heartbeat is None:
        return ()
    if not there:
        who = f"the watch, process {heartbeat.detail.get('pid')} on {heartbeat.detail.get('host')},"
        last = f"{who} was last heard of at {moment_text(heartbeat.at)}"
        return (f"no alert is raised: {last}. `freshline up` or `freshline watch` starts one.",)
    channels = heartbeat.detail.get(CHANNELS)
    if not isinstance(channels, dict):
        return ()
    return tuple(f"channel {name} takes no alert: {sentence}" for name, sentence in sorted(channels.items()))
