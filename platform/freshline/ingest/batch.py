"""A batch of a log table: its basis, its number and its receipt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from freshline.commit.delta_log import newest_version, read_newest
from freshline.commit.event_time import event_time_after
from freshline.compute.arrow_rows import ArrowRows
from freshline.compute.literal import by_reference
from freshline.compute.log_keys import KnownKeys
from freshline.errors import DefinitionChangedError, FencedError, ForeignWriteError
from freshline.freshness.record import complete_until
from freshline.ingest.duplicates import LogBefore
from freshline.refresh.quarantine import next_seq
from freshline.refresh.runtime import Runtime
from freshline.sources.reader import Portion
from freshline.sources.records import accepted
from freshline.sources.records_in_memory import accepted_here
from freshline.values.connector import Position
from freshline.values.position import require_known
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec
from freshline.values.watermark import EventTime, MovedBy, SeenTimes, after_batch, rules_of


@dataclass(frozen=True)
class Batch:
    """The records of one commit. `receipt` makes its receipt from the rows that are good, rejected, left out.

    `watermark` is the one before the batch; `passed` gives the log's event time after it. `confirm` is called before
    anything is committed, and raises where that must not be. `small` says that the records may be read in the driver's
    own memory. `newest` is the receipt that the batch follows, and `known` has the keys of logs.
    """

    spec: SourceSpec
    path: Path
    quarantine: Path
    seq: int
    now: datetime
    small: bool
    watermark: datetime | None
    receipt: Callable[[int | None, int, int], Receipt]
    passed: Callable[[SeenTimes], EventTime | None]
    confirm: Callable[[Mapping[str, int] | None], None]
    newest: Receipt | None
    known: KnownKeys

    def accept(self, rows: DataFrame) -> DataFrame:
        """The good ones of judged records as rows of the log table."""
        return accepted(rows, self.spec, self.seq, self.now, watermark=self.watermark, constant=by_reference)

    def accept_here(self, rows: ArrowRows) -> ArrowRows:
        """As `accept`, of records in the engine's process."""
        return accepted_here(rows, self.spec, self.seq, self.now, watermark=self.watermark)

    @property
    def log(self) -> LogBefore:
        """The log as the batch finds it."""
        return LogBefore(self.spec, self.path, self.quarantine, self.newest, self.seq, self.now, self.known)


@dataclass(frozen=True)
class BatchBasis:
    """The basis of a batch: the version of the log, its newest receipt, and since when (of `time.monotonic`)."""

    version: int | None
    newest: Receipt | None
    since: float


def stand(runtime: Runtime, spec: SourceSpec, position: Position | None) -> BatchBasis:
    """The basis of a batch that begins at a position. Raises FencedError where the log is not there any more."""
    since, path = time.monotonic(), runtime.warehouse.path(spec.name)
    # First: a commit from here on was not seen.
    version = newest_version(path)
    newest = newest_batch(spec, path)
    if (None if newest is None else newest.positions.get(spec.name)) != position:
        raise fenced(spec)
    return BatchBasis(version, newest, since)


def begin_batch(
    runtime: Runtime,
    spark: SparkSession,
    spec: SourceSpec,
    portion: Portion,
    standing: BatchBasis,
    mode: str,
    reason: str,
    unread: Callable[[], Mapping[str, bool]],
    confirm: Callable[[Mapping[str, int] | None], None] = lambda found: None,
) -> Batch:
    """The batch of a portion, with a number of its own; `reason` is the code of its receipt.

    `unread` gives the partitions of the source, each with whether it has records behind the portion. `confirm` is as in
    `Batch`.
    """
    planned, newest = standing.version, standing.newest
    path = runtime.warehouse.path(spec.name)
    now = runtime.clock()
    before = None if planned is None else event_time_after(spec, path, planned, newest, now)
    # While none is declared the watermark stands. Rows are late by it all the same, else they would be in time for
    # windows that were closed before.
    kept = newest.event_time if spec.watermark is None and newest is not None else None
    seq = next_seq(runtime, spark, spec, newest, mode)
    complete = complete_until(newest, runtime.control.checks().get(spec.name), now)
    attempt = uuid4().hex

    def receipt(good: int | None, rejected: int, left_out: int) -> Receipt:
        # Where nobody counted, the commit's own metrics have the rows.
        read = portion.most_records if good is None else good + rejected + left_out
        return Receipt(
            table=spec.name,
            fingerprint=spec.fingerprint,
            epoch=runtime.epoch,
            seq=seq,
            mode=mode,
            strategy="append",
            reason=str(Reason(reason, str(read if portion.pieces is None else portion.pieces))),
            data_timestamp=portion.at,
            positions={spec.name: portion.after},
            rows_in=read,
            rows_out=good,
            rejected=rejected,
            attempt=attempt,
            cut={str(spec.name): {"seq": seq}},
            data_timestamp_before=complete,
            seconds=time.monotonic() - standing.since,
            planned=planned,
        )

    def passed(seen: SeenTimes) -> EventTime | None:
        if spec.watermark is None:
            # Declared again, it does not go back; what came meanwhile is then read from the rows.
            if kept is None:
                return None
            return replace(kept, partitions={}, moved_by=MovedBy.NOTHING, late=0, ahead=0, late_by_seconds=0.0)
        column = spec.stored_column(spec.watermark.column)
        return after_batch(before, seen, unread(), now=now, rules=rules_of(spec), column=column)

    stands = before or kept
    watermark = None if stands is None else stands.watermark
    quarantine, known = runtime.warehouse.quarantine(spec.name), runtime.known_keys
    return Batch(spec, path, quarantine, seq, now, portion.small, watermark, receipt, passed, confirm, newest, known)


def newest_batch(spec: SourceSpec, path: Path) -> Receipt | None:
    """The receipt of the newest batch, None before the first. Raises an error for a log that has other rows."""
    newest = read_newest(path)
    receipt = None if newest is None else newest.receipt
    if newest is not None and newest.foreign:
        raise ForeignWriteError(
            f"version {newest.version} was not written by freshline. A log table holds only what its source sent: "
            f"restore it with RESTORE TABLE delta.`{path}` TO VERSION AS OF {newest.receipt_version}, "
            "then restart the engine.",
            where=str(spec.name),
        )
    position = None if receipt is None else receipt.positions.get(spec.name)
    require_known(position, spec)
    of = spec.connection.position
    if position is not None and of is not None and position.kind != of.kind:
        raise DefinitionChangedError(
            "the connector was changed, and the log has rows of the other one. Declare a source under a new name.",
            where=str(spec.written_at),
        )
    return receipt


def fenced(spec: SourceSpec) -> FencedError:
    """The error for a batch in whose place another one was committed."""
    return FencedError(
        "another batch was committed to this log meanwhile; nothing was written. Ask again.", where=str(spec.name)
    )
