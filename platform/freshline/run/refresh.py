"""One refresh of anything that is declared: a table, a log table, or a source that is read in place.

Refreshes of one name run one after the other. Every failure becomes a result, and every result is recorded.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from freshline.commit.delta_log import newest_version, position_of
from freshline.compute.cancellation import Cancellation
from freshline.errors import (
    CancelledError,
    DefinitionChangedError,
    FreshlineError,
    PartitionError,
    RefreshError,
    SourceError,
)
from freshline.freshness.lag import lag_seconds
from freshline.ingest.log import refresh_log
from freshline.ingest.retry import retry_quarantine
from freshline.plan.request import RefreshRequest
from freshline.refresh.answers import store_of
from freshline.refresh.failure import translate
from freshline.refresh.runtime import Progress, Runtime
from freshline.refresh.table import TableRefresh, bring_up_to_date
from freshline.run.savepoint import finish_restore, is_restoring
from freshline.values.names import TableName
from freshline.values.reason import Reason
from freshline.values.result import RefreshResult, State, Strategy, TableKind, kind_of
from freshline.values.spec import SourceSpec, Spec, TableSpec

LOG = logging.getLogger(__name__)


def refresh_table(
    runtime: Runtime,
    name: TableName,
    request: RefreshRequest,
    *,
    cancellation: Cancellation,
    progress: Progress,
) -> RefreshResult:
    """Bring one table, log table or source to its inputs' newest versions, and report what happened.

    Never raises for a refresh that failed or was cancelled: the outcome says so. A second call for the same
    table waits for the first.
    """
    started = time.monotonic()
    spec = runtime.graph.spec(name)
    while True:
        trouble = _finish_restore(runtime)
        with runtime.lock(name):
            if trouble is None and is_restoring(runtime):
                # It was begun after the check, and stopped half way.
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
                freshness_seconds=runtime.graph.freshness(name).seconds,
            )
            try:
                runtime.control.record_refresh(outcome)
            except FreshlineError as error:
                # A commit is on record in its own log: a store that is away for a moment must not make a failure of it.
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
        runtime.require_warehouse()
        if trouble is not None:
            raise trouble
        if request.retry and not (isinstance(spec, TableSpec) and spec.quarantined_lookups):
            return retry_quarantine(runtime, spec, request, cancellation=cancellation, progress=progress)
        if isinstance(spec, TableSpec):
            return bring_up_to_date(TableRefresh(runtime, spec, request, cancellation, progress))
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
    """Check a source that is read in place; nothing is copied."""
    now = runtime.clock()
    path = runtime.warehouse.location(spec)
    # Of one that is asked by key there is nothing to check but its answers: nobody asks without a key.
    version = store_of(runtime, spec).position().version if spec.is_lookup else newest_version(path)
    if version is None:
        raise SourceError(
            f"there is no Delta table at {path}. Write it, or correct `path`.", where=str(spec.written_at)
        )
    runtime.control.record_source_check(spec.name, now, position_of(path, version))
    return RefreshResult(
        table=spec.name,
        at=now,
        kind=TableKind.SOURCE,
        state=State.SUCCEEDED,
        strategy=str(Strategy.NOOP),
        reason=str(Reason("NOTHING_NEW", "asked by key" if spec.is_lookup else "read in place")),
        version=version,
        rows_in=0,
        rows_out=0,
        seconds=0.0,
        mode=str(runtime.graph.mode(spec.name)),
        data_timestamp=now,
    )
