"""The kind of change of an input between two of its versions, found from its log alone.

The class of a range decides which strategies can be right for it. No row is read for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from freshline.values.names import TableName
from freshline.values.position import TablePosition


class ChangeKind(StrEnum):
    """The worst that happened in a range of versions; later members need more work than earlier ones."""

    NOTHING = "nothing"  # no commit changed data
    APPEND = "append"  # rows were only added
    MUTATE = "mutate"  # rows were updated or deleted
    REPLACE = "replace"  # the whole table was overwritten
    SCHEMA_CHANGED = "schema change"
    HISTORY_GONE = "history gone"  # a commit of the range is no longer in the log
    SOURCE_REPLACED = "source replaced"  # another table stands at the same path, or it was rolled back


@dataclass(frozen=True)
class RecordedFiles:
    """The files that have the changes of a range, as Delta's log names them.

    `changed` say of each row what it was, the rows of `added` were inserted.
    """

    changed: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True)
class Changes:
    """The versions (before, after] of one input.

    `log` marks a log table of ours: its rows carry the batch number, so its changes are read from the newest
    snapshot. `change_feed` says whether Delta recorded row changes for the whole range. `added_files` are the data
    files of an append, as Delta's log names them; with `files_are_exact` they have all of its rows and no others,
    which is known of a log where its commits still name their batches. `recorded` are the files that have the changes
    of the range, None where that takes more than files. `rows` is how many rows the commits say they touched.
    `gained` are columns that the input has now and had not before; all others are as they were.
    """

    name: TableName
    before: TablePosition | None
    after: TablePosition
    kind: ChangeKind
    log: bool = False
    change_feed: bool = False
    added_files: tuple[str, ...] = ()
    files_are_exact: bool = False
    recorded: RecordedFiles | None = None
    rows: int = 0
    detail: str = ""
    gained: tuple[str, ...] = ()
