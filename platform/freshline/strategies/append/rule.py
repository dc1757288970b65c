"""When rows can be added: every operator of the query only ever adds rows for rows that come."""

from __future__ import annotations

from dataclasses import dataclass

from freshline.plan.changes import ChangeKind
from freshline.plan.step import Situation, Step
from freshline.plan.strategy import RefreshStrategy
from freshline.query.rules.append import find_branches
from freshline.values.names import TableName
from freshline.values.query import PythonQuery
from freshline.values.reason import Reason
from freshline.values.result import Strategy
from freshline.values.spec import TableSpec


@dataclass(frozen=True)
class Append(Step):
    """Add the query over the change set. `as_changes` are the inputs read as their new rows only."""

    as_changes: frozenset[TableName]
    reason: Reason

    computed_by = "freshline.strategies.append.write:append"
    strategy = Strategy.APPEND
    activity = "appending new rows"
    reads_changes = True


@dataclass(frozen=True)
class AppendOfFunction(Step):
    """Add the rows that the table's function makes of the new rows of `input`, each of which gives rows by itself."""

    input: TableName
    reason: Reason

    computed_by = "freshline.strategies.append.function:append_of_function"
    strategy = Strategy.APPEND
    activity = "appending what the function makes of new rows"
    reads_changes = True


class AppendStrategy(RefreshStrategy):
    """Rows are added. An append never reads the table, so its price is not compared with that of a full refresh."""

    name = Strategy.APPEND

    def applies_to(self, spec: TableSpec) -> bool:
        return spec.merge is None

    def find_step(self, situation: Situation) -> Append | AppendOfFunction | Reason:
        spec, receipt, changed = situation.spec, situation.receipt, situation.changed
        assert receipt is not None
        if situation.clock is not None:
            return Reason("UNSUPPORTED", "rows enter and leave as time passes")
        if not changed and situation.lookups_due:
            return Append(frozenset(spec.driving), Reason("PARKED_ROWS"))
        # Partitions that were refreshed separately have rows beyond the receipt's positions: an append of the rows that
        # came since those would bring in such rows twice. Below a lookup join they were computed at these positions.
        if receipt.has_partition_positions and not spec.lookups:
            return Reason("UNSUPPORTED", "partitions were refreshed apart from the rest")
        if not all(changes.kind is ChangeKind.APPEND for changes in changed.values()):
            return Reason("UNSUPPORTED", "updates or deletes of an input")
        if isinstance(spec.query, PythonQuery):
            return _of_function(spec.query, situation)
        if spec.query.graph is not None:
            return Reason("UNSUPPORTED", spec.query.graph.function.name)
        branches = find_branches(situation.query)
        inputs = branches if isinstance(branches, Reason) else branches.delta_inputs(frozenset(changed))
        if isinstance(inputs, Reason):
            return inputs
        about = ", ".join(str(name) for name in changed)
        return situation.without_change_feed or Append(inputs, Reason("INSERTS_ONLY", about))


def _of_function(query: PythonQuery, situation: Situation) -> AppendOfFunction | Reason:
    """The step of a table in Python, by the promise of its declaration."""
    if query.process is not None:
        return Reason("UNSUPPORTED", "a key is replayed as a whole")
    if query.append is None:
        return Reason("UDF_NOT_DECLARED", "append")
    if situation.receipt is not None and situation.receipt.promise != query.promise:
        return Reason("UDF_NOT_DECLARED", "its promise is new, and is tried first")
    others = [name for name in situation.changed if name != query.append]
    if others:
        return Reason("UNSUPPORTED", f"{others[0]} changed, and each row follows from {query.append}")
    about = ", ".join(str(name) for name in situation.changed)
    without = situation.other_dimension or situation.without_change_feed
    return without or AppendOfFunction(query.append, Reason("INSERTS_ONLY", about))
