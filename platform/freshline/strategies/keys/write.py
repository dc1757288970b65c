"""The rows of affected keys are replaced: rows that differ are written, and rows that no longer belong there go.

`strategies.keys.changes` finds which keys, and how their rows change. Where it finds that everything is to be computed,
the refresh is planned again with that reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.commit.write import append_rows, apply_changes
from freshline.compute.arrow_rows import ArrowRows
from freshline.compute.fold import read_before_constraints
from freshline.compute.inputs import read_inserted, read_upserted, shadow_inputs
from freshline.compute.keys import INSERT, OP
from freshline.compute.materialize import has_rows
from freshline.refresh.attempt import Attempt, NotIncremental, Work
from freshline.strategies.keys.changes import KeyChanges, find_changes, refold
from freshline.strategies.keys.rule import RefoldKeys, RefreshKeys
from freshline.strategies.merge.write import quarantine_rejected
from freshline.values.reason import Reason
from freshline.values.result import Strategy


def refresh_keys(attempt: Attempt, step: RefreshKeys) -> Work:
    """The write of how the rows of affected keys change."""
    found, hits = find_changes(attempt, step)
    if isinstance(found, Reason):
        raise NotIncremental(found)
    rows_in = sum(attempt.changes[name].rows for name in step.changed)
    return replace(write_of_changes(attempt, found, rows_in), cache_hits=hits)


def refold_keys(attempt: Attempt, step: RefoldKeys) -> Work:
    """The write of how the rows of a merge type change whose keys are folded again."""
    pinned, change = attempt.inputs[step.input], attempt.changes[step.input]
    came = (
        read_inserted(attempt.spark, pinned, change, arrival=True)
        if pinned.is_log
        else read_upserted(attempt.spark, pinned, change)
    )
    shadow_inputs({step.input: came})
    rows = read_before_constraints(attempt.spark, attempt.spec, arrival=pinned.is_log)
    rejected = quarantine_rejected(attempt, pinned, rows, change)
    return write_of_changes(attempt, refold(attempt, step), change.rows, rejected=rejected)


def write_of_changes(attempt: Attempt, found: KeyChanges, rows_in: int, *, rejected: int = 0) -> Work:
    """The write of changes to rows that have some of the keys."""
    changed = found.rows
    if changed is None or found.count == 0:
        return attempt.nothing(rows_in, rejected=rejected)
    write: Callable[..., None]
    if _is_only_added(changed):
        write = partial(append_rows, changed.drop(OP), attempt.path, count=found.count)
    else:
        write = partial(
            apply_changes,
            attempt.spark,
            changed,
            attempt.path,
            op=OP,
            keys=found.found_by or found.keys.columns,
            unique=bool(found.found_by),
            near=found.keys.near("t"),
            count=found.count,
        )
    return Work(
        lambda new: write(receipt=new), Strategy.KEYS, found.reason, rows_in, attempt.pins.positions, {}, rejected
    )


def _is_only_added(changed: DataFrame | ArrowRows) -> bool:
    """Whether no stored row is changed or goes away."""
    if isinstance(changed, ArrowRows):
        return changed.where(OP, INSERT, is_so=False).count == 0
    return not has_rows(changed.where(F.col(OP) != INSERT))
