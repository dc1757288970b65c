"""The channel `log`: one line in the log of the watch."""

from __future__ import annotations

import logging

from freshline.freshness.alert import AlertEvent, AlertLevel
from freshline.report.alerts.message import Message

LOG = logging.getLogger(__name__)


class LogChannel:
    """Writes a line; a FAIL is an error, a WARN a warning, a recovery a piece of information."""

    def deliver(self, message: Message) -> None:
        if message.event is AlertEvent.RECOVERED:
            level = logging.INFO
        else:
            level = logging.ERROR if message.level is AlertLevel.FAIL else logging.WARNING
        link = f"; {message.link}" if message.link else ""
        LOG.log(level, "%s; %s%s", message.headline, "; ".join(message.lines), link)
