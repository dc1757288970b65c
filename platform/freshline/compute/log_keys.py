"""The keys of a log, kept in the engine as 64 bits each, so that a small batch needs no search in the log.

A key whose bits are not among them is not in the log. One whose bits are may be there, or have them by chance: it is
searched in the batches that brought such bits. So the kept bits may have too many keys, and never too few: they are the
result of one scan of the log, with the keys of every batch that was committed after it, under the identity of the
newest one's receipt. Where the log has another newest batch, because it was put back or lost commits, they are thrown
away.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from freshline.compute.inputs import SEQ
from freshline.values.names import quoted

# So many keys are kept of all logs together, 12 bytes each; the log that was not asked for the longest goes first.
MOST_KEYS = 25_000_000
# Keys of so many batches' records are put in order by themselves before all are put in order again.
_MOST_NEW = 200_000

Bits = NDArray[np.int64]
# The numbers of batches. A log that takes one each second needs 68 years for more.
Seqs = NDArray[np.int32]


def bits_of(key: Sequence[str]) -> Column:
    """The 64 bits of a key. Values that Spark takes for equal have the same ones (zero and its negative, each NaN)."""
    return F.xxhash64(*[F.col(quoted(name)) for name in key])


def collect_bits(rows: DataFrame, key: Sequence[str]) -> Bits:
    """The bits of the keys of rows, one of each row, in any order; a scan of the key's columns."""
    found = rows.select(bits_of(key).alias("bits")).toArrow().column("bits")
    return np.asarray(found.to_numpy(), dtype=np.int64)


@dataclass(frozen=True)
class KeysInOrder:
    """The bits of keys in ascending order, and of each the number of the batch that brought it."""

    bits: Bits
    seqs: Seqs

    @classmethod
    def of(cls, bits: Bits, seqs: Seqs) -> KeysInOrder:
        """Those that were read in any order."""
        order = np.argsort(bits, kind="stable")
        return cls(bits[order], seqs[order])

    def among(self, bits: Bits) -> NDArray[np.bool_]:
        """Of each of some bits, whether a key has them."""
        places = np.searchsorted(self.bits, bits)
        found = np.zeros(len(bits), dtype=np.bool_)
        inside = places < len(self.bits)
        found[inside] = self.bits[places[inside]] == bits[inside]
        return found

    def seqs_of(self, bits: Bits) -> Seqs:
        """The batches that brought keys with some of these bits."""
        begins, ends = (np.searchsorted(self.bits, bits, side) for side in ("left", "right"))
        times = ends - begins
        # The places from each begin to its end, one after the other.
        places = np.arange(times.sum()) + np.repeat(begins - (np.cumsum(times) - times), times)
        return np.unique(self.seqs[places])

    def plus(self, others: KeysInOrder) -> KeysInOrder:
        """With others, each in its place."""
        places = np.searchsorted(self.bits, others.bits)
        return KeysInOrder(np.insert(self.bits, places, others.bits), np.insert(self.seqs, places, others.seqs))


@dataclass(frozen=True)
class LogKeys:
    """The keys of a log at one receipt: most of them in order, and those of the newest batches in order for themselves.

    `key` are its columns. `last` are the transactions of the last events of a change feed by their partitions, as far
    as they are known; `are_all` says that the log has no other partition.
    """

    identity: str
    key: tuple[str, ...]
    old: KeysInOrder
    new: KeysInOrder
    last: Mapping[str, str] = field(default_factory=dict)
    are_all: bool = False

    @property
    def count(self) -> int:
        return len(self.old.bits) + len(self.new.bits)

    def among(self, bits: Bits) -> NDArray[np.bool_]:
        """Of each of some bits, whether a key of the log has them."""
        return self.old.among(bits) | self.new.among(bits)

    def seqs_of(self, bits: Bits) -> list[int]:
        """The numbers of the batches in which keys with some of these bits are."""
        return sorted({*self.old.seqs_of(bits).tolist(), *self.new.seqs_of(bits).tolist()})

    def may_have_begun(self, part: str, transaction: str) -> bool:
        """Whether the log may have a part of a transaction, whose next events are those of a batch."""
        known = self.last.get(part)
        return known == transaction or (known is None and not self.are_all)

    def after(self, identity: str, bits: Bits, seq: int, last: Mapping[str, str] | None = None) -> LogKeys:
        """With the keys of a batch, whose receipt has this identity and this number, and its last transactions."""
        last = {**self.last, **(last or {})}
        each = np.unique(bits)
        new = self.new.plus(KeysInOrder(each, np.full(len(each), seq, dtype=np.int32)))
        if len(new.bits) <= _MOST_NEW:
            return LogKeys(identity, self.key, self.old, new, last, self.are_all)
        return LogKeys(identity, self.key, self.old.plus(new), _NONE, last, self.are_all)


_NONE = KeysInOrder(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32))


class KnownKeys:
    """The keys of logs by the place of the log; shared by all refreshes of an engine."""

    def __init__(self, most: int = MOST_KEYS) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Path, LogKeys] = OrderedDict()

    def find(self, path: Path, key: tuple[str, ...], identity: str) -> LogKeys | None:
        """The keys of the log whose newest receipt has this identity; None where they are not kept."""
        with self._lock:
            kept = self._kept.get(path)
            if kept is None or (kept.identity, kept.key) != (identity, key):
                return None
            self._kept.move_to_end(path)
            return kept

    def keep(self, path: Path, keys: LogKeys) -> None:
        """Keep the keys of a log in place of those before; too many are not kept."""
        with self._lock:
            self._kept[path] = keys
            self._kept.move_to_end(path)
            total = sum(each.count for each in self._kept.values())
            while total > self.most:
                total -= self._kept.popitem(last=False)[1].count


def no_keys(key: tuple[str, ...], identity: str) -> LogKeys:
    """The keys of a log without rows."""
    return LogKeys(identity, key, _NONE, _NONE, are_all=True)


def read_keys(rows: DataFrame, key: tuple[str, ...], identity: str) -> LogKeys:
    """The keys of a log, of which these are all rows; a scan of the key's columns."""
    found = rows.select(bits_of(key).alias("bits"), F.col(SEQ).cast("int").alias("seq")).toArrow()
    bits, seqs = (np.asarray(found.column(name).to_numpy()) for name in ("bits", "seq"))
    return LogKeys(identity, key, KeysInOrder.of(bits, seqs), _NONE)
