"""The frame of a schema registry around a record: a zero, the number of the schema in four bytes, and the record.

Pure, and sent to the processes of Spark as it is: it uses nothing of freshline.
"""

from __future__ import annotations

MARK = b"\x00"
FRAME_BYTES = 5


def schema_id_of(record: bytes) -> int | None:
    """The number of the schema that a framed record names; None for a record without a frame.

    Numbers have 31 bits, so a first bit is damage.
    """
    if len(record) < FRAME_BYTES or record[:1] != MARK or record[1] > 0x7F:
        return None
    return int.from_bytes(record[1:FRAME_BYTES], "big")
