"""The step that a refresh will take, chosen from values.

Doing nothing is a step, with a reason. Running and explaining read the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from freshline.declare.managing import NOW
from freshline.declare.names import TableName
from freshline.declare.query import SqlQuery
from freshline.declare.spec import DeltaJoin, MergeKind, TableSpec
from freshline.errors import IncrementalError
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.partition import Interval
from freshline.plan.receipt import Receipt
from freshline.plan.request import RefreshRequest
from freshline.query.query import Query, read_query
from freshline.query.reason import Reason
from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.algebra import Algebra, find_algebra
from freshline.query.rules.append import find_branches
from freshline.query.rules.keys import Affected, find_affected
from freshline.query.rules.partition import find_origin


@dataclass(frozen=True)
class Noop:
    """Leave the table as it is."""

    reason: Reason


@dataclass(frozen=True)
class Append:
    """Add the query over the change set. `as_changes` are the inputs read as their new rows only."""

    as_changes: frozenset[TableName]
    reason: Reason


@dataclass(frozen=True)
class MergeRows:
    """Fold the new rows of `input` to one row a key and merge them.

    `updates` says that rows were updated too and that what they became counts as new; what was deleted stays.
    """

    input: TableName
    reason: Reason
    updates: bool = False


@dataclass(frozen=True)
class RefoldKeys:
    """Fold the keys of changed rows of `input` again, over all rows that the input has of them now."""

    input: TableName
    reason: Reason


@dataclass(frozen=True)
class ReplacePartitions:
    """Compute the partitions again that changed rows of `input` belong to.

    `expressions` give the partition's values from the input's columns, in the order of the partition columns.
    """

    input: TableName
    expressions: tuple[str, ...]
    reason: Reason


@dataclass(frozen=True)
class ReplaceNamedPartitions:
    """Compute the partitions again that were asked for, at the positions that the situation gives."""

    partitions: tuple[tuple[tuple[str, str], ...], ...]
    reason: Reason


@dataclass(frozen=True)
class FillPartitions:
    """Compute these stretches of time, which are missing or of an older declaration, where the others stand already."""

    intervals: tuple[Interval, ...]
    reason: Reason


@dataclass(frozen=True)
class Full:
    """Compute everything again and overwrite."""

    reason: Reason


@dataclass(frozen=True)
class Begin:
    """Let a changed declaration hold from here on: from `now`, or for the partitions from a date on."""

    start: str
    reason: Reason


@dataclass(frozen=True)
class RefreshKeys:
    """Compute the rows of affected keys again, and write those that differ. `changed` are the inputs that changed.

    `algebra` says how they follow from their old values and the changed rows, where they do.
    """

    affected: Affected
    changed: frozenset[TableName]
    reason: Reason
    algebra: Algebra | None = None


Step = (
    Noop
    | Append
    | MergeRows
    | RefoldKeys
    | RefreshKeys
    | ReplacePartitions
    | ReplaceNamedPartitions
    | FillPartitions
    | Begin
    | Full
)
STRATEGIES = ("append", "merge", "keys", "partition", "full")


@dataclass(frozen=True)
class Situation:
    """All that a choice depends on.

    `changes` are those of every input, dimensions of lookup joins included. `columns` are those of every input, where
    they are known. `parked_due` says that rows which missed their dimension are to be looked up again. `types` are
    those of the columns of inputs, in lower case, where they are known. `redefined` is what changed in the declaration,
    where that can be taken up. `gaps` are the stretches of time that the table should have by now and does not.
    """

    spec: TableSpec
    receipt: Receipt | None
    foreign_write: bool
    changes: Mapping[TableName, Changes]
    request: RefreshRequest
    columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    parked_due: bool = False
    types: Mapping[TableName, Mapping[str, str]] = field(default_factory=dict)
    redefined: str = ""
    gaps: tuple[Interval, ...] = ()


@dataclass(frozen=True)
class Candidates:
    """What could be done. `steps` are right for the situation, the preferred one first, `full` among them.

    `refused` says of strategies that are not among them why.
    """

    steps: tuple[Step, ...]
    refused: Mapping[str, Reason]


def choose_step(situation: Situation) -> Step:
    """The step to take: the preferred candidate, or the strategy that was asked for.

    Rules are asked in order until one holds, so a rule behind it costs nothing. Raises IncrementalError where the
    strategy that was asked for is not right for the situation.
    """
    asked, rules = situation.request.strategy, rules_of(situation.spec)
    if asked is not None and asked in rules:
        rules = {asked: rules[asked]}
    found = _without_changes(situation) or _ask(situation, rules, first_only=asked is None)
    if asked is None or isinstance(found.steps[0], Noop):
        return found.steps[0]
    for step in found.steps:
        if strategy_of(step) == asked:
            return step
    reason = found.refused.get(asked) or Reason("UNSUPPORTED", f"strategy {asked} for this table")
    raise IncrementalError(
        f"strategy {asked} was asked for and cannot be taken: {reason}.", where=str(situation.spec.name)
    )


def strategy_of(step: Step) -> str:
    """The name of a step's strategy."""
    match step:
        case Noop():
            return "noop"
        case Append():
            return "append"
        case MergeRows():
            return "merge"
        case RefreshKeys() | RefoldKeys():
            return "keys"
        case ReplacePartitions() | ReplaceNamedPartitions() | FillPartitions():
            return "partition"
        case Begin(start):
            return "append" if start == NOW else "partition"
        case Full():
            return "full"
    assert_never(step)


def find_candidates(situation: Situation) -> Candidates:
    """Every step that is right for the situation, whichever of them a refresh would take."""
    return _without_changes(situation) or _ask(situation, rules_of(situation.spec))


def rules_of(spec: TableSpec) -> Mapping[str, Rule]:
    """The rules for changes of a table's inputs by strategy, the preferred one first.

    Each is asked by itself, of a situation whose receipt is there and in which an input that drives the table changed.
    """
    return MERGE_RULES if spec.merge is not None else QUERY_RULES


def _ask(situation: Situation, rules: Mapping[str, Rule], *, first_only: bool = False) -> Candidates:
    """The steps of these rules, and a full refresh; with `first_only`, no rule is asked after one that holds."""
    steps: list[Step] = []
    refused: dict[str, Reason] = {}
    for strategy, rule in rules.items():
        found = rule(situation)
        if isinstance(found, Reason):
            refused[strategy] = found
            continue
        steps.append(found)
        if first_only:
            break
    return Candidates((*steps, Full(_why_full(refused))), refused)


def _without_changes(situation: Situation) -> Candidates | None:
    """The candidates of a situation in which it does not matter what the query makes of changes; None otherwise."""
    spec, receipt, request = situation.spec, situation.receipt, situation.request
    if request.partitions:
        return _only(ReplaceNamedPartitions(request.partitions, Reason("REQUESTED")))
    whole = _whole(situation)
    if whole is not None or receipt is None:
        return _only(whole or Full(Reason("NO_RECEIPT")))
    driving = {name: situation.changes[name] for name in spec.driving}
    for kind, code in (
        (ChangeKind.SOURCE_REPLACED, "SOURCE_REPLACED"),
        (ChangeKind.SCHEMA_CHANGED, "SCHEMA_CHANGED"),
        (ChangeKind.HISTORY_GONE, "HISTORY_GONE"),
    ):
        hit = [changes for changes in driving.values() if changes.kind is kind]
        if hit:
            return _only(Full(Reason(code, "; ".join(f"{item.name}: {item.detail or kind}" for item in hit))))
    if situation.gaps or not _changed(situation):
        return _gaps_or_nothing(situation)
    if not isinstance(spec.query, SqlQuery):
        return _only(Full(Reason("UDF_NOT_DECLARED")))
    query = read_query(spec.query)
    if query.volatile is not None:
        return _only(Full(Reason("NONDETERMINISTIC", query.volatile)))
    return None


def _changed(situation: Situation) -> Mapping[TableName, Changes]:
    """The inputs that drive the table and changed."""
    driving = {name: situation.changes[name] for name in situation.spec.driving}
    return {name: changes for name, changes in driving.items() if changes.kind is not ChangeKind.NOTHING}


def _query(situation: Situation) -> Query:
    assert isinstance(situation.spec.query, SqlQuery)
    return read_query(situation.spec.query)


def _whole(situation: Situation) -> Full | Begin | None:
    """The step of a table that does not go on from its newest receipt; None for one that does."""
    spec, receipt, request = situation.spec, situation.receipt, situation.request
    if request.full:
        return Full(Reason("REQUESTED"))
    if receipt is None:
        return Full(Reason("NO_RECEIPT"))
    changed = receipt.fingerprint != spec.fingerprint
    if changed and request.start is not None and isinstance(spec.query, SqlQuery):
        return Begin(request.start, Reason("STARTED", situation.redefined))
    if situation.foreign_write:
        return Full(Reason("FOREIGN_WRITE"))
    redefined = changed or bool(situation.redefined)
    return Full(Reason("DEFINITION_CHANGED", situation.redefined)) if redefined else None


def _gaps_or_nothing(situation: Situation) -> Candidates:
    """Where partitions are missing, which come before all changes, or nothing that drives the table changed."""
    spec = situation.spec
    if situation.gaps:
        return _only(FillPartitions(situation.gaps, Reason("PARTITIONS_MISSING", _shown(situation.gaps))))
    if situation.parked_due:
        return Candidates((Append(frozenset(spec.driving), Reason("PARKED_ROWS")), Full(Reason("REQUESTED"))), {})
    dimensions = [name for name in spec.lookups if situation.changes[name].kind is not ChangeKind.NOTHING]
    about = Reason("DIMENSIONS_ONLY", ", ".join(map(str, dimensions))) if dimensions else Reason("NOTHING_NEW")
    return _only(Noop(about))


def _shown(gaps: Sequence[Interval]) -> str:
    """The gaps in UTC, the first ones only."""
    texts = [f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}" for start, end in gaps[:3]]
    return ", ".join(texts) + (f" and {len(gaps) - 3} more" if len(gaps) > 3 else "")


def _only(step: Step) -> Candidates:
    refused = {name: step.reason for name in STRATEGIES if name != strategy_of(step)}
    return Candidates((step,), refused)


def _why_full(refused: Mapping[str, Reason]) -> Reason:
    """The reason that tells most: of the most general strategy that was refused."""
    for strategy in ("merge", "keys", "partition", "append"):
        if strategy in refused:
            return refused[strategy]
    return Reason("REQUESTED")


def merge_step(situation: Situation) -> MergeRows | Reason:
    """The step that folds new rows into the stored ones, or why it is not right."""
    spec = situation.spec
    (item,) = _changed(situation).values()
    branches = find_branches(_query(situation))
    if isinstance(branches, Reason):
        return branches
    assert spec.merge is not None
    updates = item.kind is not ChangeKind.APPEND
    if updates and spec.merge.upstream_deletes != "ignore":
        return Reason("UPSTREAM_DELETES", str(item.name))
    if not item.log and not item.change_feed:
        return Reason("CDF_DISABLED", str(item.name))
    if spec.merge.kind is MergeKind.LAST_ROW and not item.log and _needs_older_rows(spec):
        # Looking older rows up needs the input's rows as they were; only a log keeps them all.
        return Reason("UNSUPPORTED", f"last_row with deletes over {item.name}, which is no log table")
    return MergeRows(item.name, Reason("MERGE_TYPE", spec.merge.kind), updates)


def refold_step(situation: Situation) -> RefoldKeys | Reason:
    """The step that folds the keys of changed rows again, or why it is not right."""
    spec = situation.spec
    (item,) = _changed(situation).values()
    merge = spec.merge
    assert merge is not None
    branches = find_branches(_query(situation))
    if isinstance(branches, Reason):
        return branches
    if item.log:
        return Reason("UNSUPPORTED", f"the rows of a log are merged: {item.name} only grows")
    if merge.upstream_deletes == "ignore":
        return Reason("UNSUPPORTED", "upstream-deletes = ignore: the input no longer has every row that was folded")
    if merge.order is None or merge.late == "ignore":
        return Reason("UNSUPPORTED", "a first row by arrival does not follow from the rows that the input has now")
    if not item.change_feed:
        return Reason("CDF_DISABLED", str(item.name))
    if item.kind is ChangeKind.APPEND:
        return RefoldKeys(item.name, Reason("AFFECTED_KEYS", ", ".join(spec.primary_key)))
    return RefoldKeys(item.name, Reason("UPSTREAM_DELETES", str(item.name)))


def _needs_older_rows(spec: TableSpec) -> bool:
    return spec.merge is not None and spec.merge.delete_when is not None


def _without_feed(changed: Mapping[TableName, Changes]) -> Reason | None:
    for changes in changed.values():
        if not changes.log and not changes.change_feed:
            return Reason("CDF_DISABLED", str(changes.name))
    return None


def append_step(situation: Situation) -> Append | Reason:
    """The step that adds the query over new rows, or why it is not right."""
    spec, receipt, changed = situation.spec, situation.receipt, _changed(situation)
    assert receipt is not None
    # Partitions that were refreshed apart from the rest hold rows beyond the receipt's positions: to append what came
    # since those would bring in such rows twice. Below a lookup join they were computed at the receipt's positions.
    if receipt.is_apart and not spec.lookups:
        return Reason("UNSUPPORTED", "partitions were refreshed apart from the rest")
    if not all(changes.kind is ChangeKind.APPEND for changes in changed.values()):
        return Reason("UNSUPPORTED", "updates or deletes of an input")
    branches = find_branches(_query(situation))
    inputs = branches if isinstance(branches, Reason) else branches.delta_inputs(frozenset(changed))
    if isinstance(inputs, Reason):
        return inputs
    return _without_feed(changed) or Append(inputs, Reason("INSERTS_ONLY", ", ".join(str(name) for name in changed)))


def partition_step(situation: Situation) -> ReplacePartitions | Reason:
    """The step that computes touched partitions again, or why it is not right."""
    spec, receipt, changed = situation.spec, situation.receipt, _changed(situation)
    assert receipt is not None
    if receipt.kept_before is not None:
        return Reason("UNSUPPORTED", "rows of an earlier declaration are kept, and a partition may have such")
    if spec.lookups:
        return Reason("UNSUPPORTED", "partitions of a lookup join are computed only where they are named")
    origin = find_origin(_query(situation), spec.partitioned_by)
    if isinstance(origin, Reason):
        return origin
    others = [name for name in changed if name != origin.input]
    if others:
        return Reason("UNSUPPORTED", f"{others[0]} changed, the partition follows from {origin.input}")
    return _without_feed(changed) or ReplacePartitions(
        origin.input, origin.expressions, Reason("PARTITION_OF_SOURCE", ", ".join(origin.expressions))
    )


def keys_step(situation: Situation) -> RefreshKeys | Reason:
    """The step that computes the rows of affected keys again, or why it is not right."""
    spec, receipt, changed = situation.spec, situation.receipt, _changed(situation)
    assert receipt is not None
    if spec.lookups:
        # A row keeps the dimension that it met, so it cannot be computed again from what is there now.
        return Reason("UNSUPPORTED", "updates or deletes below a lookup join")
    if receipt.is_apart:
        return Reason("UNSUPPORTED", "partitions were refreshed apart from the rest")
    if spec.delta_join is DeltaJoin.NONE:
        return Reason("UNSUPPORTED", "delta-join.strategy = NONE")
    without = _without_feed(changed)
    if without is not None:
        return without
    schema = {name.view.lower(): situation.columns.get(name, ()) for name in spec.reads}
    unknown = [relation for relation, columns in schema.items() if not columns]
    if unknown:
        return Reason("UNSUPPORTED", f"the columns of {unknown[0]} are not known")
    types = {name.view.lower(): types for name, types in situation.types.items()}
    resolved = ResolvedQuery.of(_query(situation).text, schema, types)
    touched = frozenset(name.view.lower() for name in changed)
    affected = find_affected(resolved, touched, primary_key=spec.primary_key)
    if isinstance(affected, Reason):
        return affected
    reason = Reason("AFFECTED_KEYS", ", ".join(affected.columns))
    if receipt.kept_before is None:
        return RefreshKeys(affected, frozenset(changed), reason, _algebra(spec, resolved, touched))
    # Of rows that follow an earlier declaration only the key is as in this one.
    if not {column.lower() for column in affected.columns} <= {column.lower() for column in spec.primary_key}:
        return Reason("UNSUPPORTED", "rows of an earlier declaration are kept, and are not found by a primary key")
    return RefreshKeys(affected, frozenset(changed), reason)


def _algebra(spec: TableSpec, query: ResolvedQuery, changed: frozenset[str]) -> Algebra | None:
    """How the table's aggregates follow from changed rows, where the groups are the rows that its key tells apart."""
    if spec.constraints or spec.time_partitions is not None:
        # A group that a constraint leaves out has no stored values to follow from, and groups of partitions that the
        # table does not have yet would come as new ones.
        return None
    found = find_algebra(query, changed)
    if found is None:
        return None
    unique = not spec.primary_key or set(found.keys) <= {key.lower() for key in spec.primary_key}
    return found if unique else None


Rule = Callable[[Situation], Step | Reason]
QUERY_RULES: Mapping[str, Rule] = {"append": append_step, "partition": partition_step, "keys": keys_step}
MERGE_RULES: Mapping[str, Rule] = {"merge": merge_step, "keys": refold_step}
