"""The partitions of a table that are done, stale or missing, by its newest receipt.

A receipt of a table with time partitions has spans: the stretches of time whose rows are in the table, each with the
declaration that made it and the positions that it was computed at. The table is exactly the union of its spans; a
partition that no span covers is missing, one that another declaration made is stale. Nothing else needs to be
remembered for a backfill to go on where it was stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from freshline.values.names import TableName
from freshline.values.position import Position, position_from_json
from freshline.values.spec import TableSpec
from freshline.values.time_partition import TimePartition, TimePartitions

Interval = tuple[datetime, datetime]


class PartitionState(StrEnum):
    """The state of a partition."""

    MISSING = "missing"
    RUNNING = "running"
    DONE = "done"
    STALE = "stale"


@dataclass(frozen=True)
class PartitionSpan:
    """The rows of [start, end), in UTC, as the declaration of `fingerprint` gives them.

    `positions` are those of the inputs, None for those of the receipt that has the span.
    """

    start: datetime
    end: datetime
    fingerprint: str
    positions: Mapping[TableName, Position] | None = None

    @property
    def interval(self) -> Interval:
        return self.start, self.end


def partition_name(spec: TableSpec, values: Sequence[tuple[str, str]]) -> str:
    """A partition as people and Dagster name it: its value where the declaration lists them, else `column=value`s."""
    if spec.partition_values and len(values) == 1:
        return values[0][1]
    return "/".join(f"{column}={text}" for column, text in values)


def partition_texts(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """A partition that a program names, a value by column, as the texts that requests carry; NULL has none.

    >>> partition_texts({"ds": None, "n": 1})
    (('ds', ''), ('n', '1'))
    """
    return tuple((column, "" if value is None else str(value)) for column, value in values.items())


def put_span(spans: Iterable[PartitionSpan], new: PartitionSpan) -> tuple[PartitionSpan, ...]:
    """The spans with the new one in the place of what was there; neighbours that say the same are one."""
    kept: list[PartitionSpan] = [new] if new.start < new.end else []
    for span in spans:
        if span.end <= new.start or span.start >= new.end:
            kept.append(span)
            continue
        if span.start < new.start:
            kept.append(replace(span, end=new.start))
        if span.end > new.end:
            kept.append(replace(span, start=new.end))
    return _merged(kept)


def settle_spans(spans: Iterable[PartitionSpan]) -> tuple[PartitionSpan, ...]:
    """The spans after a refresh that brought everything to the positions of its receipt."""
    return _merged([replace(span, positions=None) for span in spans])


def _merged(spans: Iterable[PartitionSpan]) -> tuple[PartitionSpan, ...]:
    found: list[PartitionSpan] = []
    for span in sorted(spans, key=lambda item: item.start):
        last = found[-1] if found else None
        alike = last is not None and (last.fingerprint, last.positions) == (span.fingerprint, span.positions)
        if last is not None and alike and last.end == span.start:
            found[-1] = replace(last, end=span.end)
        else:
            found.append(span)
    return tuple(found)


def find_gaps(spans: Iterable[PartitionSpan], fingerprint: str, start: datetime, end: datetime) -> tuple[Interval, ...]:
    """The parts of [start, end) that no span of the declaration covers, in order."""
    gaps: list[Interval] = []
    at = start
    for span in sorted(spans, key=lambda item: item.start):
        if span.fingerprint != fingerprint or span.end <= at:
            continue
        if span.start >= end:
            break
        if span.start > at:
            gaps.append((at, span.start))
        at = span.end
    if at < end:
        gaps.append((at, end))
    return tuple(gaps)


def wanted_until(partitions: TimePartitions, now: datetime, *, open_too: bool) -> datetime:
    """Up to where a refresh at `now` brings partitions in: to the end of the open one, or of the last closed one."""
    first = partitions.first
    if now < first.start:
        return first.start
    return partitions.at(now).end if open_too else partitions.closed_until(now)


def state_of(
    partition: TimePartition, spans: Sequence[PartitionSpan], fingerprint: str, *, changed: Iterable[Interval] = ()
) -> PartitionState:
    """The state of a partition; `changed` are the intervals whose rows changed in an input since it was computed."""
    if not find_gaps(spans, fingerprint, partition.start, partition.end):
        touched = any(start < partition.end and end > partition.start for start, end in changed)
        return PartitionState.STALE if touched else PartitionState.DONE
    # Rows of another declaration are there, so that it is readable, but not what is declared now.
    readable = [replace(span, fingerprint="") for span in spans]
    whole = not find_gaps(readable, "", partition.start, partition.end)
    return PartitionState.STALE if whole else PartitionState.MISSING


def spans_as_json(spans: Sequence[PartitionSpan]) -> dict[str, Any]:
    """The spans for a receipt: what many of them share is written once."""
    fingerprints = sorted({span.fingerprint for span in spans})
    positions: list[dict[str, Any]] = []
    rows: list[list[object]] = []
    for span in spans:
        number: int | None = None
        if span.positions is not None:
            value = {str(name): position.as_json() for name, position in span.positions.items()}
            if value not in positions:
                positions.append(value)
            number = positions.index(value)
        rows.append([span.start.isoformat(), span.end.isoformat(), fingerprints.index(span.fingerprint), number])
    return {"fingerprints": fingerprints, "positions": positions, "spans": rows}


def spans_from_json(value: Mapping[str, Any]) -> tuple[PartitionSpan, ...]:
    """The inverse of `spans_as_json`."""
    positions = [
        {TableName.parse(name): position_from_json(position) for name, position in item.items()}
        for item in value["positions"]
    ]
    return tuple(
        PartitionSpan(
            datetime.fromisoformat(start),
            datetime.fromisoformat(end),
            str(value["fingerprints"][fingerprint]),
            None if number is None else positions[number],
        )
        for start, end, fingerprint, number in value["spans"]
    )
