"""One refresh of one table: pin, classify, choose, compute, one fenced commit, read back.

Stopped at any point, either the commit with its receipt is there or the table is as it was; the next refresh begins
from the newest receipt in both cases.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from freshline.attempt.attempt import Attempt
from freshline.attempt.cpu import TaskSeconds
from freshline.attempt.failure import translate
from freshline.attempt.judge import Judge
from freshline.attempt.runtime import Progress, Runtime
from freshline.commit.delta_log import (
    count_all,
    newest_version,
    position_of,
)
from freshline.commit.write import (
    write_and_read_back,
)
from freshline.declare.names import TableName
from freshline.declare.spec import SourceSpec, Spec, TableSpec
from freshline.errors import (
    CancelledError,
    DefinitionChangedError,
    FencedError,
    FreshlineError,
    PartitionError,
    RefreshError,
    SourceError,
)
from freshline.plan.history import inputs_short_after
from freshline.plan.lag import lag_seconds
from freshline.plan.request import RefreshRequest
from freshline.plan.result import Kind, RefreshResult, State
from freshline.plan.step import Noop
from freshline.query.reason import Reason
from freshline.refresh.cancellation import Cancellation, Limited
from freshline.refresh.execution import suited_to
from freshline.refresh.inputs import (
    drop_views,
)
from freshline.report.status import kind_of
from freshline.run.decide import decide, is_far_ahead, may_do_without_push_down, why_full
from freshline.run.log import refresh_log
from freshline.run.prepare import prepare
from freshline.run.savepoint import finish_restore, is_restoring
from freshline.run.tell import nothing_new, outcome_of_commit, receipt_of, with_price

LOG = logging.getLogger(__name__)

ATTEMPTS = 3


def refresh_table(
    runtime: Runtime,
    name: TableName,
    request: RefreshRequest,
    *,
    cancellation: Cancellation,
    progress: Progress,
) -> RefreshResult:
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
            now = runtime.clock()
            outcome = replace(
                outcome,
                at=now,
                cause=request.cause,
                fingerprint=spec.fingerprint,
                seconds=time.monotonic() - started,
                cpu_seconds=cpu.seconds,
                lag_seconds=lag_seconds(outcome.data_timestamp, now),
            )
            try:
                runtime.control.record_refresh(outcome)
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
    except (PySparkException, Py4JError, OSError) as error:
        return RefreshError(f"a restore that was stopped half way cannot be finished: {error}")
    return None


def _outcome_of(
    runtime: Runtime,
    spec: Spec,
    request: RefreshRequest,
    cancellation: Cancellation,
    progress: Progress,
    trouble: FreshlineError | None,
) -> RefreshResult:
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
        outcome = RefreshResult(
            table=name,
            at=runtime.clock(),
            kind=kind_of(spec),
            state=State.CANCELLED if cancelled else State.FAILED,
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


def _check_source(runtime: Runtime, spec: SourceSpec) -> RefreshResult:
    """Look at a source that is read in place; nothing is copied."""
    now = runtime.clock()
    path = Path(spec.connection.table_path)
    version = newest_version(path)
    if version is None:
        raise SourceError(
            f"there is no Delta table at {path}. Write it, or correct `path`.", where=str(spec.written_at)
        )
    runtime.control.record_check(spec.name, now, json.dumps(position_of(path, version).as_json()))
    return RefreshResult(
        table=spec.name,
        at=now,
        kind=Kind.SOURCE,
        state=State.SUCCEEDED,
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
) -> RefreshResult:
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
) -> tuple[RefreshResult, bool]:
    """At most one commit, and whether it only brought in what was missing, so that another is to follow."""
    path = runtime.warehouse.path(spec.name)
    mode = str(runtime.graph.mode(spec.name))
    instead: Reason | None = None
    push_down = True
    for _ in range(ATTEMPTS):
        started = time.monotonic()
        decision = decide(runtime, spec, request, instead)
        step, pins, receipt = decision.step, decision.pins, decision.receipt
        if pins.mixed:
            progress(f"{Reason('MIXED_CUT', ', '.join(pins.mixed))}")
        if isinstance(step, Noop) and not is_far_ahead(receipt, pins, spec.lookups):
            return nothing_new(runtime, spec, decision.newest, pins, step.reason, mode), False
        progress(step.activity)
        limited = Limited(cancellation, decision.budget)
        try:
            with (
                limited,
                runtime.working(limited, pool=request.cause, what=f"refresh {spec.name}") as spark,
                ExitStack() as held,
            ):
                limited.count(TaskSeconds(spark).used)
                held.callback(drop_views, spark, spec.reads)
                held.enter_context(suited_to(spark, count_all([path, *(item.path for item in pins.inputs.values())])))
                judge = Judge(runtime, spark, spec, pins, held)
                newest = decision.newest
                attempt = Attempt(
                    runtime,
                    spark,
                    spec,
                    path,
                    mode,
                    pins,
                    decision.changes,
                    receipt,
                    judge,
                    held,
                    limited,
                    push_down=push_down,
                    planned=None if newest is None else newest.version,
                    foreign=newest is not None and newest.foreign,
                )
                work = prepare(attempt, step)
                if work.write is None:
                    return nothing_new(runtime, spec, decision.newest, pins, work.reason, mode, work), False
                if work.met is not None and work.met.waiting:
                    progress(f"{work.met.waiting} rows wait for their dimension")
                taken = time.monotonic() - started
                short = inputs_short_after(receipt, step)
                new = receipt_of(attempt, work, taken, request.backfill, short)
                limited.check()
                runtime.keep_definition(spec)
                runtime.failpoint("table-before-commit")
                committed = write_and_read_back(partial(work.write, new), path, new)
                runtime.failpoint("table-after-commit")
        except Exception as error:
            if push_down and may_do_without_push_down(error, step):
                push_down = False
                progress("a partition cannot be told by each row of its input; computing it from all of them")
                continue
            instead = why_full(error, spec, step, limited, cancellation)
            if instead is None:
                raise
            progress(f"{instead.code}: planning again")
            continue
        if committed is not None:
            outcome = with_price(outcome_of_commit(attempt, committed, work), decision.price)
            return outcome, step.fills_gaps
        progress("another refresh was committed meanwhile; planning again")
    raise FencedError(f"{ATTEMPTS} refreshes of this table were overtaken by others. Ask again.", where=str(spec.name))


def _together(filled: RefreshResult, last: RefreshResult) -> RefreshResult:
    """One outcome of a refresh that first brought in what was missing."""
    if not last.committed:
        return replace(filled, data_timestamp=last.data_timestamp)
    return replace(
        last,
        rows_in=(filled.rows_in or 0) + (last.rows_in or 0),
        rows_out=(filled.rows_out or 0) + (last.rows_out or 0),
        partitions=tuple(dict.fromkeys((*filled.partitions, *last.partitions))),
    )
