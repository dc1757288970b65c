"""How far the events of a log table have come, by the receipts and rows of its log alone.

The receipt of each batch has it (`freshline.values.watermark`). Rows are read only where the receipt does not: the log
is of an earlier commit, or its watermark was declared after the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from freshline.commit.delta_log import greatest_time, least_time, open_table, read_commit, read_newest, receipt_at
from freshline.commit.warehouse import Warehouse
from freshline.values.closing import Closing
from freshline.values.connector import INGESTED_AT
from freshline.values.mode import driving_inputs
from freshline.values.names import TableName
from freshline.values.position import Position, TablePosition
from freshline.values.query import SqlQuery
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec, Spec, TableSpec
from freshline.values.watermark import (
    WHOLE_SOURCE,
    EventTime,
    PartitionTime,
    TableWatermark,
    WatermarkRules,
    earlier,
    least_watermark,
    rules_of,
    source_watermark,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def recorded_event_time(spec: SourceSpec, receipt: Receipt | None) -> EventTime | None:
    """The receipt's event time of the watermark that is declared now; None where it has none, or not all of it."""
    found = None if receipt is None else receipt.event_time
    if spec.watermark is None or found is None or not found.partitions:
        return None
    return found if found.column.lower() == spec.stored_column(spec.watermark.column).lower() else None


def event_time_after(
    spec: SourceSpec, path: Path, version: int, receipt: Receipt | None, now: datetime
) -> EventTime | None:
    """The event time of a log table after a batch; None before the first, or without a watermark.

    `receipt` is that of the batch, `version` one that has its rows and no later ones. Every partition counts as active
    at `now` where the receipt does not say it. Reads the rows of the whole log then.
    """
    if spec.watermark is None or receipt is None:
        return None
    recorded = recorded_event_time(spec, receipt)
    if recorded is not None:
        return recorded
    column, rules = spec.stored_column(spec.watermark.column), rules_of(spec)
    greatest = _greatest_times(spec, path, version, column, rules)
    times = list(greatest.values())
    floors = [earlier(min(times), rules.delay_seconds)] if times else []
    if receipt.event_time is not None and receipt.event_time.column.lower() == column.lower():
        floors += [] if receipt.event_time.watermark is None else [receipt.event_time.watermark]
    if column in receipt.watermark:
        # Earlier commits knew no partitions: the greatest time of all moved their watermark, which does not go back.
        floors += [receipt.watermark[column], *([earlier(max(times), rules.delay_seconds)] if times else [])]
    watermark = max(floors, default=None)
    return EventTime(column, watermark, watermark, {name: PartitionTime(time, now) for name, time in greatest.items()})


def watermark_of(
    specs: Mapping[TableName, Spec], warehouse: Warehouse, name: TableName, position: TablePosition | None = None
) -> TableWatermark | None:
    """The watermark of a table or source at a position, by default at its newest version.

    That of a table is the least of its driving inputs', at the positions in its receipt, or later where no row of the
    input has changed since. None where no source behind it
    declares a watermark. Reads receipts only. Raises SourceError for a log that cannot be read.
    """
    spec = specs[name]
    if not _has_watermark(specs, spec):
        return None
    receipt = _receipt(warehouse.location(spec), position)
    if isinstance(spec, SourceSpec):
        return source_watermark(str(name), recorded_event_time(spec, receipt))
    inputs = []
    for each in driving_inputs(spec):
        read = None if receipt is None else receipt.table_position(each)
        found = None if read is None else watermark_of(specs, warehouse, each, read)
        inputs.append(found or TableWatermark(None, (str(each),)))
    least = least_watermark(inputs)
    if spec.closes_windows and spec.final is not None:
        # Rows are there up to where windows are closed, and windows are closed so much later.
        until = None if receipt is None else receipt.closed_until
        query = spec.query if isinstance(spec.query, SqlQuery) else None
        if until is not None and query is not None and query.ends is not None:
            # Between two ends of windows there are no commits, so a receipt says by chance how far in between it was.
            until = _last_end(until, query.ends[0] + spec.final.lateness, query.ends[1])
        timed = None if query is None else query.timed
        behind = timedelta(microseconds=spec.final.lateness + (0 if timed is None else timed.behind))
        if timed is None and query is not None and query.ends is None:
            # A window that ends one step later may have a `window_time` at the very watermark. Where the ends of
            # windows are known, the last one is behind it by a whole step.
            behind += timedelta(microseconds=1)
        return TableWatermark(None if until is None else until - behind, least.held_by)
    return least


def _last_end(until: datetime, first: int, step: int) -> datetime:
    """The latest of the moments `first`, `first + step`, .. in microseconds since 1970 that is not behind another."""
    return until - (until - timedelta(microseconds=first) - _EPOCH) % timedelta(microseconds=step)


def closing_of(
    specs: Mapping[TableName, Spec],
    warehouse: Warehouse,
    spec: TableSpec,
    positions: Mapping[TableName, Position],
    receipt: Receipt | None,
) -> Closing | None:
    """The windows of a table with EMIT FINAL that are closed at these positions of its inputs and not in its receipt.

    For WHEN, how far the watermark is, and for a table with timers, between which watermarks they run. None for any
    other table.
    """
    if not spec.follows_watermark:
        return None
    until = watermark_read(specs, warehouse, spec, positions)
    # The condition of WHEN may ask for any watermark.
    ends = spec.query.ends if spec.closes_windows else None
    if ends is not None and spec.final is not None:
        ends = (ends[0] + spec.final.lateness, ends[1])
    closing = Closing.between(None if receipt is None else receipt.watermark_read, until, ends)
    return replace(closing, read=_batches_read(spec, receipt))


def watermark_read(
    specs: Mapping[TableName, Spec], warehouse: Warehouse, spec: TableSpec, positions: Mapping[TableName, Position]
) -> datetime | None:
    """The least watermark of what drives a table, at these positions; None where one of them has none."""
    inputs = []
    for name in spec.driving:
        position = positions.get(name)
        found = watermark_of(specs, warehouse, name, position) if isinstance(position, TablePosition) else None
        inputs.append(found or TableWatermark(None))
    return least_watermark(inputs).at


def _batches_read(spec: TableSpec, receipt: Receipt | None) -> tuple[int, ...]:
    """The numbers of the batches of a join's inputs that a receipt has read; empty without one, and for no join."""
    timed = spec.query.timed
    if timed is None or receipt is None:
        return ()
    read = [receipt.table_position(name) for name in timed.inputs]
    return tuple(0 if position is None or position.seq is None else position.seq for position in read)


def open_windows(specs: Mapping[TableName, Spec], warehouse: Warehouse, spec: TableSpec) -> int | None:
    """How many windows have begun by the newest event that the inputs have, and are not closed in the table.

    Windows without rows count too. None for a table without such windows, before the first is closed, and where windows
    have several sizes or follow a calendar. Reads receipts only.
    """
    query = spec.query
    if not isinstance(query, SqlQuery) or query.ends is None or query.reach is None or spec.final is None:
        return None
    receipt = _receipt(warehouse.location(spec), None)
    newest = [_newest_recorded(specs[name], warehouse) for name in spec.driving]
    closing = Closing.between(
        None if receipt is None else receipt.closed_until, max(filter(None, newest), default=None)
    )
    if closing.after is None or closing.until is None or None in newest:
        return None
    first, step = query.ends
    begun = (closing.until + query.reach - first) // step
    return max(0, begun - (closing.after - spec.final.lateness - first) // step)


def _newest_recorded(spec: Spec, warehouse: Warehouse) -> datetime | None:
    """The greatest time that counted so far in a log, by its newest receipt."""
    if not isinstance(spec, SourceSpec):
        return None
    recorded = recorded_event_time(spec, _receipt(warehouse.location(spec), None))
    return None if recorded is None else recorded.greatest


def _has_watermark(specs: Mapping[TableName, Spec], spec: Spec) -> bool:
    if isinstance(spec, SourceSpec):
        return spec.is_log and spec.watermark is not None
    return any(_has_watermark(specs, specs[each]) for each in driving_inputs(spec))


def _receipt(path: Path, position: TablePosition | None) -> Receipt | None:
    newest = read_newest(path)
    if newest is None:
        return None
    # Commits without rows move a watermark, and are nothing to read: who has read what was before has read them too.
    if position is None or _has_same_rows(path, position.version, newest.version):
        return newest.receipt
    return receipt_at(path, position.version)


def _has_same_rows(path: Path, version: int, later: int) -> bool:
    """Whether no commit after a version up to a later one changed rows; False where one is gone from the log."""
    commits = (read_commit(path, between) for between in range(version + 1, later + 1))
    return version <= later and all(commit is not None and not commit.changes_data for commit in commits)


def newest_event(spec: SourceSpec, path: Path, now: datetime) -> datetime | None:
    """The time of the newest event that was not too far ahead."""
    newest = read_newest(path)
    if newest is None:
        return None
    found = event_time_after(spec, path, newest.version, newest.receipt, now)
    return None if found is None else found.greatest


def _greatest_times(
    spec: SourceSpec, path: Path, version: int, column: str, rules: WatermarkRules
) -> dict[str, datetime]:
    """By source partition, the greatest time of the rows of a version that was not too far ahead of its arrival."""
    ahead = timedelta(seconds=rules.max_ahead_seconds)
    partition = spec.connection.partition
    if partition is None:
        # The log's statistics have it, unless it is one that may be too far ahead of its own arrival.
        greatest = greatest_time(path, version, column)
        arrived = least_time(path, version, INGESTED_AT)
        if greatest is not None and arrived is not None and greatest <= arrived + ahead:
            return {WHOLE_SOURCE: greatest}
    # Rows are read seldom, and pyarrow's datasets import pandas, which is half of what `freshline status` costs.
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from freshline.commit.data_files import is_plain, read_stored

    # A TIMESTAMP_NTZ has no zone: it is taken as UTC, as everywhere here.
    columns = {
        name: ds.field(of).cast(pa.timestamp("us")) for name, of in (("event", column), ("arrived", INGESTED_AT))
    }
    if partition is not None:
        columns["partition"] = ds.field(partition).cast(pa.string())
    found: dict[str, datetime] = {}
    table = open_table(path, version)
    names = [column, INGESTED_AT, *([] if partition is None else [partition])]
    whole = None if is_plain(table) else read_stored(table, path, names)
    dataset = table.to_pyarrow_dataset() if whole is None else ds.dataset(whole)
    for batch in dataset.to_batches(columns=columns):
        limits = pc.add(batch["arrived"], pa.scalar(ahead, pa.duration("us")))
        rows = pa.Table.from_batches([batch]).filter(pc.less_equal(batch["event"], limits))
        if partition is None:
            times = {WHOLE_SOURCE: pc.max(rows["event"]).as_py()}
        else:
            grouped = rows.group_by("partition").aggregate([("event", "max")]).to_pydict()
            times = dict(zip(grouped["partition"], grouped["event_max"], strict=True))
        for name, time in times.items():
            if time is not None:
                known = time.replace(tzinfo=UTC)
                found[name] = max(known, found.get(name, known))
    return found
