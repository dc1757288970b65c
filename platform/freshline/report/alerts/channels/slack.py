"""The channel `slack`: a text to an incoming webhook."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from freshline.report.alerts.channels.channel import Resolve
from freshline.report.alerts.channels.web import post
from freshline.report.alerts.message import Message


class SlackChannel:
    """Posts to the `url` of its options, which is a secret by itself."""

    def __init__(self, options: Mapping[str, Any], resolve: Resolve) -> None:
        self._options = options
        self._resolve = resolve

    def deliver(self, message: Message) -> None:
        body = json.dumps({"text": slack_text(message)}).encode()
        private = bool(self._options.get("private-addresses", False))
        post(self._resolve(self._options["url"]), body, {}, private=private)


def slack_text(message: Message) -> str:
    """The message as Slack's text; nothing in it can be a mention or a link but the link to the asset's page."""
    lines = [f"*{escaped(message.headline)}*", *(escaped(line) for line in message.lines)]
    if message.link:
        # A bar ends the address within a link.
        lines.append(f"<{escaped(message.link).replace('|', '%7C')}|open in Dagster>")
    return "\n".join(lines)


def escaped(text: str) -> str:
    """The text with Slack's three control characters as entities.

    >>> escaped("<!channel> & co")
    '&lt;!channel&gt; &amp; co'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
