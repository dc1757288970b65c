"""The channel `webhook`: the message as JSON, signed."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from freshline.report.alerts.channels.channel import Resolve
from freshline.report.alerts.channels.web import post
from freshline.report.alerts.message import Message

SIGNATURE = "Freshline-Signature"
EVENT = "Freshline-Event"


class WebhookChannel:
    """Posts to the `url` of its options; with a `secret` the body is signed together with the time of sending."""

    def __init__(self, options: Mapping[str, Any], resolve: Resolve, clock: Callable[[], float] = time.time) -> None:
        self._options = options
        self._resolve = resolve
        self._clock = clock

    def deliver(self, message: Message) -> None:
        body = json.dumps(message.as_json()).encode()
        headers = {EVENT: message.id}
        if "secret" in self._options:
            headers[SIGNATURE] = sign(self._resolve(self._options["secret"]), int(self._clock()), body)
        private = bool(self._options.get("private-addresses", False))
        post(self._resolve(self._options["url"]), body, headers, private=private)


def sign(secret: str, seconds: int, body: bytes) -> str:
    """The signature of a body that is sent at a time (seconds since 1970).

    >>> sign("key", 1800000000, b"{}")[:20]
    't=1800000000,v1=7321'
    """
    digest = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"
