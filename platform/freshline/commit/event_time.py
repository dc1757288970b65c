"""How far the events of a log table have come, by the receipts and rows of its log alone.

The receipt of a batch has the watermark before it; the rows of the batch move it on. So the watermark after the newest
batch needs that batch only, and is the same whoever asks, after a restart too. It never goes back. An event that is
further ahead of its arrival than `watermark.max-ahead` moves nothing: one clock that is wrong would make every later
row late for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from freshline.commit.delta_log import Newest, greatest_time, read_newest
from freshline.declare.spec import SourceSpec, Watermark

_MICROSECONDS = pa.timestamp("us")
_SEQ, _INGESTED_AT = "_freshline_seq", "_freshline_ingested_at"


@dataclass(frozen=True)
class Passed:
    """What one batch did: the watermark after it, and how many rows came behind the one before it or too far ahead."""

    watermark: datetime | None
    late: int
    ahead: int


def watermark_after(spec: SourceSpec, path: Path, newest: Newest | None) -> datetime | None:
    """The time before which a row that comes now is late; None before the first event, or without a watermark."""
    receipt = None if newest is None else newest.receipt
    if spec.watermark is None or newest is None or receipt is None:
        return None
    column = spec.stored_column(spec.watermark.column)
    before = receipt.watermark.get(column)
    if before is None and receipt.seq > 1:
        # Batches from before the watermark was declared, or kept in receipts: all of them count.
        greatest = greatest_time(path, newest.version, column)
        if greatest is None or greatest > _arrived(path, newest.version) + timedelta(seconds=spec.max_ahead_seconds):
            greatest = _greatest(_events(path, newest.version, column, None), spec.max_ahead_seconds)
        return _moved(None, greatest, spec.watermark)
    seq = receipt.seq if receipt.restored is None else receipt.restored
    events = _events(path, newest.version, column, seq)
    return _moved(before, _greatest(events, spec.max_ahead_seconds), spec.watermark)


def passed_by(spec: SourceSpec, path: Path, version: int, seq: int, before: datetime | None) -> Passed:
    """What the rows of one batch did to the watermark before it."""
    assert spec.watermark is not None
    events = _events(path, version, spec.stored_column(spec.watermark.column), seq)
    times = events["event"]
    late = 0 if before is None else _count(pc.less(times, _scalar(before)))
    ahead = _count(pc.greater(times, _limits(events, spec.max_ahead_seconds)))
    return Passed(_moved(before, _greatest(events, spec.max_ahead_seconds), spec.watermark), late, ahead)


def newest_event(spec: SourceSpec, path: Path) -> datetime | None:
    """The time of the newest event that was not too far ahead."""
    watermark = watermark_after(spec, path, read_newest(path))
    if watermark is None or spec.watermark is None:
        return None
    return watermark + timedelta(seconds=spec.watermark.delay_seconds)


def _moved(before: datetime | None, greatest: datetime | None, watermark: Watermark) -> datetime | None:
    after = None if greatest is None else greatest - timedelta(seconds=watermark.delay_seconds)
    return max((time for time in (before, after) if time is not None), default=None)


def _events(path: Path, version: int, column: str, seq: int | None) -> pa.Table:
    """When the events of a batch were, and when they arrived; of all batches for None."""
    dataset = deltalake.DeltaTable(str(path), version=version).to_pyarrow_dataset()
    wanted = None if seq is None else ds.field(_SEQ) == seq
    # A TIMESTAMP_NTZ has no zone: it is taken as UTC, as everywhere here.
    columns = {name: ds.field(of).cast(_MICROSECONDS) for name, of in (("event", column), ("arrived", _INGESTED_AT))}
    return dataset.to_table(columns=columns, filter=wanted)


def _arrived(path: Path, version: int) -> datetime:
    """A time at which rows of this version had arrived; the least that they can have, where the log does not tell."""
    return greatest_time(path, version, _INGESTED_AT) or datetime.min.replace(tzinfo=UTC)


def _greatest(events: pa.Table, max_ahead_seconds: float) -> datetime | None:
    within = events.filter(pc.less_equal(events["event"], _limits(events, max_ahead_seconds)))
    greatest = pc.max(within["event"]).as_py()
    return None if greatest is None else greatest.replace(tzinfo=UTC)


def _limits(events: pa.Table, max_ahead_seconds: float) -> Any:
    return pc.add(events["arrived"], pa.scalar(timedelta(seconds=max_ahead_seconds), pa.duration("us")))


def _scalar(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment.astimezone(UTC).replace(tzinfo=None), _MICROSECONDS)


def _count(mask: Any) -> int:
    return int(pc.sum(mask).as_py() or 0)
