"""A webhook as a sink: posts in order, each with a key by which a service knows one that is repeated.

The service cannot say what it has, so an outbox of ours does (`freshline.sinks.webhook.outbox`). A delivery that was
stopped is ended before anything else is sent: with the same bytes and keys, from the first post that was not confirmed.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from freshline.errors import DeliveryError, SinkError, SinkRefusedError, SinkRejectedError, SinkSchemaError
from freshline.report.alerts.channels.web import find_private, send
from freshline.report.alerts.channels.webhook import SIGNATURE, sign
from freshline.sinks.webhook.lines import UnreadableRowError, bodies, marker, row_lines
from freshline.sinks.webhook.outbox import Notes, Outbox
from freshline.sinks.webhook.sink import WebhookSink
from freshline.sinks.writer import (
    Delivered,
    Delivery,
    KeepRejected,
    LeftRejected,
    OutgoingRows,
    RejectedRow,
    SinkHost,
    SinkWriter,
)
from freshline.sources.tls import tls_context
from freshline.values.alert_settings import web_problem
from freshline.values.sink import OnReject
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec

_POST_BYTES, _LONGEST_POST = 1024**2, 256 * 1024**2
# Answers about the rows of a post, and answers that another try may change.
_OF_ROWS = (400, 409, 413, 422)
_LATER = (408, 425, 429)
# The seconds before another try, and the most that a service may ask for.
_PAUSES, _LONGEST_PAUSE = (0.5, 1.0, 2.0, 4.0), 60.0


class WebhookHost(SinkHost, Protocol):
    """The part of the engine that this writer uses."""

    @property
    def sink_notes(self) -> Path:
        """The folder of the notes of sinks, in the warehouse."""


class WebhookWriter(SinkWriter):
    """Posts the changes of a table. `pause` waits so many seconds."""

    def __init__(self, spec: TableSpec, host: WebhookHost, pause: Callable[[float], None] = time.sleep) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.sink, WebhookSink)
        self._sink = spec.sink
        self._outbox = Outbox(host.sink_notes / str(spec.name))
        self._sets_aside = spec.on_reject is OnReject.QUARANTINE
        self._pause = pause
        self._left: frozenset[int] = frozenset()

    def position(self) -> SinkPosition | None:
        self._end_delivery()
        return self._notes().position

    def apply(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        return self._deliver(rows, delivery, keep_rejected, "changes")

    def compare(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        return self._deliver(rows, delivery, keep_rejected, "snapshot")

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        raise SinkRefusedError(
            "a webhook cannot be asked for the rows that its service has. Compare them there.", where=self.where
        )

    def left_rejected(self) -> LeftRejected | None:
        found = self._outbox.rejected()
        self._left = frozenset(found)
        return LeftRejected(tuple(chain.from_iterable(found.values())), max(found)) if found else None

    def forget_left(self) -> None:
        self._outbox.forget_rejected(self._left)

    def _deliver(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected, kind: str) -> Delivered:
        self._end_delivery()
        notes = self._notes()
        self.require_position(notes.position, delivery)
        number = max(notes.number + 1, delivery.after.seq)
        unreadable: list[RejectedRow] = []
        lines = self._lines(rows, delivery, kind, unreadable)
        posts = bodies(lines, self._sink.rows_per_request, _POST_BYTES)
        self._outbox.begin(delivery.after, number, posts, unreadable)
        self._send_posts(notes)
        seq = delivery.after.seq
        rejected = self._outbox.rejected().get(seq)
        if rejected:
            keep_rejected(rejected)
        self.host.failpoint("sink-before-commit")
        self._commit(delivery.after, number)
        self._outbox.forget_rejected({seq})
        self.host.failpoint("sink-committed")
        return Delivered(rows.upserts - len(unreadable), rows.deletes)

    def _end_delivery(self) -> None:
        """Send the posts of a delivery that was stopped, if there is one. Rows that are refused are `left_rejected`."""
        sending = self._outbox.sending()
        if sending is not None:
            self._send_posts(self._notes())
            self._commit(sending.after, sending.number)

    def _commit(self, after: SinkPosition, number: int) -> None:
        self._outbox.write_notes(Notes(after, number))
        self._outbox.end()

    def _notes(self) -> Notes:
        try:
            return self._outbox.read_notes()
        except (ValueError, KeyError, TypeError) as error:
            raise SinkSchemaError(
                f"the notes in {self._outbox.folder} are damaged. Remove that folder, then all rows are sent again.",
                where=self.where,
            ) from error

    def _lines(
        self, rows: OutgoingRows, delivery: Delivery, kind: str, unreadable: list[RejectedRow]
    ) -> Iterator[bytes]:
        facts = {"kind": kind, "table": str(self.spec.reads[0]), "position": json.loads(delivery.after.to_json())}
        yield marker("begin", {**facts, "key": list(self.spec.primary_key)})
        count = 0
        for batches, operation in ((rows.read_deletes(), "delete"), (rows.read_upserts(), "upsert")):
            for batch in batches:
                # The note of JSON is in the columns of all rows, and not in those of a batch.
                noted = batch.cast(rows.schema)
                sent = noted.select(list(self.spec.primary_key)) if operation == "delete" else noted
                for index, line in enumerate(row_lines(sent, operation)):
                    if isinstance(line, UnreadableRowError):
                        unreadable.append(self._unreadable(sent.slice(index, 1), line))
                    else:
                        count += 1
                        yield line
        yield marker("end", {"kind": kind, "rows": count})

    def _unreadable(self, row: pa.RecordBatch, error: UnreadableRowError) -> RejectedRow:
        if not self._sets_aside:
            raise SinkRejectedError(
                f"{error}, and JSON has no other. Nothing was sent. Correct the row, or declare "
                "'on-reject' = 'quarantine'.",
                where=self.where,
            )
        keys = row.select(list(self.spec.primary_key))
        text = next(iter(row_lines(keys, "upsert")))
        shown = "{}" if isinstance(text, UnreadableRowError) else json.dumps(json.loads(text)["row"])
        return RejectedRow(shown, "NOT_UTF8", str(error))

    def _send_posts(self, notes: Notes) -> None:
        """Send the posts of the outbox that were not confirmed."""
        sending = self._outbox.sending()
        assert sending is not None
        if sending.rejected:
            self._outbox.reject(sending.after.seq, -1, sending.rejected)
        for post in range(sending.confirmed, sending.posts):
            # Written by an engine that came in the meantime.
            if self._notes() != notes:
                raise SinkError("another engine has sent changes in the meantime. Ask again.", where=self.where)
            key = f"{self.spec.name}/{self.spec.reads[0]}/{sending.number}/{post}"
            lines = self._outbox.lines(post)
            try:
                rejected = self._send_lines(lines, key, sending.after, 0, len(lines))
            except SinkRejectedError:
                # The row can only change by other rows than these: all are sent again, under another number.
                self._outbox.write_notes(Notes(None, sending.number))
                self._outbox.end()
                raise
            if rejected:
                self._outbox.reject(sending.after.seq, post, rejected)
            self._outbox.confirm(post)
            self.host.failpoint("sink-post-confirmed")

    def _send_lines(self, lines: list[bytes], key: str, after: SinkPosition, start: int, end: int) -> list[RejectedRow]:
        """Send these lines of a post; where rows are refused, its halves, down to the row that is not taken."""
        is_whole = end - start == len(lines)
        status = self._send(b"\n".join(lines[start:end]) + b"\n", key if is_whole else f"{key}:{start}-{end}", after)
        if 200 <= status < 300:
            return []
        is_row = b'"row"' in lines[start]
        if status not in _OF_ROWS or (end - start == 1 and not is_row):
            raise SinkRefusedError(
                f"the service answers {status}. Correct what `url` or `secret` stands for, or the service. The "
                "delivery goes on where it was stopped.",
                where=self.where,
            )
        if not self._sets_aside:
            raise SinkRejectedError(
                f"the service does not take a row: it answers {status}. Correct the row or the service, or declare "
                "'on-reject' = 'quarantine'. Posts before this one were sent; all rows are sent next.",
                where=self.where,
            )
        if end - start == 1:
            row = json.loads(lines[start])["row"]
            return [RejectedRow(json.dumps(row, ensure_ascii=False), str(status), f"the service answers {status}")]
        half = (start + end) // 2
        return self._send_lines(lines, key, after, start, half) + self._send_lines(lines, key, after, half, end)

    def _send(self, body: bytes, key: str, after: SinkPosition) -> int:
        """The status that the service answers with, after it was asked to wait or did not answer."""
        url, secret = self.secret("url", self._sink.url), self.secret("secret", self._sink.secret)
        private = self._sink.private_addresses
        problem = web_problem(url, private=private)
        if problem is not None:
            raise SinkRefusedError(f"option 'url': the address {problem}", where=self.where)
        headers = {
            "Content-Type": "application/x-ndjson",
            "Idempotency-Key": key,
            "Freshline-Epoch": str(after.epoch),
        }
        context = self._tls_context()
        said = "the service does not answer"
        for pause in (*_PAUSES, None):
            headers[SIGNATURE] = sign(secret, int(self.host.clock().timestamp()), body)
            asked: float | None = None
            try:
                found = None if private else find_private(url)
                if found is not None:
                    raise SinkRefusedError(
                        f"option 'url': it stands for {found}, which is not an address of the public internet. If that "
                        "is meant, declare 'private-addresses' = 'true'.",
                        where=self.where,
                    )
                answer = send(
                    url,
                    body,
                    headers,
                    private=private,
                    timeout=self._sink.timeout,
                    longest=_LONGEST_POST,
                    context=context,
                )
                if answer.status < 500 and answer.status not in _LATER:
                    return answer.status
                said, asked = f"the service answers {answer.status}", answer.retry_after
            except DeliveryError as error:
                if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                    raise SinkRefusedError(
                        f"{str(error).rstrip('.')}. Set tls.ca to the certificates that it is checked by.",
                        where=self.where,
                    ) from error
                said = str(error).rstrip(".")
            if pause is None or (asked is not None and asked > _LONGEST_PAUSE):
                break
            self._pause(pause if asked is None else asked)
        raise SinkError(f"{said}. The delivery goes on where it was stopped.", where=self.where)

    def _tls_context(self) -> ssl.SSLContext:
        """The files of TLS as they are now: a certificate that is renewed counts from the next post on."""
        try:
            return tls_context(self._sink.tls_ca, self._sink.tls_certificate, self._sink.tls_key)
        except (OSError, ValueError) as error:
            raise SinkRefusedError(
                "the files of tls.ca, tls.certificate and tls.key cannot be used: "
                f"{getattr(error, 'strerror', None) or type(error).__name__}. Correct them.",
                where=self.where,
            ) from error
