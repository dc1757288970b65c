"""The step that a refresh will take, chosen from values.

Doing nothing is a step, with a reason. Running and explaining read the same step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from freshline.declare.names import TableName
from freshline.declare.query import SqlQuery
from freshline.declare.spec import MergeKind, TableSpec
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.reason import Reason
from freshline.plan.receipt import Receipt
from freshline.plan.request import RefreshRequest
from freshline.plan.shape import Shape, read_shape


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
    """Fold the new rows of `input` to one row a key and merge them."""

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
class Full:
    """Compute everything again and overwrite."""

    reason: Reason


Step = Noop | Append | MergeRows | ReplacePartitions | ReplaceNamedPartitions | Full


@dataclass(frozen=True)
class Situation:
    """All that a choice depends on. `changes` are those of every input, dimensions of lookup joins included."""

    spec: TableSpec
    receipt: Receipt | None
    foreign_write: bool
    changes: Mapping[TableName, Changes]
    request: RefreshRequest


def choose_step(situation: Situation) -> Step:
    """The cheapest step that is right for the situation; gates first, then the query's shape."""
    spec, receipt, request = situation.spec, situation.receipt, situation.request
    if request.partitions:
        return ReplaceNamedPartitions(request.partitions, Reason("REQUESTED"))
    if request.full:
        return Full(Reason("REQUESTED"))
    if receipt is None:
        return Full(Reason("NO_RECEIPT"))
    if situation.foreign_write:
        return Full(Reason("FOREIGN_WRITE"))
    if receipt.fingerprint != spec.fingerprint:
        return Full(Reason("DEFINITION_CHANGED"))
    driving = {name: situation.changes[name] for name in spec.driving}
    for kind, code in (
        (ChangeKind.SOURCE_REPLACED, "SOURCE_REPLACED"),
        (ChangeKind.SCHEMA_CHANGED, "SCHEMA_CHANGED"),
        (ChangeKind.HISTORY_GONE, "HISTORY_GONE"),
    ):
        hit = [changes for changes in driving.values() if changes.kind is kind]
        if hit:
            return Full(Reason(code, "; ".join(f"{item.name}: {item.detail or kind}" for item in hit)))
    changed = {name: changes for name, changes in driving.items() if changes.kind is not ChangeKind.NOTHING}
    if not changed:
        dimensions = [n for n in spec.lookups if situation.changes[n].kind is not ChangeKind.NOTHING]
        return Noop(Reason("DIMENSIONS_ONLY", ", ".join(map(str, dimensions))) if dimensions else Reason("NOTHING_NEW"))
    if not isinstance(spec.query, SqlQuery):
        return Full(Reason("UDF_NOT_DECLARED"))
    shape = read_shape(spec.query, spec.partitioned_by)
    if shape.volatile is not None:
        return Full(Reason("NONDETERMINISTIC", shape.volatile))
    if spec.merge is not None:
        return _merge(spec, changed, shape)
    return _append_or_partition(spec, receipt, changed, shape)


def _merge(spec: TableSpec, changed: Mapping[TableName, Changes], shape: Shape) -> Step:
    (item,) = changed.values()
    if shape.not_monotone is not None:
        return Full(shape.not_monotone)
    if item.kind is not ChangeKind.APPEND:
        return Full(Reason("UPSTREAM_DELETES", str(item.name)))
    if not item.log and not item.change_feed:
        return Full(Reason("CDF_DISABLED", str(item.name)))
    assert spec.merge is not None
    if spec.merge.kind is MergeKind.LAST_ROW and not item.log and _needs_older_rows(spec):
        # Looking older rows up needs the input's rows as they were; only a log keeps them all.
        return Full(Reason("UNSUPPORTED", f"last_row with deletes over {item.name}, which is no log table"))
    return MergeRows(item.name, Reason("MERGE_TYPE", spec.merge.kind))


def _needs_older_rows(spec: TableSpec) -> bool:
    return spec.merge is not None and spec.merge.delete_when is not None


def _append_or_partition(spec: TableSpec, receipt: Receipt, changed: Mapping[TableName, Changes], shape: Shape) -> Step:
    refused: Reason | None = None
    # Partitions that were refreshed apart from the rest hold rows beyond the receipt's positions: to append what came
    # since those would bring in such rows twice. Below a lookup join they were computed at the receipt's positions.
    if receipt.partitions and not spec.lookups:
        refused = Reason("UNSUPPORTED", "partitions were refreshed apart from the rest")
    elif all(changes.kind is ChangeKind.APPEND for changes in changed.values()):
        without_feed = [c for c in changed.values() if not c.log and not c.change_feed]
        inputs = shape.delta_inputs(frozenset(changed))
        if isinstance(inputs, Reason):
            refused = inputs
        elif without_feed:
            refused = Reason("CDF_DISABLED", str(without_feed[0].name))
        else:
            return Append(inputs, Reason("INSERTS_ONLY", ", ".join(str(name) for name in changed)))
    elif spec.lookups:
        refused = Reason("UNSUPPORTED", "updates or deletes below a lookup join")
    if shape.origin is not None and not spec.lookups:
        origin = shape.origin
        others = [name for name in changed if name != origin.input]
        item = changed.get(origin.input)
        if not others and item is not None:
            if item.log or item.change_feed:
                return ReplacePartitions(
                    origin.input, origin.expressions, Reason("PARTITION_OF_SOURCE", ", ".join(origin.expressions))
                )
            return Full(Reason("CDF_DISABLED", str(item.name)))
        if refused is None:
            refused = Reason("UNSUPPORTED", f"{others[0]} changed, the partition follows from {origin.input}")
    if shape.origin is None and spec.partitioned_by and shape.no_origin is not None:
        return Full(shape.no_origin)
    return Full(refused or shape.not_monotone or Reason("UNSUPPORTED", "updates or deletes of an input"))
