"""The step that a refresh will take, chosen from values.

The strategies of a table are asked in order and the first that is right is taken; EXPLAIN asks all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from freshline.errors import IncrementalError
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.models import changed_models
from freshline.plan.step import (
    AddTriggered,
    AdoptDefinition,
    CloseWindows,
    FillPartitions,
    Full,
    Noop,
    ReplaceNamedPartitions,
    SendChanges,
    SendWhole,
    Situation,
    Step,
)
from freshline.plan.strategy import RefreshStrategy, strategies_of
from freshline.values.closing import Closing
from freshline.values.partition import Interval
from freshline.values.query import PythonQuery, SqlQuery
from freshline.values.reason import Reason
from freshline.values.result import Strategy

# The most general first: its reason explains best why everything is computed.
BY_GENERALITY = (Strategy.MERGE, Strategy.KEYS, Strategy.PARTITION, Strategy.APPEND)


@dataclass(frozen=True)
class Candidates:
    """The steps that are right for a situation, the preferred one first, and why other strategies are not right.

    A full refresh is always among the steps of a table that may be computed again.
    """

    steps: tuple[Step, ...]
    refused: Mapping[str, Reason]


def choose_step(situation: Situation) -> Step:
    """The step to take: the preferred candidate, or the strategy that was asked for.

    Strategies are asked in order until one is right, so those behind it cost nothing. Raises IncrementalError where the
    strategy that was asked for is not right for the situation, or one that the table names cannot be used.
    """
    if situation.spec.sink is not None:
        return _sent(situation)
    asked, strategies = situation.request.strategy, strategies_of(situation.spec)
    if asked is not None:
        strategies = tuple(each for each in strategies if each.name == asked) or strategies
    found = _without_changes(situation) or _ask(situation, strategies, first_only=asked is None)
    if asked is None or isinstance(found.steps[0], Noop):
        return found.steps[0]
    for step in found.steps:
        if step.strategy == asked:
            return step
    reason = found.refused.get(asked) or Reason("UNSUPPORTED", f"strategy {asked} for this table")
    raise IncrementalError(
        f"strategy {asked} was asked for and cannot be taken: {reason}.", where=str(situation.spec.name)
    )


def find_candidates(situation: Situation) -> Candidates:
    """Every step that is right for the situation, whichever of them a refresh would take."""
    if situation.spec.sink is not None:
        return Candidates((_sent(situation),), {})
    return _without_changes(situation) or _ask(situation, strategies_of(situation.spec))


def _sent(situation: Situation) -> Step:
    """The step of a sink: its query selects all columns of one table, so nothing has to be derived."""
    found = _without_changes(situation)
    if found is not None:
        (step,) = found.steps
        return step if isinstance(step, Noop) else SendWhole(step.reason)
    return SendChanges(Reason("ROWS_SENT", ", ".join(map(str, situation.changed))))


def _ask(situation: Situation, strategies: Sequence[RefreshStrategy], *, first_only: bool = False) -> Candidates:
    """The steps of these strategies, and a full refresh; with `first_only`, none is asked after one that is right."""
    steps: list[Step] = []
    refused: dict[str, Reason] = {}
    for strategy in strategies:
        found = strategy.find_step(situation)
        if isinstance(found, Reason):
            refused[strategy.name] = found
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
    if spec.is_triggered and (situation.changed or _has_watermark_moved(situation)):
        # Its query is computed as a whole, whatever happened to the inputs.
        return _only(AddTriggered(Reason("TRIGGERED")))
    driving = {name: situation.changes[name] for name in spec.driving}
    for kind, code in (
        (ChangeKind.SOURCE_REPLACED, "SOURCE_REPLACED"),
        (ChangeKind.SCHEMA_CHANGED, "SCHEMA_CHANGED"),
        (ChangeKind.HISTORY_GONE, "HISTORY_GONE"),
    ):
        hit = [f"{item.name}: {item.detail or kind}" for item in driving.values() if item.kind is kind]
        if kind is ChangeKind.SCHEMA_CHANGED:
            gained = ((item.name, _gained(situation, item)) for item in driving.values())
            hit += [f"{name}: {', '.join(f'new column {column}' for column in new)}" for name, new in gained if new]
        if hit:
            return _only(Full(Reason(code, "; ".join(hit))))
    if situation.closing is not None and spec.closes_windows:
        return _only(_closed(situation, situation.closing))
    if situation.clock is not None and situation.clock.before is None:
        return _only(Full(Reason("NO_CLOCK")))
    if situation.gaps or not (situation.changed or situation.timers_due or situation.time_passed):
        return _gaps_or_nothing(situation)
    if isinstance(spec.query, PythonQuery):
        return None if spec.query.promise else _only(Full(Reason("UDF_NOT_DECLARED")))
    query = situation.query
    if query.volatile is not None:
        return _only(Full(Reason("NONDETERMINISTIC", query.volatile)))
    return None


def _gained(situation: Situation, changes: Changes) -> Sequence[str]:
    """The columns that an input gained, where the query of the table may read one of them."""
    query = situation.spec.query
    if changes.gained and isinstance(query, SqlQuery) and not situation.query.may_name(changes.gained):
        return ()
    return changes.gained


def _has_watermark_moved(situation: Situation) -> bool:
    """Whether the condition of WHEN asks for the watermark, and that is another one than when it was evaluated."""
    closing = situation.closing
    return bool(situation.spec.query.moments) and closing is not None and closing.closes


def _closed(situation: Situation, closing: Closing) -> Step:
    """The step for a table of FINAL windows, whatever its inputs gained: only the watermark counts.

    Pairs of a join are final at once.
    """
    for name, changes in situation.changed.items():
        # Rows of a log and of a FINAL table stay. Such a table was computed anew then, of another declaration.
        if not changes.log and changes.kind is not ChangeKind.APPEND:
            return Full(Reason("SOURCE_REPLACED", f"{name}: its final rows were computed anew"))
    timed = situation.spec.query.timed
    if timed is not None and timed.inputs and situation.changed:
        return CloseWindows(Reason("INSERTS_ONLY", ", ".join(map(str, situation.changed))))
    if not closing.closes:
        return Noop(Reason("NO_WINDOW_CLOSED"))
    return CloseWindows(Reason("WINDOWS_CLOSED", closing.text))


def _whole(situation: Situation) -> Full | AdoptDefinition | None:
    """The step of a table that does not go on from its newest receipt; None for one that does."""
    spec, receipt, request = situation.spec, situation.receipt, situation.request
    if request.full:
        return Full(Reason("REQUESTED"))
    if receipt is None:
        return Full(Reason("NO_RECEIPT"))
    changed = receipt.fingerprint != spec.fingerprint
    if changed and request.start is not None and isinstance(spec.query, SqlQuery):
        return AdoptDefinition(request.start, Reason("STARTED", situation.redefined))
    if situation.foreign_write:
        return Full(Reason("FOREIGN_WRITE"))
    models = changed_models(spec, receipt) if changed else ""
    if models:
        return Full(Reason("MODEL_CHANGED", models))
    redefined = changed or bool(situation.redefined)
    return Full(Reason("DEFINITION_CHANGED", situation.redefined)) if redefined else None


def _gaps_or_nothing(situation: Situation) -> Candidates:
    """The step where partitions are missing, which precede all changes, or nothing that drives the table changed."""
    spec = situation.spec
    if situation.gaps:
        return _only(FillPartitions(situation.gaps, Reason("PARTITIONS_MISSING", _shown(situation.gaps))))
    if situation.lookups_due:
        again = [found for each in strategies_of(spec) if isinstance(found := each.find_step(situation), Step)]
        return Candidates((*again, Full(Reason("REQUESTED"))), {})
    dimensions = [name for name in spec.lookups if situation.changes[name].kind is not ChangeKind.NOTHING]
    if dimensions:
        return _only(Noop(Reason("DIMENSIONS_ONLY", ", ".join(map(str, dimensions)))))
    return _only(Noop(Reason("NO_ROW_CROSSED" if situation.stands_still else "NOTHING_NEW")))


def _shown(gaps: Sequence[Interval]) -> str:
    """The gaps in UTC, the first ones only."""
    texts = [f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}" for start, end in gaps[:3]]
    return ", ".join(texts) + (f" and {len(gaps) - 3} more" if len(gaps) > 3 else "")


def _only(step: Step) -> Candidates:
    refused = {str(name): step.reason for name in Strategy if name not in (step.strategy, Strategy.NOOP)}
    return Candidates((step,), refused)


def _why_full(refused: Mapping[str, Reason]) -> Reason:
    """The reason that explains most: of the most general strategy that was refused."""
    return next((refused[name] for name in (*BY_GENERALITY, *refused) if name in refused), Reason("REQUESTED"))
