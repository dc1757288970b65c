"""The option `starting`: where a source begins that has read nothing yet."""

from __future__ import annotations

from datetime import UTC, datetime

from freshline.values.options import Options

EARLIEST, LATEST = "earliest", "latest"


def read_starting(options: Options, *, since: datetime | None = None) -> str:
    """`earliest`, `latest` or a moment in UTC as ISO 8601 has it, not before `since`. The default is `earliest`."""
    text = options.text("starting")
    if text is None or text.lower() in (EARLIEST, LATEST):
        return (text or EARLIEST).lower()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    moment = moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if moment is None or (since is not None and moment < since):
        options.reject("starting", "earliest, latest or a time such as 2026-11-01 00:00:00 (UTC unless it says)")
        return EARLIEST
    return moment.astimezone(UTC).isoformat()
