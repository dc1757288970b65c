"""Only changed rows are looked up below lookup joins; all others keep the dimension rows that they were joined with.

With retries of lookups, rows that miss are parked as those of an append are, and one that goes while it waits waits no
more.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.commit.delta_log import newest_version
from freshline.commit.write import append_rows
from freshline.compute.fold import as_stored
from freshline.compute.inputs import Pinned, read_signed, read_version, read_whole, shadow_inputs
from freshline.compute.keys import FAILED_BY_ROWS, REFUSED, is_one_query, why_not
from freshline.compute.materialize import materialize_once
from freshline.plan.changes import ChangeKind
from freshline.query.rules.algebra import SIGN
from freshline.query.rules.lookups import asked_text
from freshline.refresh.attempt import Attempt, LookedUp, NotIncremental, Work
from freshline.refresh.changed_lookups import FRESH, AddedRows, ChangedInput, NotToldApartError, follow_changes
from freshline.refresh.computed_rows import check_lookups, whole_inputs
from freshline.refresh.pending_lookups import look_up, read_pending_lookups, takes_pending_lookups
from freshline.strategies.keys.changes import difference
from freshline.strategies.keys.rule import LookUpChanged
from freshline.strategies.keys.write import write_of_changes
from freshline.values.names import TableName
from freshline.values.reason import Reason


def look_up_changed(attempt: Attempt, step: LookUpChanged) -> Work:
    """The write of the rows that were looked up, and of those that go. Raises DuplicateKeyError and LookupKeyError."""
    runtime, spark, spec, receipt = attempt.runtime, attempt.spark, attempt.spec, attempt.receipt
    assert receipt is not None
    inputs = whole_inputs(spark, spec, attempt.inputs)
    shadow_inputs(inputs)
    try:
        if not runtime.is_understood(spec.fingerprint, frozenset(step.changed)):
            stored = partial(as_stored, spec=spec)
            if not is_one_query(spark, step.lookups.own.whole, asked_text(spec.sql), stored):
                raise NotIncremental(Reason("REWRITE_MISMATCH"))
            runtime.note_understood(spec.fingerprint, frozenset(step.changed))
        check_lookups(runtime, spark, spec, attempt.inputs)
        return _follow(attempt, step, inputs)
    except NotToldApartError as error:
        raise NotIncremental(error.reason) from error
    except (*REFUSED, *FAILED_BY_ROWS) as error:
        # The full refresh reports an error that is the query's own.
        raise NotIncremental(why_not(error)) from error


def _follow(attempt: Attempt, step: LookUpChanged, inputs: dict[TableName, DataFrame]) -> Work:
    spark, spec, receipt = attempt.spark, attempt.spec, attempt.receipt
    assert receipt is not None
    version = newest_version(attempt.path)
    assert version is not None
    target = read_version(spark, attempt.path, version)
    looked_up: list[LookedUp] = []
    waits = spec.may_wait or takes_pending_lookups(spec, receipt)
    waiting = None
    if waits and receipt.pending_lookups is not None:
        waiting = read_pending_lookups(attempt.runtime, spark, spec, receipt.pending_lookups)

    def with_retries(came: DataFrame, left: DataFrame | None) -> DataFrame:
        (driving,) = spec.driving
        looked_up.append(look_up(attempt, {driving: came}, receipt, left=left))
        return looked_up[-1].rows

    changed = [_changed(attempt, name, inputs[name]) for name in step.changed]
    followed = follow_changes(
        spark,
        spec,
        attempt.inputs,
        step.lookups,
        inputs,
        changed,
        target,
        waiting=waiting,
        look_up=with_retries if waits else None,
    )
    rows_in = sum(attempt.changes[name].rows for name in step.changed)
    work = attempt.nothing(rows_in)
    if followed.added is not None and not spec.primary_key:
        if followed.added.count:
            work = _append(attempt, step, followed.added, rows_in)
    elif (keys := followed.keys()) is not None:
        rows = keys.restrict(followed.rows)
        if spec.constraints:
            fresh = attempt.constraint_check.rows(rows.where(FRESH), again=True)
            rows = rows.where(~F.col(FRESH)).unionByName(fresh)
        new, many = materialize_once(rows.drop(FRESH), expected=keys.count)
        work = write_of_changes(attempt, difference(attempt, target, keys, new, many, step.reason), rows_in)
    waits_otherwise = bool(looked_up) and looked_up[-1].pending_lookups != receipt.pending_lookups
    if work.write is None and (followed.changed or waits_otherwise):
        # A later change may undo this one, and then another version is joined: `verify` has to know of both. And the
        # receipt says which rows wait.
        nothing = target.limit(0)
        work = attempt.work(step, lambda new: append_rows(nothing, attempt.path, new), rows_in=rows_in)
    return replace(work, looked_up=looked_up[-1]) if looked_up else work


def _append(attempt: Attempt, step: LookUpChanged, added: AddedRows, rows_in: int) -> Work:
    """The write of new rows, where all that are stored stay and none of the new ones can have the key of another."""
    new, many = reduce(DataFrame.unionAll, added.rows), added.count
    if attempt.spec.constraints:
        new, many = materialize_once(attempt.constraint_check.rows(new, again=True), expected=many)
    if not many:
        return attempt.nothing(rows_in)
    return attempt.work(step, lambda receipt: append_rows(new, attempt.path, receipt, count=many), rows_in=rows_in)


def _changed(attempt: Attempt, name: TableName, after: DataFrame) -> ChangedInput:
    """The changes of an input: from its change feed, or without one from its rows at both versions."""
    pinned, change = attempt.inputs[name], attempt.changes[name]
    before = after.limit(0)
    if change.before is not None:
        before = read_whole(attempt.spark, Pinned(pinned.spec, pinned.path, change.before))
    if pinned.is_log or change.change_feed:
        only_came = change.rows if pinned.is_log or change.kind is ChangeKind.APPEND else None
        return ChangedInput(name, before, after, read_signed(attempt.spark, pinned, change), only_came)
    signed = after.withColumn(SIGN, F.lit(1)).unionByName(before.withColumn(SIGN, F.lit(-1)), allowMissingColumns=True)
    return ChangedInput(name, before, after, signed)
