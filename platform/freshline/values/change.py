"""Change feeds: sources whose records say how rows of a database changed.

The log table of a change feed has one row for each event: the declared columns of the row's new image (of the key for a
delete), and the facts of the event, which are METADATA. The names and columns of these facts stand here, because
declarations, formats and merges share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from freshline.values.connector import Metadata

OP = "_freshline_op"
POSITION = "_freshline_change_position"
CHANGED_AT = "_freshline_changed_at"
TRANSACTION = "_freshline_transaction"
UNSENT = "_freshline_unsent"
# Bits that stand for the row that an event took away, where the database sent it; and that row, while it is decoded.
REMOVED = "_freshline_removed"
BEFORE, UNFIT = "_freshline_before_image", "_freshline_unfit"

CHANGE_METADATA: Mapping[str, Metadata] = {
    "op": Metadata("STRING", OP),
    "position": Metadata("STRING", POSITION),
    "changed_at": Metadata("TIMESTAMP", CHANGED_AT, ordered=True),
    "transaction": Metadata("STRING", TRANSACTION),
    "unsent": Metadata("ARRAY<STRING>", UNSENT),
    "removed": Metadata("BIGINT", REMOVED),
}


class Tombstones(StrEnum):
    """The meaning of a record without a value."""

    QUARANTINE = "quarantine"
    SKIP = "skip"
    DELETE = "delete"


# Values of OP: a row was inserted, updated, deleted, or read by a snapshot, or all rows were removed. A row with a key
# that two rows had for a moment was deleted, and the other one is kept: the event is that of the delete.
INSERT, UPDATE, DELETE, READ, TRUNCATE, KEPT = "c", "u", "d", "r", "t", "k"
# The databases whose positions are in order as texts, by what stands before the colon.
IN_ORDER = ("postgresql", "mysql", "mariadb", "sqlserver")
