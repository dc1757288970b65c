"""Servers that alerts are sent to, and a message to send."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from freshline.freshness.alert import AlertEvent, AlertKind, AlertLevel
from freshline.report.alerts.message import Message
from tests.report.alerts.servers import WebServer, make_certificate, web_server

NOW = datetime(2026, 11, 27, 8, 0, tzinfo=UTC)


@pytest.fixture
def web() -> Iterator[WebServer]:
    """A server of HTTP on loopback."""
    with web_server(WebServer()) as server:
        yield server


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost, and its key."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def message() -> Message:
    """A late table, with everything in its cause that could be taken for markup or for a header."""
    return Message(
        id="0123456789abcdef",
        event=AlertEvent.RAISED,
        level=AlertLevel.FAIL,
        subject="sales.orders",
        kind=AlertKind.LATE,
        cause="<!channel> & <https://evil.example|x>\r\nBcc: everybody@example.com \x1b[2J \u202e",
        since=NOW - timedelta(minutes=5),
        at=NOW,
        recovered_at=None,
        link="http://127.0.0.1:3000/assets/sales/orders",
        environment="production",
        project="shop",
    )
