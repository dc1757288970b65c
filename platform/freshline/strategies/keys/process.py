"""The keys of a class of `freshline.process` are replayed whose rows changed or whose timers are due.

A table that has the columns of the key is compared with the new rows of these keys. For one that has not, the keys are
replayed at the positions and the watermark of the receipt too: the difference of the two is that of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.attempt.attempt import Attempt, Work
from freshline.attempt.compute import check_key, check_key_against, table_rows
from freshline.attempt.functions import Function
from freshline.attempt.pin import pin_at
from freshline.attempt.timers import keep_waiting, read_waiting, waiting_after
from freshline.commit.delta_log import newest_version
from freshline.declare.closing import Closing
from freshline.declare.names import TableName
from freshline.declare.query import PythonQuery
from freshline.keyed.batches import TIMER
from freshline.plan.changes import ChangeKind
from freshline.plan.position import Position
from freshline.plan.receipt import Receipt
from freshline.plan.step import Noop
from freshline.refresh.constraints import leave_out
from freshline.refresh.inputs import read_net_images, read_version, read_whole
from freshline.refresh.keys import Keys, difference_by_bag, difference_by_key, keys_of
from freshline.refresh.literal import quoted, sql_literal
from freshline.refresh.materialize import materialize_once
from freshline.strategies.keys.changes import Changed
from freshline.strategies.keys.rule import KeysOfProcess
from freshline.strategies.keys.write import write_of_changes
from freshline.strategies.noop.write import carry_position

NET = "_freshline_net"


def refresh_keys_of_process(attempt: Attempt, step: KeysOfProcess) -> Work:
    """The write of how the rows of affected keys change."""
    query = attempt.spec.query
    assert isinstance(query, PythonQuery)
    assert query.process is not None
    found = _affected(attempt, step, has_own_key=query.process.has_own_key)
    rows_in = attempt.changes[step.input].rows
    receipt = attempt.receipt
    assert receipt is not None
    if found.keys.count == 0 and not found.moved:
        return attempt.nothing(rows_in)
    made, _ = materialize_once(found.function.made({step.input: found.rows}))
    new = attempt.constraint_check.rows(table_rows(made, attempt.spec), again=True)
    if query.process.has_own_key:
        changed = _by_own_key(attempt, found, new, step)
    else:
        changed = _by_values(attempt, found, new, step, receipt)
    work = write_of_changes(attempt, changed, rows_in)
    positions: Mapping[TableName, Position] = attempt.pins.positions
    if work.write is None and not query.process.has_own_key:
        if attempt.changes[step.input].kind is ChangeKind.NOTHING:
            positions = receipt.positions
        else:
            # The next replay of rows as they were begins here.
            work = replace(carry_position(attempt, Noop(work.reason)), rows_in=rows_in)
    if not attempt.spec.has_timers:
        return work
    waiting, _ = materialize_once(waiting_after(found.keys, found.waiting, made))
    write = work.write
    if write is None:
        # The rows are those of the newest receipt, and what waits is known of the positions that were looked at.
        keep_waiting(attempt, waiting, receipt, positions)
        return work

    def keep_and_write(new_receipt: Receipt) -> None:
        keep_waiting(attempt, waiting, new_receipt, positions)
        write(new_receipt)

    return replace(work, write=keep_and_write)


@dataclass(frozen=True)
class _Affected:
    """The keys that are replayed, with the rows of the input that they have now.

    `waiting` are the timers before, None where all keys are replayed. `moved`: the positions are others than those
    that the timers are of.
    """

    function: Function
    keys: Keys
    rows: DataFrame
    target: DataFrame
    waiting: DataFrame | None
    moved: bool


def _affected(attempt: Attempt, step: KeysOfProcess, *, has_own_key: bool) -> _Affected:
    spark, spec, pinned = attempt.spark, attempt.spec, attempt.inputs[step.input]
    function = Function(attempt.runtime, spark, spec, attempt.inputs, attempt.held, attempt.cancellation)
    version = newest_version(attempt.path)
    assert version is not None
    target = read_version(spark, attempt.path, version)
    whole = read_whole(spark, pinned)
    changes = attempt.changes[step.input]
    # Keys have the names and types of the rows among which they are looked for.
    of = target if has_own_key else whole
    like = of.select(*[F.col(quoted(name)) for name in function.key_names(of)])
    found = []
    changed = changes.before is None or changes.before != changes.after
    if changed:
        found.append(function.as_keys(read_net_images(spark, pinned, changes), step.columns, like))
    waiting = None
    if spec.has_timers:
        waiting = read_waiting(attempt, like.schema)
        if waiting is None:
            found.append(function.as_keys(whole, step.columns, like))
        else:
            found.append(waiting.where(_due(attempt.closing)).select(*[F.col(quoted(name)) for name in like.columns]))
    keys = keys_of(reduce(DataFrame.unionAll, found).distinct())
    if has_own_key:
        function.require_stored_keys(keys)
    return _Affected(
        function, keys, function.with_keys(step.input, step.columns, keys), target, waiting, changed or waiting is None
    )


def _due(closing: Closing | None) -> str:
    until: datetime | None = None if closing is None else closing.until_time
    return "false" if until is None else f"{TIMER} <= {sql_literal(until)}"


def _by_own_key(attempt: Attempt, found: _Affected, new: DataFrame, step: KeysOfProcess) -> Changed:
    """How the rows change that are found by the columns of the key."""
    spec, keys, target = attempt.spec, found.keys, found.target
    new, _ = materialize_once(new.select(*[F.col(quoted(name)) for name in target.columns]))
    if spec.primary_key:
        check_key(new, spec)
        if not {column.lower() for column in keys.columns} <= {key.lower() for key in spec.primary_key}:
            check_key_against(new, keys.leave(target), spec)
        changed = difference_by_key(new, keys.restrict(target), spec.primary_key)
    else:
        changed = difference_by_bag(new, keys.restrict(target), keys)
    changed, count = materialize_once(changed)
    return Changed(keys, changed if count else None, count, step.reason, spec.primary_key)


def _by_values(attempt: Attempt, found: _Affected, new: DataFrame, step: KeysOfProcess, receipt: Receipt) -> Changed:
    """How the rows change of which only their values tell: by a replay of the same keys as they were."""
    spark, target = attempt.spark, found.target
    spec = attempt.spec.at_closing(Closing.between(None, receipt.timers_until) if attempt.spec.has_timers else None)
    pins = pin_at(attempt.runtime, spec, receipt.positions)
    before = Function(attempt.runtime, spark, spec, pins, attempt.held, attempt.cancellation)
    old = leave_out(before.rows({step.input: before.with_keys(step.input, step.columns, found.keys)}), spec.constraints)
    names = [F.col(quoted(name)) for name in target.columns]
    net = _net(
        new.select(*names, F.lit(1).alias(NET)).unionAll(old.select(*names, F.lit(-1).alias(NET))), target.columns
    )
    net, _ = materialize_once(net)
    values = keys_of(net.select(*names))
    stored, _ = materialize_once(values.restrict(target))
    after = _net(stored.select(*names, F.lit(1).alias(NET)).unionAll(net.select(*names, NET)), target.columns)
    copies = F.explode(F.sequence(F.lit(1), F.col(NET).cast("int"))).alias("_freshline_copy")
    after = after.where(F.col(NET) > 0).select(*names, copies).select(*names)
    changed, count = materialize_once(difference_by_bag(after, stored, values))
    return Changed(values, changed if count else None, count, step.reason, ())


def _net(counted: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The values of which there are more, or fewer, and how many."""
    named = [F.col(quoted(name)) for name in columns]
    return counted.groupBy(*named).agg(F.sum(NET).alias(NET)).where(F.col(NET) != 0)
