"""How the rows of affected keys change: by algebra, by computing them again, or by folding them again.

Everything is computed over pinned inputs in a session that nothing else uses; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from freshline.commit.delta_log import count_rows, is_never_null, newest_version
from freshline.compute.algebra import AlgebraResult, follow
from freshline.compute.algebra import drop_views as drop_algebra_views
from freshline.compute.arrow_rows import ArrowRows
from freshline.compute.few_changes import difference_of_few
from freshline.compute.fold import (
    as_stored,
    fold_keys,
    fold_keys_onto,
    is_folded,
    read_before_constraints,
    without_constraints,
)
from freshline.compute.inputs import (
    Pinned,
    read_inserted,
    read_net_images,
    read_signed,
    read_version,
    read_whole,
    shadow_inputs,
)
from freshline.compute.interval_rows import Inputs, IntervalRows, compute_interval_rows, interval_changes, is_served
from freshline.compute.keys import (
    DELETE,
    FAILED_BY_ROWS,
    INSERT,
    OP,
    REFUSED,
    Keys,
    difference_by_bag,
    difference_by_key,
    drop_key_views,
    find_keys,
    is_broken_plan,
    is_planned_alike,
    keys_of,
    reads_as_declared,
    why_not,
)
from freshline.compute.materialize import FEW_ROWS, has_rows, materialize_once
from freshline.compute.narrowing import narrow
from freshline.compute.netting import is_ordered
from freshline.compute.read_only import read_declared
from freshline.compute.searches import is_in_utc
from freshline.plan.changes import ChangeKind, Changes
from freshline.query.first_rows import Order, first_rows
from freshline.query.rules.affected_interval import AffectedInterval, AffectedSessions
from freshline.query.rules.algebra import Algebra
from freshline.query.tree import RelationState
from freshline.refresh.attempt import Attempt
from freshline.refresh.computed_rows import (
    check_key,
    check_key_against,
    is_unique_by_query,
    run_before_constraints,
    run_query,
    views_of,
)
from freshline.strategies.keys.rule import ALL_ROWS, RefoldKeys, RefreshKeys
from freshline.values.names import TableName, quoted
from freshline.values.reason import Reason
from freshline.values.spec import DeltaJoin, TableSpec

# Change sets up to this size are sent to every task that they are joined in.
BROADCAST_ROWS = 500_000
_IS_END = "_freshline_is_end"


@dataclass(frozen=True)
class KeyChanges:
    """How the rows of some keys change: OP and the table's columns, how many (`rows` None: none), and why these keys.

    `found_by` are columns by which each of the changed rows is one; empty where rows have no such.
    """

    keys: Keys
    rows: DataFrame | ArrowRows | None
    count: int
    reason: Reason
    found_by: tuple[str, ...]


@dataclass(frozen=True)
class _Sides:
    """The inputs of both ways. `inputs` has every input as it is, and those that changed as they were."""

    attempt: Attempt
    step: RefreshKeys
    inputs: Mapping[tuple[RelationState, str], DataFrame]
    target: DataFrame


def find_changes(attempt: Attempt, step: RefreshKeys) -> tuple[KeyChanges | Reason, int]:
    """How the stored rows change, or why a full refresh is right; and how many inputs were kept from an earlier one."""
    spark, pins = attempt.spark, attempt.inputs
    inputs: dict[tuple[RelationState, str], DataFrame] = {}
    hits = 0
    for name, pinned in pins.items():
        relation = name.view.lower()
        whole, hit = _whole_side(attempt, pinned, stands_still=name not in step.changed)
        inputs[RelationState.NEW, relation] = whole
        hits += hit
        if name in step.changed:
            before = attempt.changes[name].before
            assert before is not None
            inputs[RelationState.OLD, relation] = read_whole(spark, Pinned(pinned.spec, pinned.path, before))
    version = newest_version(attempt.path)
    assert version is not None
    target = read_version(spark, attempt.path, version)
    sides = _Sides(attempt, step, inputs, target)
    shadow_inputs({name: inputs[RelationState.NEW, name.view.lower()] for name in pins})
    found: KeyChanges | Reason | None = None
    try:
        if step.algebra is not None:
            found = _by_algebra(sides, step.algebra) or step.otherwise
        elif step.stretch is not None:
            found = _by_stretch(sides, step.stretch) or step.otherwise
        elif step.order is not None:
            found = _by_first_rows(sides, step.order)
        return (_by_keys(sides) if found is None else found), hits
    except (*REFUSED, *FAILED_BY_ROWS, Py4JJavaError) as error:
        if isinstance(error, Py4JJavaError) and not is_broken_plan(error):
            raise
        # The full refresh reports an error that is the query's own.
        return why_not(error), hits


def _whole_side(attempt: Attempt, pinned: Pinned, *, stands_still: bool) -> tuple[DataFrame, int]:
    """One input of a query at its position, and whether it was kept by an earlier refresh (1 or 0).

    An input that did not change since the newest receipt is likely to be asked for again at this version, so it is
    kept.
    """
    runtime, spark, spec = attempt.runtime, attempt.spark, attempt.spec
    rows = read_whole(spark, pinned)
    most = spec.left_cache_rows if pinned.name == spec.reads[0] else spec.right_cache_rows
    if not stands_still or most == 0 or len(spec.reads) < 2 or spec.delta_join is DeltaJoin.NONE:
        return rows, 0
    key = (pinned.path, pinned.position, tuple(rows.columns))
    kept = runtime.kept.find(key, spark)
    if kept is not None:
        return kept, 1
    count = count_rows(pinned.path, pinned.position.version)
    return (runtime.kept.keep(key, rows, most), 0) if count is not None and count <= most else (rows, 0)


def _by_algebra(sides: _Sides, algebra: Algebra) -> KeyChanges | Reason | None:
    """The changes that follow from stored and changed rows; groups that do not are computed again.

    None where the types are not served, and where all rows are one group whose values do not follow. Raises as
    `_by_keys` does.
    """
    attempt, step, inputs, target = sides.attempt, sides.step, sides.inputs, sides.target
    runtime, spark, spec = attempt.runtime, attempt.spark, attempt.spec
    pins, changes = attempt.inputs, attempt.changes
    if any(isinstance(target.schema[column].dataType, StringType) for column in spec.partitioned_by):
        # An empty text is stored as NULL there, so two groups of the query may be one of the table.
        return None
    relations = {name.view.lower(): name for name in pins}

    def never_null(relation: str, column: str) -> bool:
        pinned, before = pins[relations[relation]], changes[relations[relation]].before
        after = is_never_null(pinned.path, pinned.position.version, column)
        return after and (pinned.is_log or before is None or is_never_null(pinned.path, before.version, column))

    signed = {}
    for name in step.changed:
        images = read_signed(spark, pins[name], changes[name])
        # Spark does not know how few a change feed has, and would shuffle the other side of a join.
        few = changes[name].rows <= BROADCAST_ROWS
        signed[RelationState.SIGNED, name.view.lower()] = F.broadcast(images) if few else images
    attempt.held.callback(drop_algebra_views, spark, algebra, list(relations))
    expected = sum(changes[name].rows for name in step.changed)
    stored_rows = count_rows(attempt.path)
    followed = follow(spark, algebra, {**inputs, **signed}, target, never_null, expected=expected, stored=stored_rows)
    if followed is None:
        return None
    if not runtime.is_understood(spec.fingerprint, step.changed):
        attempt.held.callback(drop_key_views, spark, step.affected, list(relations))
        stored = partial(as_stored, spec=spec)
        if not reads_as_declared(spark, step.affected, inputs, declared=spec.sql.render(), stored=stored):
            return Reason("REWRITE_MISMATCH")
        runtime.note_understood(spec.fingerprint, step.changed)
    if followed.keys is None:
        return _of_one_row(target, followed)
    columns = followed.keys.columns
    rows, count = followed.changes, followed.count
    if followed.unsure is not None:
        unsure = followed.unsure
        new = unsure.restrict(run_query(spark, spec, pins)).select(*[F.col(quoted(c)) for c in target.columns])
        again, more = materialize_once(difference_by_key(new, unsure.restrict(target), columns))
        rows = rows.frame() if isinstance(rows, ArrowRows) else rows
        rows, count = rows.unionAll(again.select(*[F.col(quoted(name)) for name in rows.columns])), count + more
    return KeyChanges(followed.keys, rows, count, Reason("ALGEBRAIC", ", ".join(columns)), columns)


def _of_one_row(target: DataFrame, followed: AlgebraResult) -> KeyChanges:
    """The change of the one row of a table: as it was it goes, found by all of its values, and as it is it comes."""
    if followed.count == 0:
        return KeyChanges(keys_of(target.limit(0)), None, 0, ALL_ROWS, ())
    names = [F.col(quoted(name)) for name in target.columns]
    come = followed.changes.frame() if isinstance(followed.changes, ArrowRows) else followed.changes
    gone, come = (
        target.select(F.lit(DELETE).alias(OP), *names),
        come.select(F.lit(INSERT).alias(OP), *names),
    )
    rows, count = materialize_once(gone.unionAll(come))
    return KeyChanges(keys_of(target), rows, count, ALL_ROWS, ())


def _find_keys(sides: _Sides, declared: str) -> Keys | Reason:
    """The affected keys of the query `declared`; or why they are not known."""
    attempt, step, inputs, target = sides.attempt, sides.step, sides.inputs, sides.target
    runtime, spark, spec, pins = attempt.runtime, attempt.spark, attempt.spec, attempt.inputs
    found = {name.view.lower(): _changed_rows(attempt, name) for name in step.changed}
    images = {(RelationState.CHANGED, relation): rows for relation, (rows, _) in found.items()}
    attempt.held.callback(drop_key_views, spark, step.affected, [name.view.lower() for name in pins])
    return find_keys(
        spark,
        step.affected,
        {**inputs, **images},
        target.schema,
        declared=None if runtime.is_understood(spec.fingerprint, step.changed) else declared,
        stored=partial(as_stored, spec=spec),
        unchanged=[relation for relation, (_, count) in found.items() if count == 0],
        grown=[name.view.lower() for name in step.changed if _has_grown(pins[name], attempt.changes[name])],
    )


def _by_keys(sides: _Sides) -> KeyChanges | Reason:
    """The affected keys, and how their rows differ from the stored ones; or why that is not known."""
    attempt, step, target = sides.attempt, sides.step, sides.target
    runtime, spark, spec, pins = attempt.runtime, attempt.spark, attempt.spec, attempt.inputs
    keys = _find_keys(sides, spec.sql.render())
    if isinstance(keys, Reason):
        return keys
    runtime.note_understood(spec.fingerprint, step.changed)
    reason = Reason("AFFECTED_KEYS", ", ".join(step.affected.columns))
    if keys.count == 0:
        return KeyChanges(keys, None, 0, reason, spec.primary_key)
    _narrow(sides, keys)
    whole = run_before_constraints(spark, spec, pins, attempt.covered)
    computed = attempt.constraint_check.rows(keys.restrict(whole), again=True)
    rows = computed.select(*[F.col(quoted(name)) for name in target.columns])
    if _is_key_of_few(spec, keys):
        few = difference_of_few(rows, keys.restrict(target), spec.primary_key)
        if few is not None:
            return KeyChanges(keys, few if few.count else None, few.count, reason, spec.primary_key)
    new, many = materialize_once(rows, expected=keys.count, at_most=_most_rows(spec, keys))
    return difference(sides.attempt, sides.target, keys, new, many, reason)


def _has_grown(pinned: Pinned, change: Changes) -> bool:
    """Whether an input gained rows and lost none."""
    return pinned.is_log or change.kind is ChangeKind.APPEND


def _is_key_of_few(spec: TableSpec, keys: Keys) -> bool:
    """Whether a few keys are each a row of the table, so that no other row can have the primary key of a new one."""
    return keys.count <= FEW_ROWS and {key.lower() for key in spec.primary_key} == {key.lower() for key in keys.columns}


def _most_rows(spec: TableSpec, keys: Keys) -> int | None:
    """How many rows the keys have, if each is a row of its own; None where nothing says so."""
    whole = spec.primary_key and {key.lower() for key in spec.primary_key} <= {name.lower() for name in keys.columns}
    return keys.count if whole else None


def _changed_rows(attempt: Attempt, name: TableName) -> tuple[DataFrame, int]:
    """The rows of an input as they were before or after their changes, and how many."""
    change = attempt.changes[name]
    rows, count = materialize_once(read_net_images(attempt.spark, attempt.inputs[name], change), expected=change.rows)
    return (F.broadcast(rows) if count <= BROADCAST_ROWS else rows), count


def _by_stretch(sides: _Sides, stretch: AffectedInterval) -> KeyChanges | Reason | None:
    """How the rows near the changes differ from what is stored; None where types are not served."""
    attempt, step, inputs, target = sides.attempt, sides.step, sides.inputs, sides.target
    runtime, spark, spec = attempt.runtime, attempt.spark, attempt.spec
    pins, relation = attempt.inputs, stretch.input.view.lower()
    rows, before = inputs[RelationState.NEW, relation], inputs[RelationState.OLD, relation]
    if not is_served(stretch, rows.schema, target.schema, spec.partitioned_by):
        return None
    if not runtime.is_understood(spec.fingerprint, step.changed):
        attempt.held.callback(drop_key_views, spark, step.affected, [name.view.lower() for name in pins])
        stored = partial(as_stored, spec=spec)
        if not reads_as_declared(spark, step.affected, inputs, declared=spec.sql.render(), stored=stored):
            return Reason("REWRITE_MISMATCH")
        runtime.note_understood(spec.fingerprint, step.changed)
    # Which sessions and matches there were is asked of the table where it has each of them.
    complete = not (isinstance(stretch, AffectedSessions) and not stretch.complete)
    complete = complete and not spec.constraints and spec.time_partitions is None
    changed, _ = _changed_rows(attempt, stretch.input)
    near = interval_changes(stretch, changed, Inputs(before, rows), target if complete else None)
    if near is None:
        return None
    columns = [quoted(name) for name in stretch.columns]
    if near.count == 0:
        return KeyChanges(keys_of(target.select(*columns).limit(0)), None, 0, step.reason, spec.primary_key)

    def compute(some: IntervalRows) -> tuple[DataFrame, int]:
        shadow_inputs({stretch.input: some.read(rows)})
        whole = run_before_constraints(spark, spec, pins, attempt.covered)
        computed = attempt.constraint_check.rows(whole, again=True)
        return materialize_once(some.placed(computed.select(*[F.col(quoted(name)) for name in target.columns])))

    near, new, many = compute_interval_rows(near, rows, target, compute)
    touched = new.select(*columns).unionAll(near.stored(target).select(*columns)).distinct()
    return difference(sides.attempt, sides.target, keys_of(touched), new, many, step.reason)


def _by_first_rows(sides: _Sides, by: Sequence[Order]) -> KeyChanges | Reason:
    """How the first rows of an order change (`freshline.query.first_rows`); or why they do not follow."""
    attempt, step, target = sides.attempt, sides.step, sides.target
    runtime, spark, spec = attempt.runtime, attempt.spark, attempt.spec
    rows = first_rows(spec.sql.render())
    assert rows is not None
    if not all(is_ordered(field.dataType) for field in target.schema.fields):
        return Reason("TOP_N", "the values of a column have no order")
    keys = _find_keys(sides, rows.every)
    if isinstance(keys, Reason):
        return keys
    views = views_of(spec)
    if not runtime.is_understood(spec.fingerprint, step.changed):
        every = as_stored(read_declared(spark, rows.every, views), spec)
        asked = as_stored(read_declared(spark, rows.ordered(every.columns), views), spec)
        if not is_planned_alike(every.orderBy(*_order(by, every.columns)).limit(rows.count), asked):
            return Reason("REWRITE_MISMATCH", "ORDER BY")
    runtime.note_understood(spec.fingerprint, step.changed)
    if keys.count == 0:
        return KeyChanges(keys, None, 0, step.reason, spec.primary_key)
    _narrow(sides, keys)
    every = as_stored(read_declared(spark, rows.every, views), spec)
    order = _order(by, every.columns)
    names = [F.col(quoted(name)) for name in target.columns]
    # Of the rows of the keys no more than the first can be among the first of all.
    came, _ = materialize_once(keys.restrict(every).orderBy(*order).limit(rows.count).select(*names))
    candidates = keys.leave(target).unionAll(came).withColumn(_IS_END, F.lit(False))
    stored = count_rows(attempt.path)
    # Where the log does not count rows, the last is taken for the border: a full refresh more, and never another row.
    is_full = stored is None or stored >= rows.count
    if is_full:
        # The last stored row as a mark, behind all rows that are equal to it: no other row is known beyond it.
        last = target.orderBy(*_order(by, every.columns, backwards=True)).limit(1)
        candidates = candidates.unionAll(last.withColumn(_IS_END, F.lit(True)))
    new, many = materialize_once(candidates.orderBy(*order, F.col(_IS_END)).limit(rows.count))
    if is_full and has_rows(new.where(_IS_END)):
        return Reason("TOP_N", f"rows behind the first {rows.count:,} follow")
    new = new.drop(_IS_END)
    columns = [F.col(quoted(name)) for name in keys.columns]
    touched = target.select(*columns).unionAll(new.select(*columns)).distinct()
    return difference(sides.attempt, sides.target, keys_of(touched), new, many, step.reason)


def _order(order: Sequence[Order], columns: Sequence[str], *, backwards: bool = False) -> list[Column]:
    """The parts of an order with all columns behind them, as `FirstRows.ordered` writes it; or from its end."""
    last = [Order(name, descending=False, nulls_first=True) for name in columns]
    found = []
    for part in (*order, *last):
        column = F.col(quoted(part.column))
        if part.descending != backwards:
            found.append(column.desc_nulls_first() if part.nulls_first != backwards else column.desc_nulls_last())
        else:
            found.append(column.asc_nulls_first() if part.nulls_first != backwards else column.asc_nulls_last())
    return found


def difference(
    attempt: Attempt, target: DataFrame, keys: Keys, new: DataFrame, many: int, reason: Reason
) -> KeyChanges:
    """How the rows of keys, computed again as `new`, differ from what is stored in `target`.

    Raises DuplicateKeyError.
    """
    spec = attempt.spec
    found_by = spec.primary_key
    old = keys.restrict(target)
    if spec.primary_key:
        if not is_unique_by_query(spec):
            check_key(new, spec)
        if not {column.lower() for column in keys.columns} <= {key.lower() for key in spec.primary_key}:
            # Only files with such values of the primary key are read, where that can be asked for.
            near = keys_of(new.select(*[F.col(quoted(key)) for key in spec.primary_key]).distinct()).near(None)
            stored = target if near is None else target.where(near)
            check_key_against(new, keys.leave(stored), spec)
        changed = difference_by_key(new, old, spec.primary_key)
    else:
        changed = difference_by_bag(new, old, keys)
    # Computed once, read twice by MERGE, which refuses a cached source.
    changed, count = materialize_once(changed, expected=many, at_most=_most_rows(spec, keys))
    return KeyChanges(keys, changed if count else None, count, reason, found_by)


def _narrow(sides: _Sides, keys: Keys) -> None:
    """Let the query read an input only where its times can give one of the keys, so that files are skipped."""
    pins = sides.attempt.inputs
    if not is_in_utc(sides.attempt.spark):
        return  # the session of somebody else, where a day begins at another time
    names = {name.view.lower(): name for name in pins}
    whole = {relation: sides.inputs[RelationState.NEW, relation] for relation in names}
    near = narrow(keys, sides.step.affected.reaches, whole)
    shadow_inputs({names[relation]: rows for relation, rows in near.items()})


def refold(attempt: Attempt, step: RefoldKeys) -> KeyChanges:
    """How the rows of a merge type change whose keys are folded again, over all rows that the input has of them."""
    spark, spec = attempt.spark, attempt.spec
    pinned, change = attempt.inputs[step.input], attempt.changes[step.input]
    version = newest_version(attempt.path)
    assert version is not None
    target = read_version(spark, attempt.path, version)
    is_append = change.kind is ChangeKind.APPEND
    images = (
        read_inserted(spark, pinned, change, arrival=pinned.is_log)
        if pinned.is_log or is_append
        else read_net_images(spark, pinned, change)
    )
    shadow_inputs({step.input: images})
    came = read_before_constraints(spark, spec, arrival=pinned.is_log)
    keys = keys_of(came.where(is_folded(spec)).select(*[F.col(quoted(key)) for key in spec.primary_key]).distinct())
    assert spec.merge is not None
    assert attempt.receipt is not None
    as_declared = attempt.receipt.valid_from_seq is None
    if is_append and as_declared and spec.merge.stands_for_rows(came.schema, target.schema, spec):
        stored = keys.restrict(target)
        rows = attempt.constraint_check.rows(came, again=False, but=without_constraints(spec))
        new = fold_keys_onto(rows, stored, spec)
        changed, count = materialize_once(difference_by_key(new, stored, spec.primary_key))
        return KeyChanges(keys, changed, count, step.reason, spec.primary_key)
    shadow_inputs({step.input: read_whole(spark, pinned, arrival=pinned.is_log)})
    rows = read_before_constraints(spark, spec, arrival=pinned.is_log)
    every = attempt.constraint_check.rows(keys.restrict(rows), again=True, but=without_constraints(spec))
    new = fold_keys(every, spec)
    changed, count = materialize_once(difference_by_key(new, keys.restrict(target), spec.primary_key))
    return KeyChanges(keys, changed, count, step.reason, spec.primary_key)
