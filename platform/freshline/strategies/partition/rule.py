"""When the partitions can be computed again that changed rows belong to."""

from __future__ import annotations

from dataclasses import dataclass

from freshline.plan.models import has_rows_of_other_models
from freshline.plan.step import Situation, Step
from freshline.plan.strategy import RefreshStrategy
from freshline.query.rules.partition import find_origin
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.reason import Reason
from freshline.values.result import Strategy
from freshline.values.spec import TableSpec


@dataclass(frozen=True)
class ReplacePartitions(Step):
    """Compute the partitions again that changed rows of `input` belong to.

    `expressions` give the partition's values from the input's columns, in the order of the partition columns.
    """

    input: TableName
    expressions: tuple[str, ...]
    reason: Reason

    computed_by = "freshline.strategies.partition.touched:replace_touched"
    strategy = Strategy.PARTITION
    activity = "computing partitions again"
    reads_changes = True
    is_priced = True

    @property
    def partition_input(self) -> TableName | None:
        return self.input


class PartitionStrategy(RefreshStrategy):
    """Partitions are replaced as a whole."""

    name = Strategy.PARTITION

    def applies_to(self, spec: TableSpec) -> bool:
        return spec.merge is None and isinstance(spec.query, SqlQuery)

    def find_step(self, situation: Situation) -> ReplacePartitions | Reason:
        spec, receipt, changed = situation.spec, situation.receipt, situation.changed
        assert receipt is not None
        if receipt.valid_from_seq is not None:
            return Reason("UNSUPPORTED", "rows of an earlier declaration are kept, and a partition may have such")
        if has_rows_of_other_models(spec, receipt):
            return Reason("UNSUPPORTED", "rows keep the prediction of an earlier model, and cannot be computed again")
        if situation.clock is not None:
            return Reason("UNSUPPORTED", "rows of every partition enter and leave as time passes")
        if spec.lookups:
            return Reason("UNSUPPORTED", "partitions of a lookup join are computed only where they are named")
        origin = find_origin(situation.query, spec.partitioned_by)
        if isinstance(origin, Reason):
            return origin
        others = [name for name in changed if name != origin.input]
        if others:
            return Reason("UNSUPPORTED", f"{others[0]} changed, the partition follows from {origin.input}")
        return situation.without_change_feed or ReplacePartitions(
            origin.input, origin.expressions, Reason("PARTITION_OF_SOURCE", ", ".join(origin.expressions))
        )
