"""A stream or a queue of RabbitMQ: every message once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from freshline.errors import QueueError
from freshline.sources.rabbitmq.position import RabbitPosition
from freshline.sources.starting import read_starting
from freshline.sources.tls import TLS_OPTIONS, TlsConnector
from freshline.values.connector import RECORD, WHEN_INGESTED, Metadata, Position
from freshline.values.options import Kind, Option, Options

if TYPE_CHECKING:
    from freshline.values.spec import SourceSpec

EXCHANGE = "_freshline_exchange"
ROUTING_KEY = "_freshline_routing_key"
MESSAGE_ID = "_freshline_message_id"
APP_ID = "_freshline_app_id"
TIMESTAMP = "_freshline_timestamp"
HEADERS = "_freshline_headers"
REDELIVERED = "_freshline_redelivered"
DIGEST = "_freshline_digest"

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
# A name is a short string of AMQP.
_NAME_BYTES = 255
# Times of AMQP are seconds since 1970.
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
_GAP = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
_LOSS = re.compile(r"(?s)(.+)@[0-9]{1,18}-[0-9a-f]{1,8}\Z")
_OF_STREAMS = ("starting", "accept-stream")
_OF_QUEUES = ("delivery", "identity", "accept-queue", "alert.deliveries-above")


@dataclass(frozen=True)
class RabbitMq(TlsConnector):
    """A stream or a queue, as it is declared: one of the two names is empty.

    `url` is a reference to an address of AMQP, with its password. `starting` is `earliest`, `latest` or a moment in UTC
    as ISO 8601 has it. `delivery` and `identity` say how a message that a queue sends again is known. `accepted_gap` is
    a range of offsets (from, to) that may be missing; `accepted_stream` names the position whose stream is gone, and
    `accepted_queue` the queue that was read before. `most_deliveries` is how often a message may be delivered before
    that is reported.
    """

    url: str
    stream: str = ""
    queue: str = ""
    starting: str = "earliest"
    delivery: str = EXACTLY_ONCE
    identity: str = ""
    accepted_gap: tuple[int, int] | None = None
    accepted_stream: str | None = None
    accepted_queue: str | None = None
    most_deliveries: int = 10

    name: ClassVar[str] = "rabbitmq"
    title: ClassVar[str] = "RabbitMQ"
    options: ClassVar[tuple[Option, ...]] = (
        Option("url", "the broker", required="a reference to the broker's address", secret=True),
        Option("stream", "the stream"),
        Option("queue", "the queue"),
        Option("starting", "where a source begins that has read nothing yet"),
        Option(
            "delivery",
            "whether a message that a queue sends again may become another row",
            Kind.CHOICE,
            choices=(EXACTLY_ONCE, AT_LEAST_ONCE),
        ),
        Option("identity", "the property that tells messages apart", Kind.CHOICE, choices=("message-id",)),
        Option("accept-gap", "offsets, or numbers of messages of a queue, that may be missing", field="accepted_gap"),
        Option("accept-stream", "the position whose stream is gone", field="accepted_stream"),
        Option("accept-queue", "the queue that was read before", field="accepted_queue"),
        Option(
            "alert.deliveries-above",
            "how often a message may be delivered before it is reported",
            Kind.WHOLE,
            field="most_deliveries",
            greatest=10**6,
        ),
        *TLS_OPTIONS,
    )
    # The place of a message is its stream or queue, and its offset or number there.
    metadata: ClassVar[Mapping[str, Metadata]] = {
        **WHEN_INGESTED,
        "offset": Metadata("BIGINT", RECORD, ordered=True, quarantined=True),
        "exchange": Metadata("STRING", EXCHANGE, quarantined=True),
        "routing_key": Metadata("STRING", ROUTING_KEY, quarantined=True),
        "message_id": Metadata("STRING", MESSAGE_ID, quarantined=True),
        "app_id": Metadata("STRING", APP_ID, quarantined=True),
        "timestamp": Metadata("TIMESTAMP", TIMESTAMP, ordered=True),
        "headers": Metadata("ARRAY<STRUCT<key: STRING, value: BINARY>>", HEADERS),
        "redelivered": Metadata("BOOLEAN", REDELIVERED),
        "digest": Metadata("BINARY", DIGEST, quarantined=True),
    }
    position: ClassVar[type[Position] | None] = RabbitPosition
    reader: ClassVar[str | None] = "freshline.sources.rabbitmq.readers:open_reader"
    kind: ClassVar[str | None] = "rabbitmq"

    @classmethod
    def declare(cls, options: Options) -> Self:
        stream, queue = _name(options, "stream"), _name(options, "queue")
        if ("stream" in options) == ("queue" in options):
            options.problems.add(
                "OPTION_NEEDS",
                "a source of RabbitMQ needs one of the options 'stream' and 'queue': the name of what is read.",
                options.at("queue"),
            )
        else:
            for key in _OF_QUEUES:
                options.require(key, "the option 'queue'", "queue" in options)
            for key in _OF_STREAMS:
                options.require(key, "the option 'stream'", "stream" in options)
        delivery = options.choice("delivery", (EXACTLY_ONCE, AT_LEAST_ONCE)) or EXACTLY_ONCE
        if "identity" in options:
            options.require("identity", f"'delivery' = '{EXACTLY_ONCE}'", delivery == EXACTLY_ONCE)
        return cls(
            url=options.text("url") or "",
            stream=stream,
            queue=queue,
            starting=read_starting(options, since=_FIRST_MOMENT),
            delivery=delivery,
            identity=options.choice("identity", ("message-id",)) or "",
            accepted_gap=_accepted_gap(options),
            accepted_stream=_accepted_stream(options),
            accepted_queue=_name(options, "accept-queue") or None,
            most_deliveries=options.whole("alert.deliveries-above", 1, 10**6) or 10,
            **options.values(TLS_OPTIONS),
        )

    def find_problems(self, *, has_key: bool) -> tuple[tuple[str, str, str], ...]:
        if not self.queue or has_key or self.identity or self.delivery == AT_LEAST_ONCE:
            return ()
        sentence = (
            "a queue sends messages again that were committed and not acknowledged, and nothing tells them from new "
            "ones. Declare a PRIMARY KEY, or 'identity' = 'message-id' if each message has an id of its own, or accept "
            f"repeated rows with 'delivery' = '{AT_LEAST_ONCE}'."
        )
        return (("DELIVERY", "queue", sentence),)

    @property
    def title_of(self) -> str:
        """The stream or queue, as a sentence names it."""
        return f"stream {self.stream}" if self.stream else f"queue {self.queue}"

    @property
    def place(self) -> str:
        """The text that names the place of a message."""
        return self.stream or self.queue

    @property
    def meaning(self) -> tuple[object, ...]:
        return ("stream", self.stream) if self.stream else ("queue", self.queue)

    @property
    def shown(self) -> Mapping[str, str]:
        return {"stream": self.stream} if self.stream else {"queue": self.queue, "delivery": self.delivery}

    @property
    def left_behind(self) -> str:
        if self.stream:
            return ""
        return f"When its file is removed, the queue {self.queue} stays at the broker, and its messages wait there."

    def open(self, spec: SourceSpec, host: Any) -> Any:
        try:
            return super().open(spec, host)
        except ModuleNotFoundError as error:
            # It is there only where the extra is installed.
            if error.name != "pika":
                raise
            raise QueueError(
                "pika is not installed, by which RabbitMQ is read. Run: pip install 'freshline[rabbitmq]'.",
                where=str(spec.written_at),
            ) from error


def _name(options: Options, key: str) -> str:
    """A name as it is written, blanks and all."""
    text = options.raw(key)
    if text is None:
        return ""
    # The broker makes no name with a line break: it takes it out.
    if not text or len(text.encode("utf-8", "surrogatepass")) > _NAME_BYTES or any(sign in text for sign in "\x00\r\n"):
        options.reject(key, f"a name of up to {_NAME_BYTES} bytes in one line")
        return ""
    return text


def _accepted_gap(options: Options) -> tuple[int, int] | None:
    text = options.text("accept-gap")
    match = None if text is None else _GAP.fullmatch(text)
    if text is not None and (match is None or int(match[1]) >= int(match[2])):
        options.reject("accept-gap", "what OFFSETS_LOST shows, from-to")
        return None
    return None if match is None else (int(match[1]), int(match[2]))


def _accepted_stream(options: Options) -> str | None:
    text = options.raw("accept-stream")
    if text is not None and not _LOSS.match(text):
        options.reject("accept-stream", "what QUEUE_REPLACED shows, as orders@120-5f0c2a1b")
        return None
    return text
