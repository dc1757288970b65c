"""A merge type takes the change set in: one row a key, where it beats the stored one.

The change set is folded to one row a key before the write, since a MERGE inserts two rows for one key both. What was
read before is looked at only where the stored row cannot speak for it: deletes, ties, an order that is not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from freshline.attempt.attempt import Attempt, Work
from freshline.attempt.quarantine import keep_null_keys
from freshline.commit.delta_log import newest_version
from freshline.commit.small import open_small
from freshline.commit.write import apply_changes, insert_new_keys, merge_rows
from freshline.declare.spec import MergeKind
from freshline.plan.position import TablePosition
from freshline.plan.receipt import Receipt
from freshline.query.select_list import stored_order
from freshline.refresh.fold import (
    DELETE,
    decide,
    drop_beaten,
    fold_rows,
    has_key,
    not_judged,
    older_rows,
    read_unjudged,
    update_condition,
    winning_rows,
)
from freshline.refresh.inputs import (
    Pinned,
    read_inserted,
    read_upserted,
    read_version,
    shadow_inputs,
)
from freshline.refresh.keys import OP
from freshline.refresh.settle import settle
from freshline.strategies.merge.rule import MergeRows


def merge(attempt: Attempt, step: MergeRows) -> Work:
    """The write of the rows that win, and the deletes of those that are to go."""
    spark, spec, path = attempt.spark, attempt.spec, attempt.path
    kind = spec.merge
    assert kind is not None
    assert spec.columns is not None
    pinned = attempt.inputs[step.input]
    change = attempt.changes[step.input]
    new = read_upserted(spark, pinned, change) if step.updates else None
    shadow_inputs({step.input: read_inserted(spark, pinned, change, arrival=pinned.is_log) if new is None else new})
    rows = read_unjudged(spark, spec, arrival=pinned.is_log)
    rejected = quarantine_null_keys(attempt, pinned, rows)
    rows = attempt.judge.rows(rows, again=False, but=not_judged(spec))
    folded = fold_rows(rows, spec)
    stored = stored_order(spec)
    settled_by_table = kind.kind is MergeKind.FIRST_ROW and (kind.order is None or kind.late == "ignore")
    ties_resolved = False
    if not settled_by_table and (kind.delete_when is not None or stored.order is None or stored.ties is None):
        before = Pinned(pinned.spec, pinned.path, change.before or TablePosition(pinned.position.table_id, 0, 0))
        folded = drop_beaten(folded, older_rows(spark, spec, before, folded), spec)
        ties_resolved = stored.ties is None or stored.order is None
    # Computed once, read twice by MERGE, which refuses a cached source; the blocks go with the last reference.
    folded, count = settle(folded)
    if count == 0:
        return attempt.nothing(change.rows, rejected=rejected)
    condition = update_condition(spec, folded.schema, ties_resolved=ties_resolved)
    delete = DELETE if kind.delete_when is not None else None
    columns = spec.columns
    write = partial(
        merge_rows, spark, folded, path, keys=spec.primary_key, columns=columns, update_when=condition, delete=delete
    )
    if open_small(path, found_by=spec.primary_key, rows=count) is not None:
        if condition is None:
            write = partial(_insert_new_keys, winning_rows(folded, spec), path, spec.primary_key, write)
        else:
            version = newest_version(path)
            assert version is not None
            changed, count = settle(decide(folded, read_version(spark, path, version), spec, condition))
            if count == 0:
                return attempt.nothing(change.rows, rejected=rejected)
            write = partial(
                apply_changes, spark, changed, path, op=OP, keys=spec.primary_key, unique=True, near=None, count=count
            )
    return Work(lambda new: write(receipt=new), "merge", step.reason, change.rows, attempt.pins.positions, {}, rejected)


def _insert_new_keys(
    rows: DataFrame, path: Path, keys: Sequence[str], otherwise: Callable[..., None], *, receipt: Receipt
) -> None:
    if not insert_new_keys(rows, path, receipt, keys=keys):
        otherwise(receipt=receipt)


def quarantine_null_keys(attempt: Attempt, pinned: Pinned, rows: DataFrame) -> int:
    """Keep the rows with a NULL in the key, which cannot be in the table; returns how many there are."""
    spec = attempt.spec
    return keep_null_keys(attempt.runtime, attempt.spark, spec, pinned, rows.where(~has_key(spec)), attempt.mode)
