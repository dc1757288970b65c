"""The keys of a class of `freshline.process` go on from their state, or are replayed.

A key goes on whose changed rows are all behind those that it had (`freshline.keyed.batches`): its new rows are added.
All others whose rows changed, or whose timers are due, are replayed. A table that has the columns of the key is
compared with the new rows of these keys. For one that has not, the keys are replayed at the positions and the watermark
of the receipt too: the difference of the two is that of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial, reduce
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.commit.delta_log import newest_version
from freshline.commit.write import append_rows
from freshline.compute.constraints import leave_out
from freshline.compute.inputs import Pinned, read_net_images, read_net_signed, read_version, read_whole
from freshline.compute.keys import INSERT, OP, Keys, difference_by_bag, difference_by_key, keys_of
from freshline.compute.literal import sql_literal
from freshline.compute.materialize import has_rows, materialize_once
from freshline.keyed.batches import CAME, ENTRY, FROM, GONE, LAYER, STATE, TIMER
from freshline.plan.step import Noop
from freshline.query.rules.algebra import SIGN
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.computed_rows import check_key, check_key_against, require_process_columns, table_rows
from freshline.refresh.functions import Function
from freshline.refresh.pin import pin_at
from freshline.refresh.process_keys import (
    KeyEntries,
    again_of,
    entries_of,
    is_still_whole,
    keep,
    keeping_state,
    named_keys,
    read_kept,
)
from freshline.strategies.keys.changes import KeyChanges
from freshline.strategies.keys.rule import KeysOfProcess
from freshline.strategies.keys.write import write_of_changes
from freshline.strategies.noop.write import carry_position
from freshline.values.closing import Closing
from freshline.values.names import TableName, quoted
from freshline.values.position import Position
from freshline.values.query import PythonQuery
from freshline.values.receipt import Receipt
from freshline.values.result import Strategy

NET = "_freshline_net"
ADDED = "_freshline_added"
# Of so many times more entries than changed rows, those of other keys are left out before they come to Python.
MANY = 4
FEW_ENTRIES = 10_000

Found = TypeVar("Found")


def refresh_keys_of_process(attempt: Attempt, step: KeysOfProcess) -> Work:
    """The write of how the rows of affected keys change."""
    process = _Process.of(attempt, step)
    rows_in = attempt.changes[step.input].rows
    kept = read_kept(attempt, process.schema)
    if kept is not None and not process.changed:
        due = _has_due(process, kept)
        if due is False:
            return attempt.nothing(rows_in)
        if due is None:
            kept = None
    went_on = None if kept is None else _go_on(process, kept)
    kept = kept if went_on is not None else None
    keys = keys_of(_to_replay(process, went_on).distinct())
    made = [] if went_on is None else [went_on]
    if keys.count:
        if process.has_own_key:
            process.function.require_stored_keys(keys)
        made.append(_replay(process, keys))
    work = _work(process, made, keys, rows_in)
    complete = kept.complete if kept is not None else attempt.spec.has_timers
    positions: Mapping[TableName, Position] = attempt.pins.positions
    receipt = process.receipt
    if work.write is None and not process.has_own_key:
        if not process.changed:
            positions = receipt.positions
        else:
            # The next replay of rows as they were begins here.
            work = replace(carry_position(attempt, Noop(work.reason)), rows_in=rows_in)
    entries, _ = materialize_once(entries_of(made)) if made else (None, 0)
    if entries is None:
        return work

    def keep_entries(of: Receipt) -> None:
        keep(attempt, entries, kept, of, positions, process.schema, complete=complete)

    write = work.write
    if write is None:
        # The rows are those of the newest receipt, and the entries are known for the positions that were checked.
        keep_entries(receipt)
        return work

    def keep_and_write(new_receipt: Receipt) -> None:
        keep_entries(new_receipt)
        write(new_receipt)

    return replace(work, write=keep_and_write)


@dataclass(frozen=True)
class _Process:
    """The values that all steps of one refresh share.

    `whole` are all rows of the input, `like` has the columns of keys in the types of the rows among which they are
    searched.
    """

    attempt: Attempt
    step: KeysOfProcess
    function: Function
    pinned: Pinned
    whole: DataFrame
    target: DataFrame
    like: DataFrame
    has_own_key: bool

    @classmethod
    def of(cls, attempt: Attempt, step: KeysOfProcess) -> _Process:
        spark, pinned, query = attempt.spark, attempt.inputs[step.input], attempt.spec.query
        assert isinstance(query, PythonQuery)
        assert query.process is not None
        own = query.process.has_own_key
        spec = keeping_state(attempt.spec)
        function = Function(attempt.runtime, spark, spec, attempt.inputs, attempt.held, attempt.cancellation)
        version = newest_version(attempt.path)
        assert version is not None
        target = read_version(spark, attempt.path, version)
        whole = read_whole(spark, pinned)
        require_process_columns(spec, whole.schema)
        of = target if own else whole
        like = of.select(*[F.col(quoted(name)) for name in function.key_names(of)])
        return cls(attempt, step, function, pinned, whole, target, like, own)

    @property
    def schema(self) -> StructType:
        """The columns of the input."""
        return self.whole.schema

    @property
    def receipt(self) -> Receipt:
        assert self.attempt.receipt is not None
        return self.attempt.receipt

    @property
    def changed(self) -> bool:
        """Whether the input has other positions than those that the table has read."""
        changes = self.attempt.changes[self.step.input]
        return changes.before is None or changes.before != changes.after

    @property
    def due(self) -> str:
        """The condition of entries whose first timer is due."""
        closing = self.attempt.closing
        until: datetime | None = None if closing is None else closing.until_time
        return "false" if until is None else f"{TIMER} <= {sql_literal(until)}"


def _has_due(process: _Process, kept: KeyEntries) -> bool | None:
    """Whether a timer may be due; older entries of a key are read too. None where the kept entries are damaged."""
    attempt = process.attempt
    if not attempt.spec.has_timers:
        return False
    return _unless_damaged(attempt, kept, lambda: has_rows(kept.entries(attempt.spark).where(process.due)))


def _unless_damaged(attempt: Attempt, kept: KeyEntries, read: Callable[[], Found]) -> Found | None:
    """The result of `read`, which reads entries; None where these turned out to be damaged.

    Their files are checked again only after an error, because a refresh takes them for whole while size and time of
    change are the same.
    """
    try:
        return read()
    except (PySparkException, Py4JError):
        if is_still_whole(attempt, kept):
            raise
        return None


def _go_on(process: _Process, kept: KeyEntries) -> DataFrame | None:
    """The rows that the class makes of changed rows and due timers alone, and which keys are to be replayed.

    None where the kept entries turned out to be damaged.
    """
    attempt, step = process.attempt, process.step
    spec = keeping_state(attempt.spec, knows_all=kept.complete)
    columns = [F.col(quoted(name)) for name in process.schema.names]
    nothing = [F.lit(None).cast("timestamp").alias(TIMER), F.lit(None).cast("string").alias(STATE)]
    changes = attempt.changes[step.input]
    parts = []
    if process.changed:
        came = F.when(F.col(SIGN) > 0, CAME).otherwise(GONE).alias(FROM)
        signed = read_net_signed(attempt.spark, process.pinned, changes)
        parts.append(signed.select(*columns, came, F.lit(None).cast("int").alias(LAYER), *nothing))

    def made() -> DataFrame:
        entries = _entries(process, kept, changes.rows)
        keys = {name.lower() for name in entries.columns}
        others = [
            F.col(quoted(field.name))
            if field.name.lower() in keys
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in process.schema.fields
        ]
        fed = reduce(
            DataFrame.unionAll, [*parts, entries.select(*others, F.lit(ENTRY).alias(FROM), LAYER, TIMER, STATE)]
        )
        function = replace(process.function, spec=spec)
        return materialize_once(function.made({step.input: fed}), expected=changes.rows)[0]

    return _unless_damaged(attempt, kept, made)


def _entries(process: _Process, kept: KeyEntries, rows: int) -> DataFrame:
    """Entries under the names of the input: all, or those of keys whose rows changed or whose timers are due."""
    entries = kept.entries(process.attempt.spark)
    named = named_keys(process.attempt.spec, process.schema)
    shown = entries.select(*named, LAYER, TIMER, STATE)
    if kept.rows <= max(FEW_ENTRIES, MANY * rows):
        return shown
    wanted = [entries.where(process.due).select(*named)]
    if process.changed:
        images = read_net_images(process.attempt.spark, process.pinned, process.attempt.changes[process.step.input])
        wanted.append(images.select(*[F.col(quoted(name)) for name in wanted[0].columns]))
    return keys_of(reduce(DataFrame.unionAll, wanted).distinct()).restrict(shown)


def _to_replay(process: _Process, went_on: DataFrame | None) -> DataFrame:
    """The keys that are to be replayed: those that could not go on, or, where nothing is kept, all that may differ."""
    attempt, step, function, like = process.attempt, process.step, process.function, process.like
    if went_on is not None:
        return function.as_keys(again_of(went_on).toDF(*_spelled(step.columns, process.schema)), step.columns, like)
    rows = process.whole if attempt.spec.has_timers else None
    if rows is None or process.changed:
        # A key of which no row is left is in the images alone.
        images = read_net_images(attempt.spark, process.pinned, attempt.changes[step.input])
        names = [F.col(quoted(name)) for name in _spelled(step.columns, process.schema)]
        rows = images if rows is None else rows.select(*names).unionAll(images.select(*names))
    return function.as_keys(rows, step.columns, like)


def _spelled(names: Sequence[str], schema: StructType) -> list[str]:
    spelling = {name.lower(): name for name in schema.names}
    return [spelling[name.lower()] for name in names]


def _replay(process: _Process, keys: Keys) -> DataFrame:
    """The rows that the class makes of all rows of some keys."""
    step, function = process.step, process.function
    return materialize_once(function.made({step.input: function.with_keys(step.input, step.columns, keys)}))[0]


def _work(process: _Process, made: Sequence[DataFrame], keys: Keys, rows_in: int) -> Work:
    """The write of the rows that are added, and of how those of replayed keys differ. `made` has the latter last."""
    attempt, target = process.attempt, process.target
    if not made:
        return attempt.nothing(rows_in)
    spec, names = attempt.spec, [F.col(quoted(name)) for name in target.columns]
    replayed = len(made) - 1 if keys.count else len(made)
    parts = [
        table_rows(rows, spec).select(*names, F.lit(number != replayed).alias(ADDED))
        for number, rows in enumerate(made)
    ]
    checked = attempt.constraint_check.rows(reduce(DataFrame.unionAll, parts), again=True)
    new, _ = materialize_once(checked)
    added = new.where(ADDED).select(F.lit(INSERT).alias(OP), *names)
    if spec.primary_key:
        _check_key(process, new, keys)
    if keys.count == 0:
        count = added.count()
        if count == 0:
            return attempt.nothing(rows_in)
        write = partial(append_rows, added.drop(OP), attempt.path, count=count)
        positions = attempt.pins.positions
        return Work(lambda new: write(receipt=new), Strategy.KEYS, process.step.reason, rows_in, positions, {})
    if process.has_own_key and spec.primary_key:
        # A row that is added may have the primary key of one that a replayed key no longer has: it is an update then.
        found = _by_own_key(process, new.select(*names), keys)
        changed = _rows(found)
    elif process.has_own_key:
        found = _by_own_key(process, new.where(~F.col(ADDED)).select(*names), keys)
        changed = _rows(found).unionByName(added)
    else:
        # Rows that are added may be those of which a replayed key has fewer.
        found = _by_values(process, new.select(*names), keys)
        changed = _rows(found)
    changed, count = materialize_once(changed)
    return write_of_changes(attempt, replace(found, rows=changed if count else None, count=count), rows_in)


def _rows(found: KeyChanges) -> DataFrame:
    assert isinstance(found.rows, DataFrame)
    return found.rows


def _check_key(process: _Process, new: DataFrame, keys: Keys) -> None:
    """Refuse two rows with one primary key, among new ones and those of other keys, or of keys that go on."""
    spec, target = process.attempt.spec, process.target
    check_key(new, spec)
    is_part = {column.lower() for column in keys.columns} <= {key.lower() for key in spec.primary_key}
    if keys.count and is_part and not has_rows(new.where(ADDED)):
        return  # all rows that may have such a primary key are computed again
    near = keys_of(new.select(*[F.col(quoted(key)) for key in spec.primary_key]).distinct()).near(None)
    stored = target if near is None else target.where(near)
    check_key_against(new, keys.leave(stored) if keys.count else stored, spec)


def _by_own_key(process: _Process, new: DataFrame, keys: Keys) -> KeyChanges:
    """How the rows change that are found by the columns of the key.

    `new` are the rows of these keys. With a primary key they may be those, too, that keys which go on have more.
    """
    spec, target = process.attempt.spec, process.target
    if spec.primary_key:
        changed = difference_by_key(new, keys.restrict(target), spec.primary_key)
    else:
        changed = difference_by_bag(new, keys.restrict(target), keys)
    return KeyChanges(keys, changed, 0, process.step.reason, spec.primary_key)


def _by_values(process: _Process, new: DataFrame, keys: Keys) -> KeyChanges:
    """How the rows change that only their values identify: by a replay of the same keys as they were.

    `new` are the rows of these keys, and those that keys which go on have more.
    """
    attempt, step, target, receipt = process.attempt, process.step, process.target, process.receipt
    spark = attempt.spark
    spec = attempt.spec.at_closing(Closing.between(None, receipt.timers_until) if attempt.spec.has_timers else None)
    pins = pin_at(attempt.runtime, spec, receipt.positions)
    before = Function(attempt.runtime, spark, spec, pins, attempt.held, attempt.cancellation)
    old = leave_out(before.rows({step.input: before.with_keys(step.input, step.columns, keys)}), spec.constraints)
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
    return KeyChanges(values, difference_by_bag(after, stored, values), 0, step.reason, ())


def _net(counted: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The values of which there are more, or fewer, and how many."""
    named = [F.col(quoted(name)) for name in columns]
    return counted.groupBy(*named).agg(F.sum(NET).alias(NET)).where(F.col(NET) != 0)
