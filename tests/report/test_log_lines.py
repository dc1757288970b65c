"""A line of a log is one object, whatever its message is."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

import pytest

from freshline.cli.logs import time_of
from freshline.report.log_lines import JsonLines, line_formatter
from tests.report.metrics.figures import HOSTILE

CREATED = datetime(2026, 11, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def record(message: str, **changes: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {
            "msg": message,
            "created": CREATED.timestamp(),
            "msecs": 250.0,
            "levelname": "WARNING",
            "name": "freshline.engine",
            **changes,
        }
    )


@pytest.mark.parametrize("text", [*HOSTILE, "two\nlines", "two\u2028lines", '"time": "'])
def test_a_message_is_one_line_and_comes_back_as_it_was(text):
    line = JsonLines().format(record(text))

    assert line.isascii()
    assert "\n" not in line
    found = json.loads(line)
    assert found["message"] == text
    assert (found["level"], found["logger"]) == ("WARNING", "freshline.engine")
    assert time_of(line) == CREATED


def test_an_error_has_its_traceback_in_the_same_line():
    try:
        raise ValueError("two\nlines")
    except ValueError:
        line = JsonLines().format(record("failed", exc_info=sys.exc_info()))

    assert "\n" not in line
    assert "ValueError: two\nlines" in json.loads(line)["exception"]


def test_the_setting_chooses_the_form():
    assert isinstance(line_formatter("json", "%(message)s"), JsonLines)
    assert line_formatter("text", "%(asctime)s %(message)s").format(record("x")) == "2026-11-01 12:00:00,250 x"
