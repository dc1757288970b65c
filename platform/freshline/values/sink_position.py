"""The position of a sink: which state of its table the sink has, as it stands in the sink itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from freshline.values.position import TablePosition
from freshline.values.receipt import transaction_version


@dataclass(frozen=True)
class SinkPosition:
    """The state that a sink has.

    `owner` identifies the sink that wrote it: its name, and the id of its table of receipts. `table` is the version of
    the table whose rows these are, `seq` the number of the sink's refresh, and `epoch` that of the engine. `unfinished`
    is a later version of the table that an attempt began to write and did not finish, where the system has no
    transactions: some rows may be as they are there. It is known by the writer, and no part of the text.
    """

    owner: str
    table: TablePosition
    seq: int
    epoch: int
    unfinished: TablePosition | None = None

    def has_state_of(self, other: SinkPosition) -> bool:
        """Whether both are of the same rows."""
        mine, theirs = self.table, other.table
        return self.owner == other.owner and mine == theirs

    @property
    def number(self) -> int:
        """A number that grows with every refresh, and with every engine: the version of the rows that it writes."""
        return transaction_version(self.epoch, self.seq)

    def after_attempts(self, *begun: SinkPosition) -> SinkPosition:
        """The position where these attempts at later changes were begun, and none is known to have been finished."""
        if not begun:
            return self
        furthest = max(begun, key=lambda each: each.table.version)
        epoch = max(self.epoch, *[each.epoch for each in begun])
        return replace(self, epoch=epoch, unfinished=furthest.table)

    def to_json(self) -> str:
        """The text that a sink keeps.

        >>> text = SinkPosition("s 1", TablePosition("t", 3, 2, 1), 5, 1).to_json()
        >>> SinkPosition.from_json(text).table.version
        3
        """
        values = {"owner": self.owner, "table": self.table.as_json(), "seq": self.seq, "epoch": self.epoch}
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`. Raises ValueError, KeyError or TypeError for another text."""
        values: Mapping[str, Any] = json.loads(text)
        table = TablePosition.from_json(values["table"])
        return cls(str(values["owner"]), table, int(values["seq"]), int(values["epoch"]))
