"""Posts to an address of the settings, with its token, by the rules of webhooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from freshline.report.alerts.channels.channel import resolver
from freshline.report.alerts.channels.web import post
from freshline.values.settings import Destination, Settings

# A batch of spans, or an event of a table with a thousand columns.
LONGEST_BODY_BYTES = 8 * 1024 * 1024


def poster(
    destination: Destination, settings: Settings, environ: Mapping[str, str], content_type: str
) -> Callable[[bytes], None]:
    """A function that posts a body. It raises DeliveryError, and reads references each time, so secrets may change."""
    resolve = resolver(settings.root, environ)

    def send(body: bytes) -> None:
        headers = {"Content-Type": content_type}
        if destination.token is not None:
            headers["Authorization"] = f"Bearer {resolve(destination.token)}"
        post(
            resolve(destination.url),
            body,
            headers,
            private=destination.private_addresses,
            longest=LONGEST_BODY_BYTES,
        )

    return send
