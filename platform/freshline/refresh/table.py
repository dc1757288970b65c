"""One refresh of one table, in the order plan, refresh, commit, report.

Stopped at any point, either the commit with its receipt is there or the table is as it was; the next refresh begins
from the newest receipt in both cases.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from freshline.commit.delta_log import count_all
from freshline.commit.write import Committed, write_and_read_back
from freshline.compute.cancellation import Cancellation, Limited
from freshline.compute.execution import suited_to
from freshline.compute.inputs import drop_views
from freshline.errors import FencedError
from freshline.plan.request import RefreshRequest
from freshline.plan.step import Full, Noop, Step
from freshline.refresh.answers import AnswersArrivedError, asker_of
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.constraint_check import ConstraintCheck
from freshline.refresh.cpu import TaskSeconds
from freshline.refresh.decide import Decision, decide, may_do_without_push_down, moves_awaited_watermark, why_full
from freshline.refresh.outcome import receipt_of, report_commit, report_nothing
from freshline.refresh.prepare import prepare
from freshline.refresh.runtime import Progress, Runtime
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult, Strategy
from freshline.values.spec import TableSpec

ATTEMPTS = 3


@dataclass(frozen=True)
class TableRefresh:
    """A refresh of one table that was asked for, and what it runs with."""

    runtime: Runtime
    spec: TableSpec
    request: RefreshRequest
    cancellation: Cancellation
    progress: Progress


class PlanAgainError(Exception):
    """An attempt ended without a commit, and the next one is planned anew.

    `instead` is why everything is computed then, None for any step. `push_down` says whether conditions for partitions
    may be put into an input (see Attempt).
    """

    def __init__(self, why: str = "", *, instead: Reason | None = None, push_down: bool = True) -> None:
        super().__init__(why)
        self.instead = instead
        self.push_down = push_down


def refresh_once(refresh: TableRefresh, again: PlanAgainError) -> tuple[RefreshResult, bool]:
    """One attempt at one commit, and whether another is to follow, for what the inputs have beyond it.

    `again` says how the attempt before ended. Raises PlanAgainError, and the errors of planning and computing.
    """
    started = time.monotonic()
    stage = refresh.runtime.stage
    with stage("pin"):
        decision = decide(refresh.runtime, refresh.spec, refresh.request, again.instead)  # plan
    if decision.pins.mixed:
        refresh.progress(f"{Reason('MIXED_CUT', ', '.join(decision.pins.mixed))}")
    meets = refresh.spec.name in refresh.runtime.graph.meeting
    if decision.writes_nothing(refresh.spec, meets=meets):
        return report_nothing(refresh.runtime, refresh.spec, decision, decision.step.reason), False
    refresh.progress(decision.step.activity)
    with _attempt(refresh, decision, again) as attempt:
        with stage("compute"):
            attempt, work = _prepare_with_answers(refresh, attempt, decision.step)  # refresh
        if work.write is None and (
            (meets and decision.moves_cut)
            or decision.carries_position(refresh.spec)
            or moves_awaited_watermark(refresh.runtime, refresh.spec, decision)
        ):
            # With temporal filters no refresh finds that without such work, so the next one would not carry it either.
            work = prepare(attempt, Noop(work.reason))
        if work.write is None:
            return report_nothing(refresh.runtime, refresh.spec, decision, work.reason, work), False
        if work.looked_up is not None and work.looked_up.waiting:
            refresh.progress(f"{work.looked_up.waiting} rows wait for their dimension")
        receipt = receipt_of(attempt, work, decision.step, time.monotonic() - started, refresh.request.backfill)
        with stage("commit"):
            committed = _commit(attempt, work, receipt)  # commit
    if committed is None:
        why = "another refresh was committed meanwhile; planning again"
        raise PlanAgainError(why, instead=again.instead, push_down=again.push_down)
    return report_commit(attempt, committed, work, decision.price), decision.step.fills_gaps or work.replays  # report


def _prepare_with_answers(refresh: TableRefresh, attempt: Attempt, step: Step) -> tuple[Attempt, Work]:
    """The write of the step, and the attempt at the positions that have all answers which its lookups need."""
    asker = asker_of(
        refresh.runtime,
        attempt.spec,
        attempt.receipt,
        attempt.cancellation,
        refresh.progress,
        any_age=isinstance(step, Full) and attempt.receipt is not None,
    )
    if asker is None:
        return attempt, prepare(attempt, step)
    while True:
        asker.begin_pass()
        attempt = attempt.at_inputs(asker.pinned(attempt.inputs))
        try:
            return attempt, prepare(attempt, step)
        except AnswersArrivedError:
            refresh.runtime.failpoint("lookup-arrived")


def bring_up_to_date(refresh: TableRefresh) -> RefreshResult:
    """The refresh of a table; missing partitions, and rows as they were, come first, in a commit of their own."""
    result, filling = _refresh_until_committed(refresh)
    # The request is served: the next refresh brings in whatever the inputs have beyond it.
    refresh = replace(refresh, request=replace(refresh.request, full=False, strategy=None, retry=False))
    while filling:
        last, filling = _refresh_until_committed(refresh)
        result = _together(result, last)
    return result


def _refresh_until_committed(refresh: TableRefresh) -> tuple[RefreshResult, bool]:
    again = PlanAgainError()
    for _ in range(ATTEMPTS):
        try:
            return refresh_once(refresh, again)
        except PlanAgainError as found:
            again = found
            refresh.progress(str(again))
    raise FencedError(
        f"{ATTEMPTS} refreshes of this table were overtaken by others. Ask again.", where=str(refresh.spec.name)
    )


@contextmanager
def _attempt(refresh: TableRefresh, decision: Decision, again: PlanAgainError) -> Iterator[Attempt]:
    """The basis of an attempt, in a session of its own; an error that ends it may be a reason to plan again."""
    runtime, pins, newest = refresh.runtime, decision.pins, decision.newest
    clock = None if decision.clock is None else decision.clock.after
    spec = refresh.spec.at_closing(decision.closing).at_clock(clock)
    path = runtime.warehouse.path(spec.name)
    runtime.keep_models(spec)
    limited = Limited(refresh.cancellation, decision.budget)
    try:
        with (
            limited,
            runtime.working(limited, pool=refresh.request.cause, what=f"refresh {spec.name}") as spark,
            ExitStack() as held,
        ):
            limited.count(TaskSeconds(spark).used)
            held.callback(drop_views, spark, spec.reads)
            if spec.sink is None:
                # A sink asks Spark for rows only where they are not few, and then says so itself.
                held.enter_context(suited_to(spark, count_all([path, *(item.path for item in pins.inputs.values())])))
            yield Attempt(
                runtime,
                spark,
                spec,
                path,
                str(runtime.graph.mode(spec.name)),
                pins,
                decision.changes,
                decision.receipt,
                ConstraintCheck(runtime, spark, spec, pins, held),
                held,
                limited,
                push_down=again.push_down,
                planned=None if newest is None else newest.version,
                foreign=newest is not None and newest.foreign,
                closing=decision.closing,
                clock=clock,
                retry=refresh.request.retry,
            )
    except Exception as error:
        if again.push_down and may_do_without_push_down(error, decision.step):
            why = "a partition cannot be told by each row of its input; computing it from all of them"
            raise PlanAgainError(why, instead=again.instead, push_down=False) from error
        instead = why_full(error, spec, decision.step, limited, refresh.cancellation)
        if instead is None:
            raise
        raise PlanAgainError(f"{instead.code}: planning again", instead=instead, push_down=again.push_down) from error


def _commit(attempt: Attempt, work: Work, receipt: Receipt) -> Committed | None:
    """The fenced commit, read back; None where another writer was first."""
    write_rows = work.write
    assert write_rows is not None
    attempt.cancellation.check()
    attempt.runtime.keep_definition(attempt.spec)
    attempt.runtime.failpoint("table-before-commit")

    def write() -> None:
        attempt.runtime.require_warehouse()
        attempt.runtime.failpoint("table-writing")
        write_rows(receipt)

    committed = write_and_read_back(write, attempt.path, receipt, attempt.runtime.require_warehouse)
    attempt.runtime.failpoint("table-after-commit")
    return committed


def _together(filled: RefreshResult, last: RefreshResult) -> RefreshResult:
    """One outcome of a refresh that first brought in what was missing."""
    if not last.committed:
        return replace(filled, data_timestamp=last.data_timestamp)
    is_full = filled.strategy == Strategy.FULL
    return replace(
        last,
        strategy=filled.strategy if is_full else last.strategy,
        reason=filled.reason if is_full else last.reason,
        rows_in=(filled.rows_in or 0) + (last.rows_in or 0),
        rows_out=(filled.rows_out or 0) + (last.rows_out or 0),
        partitions=tuple(dict.fromkeys((*filled.partitions, *last.partitions))),
    )
