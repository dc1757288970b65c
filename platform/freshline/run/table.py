"""One refresh of one table: pin, classify, choose, compute, one fenced commit, read back.

Stopped at any point, either the commit with its receipt is there or the table is as it was; the next refresh begins
from the newest receipt in both cases.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import assert_never
from uuid import uuid4

from freshline.commit.columns import input_columns
from freshline.commit.delta_log import (
    Newest,
    classify,
    count_all,
    count_rows,
    newest_version,
    position_of,
    read_newest,
)
from freshline.commit.write import (
    Committed,
    write_and_read_back,
)
from freshline.declare.names import TableName
from freshline.declare.query import PythonQuery
from freshline.declare.spec import SourceSpec, Spec, TableSpec
from freshline.errors import (
    CancelledError,
    DefinitionChangedError,
    FencedError,
    FreshlineError,
    IncrementalError,
    PartitionError,
    SourceError,
    UpstreamChangedError,
)
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.lag import lag_seconds
from freshline.plan.position import Position, TablePosition, position_from_json
from freshline.plan.price import Price, budget_of, counts, price_of
from freshline.plan.reason import Reason
from freshline.plan.receipt import Receipt
from freshline.plan.record import RefreshRecord
from freshline.plan.request import RefreshRequest
from freshline.plan.step import (
    Append,
    Full,
    MergeRows,
    Noop,
    RefoldKeys,
    RefreshKeys,
    ReplaceNamedPartitions,
    ReplacePartitions,
    Situation,
    Step,
    choose_step,
    strategy_of,
)
from freshline.refresh.cancellation import Cancellation, Limited
from freshline.refresh.execution import suited_to
from freshline.refresh.inputs import (
    drop_views,
)
from freshline.report.outcome import Outcome
from freshline.report.status import kind_of
from freshline.run.failure import translate
from freshline.run.log import refresh_log
from freshline.run.parked import is_due
from freshline.run.pin import Pins, pin_inputs
from freshline.run.prepare import Work, prepare
from freshline.run.runtime import Progress, Runtime
from freshline.run.savepoint import finish_restore, is_restoring

ATTEMPTS = 3
# The steps that read changes of inputs, and not only their newest versions.
BY_CHANGES = (Append, MergeRows, RefoldKeys, RefreshKeys, ReplacePartitions)
# The steps whose cost grows with what they touch; an append never reads the table.
PRICED = (MergeRows, RefoldKeys, RefreshKeys, ReplacePartitions)
# More than the control store keeps of a table: the full refresh that prices are compared with may be long ago.
PRICED_REFRESHES = 1_000
# A position that only the control store knows must not fall behind what the inputs still hold.
CARRY_AFTER = timedelta(hours=1)
CARRY_AFTER_VERSIONS = 1000


def refresh_table(
    runtime: Runtime,
    name: TableName,
    request: RefreshRequest,
    *,
    cancellation: Cancellation,
    progress: Progress,
) -> Outcome:
    """Bring one table, log table or source to its inputs' newest versions, and tell what happened.

    Never raises for a refresh that failed or was cancelled: the outcome says so. A second call for the same
    table waits for the first.
    """
    started = time.monotonic()
    spec = runtime.graph.spec(name)
    while True:
        trouble = _finish_restore(runtime)
        with runtime.lock(name):
            if trouble is None and is_restoring(runtime):
                # It was begun after the look, and stopped half way.
                continue
            with runtime.cpu.measuring() as cpu:
                outcome = _outcome_of(runtime, spec, request, cancellation, progress, trouble)
            outcome = replace(outcome, seconds=time.monotonic() - started, cpu_seconds=cpu.seconds)
            _record(runtime, outcome, spec.fingerprint, request.cause)
            return outcome


def _finish_restore(runtime: Runtime) -> FreshlineError | None:
    """Finish a restore that was stopped half way; what stands against it stands against every refresh."""
    try:
        finish_restore(runtime)
    except FreshlineError as error:
        return error
    return None


def _outcome_of(
    runtime: Runtime,
    spec: Spec,
    request: RefreshRequest,
    cancellation: Cancellation,
    progress: Progress,
    trouble: FreshlineError | None,
) -> Outcome:
    """Refresh, whatever it is; a failure becomes an outcome, and so does what stands against a refresh."""
    name = spec.name
    try:
        cancellation.check()
        if trouble is not None:
            raise trouble
        if isinstance(spec, TableSpec):
            return _refresh(runtime, spec, request, cancellation, progress)
        if request.partitions or (request.full and spec.is_log):
            raise (
                PartitionError(
                    f"{name} is a source: it has no partitions and cannot be computed again", where=str(name)
                )
                if request.partitions
                else DefinitionChangedError(
                    "a log table only grows; it cannot be refreshed in full. Refresh the tables that read it.",
                    where=str(name),
                )
            )
        if spec.is_log:
            return refresh_log(runtime, spec, request, cancellation=cancellation, progress=progress)
        return _check_source(runtime, spec)
    except Exception as error:  # noqa: BLE001 - the edge of a refresh: every failure becomes an outcome
        failure = translate(error, spec, cancellation)
        cancelled = isinstance(failure, CancelledError)
        outcome = Outcome(
            table=name,
            kind=kind_of(spec),
            state="CANCELLED" if cancelled else "FAILED",
            strategy=None,
            reason=f"{failure.code}: {failure.message}",
            version=newest_version(runtime.warehouse.location(spec)),
            rows_in=0,
            rows_out=0,
            seconds=0.0,
            mode=str(runtime.graph.mode(name)),
            error=failure,
        )
        if not isinstance(error, FreshlineError) and not cancelled:
            failure.__cause__ = error
        return outcome


def _record(runtime: Runtime, outcome: Outcome, fingerprint: str, cause: str) -> None:
    now = runtime.clock()
    runtime.control.record_refresh(
        RefreshRecord(
            table=outcome.table,
            at=now,
            state=outcome.state,
            strategy=outcome.strategy,
            reason=outcome.reason,
            seconds=outcome.seconds,
            version=outcome.version,
            rows_in=outcome.rows_in,
            rows_out=outcome.rows_out,
            rejected=outcome.rejected,
            committed=outcome.committed,
            fingerprint=fingerprint,
            data_timestamp=outcome.data_timestamp,
            error=None if outcome.error is None else outcome.error.as_json(),
            problems=tuple(str(problem) for problem in outcome.problems),
            mode=outcome.mode,
            late_rows=outcome.late_rows,
            cause=cause,
            cpu_seconds=outcome.cpu_seconds,
            predicted_seconds=outcome.predicted_seconds,
            full_seconds=outcome.full_seconds,
            lag_seconds=lag_seconds(outcome.data_timestamp, now),
        )
    )


def _check_source(runtime: Runtime, spec: SourceSpec) -> Outcome:
    """Look at a source that is read in place; nothing is copied."""
    now = runtime.clock()
    path = Path(spec.path)
    version = newest_version(path)
    if version is None:
        raise SourceError(
            f"there is no Delta table at {path}. Write it, or correct `path`.", where=str(spec.written_at)
        )
    runtime.control.record_check(spec.name, now, json.dumps(position_of(path, version).as_json()))
    return Outcome(
        table=spec.name,
        kind="source",
        state="SUCCEEDED",
        strategy="noop",
        reason=str(Reason("NOTHING_NEW", "read in place")),
        version=version,
        rows_in=0,
        rows_out=0,
        seconds=0.0,
        mode=str(runtime.graph.mode(spec.name)),
        data_timestamp=now,
    )


def _refresh(
    runtime: Runtime,
    spec: TableSpec,
    request: RefreshRequest,
    cancellation: Cancellation,
    progress: Progress,
) -> Outcome:
    path = runtime.warehouse.path(spec.name)
    mode = str(runtime.graph.mode(spec.name))
    instead: Reason | None = None
    for _ in range(ATTEMPTS):
        started = time.monotonic()
        newest = read_newest(path)
        receipt = None if newest is None else newest.receipt
        _require_same_definition(spec, receipt, request)
        base = _base_positions(runtime, spec, receipt)
        pins = pin_inputs(runtime, spec, base)
        runtime.failpoint("table-pinned")
        changes = _classify(pins, base)
        foreign = newest is not None and newest.foreign
        columns = input_columns(runtime.graph, runtime.warehouse, spec)
        due = is_due(runtime, spec, receipt)
        step = choose_step(Situation(spec, receipt, foreign, changes, request, columns, due))
        price: Price | None = None
        budget: float | None = None
        if isinstance(step, PRICED) and request.strategy is None and not spec.incremental_strict:
            records = runtime.control.refreshes(spec.name, limit=PRICED_REFRESHES, looks=False)
            price = _price(spec, step, pins, changes, records, path)
            if price is not None and price.prefers_full:
                step = Full(Reason("COST", str(price)))
            else:
                budget = budget_of(records, spec.fingerprint)
        if instead is not None and isinstance(step, BY_CHANGES):
            step, budget = Full(instead), None
        _require_allowed(spec, step, changes)
        if pins.mixed:
            progress(f"{Reason('MIXED_CUT', ', '.join(pins.mixed))}")
        if isinstance(step, Noop) and not _far_ahead(receipt, pins, spec.lookups):
            return _noop(runtime, spec, newest, pins, step.reason, mode)
        progress(_describe(step))
        limited = Limited(cancellation, budget)
        try:
            with (
                limited,
                runtime.working(limited, pool=request.cause, what=f"refresh {spec.name}") as spark,
                ExitStack() as held,
            ):
                held.callback(drop_views, spark, spec.reads)
                held.enter_context(suited_to(spark, count_all([path, *(item.path for item in pins.inputs.values())])))
                work = prepare(runtime, spark, spec, step, pins, changes, receipt, held, limited, mode)
                if work.write is None:
                    return _noop(runtime, spec, newest, pins, work.reason, mode, work)
                if work.met is not None and work.met.waiting:
                    progress(f"{work.met.waiting} rows wait for their dimension")
                new = _receipt(runtime, spec, receipt, pins, work, mode, time.monotonic() - started)
                limited.check()
                runtime.failpoint("table-before-commit")
                committed = write_and_read_back(partial(work.write, new), path, new)
                runtime.failpoint("table-after-commit")
        except Exception as error:
            instead = _why_full(error, spec, step, limited, cancellation)
            if instead is None:
                raise
            progress(f"{instead.code}: planning again")
            continue
        if committed is not None:
            return _priced(_succeeded(spec, committed, work, mode), price)
        progress("another refresh was committed meanwhile; planning again")
    raise FencedError(f"{ATTEMPTS} refreshes of this table were overtaken by others. Ask again.", where=str(spec.name))


def _why_full(
    error: Exception, spec: TableSpec, step: Step, limited: Limited, cancellation: Cancellation
) -> Reason | None:
    """Why everything is to be computed after a step failed: it took too long, or changed rows are no longer there."""
    if limited.exceeded and not cancellation.cancelled:
        return Reason("BUDGET_EXCEEDED", f"{limited.seconds:.0f} s")
    if isinstance(error, FreshlineError) or not isinstance(step, BY_CHANGES):
        return None
    failure = translate(error, spec, cancellation)
    return Reason("HISTORY_GONE", failure.message) if isinstance(failure, SourceError) else None


def _require_same_definition(spec: TableSpec, receipt: Receipt | None, request: RefreshRequest) -> None:
    if receipt is None or receipt.fingerprint == spec.fingerprint or request.full:
        return
    if isinstance(spec.query, PythonQuery):
        # A table in Python is computed whole by every refresh, so its new code replaces all rows of the old.
        return
    raise DefinitionChangedError(
        "the declaration changed since the newest refresh, and rows of the old and the new one must not mix. "
        f"Compute it from the beginning with `freshline refresh {spec.name} --full`.",
        where=str(spec.written_at),
    )


def _base_positions(runtime: Runtime, spec: TableSpec, receipt: Receipt | None) -> Mapping[TableName, Position]:
    """Up to where the table is known to have read: its receipt, or a later check that found nothing to write."""
    if receipt is None:
        return {}
    check = runtime.control.checks().get(spec.name)
    if check is None:
        return receipt.positions
    known = json.loads(check.position or "{}")
    if known.get("seq") != receipt.seq or "positions" not in known:
        return receipt.positions
    return {TableName.parse(key): position_from_json(value) for key, value in known["positions"].items()}


def _price(
    spec: TableSpec,
    step: Step,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    records: Sequence[RefreshRecord],
    path: Path,
) -> Price | None:
    """What the step and a full refresh are expected to take; None where that does not count or is not known."""
    changed = sum(changes[name].rows for name in spec.driving)
    driving = [count or 0 for count in count_all(pins.inputs[name].path for name in spec.driving)]
    if not counts(changed, sum(driving) + (count_rows(path) or 0)):
        return None
    return price_of(strategy_of(step), changed, records, spec.fingerprint, rows=sum(driving))


def _classify(pins: Pins, base: Mapping[TableName, Position]) -> dict[TableName, Changes]:
    found = {}
    for name, pinned in pins.inputs.items():
        before = base.get(name)
        found[name] = classify(
            name,
            pinned.path,
            before if isinstance(before, TablePosition) else None,
            pinned.position,
            log=pinned.is_log,
        )
    return found


def _require_allowed(spec: TableSpec, step: Step, changes: Mapping[TableName, Changes]) -> None:
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


def _far_ahead(receipt: Receipt | None, pins: Pins, pinned_only: frozenset[TableName]) -> bool:
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


def _noop(
    runtime: Runtime,
    spec: TableSpec,
    newest: Newest | None,
    pins: Pins,
    reason: Reason,
    mode: str,
    work: Work | None = None,
) -> Outcome:
    receipt = None if newest is None else newest.receipt
    if receipt is not None:
        # Lookup tables keep the dimension versions that their rows met; only what drives is moved.
        positions = {name: position.as_json() for name, position in pins.positions.items()}
        runtime.control.record_check(
            spec.name,
            pins.data_timestamp,
            json.dumps({"seq": receipt.seq, "positions": {str(name): value for name, value in positions.items()}}),
        )
    return Outcome(
        table=spec.name,
        kind="table",
        state="SUCCEEDED",
        strategy="noop",
        reason=str(reason),
        version=None if newest is None else newest.version,
        rows_in=0 if work is None else work.rows_in,
        rows_out=0,
        rejected=0 if work is None else work.rejected,
        seconds=0.0,
        mode=mode,
        data_timestamp=pins.data_timestamp,
    )


def _succeeded(spec: TableSpec, committed: Committed, work: Work, mode: str) -> Outcome:
    return Outcome(
        table=spec.name,
        kind="table",
        state="SUCCEEDED",
        strategy=work.strategy,
        reason=str(work.reason),
        version=committed.version,
        rows_in=work.rows_in,
        rows_out=committed.rows_out,
        rejected=work.rejected,
        seconds=0.0,
        mode=mode,
        data_timestamp=committed.receipt.data_timestamp,
        committed=True,
        cache_hits=work.cache_hits,
    )


def _priced(outcome: Outcome, price: Price | None) -> Outcome:
    if price is None:
        return outcome
    predicted = price.full if outcome.strategy == "full" else price.incremental
    return replace(outcome, predicted_seconds=round(predicted, 3), full_seconds=round(price.full, 3))


def _receipt(
    runtime: Runtime, spec: TableSpec, previous: Receipt | None, pins: Pins, work: Work, mode: str, seconds: float
) -> Receipt:
    seq = 1 if previous is None else previous.seq + 1
    moves = work.positions is pins.positions or work.positions == pins.positions
    return Receipt(
        table=spec.name,
        fingerprint=spec.fingerprint,
        epoch=runtime.epoch,
        seq=seq,
        mode=mode,
        strategy=work.strategy,
        reason=str(work.reason),
        data_timestamp=pins.data_timestamp if moves or previous is None else previous.data_timestamp,
        positions=work.positions,
        rows_in=work.rows_in,
        rows_out=None,
        rejected=work.rejected,
        attempt=uuid4().hex,
        cut=pins.cut if moves or previous is None else previous.cut,
        partitions=work.partitions,
        replayed_from=seq if work.strategy == "full" or previous is None else previous.replayed_from,
        seconds=seconds,
        parked=_parked(previous, work),
    )


def _parked(previous: Receipt | None, work: Work) -> int | None:
    if work.met is not None:
        return work.met.parked
    # An empty commit carries on what the newest receipt says.
    return previous.parked if previous is not None and work.strategy == "noop" else None


def _describe(step: Step) -> str:
    match step:
        case Noop():
            return "carrying the checked position into the log"
        case Append():
            return "appending new rows"
        case MergeRows():
            return "merging new rows"
        case RefreshKeys() | RefoldKeys():
            return "computing affected keys again"
        case ReplacePartitions() | ReplaceNamedPartitions():
            return "computing partitions again"
        case Full():
            return f"computing everything ({step.reason.code})"
    assert_never(step)
