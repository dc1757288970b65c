"""A webhook as a sink: changes are posted to an address, in order and at least once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshline.sources.tls import TLS_OPTIONS, TlsSystem
from freshline.values.options import Kind, Option
from freshline.values.sink import Sink, refuse_type


@dataclass(frozen=True)
class WebhookSink(TlsSystem, Sink):
    """An address that takes posts. `url` and `secret` are references.

    `rows_per_request` is the most lines of a post, `timeout` the seconds until it is answered, and
    `private_addresses` allows addresses that are not of the public internet, and http.
    """

    url: str
    secret: str
    rows_per_request: int = 1000
    timeout: int = 30
    private_addresses: bool = False

    name: ClassVar[str] = "webhook"
    title: ClassVar[str] = "a webhook"
    can_be_read: ClassVar[bool] = False
    delivery: ClassVar[str] = "at least once, in order: a post that is repeated has the same Idempotency-Key"
    writer: ClassVar[str] = "freshline.sinks.webhook.writer:WebhookWriter"
    options: ClassVar[tuple[Option, ...]] = (
        Option("url", "the address", required="a reference to the address that takes posts", secret=True),
        Option("secret", "the key of the signature", required="a reference to the key of the signature", secret=True),
        Option("rows-per-request", "the most rows of a post", Kind.WHOLE, greatest=100_000),
        Option("timeout", "how long a post may take", Kind.SECONDS, greatest=600),
        Option("private-addresses", "whether addresses within a network are called", Kind.BOOLEAN),
        *TLS_OPTIONS,
    )

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.url,)

    @property
    def left_behind(self) -> str:
        return "The service keeps the rows that it was sent."

    def refuses(self, column_type: str, *, is_key: bool) -> str | None:
        return refuse_type(column_type, is_key=is_key)
