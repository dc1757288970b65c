"""The decisions of one refresh of a table: from where it reads on, what happened there, and which step that asks for.

Everything here reads and decides; `table.py` acts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from freshline.commit.columns import column_types, input_columns, input_types
from freshline.commit.definitions import read_definition
from freshline.commit.delta_log import Newest, classify, count_all, count_rows, may_have_times, read_newest
from freshline.commit.event_time import closing_of, watermark_read
from freshline.compute.cancellation import Cancellation, Limited
from freshline.compute.keys import FAILED_BY_ROWS, why_not
from freshline.errors import (
    DefinitionChangedError,
    FreshlineError,
    IncrementalError,
    PartitionError,
    SourceError,
    UpstreamChangedError,
)
from freshline.freshness.record import Check, complete_until
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.choose import choose_step
from freshline.plan.cut import cut_of
from freshline.plan.definition import ChangeClass, DefinitionChange, classify_change, definition_of, may_keep_rows
from freshline.plan.history import ignores_deletes, require_history
from freshline.plan.price import Price, budget_of, counts, price_of
from freshline.plan.request import LIVE, RefreshRequest
from freshline.plan.step import (
    AddTriggered,
    CloseWindows,
    FillPartitions,
    Full,
    Noop,
    ReplaceNamedPartitions,
    SendWhole,
    Situation,
    Step,
)
from freshline.query.clock import ClockSpan
from freshline.query.query import read_query
from freshline.query.rules.crossing import find_crossings
from freshline.refresh.attempt import NotIncremental
from freshline.refresh.failure import CAUSE, translate
from freshline.refresh.pending_lookups import is_due, takes_pending_lookups
from freshline.refresh.pin import Pins, cuts_to_follow, pin_inputs
from freshline.refresh.runtime import Runtime
from freshline.refresh.time_partitions import wanted_end
from freshline.values.closing import Closing
from freshline.values.names import TableName
from freshline.values.partition import Interval, find_gaps
from freshline.values.position import Position, TablePosition, position_from_json
from freshline.values.query import PythonQuery, SqlQuery, WindowInput
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult
from freshline.values.spec import SourceSpec, Spec, TableSpec

# How rows make an expression fail, in Spark or on the way into Python, which has no dates beyond the year 9999.
_BY_ROWS = (*FAILED_BY_ROWS, ValueError, OverflowError)
# More than the control store keeps of a table: the full refresh that prices are compared with may be long ago.
PRICED_REFRESHES = 1_000
# A position that only the control store knows must not fall behind the history that the inputs still have.
CARRY_AFTER = timedelta(hours=1)
CARRY_AFTER_VERSIONS = 1000


@dataclass(frozen=True)
class Decision:
    """The step of one refresh, and its basis.

    `clock` are the time for which the rows are stored and that of this refresh, None for a table without temporal
    filters. `newest` is the table as it is found, `changes` what happened to each input since, `budget` the CPU-seconds
    after which the step is given up for a full refresh. `closing` are the windows of a table with EMIT FINAL that the
    step writes, None for any other table.
    """

    newest: Newest | None
    pins: Pins
    changes: Mapping[TableName, Changes]
    step: Step
    closing: Closing | None = None
    clock: ClockSpan | None = None
    price: Price | None = None
    budget: float | None = None

    @property
    def receipt(self) -> Receipt | None:
        """The newest receipt of the table."""
        return None if self.newest is None else self.newest.receipt

    def writes_nothing(self, spec: TableSpec, *, meets: bool) -> bool:
        """Whether not even a position has to be written to the table's log; `meets` as `moves_cut` has it."""
        far_ahead = is_far_ahead(self.receipt, self.pins, spec.lookups)
        return isinstance(self.step, Noop) and not far_ahead and not (meets and self.moves_cut)

    @property
    def moves_cut(self) -> bool:
        """Whether the pinned inputs contain another part of their roots than the newest receipt says.

        A table of `Graph.meeting` writes it although no row changes: the table that reads both ways goes by receipts,
        which outlive the control store.
        """
        receipt, pins = self.receipt, self.pins
        if receipt is None:
            return False
        return (cut_of(pins.cut), cut_of(pins.ahead)) != (cut_of(receipt.cut), cut_of(receipt.cut_ahead))

    def carries_position(self, spec: TableSpec) -> bool:
        """Whether the position of a table with temporal filters is written although none of its rows change."""
        return spec.is_temporal and is_far_ahead(self.receipt, self.pins, spec.lookups)


def moves_awaited_watermark(runtime: Runtime, spec: TableSpec, decision: Decision) -> bool:
    """Whether the watermark of a table has moved since its receipt, and a table that reads it goes by it.

    That table sees the positions of commits only.
    """
    graph, receipt = runtime.graph, decision.receipt
    if receipt is None or not any(graph.table(reader).follows_watermark for reader in graph.downstream(spec.name)):
        return False
    specs, warehouse = graph.specs, runtime.warehouse
    now = watermark_read(specs, warehouse, spec, decision.pins.positions)
    before = watermark_read(specs, warehouse, spec, receipt.positions)
    return now is not None and (before is None or now > before)


def decide(runtime: Runtime, spec: TableSpec, request: RefreshRequest, instead: Reason | None) -> Decision:
    """Read the table and its inputs, and choose the step.

    `instead` says why an earlier attempt at a step by changes was given up: everything is computed then. Raises
    DefinitionChangedError, HistoryRequiredError, IncrementalError, UpstreamChangedError and the errors of sources.
    """
    path = runtime.warehouse.path(spec.name)
    if request.partitions and (spec.closes_windows or spec.is_triggered):
        raise PartitionError(
            "rows of EMIT FINAL are written once, and no partition is put in the place of another. Compute all of it "
            f"anew: `freshline refresh {spec.name} --full`.",
            where=str(spec.name),
        )
    if request.partitions and spec.is_temporal:
        raise PartitionError(
            "the query compares rows with the time, and partitions of two times must not stand beside each other. "
            f"Compute all of it anew: `freshline refresh {spec.name} --full`.",
            where=str(spec.name),
        )
    if request.partitions and spec.sink is not None:
        raise PartitionError(
            f"a sink has no partitions. Send all of it anew: `freshline refresh {spec.name} --full`.",
            where=str(spec.name),
        )
    newest = read_newest(path)
    receipt = None if newest is None else newest.receipt
    redefined = _redefinition(runtime, spec, receipt, request)
    check = runtime.control.checks().get(spec.name)
    checked = _last_check(spec, receipt, check)
    base = _base_positions(receipt, checked)
    followed = cuts_to_follow(runtime, spec, receipt) if request.cause == LIVE else ()
    pins = pin_inputs(runtime, spec, base, _own_stamp(runtime, receipt, check), followed=followed)
    runtime.failpoint("table-pinned")
    changes = _classify_inputs(pins, base)
    clock = _clock(runtime, spec, receipt, checked)
    foreign = newest is not None and newest.foreign
    columns = input_columns(runtime.graph, runtime.warehouse, spec)
    due = is_due(runtime, spec, receipt, retry=request.retry)
    # A refresh that finds nothing new needs no types, and is to be quick.
    moved = clock is not None or any(change.kind is not ChangeKind.NOTHING for change in changes.values())
    types = input_types(runtime.graph, runtime.warehouse, spec) if moved else {}
    _require_types(runtime, spec, types)
    redefined = redefined or (_gained_columns(spec, receipt, path) if moved else "")
    gaps = _missing_partitions(runtime, spec, receipt) if not (request.partitions or instead) else ()
    closing = closing_of(runtime.graph.specs, runtime.warehouse, spec, pins.positions, receipt)
    if closing is not None and spec.is_triggered:
        closing = replace(closing, after=_evaluated_at(checked, closing.after))
    still = clock is not None and _stands_still(spec, clock, pins, changes, types)
    situation = Situation(
        spec, receipt, foreign, changes, request, columns, due, types, redefined, gaps, closing, clock, still
    )
    step = choose_step(situation)
    price, budget = None, None
    # Rows that computing everything would not give again are no matter of its price.
    kept = (receipt is not None and receipt.valid_from_seq is not None) or ignores_deletes(spec)
    if step.is_priced and request.strategy is None and not spec.incremental_strict and not kept:
        records = runtime.control.refreshes(spec.name, limit=PRICED_REFRESHES, checks=False)
        price = _expected_price(spec, step, pins, changes, records, path)
        if price is not None and price.prefers_full:
            step = Full(Reason("COST", str(price)))
        else:
            budget = budget_of(
                records,
                spec.fingerprint,
                cores=runtime.sessions.root.sparkContext.defaultParallelism,
                is_local=runtime.settings.spark_master.startswith("local"),
            )
    if instead is not None and (step.reads_changes or step.fills_gaps):
        step, budget = (Full(instead) if spec.sink is None else SendWhole(instead)), None
    _require_allowed(spec, step, changes, receipt)
    if closing is not None and isinstance(step, CloseWindows | Noop):
        closing = closing.forward
    elif closing is not None and not isinstance(step, AddTriggered):
        closing = replace(closing, after=None, read=())
    return Decision(newest, pins, changes, step, closing, clock, price, budget)


def _redefinition(runtime: Runtime, spec: TableSpec, receipt: Receipt | None, request: RefreshRequest) -> str:
    """The changes of the declaration since the newest receipt, where this refresh takes them up; empty for none.

    Raises DefinitionChangedError where rows of the old and the new one must not mix.
    """
    if receipt is None:
        return ""
    if receipt.fingerprint == spec.fingerprint:
        runtime.keep_definition(spec)
        return ""
    if request.full:
        return ""
    before = read_definition(runtime.warehouse.root, receipt.fingerprint)
    change = classify_change(before, definition_of(spec))
    if spec.sink is not None:
        return change.text
    by_span = request.partitions and spec.time_partitions is not None and receipt.spans is not None
    if by_span and change.kind is not ChangeClass.DESTRUCTIVE:
        # Its receipt says which partitions are of which declaration, so a backfill may replace them one by one.
        return ""
    if request.partitions and not by_span and change.kind is ChangeClass.ADDITIVE:
        raise DefinitionChangedError(
            f"the declaration changed since the newest refresh, which one of the whole table takes up: {change.text}. "
            f"Run `freshline refresh {spec.name}` first.",
            where=str(spec.written_at),
        )
    if change.kind is ChangeClass.ADDITIVE and receipt.valid_from_seq is None and request.start is None:
        return change.text
    if change.kind is ChangeClass.DESTRUCTIVE:
        raise DefinitionChangedError(
            f"the declaration changed since the newest refresh, and what is stored would go away: {change.text}. "
            f"Change it back, or replace all of it with `freshline apply {spec.name} --from beginning --force`.",
            where=str(spec.written_at),
        )
    if request.start is not None:
        _require_start(spec, receipt, change)
    if request.start is not None and before is not None:
        if not may_keep_rows(before, definition_of(spec)):
            raise DefinitionChangedError(
                f"rows cannot be kept: the key or the partitions are computed in another way ({change.text}). Begin it "
                f"at the beginning: `freshline apply {spec.name} --from beginning`.",
                where=str(spec.written_at),
            )
        return change.text
    keeping = (
        "`--from now` keeps what is there"
        if spec.time_partitions is None
        else f"`freshline backfill {spec.name}` replaces partition by partition"
    )
    raise DefinitionChangedError(
        "the declaration changed since the newest refresh, and rows of the old and the new one must not mix: "
        f"{change.text}. Say from when on it holds: `freshline apply {spec.name} --from beginning` (or "
        f"`freshline refresh {spec.name} --full`) computes everything anew, {keeping}.",
        where=str(spec.written_at),
    )


def _require_start(spec: TableSpec, receipt: Receipt, change: DefinitionChange) -> None:
    """Raises DefinitionChangedError for a table of which no start keeps rows."""
    if not isinstance(spec.query, SqlQuery):
        raise DefinitionChangedError(
            f"a table in Python is taken up by computing it whole, so no rows are kept: {change.text}. Begin it at the "
            f"beginning: `freshline apply {spec.name} --from beginning`.",
            where=str(spec.written_at),
        )
    if spec.time_partitions is not None:
        raise DefinitionChangedError(
            f"a table with time partitions is taken over partition by partition: {change.text}. Replace them with "
            f"`freshline backfill {spec.name} --from .. --to ..`, or all at once with `--from beginning`.",
            where=str(spec.written_at),
        )
    if spec.final is not None:
        # Which rows are written already follows from the lateness and the query of before.
        raise DefinitionChangedError(
            f"EMIT FINAL writes a row once, by one declaration: {change.text}. Begin it at the beginning: "
            f"`freshline apply {spec.name} --from beginning`.",
            where=str(spec.written_at),
        )
    if receipt.pending_lookups is not None and not takes_pending_lookups(spec, receipt):
        raise DefinitionChangedError(
            "rows wait for a dimension that this declaration does not look up, and would be lost. Begin it at the "
            f"beginning: `freshline apply {spec.name} --from beginning`.",
            where=str(spec.written_at),
        )


def _require_types(runtime: Runtime, spec: TableSpec, types: Mapping[TableName, Mapping[str, str]]) -> None:
    """Raises DeclarationError where rows would be put into windows by a column that is no time, or ends are no nodes.

    Spark would take a text or a date for a time in silence.
    """
    error = None if spec.query.graph is None else spec.query.graph.check(types, spec.written_at.path)
    if error is not None:
        raise error
    times = (*spec.query.window_times, *spec.query.pattern_times)
    if not times:
        return
    inputs = {name: WindowInput(types.get(name, {}), runtime.graph.spec(name).unique_key) for name in spec.reads}
    for time in times:
        error = time.check(inputs, spec.written_at.path)
        if error is not None:
            raise error


def _gained_columns(spec: TableSpec, receipt: Receipt | None, path: Path) -> str:
    """Columns of the result that the stored table has not: of `SELECT *`, over a source that is declared with more.

    Its fingerprint is that of its text. One full refresh brings them in; where it did not, it is not tried again.
    """
    if receipt is None or receipt.fingerprint != spec.fingerprint or spec.columns is None or spec.time_partitions:
        return ""
    if not isinstance(spec.query, SqlQuery) or "*" not in spec.query.written:
        return ""  # every column stands in its text; opening the table takes 5 to 13 ms (benchmark `ageing`)
    stored = {name.lower() for name in column_types(path)}
    missing = [name for name in spec.columns if name.lower() not in stored]
    text = f"new column {', '.join(missing)}" if missing else ""
    return "" if text and text in receipt.reason else text


def _missing_partitions(runtime: Runtime, spec: TableSpec, receipt: Receipt | None) -> tuple[Interval, ...]:
    """The partitions that a table with time partitions should have by now, and has not."""
    if spec.time_partitions is None or receipt is None:
        return ()
    first = spec.time_partitions.first.start
    return find_gaps(receipt.spans or (), spec.fingerprint, first, wanted_end(runtime, spec))


def _own_stamp(runtime: Runtime, receipt: Receipt | None, check: Check | None) -> datetime | None:
    """The data timestamp of a table as its newest receipt and a check of that say it."""
    if receipt is None or receipt.data_timestamp is None:
        return None
    return complete_until(receipt, check, runtime.clock())


def _last_check(spec: TableSpec, receipt: Receipt | None, check: Check | None) -> Mapping[str, Any]:
    """The note of a check after the newest receipt that found nothing to write; empty where there is none."""
    process = spec.query.process if isinstance(spec.query, PythonQuery) else None
    if process is not None and not process.has_own_key:
        # Its stored rows are compared with a replay at the positions of the receipt, and of no check.
        return {}
    if check is None or receipt is None or not check.is_of(receipt) or "positions" not in check.known:
        return {}
    known = check.known
    # Positions and clock belong together: rows are those of both.
    return {} if spec.is_temporal and "clock" not in known else known


def _base_positions(receipt: Receipt | None, checked: Mapping[str, Any]) -> Mapping[TableName, Position]:
    """Up to where the table is known to have read: its receipt, or a later check that found nothing to write."""
    if receipt is None:
        return {}
    if not checked:
        return receipt.positions
    return {TableName.parse(key): position_from_json(value) for key, value in checked["positions"].items()}


def _clock(runtime: Runtime, spec: TableSpec, receipt: Receipt | None, checked: Mapping[str, Any]) -> ClockSpan | None:
    """The time for which the rows are stored, and the one that this refresh compares rows with."""
    if not spec.is_temporal:
        return None
    known = None if receipt is None else receipt.clock
    if known is not None and checked:
        known = datetime.fromisoformat(checked["clock"])
    return ClockSpan.until(known, runtime.clock())


def _stands_still(
    spec: TableSpec,
    clock: ClockSpan,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    types: Mapping[TableName, Mapping[str, str]],
) -> bool:
    """Whether the statistics of the inputs say that no row enters or leaves between two clocks."""
    still = all(change.kind is ChangeKind.NOTHING for change in changes.values())
    if clock.before is None or not still or not isinstance(spec.query, SqlQuery):
        return False
    crossings = find_crossings(read_query(spec.query))
    for crossing in crossings or ():
        between, pinned = crossing.between(clock), pins.inputs[crossing.input]
        if types.get(crossing.input, {}).get(crossing.column, "").upper() != "TIMESTAMP":
            return False
        if between is not None and may_have_times(pinned.path, pinned.position, crossing.column, *between):
            return False
    return bool(crossings)


def _evaluated_at(checked: Mapping[str, Any], committed: int | None) -> int | None:
    """The watermark, in microseconds, at which the condition of WHEN was evaluated last; without one, None."""
    at: int | None = checked.get("watermark")
    return max((each for each in (at, committed) if each is not None), default=None)


def _classify_inputs(pins: Pins, base: Mapping[TableName, Position]) -> dict[TableName, Changes]:
    """The changes of each input between the position that was read and the pinned one."""
    found = {}
    for name, pinned in pins.inputs.items():
        before = base.get(name)
        found[name] = classify(
            name,
            pinned.path,
            before if isinstance(before, TablePosition) else None,
            pinned.position,
            log=pinned.is_log,
            declared=_seen(pinned.spec),
        )
    return found


def _seen(spec: Spec) -> frozenset[str] | None:
    """The columns of a source that is read in place which queries see, in lower case; None for all of any other."""
    if not isinstance(spec, SourceSpec) or spec.is_log:
        return None
    return frozenset(column.name.lower() for column in spec.columns)


def _expected_price(
    spec: TableSpec,
    step: Step,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    records: Sequence[RefreshResult],
    path: Path,
) -> Price | None:
    """The expected prices of the step and of a full refresh; None where they do not count or are not known."""
    changed = sum(changes[name].rows for name in spec.driving)
    driving = [count or 0 for count in count_all(pins.inputs[name].path for name in spec.driving)]
    if not counts(changed, sum(driving) + (count_rows(path) or 0)):
        return None
    return price_of(step.strategy, changed, records, spec.fingerprint, rows=sum(driving))


def _require_allowed(
    spec: TableSpec, step: Step, changes: Mapping[TableName, Changes], receipt: Receipt | None
) -> None:
    """Refuse a step that the declaration forbids.

    Raises HistoryRequiredError, IncrementalError and UpstreamChangedError.
    """
    if isinstance(step, Full):
        require_history(spec, receipt, changes, step.reason)
    kept = receipt is not None and receipt.valid_from_seq is not None
    if isinstance(step, Full) and kept and step.reason.code not in ("REQUESTED", "NO_RECEIPT"):
        raise IncrementalError(
            "rows from before the declaration's start are kept as they are, and this change needs a full refresh, "
            f"which computes them anew: {step.reason}. Run `freshline refresh {spec.name} --full`.",
            where=str(spec.written_at),
        )
    if isinstance(step, Full) and spec.incremental_strict and step.reason.code not in ("REQUESTED", "NO_RECEIPT"):
        raise IncrementalError(
            f"`incremental = strict`, but this change needs a full refresh: {step.reason}. "
            f"Run `freshline refresh {spec.name} --full`, or declare `incremental = auto`.",
            where=str(spec.name),
        )
    if spec.merge is not None and spec.merge.upstream_deletes == "error":
        hit = [
            c for n in spec.driving if (c := changes[n]).kind in (ChangeKind.MUTATE, ChangeKind.REPLACE) and c.before
        ]
        if hit and step.reason.code == "UPSTREAM_DELETES":
            raise UpstreamChangedError(
                f"{hit[0].name} updated or deleted rows (versions {hit[0].before and hit[0].before.version + 1} to "
                f"{hit[0].after.version}), and `upstream-deletes` is `error`. "
                f"Run `freshline refresh {spec.name} --full` to take them in.",
                where=str(spec.name),
            )


def why_full(
    error: Exception, spec: TableSpec, step: Step, limited: Limited, cancellation: Cancellation
) -> Reason | None:
    """Why everything is to be computed after a step failed: it took too long, or changed rows are no longer there."""
    if isinstance(error, NotIncremental):
        return error.reason
    if limited.exceeded and not cancellation.cancelled:
        return Reason("BUDGET_EXCEEDED", f"{limited.allowed:.0f} CPU-s")
    if step.fills_gaps:
        failure = translate(error, spec, cancellation)
        return Reason("HISTORY_GONE", failure.message) if isinstance(failure, SourceError) else None
    if isinstance(error, FreshlineError) or not step.reads_changes:
        return None
    if step.partition_input is not None and _is_by_rows(error) and not cancellation.cancelled:
        # Its partition is computed of rows too that the query leaves out. The full one reports an error of the query.
        return why_not(error)
    failure = translate(error, spec, cancellation)
    return Reason("HISTORY_GONE", failure.message) if isinstance(failure, SourceError) else None


def may_do_without_push_down(error: Exception, step: Step) -> bool:
    """Whether a step over whole partitions failed in a way that one does not which reads all rows of its input."""
    return isinstance(step, FillPartitions | ReplaceNamedPartitions) and _is_by_rows(error)


def _is_by_rows(error: Exception) -> bool:
    """Whether rows made an expression fail; of a task that writes, PySpark knows no kind, only what Java says."""
    return isinstance(error, _BY_ROWS) or (isinstance(error, Py4JJavaError) and CAUSE.search(str(error)) is not None)


def is_far_ahead(receipt: Receipt | None, pins: Pins, pinned_only: frozenset[TableName]) -> bool:
    """Whether the checked position has run so far ahead of the receipt that it must be carried into the log."""
    if receipt is None:
        return False
    moved = False
    for name in receipt.positions:
        pinned = pins.inputs.get(name)
        before = receipt.table_position(name)
        # A log table is read by batch number, and dimensions do not drive: neither can be left behind by retention.
        if pinned is None or pinned.is_log or name in pinned_only or before is None:
            continue
        if before.version == pinned.position.version:
            continue
        moved = True
        if pinned.position.version - before.version > CARRY_AFTER_VERSIONS:
            return True
    stamp = receipt.data_timestamp
    return moved and stamp is not None and pins.data_timestamp - stamp > CARRY_AFTER
