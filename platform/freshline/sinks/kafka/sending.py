"""Rows of one refresh as records: the newest row of each key, or each change with both of its images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from freshline.errors import SinkRejectedError
from freshline.sinks.kafka.client import RECORD_BYTES, Writing
from freshline.sinks.kafka.folded import Counted, Folded
from freshline.sinks.kafka.forms import RecordForm
from freshline.sinks.writer import Delivered, OutgoingRows, RejectedRow
from freshline.values.changed_rows import ChangedRows
from freshline.values.sink import OnReject
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec

# The codes of rows that the topic does not take.
TOO_LARGE, NOT_UTF8 = "MSG_SIZE_TOO_LARGE", "NOT_UTF8"
_NO_TEXT = "a text is no UTF-8, which JSON and Avro must have"
_DIGEST = 16


class UpsertSending:
    """Rows of one refresh as records."""

    def __init__(
        self, spec: TableSpec, form: RecordForm, writing: Writing, most_bytes: int, held: SinkPosition | None
    ) -> None:
        self.held = held
        self.form = form
        self.rejected: list[RejectedRow] = []
        self._spec = spec
        self._writing = writing
        self._most_bytes = most_bytes - RECORD_BYTES

    def upsert(self, rows: OutgoingRows, there: Folded | None = None) -> int:
        """Send rows, without those that are in the topic already; how many were sent."""
        sent = 0
        for batch in _with_notes(rows.read_upserts(), rows.schema):
            taken = self._without_broken(batch, there)
            keys, values = self.form.keys(taken, self._spec.primary_key), self.form.values(taken)
            known: Sequence[bytes | None] = [None] * len(keys)
            if there is not None:
                known = there.find(keys)
                there.keep(keys)
            for at, (key, value, before) in enumerate(zip(keys, values, known, strict=True)):
                if before is not None and before == digest_of(value):
                    continue
                if len(key) + len(value) > self._most_bytes:
                    self._reject_large(taken, at, len(key) + len(value))
                    continue
                self._writing.send(key, value)
                sent += 1
        return sent

    def delete(self, rows: OutgoingRows) -> int:
        """Send tombstones; how many."""
        sent = 0
        for batch in _with_notes(rows.read_deletes(), rows.schema):
            # A key that is no text was never taken.
            keys = batch.select(list(self._spec.primary_key))
            broken = set(self.form.broken(keys))
            taken = keys.take([at for at in range(keys.num_rows) if at not in broken]) if broken else keys
            for key in self.form.keys(taken, self._spec.primary_key):
                self._writing.send(key, None)
            sent += taken.num_rows
        return sent

    def delete_left(self, there: Folded) -> int:
        """Send tombstones for keys that do not belong there, to the partitions that have them; how many."""
        sent = 0
        for key, partition, _ in there.left():
            self._writing.send(key, None, partition)
            sent += 1
        return sent

    def _without_broken(self, batch: pa.RecordBatch, there: Folded | None) -> pa.RecordBatch:
        """The rows whose texts are UTF-8; the others are rejected, and what the topic has of their keys stays."""
        broken = self.form.broken(batch)
        if not broken:
            return batch
        for at in broken:
            self._reject(batch, at, NOT_UTF8, _NO_TEXT)
        left = batch.take(broken).select(list(self._spec.primary_key))
        if there is not None and not self.form.broken(left):
            there.keep(self.form.keys(left, self._spec.primary_key))
        whole = set(broken)
        return batch.take([at for at in range(batch.num_rows) if at not in whole])

    def _reject_large(self, batch: pa.RecordBatch, at: int, size: int) -> None:
        self._reject(batch, at, TOO_LARGE, f"its record has {size} bytes, and the topic takes {self._most_bytes}")

    def _reject(self, batch: pa.RecordBatch, at: int, code: str, message: str) -> None:
        if self._spec.on_reject is not OnReject.QUARANTINE:
            raise SinkRejectedError(
                f"the topic does not take a row: {message}. Nothing was written. Correct the row or the topic "
                "(max.message.bytes), or declare 'on-reject' = 'quarantine'.",
                where=str(self._spec.name),
            )
        self.rejected.append(RejectedRow(_row_text(batch.slice(at, 1)), code, message))


class ChangeSending(UpsertSending):
    """Changes with both of their images."""

    def change(self, rows: OutgoingRows) -> Delivered:
        """Send changes; how many rows are there afterwards, and how many went."""
        written = deleted = 0
        for given in rows.read_changes():
            changes = self._taken(given, rows.schema)
            records = self.form.changes(changes)
            for at, (key, value) in enumerate(zip(self._keys(changes.after), records, strict=True)):
                is_there = changes.has[at].as_py()
                if is_there and len(key or b"") + len(value) > self._most_bytes:
                    self._reject_large(changes.after, at, len(key or b"") + len(value))
                    continue
                self._writing.send(key, value)
                written, deleted = written + is_there, deleted + (not is_there)
        return Delivered(written, deleted)

    def compare(self, rows: OutgoingRows, there: Folded | Counted) -> Delivered:
        """Send the difference between the rows and those that the topic has."""
        written = 0
        for batch in _with_notes(rows.read_upserts(), rows.schema):
            taken = self._without_broken(batch, there if isinstance(there, Folded) else None)
            keys, images = self._keys(taken), self.form.images(taken)
            for at, (key, image, before) in enumerate(zip(keys, images, _known(there, keys, images), strict=True)):
                if before == image:
                    continue
                record = self.form.change(before, image)
                if len(key or b"") + len(record) > self._most_bytes:
                    self._reject_large(taken, at, len(key or b"") + len(record))
                    continue
                self._writing.send(key, record)
                written += 1
        deleted = 0
        left = there.left() if isinstance(there, Folded) else ((None, -1, value) for value in there.left())
        for key, partition, value in left:
            self._writing.send(key, self.form.change(value, None), partition)
            deleted += 1
        return Delivered(written, deleted)

    def _keys(self, rows: pa.RecordBatch) -> Sequence[bytes | None]:
        keys = self._spec.primary_key
        return self.form.keys(rows, keys) if keys else [None] * rows.num_rows

    def _taken(self, changes: ChangedRows, schema: pa.Schema) -> ChangedRows:
        """The changes whose texts are UTF-8, with the metadata of their columns."""
        (before,), (after,) = (_with_notes(iter((each,)), schema) for each in (changes.before, changes.after))
        broken = {at for at in self.form.broken(after) if changes.has[at].as_py()}
        for at in sorted(broken):
            self._reject(after, at, NOT_UTF8, _NO_TEXT)
        # A row that was not taken when it came is not known to readers: neither is that it was changed, or went.
        hidden = {at for at in self.form.broken(before) if changes.had[at].as_py()}
        had = pa.array([each and at not in hidden for at, each in enumerate(changes.had.to_pylist())], pa.bool_())
        gone = {at for at in hidden if not changes.has[at].as_py()}
        stay = pa.array([at for at in range(after.num_rows) if at not in broken | gone], pa.int64())
        blank = _without_texts(before, hidden)
        return ChangedRows(blank.take(stay), after.take(stay), had.take(stay), changes.has.take(stay))


def _without_texts(rows: pa.RecordBatch, places: set[int]) -> pa.RecordBatch:
    """The rows, those at some places NULL."""
    if not places:
        return rows
    stays = pa.array([at not in places for at in range(rows.num_rows)], pa.bool_())
    columns = [pc.if_else(stays, column, pa.scalar(None, column.type)) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _known(there: Folded | Counted, keys: Sequence[bytes | None], images: Sequence[bytes]) -> Sequence[bytes | None]:
    """The rows that the topic has in the place of these, None where it has none."""
    if isinstance(there, Counted):
        return [image if there.take(image) else None for image in images]
    named = [key for key in keys if key is not None]
    found = there.find(named)
    there.keep(named)
    return found


def _with_notes(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches with the metadata of their columns, which say what is JSON."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


def digest_of(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST).digest()


def _row_text(row: pa.RecordBatch) -> str:
    """A row as a JSON text, also where its texts are no UTF-8."""
    values = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        if pa.types.is_string(column.type):
            content = column.view(pa.binary()).to_pylist()[0]
            values[name] = None if content is None else content.decode(errors="replace")
        else:
            try:
                values[name] = column.to_pylist()[0]
            except UnicodeDecodeError:
                values[name] = "a text within it is no UTF-8"
    return json.dumps(values, ensure_ascii=False, default=str)
