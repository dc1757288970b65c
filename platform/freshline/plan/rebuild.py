"""The records that a lost control store is filled with again, from the refresh log and the tables' own commits.

The log has more of each refresh; commits have those that the engine had not yet appended to it. Everything here
comes from the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from freshline.values.names import TableName
from freshline.values.result import DECISIONS, RefreshResult, State, Strategy

Sort = tuple[bool, bool, bool]


def sort_of(record: RefreshResult) -> Sort:
    """The sort of a record, within which old ones are forgotten: a decision, a commit, a full refresh."""
    return record.state in DECISIONS, record.committed, record.strategy == Strategy.FULL


def rebuilt_records(
    logged: Iterable[RefreshResult], committed: Iterable[RefreshResult], kept: int
) -> list[RefreshResult]:
    """The records in the order in which they happened, of each table the newest `kept` of each sort.

    A refresh that is in both is there once, as the log has it, with the fingerprint of its receipt. One that committed
    nothing has the fingerprint of the table's newest receipt: the log has none.
    """
    receipts = {(record.table, record.version): record for record in committed}
    newest: dict[TableName, RefreshResult] = {}
    for record in receipts.values():
        known = newest.get(record.table)
        if known is None or (record.version or 0) > (known.version or 0):
            newest[record.table] = record
    found: list[RefreshResult] = []
    told: set[tuple[TableName, int | None]] = set()
    for record in logged:
        known = newest.get(record.table)
        if record.committed:
            told.add((record.table, record.version))
            known = receipts.get((record.table, record.version), known)
        found.append(replace(record, fingerprint="" if known is None else known.fingerprint))
    found += [record for key, record in receipts.items() if key not in told]
    found.sort(key=lambda record: record.at)
    return _newest_of_each(found, kept)


def _newest_of_each(records: list[RefreshResult], kept: int) -> list[RefreshResult]:
    counts: dict[tuple[TableName, Sort], int] = {}
    left = []
    for record in reversed(records):
        key = (record.table, sort_of(record))
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= kept:
            left.append(record)
    left.reverse()
    return left


def newest_decisions(records: Iterable[RefreshResult]) -> list[RefreshResult]:
    """The newest change of each table's freshness, and its suspension unless it was resumed later.

    They are sentences for a person to read: no record says whether one is still meant.
    """
    altered: dict[TableName, RefreshResult] = {}
    suspended: dict[TableName, RefreshResult] = {}
    for record in records:
        if record.state == State.ALTERED:
            altered[record.table] = record
        elif record.state == State.SUSPENDED:
            suspended[record.table] = record
        elif record.state == State.RESUMED:
            suspended.pop(record.table, None)
    return sorted([*altered.values(), *suspended.values()], key=lambda record: record.at)
