"""Lines of logs as JSON, for what collects logs and should not have to read sentences."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """One object in each line: time (ISO 8601, UTC), level, logger, thread, message, and the traceback of an error.

    >>> record = logging.makeLogRecord({"msg": "line\\nend", "created": 0.5, "name": "a", "levelname": "INFO"})
    >>> JsonLines().format(record)[:71]
    '{"time": "1970-01-01T00:00:00.500000Z", "level": "INFO", "logger": "a",'
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        values = {
            "time": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z",
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        # Line ends and half characters are escapes here, so that a line is always one object.
        return json.dumps(values)


def line_formatter(log_format: str, text: str) -> logging.Formatter:
    """The formatter of the setting `log-format`; `text` is the form of lines that people read. Times are in UTC."""
    if log_format == "json":
        return JsonLines()
    formatter = logging.Formatter(text)
    formatter.converter = time.gmtime
    return formatter
