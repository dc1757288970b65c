"""When the rows of a change set can be merged into the stored rows of their keys."""

from __future__ import annotations

from dataclasses import dataclass

from freshline.plan.changes import ChangeKind
from freshline.plan.step import Situation, Step
from freshline.plan.strategy import RefreshStrategy
from freshline.query.rules.append import find_branches
from freshline.values.names import TableName
from freshline.values.reason import Reason
from freshline.values.result import Strategy
from freshline.values.spec import TableSpec


@dataclass(frozen=True)
class MergeRows(Step):
    """Fold the new rows of `input` to one row a key and merge them.

    `updates` says that rows were updated too and that what they became counts as new; what was deleted stays.
    """

    input: TableName
    reason: Reason
    updates: bool = False

    computed_by = "freshline.strategies.merge.write:merge"
    strategy = Strategy.MERGE
    activity = "merging new rows"
    reads_changes = True
    is_priced = True

    @property
    def keeps_rows_of(self) -> TableName | None:
        return self.input if self.updates else None


class MergeStrategy(RefreshStrategy):
    """New rows are merged into the stored ones."""

    name = Strategy.MERGE

    def applies_to(self, spec: TableSpec) -> bool:
        return spec.merge is not None

    def find_step(self, situation: Situation) -> MergeRows | Reason:
        merge = situation.spec.merge
        assert merge is not None
        (item,) = situation.changed.values()
        branches = find_branches(situation.query)
        if isinstance(branches, Reason):
            return branches
        if not merge.compares_with_stored:
            return Reason("UNSUPPORTED", f"{merge.name} folds whole keys")
        updates = item.kind is not ChangeKind.APPEND
        if updates and merge.upstream_deletes != "ignore":
            return Reason("UPSTREAM_DELETES", str(item.name))
        if not item.log and not item.change_feed:
            return Reason("CDF_DISABLED", str(item.name))
        if merge.needs_older_rows and not item.log:
            # Looking older rows up needs the input's rows as they were; only a log keeps them all.
            return Reason("UNSUPPORTED", f"{merge.name} with deletes over {item.name}, which is no log table")
        return MergeRows(item.name, Reason("MERGE_TYPE", merge.name), updates)
