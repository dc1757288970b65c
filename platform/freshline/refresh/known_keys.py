"""Which keys a log has, kept in the engine as 64 bits each, so that a small batch need not be looked for in the log.

A key whose bits are not among them is not in the log. One whose bits are may be there, or have them by chance: it is
looked for. So what is kept may have too many keys, and never too few: it is what one scan of the log found, with the
keys of every batch that was committed after it, under the identity of the newest one's receipt. Where the log has
another newest batch, because it was put back or lost commits, it is thrown away.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from freshline.refresh.literal import quoted

# So many keys are kept of all logs together, 8 bytes each; the log that was not asked for the longest goes first.
MOST_KEYS = 25_000_000
# Keys of so many batches' records are put in order by themselves before all are put in order again.
_MOST_NEW = 200_000

Bits = NDArray[np.int64]


def bits_of(key: Sequence[str]) -> Column:
    """The 64 bits of a key. Values that Spark takes for equal have the same ones (zero and its negative, each NaN)."""
    return F.xxhash64(*[F.col(quoted(name)) for name in key])


def collect_bits(rows: DataFrame, key: Sequence[str]) -> Bits:
    """The bits of the keys of rows, one of each row, in any order; a scan of the key's columns."""
    found = rows.select(bits_of(key).alias("bits")).toArrow().column("bits")
    return np.asarray(found.to_numpy(), dtype=np.int64)


@dataclass(frozen=True)
class LogKeys:
    """The keys of a log at one receipt: most of them in order, and those of the newest batches in order for themselves.

    `key` are its columns.
    """

    identity: str
    key: tuple[str, ...]
    old: Bits
    new: Bits

    @property
    def count(self) -> int:
        return len(self.old) + len(self.new)

    def among(self, bits: Bits) -> NDArray[np.bool_]:
        """Of each of some bits, whether a key of the log has them."""
        return _is_in(self.old, bits) | _is_in(self.new, bits)

    def after(self, identity: str, bits: Bits) -> LogKeys:
        """With the keys of a batch, whose receipt has this identity."""
        new = np.union1d(self.new, bits)
        if len(new) <= _MOST_NEW:
            return LogKeys(identity, self.key, self.old, new)
        return LogKeys(identity, self.key, np.union1d(self.old, new), new[:0])


def _is_in(ordered: Bits, bits: Bits) -> NDArray[np.bool_]:
    places = np.searchsorted(ordered, bits)
    found = np.zeros(len(bits), dtype=np.bool_)
    inside = places < len(ordered)
    found[inside] = ordered[places[inside]] == bits[inside]
    return found


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


def first_keys(key: tuple[str, ...], identity: str, bits: Bits) -> LogKeys:
    """The keys of a log of which all bits were read."""
    return LogKeys(identity, key, np.unique(bits), np.empty(0, dtype=np.int64))
