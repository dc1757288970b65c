"""One refresh of one table: pin, classify, choose, compute, one fenced commit, read back.

Stopped at any point, either the commit with its receipt is there or the table is as it was; the next refresh begins
from the newest receipt in both cases.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import assert_never
from uuid import uuid4

from freshline.commit.columns import input_columns, input_types
from freshline.commit.definitions import read_definition
from freshline.commit.delta_log import (
    Newest,
    classify,
    count_all,
    count_rows,
    newest_version,
    position_of,
    read_commit,
    read_newest,
)
from freshline.commit.write import (
    Committed,
    write_and_read_back,
)
from freshline.declare.names import TableName
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
from freshline.plan.definition import ChangeClass, classify_change, definition_of, may_keep_rows
from freshline.plan.history import ignores_deletes, inputs_short_after, require_history
from freshline.plan.lag import lag_seconds
from freshline.plan.partition import Interval, Span, find_gaps, settle_spans
from freshline.plan.position import Position, TablePosition, position_from_json
from freshline.plan.price import Price, budget_of, counts, price_of
from freshline.plan.reason import Reason
from freshline.plan.receipt import Receipt
from freshline.plan.record import RefreshRecord
from freshline.plan.request import RefreshRequest
from freshline.plan.step import (
    Append,
    Begin,
    FillPartitions,
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
from freshline.run.attempt import Attempt, Work
from freshline.run.failure import translate
from freshline.run.judge import Judge
from freshline.run.log import refresh_log
from freshline.run.parked import is_due
from freshline.run.pin import Pins, pin_inputs
from freshline.run.prepare import prepare
from freshline.run.runtime import Progress, Runtime
from freshline.run.savepoint import finish_restore, is_restoring
from freshline.run.spans import wanted_end, written_partitions
from freshline.run.topic import refresh_topic

LOG = logging.getLogger(__name__)

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
            try:
                _record(runtime, outcome, spec.fingerprint, request.cause)
            except FreshlineError as error:
                # What was committed tells of itself: a store that is away for a moment must not make a failure of it.
                LOG.warning("%s: %s is not recorded: %s", name, outcome.state, error)
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
        if spec.kafka is not None:
            return refresh_topic(runtime, spec, request, cancellation=cancellation, progress=progress)
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
    """One refresh; partitions that are missing come first, in a commit of their own."""
    outcome, filling = _commit(runtime, spec, request, cancellation, progress)
    while filling:
        last, filling = _commit(runtime, spec, request, cancellation, progress)
        outcome = _together(outcome, last)
    return outcome


def _commit(
    runtime: Runtime,
    spec: TableSpec,
    request: RefreshRequest,
    cancellation: Cancellation,
    progress: Progress,
) -> tuple[Outcome, bool]:
    """At most one commit, and whether it only brought in what was missing, so that another is to follow."""
    path = runtime.warehouse.path(spec.name)
    mode = str(runtime.graph.mode(spec.name))
    instead: Reason | None = None
    for _ in range(ATTEMPTS):
        started = time.monotonic()
        newest = read_newest(path)
        receipt = None if newest is None else newest.receipt
        redefined = _redefinition(runtime, spec, receipt, request)
        base = _base_positions(runtime, spec, receipt)
        pins = pin_inputs(runtime, spec, base)
        runtime.failpoint("table-pinned")
        changes = _classify(pins, base)
        foreign = newest is not None and newest.foreign
        columns = input_columns(runtime.graph, runtime.warehouse, spec)
        due = is_due(runtime, spec, receipt)
        # A refresh that finds nothing new needs no types, and is to be quick.
        moved = any(change.kind is not ChangeKind.NOTHING for change in changes.values())
        types = input_types(runtime.graph, runtime.warehouse, spec) if moved else {}
        gaps = _gaps(runtime, spec, receipt) if not (request.partitions or instead) else ()
        step = choose_step(Situation(spec, receipt, foreign, changes, request, columns, due, types, redefined, gaps))
        price: Price | None = None
        budget: float | None = None
        kept = receipt is not None and receipt.kept_before is not None
        # Where deletes of an input are ignored, computing everything has another result: its price is no reason.
        kept = kept or ignores_deletes(spec)
        if isinstance(step, PRICED) and request.strategy is None and not spec.incremental_strict and not kept:
            records = runtime.control.refreshes(spec.name, limit=PRICED_REFRESHES, looks=False)
            price = _price(spec, step, pins, changes, records, path)
            if price is not None and price.prefers_full:
                step = Full(Reason("COST", str(price)))
            else:
                budget = budget_of(records, spec.fingerprint)
        if instead is not None and isinstance(step, (*BY_CHANGES, FillPartitions)):
            step, budget = Full(instead), None
        _require_allowed(spec, step, changes, receipt)
        if pins.mixed:
            progress(f"{Reason('MIXED_CUT', ', '.join(pins.mixed))}")
        if isinstance(step, Noop) and not _far_ahead(receipt, pins, spec.lookups):
            return _noop(runtime, spec, newest, pins, step.reason, mode), False
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
                judge = Judge(runtime, spark, spec, pins, held)
                attempt = Attempt(runtime, spark, spec, path, mode, pins, changes, receipt, judge, held, limited)
                work = prepare(attempt, step)
                if work.write is None:
                    return _noop(runtime, spec, newest, pins, work.reason, mode, work), False
                if work.met is not None and work.met.waiting:
                    progress(f"{work.met.waiting} rows wait for their dimension")
                taken = time.monotonic() - started
                short = inputs_short_after(receipt, step)
                new = _receipt(attempt, work, taken, request.backfill, short)
                limited.check()
                runtime.keep_definition(spec)
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
            return _priced(_succeeded(attempt, committed, work), price), isinstance(step, FillPartitions)
        progress("another refresh was committed meanwhile; planning again")
    raise FencedError(f"{ATTEMPTS} refreshes of this table were overtaken by others. Ask again.", where=str(spec.name))


def _why_full(
    error: Exception, spec: TableSpec, step: Step, limited: Limited, cancellation: Cancellation
) -> Reason | None:
    """Why everything is to be computed after a step failed: it took too long, or changed rows are no longer there."""
    if limited.exceeded and not cancellation.cancelled:
        return Reason("BUDGET_EXCEEDED", f"{limited.seconds:.0f} s")
    if isinstance(step, FillPartitions):
        failure = translate(error, spec, cancellation)
        return Reason("HISTORY_GONE", failure.message) if isinstance(failure, SourceError) else None
    if isinstance(error, FreshlineError) or not isinstance(step, BY_CHANGES):
        return None
    failure = translate(error, spec, cancellation)
    return Reason("HISTORY_GONE", failure.message) if isinstance(failure, SourceError) else None


def _redefinition(runtime: Runtime, spec: TableSpec, receipt: Receipt | None, request: RefreshRequest) -> str:
    """What changed in the declaration since the newest receipt, where this refresh takes it up; empty for nothing.

    Raises DefinitionChangedError where rows of the old and the new one must not mix.
    """
    if receipt is None:
        return ""
    if receipt.fingerprint == spec.fingerprint:
        runtime.keep_definition(spec)
        return ""
    if request.full:
        return ""
    if request.partitions and spec.time_partitions is not None and receipt.spans is not None:
        # Its receipt tells which partitions are of which declaration, so a backfill may replace them one by one.
        return ""
    before = read_definition(runtime.warehouse.root, receipt.fingerprint)
    change = classify_change(before, definition_of(spec))
    if change.kind is ChangeClass.ADDITIVE and receipt.kept_before is None and request.start is None:
        return change.text
    if change.kind is ChangeClass.DESTRUCTIVE:
        raise DefinitionChangedError(
            f"the declaration changed since the newest refresh, and what is stored would go away: {change.text}. "
            f"Change it back, or replace all of it with `freshline apply {spec.name} --from beginning --force`.",
            where=str(spec.written_at),
        )
    if request.start is not None and spec.time_partitions is not None:
        raise DefinitionChangedError(
            f"a table with time partitions is taken over partition by partition: {change.text}. Replace them with "
            f"`freshline backfill {spec.name} --from .. --to ..`, or all at once with `--from beginning`.",
            where=str(spec.written_at),
        )
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


def _gaps(runtime: Runtime, spec: TableSpec, receipt: Receipt | None) -> tuple[Interval, ...]:
    """What a table with time partitions should have by now, and has not."""
    if spec.time_partitions is None or receipt is None:
        return ()
    first = spec.time_partitions.first.start
    return find_gaps(receipt.spans or (), spec.fingerprint, first, wanted_end(runtime, spec))


def _together(filled: Outcome, last: Outcome) -> Outcome:
    """One outcome of a refresh that first brought in what was missing."""
    if not last.committed:
        return replace(filled, data_timestamp=last.data_timestamp)
    return replace(
        last,
        rows_in=filled.rows_in + last.rows_in,
        rows_out=filled.rows_out + last.rows_out,
        partitions=tuple(dict.fromkeys((*filled.partitions, *last.partitions))),
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


def _require_allowed(
    spec: TableSpec, step: Step, changes: Mapping[TableName, Changes], receipt: Receipt | None
) -> None:
    if isinstance(step, Full):
        require_history(spec, receipt, changes, step.reason)
    kept = receipt is not None and receipt.kept_before is not None
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


def _succeeded(attempt: Attempt, committed: Committed, work: Work) -> Outcome:
    spec = attempt.spec
    partitions: tuple[str, ...] = ()
    if spec.time_partitions is not None:
        commit = read_commit(attempt.path, committed.version)
        partitions = written_partitions(spec, () if commit is None else commit.actions, work.brought_in)
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
        mode=attempt.mode,
        data_timestamp=committed.receipt.data_timestamp,
        committed=True,
        cache_hits=work.cache_hits,
        violations=work.violations,
        partitions=partitions,
    )


def _priced(outcome: Outcome, price: Price | None) -> Outcome:
    if price is None:
        return outcome
    predicted = price.full if outcome.strategy == "full" else price.incremental
    return replace(outcome, predicted_seconds=round(predicted, 3), full_seconds=round(price.full, 3))


def _receipt(
    attempt: Attempt, work: Work, seconds: float, backfill: str | None, short_of_rows: frozenset[TableName]
) -> Receipt:
    spec, pins, previous = attempt.spec, attempt.pins, attempt.receipt
    moves = not work.begins and work.whole and (work.positions is pins.positions or work.positions == pins.positions)
    return Receipt(
        table=spec.name,
        fingerprint=spec.fingerprint,
        epoch=attempt.runtime.epoch,
        seq=work.seq,
        mode=attempt.mode,
        strategy=work.strategy,
        reason=str(work.reason),
        # Some partitions are not the table: what only they have says nothing about how far it lags.
        data_timestamp=pins.data_timestamp if moves else None if previous is None else previous.data_timestamp,
        positions=work.positions,
        rows_in=work.rows_in,
        rows_out=None,
        rejected=work.rejected,
        attempt=uuid4().hex,
        cut=pins.cut if moves or previous is None else previous.cut,
        partitions=work.partitions,
        replayed_from=work.seq if work.strategy == "full" or previous is None else previous.replayed_from,
        seconds=seconds,
        parked=_parked(previous, work),
        kept_before=work.seq
        if work.begins
        else None
        if work.strategy == "full" or previous is None
        else previous.kept_before,
        violations=work.violations,
        spans=_spans(spec, previous, work),
        replaced=work.replaced,
        backfill=backfill,
        short_of_rows=frozenset() if work.strategy == "full" else short_of_rows,
    )


def _spans(spec: TableSpec, previous: Receipt | None, work: Work) -> tuple[Span, ...] | None:
    if spec.time_partitions is None:
        return None
    if work.spans is not None:
        return work.spans
    return settle_spans((previous.spans if previous is not None else None) or ())


def _parked(previous: Receipt | None, work: Work) -> int | None:
    if work.met is not None:
        return work.met.parked
    # An empty commit carries on what the newest receipt says.
    carried = work.strategy == "noop" or work.begins
    return previous.parked if previous is not None and carried else None


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
        case Begin():
            return f"the declaration holds from {step.start} on"
        case FillPartitions():
            return "computing partitions that are missing"
        case Full():
            return f"computing everything ({step.reason.code})"
    assert_never(step)
