"""The report of a refresh: the receipt in its commit, and the result for whoever asked."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import uuid4

from freshline.commit.delta_log import read_commit
from freshline.commit.write import Committed
from freshline.plan.cut import RootPositions, ahead_of, greatest_of
from freshline.plan.history import inputs_short_after
from freshline.plan.models import model_versions, models_after
from freshline.plan.price import Price
from freshline.plan.step import Step
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.decide import Decision
from freshline.refresh.runtime import Runtime
from freshline.refresh.time_partitions import written_partitions
from freshline.values.partition import PartitionSpan, settle_spans
from freshline.values.query import PythonQuery
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult, State, Strategy, TableKind
from freshline.values.spec import TableSpec


def report_nothing(
    runtime: Runtime, spec: TableSpec, decision: Decision, reason: Reason, work: Work | None = None
) -> RefreshResult:
    """The result of a refresh that commits nothing; that it checked is kept in the control store, for the lag."""
    newest, pins = decision.newest, decision.pins
    clock = None if decision.clock is None else decision.clock.after
    receipt = None if newest is None else newest.receipt
    if receipt is not None:
        # Lookup tables keep the dimension versions that their rows were joined with; only driving inputs are moved.
        positions = {str(name): position.as_json() for name, position in pins.positions.items()}
        cut, ahead = ({root: dict(where) for root, where in each.items()} for each in (pins.cut, pins.ahead))
        checked: dict[str, object] = {"receipt": receipt.identity, "positions": positions, "cut": cut}
        if ahead:
            checked["cut_ahead"] = ahead
        if spec.is_triggered and decision.closing is not None:
            checked["watermark"] = decision.closing.until
        if clock is not None:
            checked["clock"] = clock.isoformat()
        runtime.control.record_check(spec.name, pins.data_timestamp, json.dumps(checked))
    return RefreshResult(
        table=spec.name,
        at=runtime.clock(),
        kind=TableKind.TABLE if spec.sink is None else TableKind.SINK,
        state=State.SUCCEEDED,
        strategy=str(Strategy.NOOP),
        reason=str(reason),
        version=None if newest is None else newest.version,
        rows_in=0 if work is None else work.rows_in,
        rows_out=0,
        rejected=0 if work is None else work.rejected,
        seconds=0.0,
        mode=str(runtime.graph.mode(spec.name)),
        data_timestamp=pins.data_timestamp,
        clock=clock,
        models=model_versions(spec),
    )


def report_commit(attempt: Attempt, committed: Committed, work: Work, price: Price | None) -> RefreshResult:
    """The result of a refresh that committed; `price` is what was expected of it, where that is known."""
    spec = attempt.spec
    partitions: tuple[str, ...] = ()
    if spec.time_partitions is not None:
        commit = read_commit(attempt.path, committed.version)
        partitions = written_partitions(spec, () if commit is None else commit.actions, work.brought_in)
    result = RefreshResult(
        table=spec.name,
        at=attempt.runtime.clock(),
        kind=TableKind.TABLE if spec.sink is None else TableKind.SINK,
        state=State.SUCCEEDED,
        strategy=str(work.strategy),
        reason=str(work.reason),
        version=committed.version,
        rows_in=work.rows_in,
        rows_out=committed.rows_out if spec.sink is None else committed.receipt.rows_out,
        rejected=work.rejected if spec.sink is None else committed.receipt.rejected,
        seconds=0.0,
        mode=attempt.mode,
        data_timestamp=committed.receipt.data_timestamp,
        clock=committed.receipt.clock,
        models=model_versions(spec),
        committed=True,
        cache_hits=work.cache_hits,
        violations=work.violations,
        partitions=partitions,
    )
    if price is None:
        return result
    predicted = price.full_seconds if result.strategy == Strategy.FULL else price.incremental
    return replace(result, predicted_seconds=round(predicted, 3), full_seconds=round(price.full_seconds, 3))


def receipt_of(attempt: Attempt, work: Work, step: Step, seconds: float, backfill: str | None) -> Receipt:
    """The receipt of a commit: up to where the table has read with it, and what it carries on of the one before.

    `seconds` went by until the rows were computed.
    """
    spec, pins, previous = attempt.spec, attempt.pins, attempt.receipt
    until = None if attempt.closing is None else attempt.closing.until_time
    moves = (
        not work.adopts_definition
        and work.whole
        and (work.positions is pins.positions or work.positions == pins.positions)
    )
    return Receipt(
        table=spec.name,
        fingerprint=spec.fingerprint,
        epoch=attempt.runtime.epoch,
        seq=work.seq,
        mode=attempt.mode,
        strategy=str(work.strategy),
        reason=str(work.reason),
        # Some partitions are not the table: what only they have says nothing about how far it lags.
        data_timestamp=pins.data_timestamp if moves else pins.before,
        positions=work.positions,
        data_timestamp_before=pins.before,
        rows_in=work.rows_in,
        rows_out=None,
        rejected=work.rejected,
        attempt=uuid4().hex,
        cut=pins.cut if moves or previous is None else previous.cut,
        cut_ahead=pins.ahead if moves or previous is None else _ahead(attempt, work, previous),
        partitions=work.partitions,
        replayed_from=previous.replayed_from
        if previous is not None and (work.replays or work.strategy != Strategy.FULL)
        else work.seq,
        seconds=seconds,
        pending_lookups=_pending_lookups(previous, work),
        valid_from_seq=work.seq
        if work.adopts_definition
        else None
        if work.strategy == Strategy.FULL or previous is None
        else previous.valid_from_seq,
        violations=work.violations,
        spans=_spans(spec, previous, work),
        replaced=work.replaced,
        backfill=backfill,
        inputs_with_lost_rows=frozenset() if work.strategy == Strategy.FULL else inputs_short_after(previous, step),
        planned=attempt.planned,
        # Rows of others stay beside what is only added or replaced. With FROM NOW all that is there is kept.
        foreign=attempt.foreign and work.strategy != Strategy.FULL and not work.adopts_definition,
        closed_until=until if spec.closes_windows or spec.is_triggered else None,
        promise=_promise(spec, previous, work),
        timers_until=until if spec.has_timers else None,
        models=models_after(spec, previous, whole=work.strategy == Strategy.FULL, adds=work.strategy != Strategy.NOOP),
        # The next refresh searches the rows that cross in between from the clock of the kept rows on.
        clock=previous.clock if work.adopts_definition and previous is not None else attempt.clock,
    )


def _ahead(attempt: Attempt, work: Work, previous: Receipt) -> RootPositions:
    """The roots of which some rows of a table have seen more, where partitions of it were refreshed by themselves."""
    computed = (*work.partitions.values(), *(span.positions for span in work.spans or () if span.positions is not None))
    driving = attempt.spec.driving
    if not any(at.get(name) != work.positions.get(name) for at in computed for name in driving):
        return previous.cut_ahead
    pins = attempt.pins
    return ahead_of(previous.cut, greatest_of([previous.cut_ahead, pins.cut, pins.ahead]))


def _promise(spec: TableSpec, previous: Receipt | None, work: Work) -> str:
    """The promise that was tried: a full refresh tries one that was not."""
    if work.strategy == Strategy.FULL and isinstance(spec.query, PythonQuery):
        return spec.query.promise
    return "" if previous is None else previous.promise


def _spans(spec: TableSpec, previous: Receipt | None, work: Work) -> tuple[PartitionSpan, ...] | None:
    if spec.time_partitions is None:
        return None
    if work.spans is not None:
        return work.spans
    return settle_spans((previous.spans if previous is not None else None) or ())


def _pending_lookups(previous: Receipt | None, work: Work) -> int | None:
    if work.looked_up is not None:
        return work.looked_up.pending_lookups
    # Waiting rows go on waiting beside everything but a computation of all rows, which looks all of them up.
    return previous.pending_lookups if previous is not None and work.strategy != Strategy.FULL else None
