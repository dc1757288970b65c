"""Savepoints as values: the state of tables at one moment, and what bringing it back does to their receipts.

A savepoint names one version of every table that it covers, with the receipt that was the newest one there. It needs
no copy of rows: the versions are kept for as long as the savepoint is. Tables were read before what they read, so no
receipt names a version that the savepoint does not have: it is one cut through the histories of all tables.

A table is brought back by a new commit, with a new number, above everything that was committed since. Readers of the
table knew the number of then, so the receipts that come back get the new numbers of the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from freshline.errors import UNREADABLE, FormatError, SavepointError, require_format, shown_problem
from freshline.plan.cut import least_of
from freshline.values.names import PART, TableName
from freshline.values.position import Position, TablePosition
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt

FORMAT = 1
# The tables that stand beside a table and are saved with it, by the endings of their names.
SIDES = ("quarantine", "file", "parked")


# The error of a read of a table at a savepoint.
LOST = (
    "the log of the table had lost the commit of savepoint {name}, and another one has its number now. "
    "Read another version."
)


@dataclass(frozen=True)
class SavedVersion:
    """One version of one Delta table: its id, its number, and its newest receipt then."""

    table_id: str
    version: int
    receipt: Receipt | None

    @property
    def seq(self) -> int | None:
        return None if self.receipt is None else self.receipt.seq

    def is_another(self, receipt: Receipt | None) -> bool:
        """Whether the receipt that stands at this version now is surely not the one that was saved.

        The log had lost that commit, and its number was given a second time.
        """
        return receipt is not None and self.receipt is not None and receipt.identity != self.receipt.identity

    def as_json(self) -> dict[str, Any]:
        receipt = None if self.receipt is None else json.loads(self.receipt.to_json())
        return {
            "table_id": self.table_id,
            "version": self.version,
            "epoch": None if self.receipt is None else self.receipt.epoch,
            "receipt": receipt,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SavedVersion:
        receipt = None if value["receipt"] is None else Receipt.from_json(json.dumps(value["receipt"]))
        return cls(str(value["table_id"]), int(value["version"]), receipt)


@dataclass(frozen=True)
class SavedTable:
    """A table or log table, and what stands beside it, by the names of SIDES."""

    name: TableName
    version: SavedVersion
    sides: Mapping[str, SavedVersion] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        sides = {side: saved.as_json() for side, saved in self.sides.items()}
        return {"table": str(self.name), **self.version.as_json(), "sides": sides}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SavedTable:
        sides = {str(side): SavedVersion.from_json(saved) for side, saved in value["sides"].items()}
        return cls(TableName.parse(value["table"]), SavedVersion.from_json(value), sides)


@dataclass(frozen=True)
class Savepoint:
    """The state of tables at one moment.

    `tables` are in the order of the graph, what is read before what reads it. `sources` are the positions of the tables
    that are read in place then; they are not kept and not brought back. `consumers` are the positions of those who read
    changes. `named` says that only some tables were asked for.
    """

    name: str
    created_at: datetime
    tables: tuple[SavedTable, ...]
    sources: Mapping[TableName, TablePosition] = field(default_factory=dict)
    consumers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    named: bool = False

    @property
    def cut(self) -> dict[str, Mapping[str, Any]]:
        """The least position of each root up to which every table that knows it has read, by the roots' names."""
        receipts = (saved.version.receipt for saved in self.tables)
        return least_of(receipt.cut for receipt in receipts if receipt is not None)

    def saved(self, name: TableName) -> SavedTable | None:
        """The table of this name, None where it is not saved."""
        return next((table for table in self.tables if table.name == name), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "freshline_savepoint": FORMAT,
            "name": self.name,
            "created_at": self.created_at.isoformat(),
            "named": self.named,
            "cut": {root: dict(where) for root, where in self.cut.items()},
            "sources": {str(name): position.as_json() for name, position in self.sources.items()},
            "consumers": {name: dict(position) for name, position in self.consumers.items()},
            "tables": [table.as_json() for table in self.tables],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], where: str) -> Savepoint:
        """The inverse of `as_json`. Raises FormatError for a newer format, and for a file that is damaged."""
        require_format(value.get("freshline_savepoint"), FORMAT, "the savepoint", where)
        try:
            return cls(
                name=str(value["name"]),
                created_at=datetime.fromisoformat(value["created_at"]).astimezone(UTC),
                tables=tuple(SavedTable.from_json(table) for table in value["tables"]),
                sources={
                    TableName.parse(name): TablePosition(str(at["table_id"]), int(at["version"]), at.get("seq"))
                    for name, at in value["sources"].items()
                },
                consumers=dict(value["consumers"]),
                named=bool(value["named"]),
            )
        except UNREADABLE as error:
            raise _damaged("the savepoint", error, where) from error


@dataclass(frozen=True)
class Restoration:
    """A restore under way: what is brought back. `id` is in the receipts of all its commits."""

    id: str
    savepoint: Savepoint
    started_at: datetime

    def attempt(self, place: str) -> str:
        """The mark of the commit of one Delta table: a table of the savepoint, or `table__side`."""
        return f"{self.id}/{place}"

    def as_json(self) -> dict[str, Any]:
        return {
            "freshline_restore": FORMAT,
            "id": self.id,
            "started_at": self.started_at.isoformat(),
            "savepoint": self.savepoint.as_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], where: str) -> Restoration:
        """The inverse of `as_json`. Raises FormatError as that of a savepoint does."""
        require_format(value.get("freshline_restore"), FORMAT, "the restore under way", where)
        try:
            return cls(
                str(value["id"]),
                Savepoint.from_json(value["savepoint"], where),
                datetime.fromisoformat(value["started_at"]).astimezone(UTC),
            )
        except UNREADABLE as error:
            raise _damaged("the restore under way", error, where) from error


@dataclass(frozen=True)
class Moved:
    """A table that was brought back: its saved version, and the commit and number that have the same rows now.

    `epoch` is the writer's of that number.
    """

    saved: SavedVersion
    version: int
    seq: int
    epoch: int | None = None


def require_name(name: str) -> str:
    """The name of a savepoint or consumer. Raises SavepointError for one that is no name.

    >>> require_name("before_the_sale")
    'before_the_sale'
    """
    if not PART.match(name):
        raise SavepointError(
            f"{name!r} is no name: letters, digits and underscores, up to 128, not beginning with a digit."
        )
    return name


def restored_receipt(
    receipt: Receipt,
    moved: Mapping[TableName, Moved],
    *,
    savepoint: str,
    epoch: int,
    seq: int,
    attempt: str,
    pending_lookups: int | None = None,
    lookups: Iterable[TableName] = (),
) -> Receipt:
    """The receipt with which a table is brought back: it says the same of the rows, in today's numbers.

    `moved` are the inputs that were brought back before it. `lookups` are dimensions: rows were joined with their
    versions of then. `pending_lookups` is the version that has the parked rows again.
    """
    met = frozenset(lookups)
    spans = tuple(
        span if span.positions is None else replace(span, positions=_moved_positions(span.positions, moved, met))
        for span in receipt.spans or ()
    )
    return replace(
        receipt,
        epoch=epoch,
        seq=seq,
        strategy="restore",
        reason=str(Reason("RESTORED", savepoint)),
        positions=_moved_positions(receipt.positions, moved, met),
        partitions={key: _moved_positions(positions, moved, met) for key, positions in receipt.partitions.items()},
        spans=None if receipt.spans is None else spans,
        cut={root: _moved_root(root, where, moved) for root, where in receipt.cut.items()},
        cut_ahead={root: _moved_root(root, where, moved) for root, where in receipt.cut_ahead.items()},
        rows_in=0,
        rows_out=0,
        rejected=0,
        attempt=attempt,
        maintenance=False,
        planned=None,
        # An earlier commit of the log is no earlier state of these rows.
        data_timestamp_before=None,
        pending_lookups=receipt.pending_lookups if pending_lookups is None else pending_lookups,
        restored=receipt.seq,
    )


def _moved_positions(
    positions: Mapping[TableName, Position], moved: Mapping[TableName, Moved], met: frozenset[TableName]
) -> dict[TableName, Position]:
    found: dict[TableName, Position] = {}
    for name, position in positions.items():
        back = moved.get(name)
        same = (
            back is not None
            and name not in met
            and isinstance(position, TablePosition)
            and position.table_id == back.saved.table_id
            and (
                position.version == back.saved.version or (position.seq is not None and position.seq == back.saved.seq)
            )
        )
        # One that is behind what was saved stays where it is: it has yet to read what came between.
        found[name] = (
            TablePosition(position.table_id, back.version, back.seq, None if position.epoch is None else back.epoch)
            if same and back is not None and isinstance(position, TablePosition)
            else position
        )
    return found


def _moved_root(root: str, where: Mapping[str, Any], moved: Mapping[TableName, Moved]) -> Mapping[str, Any]:
    back = moved.get(TableName.parse(root))
    if back is None or "seq" not in where or where["seq"] != back.saved.seq:
        return where
    return {**where, "seq": back.seq}


def _damaged(what: str, error: Exception, where: str) -> FormatError:
    return FormatError(
        f"{what} is damaged ({shown_problem(error)}). Somebody changed the file: put it back, or remove it.",
        where=where,
    )
