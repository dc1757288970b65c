"""The form of keys and values: JSON, or Avro with the schemas of a registry.

A form makes the record of a row, and of a change. An image is a row as it is compared: two rows are equal where their
images are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from freshline.sinks.kafka.avro_rows import (
    RecordDecoder,
    RowEncoder,
    broken_rows,
    change_schema,
    decoded_rows,
    schema_text,
)
from freshline.sinks.kafka.envelope import Envelope, images_of
from freshline.sinks.kafka.json_rows import broken_texts, decode_rows, encode_rows
from freshline.sinks.kafka.registered import RegisteredSchemas
from freshline.sources.formats.framing import FRAME_BYTES, MARK, schema_id_of
from freshline.values.changed_rows import ChangedRows


class RecordForm(ABC):
    """Makes records of rows, and rows of records. Methods that read raise ValueError for a record that is none."""

    @abstractmethod
    def keys(self, rows: pa.RecordBatch, names: Sequence[str]) -> list[bytes]:
        """The keys of rows: the columns of these names."""

    @abstractmethod
    def values(self, rows: pa.RecordBatch) -> list[bytes]:
        """The values of records whose meaning is the row."""

    @abstractmethod
    def images(self, rows: pa.RecordBatch) -> list[bytes]:
        """The rows as they are compared."""

    @abstractmethod
    def changes(self, changes: ChangedRows) -> list[bytes]:
        """The values of records whose meaning is a change."""

    @abstractmethod
    def change(self, before: bytes | None, after: bytes | None) -> bytes:
        """The value of the record of one change, of images."""

    @abstractmethod
    def images_of(self, records: Sequence[bytes]) -> list[tuple[bytes | None, bytes | None]]:
        """The images before and after each change."""

    @abstractmethod
    def rows(self, values: Sequence[bytes], schema: pa.Schema, *, images: bool) -> pa.RecordBatch:
        """The rows of values, or of images."""

    @abstractmethod
    def broken(self, rows: pa.RecordBatch) -> list[int]:
        """The places of rows with a text that is no UTF-8."""


class JsonForm(RecordForm):
    """Objects of JSON; the value is the image."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope

    def keys(self, rows: pa.RecordBatch, names: Sequence[str]) -> list[bytes]:
        return _bytes(encode_rows(rows, names))

    def values(self, rows: pa.RecordBatch) -> list[bytes]:
        return _bytes(encode_rows(rows))

    def images(self, rows: pa.RecordBatch) -> list[bytes]:
        return self.values(rows)

    def changes(self, changes: ChangedRows) -> list[bytes]:
        return _bytes(self._envelope.encode(changes))

    def change(self, before: bytes | None, after: bytes | None) -> bytes:
        return self._envelope.record(before, after)

    def images_of(self, records: Sequence[bytes]) -> list[tuple[bytes | None, bytes | None]]:
        return [images_of(record) for record in records]

    def rows(self, values: Sequence[bytes], schema: pa.Schema, *, images: bool) -> pa.RecordBatch:
        return decode_rows(values, schema)

    def broken(self, rows: pa.RecordBatch) -> list[int]:
        return broken_texts(rows)


class AvroForm(RecordForm):
    """Records of Avro behind the frame of a registry; the image is the record of the row without the frame.

    `columns` are those of the table, `keys` those of its PRIMARY KEY, and `name` is that of the record. Raises
    ValueError where Avro has no schema for them.
    """

    def __init__(
        self, columns: pa.Schema, keys: Sequence[str], name: str, schemas: RegisteredSchemas, *, of_changes: bool
    ) -> None:
        self._schemas = schemas
        self._row = RowEncoder(columns, name)
        self._key = RowEncoder(pa.schema([columns.field(key) for key in keys]), f"{name}_key")
        self._value_text = schema_text(change_schema(columns, name) if of_changes else self._row.schema)
        self._key_text = schema_text(self._key.schema)
        self._decoders: dict[int, RecordDecoder] = {}

    def register(self, *, has_key: bool) -> None:
        """Have the schemas in the registry, before a record names them. Raises the errors of sinks."""
        if has_key:
            self._schemas.register("key", self._key_text)
        self._schemas.register("value", self._value_text)

    def keys(self, rows: pa.RecordBatch, names: Sequence[str]) -> list[bytes]:
        frame = self._frame("key")
        return [frame + key for key in self._key.encode(rows)]

    def values(self, rows: pa.RecordBatch) -> list[bytes]:
        frame = self._frame("value")
        return [frame + image for image in self._row.encode(rows)]

    def images(self, rows: pa.RecordBatch) -> list[bytes]:
        return self._row.encode(rows)

    def changes(self, changes: ChangedRows) -> list[bytes]:
        had, has = changes.had.to_pylist(), changes.has.to_pylist()
        before, after = self._row.encode(changes.before, had), self._row.encode(changes.after, has)
        return [
            self.change(old if was else None, new if is_there else None)
            for old, was, new, is_there in zip(before, had, after, has, strict=True)
        ]

    def change(self, before: bytes | None, after: bytes | None) -> bytes:
        op = b"d" if after is None else b"c" if before is None else b"u"
        # A union is the number of its branch and the value, and a text its length and its bytes: both in zigzag.
        images = [b"\x00" if image is None else b"\x02" + image for image in (before, after)]
        return self._frame("value") + b"".join(images) + b"\x02" + op

    def images_of(self, records: Sequence[bytes]) -> list[tuple[bytes | None, bytes | None]]:
        found: list[tuple[bytes | None, bytes | None]] = []
        for row in self._decoded(records):
            if not {"before", "after", "op"} <= row.keys():
                raise ValueError("it has no before, after and op")
            before, after = (
                None if row[side] is None else self._row.encode_values(row[side]) for side in ("before", "after")
            )
            found.append((before, after))
        return found

    def rows(self, values: Sequence[bytes], schema: pa.Schema, *, images: bool) -> pa.RecordBatch:
        if not images:
            return decoded_rows(self._decoded(values), schema)
        own = RecordDecoder(schema_text(self._row.schema))
        return decoded_rows([own.decode(value) for value in values], schema)

    def broken(self, rows: pa.RecordBatch) -> list[int]:
        return broken_rows(rows)

    def _frame(self, side: str) -> bytes:
        return MARK + self._schemas.id_of(side).to_bytes(FRAME_BYTES - 1, "big")

    def _decoded(self, records: Sequence[bytes]) -> list[dict[str, Any]]:
        ids = [schema_id_of(record) for record in records]
        if any(each is None for each in ids):
            raise ValueError("it has no frame of a schema registry")
        named = [each for each in ids if each is not None]
        for schema_id, text in self._schemas.texts(set(named) - self._decoders.keys()).items():
            self._decoders[schema_id] = RecordDecoder(text)
        return [
            self._decoders[schema_id].decode(record[FRAME_BYTES:])
            for schema_id, record in zip(named, records, strict=True)
        ]


def _bytes(texts: pa.Array) -> list[bytes]:
    found: list[bytes] = texts.cast(pa.large_binary()).to_pylist()
    return found
