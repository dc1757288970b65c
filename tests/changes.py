"""A database in plain Python, whose changes Debezium would send: the events, and what each leaves behind.

The model knows the whole row behind every event, also where the event does not have all of it. It decides nothing as
freshline does: it remembers rows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.kafka import Record

MARKER = "__debezium_unavailable_value"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One event: the row of `key` is `row` after it, None where it is gone. `record` is what is sent.

    A TRUNCATE has no key.
    """

    key: int | None
    row: Row | None
    op: str
    lsn: int
    record: Record
    tombstone: bool = False


@dataclass
class Database:
    """A table `(id, name, score, bio)`; `bio` may be too large to be sent with an update that leaves it as it is."""

    chance: random.Random
    partitions: int = 1
    keys: int = 8
    unsent: bool = False
    with_schema: bool = False
    truncates: bool = False
    moves: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    lsn: int = 2**32 - 50

    def transactions(self, count: int) -> list[Change]:
        """The changes of some transactions, in the order in which a connector sends them."""
        found: list[Change] = []
        for _ in range(count):
            begun = self.lsn
            for _ in range(self.chance.randint(1, 4)):
                found += self._statement(begun)
        self.log += found
        return found

    def snapshot(self) -> list[Change]:
        """Every row as a new snapshot reads it."""
        self.lsn += 1
        found = [self._change("r", key, row, row, self.lsn) for key, row in sorted(self.rows.items())]
        self.log += found
        return found

    def again(self) -> list[Change]:
        """The end of what was sent, once more: what a connector does that was killed before it kept its position."""
        return self.log[-self.chance.randint(1, max(1, len(self.log))) :] if self.log else []

    def _statement(self, begun: int) -> list[Change]:
        self.lsn += self.chance.randint(1, 20)
        if self.truncates and self.chance.random() < 0.06:
            self.rows.clear()
            return [self._change("t", None, None, {}, begun)]
        key = self.chance.randint(1, self.keys)
        row = self.rows.get(key)
        if row is None:
            return [self._put("c", key, self._row(), begun)]
        what = self.chance.random()
        if what < 0.25:
            return self._delete(key, begun)
        free = [other for other in range(1, self.keys + 1) if other not in self.rows]
        if what < 0.4 and free:
            # A key change has one position, and is a delete and an insert.
            return [*self._delete(key, begun), self._put("c", self.chance.choice(free), row, begun)]
        changed = {**row, "name": self.chance.choice("abc"), "score": self.chance.randint(-3, 3)}
        if self.chance.random() < 0.4:
            changed["bio"] = self._bio()
        return [self._put("u", key, changed, begun, before=row)]

    def _row(self) -> Row:
        return {"name": self.chance.choice("abc"), "score": self.chance.randint(-3, 3), "bio": self._bio()}

    def _bio(self) -> str | None:
        return self.chance.choice([None, "", "x" * 50, f"long {self.chance.randint(0, 99)}"])

    def _put(self, op: str, key: int, row: Row, begun: int, *, before: Row | None = None) -> Change:
        self.rows[key] = row
        sent = dict(row)
        if self.unsent and op == "u" and before is not None and before["bio"] == row["bio"] and row["bio"] is not None:
            sent["bio"] = MARKER
        return self._change(op, key, row, sent, begun)

    def _delete(self, key: int, begun: int) -> list[Change]:
        del self.rows[key]
        gone = self._change("d", key, None, {"name": None, "score": None, "bio": None}, begun)
        tombstone = Record(None, gone.record.key, gone.record.partition)
        return [gone, Change(key, None, "d", self.lsn, tombstone, tombstone=True)]

    def _change(self, op: str, key: int | None, row: Row | None, sent: Row, begun: int) -> Change:
        image = {"id": key, **sent}
        value: dict[str, Any] = {
            "before": image if op == "d" else None,
            "after": None if op in "dt" else image,
            "source": {
                "connector": "postgresql",
                "lsn": self.lsn,
                "txId": begun,
                "ts_ms": 1_700_000_000_000 + self.lsn,
            },
            "op": op,
            # Of the connector, which is another one when it sends the event again.
            "ts_ms": self.chance.randint(1_800_000_000_000, 1_900_000_000_000),
        }
        if self.with_schema:
            value = {"schema": {"type": "struct", "fields": []}, "payload": value}
        # A change without a key may be in any partition, and so may each key of a topic that gained partitions.
        anywhere = key is None or self.moves
        partition = self.chance.randrange(self.partitions) if anywhere else ((key or 0) * 7) % self.partitions
        record = Record(value, None if key is None else json.dumps({"id": key}).encode(), partition)
        return Change(key, row, op, self.lsn, record)


def shuffled(chance: random.Random, changes: Sequence[Change]) -> list[Change]:
    """The same with the order between partitions, which nobody promises, left to chance."""
    queues: dict[int | None, list[Change]] = {}
    for change in changes:
        queues.setdefault(change.record.partition, []).append(change)
    found = []
    while queues:
        partition = chance.choice(sorted(queues, key=str))
        found.append(queues[partition].pop(0))
        if not queues[partition]:
            del queues[partition]
    return found


@dataclass
class Topic:
    """The changes sent to each partition, in its order."""

    sent: dict[int, list[Change]] = field(default_factory=dict)

    def send(self, changes: Sequence[Change]) -> list[Record]:
        for change in changes:
            self.sent.setdefault(change.record.partition or 0, []).append(change)
        return [change.record for change in changes]

    def rows_by_position(self, offsets: Mapping[int, int]) -> dict[int, Row]:
        """The rows that the first records of each partition leave in the order of the database."""
        changes = [each for partition, end in offsets.items() for each in self.sent.get(partition, ())[:end]]
        found: dict[int, Row] = {}
        # Of a key change both events have one position, and of a snapshot all have.
        for change in sorted((each for each in changes if not each.tombstone), key=lambda each: each.lsn):
            if change.key is None:
                found.clear()
            elif change.row is None:
                found.pop(change.key, None)
            else:
                found[change.key] = change.row
        return found

    def rows(self, offsets: Mapping[int, int]) -> dict[int, Row]:
        """The rows that the first records of each partition leave; an event that comes again is none.

        In the model the order of the database is that of each partition, so that a TRUNCATE is later by its position.
        """
        found: dict[int, tuple[int, Row]] = {}
        truncated = 0
        for partition, end in offsets.items():
            seen: set[object] = set()
            for change in self.sent.get(partition, ())[:end]:
                identity = (change.key, change.lsn, change.op)
                if change.tombstone or identity in seen:
                    continue
                seen.add(identity)
                if change.key is None:
                    truncated = max(truncated, change.lsn)
                elif change.row is None:
                    found.pop(change.key, None)
                else:
                    found[change.key] = (change.lsn, change.row)
        return {key: row for key, (lsn, row) in found.items() if lsn > truncated}
