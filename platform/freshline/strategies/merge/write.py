"""A merge takes the change set in: one row a key, where it may replace the stored one.

The merge decides which rows these are. They are written by a MERGE, or without Spark where they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from freshline.commit.delta_log import newest_version
from freshline.commit.footers import have_no_null
from freshline.commit.small import open_small
from freshline.commit.write import apply_changes, insert_new_keys, merge_rows
from freshline.compute.arrow_rows import settle
from freshline.compute.fold import (
    changes_by_winners,
    find_winners,
    has_truncate,
    is_folded,
    read_before_constraints,
    winning_rows,
    without_constraints,
)
from freshline.compute.inputs import (
    Pinned,
    read_inserted,
    read_upserted,
    read_version,
    shadow_inputs,
)
from freshline.compute.keys import OP
from freshline.compute.materialize import materialize_once
from freshline.plan.changes import ChangeKind, Changes
from freshline.refresh.attempt import Attempt, NotIncremental, Work
from freshline.refresh.quarantine import keep_rejected
from freshline.sql.columns import plain_columns
from freshline.strategies.merge.rule import MergeRows
from freshline.values.merge import REJECTED
from freshline.values.position import TablePosition
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.result import Strategy
from freshline.values.spec import SourceSpec, TableSpec

# Spark reads more files in less time than their footers take.
MOST_FOOTERS = 32


def merge(attempt: Attempt, step: MergeRows) -> Work:
    """The write of the rows that win, and the deletes of those that are to go."""
    spark, spec, path = attempt.spark, attempt.spec, attempt.path
    assert spec.merge is not None
    assert spec.columns is not None
    pinned = attempt.inputs[step.input]
    change = attempt.changes[step.input]
    new = read_upserted(spark, pinned, change) if step.updates else None
    came = read_inserted(spark, pinned, change, arrival=pinned.is_log) if new is None else new
    if spec.merge.follows_changes and has_truncate(came):
        raise NotIncremental(Reason("TRUNCATED", str(step.input)))
    shadow_inputs({step.input: came})
    rows = read_before_constraints(spark, spec, arrival=pinned.is_log)
    rejected = quarantine_rejected(attempt, pinned, rows, change)
    rows = attempt.constraint_check.rows(rows, again=False, but=without_constraints(spec))
    before = Pinned(pinned.spec, pinned.path, change.before or TablePosition(pinned.position.table_id, 0, 0))
    winners = find_winners(spark, spec, rows.where(is_folded(spec)), before)
    # Computed once, read twice by MERGE, which refuses a cached source; the blocks go with the last reference.
    folded, count = materialize_once(winners.rows)
    if count == 0:
        return attempt.nothing(change.rows, rejected=rejected)
    condition, delete = winners.replaces_when, winners.deletes
    columns = spec.columns
    write = partial(
        merge_rows, spark, folded, path, keys=spec.primary_key, columns=columns, update_when=condition, delete=delete
    )
    if open_small(path, found_by=spec.primary_key, rows=count) is not None:
        if condition is None:
            winning = winning_rows(folded, spec)
            write = partial(_insert_new_keys, winning, path, spec.primary_key, write, count=count)
        else:
            version = newest_version(path)
            assert version is not None
            changed, count = settle(
                changes_by_winners(folded, read_version(spark, path, version), spec, condition), at_most=count
            )
            if count == 0:
                return attempt.nothing(change.rows, rejected=rejected)
            write = partial(
                apply_changes, spark, changed, path, op=OP, keys=spec.primary_key, unique=True, near=None, count=count
            )
    return Work(
        lambda new: write(receipt=new), Strategy.MERGE, step.reason, change.rows, attempt.pins.positions, {}, rejected
    )


def _insert_new_keys(
    rows: DataFrame, path: Path, keys: Sequence[str], otherwise: Callable[..., None], *, count: int, receipt: Receipt
) -> None:
    if not insert_new_keys(rows, path, receipt, keys=keys, count=count):
        otherwise(receipt=receipt)


def quarantine_rejected(attempt: Attempt, pinned: Pinned, rows: DataFrame, change: Changes | None = None) -> int:
    """Keep the rows that cannot be in the table, as those with a NULL in the key; returns how many there are.

    `rows` are those of the whole input, or of a change of it.
    """
    spec = attempt.spec
    if _is_none_rejected(spec, pinned, change):
        return 0
    return keep_rejected(attempt.runtime, attempt.spark, spec, pinned, rows.where(~is_folded(spec)), attempt.mode)


def _is_none_rejected(spec: TableSpec, pinned: Pinned, change: Changes | None) -> bool:
    """Whether the few files that a log gained say that none of their rows is rejected, which saves a job of Spark."""
    assert spec.merge is not None
    log = pinned.spec
    if not isinstance(log, SourceSpec) or not log.is_log or REJECTED in spec.merge.helpers:
        return False
    if change is None or change.kind is not ChangeKind.APPEND or not 0 < len(change.added_files) <= MOST_FOOTERS:
        return False
    # An empty text in a partition becomes NULL.
    keys = {key.lower() for key in spec.primary_key}
    if keys & {column.lower() for column in spec.partitioned_by}:
        return False
    shown = plain_columns(spec.sql, [column.name for column in log.columns])
    if not keys <= shown.keys():
        return False
    return have_no_null(pinned.path, change.added_files, [log.stored_column(shown[key]) for key in keys])
