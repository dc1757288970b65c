"""The rows that each table must have: its query, in plain Python, over the rows of its inputs.

This is the oracle. It shares no code with freshline, and reads no SQL: the queries of `project.py` are written a second
time here, from their meaning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.chaos.sent import Row

Inputs = Mapping[str, Iterable[Row]]
DELAY = timedelta(minutes=2)
LATENESS = timedelta(minutes=1)
WINDOW = timedelta(minutes=1)


@dataclass(frozen=True)
class Derived:
    """A table that follows from the rows of logs alone: how, and which log each of its inputs stands for.

    `rows` takes the rows of each log. Where two inputs stand for one log, it takes those behind each input.
    """

    name: str
    columns: tuple[str, ...]
    inputs: Mapping[str, str]
    rows: Callable[[Inputs], Counter[Row]]
    partition: Callable[[Row], str] | None = None

    def named(self, rows: Callable[[str, str], Iterable[Row]]) -> Counter[Row]:
        """Its rows, where `rows` gives those of a log behind an input, by the names of the input and the log."""
        apart = len(set(self.inputs.values())) < len(self.inputs)
        return self.rows({each if apart else log: rows(each, log) for each, log in self.inputs.items()})


def earliest(inputs: Inputs) -> Counter[Row]:
    """The event of the least kind of each key. Of several, the one whose id is least when read backwards."""
    best: dict[str, Row] = {}
    for event_id, k, op, n, _ in inputs["event"]:
        found = best.get(k)
        if found is None or (op, event_id[::-1]) < (found[2], found[1][::-1]):
            best[k] = (k, event_id, op, n)
    return Counter(best.values())


def latest(inputs: Inputs) -> Counter[Row]:
    """The newest event of each key, unless that one takes the key away."""
    best: dict[str, Row] = {}
    for event_id, k, op, n, ts in inputs["event"]:
        found = best.get(k)
        if found is None or (ts, event_id) > (found[4], found[1]):
            best[k] = (k, event_id, op, n, ts)
    return Counter(row for row in best.values() if row[2] != "d")


def daily(inputs: Inputs) -> Counter[Row]:
    """The number of rows of each day and key, and their sum."""
    return _totals(((ts.date(), k), n) for _, k, n, ts in inputs["plain"])


def per_key(inputs: Inputs) -> Counter[Row]:
    """The number of events of each key, their sum and the newest time."""
    newest: dict[str, datetime] = {}
    for _, k, _, _, ts in inputs["event"]:
        newest[k] = max(ts, newest.get(k, ts))
    totals = _totals(((k,), n) for _, k, _, n, _ in inputs["event"])
    return Counter((*row, newest[row[0]]) for row in totals)


def paid_total(inputs: Inputs) -> Counter[Row]:
    """The number of payments of each key and their sum."""
    return _totals(((k,), n) for _, k, n, _ in inputs["paid"])


def joined(inputs: Inputs) -> Counter[Row]:
    """Each row with the newest event of its key, or without one."""
    known = {row[0]: row for row in latest(inputs)}
    found: Counter[Row] = Counter()
    for plain_id, k, n, _ in inputs["plain"]:
        partner = known.get(k)
        found[(plain_id, k, n, *((None, None) if partner is None else (partner[1], partner[3])))] += 1
    return found


def extremes(inputs: Inputs) -> Counter[Row]:
    """One row for each key that is not taken away, and its number as the least and the greatest one."""
    return Counter((k, 1, n, n) for k, _, _, n, _ in latest(inputs))


def spanned(inputs: Inputs) -> Counter[Row]:
    """The greatest number and the first event of each key that is not taken away."""
    first = {row[0]: row[1] for row in earliest({"event": inputs["earliest"]})}
    return Counter((row[0], row[3], first.get(row[0])) for row in extremes({"event": inputs["extremes"]}))


def overall(inputs: Inputs) -> Counter[Row]:
    """One row: how many keys are not taken away, the sum of their numbers, and the least and the greatest one."""
    numbers = [n for _, _, _, n, _ in latest(inputs)]
    return Counter([(len(numbers), *((sum(numbers), min(numbers), max(numbers)) if numbers else (None,) * 3))])


def scored(inputs: Inputs) -> Counter[Row]:
    """Each event with twice its number, as the function in Python computes it."""
    return Counter((event_id, 2 * n) for event_id, _, _, n, _ in inputs["event"])


DERIVED = (
    Derived("earliest", ("k", "event_id", "op", "n"), {"event": "event"}, earliest),
    Derived("latest", ("k", "event_id", "op", "n", "ts"), {"event": "event"}, latest),
    Derived("daily", ("day", "k", "rows", "total"), {"plain": "plain"}, daily, lambda row: str(row[0])),
    Derived("monthly", ("day", "k", "rows", "total"), {"plain": "plain"}, daily),
    Derived("per_key", ("k", "rows", "total", "newest"), {"event": "event"}, per_key),
    Derived("archived", ("day", "k", "rows", "total"), {"plain": "plain"}, daily),
    Derived("extremes", ("k", "rows", "least", "greatest"), {"latest": "event"}, extremes),
    Derived("overall", ("rows", "total", "least", "greatest"), {"latest": "event"}, overall),
    Derived("joined", ("plain_id", "k", "n", "event_id", "latest_n"), {"plain": "plain", "latest": "event"}, joined),
    Derived("spanned", ("k", "greatest", "first_id"), {"extremes": "event", "earliest": "event"}, spanned),
    Derived("scored", ("event_id", "score"), {"event": "event"}, scored),
    Derived("paid_total", ("k", "rows", "total"), {"paid": "paid"}, paid_total),
)


def scaled(events: Iterable[Row], factor: int) -> Counter[Row]:
    """Each event with its number times a factor, which is the one of the declaration."""
    return Counter((event_id, n * factor) for event_id, _, _, n, _ in events)


@dataclass(frozen=True)
class Windows:
    """The rows of final windows, and those that came too late for them."""

    final: Counter[Row]
    late: Counter[Row]


def windows(batches: Mapping[int, Iterable[Row]], closed_until: datetime | None) -> Windows:
    """The windows of one minute that a watermark closes, over the batches of the log in their order.

    The watermark after a batch is the greatest time so far without the delay. A row is late when its window was closed
    by the watermark before its batch, the allowed lateness included; it is in no window then.
    """
    watermark: datetime | None = None
    open_rows: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    late: Counter[Row] = Counter()
    for number in sorted(batches):
        rows = list(batches[number])
        for event_id, k, op, n, ts in rows:
            start = ts.replace(second=0, microsecond=0)
            if watermark is not None and start + WINDOW + LATENESS <= watermark:
                late[(event_id, k, op, n, ts)] += 1
            else:
                open_rows[start, k].append(n)
        newest = max((row[4] for row in rows), default=None)
        if newest is not None:
            watermark = newest - DELAY if watermark is None else max(watermark, newest - DELAY)
    final: Counter[Row] = Counter()
    for (start, k), numbers in open_rows.items():
        if closed_until is not None and start + WINDOW + LATENESS <= closed_until:
            final[(start, start + WINDOW, k, len(numbers), sum(numbers))] += 1
    return Windows(final, late)


def _totals(pairs: Iterable[tuple[tuple[Any, ...], int]]) -> Counter[Row]:
    counts: Counter[tuple[Any, ...]] = Counter()
    sums: Counter[tuple[Any, ...]] = Counter()
    for key, n in pairs:
        counts[key] += 1
        sums[key] += n
    return Counter((*key, count, sums[key]) for key, count in counts.items())
