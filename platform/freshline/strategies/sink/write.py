"""Rows go out to a sink, and the receipt of it into the table of the sink, which has no rows.

The position in the sink decides, not the receipt: a refresh that was stopped after the sink had taken the rows finds
them there, and writes the receipt alone. So the order is rows and position, then the receipt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from freshline.commit.delta_log import classify, count_all, count_rows, exists, table_id
from freshline.commit.write import carry_receipt, create_table, overwrite_table, stored_schema
from freshline.compute.constraints import TABLE_QUARANTINE_SCHEMA
from freshline.compute.execution import suited_to
from freshline.compute.few_outgoing import few_changed
from freshline.compute.inputs import Pinned, is_shown
from freshline.compute.outgoing import (
    Outgoing,
    changed_rows,
    collected,
    in_memory,
    nested_of,
    touched_rows,
    whole_table,
)
from freshline.errors import SinkSchemaError, SinkTypeError
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.disk import history_seconds
from freshline.plan.step import SendChanges, SendWhole
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.quarantine import commit_quarantine, last_kept_seq
from freshline.sinks.writer import Delivered, Delivery, KeepRejected, OutgoingRows, RejectedRow, SinkWriter
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.result import Strategy
from freshline.values.sink_position import SinkPosition


def send_changes(attempt: Attempt, step: SendChanges) -> Work:
    """The write of what changed since the version that the sink has."""
    writer = attempt.runtime.sink_writer(attempt.spec)
    pinned = _pinned(attempt)
    _require_types(attempt, pinned)
    _create(attempt, pinned)
    held = writer.position()
    if held is None or held.owner != _owner(attempt):
        return _whole(attempt, writer, Reason("NO_RECEIPT"))
    if held.table == pinned.position and held.unfinished is None:
        return _found(attempt, step, writer)
    changes = _changes_since(attempt, held, pinned)
    if changes.kind is ChangeKind.NOTHING and held.unfinished is None:
        return _found(attempt, step, writer)
    why = _why_whole(changes) or _why_unknown(held, pinned, changes)
    if why is None and attempt.spec.sink is not None and not attempt.spec.sink.takes_changes:
        why = Reason("WHOLE_VERSIONS", str(pinned.name))
    if why is not None:
        return _whole(attempt, writer, why)
    few = few_changed(attempt.spec, pinned, changes) if held.unfinished is None else None
    if few is not None:
        here = nullcontext(in_memory(few, _nested(attempt, pinned), attempt.cancellation.check))
        return _work(attempt, writer, here, held, step.strategy, step.reason, changes.rows)
    rows_of = changed_rows if held.unfinished is None else touched_rows
    outgoing = _collected(attempt, pinned, lambda: rows_of(attempt.spark, attempt.spec, pinned, changes), changes.rows)
    return _work(attempt, writer, outgoing, held, step.strategy, step.reason, changes.rows)


def send_whole(attempt: Attempt, step: SendWhole) -> Work:
    """The write of all rows, which takes away from the sink whatever the table has not."""
    pinned = _pinned(attempt)
    _require_types(attempt, pinned)
    _require_no_lost_column(attempt, pinned)
    _create(attempt, pinned)
    return _whole(attempt, attempt.runtime.sink_writer(attempt.spec), step.reason)


def _whole(attempt: Attempt, writer: SinkWriter, reason: Reason) -> Work:
    pinned = _pinned(attempt)
    count = count_rows(pinned.path, pinned.position.version)
    expected = 2**62 if count is None else count
    outgoing = _collected(attempt, pinned, lambda: whole_table(attempt.spark, attempt.spec, pinned), expected)
    return _work(attempt, writer, outgoing, None, Strategy.FULL, reason, count or 0)


def _collected(
    attempt: Attempt, pinned: Pinned, rows: Callable[[], DataFrame], expected: int
) -> AbstractContextManager[Outgoing]:
    """The rows, computed by Spark in the way that suits the size of the table."""
    attempt.held.enter_context(suited_to(attempt.spark, count_all([pinned.path])))
    return collected(
        rows(),
        _folder(attempt),
        nested=_nested(attempt, pinned),
        expected=expected,
        check=attempt.cancellation.check,
    )


def _work(
    attempt: Attempt,
    writer: SinkWriter,
    outgoing: AbstractContextManager[Outgoing],
    before: SinkPosition | None,
    strategy: str,
    reason: Reason,
    rows_in: int,
) -> Work:
    """The write of rows; they are computed now, so that what fails in it fails before anything is written."""
    rows = attempt.held.enter_context(outgoing)

    def write(receipt: Receipt) -> None:
        after = _position(attempt, receipt)
        # A receipt of another declaration may be about another place.
        earlier = attempt.receipt
        was_written = earlier is not None and earlier.fingerprint == attempt.spec.fingerprint
        delivery = Delivery(before, after, takes_over=reason.code == "REQUESTED", was_written=was_written)
        left, is_kept = _left_rejected(attempt, writer)
        rejected = [*left]
        waiting = [] if is_kept else [*left]

        def keep(found: Sequence[RejectedRow]) -> None:
            rejected.extend(found)
            # Under one number there is one commit.
            _keep_rejected(attempt, [*waiting, *found], receipt)
            waiting.clear()

        attempt.runtime.failpoint("sink-writing")
        delivered = _send(writer, rows, delivery, keep)
        if waiting:
            keep(())
        writer.forget_left()
        attempt.runtime.failpoint("sink-written")
        done = replace(receipt, rows_out=delivered.written + delivered.deleted, rejected=len(rejected))
        _commit_receipt(attempt, done)

    return Work(write, strategy, reason, rows_in, attempt.pins.positions, {})


def _send(writer: SinkWriter, rows: OutgoingRows, delivery: Delivery, keep: KeepRejected) -> Delivered:
    if delivery.before is None:
        return writer.compare(rows, delivery, keep)
    return writer.apply(rows, delivery, keep)


def _left_rejected(attempt: Attempt, writer: SinkWriter) -> tuple[Sequence[RejectedRow], bool]:
    """The rows that were not taken of a delivery that was stopped, and whether they are in the quarantine."""
    left = writer.left_rejected()
    if left is None:
        return (), True
    path = attempt.runtime.warehouse.rejections(attempt.spec)
    return left.rows, last_kept_seq(path) >= left.seq


def _found(attempt: Attempt, step: SendChanges, writer: SinkWriter) -> Work:
    """The write of the receipt alone: the sink has this state already."""

    def write(receipt: Receipt) -> None:
        left, is_kept = _left_rejected(attempt, writer)
        if not is_kept:
            _keep_rejected(attempt, left, receipt)
        writer.forget_left()
        _commit_receipt(attempt, replace(receipt, rows_out=0, rejected=len(left)))

    return Work(write, step.strategy, step.reason, 0, attempt.pins.positions, {})


def _commit_receipt(attempt: Attempt, receipt: Receipt) -> None:
    """Write the receipt, and the columns that the table of the sink has not yet."""
    columns = _columns(_pinned(attempt))
    if stored_schema(attempt.path) == columns:
        carry_receipt(lambda: attempt.spark, attempt.path, receipt)
    else:
        overwrite_table(attempt.spark.createDataFrame([], columns), attempt.path, receipt)


def _pinned(attempt: Attempt) -> Pinned:
    (name,) = attempt.spec.reads
    return attempt.inputs[name]


def _columns(pinned: Pinned) -> StructType:
    """The columns of the table, as its newest version has them."""
    return StructType(
        [
            StructField(field.name, field.dataType, True)
            for field in stored_schema(pinned.path).fields
            if is_shown(field.name)
        ]
    )


def _nested(attempt: Attempt, pinned: Pinned) -> frozenset[str]:
    """The columns that go out as JSON texts."""
    assert attempt.spec.sink is not None
    if attempt.spec.sink.takes_nested:
        return frozenset()
    return nested_of({field.name: field.dataType for field in _columns(pinned).fields})


def _require_types(attempt: Attempt, pinned: Pinned) -> None:
    """Raises SinkTypeError for a column whose values the sink cannot have."""
    spec = attempt.spec
    assert spec.sink is not None
    keys = {key.lower() for key in spec.primary_key}
    for field in _columns(pinned).fields:
        kind = field.dataType.simpleString().upper()
        reason = spec.sink.refuses(kind, is_key=field.name.lower() in keys)
        if reason is not None:
            raise SinkTypeError(
                f"column {field.name} of {pinned.name} is {kind}, which {spec.sink.title} cannot have: {reason}. "
                "Convert it in a table of its own, and send that one.",
                where=f"{spec.name} ({spec.written_at})",
            )


def _require_no_lost_column(attempt: Attempt, pinned: Pinned) -> None:
    """Raises SinkSchemaError where the sink has columns that the table has no more: their values would stay.

    A sink of whole versions begins each of them without what was there before.
    """
    sink = attempt.spec.sink
    if not exists(attempt.path) or attempt.receipt is None or sink is None or not sink.takes_changes:
        return
    now = {field.name.lower() for field in _columns(pinned).fields}
    lost = [field.name for field in stored_schema(attempt.path).fields if field.name.lower() not in now]
    if lost:
        raise SinkSchemaError(
            f"{pinned.name} has no column {', '.join(lost)} any more, and the sink has. Take it away there, then drop "
            f"the sink with PURGE and declare it again, and run `freshline refresh {attempt.spec.name} --full`.",
            where=str(attempt.spec.written_at),
        )


def _create(attempt: Attempt, pinned: Pinned) -> None:
    """Make the table of receipts, where there is none."""
    if exists(attempt.path):
        return
    spec, runtime = attempt.spec, attempt.runtime
    runtime.require_warehouse()
    history = history_seconds(spec, runtime.graph.mode(spec.name))
    create_table(attempt.spark, attempt.path, _columns(pinned), history_seconds=history)
    runtime.failpoint("table-created")


def _owner(attempt: Attempt) -> str:
    return f"{attempt.spec.name} {table_id(attempt.path)}"


def _position(attempt: Attempt, receipt: Receipt) -> SinkPosition:
    return SinkPosition(_owner(attempt), _pinned(attempt).position, receipt.seq, receipt.epoch)


def _changes_since(attempt: Attempt, held: SinkPosition, pinned: Pinned) -> Changes:
    """The changes from the version that the sink has."""
    known = attempt.changes[pinned.name]
    if known.before == held.table:
        return known
    return classify(pinned.name, pinned.path, held.table, pinned.position, log=False)


def _why_whole(changes: Changes) -> Reason | None:
    """The reason why changes cannot be followed; None where they can."""
    for kind, code in (
        (ChangeKind.SOURCE_REPLACED, "SOURCE_REPLACED"),
        (ChangeKind.SCHEMA_CHANGED, "SCHEMA_CHANGED"),
        (ChangeKind.HISTORY_GONE, "HISTORY_GONE"),
    ):
        if changes.kind is kind:
            return Reason(code, f"{changes.name}: {changes.detail or kind}")
    if changes.gained:
        return Reason("SCHEMA_CHANGED", f"{changes.name}: new column {', '.join(changes.gained)}")
    if changes.kind is not ChangeKind.APPEND and not changes.change_feed:
        return Reason("CDF_DISABLED", str(changes.name))
    return None


def _why_unknown(held: SinkPosition, pinned: Pinned, changes: Changes) -> Reason | None:
    """The reason why nobody knows which rows an unfinished attempt may have written; None where it is known."""
    began = held.unfinished
    if began is None:
        return None
    is_behind = began.table_id == pinned.position.table_id and began.version <= pinned.position.version
    if is_behind and changes.kind is not ChangeKind.NOTHING:
        return None
    return Reason("SOURCE_REPLACED", f"{changes.name}: an attempt that did not finish was of other changes")


def _folder(attempt: Attempt) -> Path:
    return attempt.runtime.warehouse.notes / "sending" / str(attempt.spec.name)


def _keep_rejected(attempt: Attempt, rejected: Sequence[RejectedRow], receipt: Receipt) -> None:
    """Keep what the sink does not take, under the number of the refresh, which is not committed yet."""
    if not rejected:
        return
    runtime = attempt.runtime
    now, at = runtime.clock(), json.dumps(_pinned(attempt).position.as_json())
    rows = attempt.spark.createDataFrame(
        [(receipt.seq, at, each.row, each.code, each.message, now) for each in rejected], TABLE_QUARANTINE_SCHEMA
    )
    commit_quarantine(
        runtime,
        attempt.spark,
        attempt.spec,
        rows,
        replace(receipt, rejected=len(rejected)),
        count=len(rejected),
        schema=TABLE_QUARANTINE_SCHEMA,
    )
    runtime.failpoint("sink-rejected-kept")
