"""When the rows of affected keys can be computed again, by the query or by the merge of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from freshline.plan.changes import ChangeKind
from freshline.plan.models import has_rows_of_other_models
from freshline.plan.step import Situation, Step
from freshline.plan.strategy import RefreshStrategy
from freshline.query.first_rows import Order, first_rows, order_of
from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.affected_interval import AffectedInterval, AffectedSessions, find_affected_interval
from freshline.query.rules.algebra import Algebra, find_algebra
from freshline.query.rules.append import find_branches
from freshline.query.rules.keys import Affected, find_affected, understood
from freshline.query.rules.lookups import Lookups, find_lookups
from freshline.query.rules.time_distance import TimeDistance
from freshline.strategies.keys.components import RefreshComponents, find_components
from freshline.values.clock import CLOCK
from freshline.values.names import TableName
from freshline.values.process import Process
from freshline.values.query import PythonQuery
from freshline.values.reason import Reason
from freshline.values.result import Strategy
from freshline.values.spec import DeltaJoin, TableSpec

# The reason of a table whose one row follows from its stored values.
ALL_ROWS = Reason("ALGEBRAIC", "all rows")


@dataclass(frozen=True)
class RefreshKeys(Step):
    """Compute the rows of affected keys again, and write those that differ. `changed` are the inputs that changed.

    `algebra` says how they follow from their old values and the changed rows, where they do; `stretch` which rows of
    their keys alone are to be read, where these are not all. Where all rows are of one key there are no keys to find,
    and `otherwise` is why the table is computed in full where neither says what follows. `order` is that of a
    table that keeps the first rows of one; then the keys are those of all rows.
    """

    affected: Affected
    changed: frozenset[TableName]
    reason: Reason
    algebra: Algebra | None = None
    stretch: AffectedInterval | None = None
    otherwise: Reason | None = None
    order: tuple[Order, ...] | None = None

    computed_by = "freshline.strategies.keys.write:refresh_keys"
    strategy = Strategy.KEYS
    activity = "computing affected keys again"
    reads_changes = True
    is_priced = True

    @property
    def keys(self) -> tuple[str, ...]:
        return self.affected.columns if self.stretch is None else self.stretch.columns

    @property
    def reaches(self) -> tuple[TimeDistance, ...]:
        # By algebra inputs are not read but for their changes, and a stretch of a key has bounds of its own.
        return self.affected.reaches if self.algebra is None and self.stretch is None else ()

    @property
    def uses_stored_values(self) -> bool:
        return self.algebra is not None


@dataclass(frozen=True)
class RefoldKeys(Step):
    """Fold the keys of changed rows of `input` again, over all rows that the input has of them now."""

    input: TableName
    reason: Reason

    computed_by = "freshline.strategies.keys.write:refold_keys"
    strategy = Strategy.KEYS
    activity = "computing affected keys again"
    reads_changes = True
    is_priced = True


@dataclass(frozen=True)
class LookUpChanged(Step):
    """Look up the rows of `changed` that came, and take away those of the table whose rows of these inputs went.

    All others keep the dimension rows that they were joined with. Computing everything would look them up again, so its
    price is no matter.
    """

    changed: tuple[TableName, ...]
    lookups: Lookups
    reason: Reason

    computed_by = "freshline.strategies.keys.lookups:look_up_changed"
    strategy = Strategy.KEYS
    activity = "looking up changed rows"
    reads_changes = True

    @property
    def keys(self) -> tuple[str, ...]:
        return self.lookups.columns


@dataclass(frozen=True)
class KeysOfFunction(Step):
    """Call the function of the table with the rows of affected keys, and write the rows that differ.

    `changed` are the inputs that changed, `columns` those of the result that have the keys.
    """

    changed: frozenset[TableName]
    columns: tuple[str, ...]
    reason: Reason

    computed_by = "freshline.strategies.keys.function:refresh_keys_of_function"
    strategy = Strategy.KEYS
    activity = "calling the function for affected keys"
    reads_changes = True
    is_priced = True

    @property
    def keys(self) -> tuple[str, ...]:
        return self.columns


@dataclass(frozen=True)
class KeysOfProcess(Step):
    """Replay the keys whose rows changed or whose timers are due, and write the rows that differ.

    `input` is what the class is given, `columns` are the key's there.
    """

    input: TableName
    columns: tuple[str, ...]
    reason: Reason

    computed_by = "freshline.strategies.keys.process:refresh_keys_of_process"
    strategy = Strategy.KEYS
    activity = "replaying affected keys"
    reads_changes = True
    is_priced = True

    @property
    def keys(self) -> tuple[str, ...]:
        return self.columns


class KeysStrategy(RefreshStrategy):
    """The rows of affected keys are computed again, and those that differ are written."""

    name = Strategy.KEYS

    def find_step(
        self, situation: Situation
    ) -> RefreshKeys | RefoldKeys | LookUpChanged | KeysOfFunction | KeysOfProcess | RefreshComponents | Reason:
        query = situation.spec.query
        if isinstance(query, PythonQuery) and query.process is not None:
            return _of_process(query, query.process, situation)
        if not (situation.changed or situation.time_passed):
            return Reason("UNSUPPORTED", "rows wait for their dimension, and none of the table's rows changed")
        if isinstance(query, PythonQuery):
            return _of_function(query, situation)
        if query.graph is not None:
            return find_components(query.graph, situation)
        return _refresh(situation) if situation.spec.merge is None else _refold(situation)


def _look_up(situation: Situation) -> LookUpChanged | Reason:
    """The step that looks up the changed rows alone, or why all rows have to be."""
    spec, receipt = situation.spec, situation.receipt
    assert receipt is not None
    changed = tuple(name for name in spec.driving if name in situation.changed)
    lookups = find_lookups(spec, situation.columns, changed)
    if isinstance(lookups, Reason):
        return lookups
    if receipt.valid_from_seq is not None:
        # Of rows that follow an earlier declaration only the key is as in this one.
        if not spec.primary_key or not _lower(spec.primary_key) <= set(lookups.columns):
            return Reason("UNSUPPORTED", "rows of an earlier declaration are kept, and are not found by a primary key")
        lookups = replace(lookups, columns=tuple(key.lower() for key in spec.primary_key))
    return LookUpChanged(changed, lookups, Reason("AFFECTED_KEYS", ", ".join(lookups.columns)))


def _refresh(situation: Situation) -> RefreshKeys | LookUpChanged | Reason:
    """The step that computes the rows of affected keys again, or why it is not right."""
    spec, receipt, changed = situation.spec, situation.receipt, situation.changed
    assert receipt is not None
    if spec.lookups:
        return _look_up(situation)
    if has_rows_of_other_models(spec, receipt):
        return Reason("UNSUPPORTED", "rows keep the prediction of an earlier model, and cannot be computed again")
    if receipt.has_partition_positions:
        return Reason("UNSUPPORTED", "partitions were refreshed apart from the rest")
    if spec.delta_join is DeltaJoin.NONE:
        return Reason("UNSUPPORTED", "delta-join.strategy = NONE")
    without = situation.without_change_feed
    if without is not None:
        return without
    schema = {name.view.lower(): situation.columns.get(name, ()) for name in spec.reads}
    unknown = [relation for relation, columns in schema.items() if not columns]
    if unknown:
        return Reason("UNSUPPORTED", f"the columns of {unknown[0]} are not known")
    types = {name.view.lower(): types for name, types in situation.types.items()}
    resolved = ResolvedQuery.of(situation.query.text, schema, types)
    touched = frozenset(name.view.lower() for name in changed)
    clock = situation.clock
    touched |= frozenset() if clock is None else {CLOCK}
    # Of rows that follow an earlier declaration only the key is as in this one.
    as_declared = receipt.valid_from_seq is None
    affected = find_affected(resolved, touched, primary_key=spec.primary_key, by_time=as_declared)
    # Rows that enter or leave as time passes are not among the changed ones that a stretch is found by.
    stretch = _stretch(situation) if as_declared and clock is None else None
    algebra = _algebra(spec, resolved, touched) if as_declared and stretch is None else None
    if algebra is not None and clock is not None:
        algebra = algebra.at(clock)
    if isinstance(affected, Reason):
        first = _first_rows(situation, schema, types) if as_declared else None
        return first or _of_all_rows(situation, understood(resolved, touched), stretch, algebra, affected)
    affected = affected if clock is None else affected.at(clock)
    if stretch is not None:
        return RefreshKeys(affected, frozenset(changed), _near(stretch), stretch=stretch)
    if not as_declared and not _lower(affected.columns) <= _lower(spec.primary_key):
        return Reason("UNSUPPORTED", "rows of an earlier declaration are kept, and are not found by a primary key")
    return RefreshKeys(affected, frozenset(changed), Reason("AFFECTED_KEYS", ", ".join(affected.columns)), algebra)


def _first_rows(
    situation: Situation, schema: Mapping[str, Sequence[str]], types: Mapping[str, Mapping[str, str]]
) -> RefreshKeys | None:
    """The step of a table that keeps the first rows of an order; None where these do not follow from stored ones."""
    spec, changed = situation.spec, frozenset(situation.changed)
    if spec.constraints or spec.time_partitions is not None or spec.partitioned_by or situation.clock is not None:
        # The stored rows would not be all of the first ones, or not have the values that they were put in order by.
        return None
    found = first_rows(situation.query.text)
    if found is None:
        return None
    every = ResolvedQuery.of(found.every, schema, types)
    order = order_of(situation.query, every)
    if order is None:
        return None
    affected = find_affected(every, frozenset(name.view.lower() for name in changed))
    if isinstance(affected, Reason):
        return None
    about = f"{', '.join(affected.columns)}; the first {found.count:,} rows"
    return RefreshKeys(affected, changed, Reason("AFFECTED_KEYS", about), order=order)


def _of_all_rows(
    situation: Situation,
    whole: Affected | Reason,
    stretch: AffectedInterval | None,
    algebra: Algebra | None,
    otherwise: Reason,
) -> RefreshKeys | Reason:
    """The step of a table all of whose rows are of one key; `otherwise` where neither a stretch nor algebra serves."""
    if isinstance(whole, Reason):
        return otherwise
    changed, clock = situation.changed, situation.clock
    whole = whole if clock is None else whole.at(clock)
    if stretch is not None and not stretch.keys:
        return RefreshKeys(whole, frozenset(changed), _near(stretch), stretch=stretch, otherwise=otherwise)
    if algebra is not None and not algebra.keys:
        return RefreshKeys(whole, frozenset(changed), ALL_ROWS, algebra, otherwise=otherwise)
    return otherwise


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _near(stretch: AffectedInterval) -> Reason:
    return Reason("AFFECTED_KEYS", f"{', '.join(stretch.columns)}: {stretch}")


def _stretch(situation: Situation) -> AffectedInterval | None:
    """The rows of the changed keys that are to be read alone; None for all of them."""
    spec, found = situation.spec, find_affected_interval(situation.query)
    if found is None or set(situation.changed) != {found.input}:
        return None
    if not isinstance(found, AffectedSessions) and (spec.constraints or spec.time_partitions is not None):
        # The old matches and windows are asked of the table, which then has not all of them.
        return None
    return found


def _refold(situation: Situation) -> RefoldKeys | Reason:
    """The step that folds the keys of changed rows again, or why it is not right."""
    spec = situation.spec
    (item,) = situation.changed.values()
    merge = spec.merge
    assert merge is not None
    branches = find_branches(situation.query)
    if isinstance(branches, Reason):
        return branches
    if item.log and merge.compares_with_stored:
        return Reason("UNSUPPORTED", f"the rows of a log are merged: {item.name} only grows")
    if merge.upstream_deletes == "ignore":
        return Reason("UNSUPPORTED", "upstream-deletes = ignore: the input no longer has every row that was folded")
    if not merge.follows_from_rows:
        return Reason("UNSUPPORTED", "a first row by arrival does not follow from the rows that the input has now")
    if not item.log and not item.change_feed:
        return Reason("CDF_DISABLED", str(item.name))
    if item.kind is ChangeKind.APPEND:
        return RefoldKeys(item.name, Reason("AFFECTED_KEYS", ", ".join(spec.primary_key)))
    return RefoldKeys(item.name, Reason("UPSTREAM_DELETES", str(item.name)))


def _of_function(query: PythonQuery, situation: Situation) -> KeysOfFunction | Reason:
    """The step of a table in Python, by the promise of its declaration; or why it is not right."""
    receipt, changed = situation.receipt, situation.changed
    assert receipt is not None
    if not query.keys:
        return Reason("UDF_NOT_DECLARED", "keys")
    if receipt.promise != query.promise:
        return Reason("UDF_NOT_DECLARED", "its promise is new, and is tried first")
    if receipt.has_partition_positions or receipt.valid_from_seq is not None:
        return Reason("UNSUPPORTED", "rows of other positions, or of an earlier declaration, are kept")
    promised = {name for name, _ in query.keys}
    others = [name for name in changed if name not in promised]
    if others:
        return Reason("UNSUPPORTED", f"{others[0]} changed, of which the declaration names no key")
    without = situation.other_dimension or situation.without_change_feed
    if without is not None:
        return without
    reason = Reason("AFFECTED_KEYS", ", ".join(query.key_columns))
    return KeysOfFunction(frozenset(changed), query.key_columns, reason)


def _of_process(query: PythonQuery, process: Process, situation: Situation) -> KeysOfProcess | Reason:
    """The step of a class that is given the rows of each key; or why it is not right."""
    receipt, closing, (name,) = situation.receipt, situation.closing, query.reads
    assert receipt is not None
    if receipt.has_partition_positions or receipt.valid_from_seq is not None:
        return Reason("UNSUPPORTED", "rows of other positions, or of an earlier declaration, are kept")
    if not process.has_own_key:
        # Stored rows do not say of which key they are: a replay of the key as it was does, and a row is found by all of
        # its values.
        if situation.spec.primary_key:
            return Reason("UNSUPPORTED", f"a PRIMARY KEY without the columns of the key: {', '.join(process.keys)}")
        if any(part in kind for _, kind in process.columns for part in ("MAP<", "VARIANT")):
            return Reason("UNSUPPORTED", "a MAP in rows that have no columns of the key")
    if closing is not None and closing.after is not None and (closing.until is None or closing.until < closing.after):
        return Reason("UNSUPPORTED", "the watermark of the input went back")
    without = situation.without_change_feed
    if without is not None:
        return without
    about = ", ".join(process.keys)
    if closing is not None and situation.timers_due:
        about += f"; timers by the watermark of {name}"
    return KeysOfProcess(name, process.keys, Reason("AFFECTED_KEYS", about))


def _algebra(spec: TableSpec, query: ResolvedQuery, changed: frozenset[str]) -> Algebra | None:
    """How the table's aggregates follow from changed rows, where its key identifies each group."""
    if spec.constraints or spec.time_partitions is not None:
        # A group that a constraint leaves out has no stored values to follow from, and groups of partitions that the
        # table does not have yet would come as new ones.
        return None
    found = find_algebra(query, changed)
    if found is None or (spec.primary_key and not found.keys):
        return None
    unique = not spec.primary_key or set(found.keys) <= _lower(spec.primary_key)
    return found if unique else None
