"""Requests to the broker: a connection that is kept, and the messages that the broker sends.

pika is not safe in several threads, so a lock is held while a connection is used. Between two refreshes, and while
Spark computes, a thread answers the broker's heartbeats. No error and no text of this module shows the address.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import pika
from pika import exceptions, frame, spec
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.select_connection import SelectConnection

from freshline.errors import BrokerError, QueueError, QueueForeignError, SourceError
from freshline.sources.rabbitmq.connector import RabbitMq
from freshline.sources.rabbitmq.properties import Properties, as_text, read_properties
from freshline.sources.tls import tls_context

# A broker that hangs is noticed after this long and five seconds; then everything unacknowledged goes back.
_HEARTBEAT_SECONDS = 20
_BEAT_SECONDS = 2.0
_CONNECT_SECONDS = 10.0
# Codes of AMQP with which a broker refuses what another try does not get either.
_REFUSED = {402, 403, 405, 501, 502, 503, 504, 505, 530, 540}
_HEADER_FRAME = struct.Struct(">BHLHHQ")


@dataclass(frozen=True, slots=True)
class DeliveredMessage:
    """One message as it was delivered; `tag` is the number by which it is acknowledged on its channel."""

    tag: int
    body: bytes
    exchange: str
    routing_key: str
    is_redelivered: bool
    properties: Properties


@dataclass(frozen=True)
class BrokerAddress:
    """The parts of an address of AMQP. Its text shows neither the name nor the password."""

    host: str
    port: int
    virtual_host: str
    is_tls: bool
    user: str = field(repr=False)
    password: str = field(repr=False)


def read_address(text: str) -> BrokerAddress:
    """An address such as amqps://user:password@host:5671/vhost. Raises ValueError with a sentence without secrets."""
    try:
        found = urlsplit(text)
        port = found.port
    except ValueError:
        # Its sentence shows a part of the text.
        raise ValueError("it stands for no address, such as amqps://user:password@host/vhost") from None
    if found.scheme not in ("amqp", "amqps") or not found.hostname:
        raise ValueError("it stands for no address, such as amqps://user:password@host/vhost")
    if found.query or found.fragment:
        raise ValueError("an address has no parameters behind `?` here. The options of the source have all that is set")
    path = found.path.removeprefix("/")
    if "/" in path:
        raise ValueError("a virtual host with a slash is written with %2F")
    is_tls = found.scheme == "amqps"
    return BrokerAddress(
        host=found.hostname,
        port=port or (5671 if is_tls else 5672),
        virtual_host=unquote(path) or "/",
        is_tls=is_tls,
        user=unquote(found.username or "guest"),
        password=unquote(found.password or "guest"),
    )


class _Connection(SelectConnection):  # type: ignore[misc] # pika ships no types
    """pika's connection with properties of messages that are read exactly, and that break nothing.

    `heard_at` is when a part of a message came last, by the clock that only grows.
    """

    heard_at = 0.0

    def _read_frame(self) -> tuple[int, Any]:
        data = self._frame_buffer
        if data[:1] in (b"\x02", b"\x03"):
            self.heard_at = time.monotonic()
        if data[:1] != b"\x02" or len(data) < _HEADER_FRAME.size:
            found: tuple[int, Any] = super()._read_frame()
            return found
        _, channel, size, _, _, body_size = _HEADER_FRAME.unpack_from(data)
        end = spec.FRAME_HEADER_SIZE + size
        if end + spec.FRAME_END_SIZE > len(data):
            return 0, None
        if data[end] != spec.FRAME_END:
            raise exceptions.InvalidFrameError("a frame does not end as it should")
        properties: Any = read_properties(bytes(data[_HEADER_FRAME.size : end]))
        return end + spec.FRAME_END_SIZE, frame.Header(channel, body_size, properties)


class Receiver(Protocol):
    """Is given messages in the order of their arrival, on one channel."""

    def __call__(self, message: DeliveredMessage) -> None: ...


class RabbitClient:
    """A connection to the broker of one source, made when it is needed and made again when it broke.

    `where` is the place that errors name. A client that nobody refers to any more closes its connection.
    """

    def __init__(self, declared: RabbitMq, where: str) -> None:
        self._declared = declared
        self._where = where
        self._lock = threading.RLock()
        self._connection: pika.BlockingConnection | None = None
        # The hash of the texts that the connection was made of; a text that is a secret is not kept.
        self._made_of: int | None = None
        self._is_closed = threading.Event()

    def close(self) -> None:
        """Let go of the connection. Messages that were not acknowledged go back to their queue."""
        self._is_closed.set()
        with self._lock:
            self._let_go()

    @contextmanager
    def asking(self, url: str) -> Iterator[pika.BlockingConnection]:
        """The connection, for this thread alone. Errors become errors of sources, and one that broke is let go.

        Raises BrokerError and QueueError.
        """
        with self._lock:
            try:
                yield self._connected(url)
            except (exceptions.AMQPError, ssl.SSLError, OSError) as error:
                if not isinstance(error, exceptions.ChannelClosedByBroker):
                    self._let_go()
                raise source_error(error, self._declared, where=self._where) from None
            except BaseException:
                if self._connection is not None and not self._connection.is_open:
                    self._let_go()
                raise

    @contextmanager
    def channel(self, url: str) -> Iterator[BlockingChannel]:
        """A channel of its own on the connection, closed at the end."""
        with self.asking(url) as connection:
            channel = connection.channel()
            try:
                yield channel
            finally:
                if channel.is_open and connection.is_open:
                    _close(connection, channel)

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that nobody has seen broken."""
        return self._connection is not None and self._connection.is_open

    def _connected(self, url: str) -> pika.BlockingConnection:
        made_of = hash(url)
        if self._connection is None or not self._connection.is_open or self._made_of != made_of:
            self._let_go()
            self._connection, self._made_of = self._connect(url), made_of
            self._is_closed = threading.Event()
            beat = threading.Thread(
                target=_beat, args=(weakref.ref(self), self._is_closed), name="rabbitmq heartbeat", daemon=True
            )
            beat.start()
        return self._connection

    def _connect(self, url: str) -> pika.BlockingConnection:
        try:
            address = read_address(url)
        except ValueError as error:
            raise QueueError(f"option 'url': {error}.", where=self._where) from None
        declared = self._declared
        files = {"tls.ca": declared.tls_ca, "tls.certificate": declared.tls_certificate, "tls.key": declared.tls_key}
        given = [name for name, file in files.items() if file is not None]
        if given and not address.is_tls:
            raise QueueError(
                f"option '{given[0]}' is for an address that begins with amqps://, and `url` stands for another one.",
                where=self._where,
            )
        parameters = pika.ConnectionParameters(
            host=address.host,
            port=address.port,
            virtual_host=address.virtual_host,
            credentials=pika.PlainCredentials(address.user, address.password, erase_on_connect=True),
            heartbeat=_HEARTBEAT_SECONDS,
            socket_timeout=_CONNECT_SECONDS,
            stack_timeout=_CONNECT_SECONDS,
            blocked_connection_timeout=_HEARTBEAT_SECONDS,
            ssl_options=self._tls(address.host) if address.is_tls else None,
            client_properties={"connection_name": f"freshline {declared.place}"},
        )
        connection: Any = _Connection
        return pika.BlockingConnection(parameters, _impl_class=connection)

    def _tls(self, host: str) -> pika.SSLOptions:
        declared = self._declared
        try:
            context = tls_context(declared.tls_ca, declared.tls_certificate, declared.tls_key)
        except (OSError, ValueError) as error:
            raise QueueError(
                f"a file of 'tls.ca', 'tls.certificate' or 'tls.key' cannot be used: {_shown(error)}. Correct it.",
                where=self._where,
            ) from None
        return pika.SSLOptions(context, host)

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        self._is_closed.set()
        if connection is not None and connection.is_open:
            with suppress(exceptions.AMQPError, OSError):
                connection.close()

    def _answer_heartbeats(self) -> None:
        """Process the broker's frames of meanwhile; the next user of a connection finds whether it broke."""
        # The thread that holds the lock answers them.
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._connection is not None and self._connection.is_open:
                with suppress(exceptions.AMQPError, OSError):
                    self._connection.process_data_events(0)
        finally:
            self._lock.release()

    def __del__(self) -> None:
        self._is_closed.set()


def _close(connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
    """Close a channel, and no more: what was sent and not acknowledged goes back.

    pika's blocking channel first rejects what is on its way, at which a stream ends the connection.
    """
    inner = channel._impl
    inner.close()
    # As pika waits for every answer.
    connection._flush_output(lambda: inner.is_closed)


def _beat(client: weakref.ref[RabbitClient], is_closed: threading.Event) -> None:
    while not is_closed.wait(_BEAT_SECONDS):
        found = client()
        if found is None:
            return
        found._answer_heartbeats()
        del found


def message_of(method: spec.Basic.Deliver | spec.Basic.GetOk, properties: Any, body: bytes) -> DeliveredMessage:
    """A message as pika gives it."""
    return DeliveredMessage(
        int(method.delivery_tag),
        body,
        as_text(method.exchange),
        as_text(method.routing_key),
        bool(method.redelivered),
        properties,
    )


def heard_at(channel: BlockingChannel) -> float:
    """The time of the last part of a message on a channel's connection, by `time.monotonic`; 0 before the first.

    A large message comes for longer than a broker may be silent.
    """
    return float(channel.connection._impl.heard_at)


def receive(channel: BlockingChannel, name: str, receiver: Receiver, **more: Any) -> str:
    """Have the messages of a queue or stream given to a receiver; returns the consumer's tag."""

    def on_message(_: Any, method: spec.Basic.Deliver, properties: Any, body: bytes) -> None:
        receiver(message_of(method, properties, body))

    return str(channel.basic_consume(name, on_message, auto_ack=False, **more))


# -- errors


def source_error(error: BaseException, declared: RabbitMq, *, where: str) -> SourceError:
    """The error to report for one of pika's. It shows no address."""
    code, said = getattr(error, "reply_code", None), str(getattr(error, "reply_text", "") or "")
    what = declared.title_of
    if isinstance(error, exceptions.ProbableAuthenticationError | exceptions.AuthenticationError):
        return QueueError("the broker refuses the user or the password. Correct what `url` stands for.", where=where)
    if code == 540 and "stream queues" in said:
        return QueueError(f"{declared.place} is a stream. Declare it with 'stream'.", where=where)
    if isinstance(error, exceptions.ProbableAccessDeniedError) or (
        isinstance(error, exceptions.ConnectionClosedByBroker) and code in (402, 403, 530)
    ):
        return QueueError(
            f"the broker refuses the user or the virtual host{_because(said)}. Correct what `url` stands for.",
            where=where,
        )
    if isinstance(error, exceptions.ChannelClosedByBroker):
        # A broker that has just started knows its queues before it can use them.
        if code == 404 and "inaccessible" not in said:
            return QueueError(f"there is no {what} at the broker. Create it, or correct its name.", where=where)
        if (code == 403 and "exclusive" in said) or code == 405:
            return QueueForeignError(
                f"the {what} is in use by somebody else, and would give them a part of its messages{_because(said)}. A "
                "queue is read by one source alone: bind a queue of its own to the exchange.",
                where=where,
            )
        if "of queue type" in said:
            other = "a stream" if "rabbit_stream_queue" in said else "a queue"
            option = "stream" if other == "a stream" else "queue"
            return QueueError(f"{declared.place} is {other}. Declare it with '{option}'.", where=where)
        if code in _REFUSED:
            return QueueError(f"the broker refuses the {what}{_because(said)}. Correct what it names.", where=where)
    if isinstance(error, ssl.SSLCertVerificationError):
        return QueueError(
            f"the certificate of the broker is not accepted: {error.verify_message}. Name the authority that signed it "
            "in 'tls.ca', and the host as the certificate has it in `url`.",
            where=where,
        )
    if isinstance(error, ssl.SSLError) and "ALERT" in str(error.reason or ""):
        return QueueError(
            f"the broker refuses the TLS connection: {error.reason}. Correct 'tls.certificate'.", where=where
        )
    if isinstance(error, socket.gaierror):
        return BrokerError("the host that `url` names is not known. Nothing was read; it is tried again.", where=where)
    return BrokerError(
        f"the broker of {what} does not answer{_because(said)}. Nothing was read; it is tried again.", where=where
    )


def _because(said: str) -> str:
    return f" ({said})" if said else ""


def _shown(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is none")
