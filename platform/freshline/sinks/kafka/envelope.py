"""Changes as records with the row before and the row after: plain, or in the envelope of Debezium."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from freshline.sinks.kafka.json_rows import decode_object, encode_rows, joined, json_text
from freshline.values.changed_rows import ChangedRows
from freshline.values.sink_position import SinkPosition

_NULL = "null"


@dataclass(frozen=True)
class Envelope:
    """The form of the records of one refresh: `more` stands behind `before`, `after` and `op`."""

    more: str = ""

    @classmethod
    def of_debezium(cls, name: str, after: SinkPosition, now: datetime) -> Envelope:
        """The envelope of Debezium. The version and the refresh are the place of a change, so none comes twice."""
        at = int(now.timestamp() * 1000)
        source = {
            "connector": "freshline",
            "name": name,
            "ts_ms": at,
            "commit": after.table.version,
            "refresh": after.seq,
        }
        return cls(f',"source":{json.dumps(source, separators=(",", ":"))},"ts_ms":{at}')

    def encode(self, changes: ChangedRows) -> pa.Array:
        """The changes as JSON objects."""
        before = pc.if_else(changes.had, encode_rows(changes.before), pa.scalar(_NULL, pa.large_string()))
        after = pc.if_else(changes.has, encode_rows(changes.after), pa.scalar(_NULL, pa.large_string()))
        op = pc.if_else(pc.and_(changes.had, changes.has), "u", pc.if_else(changes.has, "c", "d")).cast(
            pa.large_string()
        )
        return joined(['{"before":', before, ',"after":', after, ',"op":"', op, f'"{self.more}}}'])

    def record(self, before: bytes | None, after: bytes | None) -> bytes:
        """One change of rows that are JSON already."""
        op = "d" if after is None else "c" if before is None else "u"
        images = (_NULL if each is None else each.decode() for each in (before, after))
        return '{{"before":{},"after":{},"op":"{}"{}}}'.format(*images, op, self.more).encode()


def images_of(record: bytes) -> tuple[bytes | None, bytes | None]:
    """The rows before and after, as the JSON texts that these rows have. Raises ValueError for another record."""
    found = decode_object(record)
    if not {"before", "after", "op"} <= found.keys():
        raise ValueError("it has no before, after and op")
    before, after = (None if found[side] is None else json_text(found[side]).encode() for side in ("before", "after"))
    return before, after
